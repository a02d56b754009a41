"""Finds the Parquet and Arrow files of an input, and their splits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from shardwright.core import storage
from shardwright.core.images.signatures import extension_of, is_image_name
from shardwright.core.sources.containers import ContainerFile
from shardwright.core.sources.image_files import files_below, is_hidden, split_name
from shardwright.core.sources.tables.parquet import ARROW, PARQUET
from shardwright.core.sources.tfrecord.files import split_of
from shardwright.schemas.codes import FilterReason
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable

_EXTENSIONS = {"parquet": PARQUET, "pq": PARQUET, "arrow": ARROW, "feather": ARROW}
#: First bytes of a Parquet file and of an Arrow file; Arrow's stream has none.
_MAGIC = {b"PAR1": PARQUET, b"ARROW1": ARROW}
#: Files with which the datasets library describes what it saves.
_STATE, _DICT = "state.json", "dataset_dict.json"
#: Files beside the data that describe it, or that tools leave there; nobody expects images in them.
_BESIDE = re.compile(
    r"dataset_infos?\.json|state\.json|dataset_dict\.json|readme.*|licen[cs]e.*|.*\.(?:md|lock|crc)|"
    r"_SUCCESS|_(?:common_)?metadata|_committed_.*|_started_.*",
    re.IGNORECASE,
)
#: Results of transformations that the datasets library keeps beside its files.
_CACHE = "cache-"
#: Files of a split on the Hugging Face Hub, whatever the split is called; a number may follow.
_HUB = re.compile(r"(?:.*/)?data/([\w.]+?)-\d{5}-of-\d{5}\Z", re.ASCII)
_HUB_MARK = re.compile(r"(?<=-of-\d{5})-[0-9a-f]{16}\Z", re.ASCII)


class FoundFiles(NamedTuple):
    """The files of an input, also those that are left out, and the number of images beside them."""

    files: list[ContainerFile]
    images: int = 0

    @property
    def read(self) -> list[ContainerFile]:
        """Files that are read."""
        return [file for file in self.files if not file.filtered]


def kind_of_file(name: str, head: bytes = b"") -> str:
    """Returns the kind of a file, by its first bytes or else by its name; empty if it is of no such kind."""
    by_name = _EXTENSIONS.get(extension_of(name), "")
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), by_name)


def files_in(folder: str) -> FoundFiles:
    """Returns the files in a folder and its subfolders.

    Where the datasets library has saved a dataset, its `state.json` names the files.

    Raises:
      UsageError: If a file that it names is missing, or it has a form that cannot be read.
    """
    names = sorted(name for name, _ in files_below(folder))
    splits: dict[str, str] = {}
    saved: set[str] = set()
    for name in names:
        above, _, last = name.rpartition("/")
        if last == _STATE and not is_hidden(name):
            saved.add(above)
            splits.update(_saved(folder, above, set(names)))
    files, images = [], 0
    for name in names:
        above, _, last = name.rpartition("/")
        if name in splits:
            files.append(ContainerFile(name, splits[name]))
        elif is_hidden(name):
            files.append(ContainerFile(name, filtered=FilterReason.DOTFILE))
        elif kind_of_file(last):
            # state.json is complete, so other files in the folder are caches.
            if above not in saved and not last.startswith(_CACHE):
                files.append(ContainerFile(name, split_of_file(name)))
        elif is_image_name(last):
            images += 1
        elif not _BESIDE.fullmatch(last):
            files.append(ContainerFile(name, filtered=FilterReason.NOT_AN_IMAGE))
    return FoundFiles(files, images)


def split_of_file(relative: str) -> str:
    """Returns the split in the name of a file or its folders; empty if they have none.

    >>> split_of_file("data/unsupervised-00000-of-00002.parquet"), split_of_file("en/test/0000.parquet")
    ('unsupervised', 'test')
    """
    stem = _HUB_MARK.sub("", relative.rpartition(".")[0])
    hub = _HUB.match(stem)
    try:
        return split_of(stem) or (split_name(hub[1]) if hub else "")
    except ValueError:
        return ""


def _saved(folder: str, inner: str, names: set[str]) -> Iterator[tuple[str, str]]:
    """Yields (relative path, split) of the files that a `state.json` names."""
    path = storage.join(folder, inner, _STATE) if inner else storage.join(folder, _STATE)
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
    above, slash, name = inner.rpartition("/")
    split = name if name and above + slash + _DICT in names else str(state.get("_split") or "")
    try:
        split = split_name(split)
    except ValueError as error:
        raise UsageError(f"{shown}: {error}; rename the split.") from None
    for item in files:
        file = str(item.get("filename") if isinstance(item, Mapping) else None)
        relative = f"{inner}/{file}" if inner else file
        if relative not in names:
            raise UsageError(f"{shown} names the file {printable(file)!r}, which is missing; copy it too.")
        yield relative, split


def _document(data: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, Mapping) else {}
