"""Reads the rows of Parquet files, row group by row group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.image_ref import printable
from shardwright.schemas.units import counted
from shardwright.transforms.sources.parquet.columns import (
    BYTES,
    PATH,
    ImageTable,
    is_image_struct,
    table_of,
)
from shardwright.transforms.sources.parquet.files import PARQUET
from shardwright.transforms.sources.parquet.spooled import (
    CopiedRows,
    columns_of_batch,
    copy_images,
    image_values,
    shows_images,
    spooled_rows,
)
from shardwright.transforms.sources.spool import Spool
from shardwright.transforms.sources.tables.parquet import open_parquet, parse_apart
from shardwright.transforms.sources.tables.rows import EmbeddedImage
from shardwright.transforms.storage.stored_object import StoredObject

#: Smallest number of bytes, or of rows, in a split, except for the last split.
_BYTES_A_PART, _ROWS_A_PART = 32 << 20, 20_000
#: Most rows of a row group; a file that states more is damaged.
_MAX_ROWS = 50_000_000
#: Number of rows whose other values are read at once.
_ROWS_AT_ONCE = 1024


def parquet_table(file: StoredObject, settings: ConvertSettings) -> ImageTable | None:
    """Returns the table of a Parquet file; None if it has no column of images.

    Raises:
      UsageError: If the file is damaged, or does not go with the settings.
    """
    return parse_apart("Parquet", file.path, _table, file, settings)


def _table(file: StoredObject, settings: ConvertSettings) -> ImageTable | None:
    with open_parquet(*file[:3]) as opened:

        def holds_images(name: str) -> bool:
            batches = opened.iter_batches(batch_size=1, columns=[name], use_threads=False)
            return shows_images(value for batch in batches for value in image_values(batch.column(0)))

        table = table_of(printable(file.path), PARQUET, opened.schema_arrow, settings, holds_images)
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
        leaf = _leaf(opened, table)
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


def _leaf(opened: Any, table: ImageTable) -> int:
    """Returns the number of the physical column that has the bytes of images."""
    path = _path_of_images(opened, table)
    schema = opened.schema
    for number in range(len(schema)):
        if schema.column(number).path == path:
            return number
    raise OSError(f"its column {printable(table.names[0])!r} has no bytes")


def _path_of_images(opened: Any, table: ImageTable) -> str:
    name = table.names[0]
    return f"{name}.{BYTES}" if is_image_struct(opened.schema_arrow.field(name).type) else name


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


def parquet_rows(
    file: StoredObject, table: ImageTable, groups: tuple[int, int], spool: Spool
) -> Iterator[list[Any]]:
    """Yields the rows of some row groups, with the image or its path as the first value.

    Raises:
      UsageError: If the other columns cannot be read.
      EngineError: If the file has changed since it was listed.
    """
    for group in range(*groups):
        copy = partial(parse_apart, "Parquet", file.path, _copy, file, table, group)
        yield from spooled_rows(spool, file, f"{group}:{table.names[0]}", copy)[0]


def _copy(file: StoredObject, table: ImageTable, group: int, path: str) -> CopiedRows:
    """Returns the rows of a row group, after copying their images into a file."""
    with open_parquet(*file[:3]) as opened:
        images = copy_images(_images(opened, table, group), path, file.size)
        return CopiedRows(images, _other_columns(opened, table, group))


def _images(opened: Any, table: ImageTable, group: int) -> Iterator[bytes | EmbeddedImage | None]:
    """Yields the images of a row group; after damage, the others cannot be read."""
    import pyarrow

    rows, count = opened.metadata.row_group(group).num_rows, 0
    path = _path_of_images(opened, table)
    # Row by row, so that memory is bounded by one page and one image.
    batches = opened.iter_batches(batch_size=1, row_groups=[group], columns=[path], use_threads=False)
    message = "its row group ends early; write its file again"
    try:
        for batch in batches:
            for image in islice(image_values(batch.column(0)), rows - count):
                count += 1
                yield image
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        message = f"its row group cannot be read ({words_of(error).rstrip('.')}); write its file again"
    for _ in range(count, rows):
        yield EmbeddedImage("", reason=QuarantineReason.CORRUPT, message=message)


def _other_columns(opened: Any, table: ImageTable, group: int) -> list[list[Any]]:
    """Returns the paths of the images and the values of the other columns in a row group."""
    image, *others = table.names
    rows = opened.metadata.row_group(group).num_rows
    leaves = list(dict.fromkeys(name for name in others if name))
    leaves += [f"{image}.{PATH}"] if table.has_path else []
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
