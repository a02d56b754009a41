"""CVAT, LabelMe, Label Studio, Create ML and Roboflow: shapes, classes, where images are found, faults."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from helpers.annotation_sets.coco import save
from helpers.annotation_sets.cvat import META, box_of, image_of, put_cvat, put_set
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
from helpers.annotation_sets.labelme import document, put_labelme, shape
from helpers.listing import Photo, listed, put_photos, refusal
from helpers.records import value, values
from helpers.tfrecords import png_of
from PIL import Image, ImageOps
from pycocotools import mask as coco

from shardwright.core.images import masks
from shardwright.core.sources.annotation_files import read_xml
from shardwright.core.sources.cvat import objects_of
from shardwright.core.sources.label_studio import paths_of
from shardwright.core.sources.labelme import parse_labelme


@pytest.fixture
def photos(tmp_path: Path) -> list[Photo]:
    return put_photos(tmp_path / "images")


def test_subsets_of_a_project_give_splits(tmp_path: Path) -> None:
    images = []
    for subset, names in (("Train", ("eagle", "apple")), ("default", ("house",))):
        for number, photo in enumerate(put_photos(tmp_path / "images" / subset, names)):
            images.append(image_of(photo, number, f'subset="{subset}" task_id="1"'))
    found = listed(put_cvat(tmp_path, images))
    assert not found.reasons()
    splits = {Path(key).parent.name: ref.split for key, ref in found.refs.items()}
    assert splits == {"Train": "train", "default": ""}


def test_tags_are_classes(tmp_path: Path) -> None:
    photos = put_photos(tmp_path / "in" / "images")
    tags = [f'    <tag label="{label}" source="manual"></tag>\n' for label in ("a", "b", "a", "b")]
    images = [image_of(photo, 0, shapes=tag) for photo, tag in zip(photos, tags, strict=True)]
    found = listed(put_cvat(tmp_path / "in", images), layout="classification")
    assert {key: ref.label for key, ref in found.refs.items()} == {
        f"images/{photo.name}": label for photo, label in zip(photos, "abab", strict=True)
    }
    put_cvat(tmp_path / "in", [image_of(photos[0], 0, shapes=tags[0] + tags[1])])
    found = listed(tmp_path / "in", layout="classification")
    assert found.reasons() == {f"images/{photos[0].name}": "BAD_ANNOTATION"}
    found = listed(tmp_path / "in", layout="classification", label_separator="|")
    assert found.refs[f"images/{photos[0].name}"].labels == ("a", "b")
    put_set(tmp_path / "boxes")
    assert "have no tags to use as classes; choose --layout detection" in refusal(tmp_path / "boxes")


def test_shapes_of_cvat_are_converted(tmp_path: Path) -> None:
    shapes = (
        '<polygon label="a" source="manual" points="1.00,2.00;9.00,2.00;5.00,8.50" z_order="0"></polygon>'
        + box_of("b", 4, 6, 8, 8, 'rotation="90.00"')
        + '<ellipse label="c" source="manual" cx="10" cy="8" rx="4" ry="2" z_order="0"></ellipse>'
        '<mask label="d" rle="1, 2, 1, 2" left="3" top="2" width="3" height="2" z_order="0"></mask>'
        '<points label="e" source="manual" occluded="0" points="1,1" z_order="0"></points>'
        '<skeleton label="f" source="manual"><points label="1" points="1,1"></points></skeleton>'
        '<tag label="t" source="manual"></tag>'
    )
    text = META + image_of(Photo("a.jpg", (20, 16), ()), 0, shapes=shapes) + "</annotations>"
    *_, image = read_xml(text.encode(), "annotations")
    found = objects_of(image).objects or ()
    assert [item.label for item in found] == [*"abcdef"]
    boxes = [item.box for item in found]
    assert boxes[0] == (1, 2, 9, 8.5) and boxes[3] == (3, 2, 6, 4) and boxes[4] is boxes[5] is None
    np.testing.assert_allclose(boxes[1] or (), (5, 5, 7, 9))
    np.testing.assert_allclose(boxes[2] or (), (6, 6, 14, 10))
    drawn = np.asarray(masks.draw_outline(found[3].segmentation or [], (20, 16)))
    assert drawn[2:4, 3:6].tolist() == [[0, 1, 1], [0, 1, 1]] and drawn.sum() == 4
    ellipse = np.asarray(masks.draw_outline(found[2].segmentation or [], (20, 16)))
    assert abs(ellipse.sum() - math.pi * 8) < 3


def test_messages_about_faults_of_cvat_name_file_and_line(tmp_path: Path, photos: list[Photo]) -> None:
    shapes = (
        box_of("a", 1, 2, 3, 4).replace("3.00", "three"),
        '<mask label="a" rle="1, 2" left="0" top="0" width="2" height="2"></mask>',
        '<polygon label="a" points="1,2;3,4"></polygon>',
        "",
    )
    images = [image_of(photo, 0, shapes=shape) for photo, shape in zip(photos, shapes, strict=True)]
    images += [image_of(Photo("gone.jpg", (5, 5), ()), 9), image_of(Photo("../up.jpg", (5, 5), ()), 9)]
    found = listed(put_cvat(tmp_path, images))
    up, box, mask, polygon, gone = found.faults().values()
    assert box == "line 5 of annotations.xml: the box in line 6: xbr is 'three', which is not a number"
    assert "the mask in line" in mask and "3 pixels instead of 2 x 2" in mask
    assert "a polygon with 2 points" in polygon
    assert gone == "its image is missing" and "'../up.jpg'" in up


def test_an_image_that_is_listed_twice_is_quarantined(tmp_path: Path, photos: list[Photo]) -> None:
    again = [image_of(photo._replace(name=f"./{photo.name}"), 9) for photo in photos[:1] * 2]
    put_cvat(tmp_path, [*(image_of(photo, 0) for photo in photos), *again])
    file = "annotations.xml"
    assert listed(tmp_path).faults() == {
        f"images/{photos[0].name}": f"line 5 of {file}: lines 5 and 19 of {file} both name it",
        "annotations.xml:line 19": f"line 19 of {file}: line 5 names the same image",
        "annotations.xml:line 21": f"line 21 of {file}: line 5 names the same image",
    }


def test_videos_are_refused(tmp_path: Path) -> None:
    put_set(tmp_path)
    (tmp_path / "annotations.xml").write_text(META + '<track id="0" label="a"></track></annotations>')
    assert "CVAT for video" in refusal(tmp_path, "detection")


def test_only_utf8_is_read(tmp_path: Path) -> None:
    put_set(tmp_path)
    path = tmp_path / "annotations.xml"
    text = path.read_text().replace("thing", "Gerät")
    path.write_text(text, encoding="utf-8-sig")
    assert not listed(tmp_path).faults()
    path.write_text(text.replace("utf-8", "ISO-8859-1"), encoding="latin-1")
    assert "its XML is broken in line 4: not well-formed" in refusal(tmp_path, "detection")


def test_json_files_beside_images_are_read(tmp_path: Path) -> None:
    photos = put_labelme(tmp_path)
    save(tmp_path / "settings.json", {"a": 1})
    found = listed(tmp_path)
    assert found.input.source == "labelme" and found.input.detected_as == f"LabelMe (images in {tmp_path})"
    assert found.reasons() == {"settings.json": "not_an_image"}
    assert all(found.annotations_of(photo.name).upright for photo in photos)


def test_images_are_found_in_the_usual_places(tmp_path: Path, photos: list[Photo]) -> None:
    """A path as `labelme --output` writes it, one from Windows, a unique name, and a renamed file."""
    paths = ("../images/", "..\\images\\", "/home/me/", "C:\\me\\")
    for photo, folder in zip(photos, paths, strict=True):
        save(tmp_path / "labels" / f"{Path(photo.name).stem}.json", document(photo, folder))
    found = listed(tmp_path)
    assert not found.reasons() and found.refs.keys() == {f"images/{photo.name}" for photo in photos}
    apart = listed(tmp_path / "labels", image_root=tmp_path / "images")
    assert not apart.reasons() and apart.refs.keys() == {photo.name for photo in photos}
    (tmp_path / "images" / photos[0].name).rename(tmp_path / "labels" / "new.jpg")
    (tmp_path / "labels" / "eagle.json").rename(tmp_path / "labels" / "new.json")
    assert "labels/new.jpg" in listed(tmp_path).refs and not listed(tmp_path).reasons()


def test_embedded_images_are_read(tmp_path: Path) -> None:
    """An image that exists only in the JSON file is read from there; a file beside it takes precedence."""
    photos = put_labelme(tmp_path / "in")
    for photo in photos[:2]:
        data = base64.b64encode((tmp_path / "in" / photo.name).read_bytes()).decode()
        save(tmp_path / "in" / f"{Path(photo.name).stem}.json", document(photo, data=data))
    original = (tmp_path / "in" / photos[0].name).read_bytes()
    (tmp_path / "in" / photos[0].name).unlink()
    found = listed(tmp_path / "in")
    assert not found.reasons() and found.refs[photos[0].name].place and not found.refs[photos[1].name].place
    assert value(found.records()[photos[0].name], "image/encoded") == original
    found.check_boxes(photos)


def test_shapes_of_labelme_are_converted() -> None:
    mask = np.array([[1, 0, 1], [1, 1, 0]], bool)
    packed = base64.b64encode(png_of(mask.astype(np.uint8) * 255)).decode()
    shapes = [
        shape("a", "polygon", (1, 2), (9, 2), (5, 8.5)),
        shape("b", "circle", (10, 10), (13, 14)),
        shape("c", "mask", (4, 2), (6, 3), mask=packed),
        shape("d", "oriented_rectangle", (5, 0), (10, 5), (5, 10), (0, 5)),
        shape("e", "linestrip", (1, 1), (2, 2)),
        shape("f", "point", (1, 1)),
        shape("g", "polygon", (1, 1), (3, 1), (3, 3), group_id=7),
        shape("g", "polygon", (6, 6), (8, 6), (8, 9), group_id=7),
        shape("g", "polygon", (1, 1), (3, 1), (3, 3)),
    ]
    found = parse_labelme({"shapes": shapes, "imageWidth": 20, "imageHeight": 16}).objects or ()
    assert [item.label for item in found] == [*"abcdefgg"]
    assert [item.box for item in found] == [
        (1, 2, 9, 8.5), (5, 5, 15, 15), (4, 2, 6, 3), (0, 0, 10, 10), None, None, (1, 1, 8, 9), (1, 1, 3, 3)
    ]  # fmt: skip
    assert found[6].segmentation == [[1, 1, 3, 1, 3, 3], [6, 6, 8, 6, 8, 9]]
    drawn = np.asarray(masks.draw_outline(found[2].segmentation or [], (20, 16)))
    assert drawn.sum() == 4 and (drawn[2:4, 4:7] == mask).all()
    assert abs(np.asarray(masks.draw_outline(found[1].segmentation or [], (20, 16))).sum() - np.pi * 25) < 4
    # COCO's own tools read the same run lengths.
    runs = coco.frPyObjects(dict(found[2].segmentation), 16, 20)  # type: ignore[call-overload]
    assert (coco.decode(runs) == drawn).all()


def test_messages_about_faults_of_labelme_name_the_file(tmp_path: Path) -> None:
    photos = put_labelme(tmp_path)
    (tmp_path / "eagle.json").write_text('{\n"shapes": [}')
    save(tmp_path / "again.json", document(photos[3]))
    save(tmp_path / "gone.json", document(photos[3]._replace(name="gone.jpg")))
    messages = listed(tmp_path).faults()
    assert len(messages) == 3
    assert messages["eagle.jpg"] == "eagle.json: line 2 is not JSON"
    for name, image in (("again.json", photos[3].name), ("gone.json", "gone.jpg")):
        assert messages[name] == f"its image {image} is missing or has another annotation file"


def test_shapes_are_drawn_for_the_upright_picture(tmp_path: Path) -> None:
    """LabelMe shows pictures upright, so its boxes refer to that even if width and height do not show it."""
    for orientation in (3, 6):
        exif = Image.Exif()
        exif[274] = orientation
        name = f"{orientation}.jpg"
        Image.new("RGB", (100, 100), "red").save(tmp_path / name, exif=exif)
        content = document(Photo(name, (100, 100), (("cat", 10, 20, 50, 60),)))
        save(tmp_path / f"{orientation}.json", content)
    records = listed(tmp_path).records()
    assert len(records) == 2
    for record in records.values():
        found = value(record, "image/object/bbox/xmin"), value(record, "image/object/bbox/ymin")
        np.testing.assert_allclose(found, (0.1, 0.2), atol=1e-6)


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
    found.check_boxes(photos, "images/")
    annotations = map(found.annotations_of, found.refs)
    assert all(one.relative and one.upright for one in annotations)
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
    assert "have choices, but no rectangles, polygons or ellipses" in refusal(path, "detection")
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
    (item,) = listed(path).annotations_of(f"images/{photos[0].name}").objects or ()
    assert item.label == "cat"
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
    tasks = [task(ROOT + photos[0].name, turned), task(ROOT + photos[1].name, brush)]
    found = listed(save(tmp_path / "out.json", tasks))
    first, second = (ref.message for ref in found.refs.values())
    assert "its image was rotated in Label Studio" in first
    assert "it only has brushlabels, which are not read" in second


def test_create_mls_older_names_of_fields_are_read(tmp_path: Path) -> None:
    photos = put_photos(tmp_path)
    entries = create_ml_of(photos, ("imagefilename", "annotation"))
    found = listed(save(tmp_path / "_annotations.createml.json", entries))
    assert found.input.source == "create_ml" and found.reasons() == {}
    found.check_boxes(photos)


def test_a_table_with_a_column_for_each_class(tmp_path: Path) -> None:
    photos = put_photos(tmp_path)
    path = put_class_columns(tmp_path, photos)
    found = listed(path, layout="classification", label_separator="|")
    assert found.ids == {"cat": 0, "a dog": 1, "Kuh": 2}
    labels = [found.refs[photo.name].labels for photo in photos]
    assert labels == [(), ("cat",), ("a dog",), ("cat", "a dog")]
    alone = listed(path, layout="classification")
    assert "it has several classes (cat, a dog)" in alone.refs[photos[3].name].message
