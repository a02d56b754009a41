"""Every format with boxes as the conformance suite uses it: a small set, and ways to damage it.

`test_annotation_sources.py` runs the same tests over all of them. A new format gets one row in `FORMATS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from helpers.annotation_sets import (
    box_table,
    coco,
    cvat,
    json_exports,
    kitti,
    labelme,
    open_images,
    voc,
    yolo,
)
from helpers.listing import Photo, put_photos


@dataclass(frozen=True)
class Edit:
    """A change of one file of a set.

    Attributes:
      file: path of the file.
      pattern: regular expression of what is replaced; it occurs exactly once.
      by: what replaces it.
      message: a part of what the source says then about the image `house`; empty if it says nothing.
    """

    file: str
    pattern: str
    by: str
    message: str = ""

    def apply(self, root: Path) -> None:
        text = (root / self.file).read_text()
        changed, count = re.subn(self.pattern, self.by, text)
        assert count == 1, f"{self.pattern!r} occurs {count} times in {text}"
        (root / self.file).write_text(changed)


@dataclass(frozen=True)
class Format:
    """How a format is written, and what it can do. The photos are eagle, apple, house and seagull.

    Attributes:
      put: writes photos and their annotations into a folder.
      source: name of its source.
      damage: damages the annotations of `house`, so that the image is `BAD_ANNOTATION`.
      bad_box: turns one of the two boxes of `house` inside out.
      alone: pattern of the file with the annotations of one image, if there is one for each.
      document: path of the file with the annotations of all images, if it must be complete.
      splits: whether folders of it, each with images and annotations, are splits.
      lists_all: whether images without boxes are in it.
    """

    put: Callable[[Path], list[Photo]]
    source: str
    damage: Edit | None = None
    bad_box: Edit | None = None
    alone: str = ""
    document: str = ""
    splits: bool = True
    lists_all: bool = True


def _box_table(root: Path) -> list[Photo]:
    photos = put_photos(root)
    box_table.put(root / "_annotations.csv", box_table.HEADER, box_table.rows_of(photos))
    return photos


def _coco(root: Path) -> list[Photo]:
    photos = put_photos(root)
    coco.save(root / "_annotations.coco.json", coco.coco_of(photos))
    return photos


def _create_ml(root: Path) -> list[Photo]:
    photos = put_photos(root)
    coco.save(root / "_annotations.createml.json", json_exports.create_ml_of(photos))
    return photos


def _label_studio(root: Path) -> list[Photo]:
    photos = put_photos(root / "images")
    json_exports.put_label_studio(root, photos)
    return photos


def _open_images(root: Path) -> list[Photo]:
    photos = put_photos(root / "images")
    open_images.put_csv(root / "boxes.csv", open_images.rows_of(photos))
    return photos


def _voc_beside(root: Path) -> list[Photo]:
    photos = put_photos(root)
    voc.put_xml(root, photos)
    return photos


def _yolo(root: Path) -> list[Photo]:
    photos = put_photos(root / "images")
    yolo.put_labels(root / "labels", photos)
    (root / "classes.txt").write_text("thing\nno\nbird\n")
    return photos


#: The end of the task of `house` in Label Studio's JSON, after the width of its second box.
_END_OF_HOUSE = (
    r', "height": [0-9.]+, "rotation": 0, "rectanglelabels": [^}]*}}][^]]*][^]]*], '
    r'"data": {"image": "[^"]*house'
)

FORMATS = {
    "box_table": Format(_box_table, "box_table", lists_all=False),
    "coco": Format(
        _coco,
        "coco",
        damage=Edit(
            "_annotations.coco.json",
            r'("file_name": "house.jpg", "width": )\d+',
            r'\1"x"',
            "image 3 of _annotations.coco.json: its width is 'x'",
        ),
        bad_box=Edit(
            "_annotations.coco.json", r'("image_id": 114, "category_id": 16, "bbox": \[15, 10, )', r"\1-"
        ),
        document="_annotations.coco.json",
    ),
    "create_ml": Format(
        _create_ml,
        "create_ml",
        damage=Edit(
            "_annotations.createml.json",
            r'("house.jpg", "annotations": \[{"label": "thing", "coordinates": {)"x"',
            r'\1"z"',
            "entry 3 of _annotations.createml.json: annotation 0 has no coordinates",
        ),
        bad_box=Edit(
            "_annotations.createml.json",
            r'("house.jpg", "annotations": \[{"label": "thing".*?"width": )',
            r"\1-",
        ),
        document="_annotations.createml.json",
    ),
    "cvat": Format(
        cvat.put_set,
        "cvat",
        damage=Edit(
            "annotations.xml",
            r'(name="house.jpg"[^>]*>\s*<box [^>]*xtl=")',
            r"\1x",
            "of annotations.xml: the box in line 11: xtl is 'x5.00'",
        ),
        bad_box=Edit("annotations.xml", r'(name="house.jpg"[^>]*>\s*<box [^>]*xbr=")', r"\1-"),
        document="annotations.xml",
    ),
    "kitti": Format(
        kitti.put_kitti,
        "kitti",
        damage=Edit("label_2/house.txt", r"\bbird", "a bird", "house.txt: column 2 of line 2 is 'bird'"),
        bad_box=Edit("label_2/house.txt", r"\b15\.00", "15000"),
        alone="label_2/{}.txt",
    ),
    "label_studio": Format(
        _label_studio,
        "label_studio",
        damage=Edit(
            "project-1-at-2024-05-01.json",
            rf'"width": [0-9.]+({_END_OF_HOUSE})',
            r'"width": "x"\1',
            "task 3 of project-1-at-2024-05-01.json: result 1: [",
        ),
        bad_box=Edit("project-1-at-2024-05-01.json", rf'"width": ([0-9.]+{_END_OF_HOUSE})', r'"width": -\1'),
        splits=False,
        document="project-1-at-2024-05-01.json",
    ),
    "labelme": Format(
        labelme.put_labelme,
        "labelme",
        damage=Edit("house.json", r'"bird",\s*"points": \[', r"\g<0>7, ", "house.json: shape 1: its point 7"),
        bad_box=Edit("house.json", r'"label": "bird"', '"label": ""'),
        alone="{}.json",
    ),
    "open_images": Format(_open_images, "open_images", splits=False, lists_all=False),
    "voc": Format(
        voc.put_voc,
        "voc",
        damage=Edit("Annotations/house.xml", r"</size>", "", "house.xml: its XML is broken in line 6"),
        bad_box=Edit("Annotations/house.xml", r"<xmin>15<", "<xmin>15000<"),
        alone="Annotations/{}.xml",
        splits=False,
    ),
    "voc beside": Format(
        _voc_beside,
        "voc",
        damage=Edit("house.xml", r"</size>", "", "house.xml: its XML is broken in line 6"),
        bad_box=Edit("house.xml", r"<xmin>15<", "<xmin>15000<"),
        alone="{}.xml",
    ),
    "yolo": Format(
        _yolo,
        "yolo",
        damage=Edit("labels/house.txt", r"\n2 ", "\nbird ", "house.txt: line 2 of its labels has a value"),
        bad_box=Edit("labels/house.txt", r"\n2 0\.", "\n2 5."),
        alone="labels/{}.txt",
        splits=False,
    ),
}
