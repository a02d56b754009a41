"""Annotation files of single images that are wrong: the fault says what, and where."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from helpers.annotation_sets.labelme import shape

from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.cityscapes import parse_polygons
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


def _voc(text: str) -> Any:
    return parse_voc(text.encode())


def _yolo(data: bytes) -> Any:
    return parse_labels(data, {})


_NAMED = "<annotation><object><name>&a;</name></object></annotation>"
FAULTS: list[tuple[Callable[[Any], Any], Any, str]] = [
    (parse_kitti, b"0 0.5 0.5 0.1 0.1", "line 1 has 5 columns instead of 15"),
    (_yolo, b"0 0.5 0.5 0.1\n", "4 numbers"),
    (_yolo, b"0 0.5 0.5 0.1 0.1 9\n", "6 numbers"),
    (_yolo, b"0 0.5 0.5 0.1 x", "not a finite number"),
    (_yolo, b"thing 0.5 0.5 0.1 0.1", "not a finite number"),
    (_yolo, b"0 0.5 0.5 nan 0.1", "not a finite number"),
    (_yolo, b"0 0.5 0.5 1e999 0.1", "not a finite number"),
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
    (_voc, f'<!DOCTYPE x [<!ENTITY b "ha"><!ENTITY a "&b;&b;&b;&b;">]>{_NAMED}', "document type"),
    (_voc, f'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>{_NAMED}', "document type"),
    (_voc, "", "broken in line 1"),
    (_voc, "<annotation>", "broken in line 1"),
    (_voc, "<annotation><object>&nbsp;</object></annotation>", "undefined entity"),
    (_voc, "<html></html>", "<html>"),
    (_voc, "<annotation>" * 100, "nested too deeply"),
    (_voc, "<annotation><size><width>a</width></size></annotation>", "width is 'a'"),
    (_voc, "<annotation><size><height>inf</height></size></annotation>", "height is 'inf'"),
    (_voc, '<?xml version="1.0" encoding="klingon"?><annotation/>', "encoding"),
]


@pytest.mark.parametrize(("parse", "content", "why"), FAULTS)
def test_what_is_wrong_is_named(parse: Callable[[Any], Any], content: Any, why: str) -> None:
    with pytest.raises(AnnotationFault) as raised:
        parse(content)
    assert why in str(raised.value)
