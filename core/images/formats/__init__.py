"""Image formats: one module for each, with a subclass of `OpenedImage`.

Installed packages add others: entry points in the group `shardwright.decoders`.
"""

from __future__ import annotations

import contextlib
import functools
import io
import struct
from collections.abc import Mapping
from typing import Any

from PIL import Image, ImageFile

from shardwright.core.images.formats.bitmaps import BmpImage, PnmImage
from shardwright.core.images.formats.gif import GifImage
from shardwright.core.images.formats.heif import AvifImage, HeifImage
from shardwright.core.images.formats.jpeg import JpegImage
from shardwright.core.images.formats.jpeg2000 import Jpeg2000Image
from shardwright.core.images.formats.jpeg_xl import JpegXlImage
from shardwright.core.images.formats.opened_image import OpenedImage
from shardwright.core.images.formats.png import PngImage
from shardwright.core.images.formats.tiff import TiffImage
from shardwright.core.images.formats.webp import WebpImage
from shardwright.core.images.signatures import HEAD_BYTES
from shardwright.schemas.errors import EngineError
from shardwright.schemas.plugins import entry_points_of, load_plugin, package_of

GROUP = "shardwright.decoders"
#: Format -> its class. `PluginImage` opens those that other packages add.
FORMATS: Mapping[str, type[OpenedImage]] = {
    image_format.kind: image_format
    for image_format in (
        AvifImage,
        BmpImage,
        GifImage,
        HeifImage,
        JpegImage,
        Jpeg2000Image,
        JpegXlImage,
        PngImage,
        PnmImage,
        TiffImage,
        WebpImage,
    )
}


@functools.cache
def plugin_decoders() -> Mapping[str, Any]:
    """Returns the decoders of installed packages by the name of the format, in the order of the names.

    The object of an entry point is a plugin of Pillow: a subclass of `PIL.ImageFile.ImageFile`. Creating one
    reads the header of a file, and `load` decodes the pixels. Its static method `accept` returns whether a
    file begins like this format; it takes up to 512 bytes.

    Raises:
      EngineError: If one cannot be loaded or is not such a class.
    """
    needed = "a subclass of PIL.ImageFile.ImageFile with a static method accept"
    return {
        point.name: load_plugin(point, "decoder", needed, _is_decoder, EngineError)
        for point in entry_points_of(GROUP)
    }


def _is_decoder(plugin: Any) -> bool:
    is_plugin = isinstance(plugin, type) and issubclass(plugin, ImageFile.ImageFile)
    return is_plugin and callable(getattr(plugin, "accept", None))


def plugin_kind(head: bytes) -> str | None:
    """Returns the name of the first format of another package that a file begins like; None for none.

    Args:
      head: The first bytes of the file.
    """
    for name, decoder in plugin_decoders().items():
        # As Pillow does; the file may be too short.
        with contextlib.suppress(SyntaxError, IndexError, TypeError, struct.error):
            if decoder.accept(head):
                return name
    return None


class PluginImage(OpenedImage):
    """An image in a format of another package."""

    def _read_header(self, max_pixels: int) -> Image.Image:
        self.kind = plugin_kind(self.data[:HEAD_BYTES]) or ""
        image: Image.Image = plugin_decoders()[self.kind](io.BytesIO(self.data))
        return image


def plugin_versions() -> dict[str, str]:
    """Returns the versions of the decoders' packages, which decide bytes, without loading the decoders."""
    return {f"decoder_{point.name}": package_of(point) for point in entry_points_of(GROUP)}
