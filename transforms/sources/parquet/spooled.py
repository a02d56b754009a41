"""Copies the images of rows into spool files, where a worker reads each of them with one request.

A conversion reads images in another order than they are stored, and pyarrow would decode a whole row group
for each of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import IO, Any, NamedTuple

from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.units import format_size
from shardwright.transforms import storage
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.images.signatures import kind_of
from shardwright.transforms.sources.hashing import content_digest
from shardwright.transforms.sources.parquet.columns import BYTES, PATH, ImageTable
from shardwright.transforms.sources.spool import Spool
from shardwright.transforms.sources.tables.parquet import python_values
from shardwright.transforms.sources.tables.rows import EmbeddedImage
from shardwright.transforms.storage.stored_object import StoredObject

#: The images in a spool file may take this many bytes, or else this many times the bytes of their file.
SMALL_BYTES, MAX_RATIO = 10**9, 200
#: Number of rows in which the first image is searched.
_VALUES_TRIED = 20


class CopiedImage(NamedTuple):
    """An image in a spool file: where it begins, its number of bytes, and their digest."""

    offset: int
    length: int
    digest: str


class CopiedRows(NamedTuple):
    """Rows of a file whose images were copied.

    Attributes:
      images: Image of each row, or what says why it cannot be read; None if the row has no image.
      columns: Paths of the images, and the other columns.
      following: Where the rows after them begin; None if they are the last ones.
    """

    images: list[CopiedImage | EmbeddedImage | None]
    columns: list[list[Any]]
    following: int | None = None


def spooled_rows(
    spool: Spool, file: StoredObject, part: str, copy: Callable[[str], CopiedRows]
) -> tuple[list[list[Any]], int | None]:
    """Returns rows with the image or its path as the first value, and where the rows after them begin.

    Args:
      spool: Directory of spool files.
      file: File of the rows.
      part: What identifies the rows in that file.
      copy: Function that copies the images of the rows into a file of this machine.
    """
    copied: CopiedRows | None = None

    def write(out: IO[bytes]) -> None:
        nonlocal copied
        copied = copy(out.name)

    spooled = spool.fill(f"{file.path}:{file.size}:{file.version}:{part}", file.path, write)
    if copied is None:  # another attempt has written the spool file
        copied = copy(os.devnull)
    size = storage.size_of(spooled)
    rows = []
    for image, (path, *others) in zip(copied.images, zip(*copied.columns, strict=True), strict=True):
        if isinstance(image, CopiedImage):
            place = ByteRange(spooled, image.offset, image.length, file_size=size)
            image = EmbeddedImage(place.encode(), image.length, image.digest)
        rows.append([path if image is None else image, *others])
    return rows, copied.following


def copy_images(
    images: Iterable[bytes | EmbeddedImage | None], path: str, file_size: int
) -> list[CopiedImage | EmbeddedImage | None]:
    """Copies the images of rows one behind the other.

    Args:
      images: Bytes of the images, or why they cannot be read; None for rows without an image.
      path: File of this machine to which they are written.
      file_size: Size of the file of the rows.
    """
    copied: list[CopiedImage | EmbeddedImage | None] = []
    offsets: dict[str, int] = {}
    end, most = 0, max(SMALL_BYTES, MAX_RATIO * file_size)
    too_large = EmbeddedImage(
        "",
        reason=QuarantineReason.TOO_LARGE,
        message=f"the images before it take more than {format_size(most)}; split its file",
    )
    with open(path, "wb") as out:
        for image in images:
            UNDERWAY.progress()
            if not isinstance(image, bytes):
                copied.append(image)
                continue
            digest = content_digest(image)
            if digest not in offsets:  # a dictionary can store one image for millions of rows
                if end + len(image) > most:
                    copied.append(too_large)
                    continue
                offsets[digest] = end
                end += out.write(image)
            copied.append(CopiedImage(offsets[digest], len(image), digest))
    return copied


def image_values(column: Any) -> Iterator[bytes | None]:
    """Yields the bytes of a column of images; None for missing ones."""
    import pyarrow

    if pyarrow.types.is_struct(column.type):
        column = column.flatten()[column.type.get_field_index(BYTES)]  # respects missing structs
    for value in column:
        yield value.as_py()


def shows_images(values: Iterable[bytes | None]) -> bool:
    """Returns whether the first value of a column of bytes is an image."""
    first = next((value for value in islice(values, _VALUES_TRIED) if value is not None), b"")
    return kind_of(first) is not None


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
