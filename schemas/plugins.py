"""The entry points of installed packages, with which they add sources and decoders."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points


@functools.cache
def entry_points_by_group() -> Mapping[str, list[EntryPoint]]:
    """Returns all entry points. They are read once, because each look reads a file of every package."""
    found = entry_points()
    return {group: sorted(found.select(group=group), key=lambda point: point.name) for group in found.groups}


def entry_points_of(group: str) -> list[EntryPoint]:
    """Returns the entry points of a group in the order of their names."""
    return entry_points_by_group().get(group, [])
