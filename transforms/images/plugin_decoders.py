"""Decoders that installed packages add (entry points in the group `shardwright.decoders`)."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from typing import NamedTuple

from PIL import Image, ImageFile

from shardwright.schemas.errors import EngineError
from shardwright.schemas.plugins import entry_points_by_group, entry_points_of

GROUP = "shardwright.decoders"


class PluginDecoder(NamedTuple):
    """A decoder of another package.

    Attributes:
      plugin: a plugin of Pillow. Creating it reads the header of a file, and `load` decodes the pixels.
      accept: returns whether a file begins like this format; takes up to 512 bytes.
    """

    plugin: type[ImageFile.ImageFile]
    accept: Callable[[bytes], bool]


@functools.cache
def plugin_decoders() -> Mapping[str, PluginDecoder]:
    """Returns the decoders of installed packages by the name of the format, in the order of the names.

    The object of an entry point is a subclass of `PIL.ImageFile.ImageFile` with a static method `accept`.

    Raises:
      EngineError: if one cannot be loaded or is no such class.
    """
    return {point.name: _load(point) for point in entry_points_of(GROUP)}


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _load(point: EntryPoint) -> PluginDecoder:
    where = f"The decoder {point.name!r} of the package {_package(point)}"
    try:
        plugin = point.load()
    except Exception as error:  # whatever the package does
        what = f"{type(error).__name__}: {error}"
        raise EngineError(f"{where} cannot be loaded ({what}); mend or remove the package.") from error
    accept = getattr(plugin, "accept", None)
    if not isinstance(plugin, type) or not issubclass(plugin, ImageFile.ImageFile) or not callable(accept):
        raise EngineError(
            f"{where} is not a subclass of PIL.ImageFile.ImageFile with a static method accept; mend or "
            "remove the package."
        )
    return PluginDecoder(plugin, accept)


def forget_plugins() -> None:
    """Looks for packages again at the next call."""
    entry_points_by_group.cache_clear()
    plugin_decoders.cache_clear()


def plugin_kind(head: bytes) -> str | None:
    """Returns the name of the first format of another package that a file begins like; None for none.

    Args:
      head: the first bytes of the file.
    """
    return next((name for name, found in plugin_decoders().items() if found.accept(head)), None)


def open_with_plugin(data: bytes, kind: str) -> Image.Image:
    """Reads the header of a file with the decoder of another package.

    Raises:
      Exception: whatever the decoder raises.
    """
    return plugin_decoders()[kind].plugin(io.BytesIO(data))


def plugin_versions() -> dict[str, str]:
    """Returns the versions of the decoders' packages, which decide bytes, without loading the decoders."""
    return {f"decoder_{point.name}": _package(point) for point in entry_points_of(GROUP)}
