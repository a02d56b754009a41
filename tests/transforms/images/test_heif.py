"""HEIF: pixels, orientation, and files that are damaged or lie about themselves."""

from __future__ import annotations

import struct
import sys

import numpy as np
import pytest
from helpers import iso_files, pictures
from PIL import Image, ImageCms

from shardwright.schemas.errors import ImageFault
from shardwright.transforms.images.decode import load, open_image

pytest.importorskip("pillow_heif", reason="the extra heif is not installed")

RGB = Image.fromarray(pictures.rgb_pixels(200, 140))
GRAY = RGB.convert("L")
WHOLE, TILED = iso_files.heif_of(RGB, quality=95), iso_files.heif_of(RGB, quality=95, tile_size=64)


def _fault(data: bytes, **settings: object) -> ImageFault:
    with pytest.raises(ImageFault) as fault:
        pictures.convert(data, "IMG_0001.HEIC", **settings)
    return fault.value


def _difference(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.sqrt(np.mean((one.astype(float) - other) ** 2)))


@pytest.mark.parametrize("data", [WHOLE, TILED])
def test_pixels_are_close_to_the_source(data: bytes) -> None:
    assert _difference(pictures.to_png(data, "a.heic"), np.asarray(RGB)) < 12
    lossless = iso_files.heif_of(GRAY, quality=-1)
    assert _difference(pictures.to_png(lossless, color="gray").squeeze(), np.asarray(GRAY)) < 1


def test_alpha_is_flattened() -> None:
    clear = RGB.copy()
    clear.putalpha(Image.new("L", RGB.size, 0))
    found = pictures.to_png(iso_files.heif_of(clear, quality=95), "a.heic", background="#102030")
    assert _difference(found, np.broadcast_to((16, 32, 48), found.shape)) < 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_libheif_applies_the_orientation_once(orientation: int) -> None:
    stored = Image.fromarray(pictures.stored(np.asarray(RGB), orientation))
    data = iso_files.heif_of(stored, orientation, quality=95)
    assert (b"irot" in data or b"imir" in data) == (orientation != 1)
    found = pictures.to_png(data, "a.heic")
    assert found.shape == (RGB.height, RGB.width, 3)
    assert _difference(found, np.asarray(RGB)) < 12


def test_the_orientation_in_exif_alone_does_not_count() -> None:
    turned = iso_files.heif_of(RGB, 6, quality=95)
    unturned = turned.replace(b"irot", b"free")
    assert pictures.to_png(turned).shape == (200, 140, 3)
    assert pictures.to_png(unturned).shape == (140, 200, 3)


def test_an_icc_profile_is_applied() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    swapped = profile.replace(b"rXYZ", b"tmpX", 1).replace(b"bXYZ", b"rXYZ", 1).replace(b"tmpX", b"bXYZ", 1)
    found = pictures.to_png(iso_files.heif_of(RGB, quality=95, icc_profile=swapped))
    assert _difference(found, np.asarray(RGB)[..., ::-1]) < 14


@pytest.mark.parametrize("data", [WHOLE, TILED])
def test_a_file_that_ends_early_is_truncated(data: bytes) -> None:
    for sixteenth in range(1, 16):
        assert _fault(data[: len(data) * sixteenth // 16]).reason == "TRUNCATED"
    assert _fault(data[:-1]).reason == "TRUNCATED"


@pytest.mark.parametrize("data", [WHOLE, TILED])
def test_zeros_instead_of_data_are_damage(data: bytes) -> None:
    middle = (data.index(b"mdat") + len(data)) // 2
    assert _fault(data[:middle] + bytes(len(data) - middle)).reason == "CORRUPT"


def test_a_frame_that_is_larger_than_its_item_is_refused() -> None:
    large = iso_files.heif_of(Image.new("RGB", (640, 640)))
    size = struct.pack(">II", 640, 640)
    assert large.count(size) == 1
    fault = _fault(large.replace(size, struct.pack(">II", 64, 64)))
    assert fault.reason == "CORRUPT"
    assert "an image of 64 x 64 pixels has a frame with 640 x 640 pixels" in fault.message


def test_a_header_of_absurd_size_is_refused_before_decoding() -> None:
    size = struct.pack(">II", *RGB.size)
    assert _fault(WHOLE.replace(size, struct.pack(">II", 60_000, 60_000))).reason == "TOO_MANY_PIXELS"
    assert _fault(TILED, max_pixels=1000).reason == "TOO_MANY_PIXELS"


def test_a_tile_that_is_used_too_often_is_refused() -> None:
    at = TILED.index(b"dimg") + 4
    wide = 2  # of the number of an item
    count = int.from_bytes(TILED[at + wide : at + wide + 2], "big")
    assert count == 12
    huge = TILED.replace(struct.pack(">II", 64, 64), struct.pack(">II", 2048, 2048))
    fault = _fault(huge)
    assert fault.reason == "TOO_MANY_TILES" and "times its pixels" in fault.message


def test_a_list_of_tiles_with_a_gap_is_refused() -> None:
    grid = TILED.index(b"dimg")
    rows = bytes((0, 0, 2, 3)) + struct.pack(">HH", *RGB.size)
    assert rows in TILED and grid
    assert _fault(TILED.replace(rows, bytes((0, 0, 1, 3)) + rows[4:])).reason == "CORRUPT"


def test_originals_become_png_when_kept() -> None:
    kept = pictures.convert(WHOLE, "a.heic", image_format="keep", strip_metadata=True)
    assert (kept.format, kept.kept, b"Exif" in kept.encoded) == ("png", False, False)


def test_without_the_extra_the_message_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setitem(sys.modules, "pillow_heif.as_plugin", None)
    fault = _fault(WHOLE)
    assert fault.reason == "UNSUPPORTED_FORMAT"
    assert "pip install 'shardwright[heif]'" in fault.message


def test_the_image_is_not_decoded_when_it_is_opened() -> None:
    opened = open_image(TILED, "a", 1 << 22)
    assert (opened.size, opened.orientation, opened.animated) == (RGB.size, 1, False)
    assert load(opened, 1 << 22).size == RGB.size
