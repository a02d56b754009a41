"""Findings in records with objects, masks, several classes, and samples of 16 bits or floats."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from typing import Any
from unittest import mock

import numpy as np
import pytest
from helpers.deep_datasets import encoded
from helpers.examples import examples
from helpers.pictures import file_of
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from shardwright.core.preview import record_thumbnail
from shardwright.core.records.record_schema import RecordSchema, infer_schema
from shardwright.core.validation.against_record import ALIKE, look_alike
from shardwright.core.validation.record import CheckedRecord, RecordChecker
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.example import Feature, FeatureType, encode_example
from shardwright.schemas.layouts import CLASSIFICATION, FeatureRole, FeatureSpec, extended, layout_by_name

LABELS = ("cat", "dog", "owl")
SIZE = (12, 9)


def mask_png(width: int = SIZE[0], height: int = SIZE[1], mode: str = "L", value: int = 0) -> bytes:
    return file_of(Image.new(mode, (width, height), value), "PNG")


PICTURE: Mapping[str, Any] = {
    "image/encoded": [mask_png(mode="RGB")],
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


def serialized(features: Iterable[FeatureSpec], values: Mapping[str, Any]) -> bytes:
    """Serializes the values of features; None leaves one out."""
    found = {spec.name: Feature(spec.type, values.get(spec.name)) for spec in features}
    return encode_example({name: one for name, one in found.items() if one.values is not None})


def record_of_objects(layout: str, values: Mapping[str, Any], several_labels: bool = False) -> bytes:
    """Serializes the values of a layout's features, with a picture."""
    return serialized(extended(layout_by_name(layout), (), several_labels).features, {**PICTURE, **values})


def found_in(layout: str, values: Mapping[str, Any], **schema: Any) -> list[tuple[str, str]]:
    """Returns the findings in a record: codes and messages."""
    made = layout_by_name(layout)
    several = bool(schema.pop("several_labels", False))
    promised = RecordSchema(extended(made, (), several).features, LABELS, made.first_label, **schema)
    checked = RecordChecker(promised, decode=True).check(record_of_objects(layout, values, several))
    return [(code.value, message) for code, message in checked.problems]


POINTS: Mapping[str, Any] = {
    **OBJECTS,
    "image/object/keypoint/x": [0.5, 0.0, 1.0, 0.25],
    "image/object/keypoint/y": [0.5, 0.0, 0.0, 0.25],
    "image/object/keypoint/visibility": [2, 0, 1, 2],
    "image/object/keypoint/text": [b"eye", b"tail"] * 2,
    "image/object/keypoint/num": [1, 2],
}
MASK, FORMAT = "image/segmentation/class/encoded", "image/segmentation/class/format"
_NO_POINTS = {**{name: [] for name in POINTS if "keypoint" in name}, "image/object/keypoint/num": [0, 0]}
_THREE_POINTS = {name: values[:3] for name, values in POINTS.items() if "keypoint" in name}
CATEGORIES, INSTANCES = "image/panoptic/category_mask", "image/panoptic/instance_mask"
_PANOPTIC = {CATEGORIES: [mask_png()], INSTANCES: [mask_png(12, 10)]}
_SEVERAL = {"several_labels": True}


def _classes(ids: list[int], *names: bytes) -> dict[str, Any]:
    return {"image/class/label": ids, "image/class/text": list(names)}


_RAW = {**OBJECTS, "image/encoded": [bytes(12 * 9 * 3)], "image/format": [b"raw"]}


@pytest.mark.parametrize(
    ("layout", "values", "schema", "code", "message"),
    [
        ("detection", OBJECTS, {}, "", ""),
        ("detection", {name: [] for name in OBJECTS}, {}, "", ""),
        ("detection", {**OBJECTS, "image/object/difficult": [0, 1], "image/object/mask": [mask_png()] * 2},
         {}, "", ""),
        # A float of 32 bits may round above one.
        ("detection", {**OBJECTS, "image/object/bbox/xmax": [1 + 2**-23, 0.5]}, {}, "", ""),
        ("detection", _RAW, {}, "", ""),
        ("detection", {**_RAW, "image/encoded": [bytes(12 * 9 * 3 + 1)]}, {}, "SIZE_MISMATCH", ""),
        ("keypoints", POINTS, {}, "", ""),
        ("keypoints", {name: [] for name in POINTS}, {}, "", ""),
        ("keypoints", {**POINTS, **_NO_POINTS}, {}, "", ""),
        ("keypoints", {**POINTS, **_THREE_POINTS, "image/object/keypoint/num": [1, 1]},
         {}, "LENGTH_MISMATCH", "it has 3 key points and 2 objects"),
        ("segmentation", {MASK: [mask_png()], FORMAT: [b"png"]}, {}, "", ""),
        ("segmentation", {MASK: [mask_png(11)], FORMAT: [b"png"]},
         {}, "MASK_MISMATCH", "its semantic mask: it has 11 x 9 pixels but the record says 12 x 9"),
        ("segmentation", {MASK: [b"no mask"], FORMAT: [b"png"]}, {}, "UNDECODABLE", ""),
        ("segmentation", {MASK: [mask_png()], FORMAT: [b"jpeg"]},
         {}, "FORMAT_MISMATCH", "its semantic mask is png but the record says 'jpeg'"),
        ("panoptic", _PANOPTIC, {}, "MASK_MISMATCH", "its mask of instances: it has 12 x 10 pixels"),
        # An empty mask, and an image without a class, are sound only if such images are kept.
        ("segmentation", {MASK: [b""], FORMAT: [b""]}, {}, "UNDECODABLE", ""),
        ("segmentation", {MASK: [b""], FORMAT: [b""]}, {"unlabelled": True}, "", ""),
        ("classification", _classes([-1], b""), {}, "LABEL_RANGE", ""),
        ("classification", _classes([-1], b""), {"unlabelled": True}, "", ""),
        ("classification", _classes([0, 2], b"cat", b"owl"), _SEVERAL, "", ""),
        ("classification", _classes([]), _SEVERAL, "", ""),
        ("classification", _classes([]), {**_SEVERAL, "unlabelled": True}, "", ""),
        ("classification", _classes([0, 3], b"cat", b"owl"), _SEVERAL, "LABEL_RANGE", ""),
        ("classification", _classes([0, 1], b"cat", b"owl"), _SEVERAL, "LABEL_TEXT", ""),
        ("classification", _classes([0, 1], b"cat"), _SEVERAL, "LENGTH_MISMATCH", ""),
        # Ids without a class.
        ("segmentation", {MASK: [mask_png(value=3)], FORMAT: [b"png"]},
         {}, "MASK_MISMATCH", "its semantic mask: it holds 3, but classes are 0 to 2"),
        ("segmentation", {MASK: [mask_png(value=255)], FORMAT: [b"png"]}, {}, "", ""),
        ("panoptic", {CATEGORIES: [mask_png(value=4)], INSTANCES: [mask_png()]},
         {}, "MASK_MISMATCH", "its mask of categories: it holds 4, but classes are"),
        ("panoptic", {CATEGORIES: [mask_png()], INSTANCES: [mask_png(value=77)]}, {}, "", ""),
    ],
)  # fmt: skip
def test_records_of_each_layout_are_checked(
    layout: str, values: Mapping[str, Any], schema: Mapping[str, Any], code: str, message: str
) -> None:
    problems = found_in(layout, values, **schema)
    assert [one for one, _ in problems] == [code] * bool(code)
    assert all(text.startswith(message) for _, text in problems)


POINT_FAULTS: list[tuple[str, Any, str, str]] = [
    ("x", [1.5, 0.0, 1.0, 0.25], "KEYPOINT_RANGE", "key point 0: its position (1.5, 0.5) is not between"),
    ("y", [0.5, 0.0, math.nan, -1], "KEYPOINT_RANGE", "(1, nan) is not between 0 and 1 (and 1 more"),
    ("visibility", [2, 0, 3, 2], "KEYPOINT_RANGE", "key point 2: its visibility 3 is not 0, 1 or 2"),
    ("visibility", [2, 0, 1], "LENGTH_MISMATCH", "'image/object/keypoint/visibility' 3"),
    ("num", [1, 1], "WRONG_VALUE", "object 1: it says 1 labelled key points, but has 2"),
    ("num", [1], "LENGTH_MISMATCH", "'image/object/keypoint/num' 1"),
    ("text", [b"eye", b"tail", b"tail", b"eye"], "WRONG_VALUE", "other names than those of object 0"),
    ("text", [b"\xff", b"tail"] * 2, "NOT_UTF8", "is not UTF-8"),
]


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
        ("mask", [mask_png()], "LENGTH_MISMATCH", "'image/object/mask' 1"),
        (
            "mask",
            [mask_png(), mask_png(9, 12)],
            "MASK_MISMATCH",
            "the mask of object 1: it has 9 x 12 pixels",
        ),
        ("mask", [mask_png()[:40], mask_png()], "UNDECODABLE", "the mask of object 0: begins like png"),
        ("mask", [b"", b""], "UNDECODABLE", "the mask of object 0: the file has no bytes"),
        ("bbox/xmin", None, "MISSING_FEATURE", "'image/object/bbox/xmin' is missing"),
        *((f"keypoint/{name}", *row) for name, *row in POINT_FAULTS),
    ],
)
def test_faults_of_objects_are_reported(name: str, values: Any, code: str, message: str) -> None:
    layout, sound = ("keypoints", POINTS) if name.startswith("keypoint/") else ("detection", OBJECTS)
    found = found_in(layout, {**sound, f"image/object/{name}": values})
    assert [found_code for found_code, _ in found] == [code]
    assert message in found[0][1]


def test_objects_of_foreign_records_are_recognized_by_names() -> None:
    sound = record_of_objects("detection", OBJECTS)
    single = record_of_objects("detection", {name: values[:1] for name, values in OBJECTS.items()})
    without = record_of_objects("detection", {})
    checker = RecordChecker(infer_schema([single, single, without]), decode=True)
    assert not any(checker.check(data).problems for data in (sound, single, without))
    bad = record_of_objects("detection", {**OBJECTS, "image/object/bbox/xmax": [0.5, 0.1]})
    assert [code.value for code, _ in checker.check(bad).problems] == ["BOX_ORDER"]


def test_features_with_a_known_name_but_another_type_or_no_value_are_ignored() -> None:
    odd = {
        "image/object/class/label": Feature(FeatureType.BYTES, [b"1"]),
        "image/key/sha256": Feature(FeatureType.BYTES, [b""]),  # others do not compute it
        "image/encoded": Feature(FeatureType.BYTES, PICTURE["image/encoded"]),
    }
    schema = infer_schema([encode_example(odd)])
    assert schema.spec(FeatureRole.OBJECT_LABEL) is None
    checked = RecordChecker(schema, decode=True).check(encode_example(odd))
    assert not checked.problems and len(checked.source or "") == 64


def test_memory_is_reserved_while_a_mask_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = mock.Mock(return_value=contextlib.nullcontext())
    monkeypatch.setattr("shardwright.core.validation.objects.reserve_working_bytes", reserve)
    assert found_in("segmentation", {MASK: [mask_png()], FORMAT: [b"png"]}) == []
    assert reserve.call_args.args[0] >= SIZE[0] * SIZE[1]


def test_tensorflow_reads_the_masks_that_pass() -> None:
    tf = pytest.importorskip("tensorflow")
    assert tf.io.decode_png(mask_png()).shape == (*SIZE[::-1], 1)
    deep = file_of(Image.fromarray(np.full(SIZE[::-1], 65535, np.uint16)), "PNG")
    assert found_in("segmentation", {MASK: [deep], FORMAT: [b"png"]}) == []
    assert (tf.io.decode_png(deep, dtype=tf.uint16).numpy() == 65535).all()


DTYPE = FeatureSpec("image/dtype", FeatureType.BYTES, (), FeatureRole.DTYPE)
SCHEMA = RecordSchema((*CLASSIFICATION.features, DTYPE), ("cat",))
Array = np.ndarray[Any, Any]


def noise(dtype: str, channels: int, height: int = 6, width: int = 5) -> Array:
    rng = np.random.default_rng(channels)
    if dtype == "float32":
        return rng.normal(size=(height, width, channels)).astype(np.float32)
    return rng.integers(0, np.iinfo(dtype).max, (height, width, channels), dtype, endpoint=True)


def record(pixels: Array, stored: str, changed: Mapping[str, Any] | None = None) -> bytes:
    """Returns a record with the given samples, with some values changed; None leaves one out."""
    height, width, channels = pixels.shape
    values: dict[str, Any] = {
        "image/encoded": encoded(pixels, stored),
        "image/filename": b"a.png",
        "image/format": stored.encode(),
        "image/height": height,
        "image/width": width,
        "image/channels": channels,
        "image/dtype": pixels.dtype.name.encode(),
        "image/key/sha256": b"0" * 64,
        "image/class/label": 0,
        "image/class/text": b"cat",
        **(changed or {}),
    }
    listed = {name: [value] for name, value in values.items() if value is not None}
    return serialized(SCHEMA.features, listed)


def check(data: bytes, look: bool = False, schema: RecordSchema = SCHEMA) -> CheckedRecord:
    return RecordChecker(schema, decode=True, look=look).check(data)


def problems(data: bytes, look: bool = False, schema: RecordSchema = SCHEMA) -> list[tuple[str, str]]:
    return [(code.value, message) for code, message in check(data, look, schema).problems]


KINDS = [
    ("uint8", 1, "png"), ("uint8", 3, "png"), ("uint16", 1, "png"), ("uint16", 3, "png"),
    ("uint8", 3, "raw"), ("uint16", 1, "raw"), ("uint16", 3, "raw"), ("float32", 1, "raw"),
    ("float32", 3, "raw"), ("uint8", 2, "raw"), ("uint16", 4, "raw"), ("uint16", 13, "raw"),
    ("float32", 16, "raw"), ("uint8", 7, "raw"),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "channels", "stored"), KINDS)
@pytest.mark.parametrize("look", [False, True])
def test_sound_records_are_sound_and_measured(dtype: str, channels: int, stored: str, look: bool) -> None:
    pixels = noise(dtype, channels)
    data = record(pixels, stored)
    for schema in (SCHEMA, infer_schema([data])):
        assert problems(data, look, schema) == []
    checked = check(data, look)
    assert checked.dtype == dtype
    if look:
        assert checked.picture is not None and checked.picture.quality is not None
        assert (checked.picture.width, checked.picture.height) == (5, 6)
        assert checked.picture.format == stored
        samples = checked.picture.quality.samples
        assert samples is not None and samples.dtype == dtype
        assert [one.low for one in samples.channels] == pixels.min((0, 1)).tolist()
        assert [one.high for one in samples.channels] == pixels.max((0, 1)).tolist()


RAW = noise("uint16", 3)


@pytest.mark.parametrize(
    ("pixels", "stored", "changed", "code", "message"),
    [
        (RAW, "raw", {"image/dtype": b"int16"}, "WRONG_VALUE", "'int16', not one of uint8, uint16, float32"),
        (RAW, "png", {"image/dtype": b"\xff"}, "NOT_UTF8", "'image/dtype'"),
        (RAW, "png", {"image/dtype": None}, "MISSING_FEATURE", "'image/dtype' is missing"),
        (RAW, "raw", {"image/dtype": b"uint8"}, "SIZE_MISMATCH", "180 raw bytes are not 6 x 5 x 3 of uint8"),
        (RAW, "raw", {"image/encoded": RAW.tobytes()[:-1]}, "SIZE_MISMATCH", "179 raw bytes are not"),
        (RAW, "raw", {"image/channels": 4}, "SIZE_MISMATCH", "180 raw bytes are not 6 x 5 x 4 of uint16"),
        (RAW, "png", {"image/dtype": b"uint8"}, "FORMAT_MISMATCH", "are uint16, but the record says uint8"),
        (RAW, "png", {"image/channels": 1}, "SIZE_MISMATCH", "channels is 3 but the record says 1"),
        (noise("uint8", 3), "png", {"image/dtype": b"uint16"}, "FORMAT_MISMATCH", "are uint8, but"),
        (RAW, "png", {"image/format": b"raw"}, "SIZE_MISMATCH", "raw bytes are not 6 x 5 x 3 of uint16"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("look", [False, True])
def test_faults_are_reported(
    pixels: Array, stored: str, changed: Mapping[str, Any], code: str, message: str, look: bool
) -> None:
    found = problems(record(pixels, stored, changed), look)
    assert [found_code for found_code, _ in found] == [code]
    assert message in found[0][1]


_SIDE = st.integers(-3, 6) | st.sampled_from([2**40, -(2**62)])


@settings(max_examples=examples(150), deadline=None)
@given(
    st.tuples(_SIDE, _SIDE, _SIDE),
    st.binary(max_size=40) | st.just(RAW.tobytes()),
    st.sampled_from([b"uint8", b"uint16", b"float32", b"int8", None]),
    st.sampled_from([b"raw", b"png"]),
    st.booleans(),
)
def test_any_statements_and_bytes_give_findings(
    sides: tuple[int, int, int], encoded: bytes, dtype: bytes | None, stored: bytes, look: bool
) -> None:
    height, width, channels = sides
    shape = {"image/height": height, "image/width": width, "image/channels": channels}
    data = record(
        RAW, "raw", {**shape, "image/encoded": encoded, "image/dtype": dtype, "image/format": stored}
    )
    itemsize = {b"uint8": 1, b"uint16": 2, b"float32": 4}.get(dtype or b"", 0)
    sound = stored == b"raw" and min(sides) > 0 and height * width * channels * itemsize == len(encoded)
    assert bool(problems(data, look)) != (sound and itemsize > 0)
    with contextlib.suppress(ImageFault):
        record_thumbnail(data, SCHEMA)


def test_a_jpeg_has_samples_of_8_bits() -> None:
    jpeg = {"image/encoded": file_of(Image.new("RGB", (5, 6)), "JPEG"), "image/format": b"jpg"}
    assert problems(record(noise("uint8", 3), "raw", jpeg)) == []
    ((code, _),) = problems(record(noise("uint16", 3), "raw", jpeg))
    assert code == "FORMAT_MISMATCH"


@pytest.mark.parametrize("stored", ["png", "raw"])
def test_pictures_are_equal_only_if_all_bits_are(stored: str) -> None:
    pixels = noise("uint16", 3)
    other = pixels ^ np.uint16(1)  # looks the same in 8 bits

    def digest(samples: Array, kind: str = stored) -> bytes:
        picture = check(record(samples, kind), look=True).picture
        assert picture is not None and picture.quality is not None
        return picture.quality.digest

    assert digest(pixels) == digest(pixels.copy()) == digest(pixels, "raw")
    assert digest(pixels) != digest(other)


def test_transparency_is_not_measured() -> None:
    pixels = noise("uint16", 3)
    clear = np.concatenate([pixels, np.full((6, 5, 1), 7, np.uint16)], axis=2)
    checked = check(record(clear, "png"), look=True)
    assert checked.picture is not None and checked.picture.quality is not None
    assert checked.picture.quality.samples is not None
    assert [one.total for one in checked.picture.quality.samples.channels] == pixels.sum((0, 1)).tolist()


@pytest.mark.parametrize(("dtype", "channels", "stored"), KINDS)
def test_thumbnails_show_every_kind(dtype: str, channels: int, stored: str) -> None:
    image = record_thumbnail(record(noise(dtype, channels), stored), SCHEMA)
    assert image is not None and image.mode == "RGB"
    assert np.asarray(image).std() > 30  # noise, not one color


RNG = np.random.default_rng(0)
DEEP = RNG.integers(20_000, 40_000, (20, 24, 3), np.uint16)
FLOATS = RNG.normal(size=(20, 24, 1)).astype(np.float32)
FLOATS[3, 4] = np.nan
FLOATS[5, 6] = -np.inf


@pytest.mark.parametrize("stored", ["png", "raw"])
def test_samples_of_16_bits_are_compared_in_8_bit_units(stored: str) -> None:
    one = encoded(DEEP, stored)
    assert look_alike(one, encoded(DEEP + np.uint16(int(ALIKE * 257) - 2), stored), "uint16")
    assert not look_alike(one, encoded(DEEP + np.uint16(int(ALIKE * 257) + 2), stored), "uint16")
    assert not look_alike(one, encoded(DEEP[:-1], stored), "uint16")


def test_a_changed_square_is_found() -> None:
    other = DEEP.copy()
    other[8:16, 8:16] += np.uint16(25 * 257)
    assert not look_alike(encoded(DEEP, "png"), encoded(other, "png"), "uint16")


def test_floats_are_compared_by_the_range_of_the_image() -> None:
    one, span = encoded(FLOATS, "raw"), np.ptp(FLOATS[np.isfinite(FLOATS)])
    assert look_alike(one, encoded(FLOATS + np.float32(0.99 * ALIKE / 255 * span), "raw"), "float32")
    assert not look_alike(one, encoded(FLOATS + np.float32(1.01 * ALIKE / 255 * span), "raw"), "float32")
    nothing = encoded(np.full((2, 2, 1), np.nan, np.float32), "raw")
    assert look_alike(nothing, nothing, "float32")
    for place, value in (((0, 0), np.nan), ((3, 4), 1.0), ((5, 6), np.inf)):
        other = FLOATS.copy()
        other[place] = value
        assert not look_alike(one, encoded(other, "raw"), "float32")
    assert not look_alike(one, one[:-1], "float32")
