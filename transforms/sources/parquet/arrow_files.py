"""Reads the rows of Arrow files and streams: where their images are, and their other values."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import IO, Any

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.image_ref import printable
from shardwright.transforms import storage
from shardwright.transforms.images.signatures import kind_of
from shardwright.transforms.sources.content_digest import content_digest
from shardwright.transforms.sources.manifest.parquet import parse_apart
from shardwright.transforms.sources.parquet.columns import (
    ImageTable,
    table_of,
)
from shardwright.transforms.sources.parquet.files import ARROW
from shardwright.transforms.sources.parquet.pages import Entry, StoredImage
from shardwright.transforms.sources.parquet.row_groups import (
    GroupImages,
    StoredRow,
    columns_of_batch,
    image_values,
    spool_images,
    spooled_images,
    stored_rows,
)
from shardwright.transforms.sources.spool import Spool
from shardwright.transforms.storage.ranges import RangeReader, file_of
from shardwright.transforms.storage.stored_object import StoredObject

#: First bytes of a file; a stream begins with its first message.
_FILE = b"ARROW1"
#: Last bytes of a stream. Without them it may have been cut off between two messages.
_END = b"\xff\xff\xff\xff\0\0\0\0"
_PIECE = 8 << 20
_ROWS_TRIED = 20
#: Rows after which a worker process returns what it has read.
_ROWS_AT_ONCE = 20_000


class _Opened:
    """An open Arrow file.

    Args:
      path: Path of the file, for messages.
      open_source: Function that opens the file for pyarrow.
      whole: Buffer of pyarrow with the whole file; None if only its beginning is to be read.
    """

    def __init__(self, path: str, open_source: Callable[[], Any], whole: Any = None) -> None:
        import pyarrow

        self._path, self._open_source, self._whole = path, open_source, whole
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
        if self._is_file:
            # With `included_fields`, a file's batches would be copies instead of parts of the file.
            file = pyarrow.ipc.open_file(source)
            batches: Iterator[Any] = map(file.get_batch, range(begin, file.num_record_batches))
        else:
            fields = [self.schema.get_field_index(name) for name in names]
            options = pyarrow.ipc.IpcReadOptions(included_fields=fields)
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

    def offset_of(self, buffer: Any) -> int:
        """Returns the position of a value in the file; -1 if it was unpacked and is not in the file."""
        if not buffer.size:
            return 0
        offset = int(buffer.address - self._whole.address)
        return offset if 0 <= offset <= self._whole.size - buffer.size else -1


@contextlib.contextmanager
def _open(file: StoredObject, whole: bool = True) -> Iterator[_Opened]:
    """Opens an Arrow file; a remote one is copied to a temporary file, unless only its beginning is read.

    Raises:
      UsageError: If the file is damaged or not Arrow, also when the `with` block reads from it.
    """
    import pyarrow

    with contextlib.ExitStack() as stack:
        path = file.path
        if whole and storage.is_remote(path):
            copy = stack.enter_context(tempfile.NamedTemporaryFile())
            _copy(file, copy)
            path = copy.name
        try:
            if storage.is_remote(path):
                ranges = stack.enter_context(RangeReader(*file[:3]))
                yield _Opened(path, lambda: pyarrow.PythonFile(file_of(ranges), "r"))
                return
            mapped = stack.enter_context(pyarrow.memory_map(path))
            buffer = mapped.read_buffer()
            yield _Opened(file.path, lambda: pyarrow.BufferReader(buffer), buffer)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            detail = words_of(error).rstrip(".")
            raise UsageError(
                f"--input {printable(file.path)} cannot be read as Arrow ({detail}); write it again."
            ) from None


def _copy(file: StoredObject, out: IO[bytes]) -> None:
    with RangeReader(*file[:3]) as reader:
        for begin in range(0, file.size, _PIECE):
            out.write(reader.read_at(begin, min(_PIECE, file.size - begin)))
    out.flush()


def arrow_table(file: StoredObject, settings: ConvertSettings) -> ImageTable | None:
    """Returns the table of an Arrow file; None if it has no column of images.

    Raises:
      UsageError: If the file is damaged, or does not go with the settings.
    """
    return parse_apart("Arrow", file.path, _table, file, settings)


def _table(file: StoredObject, settings: ConvertSettings) -> ImageTable | None:
    shown = printable(file.path)
    with _open(file, whole=False) as opened:
        table = table_of(shown, ARROW, opened.schema, settings, lambda name: _holds_images(opened, name))
        if table is None:
            return None
        has_rows = any(batch.num_rows for batch in opened.batches([table.names[0]]))
        return table if has_rows else replace(table, rows=0)


def arrow_rows(file: StoredObject, table: ImageTable, spool: Spool, most: int) -> Iterator[StoredRow]:
    """Yields the rows of a file.

    Raises:
      UsageError: If the file is damaged.
      EngineError: If it has changed since it was listed.
    """
    spooled = parse_apart("Arrow", file.path, _spooled, file, table, spool, most)
    entries_of_spool = iter(spooled.entries if spooled else ())
    begin: int | None = 0
    while begin is not None:
        entries, columns, begin = parse_apart(
            "Arrow", file.path, _rows_from, file, table, begin, most if spooled is None else None
        )
        if spooled is None:
            images = GroupImages("", file.size, file.version, entries)
        else:
            images = spooled._replace(entries=islice(entries_of_spool, len(columns[0])))
        yield from stored_rows(images, map(list, zip(*columns, strict=True)))


def _spooled(file: StoredObject, table: ImageTable, spool: Spool, most: int) -> GroupImages | None:
    """Returns the images of a file, unpacked; None if they are in the file itself."""
    with _open(file) as opened:
        name = table.names[0]
        if not _is_unpacked(opened, name):
            return None
        images = spooled_images(
            spool, file, f"{name}:{most}", lambda out: spool_images(_values(opened, name), out)
        )
        return images._replace(entries=list(images.entries))


def _rows_from(
    file: StoredObject, table: ImageTable, begin: int, most: int | None
) -> tuple[list[Entry], list[list[Any]], int | None]:
    """Returns some rows of a file.

    Args:
      file: The file.
      table: Its table.
      begin: Number of the first record batch.
      most: Largest image that gets a digest; None if no entries are needed.

    Returns:
      Where the images are, the columns of the paths and of the other values, and the number of the next
      batch; None after the last one.
    """
    names = list(dict.fromkeys(name for name in table.names if name))
    entries: list[Entry] = []
    columns: list[list[Any]] = [[] for _ in table.names]
    with _open(file) as opened, RangeReader(*file[:3]) as reader:
        for number, batch in enumerate(opened.batches(names, begin), begin):
            if most is not None:
                entries += _entries(opened, reader, batch.column(0), most)
            for column, values in zip(columns, columns_of_batch(batch, table), strict=True):
                column += values
            if len(columns[0]) >= _ROWS_AT_ONCE:
                return entries, columns, number + 1
    return entries, columns, None


def _values(opened: _Opened, name: str) -> Iterator[Any]:
    """Yields the bytes of a column of images as buffers; None for missing ones."""
    for batch in opened.batches([name]):
        yield from image_values(batch.column(0))


def _is_unpacked(opened: _Opened, name: str) -> bool:
    """Returns whether the images had to be unpacked, so that they are not in the file itself."""
    first = next((value for value in _values(opened, name) if value is not None and value.size), None)
    return first is not None and opened.offset_of(first) < 0


def _entries(opened: _Opened, reader: RangeReader, column: Any, most: int) -> Iterator[Entry]:
    for value in image_values(column):
        if value is None:
            yield None
            continue
        offset, length = opened.offset_of(value), value.size
        digest = content_digest(reader.read_at(offset, length)) if length <= most else ""
        yield StoredImage(offset, length, digest)


def _holds_images(opened: _Opened, name: str) -> bool:
    found = (value for value in islice(_values(opened, name), _ROWS_TRIED) if value is not None)
    first = next(found, None)
    return first is not None and kind_of(bytes(memoryview(first)[:64])) is not None
