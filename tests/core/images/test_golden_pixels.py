"""Pixels and their positions in every mode and orientation, compared with arithmetic and ImageOps."""

from __future__ import annotations

import hashlib
import io
import math
import struct
from contextlib import contextmanager
from typing import Any

import cykooz_resizer
import numpy as np
import pytest
from helpers import pictures
from helpers.examples import examples
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from shardwright.core.images import convert, geometry
from shardwright.core.images.convert import convert_image
from shardwright.core.images.geometry import plan_geometry, resize_rows_first
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS, ConvertSettings
from shardwright.schemas.units import FITS

ORIENTATIONS = range(1, 9)
RGB = pictures.rgb_pixels()
GRAY = RGB[..., 2]
ALPHA = pictures.alpha_pixels()


def _three(gray: np.ndarray) -> np.ndarray:
    return np.repeat(gray[..., None], 3, axis=-1)


#: The indices of a palette picture, the palette, and the colors and opacities of its pixels.
INDICES = (np.arange(RGB[..., 0].size).reshape(GRAY.shape) * 5 % 60).astype(np.uint8)
PALETTE = np.array([(i * 4, 255 - i * 3, i * 53 % 256) for i in range(60)], np.uint8)
COLORS, OPACITIES = PALETTE[INDICES], (np.arange(60) * 4).astype(np.uint8)[INDICES]
BITS, GRAY16 = GRAY > 99, pictures.gray16_pixels()
CMYK = np.concatenate([RGB, ALPHA[..., None] // 2], axis=-1)


def _from_bytes(mode: str, pixels: np.ndarray) -> Image.Image:
    return Image.frombytes(mode, (pixels.shape[1], pixels.shape[0]), pixels.tobytes())


def _image(mode: str, pixels: np.ndarray) -> Image.Image:
    """Returns a picture of stored pixels."""
    if pixels.dtype != np.uint8:
        return Image.fromarray(pixels)
    image = _from_bytes(mode.partition("+")[0], pixels)
    if image.mode == "P":
        image.putpalette(PALETTE.ravel().tolist())
    return image


def _composite(colors: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    return pictures.composite(colors, alpha, pictures.BACKGROUND)


#: Mode -> (stored pixels, expected RGB, levels of tolerance). Pillow composites in integers: within one level
#: of the float result.
CASES = {
    "RGB": (RGB, RGB, 0),
    "L": (GRAY, _three(GRAY), 0),
    "1": (BITS, _three(BITS.astype(np.uint8) * 255), 0),
    "RGBA": (np.dstack([RGB, ALPHA]), _composite(RGB, ALPHA), 1),
    "LA": (np.dstack([GRAY, ALPHA]), _composite(_three(GRAY), ALPHA), 1),
    "P": (INDICES, COLORS, 0),
    "P+transparency": (INDICES, _composite(COLORS, OPACITIES), 1),
    "I;16": (GRAY16, _three(np.rint(GRAY16 / 257).astype(np.uint8)), 0),
    "CMYK": (CMYK, np.asarray(_from_bytes("CMYK", CMYK).convert("RGB")), 0),
}


LOSSLESS = {
    "PNG": ["RGB", "L", "1", "RGBA", "LA", "P", "P+transparency", "I;16"],
    "TIFF": ["RGB", "L", "1", "RGBA", "LA", "P", "I;16", "CMYK"],
    "WEBP": ["RGB", "RGBA"],
    "GIF": ["L", "P"],
    "BMP": ["RGB", "L", "1", "P"],
}
_OPTIONS = {"WEBP": {"lossless": True, "exact": True}, "TIFF": {"compression": "tiff_lzw"}}


@pytest.mark.parametrize(
    ("format", "mode"), [(kind, mode) for kind, modes in LOSSLESS.items() for mode in modes]
)
def test_lossless_files_are_upright_in_their_true_colors(format: str, mode: str) -> None:
    pixels, expected, tolerance = CASES[mode]
    orientations = ORIENTATIONS if format in ("PNG", "TIFF", "WEBP") else (1,)
    for orientation in orientations:
        image = _image(mode, pictures.stored(pixels, orientation))
        options = dict(_OPTIONS.get(format, {}))
        if mode == "P+transparency":
            options["transparency"] = bytes(range(0, 240, 4))
        data = pictures.file_of(image, format, orientation, **options)
        background = "rgb({},{},{})".format(*pictures.BACKGROUND)
        result = pictures.to_png(data, background=background)
        difference = np.abs(result.astype(int) - expected)
        assert result.shape == expected.shape, orientation
        assert difference.max() <= tolerance, orientation


LOSSY = {"JPEG": ["RGB", "L", "CMYK"], "WEBP": ["RGB"], "AVIF": ["RGB", "L"], "TIFF": ["RGB"]}


def _upright_in_pillow(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as opened:
        return np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))


@pytest.mark.parametrize(
    ("format", "mode"),
    [(kind, mode) for kind, modes in LOSSY.items() for mode in modes],
)
def test_lossy_files_equal_pillows_own_upright_picture(format: str, mode: str) -> None:
    pixels, _, _ = CASES[mode]
    options = {"compression": "jpeg"} if format == "TIFF" else {}
    for orientation in ORIENTATIONS:
        stored = _image(mode, pictures.stored(pixels, orientation))
        stored = stored.convert("YCbCr") if options else stored
        data = pictures.file_of(stored, format, orientation, quality=90, **options)
        expected = _upright_in_pillow(data)
        assert expected.shape[:2] == pixels.shape[:2], orientation
        assert np.array_equal(pictures.to_png(data), expected), orientation


def test_orientation_is_read_from_xmp_if_exif_has_none() -> None:
    packet = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><tiff:Orientation>6</tiff:Orientation></x:xmpmeta>'
    data = pictures.file_of(Image.fromarray(pictures.stored(RGB, 6)), "JPEG", xmp=packet)
    expected = _upright_in_pillow(data)
    assert expected.shape == RGB.shape
    assert np.array_equal(pictures.to_png(data), expected)


def test_lab_tiff_becomes_srgb() -> None:
    # Lab (D50) values and their sRGB colors, by the CIE and IEC 61966-2-1 formulas.
    lab = np.array([[(50, 0, 0), (60, 40, 30), (40, -30, 20), (30, 10, -40)]], np.float64)
    fy = (lab[..., 0] + 16) / 116
    f = np.stack([fy + lab[..., 1] / 500, fy, fy - lab[..., 2] / 200], axis=-1)
    xyz = np.where(f > 6 / 29, f**3, 3 * (6 / 29) ** 2 * (f - 4 / 29)) * (0.9642, 1.0, 0.8249)
    linear = xyz @ np.linalg.inv(np.array(pictures.SRGB_PRIMARIES))
    expected = np.rint(pictures.srgb_curve(linear.clip(0)).clip(0, 1) * 255)
    # TIFF 6.0 section 23 stores L as 0..255 and a, b as signed bytes; Pillow keeps them that way.
    stored = np.stack([np.rint(lab[..., 0] * 2.55), lab[..., 1] % 256, lab[..., 2] % 256], axis=-1).astype(
        np.uint8
    )
    for orientation in (1, 6):
        image = _from_bytes("LAB", pictures.stored(stored, orientation))
        data = pictures.file_of(image, "TIFF", orientation)
        # 8-bit Lab and the engine's tables are rounded: within three levels of the formulas
        assert np.abs(pictures.to_png(data).astype(int) - expected).max() <= 3


@pytest.mark.parametrize(
    ("depth", "color_type", "key", "other"),
    [
        (1, 0, (1,), (0,)),
        *((depth, 0, (2,), (0,)) for depth in (2, 4, 8, 16)),
        (8, 2, (1, 2, 3), (1, 2, 4)),
        (16, 2, (1000, 2000, 3000), (1000, 2000, 40000)),
    ],
)
def test_the_transparent_color_of_a_png_is_transparent(
    depth: int, color_type: int, key: tuple[int, ...], other: tuple[int, ...]
) -> None:
    bits = "".join(f"{sample:0{depth}b}" for sample in (*key, *other))
    row = np.packbits([bit == "1" for bit in bits]).tobytes()
    transparent = pictures.png_chunk(b"tRNS", struct.pack(f">{len(key)}H", *key))
    data = pictures.raw_png((2, 1), depth, color_type, [row], transparent)
    shown = pictures.to_png(data, background="#0a141e")[0]
    assert shown[0].tolist() == [10, 20, 30]
    expected = np.array(other) * 255 / (2**depth - 1)
    # Pillow uses the upper byte of colors of 16 bits.
    assert np.abs(shown[1] - expected).max() <= (max(other) > 255)


@pytest.mark.parametrize(
    ("values", "white", "options"),
    [
        ([0, 16, 2000, 4095], 4095, {"bitspersample": 12}),
        ([0, 128, 20000, 32767], 32767, {}),  # signed
        ([0, 300, 30000, 65535], 65535, {"photometric": "miniswhite"}),
    ],
)
def test_gray_of_more_than_8_bits_has_its_own_white(
    values: list[int], white: int, options: dict[str, Any]
) -> None:
    pixels = np.array([values], np.int16 if white == 32767 else np.uint16)
    expected = np.rint(pixels / white * 255)
    shown = pictures.to_png(pictures.tiff_of(pixels, **options))[..., 0]
    assert np.array_equal(shown, 255 - expected if "photometric" in options else expected)


def test_sixteen_bit_gray_without_a_defined_scale_is_refused() -> None:
    wide = Image.fromarray(np.array([[0, 70000]], np.int32))
    floats = Image.fromarray(np.array([[0.5, 7.0]], np.float32))
    for image in (wide, floats):
        assert pictures.fault(pictures.file_of(image, "TIFF")).reason == "UNSUPPORTED_FORMAT"
    unit = Image.fromarray(np.array([[0.0, 0.5, 1.0]], np.float32))
    assert pictures.to_png(pictures.file_of(unit, "TIFF"))[0, :, 0].tolist() == [0, 128, 255]


# --- color profiles -----------------------------------------------------------------------------

SRGB = pictures.SRGB
GAMMA_18 = pictures.icc_profile(pictures.SRGB_PRIMARIES, 1.8)
SWAPPED = pictures.icc_profile([pictures.SRGB_PRIMARIES[i] for i in (1, 0, 2)], 2.2)


@pytest.mark.parametrize("format", ["PNG", "TIFF", "WEBP"])
def test_a_profile_with_another_curve_is_converted_to_srgb(format: str) -> None:
    options = _OPTIONS.get(format, {})
    data = pictures.file_of(Image.fromarray(RGB), format, icc_profile=GAMMA_18, **options)
    expected = np.rint(pictures.srgb_curve((RGB / 255) ** 1.8) * 255)
    # The engine uses 16-bit tables: within two levels, three in the deepest shadows.
    difference = np.abs(pictures.to_png(data).astype(int) - expected)
    assert difference[RGB > 8].max() <= 2
    assert difference.max() <= 3
    assert np.abs(RGB - expected).max() > 15, "the profile must make a difference to be seen"


def test_a_profile_with_swapped_primaries_swaps_the_colors_back() -> None:
    image = Image.fromarray(np.array([[(200, 30, 90), (10, 250, 90)]], np.uint8))
    shown = pictures.to_png(pictures.file_of(image, "PNG", icc_profile=SWAPPED)).astype(int)
    expected = np.rint(pictures.srgb_curve((np.array([[(30, 200, 90), (250, 10, 90)]]) / 255) ** 2.2) * 255)
    assert np.abs(shown - expected).max() <= 2


def test_a_profile_is_applied_with_alpha_and_with_a_palette() -> None:
    gray_blue = np.full((4, 4, 3), (60, 90, 180), np.uint8)
    expected = np.rint(pictures.srgb_curve((gray_blue / 255) ** 1.8) * 255)
    translucent = np.dstack([gray_blue, np.full((4, 4), 128, np.uint8)])
    data = pictures.file_of(Image.fromarray(translucent), "PNG", icc_profile=GAMMA_18)
    over_black = pictures.to_png(data, background="black")
    assert np.abs(over_black - expected * 128 / 255).max() <= 2
    paletted = Image.fromarray(gray_blue).quantize(2)
    data = pictures.file_of(paletted, "PNG", icc_profile=GAMMA_18)
    assert np.abs(pictures.to_png(data) - expected).max() <= 2


def test_a_picture_tagged_srgb_is_unchanged_and_kept() -> None:
    data = pictures.file_of(Image.fromarray(RGB), "PNG", icc_profile=SRGB)
    assert np.array_equal(pictures.to_png(data), RGB)
    kept = pictures.convert(data, image_format="keep")
    assert kept.kept
    assert kept.encoded == data


@pytest.mark.parametrize(
    "profile",
    [
        b"garbage", SRGB[:200], SRGB.replace(b"acsp", b"pcsa"), SRGB.replace(b"RGB ", b"CMYK"),
        GAMMA_18[:-50],
        pictures.icc_profile([(0, 0, 0), (-32768, 0, 0), (0, 0, 0)], 1.8),  # in which white is dark
    ],
)  # fmt: skip
def test_a_broken_or_unfitting_profile_is_ignored(profile: bytes) -> None:
    data = pictures.file_of(Image.fromarray(RGB), "PNG", icc_profile=profile)
    assert np.array_equal(pictures.to_png(data), RGB)


def test_cmyk_with_a_profile_of_another_color_space_uses_the_plain_formula() -> None:
    image = _from_bytes("CMYK", CMYK)
    data = pictures.file_of(image, "TIFF", icc_profile=SRGB)
    assert np.array_equal(pictures.to_png(data), np.asarray(image.convert("RGB")))


def test_encoded_pictures_contain_no_profile_and_no_other_metadata() -> None:
    packet = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><tiff:Orientation>6</tiff:Orientation></x:xmpmeta>'
    data = pictures.file_of(
        Image.fromarray(RGB), "JPEG", 6, icc_profile=GAMMA_18, comment=b"secret", xmp=packet, dpi=(9, 9)
    )
    for stored in ("jpeg", "png", "webp"):
        encoded = pictures.convert(data, image_format=stored, resize="9").encoded
        with Image.open(io.BytesIO(encoded)) as opened:
            opened.load()
            left = set(opened.info) & {"icc_profile", "exif", "xmp", "comment", "dpi", "transparency"}
        assert not left, stored


RESAMPLES = CONVERT_SETTINGS["resample"].kind.choices

SIDES = st.integers(1, 90)
LARGE_SIDES = st.integers(1, 20_000)
_IMAGEOPS = {
    "stretch": lambda image, target, method: image.resize(target, method),
    "contain": ImageOps.contain,
    "cover": ImageOps.cover,
    "fit": ImageOps.fit,
    "pad": lambda image, target, method: ImageOps.pad(image, target, method, color="white"),
}


def _pillows(fit: str, image: Image.Image, target: tuple[int, int], resample: str = "box"):
    return _IMAGEOPS[fit](image, target, Image.Resampling[resample.upper()])


@pytest.mark.parametrize("fit", FITS)
@given(width=SIDES, height=SIDES, target=st.tuples(SIDES, SIDES))
@hypothesis_settings(max_examples=examples(60), deadline=None)
def test_sizes_equal_those_of_imageops(fit: str, width: int, height: int, target: tuple[int, int]) -> None:
    canvas = plan_geometry(width, height, target, fit).canvas
    try:
        expected = _pillows(fit, Image.new("L", (width, height)), target).size
    except ValueError:  # ImageOps rounds a thin side to zero pixels
        assert 1 in plan_geometry(width, height, target, fit).size
        return
    if 0 in expected:  # Pillow 13 returns an empty picture instead
        assert 1 in canvas
        return
    assert canvas == expected


@given(
    width=LARGE_SIDES,
    height=LARGE_SIDES,
    target=st.tuples(LARGE_SIDES, LARGE_SIDES),
    fit=st.sampled_from(FITS),
)
@hypothesis_settings(max_examples=examples(300), deadline=None)
def test_boxes_are_inside_and_the_reduction_keeps_twice_the_target(
    width: int, height: int, target: tuple[int, int], fit: str
) -> None:
    geometry = plan_geometry(width, height, target, fit)
    left, upper, right, lower = geometry.box
    assert 0 <= left < right <= width
    assert 0 <= upper < lower <= height
    assert min(geometry.size) >= 1
    assert 0 <= geometry.offset[0] <= geometry.canvas[0] - geometry.size[0]
    assert 0 <= geometry.offset[1] <= geometry.canvas[1] - geometry.size[1]
    width, height = geometry.size
    possible = [
        factor
        for factor in (1, 2, 4, 8)
        if factor == 1 or (right - left >= 2 * factor * width and lower - upper >= 2 * factor * height)
    ]
    assert geometry.reduction() == possible[-1]


def test_a_line_that_would_cover_a_box_with_too_many_pixels_is_refused() -> None:
    line = pictures.file_of(Image.new("L", (1, 60)), "PNG")
    options = {"resize": "30", "fit": "cover"}
    fault = pictures.fault(line, max_pixels=1000, **options)
    assert (fault.reason, fault.stage) == ("TOO_MANY_PIXELS", "transform")
    assert "1 x 60 pixels would become 30 x 1800; raise --max_pixels" in fault.message
    assert pictures.convert(line, "a.png", max_pixels=54000, **options).height == 1800
    assert pictures.convert(line, "a.png", max_pixels=60, resize="30", fit="pad").height == 30


@pytest.mark.parametrize("resample", RESAMPLES)
@pytest.mark.parametrize("fit", FITS)
def test_pixels_equal_those_of_imageops(fit: str, resample: str) -> None:
    for size, target in [((61, 40), (19, 24)), ((40, 61), (90, 24)), ((9, 8), (30, 31))]:
        image = Image.fromarray(pictures.rgb_pixels(*size))
        expected = np.asarray(_pillows(fit, image, target, resample))
        shown = pictures.to_png(
            pictures.file_of(image, "PNG"), resize="{}x{}".format(*target), fit=fit, resample=resample
        )
        assert shown.shape == expected.shape
        difference = np.abs(shown.astype(int) - expected)
        if resample in ("bicubic", "lanczos"):
            # The SIMD library resamples rows first, which matters where a kernel overshoots at an edge.
            psnr = 10 * np.log10(255**2 / max((difference.astype(float) ** 2).mean(), 1e-9))
            assert psnr > 42, (size, target, psnr)
        else:
            assert difference.max() <= (resample in ("bilinear", "hamming")), (size, target, difference.max())


@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_padding_has_the_color_of_the_background(color: str) -> None:
    image = Image.fromarray(pictures.rgb_pixels())
    shown = pictures.to_png(
        pictures.file_of(image, "PNG"), resize="40x20", fit="pad", color=color, background="#3366cc"
    )
    expected = Image.new("RGB", (1, 1), "#3366cc").convert("L" if color == "gray" else "RGB")
    assert np.array_equal(shown[5, 0], np.asarray(expected)[0, 0])


def _photo(width: int, height: int) -> np.ndarray:
    """Returns a picture between a photograph and a test chart: gradients, soft blobs, some texture."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    noise = np.random.default_rng(5).normal(0, 4, (height, width)).astype(np.float32)
    red = 128 + 90 * np.sin(x / 47) * np.cos(y / 31) + noise
    green = 255 * x / width + noise
    blue = 60 + 150 * np.exp(-((x - width * 0.2) ** 2 + (y - height * 0.8) ** 2) / 9000) + noise
    pixels = np.stack([red, green, blue], axis=-1)
    pixels[: height // 8, : width // 5] = (255, 30, 0)
    return pixels.clip(0, 255).astype(np.uint8)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("orientation", [1, 3, 6, 8, 2])
def test_reduced_decoding_is_as_good_as_full_decoding(orientation: int) -> None:
    # odd sides, so that the last scaled pixel is covered partly
    data = pictures.file_of(
        Image.fromarray(pictures.stored(_photo(1237, 843), orientation)), "JPEG", orientation, quality=92
    )
    with Image.open(io.BytesIO(data)) as opened:
        full = ImageOps.exif_transpose(opened)
    for fit in FITS:
        target = (150, 120)
        assert plan_geometry(*full.size, target, fit).reduction() > 1
        expected = np.asarray(_pillows(fit, full, target, "bilinear")).astype(float)
        shown = pictures.to_png(data, resize="150x120", fit=fit)
        assert shown.shape == expected.shape
        psnr = 10 * math.log10(255**2 / ((shown - expected) ** 2).mean())
        assert psnr >= 42, fit


@pytest.mark.parametrize("resample", ["bilinear", "bicubic", "lanczos"])
def test_resampling_is_the_same_for_every_instruction_set(
    resample: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = Image.fromarray(_photo(333, 211))
    box = (10.25, 3.5, 320.75, 200.0)
    usual = geometry.resize(image, (96, 61), resample, box)
    plain = cykooz_resizer.Resizer()
    plain.cpu_extensions = cykooz_resizer.CpuExtensions.none
    monkeypatch.setattr(cykooz_resizer, "Resizer", lambda: plain)
    assert np.array_equal(usual, geometry.resize(image, (96, 61), resample, box))


@given(st.floats(0, 50), st.floats(51, 100), st.floats(0, 20), st.floats(21, 40), st.sampled_from(RESAMPLES))
def test_any_box_inside_the_picture_can_be_resampled(
    left: float, right: float, upper: float, lower: float, resample: str
) -> None:
    image = Image.new("L", (100, 40), 77)
    resized = geometry.resize(image, (9, 7), resample, (left, upper, right, lower))
    assert resized.getextrema() == (77, 77)


@pytest.mark.parametrize(
    ("resample", "sha256"),
    [
        ("box", "896c120277b93fc5"),
        ("bilinear", "68e23a5cefe9b541"),
        ("hamming", "e5a8b8dd05fd7a2d"),
        ("bicubic", "1bc656b855716e39"),
        ("lanczos", "562ce8c22484a00a"),
    ],
)
def test_pillow_gives_the_same_pixels_in_every_version(resample: str, sha256: str) -> None:
    picture, digest = pictures.noise((301, 199)), hashlib.sha256()
    for size in ((112, 4), (97, 61), (400, 300), (301, 50)):
        for box in ((0, 0, 301, 199), (0, 0, 85, 14), (3.5, 5, 250, 160)):
            digest.update(resize_rows_first(picture, size, resample, box).tobytes())
    assert digest.hexdigest()[:16] == sha256


def test_the_memory_is_freed_before_the_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for the reservation must not begin while the picture before still exists."""
    import gc

    left: list[int] = []

    @contextmanager
    def reserve(_: int):
        yield
        left.append(
            sum(isinstance(item, Image.Image) and item.size == (113, 127) for item in gc.get_objects())
        )

    monkeypatch.setattr(convert, "reserve_working_bytes", reserve)
    data = pictures.file_of(pictures.noise((61, 47)), "JPEG")
    image = convert_image(data, "a.jpg", ConvertSettings(resize="113x127"))
    assert left == [0]
    assert (image.width, image.height, image.channels) == (113, 127, 3)
