"""Images without classes, as for pretraining: `--layout images`, and layout files with `needs: image`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.fewer_imports import late
from helpers.repository import PHOTOS
from PIL import Image

from shardwright import loader
from shardwright.core.sources.folder_tree import FolderTree, decide
from shardwright.core.sources.inputs import check_inputs
from shardwright.core.sources.listing import list_part, split_inputs
from shardwright.core.sources.rules import make_rules
from shardwright.core.sources.source import Context
from shardwright.core.sources.spool import Spool
from shardwright.loader import Records
from shardwright.pipelines.convert import convert
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.validate import validate
from shardwright.schemas.codes import FilterReason
from shardwright.schemas.configuration.layout_file import parse_layout_file
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import LAYOUTS, inline_layout

tf = late("tensorflow")
tfds = late("tensorflow_datasets")

BIRDS = sorted((PHOTOS / "birds").iterdir())[:6]


def refs_of(folder: Path, **settings: Any) -> list[ImageRef]:
    """Returns the references of an input with `--layout images`."""
    given = ConvertSettings(input=(str(folder),), layout="images", **settings)
    inputs = check_inputs(given, None)
    (folder.parent / "spool").mkdir(exist_ok=True)
    context = Context(given, Spool(str(folder.parent / "spool")), make_rules(given))
    found = [ref for part in split_inputs(inputs, context) for ref in list_part(part, context)]
    assert not any(isinstance(ref, ClassId) for ref in found)
    return [ref for ref in found if isinstance(ref, ImageRef)]


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), (len(path.name) * 9 % 256, 60, 90)).save(path)


@pytest.mark.parametrize(
    ("found", "folders", "expected"),
    [
        ({}, "auto", ("", False)),
        ({"cats": False}, "auto", ("", False)),
        ({"00000": False}, "auto", ("", False)),
        ({"train": False, "Test": True}, "auto", ("train", True)),
        ({"train": False}, "ignore", ("", False)),
        ({"train": False}, "classes", ("", False)),
        ({"train": False, "cats": False}, "splits", ("train", True)),
    ],
)
def test_without_classes_folders_are_splits_or_nothing(
    found: dict[str, bool], folders: str, expected: tuple[str, bool]
) -> None:
    tree = decide(found, folders, "in", classless=True)
    assert (tree.place("train/cats/1.jpg")[0], tree.leaves_out("loose.jpg")) == expected
    assert tree.place("train/cats/1.jpg", 2)[1] == ""


def test_splits_beside_other_folders_are_a_question() -> None:
    with pytest.raises(UsageError, match=r"(?s)--folders splits if .*--folders ignore if"):
        decide({"train": False, "cats": False}, "auto", "in", classless=True)


def test_the_meaning_of_folders_is_told() -> None:
    assert FolderTree(names_classes=False, classless=True).text == "a folder of images"
    tree = decide({"test": False, "train": True}, "auto", "in", classless=True)
    assert tree.text == "images in train and test; files outside of these are left out"


def test_classes_of_every_source_are_left_out(tmp_path: Path) -> None:
    source = tmp_path / "in"
    for name in ("cats/1.png", "dogs/long haired/2.png", "Grüße 3.PNG"):
        picture(source / name)
    (source / "cats" / "1.xml").write_text("<annotation></annotation>")
    (source / "_annotations.coco.json").write_text('{"images": [], "annotations": [], "categories": []}')
    found = {ref.key: ref for ref in refs_of(source)}
    images = {key for key, ref in found.items() if ref.is_candidate}
    assert images == {"cats/1.png", "dogs/long haired/2.png", "Grüße 3.PNG"}
    assert {ref.label + ref.split + ref.annotations for ref in found.values()} == {""}
    table = tmp_path / "rows.csv"
    table.write_text("path,label\ncats/1.png,cat|pet\nGrüße 3.PNG,\n")
    rows = refs_of(table, image_root=str(source))
    assert [(ref.key, ref.label, ref.is_candidate) for ref in rows] == [
        ("cats/1.png", "", True), ("Grüße 3.PNG", "", True),
    ]  # fmt: skip
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for path in sorted(source.rglob("*.png")):
            archive.write(path, f"pack/{path.relative_to(source)}")
    members = refs_of(tmp_path / "images.zip")
    assert [(ref.label, ref.is_candidate) for ref in members] == [("", True)] * 2
    pixels = tmp_path / "pixels.npz"
    np.savez(pixels, x_train=np.zeros((3, 8, 8), np.uint8), y_train=np.array([1, 2, 0]))
    assert [ref.label for ref in refs_of(pixels) if ref.is_candidate] == [""] * 3


def test_metadata_with_a_wrong_class_is_no_fault(tmp_path: Path) -> None:
    for number in range(2):
        picture(tmp_path / "in" / f"{number}.png")
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"label": [1, 2], "score": number}))
    found = refs_of(tmp_path / "in", extra_columns="score:int64")
    assert all(ref.is_candidate and not ref.label for ref in found) and found[1].extra


def test_images_outside_of_the_splits_are_counted(tmp_path: Path) -> None:
    for name in ("train/1.png", "test/deep/2.png", "loose.png"):
        picture(tmp_path / "in" / name)
    found = {ref.key: (ref.split, ref.reason) for ref in refs_of(tmp_path / "in")}
    assert found["train/1.png"] == ("train", "") and found["test/deep/2.png"] == ("test", "")
    assert found["loose.png"][1] == FilterReason.OUTSIDE_SPLITS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: classification\nneeds: image\n", "needs: image has no classes; drop the feature"),
        ("extends: images\nneeds: label\n", "or write needs: image"),
        ("extends: images\nfeatures:\n  box: {fill: boxes}\n", "needs: objects"),
    ],
)
def test_a_layout_file_says_whether_there_are_classes(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_layout_file(text, "own.yaml")


def test_a_source_of_annotations_names_the_folder_to_use(tmp_path: Path) -> None:
    picture(tmp_path / "in" / "1.png")
    settings = ConvertSettings(input=(str(tmp_path / "in"),), layout="images", source="labelme")
    with pytest.raises(UsageError, match="name the folder with a JSON file for each image"):
        check_inputs(settings, None)


def test_a_dataset_without_classes_is_complete(tmp_path: Path) -> None:
    source = tmp_path / "in"
    for number, path in enumerate(BIRDS):
        target = source / ("test" if number == 0 else "train") / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    out = tmp_path / "out"
    made = convert(input=str(source), output=str(out), layout="images", resize="32", verify="full")
    assert made.dataset.labels == () and made.dataset.layout == "images"
    assert {name: sum(s.records for s in shards) for name, shards in made.dataset.splits.items()} == {
        "train": 5, "test": 1,
    }  # fmt: skip
    files = {path.name for path in out.iterdir()}
    assert files.isdisjoint({"labels.txt", "label_map.pbtxt"}) and "features.json" in files
    assert validate(out, mode="quality", against=str(source)).sound
    assert "0 classes" not in (out / "report.html").read_text()
    builder = tfds.builder_from_directory(out)
    stored = builder.as_dataset(split="train", decoders={"image/encoded": tfds.decode.SkipDecoding()})
    names = {item["image/filename"].decode() for item in tfds.as_numpy(stored)}
    assert names == {f"train/{path.name}" for path in BIRDS[1:]}
    for record in Records(str(out), split="train"):
        assert "image/class/label" not in record
    for batch in loader.load(str(out), split="test", batch_size=1):
        assert batch["image"].shape == (1, 32, 32, 3) and batch["image"].dtype == tf.uint8


def test_rebuilds_need_no_classes(tmp_path: Path) -> None:
    own = parse_layout_file("extends: images\ndrop: [image/key/sha256]\n", "own.yaml")
    for number in range(3):
        picture(tmp_path / "in" / f"{number}.png")
    given = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out"), "layout": inline_layout(own)}
    first = rebuild(**given)
    picture(tmp_path / "in" / "later.png")
    second = rebuild(**given)
    stored = json.loads((Path(second.path) / "dataset.json").read_text())
    assert first.changed and second.changed and stored["ledger"]["written"] == 4
    assert validate(second.path).sound


def test_the_layout_has_all_of_classification_but_the_class() -> None:
    names = {spec.name for spec in LAYOUTS["classification"].features}
    without = {spec.name for spec in LAYOUTS["images"].features}
    assert names - without == {"image/class/label", "image/class/text"} and without < names
