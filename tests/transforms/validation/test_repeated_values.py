"""Values that repeat in many records are checked once, with the result of each record on its own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.example import Feature, FeatureType, encode_example
from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.layouts import FeatureSpec
from shardwright.transforms.records.record_schema import RecordSchema
from shardwright.transforms.validation.record import RecordChecker

SCHEMA = RecordSchema(
    (
        FeatureSpec("class", FeatureType.INT64, (), FeatureRole.LABEL),
        FeatureSpec("class/text", FeatureType.BYTES, (), FeatureRole.LABEL_TEXT),
        FeatureSpec("image", FeatureType.BYTES, (), FeatureRole.ENCODED),
        FeatureSpec("base", FeatureType.BYTES, (), FeatureRole.FILE_BASENAME, optional=True),
        FeatureSpec("name", FeatureType.BYTES, (), FeatureRole.KEY),
        FeatureSpec("sha256", FeatureType.BYTES, (), FeatureRole.SOURCE_SHA256, optional=True),
        FeatureSpec("width", FeatureType.INT64, (), FeatureRole.WIDTH),
    ),
    ("cats", "dogs"),
)
BYTES = FeatureType.BYTES


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """Records of which some are sound, and many are alike."""
    name = draw(
        st.sampled_from(
            [b"a/1.jpg", b"a/2.jpg", b"a/\xff.jpg", b"b/33.jpg", b"", b"\xff", "é".encode(), b"n" * 130]
        )
    )
    image = draw(st.sampled_from([0, 1, 90, 100, 113, 127, 128, 200, 16_300, 16_383, 16_384, 20_000]))
    label = draw(st.integers(0, 2))
    text = draw(st.sampled_from([(b"cats", b"dogs", b"")[label], b"dogs"]))
    features = {
        "class": Feature(FeatureType.INT64, [label]),
        "class/text": Feature(BYTES, [text]),
        "image": Feature(BYTES, [bytes(image)]),
        "name": Feature(BYTES, [name]),
        "width": Feature(FeatureType.INT64, [draw(st.sampled_from([7, 300]))]),
    }
    if draw(st.booleans()):
        features["sha256"] = Feature(BYTES, [draw(st.sampled_from([b"0" * 64, b"f" * 64, b"F" * 64, b"0"]))])
    if draw(st.booleans()):
        features["base"] = Feature(BYTES, [draw(st.sampled_from([name.rpartition(b"/")[2], b"1.jpg"]))])
    if draw(st.integers(0, 9)) == 0:
        features["extra"] = Feature(BYTES, [b"\n\x05image\x12\x03\n\x01\n"])
    data = encode_example(features)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1]))):
        place = draw(st.integers(0, len(data) - 1))
        data = data[:place] + draw(st.binary(max_size=2)) + data[place + 1 :]
    return data


@given(st.lists(records(), max_size=12), st.booleans())
def test_a_checker_of_many_records_finds_what_one_of_each_record_finds(found: list[bytes], own: bool) -> None:
    schema = SCHEMA if own else SCHEMA._replace(labels=None)
    checker = RecordChecker(schema, decode=False)
    for data in found + found:
        assert checker.check(data) == RecordChecker(schema, decode=False).check(data)
