"""Open Images' CSV of boxes: rows in any order, flags, class names, bad rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.annotation_sets.box_table import boxes_of, in_any_order
from helpers.annotation_sets.open_images import MIDS, NAMES, put_csv, rows_of
from helpers.listing import Photo, listed, put_photos

from shardwright.schemas.errors import UsageError


@pytest.fixture
def photos(tmp_path: Path) -> list[Photo]:
    """Photos with boxes, except the first, which no row names."""
    return put_photos(tmp_path / "images", ("eagle", *NAMES))


@pytest.mark.parametrize("order", in_any_order([]))
def test_images_and_boxes_are_listed(tmp_path: Path, photos: list[Photo], order: str) -> None:
    found = listed(put_csv(tmp_path / "boxes.csv", in_any_order(rows_of(photos))[order]))
    assert found.input.source == "open_images" and not found.reasons() and not found.ids
    assert found.refs.keys() == {f"{name}.jpg" for name in NAMES}
    for photo in photos[1:]:
        annotations = found.annotations_of(photo.name)
        assert annotations.relative and boxes_of(annotations, photo) == sorted(photo.boxes)
        flags = [(item.truncated, item.group_of, item.depiction) for item in annotations.objects or ()]
        assert flags == [(False, None, True)] * len(photo.boxes)
        occluded = sorted(bool(item.occluded) for item in annotations.objects or ())
        assert occluded == sorted(bool(i % 2) for i in range(len(photo.boxes)))


def test_a_folder_of_splits_is_read(tmp_path: Path, photos: list[Photo]) -> None:
    (tmp_path / "images").rename(tmp_path / "train")
    others = put_photos(tmp_path / "validation", ("coach", "library"))
    put_csv(tmp_path / "oidv6-train-annotations-bbox.csv", rows_of(photos))
    put_csv(tmp_path / "validation-annotations-bbox.csv", rows_of(others))
    found = listed(tmp_path)
    assert found.input.source == "open_images"
    expected = {**{f"train/{name}.jpg": "train" for name in NAMES}, "validation/library.jpg": "validation"}
    assert {key: ref.split for key, ref in found.refs.items()} == expected
    for split in ("train", "validation"):
        for path in tmp_path.glob(f"*{split}-*.csv"):
            path.rename(tmp_path / split / "boxes.csv")
    assert {key: ref.split for key, ref in listed(tmp_path).refs.items()} == expected


BAD_ROWS = {
    "x.jpg,a\n": ("x.jpg.jpg", "line 12 of boxes.csv: it has 2 cells instead of 13"),
    "rose,x,/m/1,1,0.1,zero,0.1,0.2,0,0,0,0,0\n": ("rose.jpg", "XMax is 'zero'"),
    "rose,x,/m/1,1,0.1,nan,0.1,0.2,0,0,0,0,0\n": ("rose.jpg", "XMax is 'nan'"),
    "rose,x,/m/1,1,0.1,0.2,0.1,,0,0,0,0,0\n": ("rose.jpg", "YMax is ''"),
    "rose,x,/m/1,1,0.1,0.2,0.1,0.3,7,0,0,0,0\n": ("rose.jpg", "IsOccluded is '7'"),
    'rose,"x,/m/1,1,0.1,0.2,0.1,0.3,0,0,0,0,0\n': ("rose.jpg", "line 12 of boxes.csv: it has 1 cell instead"),
    ",x,/m/1,1,0.1,0.2,0.1,0.3,0,0,0,0,0\n": ("boxes.csv:line 12", "names no image"),
    "../rose,x,/m/1,1,0.1,0.2,0.1,0.3,0,0,0,0,0\n": ("boxes.csv:line 12", "names no image"),
    "r\0se,x,/m/1,1,0.1,0.2,0.1,0.3,0,0,0,0,0\n": ("boxes.csv:line 12", "names no image"),
    "rose" + "x" * 200_000 + "\n": ("boxes.csv:line 12", "names no image"),
    "rose,x,/m/1,1,0.1,0.2": ("rose.jpg", "line 12 of boxes.csv: it has 6 cells"),
}


@pytest.mark.parametrize("row", BAD_ROWS)
def test_bad_rows_are_quarantined(tmp_path: Path, photos: list[Photo], row: str) -> None:
    rows = rows_of(photos)
    assert len(rows) == 10
    path = put_csv(tmp_path / "boxes.csv", [*rows, row])
    key, says = BAD_ROWS[row]
    found = listed(path)
    assert found.reasons() == {key: "BAD_ROW"} and says in found.refs[key].message
    assert found.refs[key].split == ("none" if "line" in key else "")


def test_other_csv_files_are_not_detected_as_open_images(tmp_path: Path, photos: list[Photo]) -> None:
    path = put_csv(tmp_path / "boxes.csv", [], header="ImageID,LabelName,Confidence\n")
    with pytest.raises(UsageError, match="its first line names"):
        listed(path, source="open_images")
    put_photos(tmp_path / "ant")
    assert listed(tmp_path, layout="classification").input.source == "class_folders"


def test_without_descriptions_the_codes_are_the_classes(tmp_path: Path, photos: list[Photo]) -> None:
    found = listed(put_csv(tmp_path / "boxes.csv", rows_of(photos), descriptions=False))
    assert {label for ref in found.refs.values() for label in ref.labels} == {*MIDS.values()}
