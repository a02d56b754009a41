"""`image/source_id` and `image/filename` for each source, read like evaluation tools do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.annotation_sets.coco import put_coco, save
from helpers.depths import compared, findings_of
from helpers.hostile import run
from helpers.listing import listed
from helpers.records import value
from helpers.tensorflow_records import read_records
from helpers.tfrecords import converted, object_record, read, sized, write
from PIL import Image

from shardwright.schemas import image_ref
from shardwright.schemas.image_ref import number_of_key
from shardwright.schemas.layouts import LAYOUTS, FeatureRole

OBJECT_LAYOUTS = ("detection", "vision")


def names_in(dataset: Path) -> dict[str, tuple[int, str]]:
    """Returns key in the ledgers -> (source_id as a number, file name), read with TensorFlow."""
    return {
        key: (int(record["image/source_id"][0]), record["image/filename"][0].decode())
        for key, record in read(dataset).items()
    }


def coco(folder: Path, ids: list[int | str]) -> Path:
    """Writes a COCO document of gray images with the given ids."""
    names = [f"{i}.png" for i in range(len(ids))]
    path = put_coco(folder / "instances.json", {name: [(1, 1, 1, 4, 4)] for name in names}, ["a"])
    document = json.loads(path.read_text())
    for image, box, id_ in zip(document["images"], document["annotations"], ids, strict=True):
        Image.new("L", (8, 8), box["id"]).save(folder / image["file_name"])
        image["id"] = box["image_id"] = id_
    return save(path, document)


def names_of(path: Path, layout: str) -> dict[str, tuple[int, str]]:
    """Returns the same for records that are made of an input without a dataset."""
    records = listed(path, layout).records().items()
    return {key: (int(value(one, "image/source_id")), value(one, "image/filename")) for key, one in records}


@pytest.mark.parametrize("layout", OBJECT_LAYOUTS)
def test_cocos_ids_are_written(tmp_path: Path, layout: str) -> None:
    assert names_of(coco(tmp_path, [0, 139, "000000000285", "x7"]), layout) == {
        "0.png": (0, "0.png"),
        "1.png": (139, "1.png"),
        "2.png": (285, "2.png"),
        "3.png": (number_of_key("3.png"), "3.png"),
    }


def test_images_without_an_id_get_the_number_of_their_key(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{name}.jpg")
        (tmp_path / f"{name}.txt").write_text("0 0.5 0.5 0.25 0.25\n")
    (tmp_path / "classes.txt").write_text("thing\n")
    for layout in OBJECT_LAYOUTS:
        assert names_of(tmp_path, layout) == {key: (number_of_key(key), key) for key in ("a.jpg", "b.jpg")}


def records(*ids: str | None) -> list[dict[str, Any]]:
    """Returns detection records with the given ids; None leaves the feature out."""
    made = []
    for i, id_ in enumerate(ids):
        record = {**sized(object_record(i)), "image/source_id": id_, "image/filename": f"photos/{i}.jpg"}
        made.append({name: value for name, value in record.items() if value is not None})
    return made


def test_values_of_other_records_are_kept(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.tfrecord", records("42", "", None))
    # Its first file name equals that of a.tfrecord's first record.
    write(tmp_path / "in" / "b.tfrecord", records("7"))
    keys = [f"a.tfrecord!photos/{i}.jpg" for i in range(3)]
    known = {
        keys[0]: (42, "photos/0.jpg"),
        keys[1]: (number_of_key(keys[1]), "photos/1.jpg"),
        keys[2]: (number_of_key(keys[2]), "photos/2.jpg"),
        "b.tfrecord!photos/0.jpg": (7, "photos/0.jpg"),
    }
    assert names_of(tmp_path / "in", "vision") == known
    made = converted(tmp_path / "in", tmp_path / "out", layout="detection")
    assert names_in(made) == names_of(made, "vision") == known
    assert not findings_of(made) and not compared(made, tmp_path / "in")


def test_other_layouts_also_keep_the_file_name(tmp_path: Path) -> None:
    record = {**sized(object_record(0)), "image/class/label": 0, "image/filename": "x/n01.JPEG"}
    write(tmp_path / "a.tfrecord", [record])
    for layout, name in (("classification", "x/n01.JPEG"), ("imagenet", "n01.JPEG")):
        (made,) = listed(tmp_path / "a.tfrecord", layout).records().values()
        assert value(made, "image/filename") == name


def test_a_dataset_with_keys_in_place_of_numbers_gets_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is the input, or a conversion that did not finish and is resumed."""
    source = coco(tmp_path / "in", [5, 6])
    with monkeypatch.context() as patched:
        features = tuple(
            replace(spec, fill=FeatureRole.KEY) if spec.fill is FeatureRole.SOURCE_ID else spec
            for spec in LAYOUTS["detection"].features
        )
        patched.setitem(LAYOUTS, "detection", replace(LAYOUTS["detection"], features=features))  # type: ignore[arg-type]
        made = converted(source, tmp_path / "with_keys", layout="detection")
    (data, _) = read_records([made / "train-00000-of-00001.tfrecord"])
    assert b"image/source_id" in data and b'"key"' in (made / "dataset.json").read_bytes()
    assert names_of(made, "vision") == {name: (number_of_key(name), name) for name in ("0.png", "1.png")}
    (made / "dataset.json").unlink()
    converted(source, made, layout="detection", resume=True)
    assert names_in(made) == {"0.png": (5, "0.png"), "1.png": (6, "1.png")}


def test_two_images_with_the_same_generated_number_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    source = coco(tmp_path / "in", ["a", "b", 7])
    monkeypatch.setattr(image_ref, "number_of_key", lambda key: 7)
    done = run(capfd, "convert", f"--input={source}", f"--output={tmp_path / 'out'}", "--layout=vision")
    assert done.code == 2 and "image/source_id 7; rename one of them" in done.err
    assert not (tmp_path / "out").exists()


def test_ids_of_the_source_may_be_equal(tmp_path: Path) -> None:
    for part in ("train", "valid"):  # like Roboflow's export
        coco(tmp_path / "in" / part, [0, 1]).rename(tmp_path / "in" / part / "_annotations.coco.json")
    made = converted(tmp_path / "in", tmp_path / "out", layout="vision")
    assert sorted(number for number, _ in names_in(made).values()) == [0, 0, 1, 1]
