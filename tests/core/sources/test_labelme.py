"""LabelMe: shapes, where images are found, embedded images, EXIF, faults."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
from helpers.annotation_sets.labelme import document, put_labelme, save, shape
from helpers.listing import Photo, listed, put_photos
from helpers.records import value
from helpers.tfrecords import png_of
from PIL import Image
from pycocotools import mask as coco

from shardwright.core.images import masks
from shardwright.core.sources.labelme import parse_labelme


def test_json_files_beside_images_are_read(tmp_path: Path) -> None:
    photos = put_labelme(tmp_path)
    save(tmp_path / "settings.json", {"a": 1})
    found = listed(tmp_path)
    assert found.input.source == "labelme" and found.input.detected_as == f"LabelMe (images in {tmp_path})"
    assert found.reasons() == {"settings.json": "not_an_image"}
    assert all(found.annotations_of(photo.name).upright for photo in photos)


def test_images_are_found_in_the_usual_places(tmp_path: Path) -> None:
    """A path as `labelme --output` writes it, one from Windows, a unique name, and a renamed file."""
    photos = put_photos(tmp_path / "images")
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
    for photo in photos:
        found.check_boxes(photo.name, photo)


def test_shapes_are_converted() -> None:
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


def test_messages_about_faults_name_the_file(tmp_path: Path) -> None:
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
