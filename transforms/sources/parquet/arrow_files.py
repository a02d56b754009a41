"""Reads the rows of Arrow files and streams, record batch by record batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.image_ref import printable
from shardwright.transforms import storage
from shardwright.transforms.sources.parquet.columns import ImageTable, table_of
from shardwright.transforms.sources.parquet.files import ARROW
from shardwright.transforms.sources.parquet.spooled import (
    CopiedRows,
    columns_of_batch,
    copy_images,
    image_values,
    shows_images,
    spooled_rows,
)
from shardwright.transforms.sources.spool import Spool
from shardwright.transforms.sources.tables.parquet import parse_apart
from shardwright.transforms.storage.ranges import RangeReader, file_of
from shardwright.transforms.storage.stored_object import StoredObject

#: First bytes of a file; a stream begins with its first message.
_FILE = b"ARROW1"
#: Last bytes of a stream. Without them it may have been cut off between two messages.
_END = b"\xff\xff\xff\xff\0\0\0\0"
#: Rows after which a worker process returns what it has read.
_ROWS_AT_ONCE = 20_000


class _Opened:
    """An open Arrow file.

    Args:
      path: Path of the file, for messages.
      open_source: Function that opens the file for pyarrow.
    """

    def __init__(self, path: str, open_source: Callable[[], Any]) -> None:
        import pyarrow

        self._path, self._open_source = path, open_source
        self._is_file = open_source().read(len(_FILE)) == _FILE
        opened = pyarrow.ipc.open_file if self._is_file else pyarrow.ipc.open_stream
        self.schema: Any = opened(open_source()).schema

    def batches(self, names: list[str], begin: int = 0) -> Iterator[Any]:
        """Yields the record batches from one on, with some of the columns.

        Raises:
          UsageError: If the file ends early.
        """
        import pyarrow

        source = self._open_source()
        fields = [self.schema.get_field_index(name) for name in names]
        options = pyarrow.ipc.IpcReadOptions(included_fields=fields)
        if self._is_file:
            file = pyarrow.ipc.open_file(source, options=options)
            batches: Iterator[Any] = map(file.get_batch, range(begin, file.num_record_batches))
        else:
            batches = islice(pyarrow.ipc.open_stream(source, options=options), begin, None)
        for batch in batches:
            batch = batch.select(names)
            batch.validate(full=True)
            yield batch
        if not self._is_file:
            source.seek(max(source.tell() - len(_END), 0))
            if source.read(len(_END)) != _END:
                raise UsageError(
                    f"--input {printable(self._path)} ends without the mark at the end of a stream, so rows "
                    "may be missing; copy or write it again."
                )


@contextlib.contextmanager
def _open(file: StoredObject) -> Iterator[_Opened]:
    """Opens an Arrow file.

    Raises:
      UsageError: If the file is damaged or not Arrow, also when the `with` block reads from it.
      EngineError: If it has changed since it was listed.
    """
    import pyarrow

    with RangeReader(*file[:3]) as ranges:

        def open_source() -> Any:
            if storage.is_remote(file.path):
                return pyarrow.PythonFile(file_of(ranges), "r")
            return pyarrow.memory_map(file.path)  # batches that are not used are not read

        try:
            yield _Opened(file.path, open_source)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            detail = words_of(error).rstrip(".")
            raise UsageError(
                f"--input {printable(file.path)} cannot be read as Arrow ({detail}); write it again."
            ) from None


def arrow_table(file: StoredObject, settings: ConvertSettings) -> ImageTable | None:
    """Returns the table of an Arrow file; None if it has no column of images.

    Raises:
      UsageError: If the file is damaged, or does not go with the settings.
    """
    return parse_apart("Arrow", file.path, _table, file, settings)


def _table(file: StoredObject, settings: ConvertSettings) -> ImageTable | None:
    with _open(file) as opened:

        def holds_images(name: str) -> bool:
            return shows_images(
                value for batch in opened.batches([name]) for value in image_values(batch.column(0))
            )

        table = table_of(printable(file.path), ARROW, opened.schema, settings, holds_images)
        if table is None:
            return None
        has_rows = any(batch.num_rows for batch in opened.batches([table.names[0]]))
        return table if has_rows else replace(table, rows=0)


def arrow_rows(file: StoredObject, table: ImageTable, spool: Spool) -> Iterator[list[Any]]:
    """Yields the rows of a file, with the image or its path as the first value.

    Raises:
      UsageError: If the file is damaged.
      EngineError: If it has changed since it was listed.
    """
    begin: int | None = 0
    while begin is not None:
        copy = partial(parse_apart, "Arrow", file.path, _copy, file, table, begin)
        rows, begin = spooled_rows(spool, file, f"{begin}:{table.names[0]}", copy)
        yield from rows


def _copy(file: StoredObject, table: ImageTable, begin: int, path: str) -> CopiedRows:
    """Returns some rows from a record batch on, after copying their images into a file."""
    names = list(dict.fromkeys(name for name in table.names if name))
    columns: list[list[Any]] = [[] for _ in table.names]
    following: int | None = None

    def images() -> Iterator[bytes | None]:
        nonlocal following
        for number, batch in enumerate(opened.batches(names, begin), begin):
            for column, values in zip(columns, columns_of_batch(batch, table), strict=True):
                column += values
            yield from image_values(batch.column(0))
            if len(columns[0]) >= _ROWS_AT_ONCE:
                following = number + 1
                return

    with _open(file) as opened:
        copied = copy_images(images(), path, file.size)
    return CopiedRows(copied, columns, following)
