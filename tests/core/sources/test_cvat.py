"""CVAT for images 1.1: shapes, tags, subsets, where images are found, faults."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from helpers.annotation_sets.cvat import META, box_of, image_of, put_cvat, put_set
from helpers.listing import Photo, listed, put_photos

from shardwright.core.images import masks
from shardwright.core.sources.annotation_files import read_xml
from shardwright.core.sources.cvat import objects_of
from shardwright.schemas.errors import UsageError


def test_subsets_of_a_project_give_splits(tmp_path: Path) -> None:
    images = []
    for subset, names in (("Train", ("eagle", "apple")), ("default", ("house",))):
        for number, photo in enumerate(put_photos(tmp_path / "images" / subset, names)):
            images.append(image_of(photo, number, f'subset="{subset}" task_id="1"'))
    found = listed(put_cvat(tmp_path, images))
    assert not found.reasons()
    assert {Path(key).parent.name: ref.split for key, ref in found.refs.items()} == {
        "Train": "train",
        "default": "",
    }


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
    with pytest.raises(UsageError, match=r"have no tags.*choose --layout detection"):
        listed(tmp_path / "boxes", layout="classification")


def test_shapes_are_converted(tmp_path: Path) -> None:
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


def test_messages_about_faults_name_file_and_line(tmp_path: Path) -> None:
    photos = put_photos(tmp_path / "images")
    shapes = (
        box_of("a", 1, 2, 3, 4).replace("3.00", "three"),
        '<mask label="a" rle="1, 2" left="0" top="0" width="2" height="2"></mask>',
        '<polygon label="a" points="1,2;3,4"></polygon>',
        "",
    )
    images = [image_of(photo, 0, shapes=shape) for photo, shape in zip(photos, shapes, strict=True)]
    images += [image_of(Photo("gone.jpg", (5, 5), ()), 9), image_of(Photo("../up.jpg", (5, 5), ()), 9)]
    found = listed(put_cvat(tmp_path, images))
    messages = {Path(key).name: message for key, message in found.faults().items()}
    assert len(messages) == 5
    first = messages[photos[0].name]
    assert first == "line 5 of annotations.xml: the box in line 6: xbr is 'three', which is not a number"
    assert (
        "the mask in line" in messages[photos[1].name]
        and "3 pixels instead of 2 x 2" in messages[photos[1].name]
    )
    assert (
        "a polygon with 2 points" in messages[photos[2].name]
        and messages["gone.jpg"] == "its image is missing"
    )
    (up,) = (message for key, message in messages.items() if key.startswith("annotations.xml:line "))
    assert "'../up.jpg'" in up


def test_an_image_that_is_listed_twice_is_quarantined(tmp_path: Path) -> None:
    photos = put_photos(tmp_path / "images")
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
    with pytest.raises(UsageError, match="CVAT for video"):
        listed(tmp_path)


def test_only_utf8_is_read(tmp_path: Path) -> None:
    put_set(tmp_path)
    path = tmp_path / "annotations.xml"
    text = path.read_text().replace("thing", "Gerät")
    path.write_text(text, encoding="utf-8-sig")
    assert not listed(tmp_path).faults()
    path.write_text(text.replace("utf-8", "ISO-8859-1"), encoding="latin-1")
    with pytest.raises(UsageError, match=r"its XML is broken in line [0-9]+: not well-formed"):
        listed(tmp_path)
