"""Our own datasets written again: objects, masks, captions and columns stay; patterns, splits, damage."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.hostile import document
from helpers.tfrecords import JPEGS, SUFFIX, converted, object_record, read, refused_sentence, sized, write
from PIL import Image

from shardwright.pipelines.convert import convert

_COLUMNS = "price:float,tags:string[]"
_PICTURES = ("image/encoded", "image/width", "image/height", "image/format", "image/key/sha256")


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def boxes_with_masks(number: int) -> dict[str, Any]:
    """Returns a detection record; one in four has no objects, which writers leave out."""
    record = {**sized(object_record(number)), "price": number / 3, "tags": ["a", "é"]}
    if number % 4 == 3:
        return {name: value for name, value in record.items() if "/object/" not in name}
    masks = np.zeros((2, record["image/height"], record["image/width"]), np.uint8)
    masks[0, 90:170, 30:80] = masks[1, :, 90:130] = 1
    return {**record, "image/object/mask": [png(mask) for mask in masks]}


@pytest.fixture(scope="module")
def detection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A detection dataset of ours with masks, captions and additional columns."""
    root = tmp_path_factory.mktemp("detection")
    write(root / "in" / "a.tfrecord", [boxes_with_masks(i) for i in range(8)])
    return converted(
        root / "in", root / "out",
        layout="detection", splits="train=0.6,test=0.4", shards=2, extra_columns=_COLUMNS,
    )  # fmt: skip


def without(records: dict[str, dict[str, Any]], *names: str) -> dict[str, dict[str, Any]]:
    return {
        key: {name: value for name, value in record.items() if name not in names}
        for key, record in records.items()
    }


def test_objects_keep_their_place_when_resized(detection: Path, tmp_path: Path) -> None:
    names = (*_PICTURES, "image/object/mask", "image/object/area", "split")
    made = converted(detection, tmp_path / "out", layout="detection", resize=64, extra_columns=_COLUMNS)
    assert without(read(made), *names) == without(read(detection), *names)


def test_all_splits_can_become_one(detection: Path, tmp_path: Path) -> None:
    """`train=1` is the default, which keeps the splits; `train=1.0` is an explicit choice."""
    assert set(document(detection)["splits"]) == {"train", "test"}
    kept = converted(detection, tmp_path / "kept", layout="detection", splits="train=1")
    assert set(document(kept)["splits"]) == {"train", "test"}
    made = converted(detection, tmp_path / "one", layout="detection", splits="train=1.0")
    assert set(document(made)["splits"]) == {"train"} and len(read(made)) == 8


def test_patterns_select_files(detection: Path, tmp_path: Path, monkeypatch: Any) -> None:
    train = {key for key, record in read(detection).items() if record["split"] == "train"}
    made = converted(f"{detection}/train-*.tfrecord", tmp_path / "ours", layout="detection")
    assert read(made).keys() == train and set(document(made)["splits"]) == {"train"}
    for name in ("train-0", "train-1", "val-0", "train[0]"):
        write(tmp_path / "in" / f"{name}.tfrecord", [{"image": JPEGS[0], "label": 0}])
    (tmp_path / "in" / "train-0.txt").write_text("no records")
    (tmp_path / "in" / "labels.txt").write_text("cat\n")
    monkeypatch.chdir(tmp_path / "in")
    made = converted("train-*", tmp_path / "foreign")
    assert read(made).keys() == {"train-0.tfrecord!000000", "train-1.tfrecord!000000"}
    assert document(made)["labels"] == ["cat"] and document(made)["ledger"]["filtered"] == 1
    literal = converted("train[0].tfrecord", tmp_path / "literal")
    assert read(literal).keys() == {"train[0].tfrecord!000000"}


@pytest.mark.parametrize("pattern", ["nothing-*", "*.jpg", "nowhere/train-*"])
def test_patterns_without_a_match_are_refused(pattern: str, tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.tfrecord", [{"image": JPEGS[0], "label": 0}])
    (tmp_path / "in" / "a.jpg").write_bytes(JPEGS[0])
    assert "check the path, or name the folder" in refused_sentence(tmp_path / "in" / pattern, tmp_path)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
@pytest.mark.parametrize("kind", ["flip", "cut", "insert"])
def test_damage_is_counted_once(kind: str, compression: str, detection: Path, tmp_path: Path) -> None:
    """All records that `dataset.json` counts are written or in the ledger, and none is invented."""
    before = without(read(detection), "price", "tags", "split")
    source = converted(
        detection, tmp_path / "in", layout="detection", compression=compression, splits="train=1.0"
    )
    file = source / f"train-00000-of-00001.tfrecord{SUFFIX[compression]}"
    good = file.read_bytes()
    for seed in range(2):
        chance = random.Random(f"{kind}{seed}")
        data, place = bytearray(good), chance.randrange(len(good))
        if kind == "flip":
            data[place] ^= 1 << chance.randrange(8)
        elif kind == "cut":
            del data[place : place + chance.randrange(1, 2000)]
        else:
            data[place:place] = chance.randbytes(chance.randrange(1, 100))
        file.write_bytes(data)
        made = tmp_path / f"out{seed}"
        convert(input=source, output=made, layout="detection", max_bad_fraction=1, shards=1)
        found = without(read(made), "split")
        assert document(made)["ledger"]["listed"] == 8 > len(found) > 0
        assert found == {key: before[key] for key in found}
