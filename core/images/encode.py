"""Encodes pixels in the stored format."""

from __future__ import annotations

import functools
import io
import zlib
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import PIL
from PIL import Image, features

from shardwright.core.images.formats import plugin_versions
from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_formats import MAX_STORED_SIDE

#: Name of the version of the decoder of HEIF in `dataset.json`.
HEIF_DECODER = "pillow_heif"


@functools.cache
def installed_version(package: str) -> str:
    """Returns the version of a package, empty if it is not installed; reading it takes milliseconds."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def codec_versions() -> dict[str, str]:
    """Returns the versions of the libraries that determine the stored bytes."""
    names = {
        "libjpeg": "jpg",
        "libjpeg_turbo": "libjpeg_turbo",
        "libwebp": "webp",
        "libtiff": "libtiff",
        "libavif": "avif",
        "littlecms": "littlecms2",
        "zlib": "zlib",
        "zlib_ng": "zlib_ng",
    }
    return {
        "codec": "pillow",
        "pillow": PIL.__version__,
        "cykooz_resizer": installed_version("cykooz-resizer"),
        "imagecodecs": installed_version("imagecodecs"),
        "simplejpeg": installed_version("simplejpeg"),
        **{name: str(found) for name, feature in names.items() if (found := features.version(feature))},
        "python_zlib": zlib.ZLIB_RUNTIME_VERSION,
        **plugin_versions(),
    }


def decoder_versions() -> dict[str, str]:
    """Returns the versions of decoders that only some installations have, and only some formats need.

    Only the images that are named like such a format depend on them, so installing or upgrading one rebuilds
    nothing else.
    """
    version = installed_version("pillow-heif")
    return {HEIF_DECODER: version} if version else {}


def encode_image(image: Image.Image, stored_format: str, quality: int) -> bytes:
    """Encodes an RGB or gray picture without any metadata.

    Args:
      image: Picture in mode RGB or L.
      stored_format: jpeg (baseline, 4:2:0), png, webp (lossy) or raw (rows of uint8 HxWxC).
      quality: Quality of JPEG and WebP, 1 to 100.

    Raises:
      ImageFault: If the format cannot hold a picture of that size.
    """
    if stored_format == "raw":
        return image.tobytes()
    side = MAX_STORED_SIDE.get(stored_format)
    if side and max(image.size) > side:
        raise ImageFault(
            QuarantineReason.TOO_MANY_PIXELS,
            Stage.ENCODE,
            f"{image.width} x {image.height} pixels: {stored_format} holds at most {side} a side",
        )
    options: dict[str, Any] = {}
    if stored_format in ("jpeg", "webp"):
        options["quality"] = quality
    if stored_format == "jpeg":
        options |= {"subsampling": "4:2:0", "comment": b""}
    out = io.BytesIO()
    image.save(out, stored_format, exif=b"", icc_profile=None, **options)
    return out.getvalue()
