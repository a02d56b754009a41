"""Reads the rows of Parquet and Arrow files, and copies their images into spool files.

A conversion reads images in another order than they are stored, and pyarrow would decode a whole row group
for each of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import repeat
from typing import IO, Any, NamedTuple

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.sources.hashing import content_digest
from shardwright.core.sources.parquet.columns import BYTES, PATH, ImageTable, table_of
from shardwright.core.sources.parquet.files import kind_of_file
from shardwright.core.sources.spool import Spool
from shardwright.core.sources.tables.parquet import (
    ARROW,
    PARQUET,
    RecordBatches,
    RowGroups,
    holds_images,
    open_rows,
    packed_columns,
    parse_apart,
    unpacked_rows,
)
from shardwright.core.sources.tables.rows import EmbeddedImage
from shardwright.core.storage.store import StoredObject
from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.image_ref import printable
from shardwright.schemas.units import format_size

#: The images in a spool file may take this many bytes, or else this many times the bytes of their file.
SMALL_BYTES, MAX_RATIO = 10**9, 200
#: Number of bytes that tell the kind of a file.
_HEAD_BYTES = 8


class CopiedImage(NamedTuple):
    """An image in a spool file: where it begins, its number of bytes, and their digest."""

    offset: int
    length: int
    digest: str


#: Image of a row, or what says why it cannot be read; None if the row has no image.
Copied = CopiedImage | EmbeddedImage | None


def table_in(file: StoredObject, settings: ConvertSettings) -> ImageTable | None:
    """Returns the table in a file; None if it has no column of images.

    Raises:
      UsageError: If the file is damaged, or does not go with the settings.
    """
    with storage.translated_errors("read", file.path):
        if not file.size:
            raise UsageError(f"--input {printable(file.path)} is empty; write it again or remove it.")
        head = storage.read_range(file.path, 0, _HEAD_BYTES, file.size, file.version)
        kind = kind_of_file(file.path.rpartition("/")[2], head) or PARQUET
        return parse_apart(kind, file.path, _table_in, kind, file, settings)


def _table_in(kind: str, file: StoredObject, settings: ConvertSettings) -> ImageTable | None:
    with open_rows(kind, file) as opened:
        images_in = partial(holds_images, opened)
        table = table_of(printable(file.path), kind, opened.schema, settings, images_in)
        has_rows = table is not None and any(rows for rows, _ in opened.sizes())
        return table._replace(has_rows=has_rows) if table is not None else None


def rows_of(
    file: StoredObject, table: ImageTable, part: tuple[int, int], spool: Spool
) -> Iterator[list[Any]]:
    """Yields the rows in a part of a file, with the image or its path as the first value.

    Raises:
      UsageError: If the file is damaged; damaged images of a Parquet file are left out.
      EngineError: If the file has changed since it was listed.
    """
    results: list[tuple[list[Copied], bytes]] = []

    def copy(path: str) -> None:
        results.append(parse_apart(table.kind, file.path, _copy_rows, file, table, part, path))

    def write(out: IO[bytes]) -> None:
        copy(out.name)

    identity = f"{file.path}:{file.size}:{file.version}:{part}:{table.names[0]}"
    spooled = spool.fill(identity, file.path, write)
    if not results:  # another attempt has written the file
        copy(os.devnull)
    ((images, packed),) = results
    size, names = storage.size_of(spooled), _other_names(table)
    rows = unpacked_rows(packed, names) if packed else repeat((None,) * len(names), len(images))
    for image, (path, *others) in zip(images, rows, strict=True):
        if isinstance(image, CopiedImage):
            place = ByteRange(spooled, image.offset, image.length, file_size=size)
            image = EmbeddedImage(place.encode(), image.length, image.digest)
        yield [path if image is None else image, *others]


def _other_names(table: ImageTable) -> list[str]:
    """Returns the names of the columns without the images, of whose column only the paths are needed."""
    image, *others = table.names
    return [image if PATH in table.image_fields else "", *others]


def _copy_rows(
    file: StoredObject, table: ImageTable, part: tuple[int, int], path: str
) -> tuple[list[Copied], bytes]:
    """Copies the images of a part to a file; returns where they are, and the packed other columns."""
    with open_rows(table.kind, file) as opened:
        copied = copy_images(_images(opened, table, *part), path, file.size)
        field = PATH if PATH in table.image_fields else ""
        return copied, packed_columns(opened, _other_names(table), *part, field)


def _images(
    opened: RowGroups | RecordBatches, table: ImageTable, begin: int, end: int
) -> Iterator[bytes | EmbeddedImage | None]:
    """Yields the images of a part; after damage in a row group, its other images cannot be read."""
    import pyarrow

    field = BYTES if table.image_fields else ""
    if table.kind == ARROW:
        for column, *_ in opened.batches(table.names[:1], begin, end, field):
            yield from (value.as_py() for value in column)
        return
    for group, (rows, _) in enumerate([*opened.sizes()][begin:end], begin):
        count, message = 0, ""
        # Row by row, so that memory is bounded by one page and one image.
        batches = opened.batches(table.names[:1], group, group + 1, field, rows=1)
        try:
            for column, *_ in batches:
                for value in column:
                    yield value.as_py()
                    count += 1
        except (pyarrow.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            message = f"its row group cannot be read ({words_of(error).rstrip('.')}); write its file again"
        for _ in range(count, rows):
            yield EmbeddedImage("", reason=QuarantineReason.CORRUPT, message=message)


def copy_images(images: Iterable[bytes | EmbeddedImage | None], path: str, file_size: int) -> list[Copied]:
    """Copies the images of rows one behind the other; equal images are stored once.

    Args:
      images: Bytes of the images, or why they cannot be read; None for rows without an image.
      path: File of this machine to which they are written.
      file_size: Size of the file of the rows.
    """
    copied: list[Copied] = []
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
