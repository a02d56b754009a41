"""Reads Parquet manifests with pyarrow: row groups in parallel, and only the needed columns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.image_ref import printable
from shardwright.transforms.images.signatures import kind_of
from shardwright.transforms.sources.manifest.columns import (
    OBJECTS,
    PARQUET,
    Table,
    choose_columns,
    names_shown,
)
from shardwright.transforms.sources.manifest.lines import Row
from shardwright.transforms.storage.ranges import RangeReader, file_of

#: Smallest number of rows in a split, except for the last split.
_ROWS_A_PART = 100_000
_ROWS_AT_ONCE = 4096
#: Number of bytes to read at once from a column. Without it, pyarrow reads a row group's column as a whole.
_BUFFER = 1 << 20


@contextlib.contextmanager
def open_parquet(path: str, size: int, version: str) -> Iterator[Any]:
    """Opens a Parquet file.

    Raises:
      UsageError: If the file is damaged or not Parquet, also when the `with` block reads from it.
    """
    import pyarrow
    from pyarrow import parquet

    with RangeReader(path, size, version) as ranges:
        try:
            yield parquet.ParquetFile(file_of(ranges), buffer_size=_BUFFER, pre_buffer=False)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            detail = words_of(error).rstrip(".")
            raise UsageError(
                f"--input {printable(path)} cannot be read as Parquet ({detail}); write it again."
            ) from None


def parquet_table(path: str, size: int, version: str, settings: ConvertSettings) -> Table:
    """Returns the table of a Parquet file.

    Raises:
      UsageError: If the file is not Parquet, or has no column of image paths.
    """
    import pyarrow

    shown = printable(path)
    with open_parquet(path, size, version) as file:
        schema = file.schema_arrow
        twice = next((name for i, name in enumerate(schema.names) if name in schema.names[:i]), None)
        if twice is not None:
            raise UsageError(f"--input {shown} has two columns {printable(twice)!r}; rename one of them.")
        names = choose_columns(shown, schema.names, settings, {})
        kind = schema.field(names[0]).type
        if isinstance(kind, pyarrow.DictionaryType):
            kind = kind.value_type
        types = pyarrow.types
        tests = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary,
                 types.is_string_view, types.is_binary_view, types.is_null)  # fmt: skip
        if not any(test(kind) for test in tests):
            raise UsageError(
                f"--input {shown}: its column {printable(names[0])!r} holds no paths but {str(kind)[:60]}; "
                "name the column of paths with --image_column."
            )
        if types.is_binary(kind) or types.is_large_binary(kind):
            _check_no_pictures(shown, file, names[0])
        any_rows = file.metadata.num_rows > 0
        return Table(
            PARQUET,
            names,
            any_rows=any_rows,
            header=names_shown(schema.names),
            has_objects=OBJECTS in schema.names,
        )


def _check_no_pictures(shown: str, file: Any, name: str) -> None:
    for batch in file.iter_batches(batch_size=1, columns=[name], use_threads=False):
        first = batch.column(0)[0].as_py()
        if first and kind_of(first[:64]) is not None:
            raise UsageError(
                f"--input {shown}: its column {printable(name)!r} holds images, not their paths; "
                "choose --source parquet."
            )
        return


def parquet_parts(path: str, size: int, version: str) -> Iterator[tuple[int, int, int]]:
    """Yields (first row group, end of row groups, number of the first row) of splits."""
    with open_parquet(path, size, version) as file:
        begin, first, rows, groups = 0, 1, 0, file.metadata.num_row_groups
        for group in range(groups):
            rows += file.metadata.row_group(group).num_rows
            if rows >= _ROWS_A_PART or group == groups - 1:
                yield begin, group + 1, first
                begin, first, rows = group + 1, first + rows, 0


def parquet_rows(
    path: str, size: int, version: str, groups: tuple[int, int], number: int, names: Sequence[str]
) -> Iterator[Row]:
    """Yields the values of the named columns in each row of some row groups; None for an empty name.

    Raises:
      UsageError: If the file is damaged.
      EngineError: If the file has changed since it was listed.
    """
    wanted = list(dict.fromkeys(name for name in names if name))
    with open_parquet(path, size, version) as file:
        batches = file.iter_batches(
            batch_size=_ROWS_AT_ONCE, row_groups=list(range(*groups)), columns=wanted, use_threads=False
        )
        for batch in batches:
            columns = {
                name: python_values(batch.column(batch.schema.get_field_index(name))) for name in wanted
            }
            nothing = [None] * batch.num_rows
            for values in zip(*(columns.get(name, nothing) for name in names)):
                yield number, values
                number += 1


def python_values(column: Any) -> list[Any]:
    """Returns the values of a column as Python objects; text that is not UTF-8 has surrogate escapes."""
    import pyarrow

    types = pyarrow.types
    if isinstance(column.type, pyarrow.DictionaryType):
        column = column.dictionary_decode()
    is_list = types.is_list(column.type) or types.is_large_list(column.type)
    single = column.type.value_type if is_list else column.type
    if types.is_temporal(single) or types.is_decimal(single):
        with contextlib.suppress(pyarrow.ArrowException):  # for example, the time zone is unknown
            column = column.cast(pyarrow.list_(pyarrow.string()) if is_list else pyarrow.string())
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        if is_list:
            return [None if item.values is None else python_values(item.values) for item in column]
        return [None if item is None else item.decode("utf-8", "surrogateescape")
                for item in column.cast(pyarrow.large_binary()).to_pylist()]  # fmt: skip
