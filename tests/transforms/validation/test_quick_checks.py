"""Records are checked quickly where most of them are alike. The findings are those of the plain checks."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import shutil
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.examples import examples
from helpers.mutations import KEPT, MUTATIONS, OBJECTS, RESIZED, Mutation, make_datasets
from helpers.resealing import frame, read_ledger, read_shard, write_ledger
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from shardwright.pipelines.convert import convert
from shardwright.pipelines.datasets import resolve_target, schema_of
from shardwright.pipelines.validate import list_tasks
from shardwright.schemas import ledger as ledger_lines
from shardwright.schemas.dataset import Shard
from shardwright.schemas.example import Feature, FeatureType, encode_example, parse_example
from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.layouts import FeatureSpec
from shardwright.schemas.shard_totals import ShardTotals
from shardwright.schemas.wire_format import write_varint
from shardwright.transforms.images.jpeg_headers import JpegHeaders
from shardwright.transforms.plan.assign import shard_order
from shardwright.transforms.records import framing
from shardwright.transforms.records.framing import RecordBlock
from shardwright.transforms.records.record_schema import RecordSchema
from shardwright.transforms.validation import ledger, record_templates
from shardwright.transforms.validation import shard as shard_module
from shardwright.transforms.validation.expected_records import ExpectedRecords
from shardwright.transforms.validation.ledger import LedgerCheck, ShardTerms
from shardwright.transforms.validation.record import RecordChecker
from shardwright.transforms.validation.record_blocks import OrdinaryRecords
from shardwright.transforms.validation.record_templates import RecordTemplates
from shardwright.transforms.validation.shard import Depth, ShardCheck, ShardTask, check_shard
from shardwright.transforms.validation.values import are_hex, is_utf8

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
    patch.setattr(RecordTemplates, "find_run", lambda self, buffer, places, first: None)
    patch.setattr(ExpectedRecords, "count", lambda *args: 0)
    patch.setattr(JpegHeaders, "find", lambda self, data: None)
    patch.setattr(framing._Frames, "sound_from", lambda self, offset, number: None)
    patch.setattr(ledger, "written_runs", lambda lines: [(lines, None)] if lines else [])
    patch.setattr(ledger, "_AHEAD_BYTES", 1)


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


@pytest.mark.sampled(1)
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


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shard of so many small photos that they are checked in blocks."""
    root = tmp_path_factory.mktemp("many")
    for number in range(120):
        (root / "in" / f"class{number % 3}").mkdir(parents=True, exist_ok=True)
        picture = Image.new("RGB", (24, 24), (2 * number, 90, 30))
        picture.save(root / "in" / f"class{number % 3}" / f"{number:03}.jpg")
    convert(input=str(root / "in"), output=str(root / "out"), verify="none")
    return root / "out"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("key", "class0/other.jpg"),
        ("sha256", "0" * 64),
        ("label", "class9"),
        ("label", ""),
        ("offset", 1),
        ("length", 1),
        ("stored", "0" * 64),
        ("format", "png"),
        ("source_width", 7),
        ("outcome", "quarantined"),
    ],
)
def test_a_wrong_field_of_one_line_among_many_is_found(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, value: object
) -> None:
    agreed: list[int] = []

    def agree(self: LedgerCheck, records: OrdinaryRecords) -> object:
        found = real(self, records)
        agreed.append(len(records.offsets) if found is not None else 0)
        return found

    real = LedgerCheck.agree
    monkeypatch.setattr(LedgerCheck, "agree", agree)
    assert compare(many) == 0 and max(agreed) > 20, "the records are not checked in blocks"
    shutil.copytree(many, tmp_path / "out")
    (shard,) = (tmp_path / "out").glob("*.tfrecord")
    lines = read_ledger(tmp_path / "out", shard.stem)
    assert field in lines[70]
    lines[70][field] = value
    write_ledger(tmp_path / "out", shard.stem, lines)
    assert compare(tmp_path / "out") > 0


@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_records_before_damage_in_a_ledger_are_compared_with_it(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    monkeypatch.setattr(ledger_lines, "_BLOCK_BYTES", 2000)  # so that the ledger has several blocks
    monkeypatch.setattr(ledger_lines, "_PACKED_BYTES", 500)
    shutil.copytree(many, tmp_path / "out")
    (shard,) = (tmp_path / "out").glob("*.tfrecord")
    lines = read_ledger(tmp_path / "out", shard.stem)
    lines[3]["label"] = "wrong"
    write_ledger(tmp_path / "out", shard.stem, lines)
    (path,) = (tmp_path / "out" / "_shards").iterdir()
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    assert compare(tmp_path / "out") > 0
    messages = [finding.message for check in checks_of(tmp_path / "out") for finding in check.findings]
    assert any("its class is" in message for message in messages)
    assert any("it is damaged" in message for message in messages)


def test_endless_empty_lines_of_a_ledger_need_no_memory(many: Path) -> None:
    (shard,) = many.glob("*.tfrecord")
    header = read_ledger(many, shard.stem)[0] | {"counts": {"written": 10**9}}
    data = gzip.compress(json.dumps(header).encode() + b"\n" * 10_000_000, 1)
    tracemalloc.start()
    try:
        check = LedgerCheck(data, Shard(header["file"], 0, 0, header["sha256"]))
        ((_, message),) = check.finish(sound=False)
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()
    assert "it is damaged" in message


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
def test_similar_records_are_checked_like_single_ones(found: list[bytes], own: bool) -> None:
    schema = SCHEMA if own else SCHEMA._replace(labels=None)
    checker = RecordChecker(schema, decode=False)
    for data in found + found:
        assert checker.check(data) == RecordChecker(schema, decode=False).check(data)


@pytest.mark.parametrize("name", [b"a/\xff\xff.jpg", "a/é.jpg".encode(), b"a/11.jpg"])
def test_a_name_among_similar_records_is_checked(name: bytes) -> None:
    """Only UTF-8 is a sound name, alone and between two others."""
    checker = RecordChecker(SCHEMA, decode=False)
    features = {
        "class": Feature(FeatureType.INT64, [0]),
        "class/text": Feature(BYTES, [b"cats"]),
        "image": Feature(BYTES, [b"bytes"]),
        "width": Feature(FeatureType.INT64, [7]),
    }
    first, data = (
        encode_example({**features, "name": Feature(BYTES, [text])}) for text in (b"a/00.jpg", name)
    )
    checker.check(first)
    sound = not checker.check(data).problems
    assert sound == is_utf8(name)
    assert checker.check(data) == RecordChecker(SCHEMA, decode=False).check(data)
    ends = [len(first), len(first + data), len(first + data + first)]
    block = RecordBlock(0, 0, first + data + first, [0, *ends[:-1]], ends)
    images = checker.find_images(block)
    assert images is not None
    ordinary = checker.ordinary(block, images, 0, hash_images=False)
    assert ordinary is not None and len(ordinary.offsets) == (3 if sound else 1)


def test_lengths_of_fields_are_those_of_protobuf() -> None:
    contents = [*range(300), *range(16_300, 16_500), *range((1 << 21) - 20, (1 << 21) + 20)]
    fields = {1 + len(write_varint(content)) + content: content for content in contents}
    for size, content in fields.items():
        assert record_templates.content_bytes(size) == content
        assert record_templates.field_head(content) == b"\n" + write_varint(content)
    for size in (0, 1, 130, 16_387, (1 << 21) + 4):
        assert record_templates.content_bytes(size) < 0


def test_records_that_differ_in_image_and_texts_are_recognized() -> None:
    templates = RecordTemplates[str](
        "image", {"name": lambda texts: all(map(bytes.islower, texts)), "sha256": are_hex}
    )

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
        run = templates.find_run(data, templates.image_places(data, [0], [len(data)]), 0)
        assert run == (["first"], {"name": (b"xyz",), "sha256": (b"0" * 64,)})
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
        assert templates.find_run(other, templates.image_places(other, [0], [len(other)]), 0) is None


# --- whole shards -----------------------------------------------------------------------------------

#: The features of the records of the shards below.
FEATURES = {
    "class": FeatureType.INT64,
    "class/text": BYTES,
    "image": BYTES,
    "name": BYTES,
    "sha256": BYTES,
    "width": FeatureType.INT64,
}


#: Faults of a record or of its entry in the ledger. Several values of entries are wrong in different ways.
FAULTS = ("record", "text", "byte", "frame", "line", "lost", "class", *("value",) * 5)


@st.composite
def entries(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Entries of a ledger, and what is wrong with one or two of them or with their records, if anything."""
    found = draw(st.lists(single_entries(), min_size=8, max_size=60))
    for _ in range(draw(st.integers(0, 2))):
        # The first records of a class are checked on their own, so those that follow are more interesting.
        place = draw(st.integers(0, len(found) // 2))
        found[-1 - place] |= {"fault": draw(st.sampled_from(FAULTS)), "at": draw(st.integers(0, 200))}
    return found


@st.composite
def single_entries(draw: st.DrawFn) -> dict[str, Any]:
    label = draw(st.integers(0, 1))
    folder = draw(st.sampled_from(["a", "b", "b", "é", "犬", "\U0001f41f", '"', "\\u", "\n"]))
    key = f"{folder}/{draw(st.integers(0, 30)):02}.jpg"
    image = draw(st.sampled_from([0, 120, 200, 300, 20_000]))
    sha256 = f"{draw(st.integers(0, 15)):064x}"
    left_out = draw(st.sampled_from([0, 0, 0, 0, 0, 1, 5]))
    return {"key": key, "sha256": sha256, "label": label, "image": image, "left out": left_out}


def shard_of_entries(found: list[dict[str, Any]], order: bool) -> tuple[bytes, bytes]:
    """Returns a shard, and the lines of its ledger."""
    if order:
        found = sorted(found, key=lambda entry: shard_order(0, entry["key"]))
    shard, lines = b"", b""
    for entry in found:
        fault, at = entry.get("fault"), entry.get("at", 0)
        label = ("cats", "dogs")[entry["label"]]
        values = [entry["label"], label.encode(), bytes(entry["image"])]
        values += [entry["key"].encode(), entry["sha256"].encode(), 7]
        if fault == "record":
            values[at % 6] = (5, b"birds", b"", b"\xff", b"A" * 64, 8)[at % 6]
        if fault == "text":
            text = values[3 + at % 2]
            values[3 + at % 2] = text[:1] + (b"\xff", b"B", b" ")[at % 3] + text[2:]
        data = encode_example(
            {name: Feature(kind, [value]) for (name, kind), value in zip(FEATURES.items(), values)}
        )
        if fault == "byte":
            place = at % len(data)
            data = data[:place] + bytes((data[place] ^ 1,)) + data[place + 1 :]
        framed = frame(data)
        line = {
            "key": entry["key"],
            "outcome": "written",
            "sha256": entry["sha256"],
            "label": label,
            "offset": len(shard),
            "length": len(framed),
            "digest": "0" * 16,
            "fingerprint": "1:2",
        }
        if fault == "frame":
            place = at % len(framed)
            framed = framed[:place] + bytes((framed[place] ^ 1,)) + framed[place + 1 :]
        if fault == "value":
            name, value = [
                ("key", "c/00.jpg"), ("key", ""), ("sha256", "f" * 64), ("sha256", ""), ("label", "é"),
                ("label", "birds"), ("offset", len(shard) + 1), ("length", 7), ("outcome", "filtered"),
                ("key", "c/000.jpg"), ("sha256", "F" * 64), ("length", len(framed) + 1),
            ][at % 12]  # fmt: skip
            line[name] = value
        if fault == "class":
            line["label"] = ("dogs", "cats")[entry["label"]]
        if fault == "line":
            del line[list(line)[at % len(line)]]
        if fault != "lost" or at % 2:
            shard += framed
        for number in range(entry["left out"]):
            left_out = {"key": f"{entry['key']}{number}", "outcome": "filtered", "reason": "TOO_SMALL"}
            lines += json.dumps(left_out).encode() + b"\n"
        if fault != "lost" or not at % 2:
            lines += json.dumps(line).encode() + b"\n"
    return shard, lines


@settings(max_examples=examples(200))
@given(
    entries(),
    st.integers(0, 7),
    st.booleans(),
    st.sampled_from([64, 1 << 12, 1 << 16]),
    st.sampled_from([1000, 1 << 16]),
)
def test_blocks_of_records_are_checked_like_single_ones(
    tmp_path_factory: pytest.TempPathFactory,
    found: list[dict[str, Any]],
    kind: int,
    own: bool,
    window: int,
    block: int,
) -> None:
    place = tmp_path_factory.mktemp("blocks")
    shard, lines = shard_of_entries(found, order=bool(kind & 1))
    expected = Shard(
        "train-00000-of-00001.tfrecord", len(found), len(shard), hashlib.sha256(shard).hexdigest()
    )
    totals = ShardTotals().header("train", 0, 1)
    header = replace(totals, file=expected.file, bytes=expected.bytes, sha256=expected.sha256)
    counted = {**header.as_json(), "counts": {"written": lines.count(b"\n")}}
    (place / "shard").write_bytes(shard)
    (place / "ledger").write_bytes(gzip.compress(json.dumps(counted).encode() + b"\n" + lines))
    (place / "index").write_bytes(b"")
    task = ShardTask(
        str(place / "shard"),
        expected.file,
        "train",
        expected if kind & 2 else None,
        str(place / "index"),
        str(place / "ledger") if kind & 2 else "",
        terms=ShardTerms("0" * 64, 0) if kind & 4 else None,
    )
    schema = SCHEMA._replace(features=tuple(spec for spec in SCHEMA.features if spec.name in FEATURES))
    schema = schema if own else schema._replace(labels=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(framing, "_WINDOW_BYTES", window)
        patch.setattr(shard_module, "_MIN_TOGETHER", 1)
        patch.setattr(ledger_lines, "_BLOCK_BYTES", block)
        guided = check_shard(task, schema, Depth.FAST)
        patch.setattr(ExpectedRecords, "count", lambda *args: 0)
        quick = check_shard(task, schema, Depth.FAST, aside=False)
        without_shortcuts(patch)
        plain = check_shard(task, schema, Depth.FAST)
    assert guided == plain
    assert quick == plain


@given(st.lists(records(), min_size=1, max_size=8), st.binary(max_size=12))
def test_images_are_found_in_blocks_as_in_single_records(found: list[bytes], rest: bytes) -> None:
    templates = RecordTemplates[str]("image", {})
    ends = [sum(map(len, found[: place + 1])) for place in range(len(found))]
    begins = [end - len(data) for data, end in zip(found, ends)]
    places = templates.image_places(b"".join(found) + rest, begins, ends)
    for place, data in enumerate(found):
        single = templates._around_image(data)
        assert places.usual[place] == (single is not None)
        if single is not None:
            before, before_size, image, after = single
            assert places.befores[place] - begins[place] == before
            assert places.before_sizes[place] == before_size
            assert places.images[place] - begins[place] == image
            assert places.afters[place] - begins[place] == after
            assert places.after_sizes[place] == len(data) - after
