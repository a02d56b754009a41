"""Fast tests of values, also of repeated ones, never pass values with a problem."""

from __future__ import annotations

import math

import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.schemas.example import Feature, FeatureType, encode_example
from shardwright.schemas.feature_roles import FEATURE_ROLES, FeatureRole
from shardwright.schemas.layouts import FeatureSpec
from shardwright.transforms.records.record_schema import RecordSchema
from shardwright.transforms.validation.record import RecordChecker
from shardwright.transforms.validation.values import presence_problems, sound_test, value_problems

_VALUES = {
    FeatureType.BYTES: st.one_of(
        st.binary(max_size=5), st.text(max_size=5).map(str.encode), st.just(b"0a" * 32), st.just(b"train")
    ),
    FeatureType.INT64: st.one_of(st.integers(-3, 300), st.integers(-(2**63), 2**63 - 1)),
    FeatureType.FLOAT: st.floats(),
}
_ROLES = [role for role in FeatureRole if role in FEATURE_ROLES]
_SHAPES: list[tuple[int | None, ...]] = [(), (3,), (None,), (None, 4)]


@given(
    st.sampled_from(_ROLES), st.sampled_from(FeatureType), st.sampled_from(_SHAPES), st.booleans(), st.data()
)
@settings(max_examples=examples(400), deadline=None)
def test_values_that_pass_the_fast_test_have_no_problems(
    role: FeatureRole, type_: FeatureType, shape: tuple[int | None, ...], own: bool, data: st.DataObject
) -> None:
    value_type = data.draw(st.sampled_from(["", "string", "uint8", "float"]))
    spec = FeatureSpec("name", type_, shape, role, value_type=value_type, value=(b"x",))
    feature = Feature(type_, data.draw(st.lists(_VALUES[type_], max_size=5)))
    if spec.length not in (None, len(feature.values)) or role is FeatureRole.ENCODED:
        return
    if role in (FeatureRole.SOURCE_SHA256, FeatureRole.DTYPE) and type_ is not FeatureType.BYTES:
        return  # a sha256 and the type of samples are text in every layout
    if sound_test(spec, own)(feature.values):
        assert not list(presence_problems(feature, spec))
        assert not list(value_problems(feature, spec, own, "train"))


@pytest.mark.parametrize(
    ("role", "sound", "wrong"),
    [
        (FeatureRole.KEY, b"a/b.jpg", b"\xff"),
        (FeatureRole.SOURCE_SHA256, b"0a" * 32, b"0A" * 32),
    ],
)
def test_text_is_tested(role: FeatureRole, sound: bytes, wrong: bytes) -> None:
    passes = sound_test(FeatureSpec("name", FeatureType.BYTES, (), role), True)
    assert passes([sound]) and not passes([wrong])


@pytest.mark.parametrize("role", [FeatureRole.EXTRA, FeatureRole.CONSTANT])
def test_numbers_that_a_layout_declares_as_strings_are_not_read_as_text(role: FeatureRole) -> None:
    spec = FeatureSpec("name", FeatureType.FLOAT, (), role, value_type="string", value=(0.5,))
    feature = Feature(FeatureType.FLOAT, [0.5])
    assert sound_test(spec, False)(feature.values)
    assert not list(value_problems(feature, spec, True))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_floats_are_tested(wrong: float) -> None:
    passes = sound_test(FeatureSpec("name", FeatureType.FLOAT, (None,), FeatureRole.OBJECT_AREA), True)
    assert passes([0.5, 2.0]) and not passes([0.5, wrong, 2.0]) and not passes([math.inf, -math.inf])


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
