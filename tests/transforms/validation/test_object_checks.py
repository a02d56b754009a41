"""Findings in records with objects, masks and several classes."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shardwright.schemas.example import Feature, FeatureType, encode_example
from shardwright.schemas.layouts import FeatureRole, extended, layout_by_name
from shardwright.transforms.records.record_schema import RecordSchema, infer_schema
from shardwright.transforms.validation.record import RecordChecker

LABELS = ("cat", "dog", "owl")
SIZE = (12, 9)


def png(width: int = SIZE[0], height: int = SIZE[1], mode: str = "L") -> bytes:
    out = io.BytesIO()
    Image.new(mode, (width, height)).save(out, "PNG")
    return out.getvalue()


PICTURE: Mapping[str, Any] = {
    "image/encoded": [png(mode="RGB")],
    "image/filename": [b"a.png"],
    "image/source_id": [b"a.png"],
    "image/format": [b"png"],
    "image/height": [SIZE[1]],
    "image/width": [SIZE[0]],
    "image/channels": [3],
    "image/key/sha256": [b"0" * 64],
}
OBJECTS: Mapping[str, Any] = {
    "image/object/bbox/xmin": [0.0, 0.25],
    "image/object/bbox/ymin": [0.0, 0.5],
    "image/object/bbox/xmax": [1.0, 0.5],
    "image/object/bbox/ymax": [0.5, 1.0],
    "image/object/class/text": [b"cat", b"owl"],
    "image/object/class/label": [1, 3],
    "image/object/is_crowd": [0, 0],
    "image/object/area": [54.0, 13.5],
}


def record(layout: str, values: Mapping[str, Any], several_labels: bool = False) -> bytes:
    """Serializes the values of a layout's features; None leaves one out."""
    features = extended(layout_by_name(layout), (), several_labels).features
    return encode_example(
        {
            spec.name: Feature(spec.type, found)
            for spec in features
            if (found := {**PICTURE, **values}.get(spec.name)) is not None
        }
    )


def found_in(layout: str, values: Mapping[str, Any], **schema: Any) -> list[tuple[str, str]]:
    """Returns the findings in a record: codes and messages."""
    made = layout_by_name(layout)
    several = bool(schema.pop("several_labels", False))
    promised = RecordSchema(extended(made, (), several).features, LABELS, made.first_label, **schema)
    checked = RecordChecker(promised, decode=True).check(record(layout, values, several))
    return [(code.value, message) for code, message in checked.problems]


def test_sound_objects_are_sound() -> None:
    assert found_in("detection", OBJECTS) == []
    assert found_in("detection", {name: [] for name in OBJECTS}) == []
    flags = {"image/object/difficult": [0, 1], "image/object/mask": [png(), png()]}
    assert found_in("detection", {**OBJECTS, **flags}) == []


@pytest.mark.parametrize(
    ("name", "values", "code", "message"),
    [
        ("bbox/xmin", [-0.1, 0.25], "BOX_RANGE", "object 0: its box (-0.1, 0, 1, 0.5) is not between"),
        ("bbox/ymax", [0.5, 1.5], "BOX_RANGE", "object 1: its box (0.25, 0.5, 0.5, 1.5) is not between"),
        ("bbox/ymax", [math.nan, math.inf], "BOX_RANGE", "0 and 1 (and 1 more object)"),
        ("bbox/xmin", [0.0, 0.75], "BOX_ORDER", "object 1: its box (0.75, 0.5, 0.5, 1) is inverted"),
        ("bbox/ymin", [0.5, 0.5], "BOX_ORDER", "object 0: its box (0, 0.5, 1, 0.5) has no area"),
        ("class/label", [1, 4], "LABEL_RANGE", "label 4 is not between 1 and 3"),
        ("class/label", [0, 3], "LABEL_RANGE", "label 0 is not between 1 and 3"),
        ("class/text", [b"cat", b"dog"], "LABEL_TEXT", "label 3 is 'owl' but the record says 'dog'"),
        ("bbox/xmin", [0.0], "LENGTH_MISMATCH", "'image/object/bbox/xmin' 1, 'image/object/bbox/xmax' 2"),
        ("difficult", [0], "LENGTH_MISMATCH", "'image/object/difficult' 1"),
        ("mask", [png()], "LENGTH_MISMATCH", "'image/object/mask' 1"),
        ("mask", [png(), png(9, 12)], "MASK_MISMATCH", "the mask of object 1: it has 9 x 12 pixels"),
        ("mask", [png()[:40], png()], "UNDECODABLE", "the mask of object 0: begins like png"),
        ("mask", [b"", b""], "UNDECODABLE", "the mask of object 0: the file has no bytes"),
        ("bbox/xmin", None, "MISSING_FEATURE", "'image/object/bbox/xmin' is missing"),
    ],
)
def test_faults_of_objects_are_reported(name: str, values: Any, code: str, message: str) -> None:
    found = found_in("detection", {**OBJECTS, f"image/object/{name}": values})
    assert [found_code for found_code, _ in found] == [code]
    assert message in found[0][1]


POINTS: Mapping[str, Any] = {
    **OBJECTS,
    "image/object/keypoint/x": [0.5, 0.0, 1.0, 0.25],
    "image/object/keypoint/y": [0.5, 0.0, 0.0, 0.25],
    "image/object/keypoint/visibility": [2, 0, 1, 2],
    "image/object/keypoint/text": [b"eye", b"tail"] * 2,
    "image/object/keypoint/num": [1, 2],
}


def test_sound_key_points_are_sound() -> None:
    assert found_in("keypoints", POINTS) == []
    assert found_in("keypoints", {name: [] for name in POINTS}) == []
    none = {name: [] for name in POINTS if "keypoint" in name}
    assert found_in("keypoints", {**POINTS, **none, "image/object/keypoint/num": [0, 0]}) == []


@pytest.mark.parametrize(
    ("name", "values", "code", "message"),
    [
        ("x", [1.5, 0.0, 1.0, 0.25], "KEYPOINT_RANGE", "key point 0: its position (1.5, 0.5) is not between"),
        ("y", [0.5, 0.0, math.nan, -1], "KEYPOINT_RANGE", "(1, nan) is not between 0 and 1 (and 1 more"),
        ("visibility", [2, 0, 3, 2], "KEYPOINT_RANGE", "key point 2: its visibility 3 is not 0, 1 or 2"),
        ("visibility", [2, 0, 1], "LENGTH_MISMATCH", "'image/object/keypoint/visibility' 3"),
        ("num", [1, 1], "WRONG_VALUE", "object 1: it says 1 labelled key points, but has 2"),
        ("num", [1], "LENGTH_MISMATCH", "'image/object/keypoint/num' 1"),
        ("text", [b"eye", b"tail", b"tail", b"eye"], "WRONG_VALUE", "other names than those of object 0"),
        ("text", [b"\xff", b"tail"] * 2, "NOT_UTF8", "is not UTF-8"),
        ("x", None, "MISSING_FEATURE", "'image/object/keypoint/x' is missing"),
    ],
)
def test_faults_of_key_points_are_reported(name: str, values: Any, code: str, message: str) -> None:
    found = found_in("keypoints", {**POINTS, f"image/object/keypoint/{name}": values})
    assert [found_code for found_code, _ in found] == [code]
    assert message in found[0][1]


def test_each_object_has_equally_many_key_points() -> None:
    three = {name: values[:3] for name, values in POINTS.items() if "keypoint" in name}
    found = found_in("keypoints", {**POINTS, **three, "image/object/keypoint/num": [1, 1]})
    assert [code for code, _ in found] == ["LENGTH_MISMATCH"] and "3 key points and 2 objects" in found[0][1]


def test_a_32_bit_float_may_round_above_one() -> None:
    assert found_in("detection", {**OBJECTS, "image/object/bbox/xmax": [1 + 2**-23, 0.5]}) == []


MASK, FORMAT = "image/segmentation/class/encoded", "image/segmentation/class/format"


def test_masks_are_decoded_and_measured() -> None:
    assert found_in("segmentation", {MASK: [png()], FORMAT: [b"png"]}) == []
    wrong = found_in("segmentation", {MASK: [png(11)], FORMAT: [b"png"]})
    assert wrong == [("MASK_MISMATCH", "its semantic mask: it has 11 x 9 pixels but the record says 12 x 9")]
    torn = found_in("segmentation", {MASK: [b"no mask"], FORMAT: [b"png"]})
    assert [code for code, _ in torn] == ["UNDECODABLE"]
    masks = {"image/panoptic/category_mask": [png()], "image/panoptic/instance_mask": [png(12, 10)]}
    wrong = found_in("panoptic", masks)
    assert wrong[0][1].startswith("its mask of instances: it has 12 x 10 pixels")


def test_an_empty_mask_is_sound_only_if_images_without_masks_are_kept() -> None:
    values = {MASK: [b""], FORMAT: [b""]}
    assert [code for code, _ in found_in("segmentation", values)] == ["UNDECODABLE"]
    assert found_in("segmentation", values, unlabelled=True) == []


def test_every_class_of_an_image_with_several_is_checked() -> None:
    def check(ids: list[int], names: list[bytes], **schema: Any) -> list[str]:
        values = {"image/class/label": ids, "image/class/text": names}
        found = found_in("classification", values, several_labels=True, **schema)
        return [code for code, _ in found]

    assert check([0, 2], [b"cat", b"owl"]) == []
    assert check([], []) == []
    assert check([0, 3], [b"cat", b"owl"]) == ["LABEL_RANGE"]
    assert check([0, 1], [b"cat", b"owl"]) == ["LABEL_TEXT"]
    assert check([0, 1], [b"cat"]) == ["LENGTH_MISMATCH"]
    assert check([], [], unlabelled=True) == []


def test_an_image_without_a_class_is_sound_only_if_such_images_are_kept() -> None:
    values = {"image/class/label": [-1], "image/class/text": [b""]}
    assert [code for code, _ in found_in("classification", values)] == ["LABEL_RANGE"]
    assert found_in("classification", values, unlabelled=True) == []


def test_raw_pixels_need_no_number_of_channels() -> None:
    raw = {"image/encoded": [bytes(12 * 9 * 3)], "image/format": [b"raw"]}
    assert found_in("detection", {**OBJECTS, **raw}) == []
    odd = found_in("detection", {**OBJECTS, **raw, "image/encoded": [bytes(12 * 9 * 3 + 1)]})
    assert [code for code, _ in odd] == ["SIZE_MISMATCH"]


def test_objects_of_foreign_records_are_recognized_by_names() -> None:
    sound = record("detection", OBJECTS)
    single = record("detection", {name: values[:1] for name, values in OBJECTS.items()})
    without = record("detection", {})
    checker = RecordChecker(infer_schema([single, single, without]), decode=True)
    assert not any(checker.check(data).problems for data in (sound, single, without))
    bad = record("detection", {**OBJECTS, "image/object/bbox/xmax": [0.5, 0.1]})
    assert [code.value for code, _ in checker.check(bad).problems] == ["BOX_ORDER"]


def test_features_with_a_known_name_but_another_type_are_ignored() -> None:
    odd = {
        "image/object/class/label": Feature(FeatureType.BYTES, [b"1"]),
        "x": Feature(FeatureType.INT64, [1]),
    }
    schema = infer_schema([encode_example(odd)])
    assert schema.spec(FeatureRole.OBJECT_LABEL) is None
    assert not RecordChecker(schema, decode=True).check(encode_example(odd)).problems


def test_tensorflow_reads_the_masks_that_pass() -> None:
    tf = pytest.importorskip("tensorflow")
    assert tf.io.decode_png(png()).shape == (*SIZE[::-1], 1)
    out = io.BytesIO()
    Image.fromarray(np.full(SIZE[::-1], 65535, np.uint16)).save(out, "PNG")
    assert found_in("segmentation", {MASK: [out.getvalue()], FORMAT: [b"png"]}) == []
    assert (tf.io.decode_png(out.getvalue(), dtype=tf.uint16).numpy() == 65535).all()


@pytest.mark.parametrize(
    ("layout", "name", "value", "message"),
    [
        ("segmentation", MASK, 3, "its semantic mask: it holds 3, but classes are 0 to 2"),
        ("segmentation", MASK, 255, ""),
        (
            "panoptic",
            "image/panoptic/category_mask",
            4,
            "its mask of categories: it holds 4, but classes are",
        ),
        ("panoptic", "image/panoptic/category_mask", 0, ""),
        ("panoptic", "image/panoptic/instance_mask", 77, ""),
    ],
)
def test_ids_without_a_class_are_reported(layout: str, name: str, value: int, message: str) -> None:
    out = io.BytesIO()
    Image.new("L", SIZE, value).save(out, "PNG")
    sound = {MASK: [png()], "image/panoptic/category_mask": [png()], "image/panoptic/instance_mask": [png()]}
    found = found_in(layout, {**sound, FORMAT: [b"png"], name: [out.getvalue()]})
    assert [code for code, _ in found] == ["MASK_MISMATCH"] * bool(message)
    assert all(actual.startswith(message) for _, actual in found)


def test_the_stated_format_of_a_mask_is_compared_with_its_bytes() -> None:
    wrong = found_in("segmentation", {MASK: [png()], FORMAT: [b"jpeg"]})
    assert wrong == [("FORMAT_MISMATCH", "its semantic mask is png but the record says 'jpeg'")]
