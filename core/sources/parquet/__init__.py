"""Parquet and Arrow files with the images inside, as Hugging Face's datasets library writes them.

pyarrow reads the rows once, in parts, and their images are copied into spool files.

Keys are `FILE!000017`, with the number of the row from 0. A row without bytes whose image has a path names an
image file, and is read like a row of a manifest.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from shardwright.core import storage
from shardwright.core.images.signatures import is_image_name
from shardwright.core.sources import containers
from shardwright.core.sources.containers import ContainerFile
from shardwright.core.sources.image_files import files_below, folder_of, is_hidden, key_of, split_name
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.parquet.rows import ImageTable, rows_of, table_in
from shardwright.core.sources.source import Context, Input, InputSplit, Source
from shardwright.core.sources.tables.parquet import HEAD_BYTES, kind_of_file, parts_of
from shardwright.core.sources.tables.rows import SETTINGS, Rows
from shardwright.core.sources.tfrecord.files import split_of
from shardwright.core.storage.store import StoredObject
from shardwright.schemas.codes import FilterReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.split_order import in_split_order
from shardwright.schemas.units import counted

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
#: Files of a split on the Hugging Face Hub, which may have any name; a number may follow.
_HUB = re.compile(r"(?:.*/)?data/([\w.]+?)-\d{5}-of-\d{5}\Z", re.ASCII)
_HUB_MARK = re.compile(r"(?<=-of-\d{5})-[0-9a-f]{16}\Z", re.ASCII)
#: Number of files that are opened before the conversion begins; others are opened when they are listed.
_LOOKED_AT = 16


class FoundFiles(NamedTuple):
    """The files of an input, also those that are left out, and the number of images beside them."""

    files: list[ContainerFile]
    images: int = 0

    @property
    def read(self) -> list[ContainerFile]:
        """Files that are read."""
        return [file for file in self.files if not file.filtered]


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    try:
        if not (probe.is_file or _may_hold_files(probe)):
            return False
        found = _files(probe.path, probe.is_file, probe.head)
        if not found.read or found.images:
            return False
        first = containers.path_of(probe.path, probe.is_file, found.read[0].relative)
        return table_in(containers.state_of(first), settings) is not None
    except UsageError:  # `_describe` reports it
        return True
    except (OSError, EngineError):
        return False


def _may_hold_files(probe: InputProbe) -> bool:
    """Returns whether such files are in a folder or the first folders below, and no images.

    Only these folders are listed, because inputs of other sources may be large.
    """
    for folder in probe.folders_near():
        names = [name for name in folder.files if not name.startswith(".")]
        if any(map(is_image_name, names)):
            return False
        if any(map(kind_of_file, names)):
            return not probe.images_below
    return False


def _table(path: str, settings: ConvertSettings) -> tuple[StoredObject, ImageTable]:
    """Returns the state and the table of a file.

    Raises:
      UsageError: If it has no table with images.
    """
    state = containers.state_of(path)
    table = table_in(state, settings)
    if table is not None:
        return state, table
    named = f"column {printable(settings.image_column)!r}" if settings.image_column else "column"
    raise UsageError(
        f"--input {printable(path)} has no {named} of images (bytes, or a struct of bytes and path); name "
        "the column with --image_column, or choose --source manifest if its rows have paths."
    )


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    shown = f"--input {printable(probe.path)}"
    found = _files(probe.path, probe.is_file, probe.head)
    if not found.read:
        raise UsageError(f"{shown} has no Parquet or Arrow files; check the path.")
    first = [containers.path_of(probe.path, probe.is_file, file.relative) for file in found.read[:_LOOKED_AT]]
    tables = [_table(path, settings)[1] for path in first]
    kinds = Counter(kind_of_file(file.relative) or tables[0].kind for file in found.read)
    parts = [" and ".join(counted(count, f"{kind} file") for kind, count in kinds.items())]
    splits = in_split_order({file.split for file in found.read if containers.keeps_splits(settings)} - {""})
    parts += [f"of {', '.join(splits)}"] if splits else []
    beside = f"; {counted(found.images, 'image file')} beside them are read only where a row has their path"
    return f"{' '.join(parts)}: {tables[0].describe(settings)}{beside if found.images else ''}"


def _split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields one input split for each file or some of its row groups, and one for all other files."""
    found = _files(item.path, item.is_file, storage.read_head(item.path, HEAD_BYTES) if item.is_file else b"")
    yield from containers.filtered_part(item, item.path, found.files)
    for file in found.read:
        path = containers.path_of(item.path, item.is_file, file.relative)
        state, table = _table(path, context.settings)
        split = file.split if containers.keeps_splits(context.settings) else ""
        detail = json.dumps([file.relative, split, state, table])
        for begin, end, number in parts_of(table.kind, state):
            yield InputSplit(item, state.path, begin, end, number, detail)


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for every row of a split, and the ids of its classes."""
    if filtered := containers.filtered_refs(part):
        yield from filtered
        return
    relative, split, state, columns = json.loads(part.detail)
    settings, file, table = context.settings, StoredObject(*state), ImageTable(*columns)
    folder, _, _ = relative.rpartition("/")
    rows = Rows(
        settings=settings,
        names=table.names,
        root=settings.image_root or folder_of(part.path),
        prefix=part.item.prefix + (f"{key_of(folder)}/" if folder else ""),
        manifest=part.path,
        unit="row",
        folder_split=split,
        class_names=table.classes,
    )
    with storage.translated_errors("read", part.path):
        stored = rows_of(file, table, (part.begin, part.end), settings, context.spool)
        yield from rows.refs(enumerate(stored, part.number))
    yield from map(ClassId, table.classes, range(len(table.classes)))


def _files(path: str, is_file: bool, head: bytes) -> FoundFiles:
    """Returns the file that is the input, or the files in the folder and its subfolders.

    Where the datasets library has saved a dataset, its `state.json` names the files.

    Raises:
      UsageError: If a file that it names is missing, or it has a form that cannot be read.
    """
    if is_file:
        name = path.rpartition("/")[2]
        return FoundFiles([ContainerFile(name)] if kind_of_file(name, head) else [])
    names = sorted(name for name, _ in files_below(path))
    splits: dict[str, str] = {}
    saved: set[str] = set()
    for name in names:
        above, _, last = name.rpartition("/")
        if last == _STATE and not is_hidden(name):
            saved.add(above)
            splits.update(_saved(path, above, set(names)))
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
        data = storage.read_bytes(path)
    try:
        state = json.loads(data)
    except (ValueError, RecursionError):
        return
    files = state.get("_data_files") if isinstance(state, Mapping) else None
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


SOURCE = Source(
    name="parquet",
    provides=frozenset({Needs.LABEL, Needs.OBJECTS, Needs.IMAGE}),
    settings=SETTINGS,
    accepts=_accepts,
    describe=_describe,
    list_part=list_part,
    split=_split,
)
