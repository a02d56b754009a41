"""More than 8 bits per channel: exact samples, geometry, colors, alpha, display, and damaged files."""

from __future__ import annotations

import io
import zlib
from itertools import product
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from helpers import pictures
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from shardwright.core.images.convert import ConvertedImage, picture_of
from shardwright.core.images.decode import open_image
from shardwright.core.images.deep_pixels import displayed, eight_bits
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault, NotACandidate

RANDOM = np.random.default_rng(7)
RGB = RANDOM.integers(0, 65536, (17, 23, 3), np.uint16)
GRAY = np.ascontiguousarray(RGB[..., 0])
FLOATS = RANDOM.normal(size=(17, 23)).astype(np.float32) * 1000


def tiff_of(pixels: np.ndarray, **options: Any) -> bytes:
    if pixels.ndim == 3:
        color = "rgb" if pixels.shape[-1] in (3, 4) else "minisblack"
        options = {"photometric": color, "planarconfig": "contig", **options}
    return pictures.tiff_of(pixels, **options)


def png_of(pixels: np.ndarray) -> bytes:
    return bytes(imagecodecs.png_encode(np.ascontiguousarray(pixels)))


def kept(data: bytes, **values: Any) -> ConvertedImage:
    return pictures.convert(data, "a", **{"depth": "keep", "color": "keep", **values})


def samples(image: ConvertedImage) -> np.ndarray:
    """Returns the stored samples, read independently."""
    if image.format == "png":
        pixels = imagecodecs.png_decode(image.encoded)
    else:
        pixels = np.frombuffer(image.encoded, np.dtype(image.dtype).newbyteorder("<"))
    return pixels.reshape(image.height, image.width, image.channels)


def interlaced(pixels: np.ndarray, filter_type: int) -> bytes:
    """Returns a 16-bit PNG with the passes of Adam7 (PNG specification, 8.2), which no encoder writes.

    The rows of a pass are filtered like those of a picture of their own.
    """
    steps = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
    rows = b""
    for left, top, column, row in steps:
        part = np.ascontiguousarray(pixels[top::row, left::column])
        if part.size:
            alone = bytes(imagecodecs.png_encode(part, filter=filter_type))
            rows += zlib.decompressobj().decompress(alone.partition(b"IDAT")[2])
    size, color = (pixels.shape[1], pixels.shape[0]), 0 if pixels.ndim == 2 else 2
    return pictures.png_of_stream(size, 16, color, zlib.compress(rows), interlaced=True)


@pytest.mark.parametrize("pixels", [RGB, GRAY], ids=["rgb", "gray"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"byteorder": ">"},
        {"bigtiff": True, "rowsperstrip": 5},
        {"compression": "lzw", "tile": (16, 16)},
        {"compression": "zlib", "predictor": 2, "byteorder": ">"},
        {"compression": "zstd", "predictor": 2, "tile": (16, 32)},
        {"compression": "packbits"},
        {"planarconfig": "separate", "compression": "lzma"},
    ],
    ids=str,
)
def test_tiff_of_16_bits_keeps_every_sample(pixels: np.ndarray, options: dict[str, Any]) -> None:
    if "planarconfig" in options and pixels.ndim == 3:
        data = tiff_of(np.moveaxis(pixels, -1, 0), photometric="rgb", **options)
    else:
        data = tiff_of(pixels, **{name: options[name] for name in options if name != "planarconfig"})
    image = kept(data)
    assert (image.format, image.dtype, image.kept) == ("png", "uint16", False)
    assert np.array_equal(samples(image).squeeze(), pixels)
    color = "gray" if pixels.ndim == 2 else "rgb"
    assert np.array_equal(samples(kept(data, image_format="raw", color=color)).squeeze(), pixels)


@pytest.mark.parametrize("filter_type", ["NONE", "SUB", "UP", "AVG", "PAETH"])
def test_png_of_16_bits_with_every_filter(filter_type: str) -> None:
    number = getattr(imagecodecs.PNG.FILTER, filter_type)
    for pixels in (RGB, GRAY):
        for data in (bytes(imagecodecs.png_encode(pixels, filter=number)), interlaced(pixels, number)):
            image = kept(data)
            assert image.kept and image.encoded == data and image.dtype == "uint16"
            image = kept(data, image_format="png")
            assert not image.kept and np.array_equal(samples(image).squeeze(), pixels)


@pytest.mark.parametrize(
    "options",
    [{}, {"compression": "zlib", "predictor": 3}, {"compression": "lzw"}, {"byteorder": ">"}],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_become_float32(dtype: type, options: dict[str, Any]) -> None:
    values = FLOATS.copy()
    values[0, :3] = np.nan, np.inf, -np.inf
    for pixels in (values.astype(dtype), np.repeat(values.astype(dtype)[..., None], 3, -1)):
        image = kept(tiff_of(pixels, **options))
        assert (image.format, image.dtype) == ("raw", "float32")
        np.testing.assert_array_equal(samples(image).squeeze(), pixels.astype(np.float32))


def test_packed_integers_keep_their_values() -> None:
    for bits in (9, 12, 15):
        packed = RANDOM.integers(0, 1 << bits, (9, 11), np.uint16)
        data = tiff_of(packed, bitspersample=bits)
        with tifffile.TiffFile(io.BytesIO(data)) as file:
            assert file.pages[0].bitspersample == bits
        assert np.array_equal(samples(kept(data)).squeeze(), packed)


def test_white_is_zero_is_inverted() -> None:
    image = kept(tiff_of(GRAY, photometric="miniswhite"))
    assert np.array_equal(samples(image).squeeze(), 65535 - GRAY)


@pytest.mark.parametrize(
    "pixels", [np.zeros((4, 5), np.uint32), np.zeros((4, 5), np.int32), np.zeros((4, 5), np.complex64)]
)
def test_types_without_a_stored_type_are_refused(pixels: np.ndarray) -> None:
    fault = pictures.fault(tiff_of(pixels), depth="keep")
    assert fault.reason == "UNSUPPORTED_FORMAT" and "cannot be kept" in fault.message


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((4, 5), "f2", "pixels of 1 x 16-bit float are only read with --depth keep"),
        ((4, 5), "f8", "pixels of 1 x 64-bit float are only read with --depth keep"),
        ((4, 5, 3), "f4", "pixels of 3 x 32-bit float are only read with --depth keep"),
        ((4, 5, 3), "i2", "pixels of 3 x 16-bit signed integer are only read with --depth keep"),
        ((4, 5, 3), "u4", "samples that are integers of 32 bits cannot be kept"),
        ((4, 5), "i1", "8-bit signed integers have no defined brightness"),
    ],
)
def test_sound_samples_that_eight_bits_cannot_show_are_not_called_damaged(
    shape: tuple[int, ...], dtype: str, message: str
) -> None:
    data = tiff_of(np.zeros(shape, dtype), photometric="rgb" if len(shape) > 2 else "minisblack")
    with pytest.raises(ImageFault, match=message) as fault:
        open_image(data, "a.tif", 10**6)
    assert fault.value.reason == "UNSUPPORTED_FORMAT"
    if dtype not in ("u4", "i1"):
        assert samples(kept(data)).shape[:2] == shape[:2]
    with pytest.raises(ImageFault) as fault:
        open_image(data[:12], "a.tif", 10**6)
    assert fault.value.reason in ("CORRUPT", "TRUNCATED")


def test_a_big_tiff_in_big_endian_order_is_not_called_damaged() -> None:
    for depth in ("8", "keep"):
        fault = pictures.fault(tiff_of(GRAY, bigtiff=True, byteorder=">"), depth=depth)
        assert fault.reason == "UNSUPPORTED_FORMAT" and "big-endian" in fault.message


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied(orientation: int) -> None:
    upright = pictures.UPRIGHT[orientation]
    data = png_of(RGB)
    image = kept(data[:33] + pictures.exif_chunk(orientation) + data[33:])
    assert np.array_equal(samples(image), upright(RGB)) and image.kept == (orientation == 1)
    image = kept(tiff_of(RGB, extratags=[(274, "H", 1, orientation, True)]))
    assert np.array_equal(samples(image), upright(RGB))


def resampled(pixels: np.ndarray, size: int) -> np.ndarray:
    """Returns pixels resampled in double precision with the triangle filter, as Pillow defines it."""

    def weights(count: int) -> np.ndarray:
        scale = max(1.0, count / size)
        centers = (np.arange(size) + 0.5) * count / size
        found = np.maximum(0, 1 - abs(np.arange(count) + 0.5 - centers[:, None]) / scale)
        return found / found.sum(1, keepdims=True)

    return np.einsum("yr,rcn,xc->yxn", weights(len(pixels)), pixels.astype(float), weights(pixels.shape[1]))


@pytest.mark.parametrize("size", [7, 40])
def test_resampling_has_16_bits(size: int) -> None:
    image = kept(tiff_of(RGB), resize=str(size))
    assert image.format == "png" and (image.width, image.height) == (size, size)
    assert abs(samples(image) - resampled(RGB, size)).max() <= 0.51
    floats = samples(kept(tiff_of(FLOATS), resize=str(size)))
    assert abs(floats - resampled(FLOATS[..., None], size)).max() < 0.01


def test_nearest_copies_samples_and_fit_crops_the_middle() -> None:
    doubled = kept(tiff_of(RGB), resize="46x34", resample="nearest")
    assert np.array_equal(samples(doubled), RGB.repeat(2, 0).repeat(2, 1))
    cropped = kept(tiff_of(GRAY), resize="17x17", fit="fit")
    assert np.array_equal(samples(cropped).squeeze(), GRAY[:, 3:20])


@pytest.mark.parametrize("pixels", [RGB, FLOATS, np.dstack([GRAY] * 5)], ids=["rgb", "float", "bands"])
def test_padding(pixels: np.ndarray) -> None:
    bands = {"channels": 5} if pixels.shape[2:] == (5,) else {}
    image = kept(tiff_of(pixels), resize="23x27", fit="pad", background="#ff8000", **bands)
    found = samples(image)
    assert np.array_equal(found[5:22].squeeze(), pixels)
    color = {3: [65535, 32896, 0], 5: [0] * 5}.get(found.shape[-1], [np.float32(151 / 255)])
    assert (found[:5] == color).all() and (found[22:] == color).all()


def test_alpha_is_flattened_in_16_bits() -> None:
    alpha = RANDOM.integers(0, 65536, GRAY.shape, np.uint16)
    alpha[0, :2] = 0, 65535
    share = alpha[..., None] / 65535
    expected = RGB * share + np.array([65535, 32896, 0]) * (1 - share)
    for data in (
        png_of(np.dstack([RGB, alpha])),
        tiff_of(np.dstack([RGB, alpha]), extrasamples=["unassalpha"]),
    ):
        image = kept(data, color="rgb", background="#ff8000")
        assert abs(samples(image) - expected).max() <= 0.51 and image.on_background
    gray = kept(png_of(np.dstack([GRAY, alpha])), color="gray")
    assert abs(samples(gray)[..., 0] - (GRAY * share[..., 0] + 65535 * (1 - share[..., 0]))).max() <= 0.51
    keep = kept(png_of(np.dstack([RGB, alpha])))
    assert keep.kept and keep.channels == 4


def test_a_transparent_color_becomes_the_background() -> None:
    data = png_of(RGB)
    key = pictures.png_chunk(b"tRNS", RGB[3, 4].astype(">u2").tobytes())
    image = kept(data[:33] + key + data[33:])
    expected = RGB.copy()
    expected[3, 4] = 65535
    assert not image.kept and np.array_equal(samples(image), expected)


@pytest.mark.parametrize("bits", [12, 16])
def test_profiles_are_applied_in_16_bits(bits: int) -> None:
    profile, white = pictures.icc_profile(pictures.SRGB_PRIMARIES, 1.8), (1 << bits) - 1
    pixels = RGB >> 16 - bits
    image = kept(tiff_of(pixels, iccprofile=profile, bitspersample=bits))
    curve = pictures.srgb_curve((pixels / white) ** 1.8)
    assert abs(samples(image) / white - curve).max() < 0.001  # rounded numbers inside the profile
    assert len(np.unique(samples(image) & 0xFF)) > 200


def test_gray_has_the_same_weights_as_with_8_bits() -> None:
    gray = samples(kept(tiff_of(RGB), color="gray"))[..., 0]
    assert abs(gray - RGB @ np.array([0.299, 0.587, 0.114])).max() < 1.5
    assert np.array_equal(samples(kept(tiff_of(GRAY), color="rgb")), np.dstack([GRAY] * 3))


def test_channels_with_8_bits_are_scaled() -> None:
    bands = np.dstack([GRAY] * 4)
    image = pictures.convert(tiff_of(bands), "a", channels=4)
    assert image.dtype == "uint8"
    assert np.array_equal(samples(image), (bands.astype(np.uint32) * 255 + 32767) // 65535)
    fault = pictures.fault(tiff_of(np.dstack([FLOATS] * 2)), channels=2)
    assert "no defined brightness" in fault.message


def test_another_number_of_channels_is_refused() -> None:
    for data in (tiff_of(RGB), png_of(GRAY), pictures.file_of(Image.new("RGB", (5, 5)), "JPEG")):
        fault = pictures.fault(data, depth="keep", channels=4)
        assert (fault.reason, fault.stage, "not 4" in fault.message) == ("WRONG_CHANNELS", "decode", True)
    with pytest.raises(ImageFault, match="keep them with --channels 5"):
        kept(tiff_of(np.dstack([GRAY] * 5)))
    rgba = pictures.rgb_pixels()
    rgba = np.dstack([rgba, rgba[..., 0]])
    assert np.array_equal(samples(kept(pictures.file_of(Image.fromarray(rgba), "PNG"), channels=4)), rgba)


@pytest.mark.parametrize("compression", [None, "zlib", "lzw", "packbits"])
@pytest.mark.parametrize("planes", ["contig", "separate"])
@pytest.mark.parametrize("photometric", ["minisblack", "miniswhite"])
def test_bands_are_stored_whole_or_refused(photometric: str, planes: str, compression: str | None) -> None:
    types = {"u1": "uint8", "u2": "uint16", "i2": "float32", "f4": "float32", "f8": "float32"}
    for count, dtype in product((2, 3, 4, 5, 16), (*types, "i1", "u4")):
        pixels = RANDOM.integers(0, 100, (count, 20, 35)).astype(dtype)
        stored = pixels if planes == "separate" else np.ascontiguousarray(np.moveaxis(pixels, 0, -1))
        tile = (16, 16) if count % 2 else None  # otherwise strips
        data = tiff_of(
            stored, photometric=photometric, planarconfig=planes, compression=compression, tile=tile,
            rowsperstrip=None if tile else 8,
        )  # fmt: skip
        is_kept = dtype in types
        fault = pictures.fault(data)
        assert fault.reason == "UNSUPPORTED_FORMAT"
        advice = f"keep them with --channels {count}" if is_kept else "convert them to integers of 8 or 16"
        assert advice in fault.message, (count, dtype)
        if is_kept:
            found = tifffile.imread(io.BytesIO(data))
            expected = np.moveaxis(found, 0, -1) if planes == "separate" else found
            image = kept(data, channels=count)
            assert (image.format, image.channels, image.dtype) == ("raw", count, types[dtype])
            assert np.array_equal(samples(image), expected), (count, dtype)


def test_pictures_of_8_bits_stay_and_are_reencoded_as_png() -> None:
    photo = Image.fromarray(pictures.rgb_pixels())
    jpeg = pictures.file_of(photo, "JPEG")
    assert kept(jpeg).encoded == jpeg and kept(jpeg).dtype == "uint8"
    assert kept(jpeg, resize="9").format == "png"
    assert kept(pictures.file_of(photo, "TIFF")).dtype == "uint8"


@pytest.mark.parametrize("highest", [256, 1023, 65535])
@pytest.mark.parametrize("kind", [2, 3, 5, 6])
def test_pnm_keeps_its_values(kind: int, highest: int) -> None:
    pixels = (RGB if kind in (3, 6) else GRAY[..., None]) & min(highest, 255 if highest < 1023 else highest)
    body = pixels.astype(">u2").tobytes() if kind > 3 else b" ".join(b"%d" % value for value in pixels.flat)
    image = kept(b"P%d # a comment\n23 17\n%d\n" % (kind, highest) + body)
    assert (image.format, image.dtype) == ("png", "uint16") and np.array_equal(samples(image), pixels)


@pytest.mark.parametrize("bits", [10, 12, 16])
@pytest.mark.parametrize("pixels", [RGB, GRAY], ids=["rgb", "gray"])
def test_jpeg_2000_keeps_its_values(pixels: np.ndarray, bits: int) -> None:
    pixels = pixels >> (16 - bits)
    data = imagecodecs.jpeg2k_encode(pixels, level=0, reversible=True, bitspersample=bits, mct=False)
    image = kept(bytes(data))
    assert image.dtype == "uint16" and np.array_equal(samples(image).squeeze(), pixels)


@pytest.mark.parametrize("data", [png_of(RGB), tiff_of(RGB, compression="zlib"), tiff_of(FLOATS)])
def test_truncated_files_are_faults(data: bytes) -> None:
    for length in range(31, len(data), 31):
        with pytest.raises(ImageFault):
            kept(data[:length], image_format="png")


@given(place=st.integers(8, 2000), value=st.integers(0, 255), which=st.integers(0, 2))
def test_changed_bytes_give_pixels_or_a_fault(place: int, value: int, which: int) -> None:
    data = bytearray((png_of(RGB), tiff_of(RGB, compression="zlib", predictor=2), tiff_of(FLOATS))[which])
    data[place % len(data)] = value
    try:
        image = kept(bytes(data), image_format="png", max_pixels=1 << 16)
    except (ImageFault, NotACandidate):
        return
    assert samples(image).shape == (image.height, image.width, image.channels)


@given(
    arrays.arrays(
        st.sampled_from([np.uint16, np.float32, np.int16, np.float64]),
        st.tuples(st.integers(1, 9), st.integers(1, 9)),
    ),
    st.sampled_from(["<", ">"]),
)
def test_any_tiff_equals_tifffile(pixels: np.ndarray, order: str) -> None:
    data = tiff_of(pixels, byteorder=order)
    with np.errstate(over="ignore"):
        expected = tifffile.imread(io.BytesIO(data)).astype("u2" if pixels.dtype == np.uint16 else "f4")
    np.testing.assert_array_equal(samples(kept(data))[..., 0], expected.reshape(pixels.shape))


def test_a_stored_picture_is_displayed_with_8_bits() -> None:
    shown = np.asarray(picture_of(kept(tiff_of(GRAY)), ConvertSettings(depth="keep")))
    assert np.array_equal(shown, eight_bits(GRAY, 65535)) and abs(shown - GRAY / 257).max() <= 0.51


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (2, "L"), (3, "RGB"), (4, "RGB"), (16, "RGB")])
def test_the_first_channels_are_shown(channels: int, mode: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, channels), np.uint8)
    for dtype in (np.uint16, np.float32):
        assert displayed(pixels.astype(dtype)).mode == mode
    picture = displayed(pixels)
    assert (picture.mode, picture.size) == (mode, (5, 4))
    assert np.array_equal(np.asarray(picture).reshape(4, 5, -1), pixels[:, :, : len(mode)])


def test_uint16_is_scaled_and_rounded() -> None:
    every = np.arange(65536, dtype=np.uint16).reshape(256, 256, 1)
    assert np.array_equal(np.asarray(displayed(every)), np.rint(every[:, :, 0].astype(float) * 255 / 65535))


@settings(max_examples=examples(60), deadline=None)
@given(arrays.arrays(np.float32, arrays.array_shapes(min_dims=3, max_dims=3, max_side=5)))
def test_floats_are_stretched_between_their_extremes(pixels: np.ndarray[Any, Any]) -> None:
    found = np.asarray(displayed(pixels))
    chosen = pixels[:, :, :3] if pixels.shape[2] >= 3 else pixels[:, :, 0]
    finite = np.isfinite(chosen)
    if not finite.any() or chosen[finite].min() == chosen[finite].max():
        assert not found.any()
        return
    assert found[chosen == chosen[finite].min()].max() == 0
    assert found[chosen == chosen[finite].max()].min() == 255
    assert not found[np.isnan(chosen) | (chosen == -np.inf)].any()
    assert (found[chosen == np.inf] == 255).all()
    order = np.argsort(chosen[finite], kind="stable")
    assert (np.diff(found[finite][order].astype(int)) >= 0).all()
