"""The entry points of installed packages, with which they add sources and decoders."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from shardwright.schemas.errors import ShardwrightError


@functools.cache
def entry_points_of(group: str) -> list[EntryPoint]:
    """Returns the entry points of a group by name.

    Each group is read once, because that reads a file of every package.
    """
    return sorted(entry_points(group=group), key=lambda point: point.name)


def package_of(point: EntryPoint) -> str:
    """Returns the name and the version of the package that has an entry point."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def load_plugin(
    point: EntryPoint, noun: str, needed: str, fits: Callable[[Any], bool], error: type[ShardwrightError]
) -> Any:
    """Returns the object of an entry point.

    Args:
      point: The entry point.
      noun: What the object is, for messages.
      needed: What the object has to be, for messages.
      fits: Returns whether the object is that.
      error: Type of the error.

    Raises:
      ShardwrightError: If the object cannot be loaded, or does not fit.
    """
    where = f"The {noun} {point.name!r} of the package {package_of(point)}"
    try:
        plugin = point.load()
    except Exception as raised:  # the package may raise any
        what = f"{type(raised).__name__}: {raised}"
        raise error(f"{where} cannot be loaded ({what}); fix or remove the package.") from raised
    if not fits(plugin):
        raise error(f"{where} is not {needed}; fix or remove the package.")
    return plugin
