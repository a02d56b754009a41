"""Reads the rows of Parquet and Arrow files with pyarrow, and copies their images into spool files.

A conversion reads images in another order than they are stored, and pyarrow would decode a whole row group
for each of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import IO, Any, NamedTuple

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.images.signatures import kind_of
from shardwright.core.sources.hashing import content_digest
from shardwright.core.sources.parquet.columns import BYTES, PATH, ImageTable, table_of
from shardwright.core.sources.parquet.files import ARROW, PARQUET, kind_of_file
from shardwright.core.sources.spool import Spool
from shardwright.core.sources.tables.parquet import (
    errors_of_pyarrow,
    open_parquet,
    parse_apart,
    python_values,
)
from shardwright.core.sources.tables.rows import EmbeddedImage
from shardwright.core.storage.ranges import RangeReader, file_of
from shardwright.core.storage.store import StoredObject
from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.image_ref import printable
from shardwright.schemas.units import counted, format_size

#: The images in a spool file may take this many bytes, or else this many times the bytes of their file.
SMALL_BYTES, MAX_RATIO = 10**9, 200
#: Number of rows in which the first image is searched.
_VALUES_TRIED = 20
#: Smallest number of bytes, or of rows, of row groups in a split, except for the last split.
_BYTES_A_PART, _ROWS_A_PART = 32 << 20, 20_000
#: Most rows of a row group; a file that states more is damaged.
_MAX_ROWS = 50_000_000
#: Rows of a Parquet file whose other values are read at once, and rows of an Arrow file that are in memory.
_ROWS_AT_ONCE, _ROWS_IN_MEMORY = 1024, 20_000
#: First bytes of an Arrow file; a stream begins with its first message.
_ARROW_FILE = b"ARROW1"
#: Last bytes of a stream. Without them it may have been cut off between two messages.
_END = b"\xff\xff\xff\xff\0\0\0\0"


class CopiedImage(NamedTuple):
    """An image in a spool file: where it begins, its number of bytes, and their digest."""

    offset: int
    length: int
    digest: str


class _CopiedRows(NamedTuple):
    """Rows of a file whose images were copied.

    Attributes:
      images: Image of each row, or what says why it cannot be read; None if the row has no image.
      columns: Paths of the images, and the other columns.
      following: Row group or record batch after them; None if there is none.
    """

    images: list[CopiedImage | EmbeddedImage | None]
    columns: list[list[Any]]
    following: int | None


def table_in(file: StoredObject, settings: ConvertSettings) -> ImageTable | None:
    """Returns the table in a file; None if it has no column of images.

    Raises:
      UsageError: If the file is damaged, or does not go with the settings.
    """
    with storage.translated_errors("read", file.path):
        if not file.size:
            raise UsageError(f"--input {printable(file.path)} is empty; write it again or remove it.")
        head = storage.read_range(file.path, 0, len(_ARROW_FILE), file.size, file.version)
        kind = kind_of_file(file.path.rpartition("/")[2], head) or PARQUET
        return parse_apart(kind, file.path, _table_in, kind, file, settings)


def _table_in(kind: str, file: StoredObject, settings: ConvertSettings) -> ImageTable | None:
    opening: AbstractContextManager[Any] = open_parquet(*file[:3]) if kind == PARQUET else _open_arrow(file)
    with opening as opened:

        def batches(name: str) -> Any:
            if kind == ARROW:
                return opened.batches([name])
            return opened.iter_batches(1, columns=[name], use_threads=False)

        def holds_images(name: str) -> bool:
            values = (value for batch in batches(name) for value in _images_in(batch.column(0)))
            first = next((value for value in islice(values, _VALUES_TRIED) if value is not None), b"")
            return kind_of(first) is not None

        schema = opened.schema_arrow
        table = table_of(printable(file.path), kind, schema, settings, holds_images)
        if table is None:
            return None
        if kind == PARQUET:
            return table._replace(has_rows=opened.metadata.num_rows > 0)
        return table._replace(has_rows=any(batch.num_rows for batch in batches(table.names[0])))


def parts_of(file: StoredObject, table: ImageTable) -> list[tuple[int, int, int]]:
    """Returns (first row group, end of row groups, number of the first row) of the input splits of a file.

    An Arrow file is one split, without an end.

    Raises:
      UsageError: If the numbers of rows in the file contradict each other.
    """
    if not table.has_rows:
        return []
    if table.kind == ARROW:
        return [(0, -1, 0)]
    with storage.translated_errors("read", file.path):
        return parse_apart(PARQUET, file.path, _parts, file)


def _parts(file: StoredObject) -> list[tuple[int, int, int]]:
    with open_parquet(*file[:3]) as opened:
        metadata = opened.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        sizes = [(group.num_rows, group.total_byte_size) for group in groups]
        flat = [i for i in range(len(opened.schema)) if not opened.schema.column(i).max_repetition_level]
        agree = all(group.column(i).num_values == group.num_rows for group in groups for i in flat)
    counts = [rows for rows, _ in sizes]
    if not agree or sum(counts) != metadata.num_rows or not all(0 <= rows <= _MAX_ROWS for rows in counts):
        raise UsageError(
            f"--input {printable(file.path)} cannot be read as Parquet (its footer states impossible numbers "
            "of rows); write it again."
        )
    parts, begin, first, rows, size = [], 0, 0, 0, 0
    for number, (group_rows, group_size) in enumerate(sizes, 1):
        rows, size = rows + group_rows, size + max(group_size, 0)
        if size >= _BYTES_A_PART or rows >= _ROWS_A_PART or number == len(sizes):
            parts.append((begin, number, first))
            begin, first, rows, size = number, first + rows, 0, 0
    return parts


def rows_of(
    file: StoredObject, table: ImageTable, part: tuple[int, int], spool: Spool
) -> Iterator[list[Any]]:
    """Yields the rows in a part of a file, with the image or its path as the first value.

    Raises:
      UsageError: If the file is damaged; damaged images of a Parquet file are left out.
      EngineError: If the file has changed since it was listed.
    """
    begin: int | None = part[0]
    while begin is not None and begin != part[1]:
        copy = partial(parse_apart, table.kind, file.path, _copy_rows, file, table, begin)
        spooled, (images, columns, begin) = _spooled(spool, file, f"{begin}:{table.names[0]}", copy)
        size = storage.size_of(spooled)
        for image, (path, *others) in zip(images, zip(*columns, strict=True), strict=True):
            if isinstance(image, CopiedImage):
                place = ByteRange(spooled, image.offset, image.length, file_size=size)
                image = EmbeddedImage(place.encode(), image.length, image.digest)
            yield [path if image is None else image, *others]


def _spooled(
    spool: Spool, file: StoredObject, part: str, copy: Callable[[str], _CopiedRows]
) -> tuple[str, _CopiedRows]:
    """Returns the spool file with the images of some rows, and the rows.

    Args:
      spool: Directory of spool files.
      file: File of the rows.
      part: What identifies the rows in that file.
      copy: Function that copies the images of the rows into a file of this machine.
    """
    copied: list[_CopiedRows] = []

    def write(out: IO[bytes]) -> None:
        copied.append(copy(out.name))

    path = spool.fill(f"{file.path}:{file.size}:{file.version}:{part}", file.path, write)
    return path, copied[0] if copied else copy(os.devnull)  # another attempt may have written the file


def _copy_rows(file: StoredObject, table: ImageTable, begin: int, path: str) -> _CopiedRows:
    """Returns the rows of a row group, or some rows from a record batch on; copies their images to a file."""
    columns: list[list[Any]] = [[] for _ in table.names]
    if table.kind == PARQUET:
        with open_parquet(*file[:3]) as opened:
            copied = copy_images(_images_of_group(opened, table, begin), path, file.size)
            _read_other_columns(opened, table, begin, columns)
        return _CopiedRows(copied, columns, begin + 1)
    following: int | None = None

    def images() -> Iterator[bytes | None]:
        nonlocal following
        names = list(dict.fromkeys(filter(None, table.names)))
        for number, batch in enumerate(opened.batches(names, begin), begin):
            _add_columns(columns, batch, table)
            yield from _images_in(batch.column(0))
            if len(columns[0]) >= _ROWS_IN_MEMORY:
                following = number + 1
                return

    with _open_arrow(file) as opened:
        copied = copy_images(images(), path, file.size)
    return _CopiedRows(copied, columns, following)


def _images_of_group(opened: Any, table: ImageTable, group: int) -> Iterator[bytes | EmbeddedImage | None]:
    """Yields the images of a row group; after damage, the others cannot be read."""
    import pyarrow

    rows, count = opened.metadata.row_group(group).num_rows, 0
    column = f"{table.names[0]}.{BYTES}" if table.image_fields else table.names[0]
    # Row by row, so that memory is bounded by one page and one image.
    batches = opened.iter_batches(1, row_groups=[group], columns=[column], use_threads=False)
    message = "its row group ends early; write its file again"
    try:
        for batch in batches:
            for image in islice(_images_in(batch.column(0)), rows - count):
                count += 1
                yield image
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        message = f"its row group cannot be read ({words_of(error).rstrip('.')}); write its file again"
    for _ in range(count, rows):
        yield EmbeddedImage("", reason=QuarantineReason.CORRUPT, message=message)


def _read_other_columns(opened: Any, table: ImageTable, group: int, columns: list[list[Any]]) -> None:
    """Reads the paths of the images and the values of the other columns in a row group.

    Raises:
      OSError: If there are more or fewer rows than the footer states.
    """
    image, *others = table.names
    rows = opened.metadata.row_group(group).num_rows
    leaves = list(dict.fromkeys(filter(None, others)))
    leaves += [f"{image}.{PATH}"] if PATH in table.image_fields else []
    if not leaves:
        columns[:] = [[None] * rows for _ in columns]
        return
    for batch in opened.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=leaves, use_threads=False):
        _add_columns(columns, batch, table)
    if len(columns[0]) != rows:
        raise OSError(f"row group {group} has {counted(len(columns[0]), 'row')} instead of {rows:,}")


def copy_images(
    images: Iterable[bytes | EmbeddedImage | None], path: str, file_size: int
) -> list[CopiedImage | EmbeddedImage | None]:
    """Copies the images of rows one behind the other; equal images are stored once.

    Args:
      images: Bytes of the images, or why they cannot be read; None for rows without an image.
      path: File of this machine to which they are written.
      file_size: Size of the file of the rows.
    """
    copied: list[CopiedImage | EmbeddedImage | None] = []
    offsets: dict[str, int] = {}
    end, most = 0, max(SMALL_BYTES, MAX_RATIO * file_size)
    message = f"the images before it take more than {format_size(most)}; split its file"
    with open(path, "wb") as out:
        for image in images:
            UNDERWAY.progress()
            if not isinstance(image, bytes):
                copied.append(image)
                continue
            digest = content_digest(image)
            if digest not in offsets and end + len(image) > most:
                copied.append(EmbeddedImage("", reason=QuarantineReason.TOO_LARGE, message=message))
                continue
            if digest not in offsets:
                offsets[digest] = end
                end += out.write(image)
            copied.append(CopiedImage(offsets[digest], len(image), digest))
    return copied


def _images_in(column: Any) -> Iterator[bytes | None]:
    """Yields the bytes of a column of images; None for missing ones."""
    import pyarrow

    if pyarrow.types.is_struct(column.type):
        column = column.flatten()[column.type.get_field_index(BYTES)]  # respects missing structs
    for value in column:
        yield value.as_py()


def _add_columns(columns: list[list[Any]], batch: Any, table: ImageTable) -> None:
    """Adds the paths of the images and the values of the other columns in a batch."""
    image, *others = table.names
    values: dict[str, list[Any]] = {"": [None] * batch.num_rows}
    for name in dict.fromkeys(filter(None, others)):
        values[name] = python_values(batch.column(batch.schema.get_field_index(name)))
    paths = values[""]
    if PATH in table.image_fields:
        structs = batch.column(batch.schema.get_field_index(image))
        paths = python_values(structs.flatten()[structs.type.get_field_index(PATH)])
    for column, added in zip(columns, [paths, *map(values.__getitem__, others)], strict=True):
        column += added


class _ArrowReader:
    """An open Arrow file or stream.

    Args:
      path: Path of the file, for messages.
      open_source: Function that opens the file for pyarrow.
    """

    def __init__(self, path: str, open_source: Callable[[], Any]) -> None:
        import pyarrow

        self._path, self._open_source = path, open_source
        self._is_file = open_source().read(len(_ARROW_FILE)) == _ARROW_FILE
        opened = pyarrow.ipc.open_file if self._is_file else pyarrow.ipc.open_stream
        self.schema_arrow: Any = opened(open_source()).schema

    def batches(self, names: list[str], begin: int = 0) -> Iterator[Any]:
        """Yields the record batches from one on, with some of the columns.

        Raises:
          UsageError: If the file ends early.
        """
        import pyarrow

        source = self._open_source()
        fields = [self.schema_arrow.get_field_index(name) for name in names]
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
def _open_arrow(file: StoredObject) -> Iterator[_ArrowReader]:
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

        with errors_of_pyarrow(ARROW, file.path):
            yield _ArrowReader(file.path, open_source)
