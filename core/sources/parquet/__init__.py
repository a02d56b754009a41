"""Parquet and Arrow files with the images inside, as Hugging Face's datasets library writes them.

pyarrow reads the rows once, in parts, and their images are copied into spool files.

Keys are `FILE!000017`, with the number of the row from 0. A row without bytes whose image has a path names an
image file, and is read like a row of a manifest.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from shardwright.core import storage
from shardwright.core.images.signatures import is_image_name
from shardwright.core.sources.containers import (
    ContainerFile,
    filtered_part,
    filtered_refs,
    folders_near,
    keeps_splits,
    path_of,
    state_of,
)
from shardwright.core.sources.image_files import folder_of, key_of
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.parquet.columns import ImageTable, with_class_names
from shardwright.core.sources.parquet.files import FoundFiles, files_in, kind_of_file
from shardwright.core.sources.parquet.rows import rows_of, table_in
from shardwright.core.sources.source import Context, Input, InputSplit, Source
from shardwright.core.sources.tables.columns import ROLES
from shardwright.core.sources.tables.lines import Row
from shardwright.core.sources.tables.parquet import parts_of
from shardwright.core.sources.tables.rows import SETTINGS, Rows
from shardwright.core.storage.store import StoredObject
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.split_order import in_split_order
from shardwright.schemas.units import counted

#: Number of files that are opened before the conversion begins; others are opened when they are listed.
_LOOKED_AT = 16


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    try:
        if not (probe.is_file or _may_hold_files(probe)):
            return False
        found = _files(probe.path, probe.is_file, probe.head)
        if not found.read or found.images:
            return False
        tables = _first_tables(probe.path, probe.is_file, found, settings)
        return next(tables)[1] is not None
    except UsageError:  # `_describe` reports it
        return True
    except (OSError, EngineError):
        return False


def _may_hold_files(probe: InputProbe) -> bool:
    """Returns whether such files are in a folder or the first folders below, and no images.

    Only these folders are listed, because inputs of other sources may be large.
    """
    for folder in folders_near(probe):
        names = [name for name in folder.files if not name.startswith(".")]
        if any(map(is_image_name, names)):
            return False
        if any(map(kind_of_file, names)):
            return not probe.images_below
    return False


def _files(path: str, is_file: bool, head: bytes = b"") -> FoundFiles:
    """Returns the files of an input."""
    if not is_file:
        return files_in(path)
    name = path.rpartition("/")[2]
    return FoundFiles([ContainerFile(name)] if kind_of_file(name, head) else [])


def _first_tables(
    path: str, is_file: bool, found: FoundFiles, settings: ConvertSettings
) -> Iterator[tuple[str, ImageTable | None]]:
    """Yields the path and the table of each of the first files."""
    for file in found.read[:_LOOKED_AT]:
        state = state_of(path_of(path, is_file, file.relative))
        yield state.path, table_in(state, settings)


def _needed(path: str, table: ImageTable | None, settings: ConvertSettings) -> ImageTable:
    """Returns a table.

    Raises:
      UsageError: If there is none.
    """
    if table is not None:
        return table
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
    tables = [
        _needed(path, table, settings)
        for path, table in _first_tables(probe.path, probe.is_file, found, settings)
    ]
    table = next((table for table in tables if table.has_rows), None)
    if table is None:
        raise UsageError(f"{shown} has columns but no rows; add a row for each image.")
    kinds = Counter(kind_of_file(file.relative) or table.kind for file in found.read)
    parts = [" and ".join(counted(count, f"{kind} file") for kind, count in kinds.items())]
    splits = in_split_order({file.split for file in found.read if keeps_splits(settings)} - {""})
    parts += [f"of {', '.join(splits)}"] if splits else []
    beside = f"; {counted(found.images, 'image file')} beside them are read only where a row has their path"
    return f"{' '.join(parts)}: {table.describe(settings)}{beside if found.images else ''}"


def _split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields one input split for each file or some of its row groups, and one for all other files."""
    found = _files(item.path, item.is_file, storage.read_head(item.path, 8) if item.is_file else b"")
    yield from filtered_part(item, item.path, found.files)
    for file in found.read:
        state = state_of(path_of(item.path, item.is_file, file.relative))
        table = _needed(state.path, table_in(state, context.settings), context.settings)
        split = file.split if keeps_splits(context.settings) else ""
        detail = json.dumps([file.relative, split, state, table])
        for begin, end, number in parts_of(table.kind, state):
            yield InputSplit(item, state.path, begin, end, number, detail)


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for every row of a split, and the ids of its classes."""
    if filtered := filtered_refs(part):
        yield from filtered
        return
    relative, split, state, columns = json.loads(part.detail)
    settings, file, table = context.settings, StoredObject(*state), ImageTable(*columns)
    needs = settings.record_layout.needs
    class_names = table.class_names(needs)
    folder, _, name = relative.rpartition("/")
    rows = Rows(
        settings=settings,
        root=settings.image_root or folder_of(part.path),
        prefix=part.item.prefix + (f"{key_of(folder)}/" if folder else ""),
        manifest=part.path,
        shown=name,
        unit="row",
        folder_split=split,
        class_names=() if needs is Needs.OBJECTS else class_names,
        numbers_are_ids=not class_names,
    )
    with storage.translated_errors("read", part.path):
        stored = rows_of(file, table, (part.begin, part.end), context.spool)
        place_of_objects = len(ROLES) + len(settings.parsed_extra_columns)
        yield from rows.refs(_numbered(stored, part.number, table, place_of_objects))
    if needs is not Needs.IMAGE:
        yield from map(ClassId, class_names, range(len(class_names)))


def _numbered(
    rows: Iterator[list[Any]], number: int, table: ImageTable, place_of_objects: int
) -> Iterator[Row]:
    """Yields the number and the values of each row, with objects that have names of classes."""
    for row, values in enumerate(rows, number):
        if len(values) > place_of_objects:
            values[place_of_objects] = with_class_names(values[place_of_objects], table.object_classes)
        yield row, values


SOURCE = Source(
    name="parquet",
    provides=frozenset({Needs.LABEL, Needs.OBJECTS, Needs.IMAGE}),
    settings=SETTINGS,
    accepts=_accepts,
    describe=_describe,
    list_part=list_part,
    split=_split,
)
