"""Parquet and Arrow files with the images inside, as Hugging Face's datasets library writes them.

pyarrow reads the rows once, row group by row group, and their images are copied into spool files.

Keys are `FILE!000017`, with the number of the row from 0. A row without bytes whose image has a path names an
image file, and is read like a row of a manifest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.image_ref import ImageRef, key_from_bytes, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.split_order import in_split_order
from shardwright.schemas.units import counted
from shardwright.transforms import storage
from shardwright.transforms.sources.image_files import folder_of
from shardwright.transforms.sources.input_probe import InputProbe
from shardwright.transforms.sources.parquet.arrow_files import arrow_rows, arrow_table
from shardwright.transforms.sources.parquet.columns import ColumnFault, ImageTable, with_class_names
from shardwright.transforms.sources.parquet.files import (
    ARROW,
    PARQUET,
    DataFile,
    FoundFiles,
    files_in,
    kind_of_file,
    may_hold_files,
)
from shardwright.transforms.sources.parquet.row_groups import parquet_parts, parquet_rows, parquet_table
from shardwright.transforms.sources.source import Context, Input, InputSplit, Source
from shardwright.transforms.sources.tables.columns import OBJECTS, ROLES
from shardwright.transforms.sources.tables.lines import Row
from shardwright.transforms.sources.tables.rows import SETTINGS, Rows
from shardwright.transforms.storage.stored_object import StoredObject

_OTHERS = "others"
#: Number of files that are opened before the conversion begins; others are opened when they are listed.
_LOOKED_AT = 16
_KINDS = {PARQUET: "Parquet", ARROW: "Arrow"}


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    try:
        if not (probe.is_file or may_hold_files(probe)):
            return False
        found = _files(probe)
        if not found.read or found.images:
            return False
        return _first_table(probe, found, settings) is not None
    except ColumnFault:
        return True
    except UsageError:
        # `_describe` reports the fault, unless the rows may have paths, which a manifest can have.
        return _is_certain(probe)
    except (OSError, EngineError):
        return False


def _is_certain(probe: InputProbe) -> bool:
    """Returns whether an input can only be of this source: it has Arrow files, or files in subfolders."""
    try:
        found = _files(probe).read
    except UsageError:
        return True
    return any(kind_of_file(file.relative, b"") == ARROW or "/" in file.relative for file in found)


def _files(probe: InputProbe) -> FoundFiles:
    """Returns the files of an input."""
    if probe.is_file:
        kind = kind_of_file(probe.name, probe.head)
        return FoundFiles([DataFile(probe.name)] if kind else [])
    return files_in(probe.path)


def _path(probe_path: str, is_file: bool, file: DataFile) -> str:
    return probe_path if is_file else storage.join(probe_path, file.relative)


def _first_table(probe: InputProbe, found: FoundFiles, settings: ConvertSettings) -> ImageTable | None:
    """Returns the table of the first file that has rows; None if the first file has no column of images."""
    table = None
    for file in found.read[:_LOOKED_AT]:
        table = load_table(_stat(_path(probe.path, probe.is_file, file)), settings)
        if table is None or table.rows:
            return table
    return table


def load_table(file: StoredObject, settings: ConvertSettings) -> ImageTable | None:
    """Returns the table of a file; None if it has no column of images.

    Raises:
      UsageError: If the file is damaged, or does not go with the settings.
    """
    with storage.translated_errors("read", file.path):
        if not file.size:
            raise UsageError(f"--input {printable(file.path)} is empty; write it again or remove it.")
        head = storage.read_range(file.path, 0, 8, file.size, file.version)
        kind = kind_of_file(file.path.rpartition("/")[2], head)
        return arrow_table(file, settings) if kind == ARROW else parquet_table(file, settings)


def _stat(path: str) -> StoredObject:
    with storage.translated_errors("look for", path):
        found = storage.stat(path)
    if found is None:
        raise UsageError(f"--input {printable(path)} does not exist any more; check the path.")
    return found


def _images_missing(path: str, settings: ConvertSettings) -> UsageError:
    named = f"column {printable(settings.image_column)!r}" if settings.image_column else "column"
    return UsageError(
        f"--input {printable(path)} has no {named} of images (bytes, or a struct of bytes and path); name "
        "the column with --image_column, or choose --source manifest if its rows have paths."
    )


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    found = _files(probe)
    if not found.read:
        raise UsageError(f"--input {printable(probe.path)} has no Parquet or Arrow files; check the path.")
    table: ImageTable | None = None
    kinds: dict[str, int] = {}
    for number, file in enumerate(found.read):
        if number < _LOOKED_AT:
            path = _path(probe.path, probe.is_file, file)
            this = load_table(_stat(path), settings)
            if this is None:
                raise _images_missing(path, settings)
            table = table if table and table.rows else this
        kind = _KINDS[table.kind if probe.is_file and table else kind_of_file(file.relative, b"")]
        kinds[kind] = kinds.get(kind, 0) + 1
    assert table is not None
    if not table.rows:
        raise UsageError(
            f"--input {printable(probe.path)} has columns but no rows; add a row for each image."
        )
    files = " and ".join(counted(count, f"{kind} file") for kind, count in kinds.items())
    taken = [f"images in {table.names[0]!r}"]
    if table.names[1] and settings.record_layout.needs is not Needs.IMAGE:
        names = f" ({counted(len(table.classes), 'name')})" if table.classes else ""
        taken.append(f"classes in {table.names[1]!r}{names}")
    what = ("splits", "groups", "checksums")
    taken += [f"{noun} in {name!r}" for noun, name in zip(what, table.names[2:5]) if name]
    taken += [f"objects in {OBJECTS!r}"] if OBJECTS in table.names[len(ROLES) :] else []
    splits = in_split_order({_split_of(file, settings) for file in found.read} - {""})
    of_splits = f" of {', '.join(splits)}" if splits else ""
    beside = ""
    if found.images:
        beside = (
            f"; {counted(found.images, 'image file')} beside them are read only where a row has their path"
        )
    return f"{files}{of_splits}: {', '.join(taken)}{beside}"


def _split_of(file: DataFile, settings: ConvertSettings) -> str:
    """Returns the split of a file's rows, unless the user chose other splits."""
    return file.split if settings.splits == ConvertSettings.splits else ""


def _split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields one input split for each file or some of its row groups, and one for all other files."""
    settings = context.settings
    probe = InputProbe(item.path, item.is_file)
    found = _files(probe)
    others = [file for file in found.files if file.filtered]
    if others:
        yield InputSplit(item, item.path, detail=json.dumps([_OTHERS, others]))
    for file in found.read:
        state = _stat(_path(item.path, item.is_file, file))
        table = load_table(state, settings)
        if table is None:
            raise _images_missing(state.path, settings)
        if not table.rows:
            continue
        detail = json.dumps([file.relative, _split_of(file, settings), state, table.encode()])
        if table.kind == ARROW:
            yield InputSplit(item, state.path, number=0, detail=detail)
            continue
        with storage.translated_errors("read", state.path):
            for begin, end, number in parquet_parts(state, table):
                yield InputSplit(item, state.path, begin, end, number, detail)


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for every row of a split, and the ids of its classes."""
    relative, *rest = json.loads(part.detail)
    if relative == _OTHERS and len(rest) == 1:
        for name, _, reason in rest[0]:
            yield ImageRef(part.item.prefix + _key(name), storage.join(part.path, name)).filtered(reason)
        return
    split, state, encoded = rest
    settings, file, table = context.settings, StoredObject(*state), ImageTable.decode(encoded)
    needs = settings.record_layout.needs
    about_objects = needs is Needs.OBJECTS
    own_names = table.object_classes if about_objects else {"": table.classes} if table.classes else None
    inner = relative.rpartition("/")[0]
    rows = Rows(
        settings=settings,
        root=settings.image_root or folder_of(part.path),
        prefix=part.item.prefix + (f"{_key(inner)}/" if inner else ""),
        manifest=part.path,
        shown=relative.rpartition("/")[2],
        unit="row",
        folder_split=split,
        class_names=() if about_objects else table.classes,
        numbers_are_ids=not own_names,
    )
    with storage.translated_errors("read", part.path):
        if table.kind == ARROW:
            stored = arrow_rows(file, table, context.spool)
        else:
            stored = parquet_rows(file, table, (part.begin, part.end), context.spool)
        place_of_objects = len(ROLES) + len(settings.parsed_extra_columns)
        yield from rows.refs(_numbered(stored, part.number, table, place_of_objects))
    if own_names and needs is not Needs.IMAGE:
        yield from map(ClassId, *_first_names(own_names))


def _first_names(own_names: Any) -> tuple[tuple[str, ...], range]:
    names = next(iter(own_names.values()))
    return names, range(len(names))


def _key(name: str) -> str:
    return key_from_bytes(os.fsencode(name))


def _numbered(
    rows: Iterator[list[Any]], number: int, table: ImageTable, place_of_objects: int
) -> Iterator[Row]:
    """Yields the number and the values of each row, with objects that have names of classes."""
    for row, values in enumerate(rows, number):
        if table.object_classes and len(values) > place_of_objects:
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
