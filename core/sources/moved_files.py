"""Finds images by file name if annotations contain paths of another machine.

`C:\\photos\\cat.jpg` and `/home/ann/photos/cat.jpg` both name `cat.jpg`. If exactly one file below the image
folder has that name, it is the image.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from shardwright.core.sources.image_files import MISSING, files_below
from shardwright.schemas.image_ref import printable

#: Folders that archive tools add; they hold no images of the dataset.
_IGNORED = ("__MACOSX",)
#: Largest number of files in a folder to search; in a larger folder, no file is found.
_MAX_FILES = 5_000_000


class MovedFile(NamedTuple):
    """Result of a search by file name.

    Attributes:
      path: Path relative to the folder; empty if several files have the name.
      fault: Reason why no file was chosen; empty if one was chosen.
    """

    path: str
    fault: str = ""


def with_slashes(path: str) -> str:
    """Returns a path with backslashes replaced by slashes."""
    return path.replace("\\", "/")


def file_name(path: str) -> str:
    r"""Returns the last part of a POSIX or Windows path.

    >>> file_name(r"C:\photos\cat.jpg")
    'cat.jpg'
    """
    return with_slashes(path).rpartition("/")[2]


def find_moved(paths: Iterable[str], folder: str) -> dict[str, MovedFile]:
    """Searches a folder for files by name, listing the folder only once.

    Hidden files and folders are ignored. Names may differ in their Unicode form. The search gives up in a
    folder with more than five million files, so that a root such as `/` does not delay a build for hours.

    Args:
      paths: Paths as written in annotations.
      folder: Folder of the images.

    Returns:
      Mapping of path, as given, to search result. Paths whose name no file has are left out.
    """
    wanted: dict[str, list[str]] = {}
    for path in dict.fromkeys(paths):
        if name := _same_form(file_name(path)):
            wanted.setdefault(name, []).append(path)
    if not wanted:
        return {}
    found: dict[str, list[str]] = {}
    for count, (inner, _) in enumerate(files_below(folder)):
        if count == _MAX_FILES:
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
