"""When an image's own bytes are stored, and that a reader gets what the record states."""

from __future__ import annotations

import io

import numpy as np
import pytest
from helpers import pictures
from helpers.fewer_imports import late
from PIL import Image, features

from shardwright.schemas.errors import ImageFault

tf = late("tensorflow")


RGB = Image.fromarray(pictures.rgb_pixels())
GRAY = RGB.convert("L")
RGBA = RGB.copy()
RGBA.putalpha(Image.fromarray(pictures.alpha_pixels()))
GRAY16 = Image.fromarray(pictures.gray16_pixels())
CMYK = RGB.convert("CMYK")
FRAMES = {"save_all": True, "append_images": [GRAY.convert("RGB")]}
_CLEAR = {"transparency": (255, 0, 0)}
_PROFILE = pictures.icc_profile(pictures.SRGB_PRIMARIES, 1.8)

#: Description -> (file, kept with --color keep / rgb / gray, format when re-encoded)
FILES = {
    "jpeg rgb": (pictures.file_of(RGB, "JPEG"), "keep rgb", "jpg"),
    "jpeg progressive": (pictures.file_of(RGB, "JPEG", progressive=True), "keep rgb", "jpg"),
    "jpeg grey": (pictures.file_of(GRAY, "JPEG"), "keep gray", "jpg"),
    "jpeg 1x1": (pictures.file_of(RGB.resize((1, 1)), "JPEG"), "keep rgb", "jpg"),
    "jpeg 7x200": (pictures.file_of(RGB.resize((7, 200)), "JPEG"), "keep rgb", "jpg"),
    "jpeg upright tag": (pictures.file_of(RGB, "JPEG", exif=b"Exif\0\0garbage"), "keep rgb", "jpg"),
    "jpeg turned": (pictures.file_of(RGB, "JPEG", 6), "", "jpg"),
    "jpeg cmyk": (pictures.file_of(CMYK, "JPEG"), "", "jpg"),
    "jpeg other colours": (pictures.file_of(RGB, "JPEG", icc_profile=_PROFILE), "", "jpg"),
    "png rgb": (pictures.file_of(RGB, "PNG"), "keep rgb", "png"),
    "png grey": (pictures.file_of(GRAY, "PNG"), "keep gray", "png"),
    "png 1 bit": (pictures.file_of(GRAY.convert("1"), "PNG"), "keep gray", "png"),
    "png palette": (pictures.file_of(RGB.quantize(9), "PNG"), "keep rgb", "png"),
    "png 2 bit palette": (pictures.file_of(RGB.quantize(3), "PNG"), "keep rgb", "png"),
    "png palette, clear": (pictures.file_of(RGB.quantize(9), "PNG", transparency=2), "", "png"),
    "png alpha": (pictures.file_of(RGBA, "PNG"), "keep", "png"),
    "png grey alpha": (pictures.file_of(RGBA.convert("LA"), "PNG"), "keep", "png"),
    "png colour key": (pictures.file_of(RGB, "PNG", **_CLEAR), "", "png"),
    "png 16 bit": (pictures.file_of(GRAY16, "PNG"), "", "png"),
    "png 16 bit rgb": (pictures.raw_png((1, 1), 16, 2, [b"\1\2\3\4\5\6"]), "", "png"),
    "png turned": (pictures.file_of(RGB, "PNG", 8), "", "png"),
    "png animated": (pictures.file_of(RGB, "PNG", **FRAMES), "", "png"),
    "webp rgb": (pictures.file_of(RGB, "WEBP"), "keep rgb", "png"),
    "webp alpha": (pictures.file_of(RGBA, "WEBP"), "keep", "png"),
    "webp turned": (pictures.file_of(RGB, "WEBP", 3), "", "png"),
    "webp animated": (pictures.file_of(RGB, "WEBP", **FRAMES), "", "png"),
    "gif": (pictures.file_of(RGB.quantize(9), "GIF"), "", "png"),
    "bmp": (pictures.file_of(RGB, "BMP"), "", "png"),
    "tiff": (pictures.file_of(RGB, "TIFF"), "", "png"),
}
if features.check("avif"):
    FILES["avif"] = (pictures.file_of(RGB, "AVIF"), "", "png")


def _read_by_tensorflow(encoded: bytes, format: str, channels: int) -> np.ndarray:
    if format == "webp":  # the requested number of channels, and a leading axis of frames
        return tf.io.decode_webp(encoded, channels=channels)[0].numpy()
    one = {"jpg": tf.io.decode_jpeg, "png": tf.io.decode_png}[format](encoded).numpy()
    assert np.array_equal(one, tf.io.decode_image(encoded, expand_animations=False).numpy())
    return one


@pytest.mark.parametrize("kind", FILES)
def test_bytes_are_kept_if_and_only_if_nothing_has_to_change(kind: str) -> None:
    data, kept_with, encoded_as = FILES[kind]
    for color in ("keep", "rgb", "gray"):
        image = pictures.convert(data, image_format="keep", color=color)
        assert image.kept == (color in kept_with.split()), color
        if image.kept:
            assert image.encoded is data
        else:
            assert image.format == encoded_as
            assert image.channels == {"rgb": 3, "gray": 1}.get(color, image.channels)
        assert image.animated == (kind.endswith("animated"))
        shape = _read_by_tensorflow(image.encoded, image.format, image.channels).shape
        assert shape == (image.height, image.width, image.channels), color


def test_bytes_are_kept_when_the_size_already_fits() -> None:
    data = pictures.file_of(RGB, "JPEG")
    for fit in ("stretch", "contain", "cover", "fit", "pad"):
        assert pictures.convert(data, image_format="keep", resize="23x17", fit=fit).kept
        assert not pictures.convert(data, image_format="keep", resize="23x18", fit="pad").kept


def test_only_decodable_bytes_are_kept() -> None:
    data = pictures.file_of(RGB.resize((400, 300)), "JPEG")
    for share in (0.5, 0.9, 0.99):
        with pytest.raises(ImageFault) as fault:
            pictures.convert(data[: int(len(data) * share)], image_format="keep")
        assert fault.value.reason == "TRUNCATED"


@pytest.mark.parametrize("stored", ["jpeg", "png", "webp", "raw"])
@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_the_record_states_the_stored_format(stored: str, color: str) -> None:
    image = pictures.convert(FILES["png alpha"][0], image_format=stored, color=color, resize="30x20")
    assert (image.width, image.height) == (30, 20)
    if stored == "raw":
        assert len(image.encoded) == 30 * 20 * image.channels
        return
    assert image.channels == (1 if color == "gray" and stored != "webp" else 3)
    shape = _read_by_tensorflow(image.encoded, image.format, image.channels).shape
    assert shape == (20, 30, image.channels)


def test_kept_pictures_can_lose_their_metadata() -> None:
    out = io.BytesIO()
    exif = Image.Exif()
    exif[271] = "a camera"
    RGB.save(out, "JPEG", exif=exif)
    image = pictures.convert(out.getvalue(), image_format="keep", strip_metadata=True)
    assert image.kept
    assert b"a camera" not in image.encoded
    assert len(image.encoded) < len(out.getvalue())
