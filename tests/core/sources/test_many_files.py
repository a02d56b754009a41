"""Inputs with more annotation files than are looked at to detect their format."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.listing import listed, put_photos

_FILES = 60


def _cvat(name: str) -> str:
    return (
        f'<annotations><version>1.1</version><image id="0" name="{name}" width="9" height="9"/></annotations>'
    )


def _coco(name: str) -> str:
    image = {"id": 1, "file_name": name, "width": 9, "height": 9}
    return json.dumps({"images": [image], "annotations": [], "categories": [{"id": 1, "name": "a"}]})


def _create_ml(name: str) -> str:
    return json.dumps([{"image": name, "annotations": []}])


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("{}.xml", _cvat),
        ("{}.json", _coco),
        ("{}.json", _create_ml),
        ("{}.csv", "filename,class,xmin,ymin,xmax,ymax\n{},a,1,1,2,2\n".format),
        ("{}.csv", "ImageID,LabelName,XMin,XMax,YMin,YMax\n{},a,0.1,0.2,0.1,0.2\n".format),
        ("train{}/_classes.csv", "filename,a,b\n{},0,1\n".format),
        ("{}.txt", "{} 0\n".format),
    ],
    ids=["cvat", "coco", "create_ml", "box_table", "open_images", "class_columns", "lists"],
)
def test_all_files_are_read(tmp_path: Path, file: str, text: Callable[[str], str]) -> None:
    kind = "classification" if file.endswith(("_classes.csv", ".txt")) else "detection"
    (photo,) = put_photos(tmp_path / "photos", ("eagle",))
    for number in range(_FILES):
        path = tmp_path / "in" / file.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "photos" / photo.name, path.parent / f"{number}.jpg")
        path.write_text(text(str(number) if "ImageID" in text("") else f"{number}.jpg"))
    found = listed(tmp_path / "in", layout=kind)
    assert len(found.refs) == _FILES and not found.reasons()
