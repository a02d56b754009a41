"""Every code that a validation can report: planted in a finished dataset, and reported alone."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helpers.annotation_sets.coco import put_coco, save
from helpers.depths import findings_at
from helpers.manifests import write_jsonl
from helpers.mutations import added, appended, every, in_json, removed, set_at
from helpers.pictures import file_of
from helpers.planting import edit_record, write_ledger, write_shard, written_lines
from helpers.resealing import (
    Edit,
    put,
    read_document,
    read_ledger,
    read_shard,
    settle,
    sign,
    write_document,
)
from helpers.resealing import write_ledger as write_whole_ledger
from PIL import Image

from shardwright.pipelines.convert import convert
from shardwright.schemas.codes import OF_SOURCE, QUALITY, FindingCode
from shardwright.schemas.example import FeatureType

#: Codes with tests in the modules of the pipelines that report them: code -> test modules.
#: A module must contain the code.
ELSEWHERE: dict[FindingCode, tuple[str, ...]] = {
    **dict.fromkeys(OF_SOURCE, ("commands/test_validate.py",)),
    FindingCode.SHARD_REPAIRED: ("commands/test_tidying.py",),
    FindingCode.EXPECTATION: ("commands/test_gates.py",),
    FindingCode.PRIVATE_METADATA: ("commands/test_gates.py",),
    FindingCode.LABEL_CONFLICT: ("commands/test_image_selection.py",),
    **dict.fromkeys(
        QUALITY,
        (
            "commands/test_validate.py",
            "core/images/test_quality_metrics.py",
            "core/validation/test_across_records.py",
        ),
    ),
}

Place = tuple[str | None, int | None]
TRAIN0, TRAIN1, TRAIN2 = (f"train-{i:05d}-of-00003.tfrecord" for i in range(3))
TEST, OTHER = "test-00000-of-00001.tfrecord", "validation-00000-of-00001.tfrecord"
PHOTO, OWN, OBJECTS = "photos", "own layout", "objects"
SETTLED = (0, 1, 3)


class Plant(NamedTuple):
    """A defect: its finding, the dataset in which it is planted, how, and the expected place.

    Defects of one dataset and `turn` are planted together, in different records or shards. Those of the turns
    in `SETTLED` change records or ledgers, and all that depends on these is updated.
    """

    code: FindingCode
    dataset: str
    turn: int
    plant: Callable[[Path], object]
    place: Place


def edited(code: str, dataset: str, shard: str, number: int, edit: Edit, **ledger: str) -> Plant:
    """Changes a record."""
    return Plant(
        FindingCode(code), dataset, 0,
        lambda path: edit_record(path, edit, number, shard, **ledger), (shard, number),
    )  # fmt: skip


def in_file(
    code: str, shard: str | None, plant: Callable[[Path], object], turn: int, number: int | None = None
) -> Plant:
    return Plant(FindingCode(code), PHOTO, turn, plant, (shard, number))


def not_an_example(dataset: Path) -> None:
    records = read_shard(dataset / TRAIN0)
    records[9] = b"\x0a\xff\xff"
    write_shard(dataset, TRAIN0, records, written_lines(dataset, TRAIN0))


def same_key(dataset: Path) -> None:
    key = written_lines(dataset, TRAIN0)[0]["key"]
    edit_record(dataset, put("image/filename", key.encode()), 0, OTHER, key=key)


def same_source(dataset: Path) -> None:
    label = written_lines(dataset, OTHER)[2]["label"]
    sha256 = next(line["sha256"] for line in written_lines(dataset, TRAIN0) if line["label"] == label)
    edit_record(dataset, put("image/key/sha256", sha256.encode()), 2, OTHER, sha256=sha256)


def damaged(shard: str, number: int, change: Callable[[bytearray, int], None]) -> Callable[[Path], None]:
    """Returns a shard with a damaged frame that `dataset.json` describes correctly."""

    def plant(dataset: Path) -> None:
        lines = written_lines(dataset, shard)
        data = bytearray((dataset / shard).read_bytes())
        change(data, lines[number]["offset"])
        (dataset / shard).write_bytes(data)
        del lines[number]
        write_ledger(dataset, shard, lines)

    return plant


def flip(at: int) -> Callable[[bytearray, int], None]:
    def change(data: bytearray, offset: int) -> None:
        data[offset + at] ^= 1

    return change


def cut(data: bytearray, _: int) -> None:
    del data[-7:]


def in_document(change: Callable[[Any], object]) -> Callable[[Path], None]:
    def plant(dataset: Path) -> None:
        document = read_document(dataset)
        change(document)
        write_document(dataset, document)
        sign(dataset)

    return plant


def checksum(dataset: Path) -> None:
    """Changes the checksum of a shard; its ledger has the same one, because it is that shard's."""
    header, *lines = read_ledger(dataset, Path(OTHER).stem)
    write_whole_ledger(dataset, Path(OTHER).stem, [{**header, "sha256": "0" * 64}, *lines])
    in_document(lambda it: it["splits"]["validation"]["shards"][0].update(sha256="0" * 64))(dataset)


def other_label(dataset: Path) -> None:
    lines = written_lines(dataset, TRAIN2)
    lines[4]["label"] = "elsewhere"
    write_ledger(dataset, TRAIN2, lines)


def other_order(dataset: Path) -> None:
    records, lines = read_shard(dataset / TRAIN1), written_lines(dataset, TRAIN1)
    for items in (records, lines):
        items[0], items[1] = items[1], items[0]  # type: ignore[index]
    write_shard(dataset, TRAIN1, records, lines)


def drop_objects(dataset: Path) -> None:
    lines = written_lines(dataset, FIRST)
    lines[0]["boxes"] |= {"dropped": 1, "vanished": 2}
    write_ledger(dataset, FIRST, lines)


def png(width: int, height: int, value: int) -> bytes:
    return file_of(Image.new("L", (width, height), value), "PNG")


FIRST, MORE = "train-00000-of-00001.tfrecord", "train-00000-of-00004.tfrecord"
PLANTS = [
    edited("MISSING_FEATURE", PHOTO, TRAIN0, 1, lambda it: it.pop("image/class/text")),
    edited("WRONG_TYPE", PHOTO, TRAIN0, 2, put("image/width", 64.0, type_=FeatureType.FLOAT)),
    edited("WRONG_SHAPE", PHOTO, TRAIN0, 3, put("image/height", 64, 64)),
    edited("NOT_UTF8", PHOTO, TRAIN0, 4, put("image/class/text", b"b\xffrds")),
    edited("UNDECODABLE", PHOTO, TRAIN0, 5, put("image/encoded", b"\xff\xd8\xff\xe0 no picture")),
    edited("SIZE_MISMATCH", PHOTO, TRAIN0, 6, put("image/width", 65)),
    edited("FORMAT_MISMATCH", PHOTO, TRAIN0, 7, put("image/format", b"png")),
    edited("LABEL_RANGE", PHOTO, TRAIN0, 8, put("image/class/label", 99)),
    Plant(FindingCode.UNPARSEABLE, PHOTO, 0, not_an_example, (TRAIN0, 9)),
    edited("LABEL_TEXT", PHOTO, TRAIN1, 0, put("image/class/text", b"unicorns")),
    edited("WRONG_VALUE", PHOTO, TRAIN1, 1, put("image/key/sha256", b"F" * 64)),
    edited("LEDGER_MISMATCH", PHOTO, TRAIN1, 2, put("image/filename", b"another.jpg")),
    edited("LEDGER_MISMATCH", PHOTO, TRAIN1, 3, put("image/key/sha256", b"1" * 64)),
    Plant(FindingCode.DUPLICATE_KEY, PHOTO, 0, same_key, (OTHER, 0)),
    Plant(FindingCode.SPLIT_LEAKAGE, PHOTO, 0, same_source, (OTHER, 2)),
    in_file("LENGTH_CRC", TRAIN0, damaged(TRAIN0, 2, flip(1)), 1, 2),
    in_file("DATA_CRC", TRAIN1, damaged(TRAIN1, 3, flip(40)), 1, 3),
    in_file("SHARD_TRUNCATED", TEST, damaged(TEST, -1, cut), 1, -1),
    in_file("LEDGER_MISMATCH", TRAIN2, other_label, 1, 4),
    in_file("EMPTY_SPLIT", None, lambda path: write_shard(path, OTHER, [], []), 3),
    in_file("SHARD_CHECKSUM", OTHER, checksum, 2),
    in_file("SHARD_MISSING", TRAIN0, removed(TRAIN0).change, 2),
    in_file("SHARD_UNEXPECTED", MORE, added(MORE, b"0 1\n").change, 2),
    in_file("COUNT_MISMATCH", None, in_document(lambda it: it["ledger"].update(filtered=1)), 2),
    in_file("INDEX_MISMATCH", TRAIN1, appended("_index/train-00001-of-00003.idx", b"0 1\n").change, 2),
    in_file("LEDGER_MISMATCH", TRAIN2, removed("_shards/train-00002-of-00003.jsonl.gz").change, 2),
    in_file("LEDGER_MISMATCH", TEST, added("_shards/test-00000-of-00001.jsonl.gz", b"?").change, 2),
    in_file("SIDECAR_MISMATCH", "labels.txt", appended("labels.txt").change, 2),
    in_file("DATASET_MISMATCH", "dataset.json",
            in_json("dataset.json", "", set_at("license", "none")).change, 5),
    in_file("QUARANTINE_MISMATCH", "quarantine.jsonl", appended("quarantine.jsonl").change, 5),
    in_file("REPORT_MISMATCH", "run.json", appended("run.json", b"0 1\n").change, 5),
    in_file("RECORD_ORDER", TRAIN1, other_order, 3, 1),
    in_file("NOT_COMPARED", "dataset.json", in_document(lambda it: it.update(statements_version=99)), 4),
    edited("NOT_UTF8", OWN, FIRST, 0, put("note", b"\xfe")),
    edited("NOT_FINITE", OWN, FIRST, 1, put("price", float("nan"))),
    edited("WRONG_VALUE", OWN, FIRST, 2, put("maker", b"you")),
    edited("WRONG_VALUE", OWN, FIRST, 3, put("split", b"test")),
    edited("WRONG_VALUE", OWN, FIRST, 4, put("kind", 2)),
    edited("LEDGER_MISMATCH", OWN, FIRST, 5, put("file", b"another.png")),
    edited("FORMAT_MISMATCH", OWN, FIRST, 6, put("colors", b"Grayscale")),
    edited("SIZE_MISMATCH", OWN, FIRST, 7, put("shape", 7, 8, 3)),
    edited("LEDGER_MISMATCH", OWN, FIRST, 8, put("label", 1)),
    edited("BOX_RANGE", OBJECTS, FIRST, 0, put("image/object/bbox/xmax", 0.5, 1.5)),
    edited("BOX_ORDER", OBJECTS, FIRST, 1, put("image/object/bbox/ymax", 0.1, 0.5)),
    edited("LENGTH_MISMATCH", OBJECTS, FIRST, 2, put("image/object/area", 9.0)),
    edited("NOT_FINITE", OBJECTS, FIRST, 3, put("image/object/area", 9.0, float("inf"))),
    edited("LABEL_RANGE", OBJECTS, FIRST, 4, put("image/object/class/label", 1, 9)),
    edited("LABEL_TEXT", OBJECTS, FIRST, 5, put("image/object/class/text", b"cat", b"cat")),
    edited("MASK_MISMATCH", OBJECTS, FIRST, 6, put("image/object/mask", png(8, 6, 1), png(6, 8, 1))),
    edited("MASK_MISMATCH", OBJECTS, FIRST, 7, put("image/object/mask", png(8, 6, 1), png(8, 6, 2))),
    edited("UNDECODABLE", OBJECTS, FIRST, 8, put("image/object/mask", png(8, 6, 1), b"no mask")),
    edited("LEDGER_MISMATCH", OBJECTS, FIRST, 9, every(
        put("image/object/class/label", 2, 2), put("image/object/class/text", b"dog", b"dog"))),
    Plant(FindingCode.OBJECTS_DROPPED, OBJECTS, 1, drop_objects, (FIRST, 0)),
    edited("KEYPOINT_RANGE", OBJECTS, FIRST, 10, put("image/object/keypoint/x", 0.5, 1.5)),
]  # fmt: skip

LAYOUT = """
name: mine
needs: label
features:
  image: {fill: encoded}
  shape: {fill: shape}
  colors: {fill: colorspace}
  file: {fill: file_basename}
  split: {fill: split}
  label: {fill: label}
  price: {column: price, type: float}
  note: {column: note, type: string}
  kind: {column: kind, type: enum, values: [a, b]}
  maker: {constant: me, type: string}
"""
IMAGES = 11


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory, sound_dataset: Path) -> dict[str, Path]:
    """Sound datasets: photos with classes, rows with columns, and objects with boxes and masks."""
    root = tmp_path_factory.mktemp("planted")
    pictures = root / "pictures"
    pictures.mkdir()
    for i in range(IMAGES):
        Image.new("RGB", (8, 6), (20 * i, 0, 255 - i)).save(pictures / f"{i}.png")
    (root / "mine.yaml").write_text(LAYOUT)
    rows = [
        {"image": f"{i}.png", "label": "cat", "price": i / 2, "note": "ü", "kind": "ab"[i % 2]}
        for i in range(IMAGES)
    ]
    rows[-1]["label"] = "dog"
    write_jsonl(root / "rows.jsonl", rows)
    of_each = {f"{i}.png": [(1, 2, 2, 4, 3), (2, 2, 2, 4, 3)] for i in range(IMAGES)}
    file = put_coco(root / "instances.json", of_each, ("cat", "dog"), dict.fromkeys(of_each, (8, 6)))
    coco = json.loads(file.read_text())
    for item in coco["annotations"]:
        item |= {"segmentation": [[2, 2, 6, 2, 6, 5, 2, 5]], "keypoints": [4, 3, 2], "num_keypoints": 1}
    for category in coco["categories"]:
        category["keypoints"] = ["eye"]
    save(file, coco)
    shared = {"image_root": str(pictures), "shards": 1, "verify": "none"}
    own, boxes = str(root / "own"), str(root / "objects")
    convert(input=str(root / "rows.jsonl"), output=own, layout=str(root / "mine.yaml"), **shared)
    convert(input=str(root / "instances.json"), output=boxes, layout="keypoints", **shared)
    return {PHOTO: sound_dataset, OWN: Path(own), OBJECTS: Path(boxes)}


TURNS = sorted({(plant.dataset, plant.turn) for plant in PLANTS})


@pytest.mark.parametrize(("name", "turn"), TURNS)
def test_planted_defects_are_reported_and_nothing_else(
    datasets: dict[str, Path], tmp_path: Path, name: str, turn: int
) -> None:
    dataset = Path(shutil.copytree(datasets[name], tmp_path / "dataset"))
    planted = [plant for plant in PLANTS if (plant.dataset, plant.turn) == (name, turn)]
    counts = {TEST: len(written_lines(dataset, TEST))} if name == PHOTO else {}
    expected: Counter[tuple[FindingCode, str | None, int | None]] = Counter()
    for plant in planted:
        plant.plant(dataset)
        shard, number = plant.place
        expected[plant.code, shard, number if number != -1 else counts[TEST] - 1] += 1
    if turn in SETTLED:
        settle(dataset)
    found = findings_at(dataset, "full", {}, [])
    assert not isinstance(found, str)
    assert Counter((finding.code, finding.shard, finding.record) for finding in found) == expected
    for finding in found:
        assert (finding.record is None) == (finding.offset is None)


@pytest.mark.parametrize("name", [PHOTO, OWN, OBJECTS])
@pytest.mark.parametrize("mode", ["fast", "full"])
def test_a_sound_dataset_has_no_findings(datasets: dict[str, Path], name: str, mode: str) -> None:
    assert findings_at(datasets[name], mode, {}, []) == []


def test_every_code_is_planted_somewhere() -> None:
    here = {plant.code for plant in PLANTS}
    assert here.isdisjoint(ELSEWHERE)
    assert here | ELSEWHERE.keys() == set(FindingCode)
    root = Path(__file__).parent.parent
    for code, modules in ELSEWHERE.items():
        assert any(code.value in (root / module).read_text() for module in modules), code
