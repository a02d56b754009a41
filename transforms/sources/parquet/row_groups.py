"""Reads the rows of Parquet files: where their images are, and their other values."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import IO, Any, NamedTuple

import numpy as np

from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.image_ref import printable
from shardwright.schemas.units import counted
from shardwright.transforms import storage
from shardwright.transforms.images.signatures import kind_of
from shardwright.transforms.sources.content_digest import content_digest
from shardwright.transforms.sources.manifest.parquet import open_parquet, parse_apart, python_values
from shardwright.transforms.sources.parquet.columns import (
    BYTES,
    PATH,
    ImageTable,
    is_image_struct,
    table_of,
)
from shardwright.transforms.sources.parquet.files import PARQUET
from shardwright.transforms.sources.parquet.pages import (
    CODECS,
    ENCODINGS,
    UNCOMPRESSED,
    BadImage,
    Chunk,
    Entry,
    StoredImage,
    column_entries,
)
from shardwright.transforms.sources.spool import Spool
from shardwright.transforms.storage.ranges import RangeReader
from shardwright.transforms.storage.stored_object import StoredObject

#: Smallest number of bytes, or of rows, in a split, except for the last split.
_BYTES_A_PART, _ROWS_A_PART = 32 << 20, 20_000
#: Most rows of a row group; a file that states more is damaged.
_MAX_ROWS = 50_000_000
#: Number of rows whose other values are read at once.
_ROWS_AT_ONCE = 1024
#: Number of rows in which an image is searched, and number of its first bytes that are read.
_ROWS_TRIED, _HEAD_BYTES = 20, 64
#: Bytes in memory at once where pyarrow reads the images.
_BATCH_BYTES = 16 << 20
#: At the end of a spool file: the length of the JSON before it, and a signature.
_FOOTER = struct.Struct("<Q8s")
_SIGN = b"SWrows01"


class GroupImages(NamedTuple):
    """The images of a row group, or of an Arrow file.

    Attributes:
      file: File with their bytes if it is not the file of the rows (a spool file), else empty.
      size: Size of the file with their bytes.
      version: Version of that file; empty for a spool file.
      entries: Where the image of each row is.
    """

    file: str
    size: int
    version: str
    entries: Iterable[Entry]


class StoredRow(NamedTuple):
    """A row of a file.

    Attributes:
      images: Images of its row group.
      entry: Where its image is.
      values: Path of the image, and the values of the other columns.
    """

    images: GroupImages
    entry: Entry
    values: list[Any]


def stored_rows(images: GroupImages, others: Iterator[list[Any]]) -> Iterator[StoredRow]:
    """Yields the rows with some images.

    Args:
      images: Images of the rows.
      others: For each row the path of the image, and the values of the other columns.
    """
    for entry, values in zip(images.entries, others, strict=True):
        yield StoredRow(images, entry, values)


def parquet_table(file: StoredObject, settings: ConvertSettings) -> ImageTable | None:
    """Returns the table of a Parquet file; None if it has no column of images.

    Raises:
      UsageError: If the file is damaged, or does not go with the settings.
    """
    return parse_apart("Parquet", file.path, _table, file, settings)


def _table(file: StoredObject, settings: ConvertSettings) -> ImageTable | None:
    shown = printable(file.path)
    with open_parquet(*file[:3]) as opened:
        schema = opened.schema_arrow
        table = table_of(shown, PARQUET, schema, settings, lambda name: _holds_images(file, opened, name))
        return replace(table, rows=opened.metadata.num_rows) if table else None


def parquet_parts(file: StoredObject, table: ImageTable) -> list[tuple[int, int, int]]:
    """Returns (first row group, end of row groups, number of the first row) of splits.

    Raises:
      UsageError: If the numbers of rows in the file contradict each other.
    """
    return parse_apart("Parquet", file.path, _parts, file, table)


def _parts(file: StoredObject, table: ImageTable) -> list[tuple[int, int, int]]:
    parts = []
    with open_parquet(*file[:3]) as opened:
        begin = first = rows = size = 0
        groups = opened.metadata.num_row_groups
        leaf = _leaf(opened, table.names[0])
        _check_rows(file.path, opened, leaf)
        for group in range(groups):
            described = opened.metadata.row_group(group)
            if not 0 <= described.num_rows <= _MAX_ROWS:
                raise UsageError(
                    f"--input {printable(file.path)}: its row group {group} has "
                    f"{counted(described.num_rows, 'row')}; write it again with smaller row groups."
                )
            rows += described.num_rows
            size += max(described.column(leaf).total_compressed_size, 0)
            if size >= _BYTES_A_PART or rows >= _ROWS_A_PART or group == groups - 1:
                parts.append((begin, group + 1, first))
                begin, first, rows, size = group + 1, first + rows, 0, 0
    return parts


def _check_rows(path: str, opened: Any, leaf: int) -> None:
    """Checks that a footer states the same number of rows everywhere, so that no row is lost."""
    groups = [opened.metadata.row_group(group) for group in range(opened.metadata.num_row_groups)]
    flat = not opened.schema.column(leaf).max_repetition_level
    agree = sum(group.num_rows for group in groups) == opened.metadata.num_rows and all(
        group.column(leaf).num_values == group.num_rows for group in groups if flat
    )
    if not agree:
        raise UsageError(
            f"--input {printable(path)} cannot be read as Parquet (its footer states different numbers of "
            "rows); write it again."
        )


def group_rows(
    file: StoredObject, table: ImageTable, groups: tuple[int, int], spool: Spool, most: int
) -> Iterator[StoredRow]:
    """Yields the rows of some row groups.

    Raises:
      UsageError: If the other columns cannot be read.
      EngineError: If the file has changed since it was listed.
    """
    for group in range(*groups):
        images, columns = parse_apart("Parquet", file.path, _group, file, table, group, spool, most)
        yield from stored_rows(images, map(list, zip(*columns, strict=True)))


def _group(
    file: StoredObject, table: ImageTable, group: int, spool: Spool, most: int
) -> tuple[GroupImages, list[list[Any]]]:
    """Returns the images of a row group, and the columns of the paths and of the other values."""
    with open_parquet(*file[:3]) as opened, RangeReader(*file[:3]) as reader:
        images = _images(file, opened, reader, group, table, spool, most)
        return images._replace(entries=list(images.entries)), _other_columns(opened, group, table)


def _leaf(opened: Any, name: str) -> int:
    """Returns the number of the physical column that has the bytes of images."""
    kind = opened.schema_arrow.field(name).type
    path = f"{name}.{BYTES}" if is_image_struct(kind) else name
    schema = opened.schema
    for number in range(len(schema)):
        if schema.column(number).path == path:
            return number
    raise UsageError(f"its column {printable(name)!r} cannot be read")


def _chunk(opened: Any, group: int, leaf: int, size: int) -> Chunk | None:
    """Returns a column of a row group; None if only pyarrow can read it."""
    described = opened.metadata.row_group(group)
    column, physical = described.column(leaf), opened.schema.column(leaf)
    readable = column.compression in CODECS and ENCODINGS.issuperset(column.encodings)
    if physical.physical_type != "BYTE_ARRAY" or physical.max_repetition_level or column.file_path:
        readable = False
    if not readable:
        return None
    begin = column.data_page_offset
    if column.dictionary_page_offset:
        begin = min(begin, column.dictionary_page_offset)
    end = min(begin + max(column.total_compressed_size, 0), size)
    return Chunk(begin, end, column.compression, physical.max_definition_level, described.num_rows)


def _images(
    file: StoredObject,
    opened: Any,
    reader: RangeReader,
    group: int,
    table: ImageTable,
    spool: Spool,
    most: int,
) -> GroupImages:
    leaf = _leaf(opened, table.names[0])
    chunk = _chunk(opened, group, leaf, file.size)
    if chunk and chunk.codec == UNCOMPRESSED:
        return GroupImages("", file.size, file.version, column_entries(reader, chunk, None, most))

    def entries(out: IO[bytes]) -> Iterator[Entry]:
        if chunk:
            return column_entries(reader, chunk, out, most)
        return _pyarrow_entries(opened, group, leaf, out)

    return spooled_images(spool, file, f"{group}:{leaf}:{most}", entries)


def spooled_images(
    spool: Spool, file: StoredObject, part: str, entries: Callable[[IO[bytes]], Iterator[Entry]]
) -> GroupImages:
    """Returns images in a spool file, which is written if it does not exist.

    Args:
      spool: Directory of spool files.
      file: File of the rows.
      part: What identifies the rows in that file.
      entries: Function that writes the images into an open file, and yields where they are.
    """

    def write(out: IO[bytes]) -> None:
        note = json.dumps([*map(_encoded, entries(out))], separators=(",", ":")).encode()
        out.write(note + _FOOTER.pack(len(note), _SIGN))

    path = spool.fill(f"{file.path}:{file.size}:{file.version}:{part}", file.path, write)
    size = storage.size_of(path)
    return GroupImages(path, size, "", iter(_read_entries(path, size)))


def _encoded(entry: Entry) -> list[Any] | None:
    return None if entry is None else [isinstance(entry, StoredImage), *entry]


def _read_entries(path: str, size: int) -> list[Entry]:
    """Returns the entries at the end of a spool file."""
    with storage.translated_errors("read", path):
        foot = storage.read_range(path, size - _FOOTER.size, _FOOTER.size, size)
        length, sign = _FOOTER.unpack(foot)
        if sign != _SIGN:
            raise ValueError(f"{path} is not a spool file")
        note = json.loads(storage.read_range(path, size - _FOOTER.size - length, length, size))
    return [
        None if item is None else StoredImage(*item[1:]) if item[0] else BadImage(*item[1:]) for item in note
    ]


def _pyarrow_entries(opened: Any, group: int, leaf: int, out: IO[bytes]) -> Iterator[Entry]:
    """Yields the images of a row group that pyarrow reads; after damage, the others are bad images."""
    import pyarrow

    described = opened.metadata.row_group(group)
    rows, done = described.num_rows, 0
    mean = described.column(leaf).total_uncompressed_size // max(rows, 1)
    batches = opened.iter_batches(
        batch_size=min(max(_BATCH_BYTES // max(mean, 1), 1), _ROWS_AT_ONCE),
        row_groups=[group],
        columns=[opened.schema.column(leaf).path],
        use_threads=False,
    )
    message = "the row group ends early"
    try:
        for batch in batches:
            for entry in spool_images(islice(image_values(batch.column(0)), rows - done), out):
                done += 1
                yield entry
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        message = f"its row group cannot be read ({words_of(error)})"
    yield from [BadImage(QuarantineReason.CORRUPT, message)] * (rows - done)


def spool_images(values: Iterable[Any], out: IO[bytes]) -> Iterator[Entry]:
    """Writes images to a spool file, and yields their places; None for missing ones."""
    for value in values:
        if value is None:
            yield None
            continue
        data = memoryview(value)
        place = out.tell()
        out.write(data)
        yield StoredImage(place, len(data), content_digest(data))


def image_values(column: Any) -> Iterator[Any]:
    """Yields the bytes of a column of images as buffers of pyarrow; None for missing ones.

    Buffers are parts of those of the column, so that their addresses tell where they are in a file.
    """
    import pyarrow

    if pyarrow.types.is_struct(column.type):
        place = column.type.get_field_index(BYTES)
        column = column.flatten()[place]  # unlike field(), this respects missing structs
    if isinstance(column.type, pyarrow.DictionaryType):
        images = [*image_values(column.dictionary)]
        for index in column.indices.to_pylist():
            yield None if index is None else images[index]
        return
    if not len(column):
        return
    if not pyarrow.types.is_binary(column.type):
        column = column.cast(pyarrow.large_binary())
    _, offsets, data = column.buffers()
    dtype = np.int64 if pyarrow.types.is_large_binary(column.type) else np.int32
    ends = np.frombuffer(offsets, dtype, column.offset + len(column) + 1)[column.offset :].tolist()
    present = column.is_valid().to_pylist()
    data = data or pyarrow.py_buffer(b"")
    for begin, end, there in zip(ends, ends[1:], present, strict=False):
        yield data.slice(begin, end - begin) if there else None


def _other_columns(opened: Any, group: int, table: ImageTable) -> list[list[Any]]:
    """Returns the paths of the images and the values of the other columns in a row group."""
    image, *others = table.names
    rows = opened.metadata.row_group(group).num_rows
    wanted = list(dict.fromkeys(name for name in others if name))
    leaves = [*wanted, *([f"{image}.{PATH}"] if table.has_path else [])]
    if not leaves:
        return [[None] * rows for _ in table.names]
    batches = opened.iter_batches(
        batch_size=_ROWS_AT_ONCE, row_groups=[group], columns=leaves, use_threads=False
    )
    columns: list[list[Any]] = [[] for _ in table.names]
    for batch in batches:
        for column, values in zip(columns, columns_of_batch(batch, table), strict=True):
            column += values
    if len(columns[0]) != rows:
        raise OSError(f"row group {group} has {counted(len(columns[0]), 'row')} instead of {rows:,}")
    return columns


def columns_of_batch(batch: Any, table: ImageTable) -> list[list[Any]]:
    """Returns the paths of the images and the values of the other columns in a batch."""
    image, *others = table.names
    columns: dict[str, list[Any]] = {"": [None] * batch.num_rows}
    for name in others:
        if name not in columns:
            columns[name] = python_values(batch.column(batch.schema.get_field_index(name)))
    paths = columns[""]
    if table.has_path:
        structs = batch.column(batch.schema.get_field_index(image))
        paths = python_values(structs.flatten()[structs.type.get_field_index(PATH)])
    return [paths, *(columns[name] for name in others)]


def _holds_images(file: StoredObject, opened: Any, name: str) -> bool:
    """Returns whether the first value of a column of bytes is an image."""
    metadata = opened.metadata
    leaf = _leaf(opened, name)
    for group in range(min(metadata.num_row_groups, _ROWS_TRIED)):
        chunk = _chunk(opened, group, leaf, file.size)
        out = io.BytesIO()
        with RangeReader(*file[:3]) as reader:
            if chunk is None:
                entries = _pyarrow_entries(opened, group, leaf, out)
            else:
                direct = chunk.codec == UNCOMPRESSED
                entries = column_entries(reader, chunk, None if direct else out, 0)
            for entry in islice(entries, _ROWS_TRIED):
                if isinstance(entry, StoredImage):
                    in_file = chunk is not None and chunk.codec == UNCOMPRESSED
                    head = reader.read_at(entry.offset, min(entry.length, _HEAD_BYTES)) if in_file else b""
                    head = head or bytes(out.getbuffer()[entry.offset :][: min(entry.length, _HEAD_BYTES)])
                    return kind_of(head) is not None
    return False
