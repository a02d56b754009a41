"""Datasets with boxes, masks and several classes, and of images in tables: converted, read, validated."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.annotation_sets.coco import put_coco, save
from helpers.depths import compared, findings_of
from helpers.embedded import HUGGING_FACE, png, table_of, write_arrow
from helpers.listing import listed
from helpers.records import by_key, picture, value, values
from helpers.repository import PHOTOS
from PIL import Image, ImageOps

from shardwright.core.report.gather import gather
from shardwright.core.report.measures import ObjectCounts
from shardwright.core.report.render import render
from shardwright.pipelines.convert import convert
from shardwright.pipelines.diff import diff
from shardwright.pipelines.inspect import inspect, print_inspection
from shardwright.pipelines.results import ConvertResult, print_convert_summary
from shardwright.pipelines.validate import validate
from shardwright.schemas.drift import Kind

#: Wide ones, tall ones, and a penguin that its EXIF orientation rotates by 90 degrees.
BIRDS = sorted((PHOTOS / "birds").glob("*.jpg"))


@pytest.fixture(scope="module")
def coco(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A COCO file: each picture has a box in its middle, one at its left edge and one outside."""
    sizes = {path.name: Image.open(path).size for path in BIRDS}
    boxes = {
        name: [(1, w / 4, h / 4, w / 2, h / 2), (2, 0, 0, 20, h), (3, w - 5, 0, 20, 10)]
        for name, (w, h) in sizes.items()
    }
    folder = tmp_path_factory.mktemp("coco")
    path = put_coco(folder / "instances.json", boxes, ("wing", "beak", "tail"), sizes)
    document = json.loads(path.read_text())
    for item in document["annotations"][::3]:
        x, y, w, h = item["bbox"]
        item["segmentation"] = [[x, y, x + w, y, x + w, y + h, x, y + h]]
    return save(path, document)


def detect(coco: Path, output: Path, **settings: Any) -> ConvertResult:
    values = {"resize": "60x60", "fit": "fit", "verify": "none", "layout": "detection", **settings}
    return convert(input=str(coco), image_root=str(BIRDS[0].parent), output=str(output), **values)


@pytest.fixture(scope="module")
def detected(coco: Path) -> ConvertResult:
    """A dataset of it, which no test changes."""
    return detect(coco, coco.with_name("out"))


def test_boxes_are_stored_correctly(detected: ConvertResult, capsys: pytest.CaptureFixture[str]) -> None:
    wide = 0
    for key, example in by_key(detected.path).items():
        with Image.open(BIRDS[0].parent / key) as image:
            width, height = ImageOps.exif_transpose(image).size
            wide += image.width >= image.height + 34
        side = min(width, height)  # the part that remains after the crop
        left, bottom = (values(example, f"image/object/bbox/{side}")[0] for side in ("xmin", "ymax"))
        expected = (0.5 - width / side / 4, 0.5 + height / side / 4)
        assert (left, bottom) == pytest.approx(expected, abs=1e-6)
        mask = picture(example, "image/object/mask")
        assert mask.shape == (60, 60) and mask.max() == 1
    boxes = detected.outcome["boxes"]
    assert boxes["dropped"] == len(BIRDS)
    assert boxes["vanished"] == wide
    assert boxes["written"] + boxes["vanished"] == 2 * len(BIRDS)
    (warning,) = [text for text in detected.outcome["warnings"] if "bad annotations" in text]
    assert warning.startswith("5 bad annotations are left out, such as ")
    assert warning.count("(object 2: its box (") == 3
    assert detected.dataset.class_counts["train"] == {"beak": len(BIRDS) - wide, "wing": len(BIRDS)}
    print_convert_summary(detected)
    out = " ".join(capsys.readouterr().out.split())
    assert f"boxes: {boxes['written']} written" in out
    assert "5 dropped as bad" in out


@pytest.mark.usefixtures("detected")
def test_a_moved_box_is_a_difference(coco: Path, tmp_path: Path) -> None:
    document = json.loads(coco.read_text())
    document["annotations"][0]["bbox"][0] += 1
    moved = save(tmp_path / coco.name, document)
    detect(moved, tmp_path / "moved")
    detect(moved, tmp_path / "unique", dedupe="exact")  # has other digests
    found = {
        name: diff(str(coco.with_name("out")), str(tmp_path / name)).drift.changes
        for name in ("moved", "unique")
    }
    ((_, was, now),) = found["moved"].listed[Kind.RE_ENCODED]
    assert now == f"{was}, other annotations or columns"
    assert [changes.unchanged for changes in found.values()] == [len(BIRDS) - 1, len(BIRDS)]


def test_dropped_objects_are_warnings_with_their_places(detected: ConvertResult) -> None:
    boxes = detected.outcome["boxes"]
    document = json.loads(Path(detected.path, "findings.json").read_text())
    assert (document["counts"], document["errors"]) == ({"OBJECTS_DROPPED": len(BIRDS)}, 0)
    messages = [finding["message"] for finding in document["findings"]]
    lost = sum(int(message.split()[0]) for message in messages)
    assert lost == boxes["dropped"] + boxes["vanished"]
    first = messages[0]
    assert " of the 3 objects of its source " in first
    assert " not in the record: " in first
    assert "1 bad (object 2: its box (" in first
    assert detected.outcome["findings"] == document["counts"]
    found = findings_of(detected.path)
    assert [(one.shard, one.record, one.offset, one.key, one.message) for one in found] == [
        (one["shard"], one["record"], one["offset"], one["key"], one["message"])
        for one in document["findings"]
    ]


def test_the_report_shows_the_objects(coco: Path, tmp_path: Path) -> None:
    document = json.loads(coco.read_text())
    document["annotations"] = [item for item in document["annotations"] if item["image_id"]]
    out = tmp_path / "out"
    detect(save(tmp_path / "one_less.json", document), out, resize="", bad_boxes="drop")
    data = gather(str(out))
    assert data.measures.counts == ObjectCounts({0: 1, 2: len(BIRDS) - 1}, lost=len(BIRDS) - 1)
    assert {max(picture.width, picture.height) for picture in data.pictures.values()} == {320}
    page = " ".join(render(data).split())
    assert "8 objects in 5 images; 1 image without objects. 4 objects of the sources are not in" in page
    assert "Objects in an image" in page
    assert "to count the objects of each class" in page
    validate(str(out), mode="quality")
    page = (out / "report.html").read_text()
    assert "Objects of each class, the largest first" in page
    assert "to count the objects of each class" not in page
    for title in ("Objects in an image", "Width of a box", "Height of a box", "Area of a box"):
        assert f"<caption>{title}</caption>" in page


@pytest.mark.sampled(1)
@pytest.mark.parametrize("foreign", [False, True])
def test_detection_records_are_inspected_drawn_and_validated(
    detected: ConvertResult, tmp_path: Path, foreign: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"{detected.path}/*.tfrecord" if foreign else detected.path
    sheet = tmp_path / "sheet.png"
    found = inspect(place, records=1, contact_sheet=str(sheet))
    assert found["contact_sheet"]["thumbnails"] == len(BIRDS)
    assert found["records"][0]["features"]["image/object/class/text"][0] == "wing"
    print_inspection(found)
    assert "image/object/bbox/xmin" in capsys.readouterr().out
    with Image.open(sheet) as drawn:
        colors = {color for _, color in drawn.getcolors(1 << 20)}
    assert (0, 67, 230) in colors  # the color of boxes of class 1
    if foreign:
        assert validate(place).sound


def test_semantic_masks_are_transformed_with_their_pictures(tmp_path: Path) -> None:
    """The upper part of each picture is of one class, and the lower part of each is of its own."""
    names = ("above", *(path.name for path in BIRDS))
    (tmp_path / "masks").mkdir()
    (tmp_path / "classes.txt").write_text("\n".join(names))
    for number, path in enumerate(BIRDS, 1):
        with Image.open(path) as image:
            ids = np.zeros(image.size[::-1], np.uint8)
        ids[ids.shape[0] // 2 :] = number
        Image.fromarray(ids).save(tmp_path / "masks" / f"{path.stem}.png")
    made = convert(
        input=BIRDS[0].parent, include="*.jpg", mask_dir=tmp_path / "masks", output=tmp_path / "out",
        class_names=tmp_path / "classes.txt", layout="segmentation", resize="40x60", fit="pad", verify="none",
    )  # fmt: skip
    assert made.dataset.labels == names and made.dataset.ledger["written"] == len(BIRDS)
    for key, example in by_key(made.path).items():
        mask = picture(example, "image/segmentation/class/encoded")
        assert mask.shape == (60, 40)
        below = names.index(key)
        assert set(np.unique(mask)) == {0, below, 255}
        assert value(example, "image/segmentation/class/format") == "png"
        assert value(example, "image/format") == "jpeg"
        if key == "penguin.jpg":  # the lower part of the stored picture is upright on the left
            mask = np.rot90(mask)
        rows = [np.flatnonzero((mask == number).any(axis=1)) for number in (0, below)]
        assert rows[0][-1] + 1 == rows[1][0]
        assert abs(len(rows[0]) - len(rows[1])) <= 1
    found = inspect(made.path, contact_sheet=str(tmp_path / "sheet.png"))
    assert found["contact_sheet"]["thumbnails"] == len(BIRDS)
    assert not findings_of(made.path)


def test_images_with_several_classes_are_inspected_drawn_and_validated(tmp_path: Path) -> None:
    rows = [f"{path.name},{'bird|big' if i % 2 else 'bird'}" for i, path in enumerate(BIRDS)]
    table = tmp_path / "labels.csv"
    table.write_text("\n".join(["file,label", *rows]))
    made = convert(
        input=str(table), image_root=str(BIRDS[0].parent), output=str(tmp_path / "out"), resize=32,
        label_separator="|", verify="none",
    )  # fmt: skip
    assert made.dataset.class_counts["train"] == {"bird": 5, "big": 2}
    sheet = str(tmp_path / "sheet.png")
    for place in (made.path, f"{made.path}/*.tfrecord"):
        assert inspect(place, contact_sheet=sheet)["contact_sheet"]["thumbnails"] == len(BIRDS)
    assert not findings_of(made.path)


_IMAGES = [png(number) for number in range(30)]
_LABELS = [("cat", "dog", "eel")[number % 3] for number in range(30)]


@pytest.mark.parametrize("name", ["saved", "hub"])
def test_objects_in_a_dataset_of_hugging_face_reach_the_records(tmp_path: Path, name: str) -> None:
    found = listed(HUGGING_FACE / name, "detection", tmp_path)
    assert Counter(ref.split for ref in found.refs.values()) == {"train": 4, "test": 2}
    assert list(found.ids) == ["eye", "nose"]
    for key, record in found.records().items():
        number = int(key.rpartition("!")[2]) + (4 if found.refs[key].split == "test" else 0)
        shown = picture(record, "image/encoded")
        assert shown.shape[:2] == (10, 20 + number)
        assert np.array_equal(np.unique(shown), np.unique([40 * number, 0]))
        assert value(record, "image/object/class/text") == ("eye", "nose")[number % 2]


def test_a_dataset_is_compared_with_its_rows(tmp_path: Path) -> None:
    source = write_arrow(tmp_path / "rows.arrow", table_of(_IMAGES, label=_LABELS), compression="zstd")
    convert(input=source, output=tmp_path / "out", verify="none")
    write_arrow(source, table_of([*_IMAGES[:9], png(77), *_IMAGES[10:]], label=_LABELS))
    (finding,) = compared(tmp_path / "out", source)
    assert finding.code == "SOURCE_CHANGED" and finding.key == "rows.arrow!000009"
