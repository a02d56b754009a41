"""Reads Parquet tables with pyarrow: row groups in parallel, and only the needed columns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from shardwright.core import storage
from shardwright.core.concurrency.converters import Crashed, call_in_process
from shardwright.core.images.signatures import kind_of
from shardwright.core.sources.tables.columns import check_unique, choose_columns
from shardwright.core.sources.tables.lines import Row
from shardwright.core.storage.ranges import RangeReader, file_of
from shardwright.core.storage.store import StoredObject
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.image_ref import printable

Result = TypeVar("Result")

#: Smallest number of rows in a split, except for the last split.
_ROWS_A_PART = 100_000
_ROWS_AT_ONCE = 4096
#: Number of bytes to read at once from a column. Without it, pyarrow reads a row group's column as a whole.
_BUFFER = 1 << 20


def parse_apart(kind: str, path: str, function: Callable[..., Result], *args: Any) -> Result:
    """Calls a function that parses a file with a library in C, and returns its result.

    Damage can crash such a library, so a local file is parsed in a worker process. Remote files are parsed
    here, because a worker process does not know the options of their storage.

    Args:
      kind: Format of the file, for messages.
      path: Path of the file.
      function: Function of a module.
      *args: Its arguments.

    Raises:
      UsageError: If the process crashed.
    """
    if storage.is_remote(path):
        return function(*args)
    try:
        return call_in_process(function, *args)
    except Crashed as crash:
        raise UsageError(
            f"--input {printable(path)} cannot be read as {kind} (the library that reads it crashed: "
            f"{crash.how}); write it again or leave it out."
        ) from None


@contextlib.contextmanager
def open_parquet(path: str, size: int, version: str) -> Iterator[Any]:
    """Opens a Parquet file.

    Raises:
      UsageError: If the file is damaged or not Parquet, also when the `with` block reads from it.
    """
    from pyarrow import parquet

    with RangeReader(path, size, version) as ranges, errors_of_pyarrow("Parquet", path):
        yield parquet.ParquetFile(
            file_of(ranges), buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True
        )


@contextlib.contextmanager
def errors_of_pyarrow(kind: str, path: str) -> Iterator[None]:
    """Turns what pyarrow raises for damage in the `with` block into a UsageError.

    Args:
      kind: Format of the file, for messages.
      path: Path of the file.
    """
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        detail = words_of(error).rstrip(".")
        raise UsageError(
            f"--input {printable(path)} cannot be read as {kind} ({detail}); write it again."
        ) from None


def parquet_columns(file: StoredObject, settings: ConvertSettings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the chosen columns of a file (`choose_columns`), and the names of all.

    Raises:
      UsageError: If the file is not Parquet, or has no column of image paths.
    """
    return parse_apart("Parquet", file.path, _columns, file, settings)


def _columns(file: StoredObject, settings: ConvertSettings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    import pyarrow

    shown = printable(file.path)
    with open_parquet(*file[:3]) as opened:
        schema = opened.schema_arrow
        check_unique(shown, schema.names)
        names = choose_columns(shown, schema.names, settings, {})
        kind = schema.field(names[0]).type
        if isinstance(kind, pyarrow.DictionaryType):
            kind = kind.value_type
        types = pyarrow.types
        is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
        is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        if not (is_text or is_bytes or types.is_null(kind)):
            raise UsageError(
                f"--input {shown}: its column {printable(names[0])!r} holds no paths but {str(kind)[:60]}; "
                "name the column of paths with --image_column."
            )
        first = next(opened.iter_batches(1, columns=names[:1], use_threads=False), None) if is_bytes else None
        value = first.column(0)[0].as_py() if first is not None else None
        if value and kind_of(value[:64]) is not None:
            raise UsageError(
                f"--input {shown}: its column {printable(names[0])!r} holds images, not their paths; "
                "choose --source parquet."
            )
        return names, tuple(schema.names)


def parquet_parts(file: StoredObject) -> Iterator[tuple[int, int, int]]:
    """Yields (first row group, end of row groups, number of the first row) of splits."""
    begin, first, rows = 0, 1, 0
    counts = parse_apart("Parquet", file.path, _rows_of_groups, file)
    for group, count in enumerate(counts):
        rows += count
        if rows >= _ROWS_A_PART or group == len(counts) - 1:
            yield begin, group + 1, first
            begin, first, rows = group + 1, first + rows, 0


def _rows_of_groups(file: StoredObject) -> list[int]:
    with open_parquet(*file[:3]) as opened:
        metadata = opened.metadata
        return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def parquet_rows(
    file: StoredObject, groups: tuple[int, int], number: int, names: Sequence[str]
) -> Iterator[Row]:
    """Yields the values of the named columns in each row of some row groups; None for an empty name.

    Raises:
      UsageError: If the file is damaged.
      EngineError: If the file has changed since it was listed.
    """
    import pyarrow

    needed = list(dict.fromkeys(filter(None, names)))
    for group in range(*groups):
        packed = parse_apart("Parquet", file.path, _packed_columns, file, group, needed)
        for batch in pyarrow.ipc.open_stream(packed):
            columns = {name: python_values(batch.column(name)) for name in needed}
            nothing = [None] * batch.num_rows
            for values in zip(*(columns.get(name, nothing) for name in names)):
                yield number, values
                number += 1


def _packed_columns(file: StoredObject, group: int, names: Sequence[str]) -> bytes:
    """Returns the columns of a row group as an Arrow stream, which is smaller than the values in Python."""
    import pyarrow

    with open_parquet(*file[:3]) as opened:
        schema = pyarrow.schema([opened.schema_arrow.field(name) for name in names])
        out = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(out, schema) as writer:
            for batch in opened.iter_batches(
                batch_size=_ROWS_AT_ONCE, row_groups=[group], columns=names, use_threads=False
            ):
                writer.write_batch(batch.select(names))
        return bytes(out.getvalue())


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
