"""Finds the Parquet and Arrow files of an input, and their splits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from shardwright.schemas.codes import FilterReason
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.transforms import storage
from shardwright.transforms.images.signatures import is_image_name
from shardwright.transforms.sources.image_files import files_below, split_name
from shardwright.transforms.sources.input_probe import InputProbe
from shardwright.transforms.sources.tfrecord.files import split_of

PARQUET, ARROW = "parquet", "arrow"
SUFFIXES = {".parquet": PARQUET, ".pq": PARQUET, ".arrow": ARROW, ".feather": ARROW}
#: First bytes of a Parquet file and of an Arrow file; Arrow's stream has none.
_MAGIC = {b"PAR1": PARQUET, b"ARROW1": ARROW}
#: Files with which the datasets library describes what it saves.
STATE, DICT = "state.json", "dataset_dict.json"
#: Files beside the data that describe it, or that tools leave there; nobody expects images in them.
_BESIDE = re.compile(
    r"dataset_infos?\.json|state\.json|dataset_dict\.json|readme.*|licen[cs]e.*|.*\.(?:md|lock|crc)|"
    r"_SUCCESS|_(?:common_)?metadata|_committed_.*|_started_.*",
    re.IGNORECASE,
)
#: Results of transformations that the datasets library keeps beside its files.
_CACHE = "cache-"
#: Files of a split on the Hugging Face Hub, whatever the split is called.
_HUB = re.compile(r"(?:.*/)?data/([\w.]+?)-\d{5}-of-\d{5}(?:-[0-9a-f]+)?\Z", re.ASCII)
#: Number of folders to search for detection.
_FOLDERS_LOOKED_INTO = 16
#: Number that the Hub adds to the names of shards.
_HUB_MARK = re.compile(r"(?<=-of-\d{5})-[0-9a-f]{16}\Z", re.ASCII)


class DataFile(NamedTuple):
    """A file of an input.

    Attributes:
      relative: Path relative to the input; its name if it is the input.
      split: Split of its rows; empty if unknown.
      filtered: Reason why the file is not read; empty if it is read.
    """

    relative: str
    split: str = ""
    filtered: str = ""


class FoundFiles(NamedTuple):
    """The files of an input, also those that are left out, and the number of images beside them."""

    files: list[DataFile]
    images: int = 0

    @property
    def read(self) -> list[DataFile]:
        """Files that are read."""
        return [file for file in self.files if not file.filtered]


def kind_of_name(name: str) -> str:
    """Returns the kind of file that a name indicates; empty if it indicates none."""
    dot = name.rfind(".")
    return SUFFIXES.get(name[dot:].lower(), "") if dot >= 0 else ""


def kind_of_file(name: str, head: bytes) -> str:
    """Returns the kind of a file, by its first bytes or else by its name; empty if it is of no such kind."""
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), kind_of_name(name))


def may_hold_files(probe: InputProbe) -> bool:
    """Returns whether such files are in a folder or the first folders below, and no images.

    Only these folders are listed, because inputs of other sources may be large.
    """
    folders, looked = [probe], 0
    while folders and looked < _FOLDERS_LOOKED_INTO:
        folder = folders.pop(0)
        looked += 1
        names = [name for name in folder.files if not name.startswith(".")]
        if any(map(is_image_name, names)):
            return False
        if any(map(kind_of_name, names)):
            return not probe.images_below
        inside = [name for name in folder.folders if not name.startswith(".")][:_FOLDERS_LOOKED_INTO]
        folders += [folder.inside(name) for name in inside]
    return False


def files_in(folder: str) -> FoundFiles:
    """Returns the files in a folder and its subfolders.

    Where the datasets library has saved a dataset, its `state.json` names the files.

    Raises:
      UsageError: If a file that it names is missing, or it has a form that cannot be read.
    """
    names = sorted(name for name, _ in files_below(folder))
    listed = set(names)
    named: dict[str, str] = {}
    saved: set[str] = set()
    for name in names:
        above, _, last = name.rpartition("/")
        if last == STATE and not _is_hidden(name):
            saved.add(above)
            for file, split in _saved(folder, above, listed):
                named[file] = split
    found, images = [], 0
    for name in names:
        above, _, last = name.rpartition("/")
        if name in named:
            found.append(DataFile(name, named[name]))
        elif _is_hidden(name):
            found.append(DataFile(name, filtered=FilterReason.DOTFILE))
        elif kind_of_name(last):
            # state.json is complete, so other files in the folder are caches.
            if above not in saved and not last.startswith(_CACHE):
                found.append(DataFile(name, split_of_file(name)))
        elif is_image_name(last):
            images += 1
        elif not _BESIDE.fullmatch(last):
            found.append(DataFile(name, filtered=FilterReason.NOT_AN_IMAGE))
    return FoundFiles(found, images)


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def split_of_file(relative: str) -> str:
    """Returns the split in the name of a file or its folders; empty if they have none.

    >>> split_of_file("data/unsupervised-00000-of-00002.parquet"), split_of_file("en/test/0000.parquet")
    ('unsupervised', 'test')
    """
    stem = _HUB_MARK.sub("", relative.rpartition(".")[0])
    usual = split_of(stem)
    hub = _HUB.match(stem)
    if usual or not hub:
        return usual
    try:
        return split_name(hub[1])
    except ValueError:
        return ""


def _saved(folder: str, inner: str, listed: set[str]) -> Iterator[tuple[str, str]]:
    """Yields (relative path, split) of the files that a `state.json` names."""
    path = storage.join(folder, inner, STATE) if inner else storage.join(folder, STATE)
    shown = printable(path)
    with storage.translated_errors("read", path):
        state = _document(storage.read_bytes(path))
    files = state.get("_data_files")
    if not isinstance(files, list):
        return  # some other state.json
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise UsageError(
            f"{shown}: its rows are chosen by a separate file of indices; call flatten_indices() and save "
            "the dataset again."
        )
    above, _, name = inner.rpartition("/")
    split = name if (f"{above}/{DICT}" if above else DICT) in listed and inner else state.get("_split")
    try:
        split = split_name(split) if isinstance(split, str) else ""
    except ValueError as error:
        raise UsageError(f"{shown}: {error}; rename the split.") from None
    for item in files:
        file = item.get("filename") if isinstance(item, Mapping) else None
        relative = f"{inner}/{file}" if inner else file
        if not isinstance(file, str) or relative not in listed:
            raise UsageError(
                f"{shown} names the file {printable(str(file))!r}, which is missing; copy it too."
            )
        assert relative is not None
        yield relative, split


def _document(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}
