"""Finds images by their file names alone, where annotations have paths of another machine.

`C:\\photos\\cat.jpg` and `/home/ann/photos/cat.jpg` both name `cat.jpg`. If exactly one file below the folder
of the images has that name, it is the image.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from shardwright.schemas.image_ref import printable
from shardwright.transforms.sources.image_files import MISSING, files_below

#: Folders of archivers that hold no images of the dataset.
_IGNORED = ("__MACOSX",)
#: Files of a folder that are looked at; in a larger one nothing is found.
_MOST_FILES = 5_000_000


class MovedFile(NamedTuple):
    """What a search by file name found.

    Attributes:
      path: relative to the folder; empty if several files have the name.
      fault: why no file was chosen; empty if one was.
    """

    path: str
    fault: str = ""


def with_slashes(path: str) -> str:
    """Returns a path with the slashes of POSIX instead of those of Windows."""
    return path.replace("\\", "/")


def file_name(path: str) -> str:
    r"""Returns the last part of a path of any machine.

    >>> file_name(r"C:\photos\cat.jpg")
    'cat.jpg'
    """
    return with_slashes(path).rpartition("/")[2]


def find_moved(paths: Iterable[str], folder: str) -> dict[str, MovedFile]:
    """Looks for files by name; lists the folder once, whatever the number of paths.

    Hidden files and folders do not count. Names may differ in their Unicode form. Nothing is found in a
    folder with more than five million files, so that a root such as `/` makes no build wait for hours.

    Args:
      paths: as annotations have them.
      folder: the folder of the images.

    Returns:
      Path as given -> what was found; nothing for a name that no file has.
    """
    wanted: dict[str, list[str]] = {}
    for path in dict.fromkeys(paths):
        if name := _same_form(file_name(path)):
            wanted.setdefault(name, []).append(path)
    if not wanted:
        return {}
    found: dict[str, list[str]] = {}
    for count, (inner, _) in enumerate(files_below(folder)):
        if count == _MOST_FILES:
            return {}
        name = _same_form(inner.rpartition("/")[2])
        if name in wanted and not any(part.startswith(".") or part in _IGNORED for part in inner.split("/")):
            found.setdefault(name, []).append(inner)
    return {path: _choose(found[name]) for name in found for path in wanted[name]}


def _same_form(name: str) -> str:
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def _choose(found: list[str]) -> MovedFile:
    if len(found) == 1:
        return MovedFile(found[0])
    first, second = sorted(found)[:2]
    shown = f"{printable(first)} and {printable(second)}"
    more = f" (and {len(found) - 2} more)" if len(found) > 2 else ""
    return MovedFile("", f"{MISSING}, and its name alone could mean {shown}{more}")
