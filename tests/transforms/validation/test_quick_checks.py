"""Records are checked quickly where most of them are alike. The findings are those of the plain checks."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.mutations import KEPT, MUTATIONS, OBJECTS, RESIZED, Mutation, make_datasets
from helpers.resealing import frame, read_shard
from hypothesis import given
from hypothesis import strategies as st

from shardwright.pipelines.datasets import resolve_target, schema_of
from shardwright.pipelines.validate import list_tasks
from shardwright.schemas.example import Feature, FeatureType, encode_example, parse_example
from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.layouts import FeatureSpec
from shardwright.schemas.wire_format import write_varint
from shardwright.transforms.images.jpeg_headers import JpegHeaders
from shardwright.transforms.records import framing
from shardwright.transforms.records.record_schema import RecordSchema
from shardwright.transforms.validation import ledger, record_templates
from shardwright.transforms.validation.record import RecordChecker
from shardwright.transforms.validation.record_templates import RecordTemplates
from shardwright.transforms.validation.shard import Depth, ShardCheck, check_shard

#: The mutations of what the check of a shard reads.
OF_SHARDS = [it for it in MUTATIONS if it.group not in ("dataset.json", "another file")]
DEPTHS = (Depth.FRAMES, Depth.FAST, Depth.FULL)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    root = tmp_path_factory.mktemp("quick")
    make_datasets(root, photos)
    return root


def without_shortcuts(patch: pytest.MonkeyPatch) -> None:
    """Makes all checks read each record, header and line on its own."""
    patch.setattr(RecordTemplates, "find", lambda self, data: None)
    patch.setattr(JpegHeaders, "find", lambda self, data: None)
    patch.setattr(framing._Frames, "sound_from", lambda self, offset, number: None)
    patch.setattr(ledger, "written_columns", lambda lines: None)


def checks_of(dataset: Path) -> Iterator[ShardCheck]:
    """Yields the checks of all shards of a dataset at all depths."""
    target = resolve_target(str(dataset))
    schema = schema_of(target)
    for task in list_tasks(target):
        for depth in DEPTHS:
            yield check_shard(task, schema, depth)


def outcome(dataset: Path) -> Any:
    """Returns the checks of a dataset, or the error that reading it raises."""
    try:
        return list(checks_of(dataset))
    except Exception as error:
        return repr(error)


def compare(dataset: Path) -> int:
    """Compares the two ways of checking a dataset; returns the number of findings."""
    quick = outcome(dataset)
    with pytest.MonkeyPatch.context() as patch:
        without_shortcuts(patch)
        plain = outcome(dataset)
    assert quick == plain
    return sum(len(check.findings) for check in quick) if isinstance(quick, list) else 1


def compare_mutations(root: Path, place: Path, mutations: list[Mutation]) -> int:
    found = 0
    for number, mutation in enumerate(mutations):
        dataset = place / str(number)
        shutil.copytree(root / mutation.dataset, dataset)
        mutation.change(dataset)
        found += bool(compare(dataset))
        shutil.rmtree(dataset)
    return found


def test_mutations_give_the_same_findings(root: Path, tmp_path: Path) -> None:
    assert compare_mutations(root, tmp_path, OF_SHARDS[::12]) > 5


@pytest.mark.slow
def test_all_mutations_give_the_same_findings(root: Path, tmp_path: Path) -> None:
    assert compare_mutations(root, tmp_path, OF_SHARDS) > 50


@pytest.mark.parametrize("name", [RESIZED, KEPT, OBJECTS])
def test_damaged_shards_give_the_same_findings(root: Path, tmp_path: Path, name: str) -> None:
    chance = random.Random(name)
    for number in range(12):
        dataset = tmp_path / str(number)
        shutil.copytree(root / name, dataset)
        shard = chance.choice(sorted(dataset.glob("*.tfrecord")))
        data = bytearray(shard.read_bytes())
        place = chance.randrange(len(data))
        if number % 3 == 0:
            data[place] ^= 1 << chance.randrange(8)
        elif number % 3 == 1:
            del data[place : place + chance.randrange(1, 300)]
        else:
            records = read_shard(shard)
            changed = bytearray(chance.choice(records))
            changed[chance.randrange(min(len(changed), 200)) * chance.choice((1, -1))] ^= 1
            records.insert(chance.randrange(len(records) + 1), bytes(changed))
            data[:] = b"".join(map(frame, records))
        shard.write_bytes(data)
        assert compare(dataset)


# --- single records ---------------------------------------------------------------------------------

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
        st.sampled_from([b"a/1.jpg", b"a/2.jpg", b"b/33.jpg", b"", b"\xff", "é".encode(), b"n" * 130])
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
def test_similar_records_are_checked_like_single_ones(found: list[bytes], own: bool) -> None:
    schema = SCHEMA if own else SCHEMA._replace(labels=None)
    checker = RecordChecker(schema, decode=False)
    for data in found + found:
        assert checker.check(data) == RecordChecker(schema, decode=False).check(data)


def test_lengths_of_fields_are_those_of_protobuf() -> None:
    contents = [*range(300), *range(16_300, 16_500), *range((1 << 21) - 20, (1 << 21) + 20)]
    fields = {1 + len(write_varint(content)) + content: content for content in contents}
    for size, content in fields.items():
        assert record_templates._content_bytes(size) == content
        assert record_templates._head(content) == b"\n" + write_varint(content)
    for size in (0, 1, 130, 16_387, (1 << 21) + 4):
        assert record_templates._content_bytes(size) < 0


def test_records_that_differ_in_image_and_texts_are_recognized() -> None:
    templates = RecordTemplates[str]("image", {"name": b"[a-z]", "sha256": b"[0-9a-f]"})

    def record(size: int, name: bytes, label: int, **more: Feature) -> bytes:
        features = {
            "class": Feature(FeatureType.INT64, [label]),
            "image": Feature(BYTES, [bytes(size)]),
            "name": Feature(BYTES, [name]),
            "sha256": Feature(BYTES, [b"0" * 64]),
        }
        return encode_example({**features, **more})

    first = record(20, b"abc", 1)
    assert templates.find(first) is None
    templates.add(first, "first")
    for size in (20, 0, 127, 128, 16_384, 3_000_000):
        data = record(size, b"xyz", 1)
        similar = templates.find(data)
        assert similar is not None
        assert similar.value == "first"
        assert similar.texts == (b"xyz", b"0" * 64)
        assert data[similar.begin : similar.end] == parse_example(data)["image"].values[0]
    for other in (
        record(20, b"abcd", 1),
        record(20, b"ABC", 1),
        record(20, b"abc", 2),
        record(20, b"abc", 1, new=Feature(BYTES, [b"x"])),
        record(20, b"abc", 1, image=Feature(BYTES, [b"x", b"y"])),
        record(20, b"abc", 1, image=Feature(BYTES, [])),
        record(20, b"abc", 1) + b"\n\0",
        record(20, b"abc", 1)[:-1],
        b"",
    ):
        assert templates.find(other) is None
