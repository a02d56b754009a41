"""Exports of Label Studio and Create ML, and Roboflow's table of classes: real forms, and faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from helpers.annotation_sets.coco import save
from helpers.annotation_sets.json_exports import (
    ROOT,
    choices,
    create_ml_of,
    export,
    json_min,
    put_class_columns,
    rectangle,
    region,
    task,
)
from helpers.listing import Photo, listed, put_photos
from helpers.records import value, values
from PIL import Image, ImageOps

from shardwright.core.sources.label_studio import paths_of
from shardwright.schemas.errors import UsageError


@pytest.fixture
def photos(tmp_path: Path) -> list[Photo]:
    return put_photos(tmp_path / "images")


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize(
    "image",
    [ROOT + "{}", "/data/local-files/?d=sets/images/{}", "s3://bucket/sets/{}", "https://a.b/c/{}?v=1"],
)
def test_label_studios_boxes_are_read(tmp_path: Path, photos: list[Photo], short: bool, image: str) -> None:
    tasks = export(photos)
    for item, photo in zip(tasks, photos):
        item["data"]["image"] = image.format(photo.name)
    path = save(tmp_path / "project-1-at-2024-05-01.json", json_min(tasks) if short else tasks)
    found = listed(path)
    assert found.input.source == "label_studio" and found.reasons() == {}
    for photo in photos:
        found.check_boxes(f"images/{photo.name}", photo)
        annotations = found.annotations_of(f"images/{photo.name}")
        assert annotations.relative and annotations.upright
    assert listed(tmp_path).refs.keys() == found.refs.keys()


def test_paths_of_uploads_and_storages() -> None:
    assert paths_of("/data/local-files/?d=a%20b/c.jpg") == ("a b/c.jpg", "c.jpg")
    assert paths_of("gs://bucket/a/b%2Bc.png") == ("a/b+c.png", "b+c.png")
    assert paths_of("upload/1/12345678-.jpg")[-1] == ".jpg"
    assert paths_of("cat.jpg") == ("cat.jpg",)
    assert paths_of("http://[host]/cat.jpg")[-1] == "cat.jpg"  # a host that is no address


@pytest.mark.parametrize("degrees", [0.0, 30.0, 90.0, 211.5, 359.0])
def test_rotated_rectangles_match_opencv(tmp_path: Path, photos: list[Photo], degrees: float) -> None:
    photo = photos[0]
    box = (100, 120, 180, 160)
    path = save(tmp_path / "out.json", [task(ROOT + photo.name, rectangle(photo, "cat", box, degrees))])
    (item,) = listed(path).annotations_of(f"images/{photo.name}").objects or ()
    # OpenCV turns a rectangle around its center; Label Studio around its upper left corner.
    turn = cv2.getRotationMatrix2D((box[0], box[1]), -degrees, 1.0)
    corners = np.array([(box[0], box[1]), (box[2], box[1]), (box[2], box[3]), (box[0], box[3])], float)
    turned = cv2.transform(corners[None], turn)[0] / photo.size
    np.testing.assert_allclose(item.box or (), [*turned.min(0), *turned.max(0)], atol=1e-9)
    if degrees:
        assert isinstance(item.segmentation, list)
        np.testing.assert_allclose(np.reshape(item.segmentation[0], (-1, 2)), turned, atol=1e-9)


def test_polygons_and_ellipses_have_outlines(tmp_path: Path, photos: list[Photo]) -> None:
    photo = photos[0]
    polygon = region("polygonlabels", "cat", photo, points=[[10, 20], [50, 20], [30, 80]], closed=True)
    ellipse = region("ellipselabels", "dog", photo, x=50, y=40, radiusX=20, radiusY=10, rotation=0)
    brush = region("brushlabels", "sky", photo, format="rle", rle=[0, 0, 3])
    path = save(tmp_path / "out.json", [task(ROOT + photo.name, polygon, ellipse, brush)])
    found = listed(path)
    assert found.input.detected_as.endswith("; left out: brushlabels)")
    first, second = found.annotations_of(f"images/{photo.name}").objects or ()
    assert first.box == (0.1, 0.2, 0.5, 0.8) and first.segmentation == [[0.1, 0.2, 0.5, 0.2, 0.3, 0.8]]
    np.testing.assert_allclose(second.box or (), (0.3, 0.3, 0.7, 0.5), atol=1e-9)
    assert second.label == "dog" and second.segmentation


def test_shapes_fit_the_upright_picture(tmp_path: Path) -> None:
    put_photos(tmp_path, ["penguin"])
    with Image.open(tmp_path / "penguin.jpg") as image:
        upright = ImageOps.exif_transpose(image).size
    photo = Photo("penguin.jpg", upright, ())
    box = (10, 20, 60, 220)
    path = save(tmp_path / "out.json", [task(ROOT + photo.name, rectangle(photo, "bird", box))])
    (record,) = listed(path).records().values()
    assert (value(record, "image/width"), value(record, "image/height")) == upright
    sides = [values(record, f"image/object/bbox/{side}")[0] for side in ("xmin", "ymin", "xmax", "ymax")]
    np.testing.assert_allclose(np.multiply(sides, [*upright] * 2), box, atol=1e-3)


@pytest.mark.parametrize("short", [False, True])
def test_label_studios_choices_are_classes(tmp_path: Path, photos: list[Photo], short: bool) -> None:
    tasks = [task(ROOT + photo.name, choices(f"class {i % 2}")) for i, photo in enumerate(photos)]
    path = save(tmp_path / "out.json", json_min(tasks) if short else tasks)
    found = listed(path, layout="classification")
    assert [ref.label for ref in found.refs.values()] == ["class 0", "class 1"] * 2
    with pytest.raises(UsageError, match="have choices, but no rectangles, polygons or ellipses"):
        listed(path)
    tasks = [task(ROOT + photos[0].name, choices("a", "b"), choices("c", control="other"))]
    path = save(tmp_path / "out.json", tasks)
    (ref,) = listed(path, layout="classification").refs.values()
    assert "it has choices of choice and other; name one of them with --label_column" in ref.message
    (ref,) = listed(path, layout="classification", label_column="choice").refs.values()
    assert "it has several choices (a, b)" in ref.message
    settings = {"label_column": "choice", "label_separator": "|"}
    (ref,) = listed(path, layout="classification", **settings).refs.values()
    assert ref.labels == ("a", "b")


def test_unclear_tasks_are_quarantined(tmp_path: Path, photos: list[Photo]) -> None:
    tasks = export(photos)
    box = rectangle(photos[0], "cat", (1, 2, 30, 40))
    other = [{"result": [box]}, {"result": [box], "ground_truth": True}]
    tasks[0]["annotations"] = [*other, {"result": [], "was_cancelled": True}]
    tasks[1]["annotations"] = [*other, *other]
    tasks[2]["annotations"][0]["was_cancelled"] = True
    tasks[3]["annotations"] = []
    extra = [task(ROOT + "gone.jpg", box), task(ROOT + photos[0].name, box), {"data": {"text": "no image"}}]
    path = save(tmp_path / "out.json", [*tasks, *extra])
    found = listed(path)
    messages = found.faults()
    assert "tasks 1 and 6 of out.json both name it" in messages[f"images/{photos[0].name}"]
    assert messages["out.json:task 6"] == "task 6 of out.json: task 1 names the same image"
    assert "it has 4 annotations; mark one of them as ground truth" in messages[f"images/{photos[1].name}"]
    assert "it was skipped" in messages[f"images/{photos[2].name}"]
    assert "nobody has annotated it" in messages[f"images/{photos[3].name}"]
    assert messages["out.json:task 5"] == f"task 5 of out.json: its image is missing: {ROOT}gone.jpg"
    assert "it names no image" in messages["out.json:task 7"]
    assert messages.keys() == found.refs.keys()
    save(path, tasks)
    assert [item.label for item in listed(path).annotations_of(f"images/{photos[0].name}").objects or ()] == [
        "cat"
    ]
    kept = listed(path, missing_annotations="empty")
    assert kept.annotations_of(f"images/{photos[3].name}").objects == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": "10"}, "x is '10', which is not a number"),
        ({"rotation": 20}, "it is rotated, but original_width and original_height"),
        ({"points": [[1, 2], [3, 4]]}, "a polygon with 2 points"),
        ({"points": [[1, 2], [3, 4], [5]]}, "its point [5] is not a pair of numbers"),
    ],
)
def test_wrong_shapes_fail_their_image(
    tmp_path: Path, photos: list[Photo], change: dict[str, Any], message: str
) -> None:
    result = rectangle(photos[0], "cat", (1, 2, 30, 40))
    result["value"] |= change
    del result["original_width"]
    path = save(tmp_path / "out.json", [task(ROOT + photos[0].name, result)])
    (fault,) = listed(path).faults().values()
    assert message in fault


def test_a_rotated_image_and_masks_alone_are_not_read(tmp_path: Path, photos: list[Photo]) -> None:
    turned = {**rectangle(photos[0], "cat", (1, 2, 30, 40)), "image_rotation": 90}
    brush = region("brushlabels", "sky", photos[1], format="rle", rle=[0, 0, 3])
    path = save(
        tmp_path / "out.json", [task(ROOT + photos[0].name, turned), task(ROOT + photos[1].name, brush)]
    )
    first, second = (ref.message for ref in listed(path).refs.values())
    assert "its image was rotated in Label Studio" in first
    assert "it only has brushlabels, which are not read" in second


def test_create_mls_older_names_of_fields_are_read(tmp_path: Path) -> None:
    photos = put_photos(tmp_path)
    entries = create_ml_of(photos, ("imagefilename", "annotation"))
    found = listed(save(tmp_path / "_annotations.createml.json", entries))
    assert found.input.source == "create_ml" and found.reasons() == {}
    for photo in photos:
        found.check_boxes(photo.name, photo)


def test_a_table_with_a_column_for_each_class(tmp_path: Path) -> None:
    photos = put_photos(tmp_path)
    path = put_class_columns(tmp_path, photos)
    found = listed(path, layout="classification", label_separator="|")
    assert found.ids == {"cat": 0, "a dog": 1, "Kuh": 2}
    labels = [found.refs[photo.name].labels for photo in photos]
    assert labels == [(), ("cat",), ("a dog",), ("cat", "a dog")]
    alone = listed(path, layout="classification")
    assert "it has several classes (cat, a dog)" in alone.refs[photos[3].name].message
