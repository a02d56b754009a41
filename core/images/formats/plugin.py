"""Decoders that installed packages add (entry points in the group `shardwright.decoders`)."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from typing import Any, NamedTuple

from PIL import Image, ImageFile

from shardwright.core.images.formats.opened_image import OpenedImage
from shardwright.core.images.signatures import HEAD_BYTES
from shardwright.schemas.errors import EngineError
from shardwright.schemas.plugins import entry_points_of, load_plugin, package_of

GROUP = "shardwright.decoders"


class PluginDecoder(NamedTuple):
    """A decoder of another package.

    Attributes:
      plugin: A plugin of Pillow. Creating it reads the header of a file, and `load` decodes the pixels.
      accept: Returns whether a file begins like this format; takes up to 512 bytes.
    """

    plugin: type[ImageFile.ImageFile]
    accept: Callable[[bytes], bool]


@functools.cache
def plugin_decoders() -> Mapping[str, PluginDecoder]:
    """Returns the decoders of installed packages by the name of the format, in the order of the names.

    The object of an entry point is a subclass of `PIL.ImageFile.ImageFile` with a static method `accept`.

    Raises:
      EngineError: If one cannot be loaded or is not such a class.
    """
    return {point.name: _load(point) for point in entry_points_of(GROUP)}


def _load(point: EntryPoint) -> PluginDecoder:
    needed = "a subclass of PIL.ImageFile.ImageFile with a static method accept"
    plugin = load_plugin(point, "decoder", needed, _is_decoder, EngineError)
    return PluginDecoder(plugin, plugin.accept)


def _is_decoder(plugin: Any) -> bool:
    is_plugin = isinstance(plugin, type) and issubclass(plugin, ImageFile.ImageFile)
    return is_plugin and callable(getattr(plugin, "accept", None))


def plugin_kind(head: bytes) -> str | None:
    """Returns the name of the first format of another package that a file begins like; None for none.

    Args:
      head: The first bytes of the file.
    """
    return next((name for name, decoder in plugin_decoders().items() if decoder.accept(head)), None)


class PluginImage(OpenedImage):
    """An image in a format of another package."""

    def _read_header(self, max_pixels: int) -> Image.Image:
        self.kind = plugin_kind(self.data[:HEAD_BYTES]) or ""
        return plugin_decoders()[self.kind].plugin(io.BytesIO(self.data))


def plugin_versions() -> dict[str, str]:
    """Returns the versions of the decoders' packages, which decide bytes, without loading the decoders."""
    return {f"decoder_{point.name}": package_of(point) for point in entry_points_of(GROUP)}
