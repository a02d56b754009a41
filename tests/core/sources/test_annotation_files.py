"""Annotation files of images, and entries of large documents: what is read, and what faults say."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.annotation_sets.cityscapes import put_city
from helpers.annotation_sets.kitti import put_kitti
from helpers.annotation_sets.labelme import shape
from helpers.examples import examples as examples_of_hypothesis
from helpers.listing import listed, put_photos
from helpers.records import picture
from helpers.trees import put_files
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.core.sources.annotation_files import AnnotationFault, parse_item, stream_list, stream_object
from shardwright.core.sources.cityscapes import CLASSES, parse_polygons
from shardwright.core.sources.kitti import parse_kitti
from shardwright.core.sources.labelme import parse_labelme
from shardwright.core.sources.voc import parse_voc
from shardwright.core.sources.yolo import parse_labels


def _labelme(broken: Any) -> Any:
    return parse_labelme({"shapes": [broken], "imageWidth": 9, "imageHeight": 9})


def _cityscapes(document: Any) -> Any:
    return parse_polygons(json.dumps(document).encode())


def _car(*points: list[Any]) -> Any:
    return {"objects": [{"label": "car", "polygon": points}]}


def _yolo(data: bytes) -> Any:
    return parse_labels(data, {})


_NAMED = b"<annotation><object><name>&a;</name></object></annotation>"
FAULTS: list[tuple[Callable[[Any], Any], Any, str]] = [
    (parse_kitti, b"0 0.5 0.5 0.1 0.1", "line 1 has 5 columns instead of 15"),
    (_yolo, b"0 0.5 0.5 0.1\n", "4 numbers"),
    (_yolo, b"0 0.5 0.5 0.1 0.1 9\n", "6 numbers"),
    (_yolo, b"thing 0.5 0.5 0.1 0.1", "not a finite number"),
    (_yolo, b"0 0.5 0.5 nan 0.1", "not a finite number"),
    (_yolo, b"0.5 0.5 0.5 0.1 0.1", "not a class id"),
    (_yolo, b"0 0.5 0.5 0.1 0.1\n\n0 1 2 3 4 5 6 7", "line 3"),
    (_labelme, 3, "shape 0: it is not an object"),
    (_labelme, shape("a", "rectangle", (1, 2)), "shape 0: a rectangle with 1 point"),
    (_labelme, shape("a", "polygon", (1, 2), (3, 4)), "shape 0: a polygon with 2 points"),
    (_labelme, {"label": "a", "points": [[1, "2"]]}, "shape 0: its point [1, '2'] is not a pair of numbers"),
    (_labelme, shape("a", "mask", (1, 2), (3, 4), mask="AAAA"), "shape 0: its mask cannot be read"),
    (_cityscapes, {}, "no list of objects"),
    (_cityscapes, {"objects": [{"polygon": []}]}, "object 0 has no label"),
    (_cityscapes, _car([1, 2], [3, 4]), "object 0: a polygon with 2 points"),
    (_cityscapes, _car([1, 2], [3, "4"], [5, 6]), "object 0: its point"),
    (parse_voc, b'<!DOCTYPE x [<!ENTITY b "ha"><!ENTITY a "&b;&b;&b;&b;">]>' + _NAMED, "document type"),
    (parse_voc, b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + _NAMED, "document type"),
    (parse_voc, b"<annotation>", "broken in line 1"),
    (parse_voc, b"<annotation><object>&nbsp;</object></annotation>", "undefined entity"),
    (parse_voc, b"<html></html>", "<html>"),
    (parse_voc, b"<annotation>" * 100, "nested too deeply"),
    (parse_voc, b"<annotation><size><width>a</width></size></annotation>", "width is 'a'"),
    (parse_voc, b'<?xml version="1.0" encoding="klingon"?><annotation/>', "encoding"),
]


@pytest.mark.parametrize(("parse", "content", "why"), FAULTS)
def test_what_is_wrong_is_named(parse: Callable[[Any], Any], content: Any, why: str) -> None:
    with pytest.raises(AnnotationFault) as raised:
        parse(content)
    assert why in str(raised.value)


def test_images_and_objects_are_listed(tmp_path: Path) -> None:
    names = ("eagle", "apple", "house", "seagull", "coach")
    put_kitti(tmp_path / "training", names)
    put_photos(tmp_path / "testing" / "image_2", ("rose",))
    found = listed(tmp_path)
    assert "testing/image_2, split testing, left out" in found.input.detected_as
    assert found.reasons() == {"testing/image_2/rose.jpg": "not_listed"}
    for number, name in enumerate(names):
        objects = found.annotations_of(f"training/image_2/{name}.jpg").objects or ()
        flags = [(False, False), (True, True), (False, True), (True, None)]
        assert [(item.truncated, item.occluded) for item in objects] == flags[:number]


def test_lists_give_splits(tmp_path: Path) -> None:
    put_kitti(tmp_path / "training")
    put_files(tmp_path / "ImageSets", {"train.txt": "\ufeffeagle\napple\n", "val.txt": "house\n"})
    expected = {"eagle": "train", "apple": "train", "house": "val"}
    # The images of testing/ have the same names as others.
    put_photos(tmp_path / "testing" / "image_2", ("eagle", "house"))
    for test in ("", "eagle\nhouse\n"):
        (tmp_path / "ImageSets" / "test.txt").write_text(test)
        found = listed(tmp_path)
        assert {Path(k).stem: ref.split for k, ref in found.refs.items() if ref.is_candidate} == expected
        assert [*found.reasons().values()] == ["not_listed"] * 3
    (tmp_path / "ImageSets" / "test.txt").write_text("seagull\n")
    assert listed(tmp_path).refs["training/image_2/seagull.jpg"].split == "test"


def test_all_folders_are_listed_however_many(tmp_path: Path) -> None:
    names = {f"train-{number:02}" for number in range(30)}
    for name in names:
        put_kitti(tmp_path / name, ("eagle",))
    found = listed(tmp_path)
    assert found.refs.keys() == {f"{name}/image_2/eagle.jpg" for name in names} and not found.reasons()


SPLITS = {"train": ("eagle", "apple"), "val": ("house",)}


@pytest.fixture
def city(tmp_path: Path) -> Path:
    for split, names in SPLITS.items():
        put_city(tmp_path / "in", split, names)
    put_city(tmp_path / "in", "train_extra", ("seagull",), "gtCoarse")
    put_photos(tmp_path / "in" / "leftImg8bit" / "demoVideo" / "stuttgart", ("rose",))
    return tmp_path / "in"


def key_of(split: str, name: str) -> str:
    return f"leftImg8bit/{split}/aachen/aachen_{name}_000019_leftImg8bit.png"


def test_objects_are_listed(city: Path) -> None:
    found = listed(city)
    assert found.input.source == "cityscapes" and "polygons of things" in found.input.detected_as
    assert set(found.reasons().values()) == {"not_listed"} and len(found.reasons()) == 1
    candidates = {key: ref.split for key, ref in found.refs.items() if ref.is_candidate}
    assert candidates == {
        key_of("train", "eagle"): "train",
        key_of("train", "apple"): "train",
        key_of("val", "house"): "val",
        key_of("train_extra", "seagull"): "train_extra",
    }
    car, group = found.annotations_of(key_of("train", "eagle")).objects or ()
    assert (car.label, car.box, car.crowd) == ("car", (10, 20, 110, 70), False)
    assert (group.label, group.box, group.crowd) == ("person", (0, 5, 40, 60), True)
    assert car.segmentation == [[10, 20, 110, 20, 110, 70, 10, 70]]


def test_class_masks_are_listed(city: Path) -> None:
    found = listed(city, layout="segmentation")
    assert found.ids == {name: place for place, name in enumerate(CLASSES)} and len(found.reasons()) == 1
    records = found.records()
    assert len(records) == 4
    mask = picture(records[key_of("val", "house")], "image/segmentation/class/encoded")
    assert set(np.unique(mask[:50])) == {CLASSES.index("sky")} and mask[60, 5] == CLASSES.index("car")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples_of_hypothesis(150), deadline=None)
@given(
    st.dictionaries(st.text(), _VALUES, max_size=5), st.booleans(), st.sampled_from([None, 0, 2]), st.binary()
)
def test_streaming_agrees_with_the_standard_parser(
    document: dict[str, Any], ascii_only: bool, indent: int | None, behind: bytes
) -> None:
    behind = behind.lstrip(b"{[ \t\n\r")  # a second document is an error
    data = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    items = list(stream_object(io.BytesIO(data + b" " + behind)))
    rebuilt: dict[str, Any] = {}
    for item in items:
        assert repr(parse_item(data[item.begin : item.begin + item.length])) == repr(item.value)
        if isinstance(document[item.name], list):
            rebuilt.setdefault(item.name, []).append(item.value)
        else:
            rebuilt[item.name] = item.value
    expected = {name: value for name, value in parse_item(data).items() if value != []}
    assert repr(rebuilt) == repr(expected)
    for cut in {0, len(data) // 2, len(data) - 1}:
        with pytest.raises(AnnotationFault):
            list(stream_object(io.BytesIO(data[:cut])))


def test_values_may_cross_chunks() -> None:
    rows = [{"id": i, "text": "ä" * (i % 50), "n": i} for i in range(40_000)]
    text = '{"images": [' + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "]}"
    found = [item.value for item in stream_object(io.BytesIO(text.encode()))]
    assert found == rows
    assert [item.value for item in stream_list(io.BytesIO(b"[1, 2] \n"))] == [1, 2]


@pytest.mark.parametrize(
    ("data", "message", "byte"),
    [
        (b"", "the end instead of {", 0),
        (b'{"a": [1, 2', "the end instead of , or ]", 11),
        (b'{"a": tru', "it is not JSON or ends too early", 6),
        (b'{"a": [1, oops]}', "it is not JSON or ends too early", 10),
        (b'{"a" 1}', "'1' instead of :", 5),
        (b"{1: 2}", "an object has a name that is not a string", 2),
        (b'\xef\xbb\xbf{"a": [1}', "'}' instead of , or ]", 11),
        (b'{"a": ' + b"[" * 100_000, "its values are nested too deeply or too long", 7),
        (b'{"a": [1]}\n{"a": [2]}', "a second document begins", 11),
        (b"[1, 2][3]", "a second document begins", 6),
    ],
)
def test_messages_name_the_error_and_its_place(data: bytes, message: str, byte: int) -> None:
    stream = stream_list if data.startswith(b"[1, 2") else stream_object
    with pytest.raises(AnnotationFault) as raised:
        list(stream(io.BytesIO(data)))
    assert str(raised.value) == (f"its JSON is broken at byte {byte}: {message}; fetch it again or fix it")
