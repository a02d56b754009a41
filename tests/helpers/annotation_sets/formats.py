"""Small datasets in every format of annotations, for the conformance suite and other tests of all formats.

`test_annotation_sources.py` runs the same tests over all of them. A new format gets one row in `FORMATS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.annotation_sets import (
    box_table,
    cityscapes,
    coco,
    cvat,
    json_exports,
    kitti,
    labelme,
    open_images,
    semantic_masks,
    voc,
    yolo,
)
from helpers.listing import Photo, put_photos


@dataclass(frozen=True)
class Edit:
    """A change of one file of a set.

    Attributes:
      file: Path of the file.
      pattern: Regular expression of what is replaced; it occurs exactly once.
      by: What replaces it.
      message: A part of what the source says then about the image `house`; empty if it says nothing.
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
      put: Writes photos and their annotations into a folder.
      source: Name of its source.
      damage: Damages the annotations of `house`, so that the image is bad.
      reason: Why it is bad then.
      bad_box: Turns one of the two boxes of `house` inside out.
      alone: Pattern of the file with the annotations of one image, if there is one for each.
      document: Path of the file with the annotations of all images, if it must be complete.
      splits: Whether folders of it, each with images and annotations, are splits.
      lists_all: Whether images without boxes are in it.
      image: Pattern of the names of the images.
      layout: Layout in which its annotations are stored.
      folder: Folder of it that is the input.
      settings: Further settings; `{}` is the folder of the set.
      mask: Pattern of the masks, if it has some.
    """

    put: Callable[[Path], list[Photo]]
    source: str
    damage: Edit | None = None
    reason: str = "BAD_ANNOTATION"
    bad_box: Edit | None = None
    alone: str = ""
    document: str = ""
    splits: bool = True
    lists_all: bool = True
    image: str = "{}.jpg"
    layout: str = "detection"
    folder: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    mask: str = ""

    @property
    def boxes(self) -> bool:
        """Whether its annotations are boxes."""
        return self.layout == "detection"

    def options(self, root: Path | str) -> dict[str, Any]:
        """Returns the settings with which a set in a folder is read."""
        settings = {name: value.format(root) for name, value in self.settings.items()}
        return {"layout": self.layout, **settings}

    def image_in(self, root: Path, name: str = "house") -> Path:
        """Returns the path of an image of a set."""
        (path,) = root.rglob(self.image.format(name))
        return path


def _with_photos(put: Callable[[Path, list[Photo]], Any], images: str = "") -> Callable[[Path], list[Photo]]:
    """Returns a function that writes a set with its photos in a folder of it."""

    def put_set(root: Path) -> list[Photo]:
        photos = put_photos(root / images)
        put(root, photos)
        return photos

    return put_set


def _box_table(root: Path, photos: list[Photo]) -> None:
    box_table.put(root / "_annotations.csv", box_table.HEADER, box_table.rows_of(photos))


def _coco(root: Path, photos: list[Photo]) -> None:
    coco.save(root / "_annotations.coco.json", coco.coco_of(photos))


def _panoptic(root: Path, photos: list[Photo]) -> None:
    coco.save(root / "panoptic.json", coco.panoptic_of(photos, root / "panoptic"))


def _create_ml(root: Path, photos: list[Photo]) -> None:
    coco.save(root / "_annotations.createml.json", json_exports.create_ml_of(photos))


def _open_images(root: Path, photos: list[Photo]) -> None:
    open_images.put_csv(root / "boxes.csv", open_images.rows_of(photos))


def _yolo(root: Path, photos: list[Photo]) -> None:
    yolo.put_labels(root / "labels", photos)
    (root / "classes.txt").write_text("thing\nno\nbird\n")


_label_studio = _with_photos(json_exports.put_label_studio, "images")


def _cityscapes(root: Path) -> list[Photo]:
    """Writes polygons of cars and persons."""
    return cityscapes.put_city(root, "train", ("eagle", "apple", "house", "seagull"), only_boxes=True)


def _masks(images: str, masks: str) -> Callable[[Path], list[Photo]]:
    def put(root: Path) -> list[Photo]:
        semantic_masks.put_set(root / images, root / masks, ("eagle", "apple", "house", "seagull"))
        (root / "names.txt").write_text("sky\nland\nsea\nice\n")
        (root / "Annotations").mkdir()
        (root / "Annotations" / "eagle.xml").write_text("<annotation></annotation>")
        return []

    return put


_POLYGONS = "gtFine/train/aachen/aachen_{}_000019_gtFine_polygons.json"
_CITY = "aachen_{}_000019_leftImg8bit.png"
_CITY_IDS = "gtFine/train/aachen/aachen_{}_000019_gtFine_labelIds.png"

#: The end of the task of `house` in Label Studio's JSON, after the width of its second box.
_END_OF_HOUSE = (
    r', "height": [0-9.]+, "rotation": 0, "rectanglelabels": [^}]*}}][^]]*][^]]*], '
    r'"data": {"image": "[^"]*house'
)

FORMATS = {
    "box_table": Format(
        _with_photos(_box_table),
        "box_table",
        damage=Edit(
            "_annotations.csv",
            r"(house.*bird,)15",
            r"\1x",
            "line 4 of _annotations.csv: xmin is 'x', which is",
        ),
        bad_box=Edit("_annotations.csv", r"(house.*bird,)15", r"\g<1>15000"),
        lists_all=False,
    ),
    "cityscapes": Format(
        _cityscapes,
        "cityscapes",
        damage=Edit(
            _POLYGONS.format("house"), "person", "", "house_000019_gtFine_polygons.json: object 1 has no"
        ),
        bad_box=Edit(_POLYGONS.format("house"), r"(person.*?)15", r"\g<1>15000"),
        alone=_POLYGONS,
        splits=False,
        image=_CITY,
    ),
    "cityscapes masks": Format(
        _cityscapes,
        "cityscapes",
        alone=_CITY_IDS,
        splits=False,
        image=_CITY,
        layout="segmentation",
        mask=_CITY_IDS,
    ),
    "class_columns": Format(
        _with_photos(json_exports.put_class_columns),
        "class_columns",
        damage=Edit(
            "_classes.csv", "(house.jpg, )0", r"\g<1>2", "line 4 of _classes.csv: '2' is neither 0 nor 1"
        ),
        reason="BAD_ROW",
        layout="classification",
        settings={"label_separator": "|", "unlabelled": "keep"},
    ),
    "coco": Format(
        _with_photos(_coco),
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
        _with_photos(_create_ml),
        "create_ml",
        damage=Edit(
            "_annotations.createml.json",
            r'("house.jpg", "annotations": \[{"label": "thing", "coordinates": {)"x"',
            r'\1"z"',
            "entry 3 of _annotations.createml.json: the coordinates of annotation 0: x is missing",
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
        damage=Edit(
            "label_2/house.txt",
            r"\bbird",
            "a bird",
            "house.txt: line 2: column 2 is 'bird'",
        ),
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
            "task 3 of project-1-at-2024-05-01.json: result 1: width is 'x', which is not a number",
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
    "open_images": Format(
        _with_photos(_open_images, "images"),
        "open_images",
        damage=Edit("boxes.csv", "(house,xclick,/m/015p6,1,)0", r"\1x", "line 4 of boxes.csv: XMin is 'x"),
        reason="BAD_ROW",
        bad_box=Edit("boxes.csv", "(house,xclick,/m/015p6,1,)0", r"\g<1>5"),
        splits=False,
        lists_all=False,
    ),
    "panoptic": Format(
        _with_photos(_panoptic),
        "coco",
        damage=Edit(
            "panoptic.json",
            r'("id": )302',
            r'\1"x"',
            "image 3 of panoptic.json: one of its segments has no id",
        ),
        document="panoptic.json",
        splits=False,
        layout="panoptic",
        mask="panoptic/{}.png",
    ),
    "semantic_masks": Format(
        _masks("images", "masks"),
        "semantic_masks",
        alone="masks/{}.png",
        splits=False,
        layout="segmentation",
        folder="images",
        settings={"mask_dir": "{}/masks", "class_names": "{}/names.txt"},
        mask="masks/{}.png",
    ),
    "voc": Format(
        voc.put_voc,
        "voc",
        damage=Edit("Annotations/house.xml", r"</size>", "", "house.xml: its XML is broken in line 6"),
        bad_box=Edit("Annotations/house.xml", r"<xmin>15<", "<xmin>15000<"),
        alone="Annotations/{}.xml",
        splits=False,
    ),
    "voc beside": Format(
        _with_photos(voc.put_xml),
        "voc",
        damage=Edit("house.xml", r"</size>", "", "house.xml: its XML is broken in line 6"),
        bad_box=Edit("house.xml", r"<xmin>15<", "<xmin>15000<"),
        alone="{}.xml",
    ),
    "voc masks": Format(
        _masks("JPEGImages", "SegmentationClass"),
        "voc",
        splits=False,
        layout="segmentation",
        settings={"class_names": "{}/names.txt"},
        mask="SegmentationClass/{}.png",
    ),
    "yolo": Format(
        _with_photos(_yolo, "images"),
        "yolo",
        damage=Edit("labels/house.txt", r"\n2 ", "\nbird ", "house.txt: line 2 of its labels has a value"),
        bad_box=Edit("labels/house.txt", r"\n2 0\.", "\n2 5."),
        alone="labels/{}.txt",
        splits=False,
    ),
}
