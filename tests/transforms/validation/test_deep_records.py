"""Findings in records that state the type of their samples, measures of those, and what is alike."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping
from typing import Any

import imagecodecs
import numpy as np
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from shardwright.schemas.errors import ImageFault
from shardwright.schemas.example import Feature, FeatureType, encode_example
from shardwright.schemas.layouts import CLASSIFICATION, FeatureRole, FeatureSpec
from shardwright.transforms.preview.picture import record_thumbnail
from shardwright.transforms.records.record_schema import RecordSchema, infer_schema
from shardwright.transforms.validation.against.record import ALIKE, _alike
from shardwright.transforms.validation.record import CheckedRecord, RecordChecker

DTYPE = FeatureSpec("image/dtype", FeatureType.BYTES, (), FeatureRole.DTYPE)
SCHEMA = RecordSchema((*CLASSIFICATION.features, DTYPE), ("cat",))
Array = np.ndarray[Any, Any]


def noise(dtype: str, channels: int, height: int = 6, width: int = 5) -> Array:
    rng = np.random.default_rng(channels)
    if dtype == "float32":
        return rng.normal(size=(height, width, channels)).astype(np.float32)
    return rng.integers(0, np.iinfo(dtype).max, (height, width, channels), dtype, endpoint=True)


def png(pixels: Array) -> bytes:
    return bytes(imagecodecs.png_encode(pixels if pixels.shape[2] > 1 else pixels[:, :, 0]))


def raw(pixels: Array) -> bytes:
    return pixels.astype(pixels.dtype.newbyteorder("<")).tobytes()


def record(pixels: Array, stored: str, changed: Mapping[str, Any] | None = None) -> bytes:
    """Returns a record with the given samples, with some values changed; None leaves one out."""
    encoded = png(pixels) if stored == "png" else raw(pixels)
    height, width, channels = pixels.shape
    values: dict[str, Any] = {
        "image/encoded": encoded,
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
    return encode_example(
        {
            spec.name: Feature(spec.type, [values[spec.name]])
            for spec in SCHEMA.features
            if values[spec.name] is not None
        }
    )


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
        assert (checked.picture.channels, checked.picture.format) == (channels, stored)
        samples = checked.picture.quality.samples
        assert samples is not None and samples.dtype == dtype
        assert [one.low for one in samples.channels] == pixels.min((0, 1)).tolist()
        assert [one.high for one in samples.channels] == pixels.max((0, 1)).tolist()


RAW = noise("uint16", 3)


@pytest.mark.parametrize(
    ("pixels", "stored", "changed", "code", "message"),
    [
        (RAW, "raw", {"image/dtype": b"int16"}, "WRONG_VALUE", "'int16', not one of uint8, uint16, float32"),
        (RAW, "png", {"image/dtype": b"UINT16"}, "WRONG_VALUE", "'UINT16', not one of"),
        (RAW, "png", {"image/dtype": b"\xff"}, "NOT_UTF8", "'image/dtype'"),
        (RAW, "png", {"image/dtype": None}, "MISSING_FEATURE", "'image/dtype' is missing"),
        (RAW, "raw", {"image/dtype": b"uint8"}, "SIZE_MISMATCH", "180 raw bytes are not 6 x 5 x 3 of uint8"),
        (RAW, "raw", {"image/dtype": b"float32"}, "SIZE_MISMATCH", "raw bytes are not 6 x 5 x 3 of float32"),
        (RAW, "raw", {"image/encoded": RAW.tobytes()[:-1]}, "SIZE_MISMATCH", "179 raw bytes are not"),
        (RAW, "raw", {"image/channels": 4}, "SIZE_MISMATCH", "180 raw bytes are not 6 x 5 x 4 of uint16"),
        (RAW, "png", {"image/dtype": b"uint8"}, "FORMAT_MISMATCH", "are uint16, but the record says uint8"),
        (RAW, "png", {"image/dtype": b"float32"}, "FORMAT_MISMATCH", "but the record says float32"),
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
    out = io.BytesIO()
    Image.new("RGB", (5, 6)).save(out, "JPEG")
    jpeg = {"image/encoded": out.getvalue(), "image/format": b"jpg"}
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


def test_a_thumbnail_of_numbers_that_are_not_finite_is_drawn() -> None:
    pixels = np.full((4, 4, 1), np.nan, np.float32)
    image = record_thumbnail(record(pixels, "raw"), SCHEMA)
    assert image is not None and image.getextrema() == ((0, 0),) * 3


RNG = np.random.default_rng(0)
DEEP = RNG.integers(20_000, 40_000, (20, 24, 3), np.uint16)
FLOATS = RNG.normal(size=(20, 24, 1)).astype(np.float32)
FLOATS[3, 4] = np.nan
FLOATS[5, 6] = -np.inf


@pytest.mark.parametrize("stored", [png, raw])
def test_samples_of_16_bits_are_compared_in_8_bit_units(stored: Callable[[Array], bytes]) -> None:
    one = stored(DEEP)
    assert _alike(one, stored(DEEP + np.uint16(int(ALIKE * 257) - 2)), "uint16")
    assert not _alike(one, stored(DEEP + np.uint16(int(ALIKE * 257) + 2)), "uint16")
    assert not _alike(one, stored(DEEP[:-1]), "uint16")


def test_a_changed_square_is_found() -> None:
    other = DEEP.copy()
    other[8:16, 8:16] += np.uint16(25 * 257)
    assert not _alike(png(DEEP), png(other), "uint16")


def test_floats_are_compared_by_the_range_of_the_image() -> None:
    one, span = raw(FLOATS), np.ptp(FLOATS[np.isfinite(FLOATS)])
    assert _alike(one, raw(FLOATS + np.float32(0.99 * ALIKE / 255 * span)), "float32")
    assert not _alike(one, raw(FLOATS + np.float32(1.01 * ALIKE / 255 * span)), "float32")
    nothing = raw(np.full((2, 2, 1), np.nan, np.float32))
    assert _alike(nothing, nothing, "float32")
    for place, value in (((0, 0), np.nan), ((3, 4), 1.0), ((5, 6), np.inf)):
        other = FLOATS.copy()
        other[place] = value
        assert not _alike(one, raw(other), "float32")
    assert not _alike(one, one[:-1], "float32")
