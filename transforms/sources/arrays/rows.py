"""Rows of arrays: the position in a file of each image's pixels, or of each label."""

from __future__ import annotations

import contextlib
import gzip
import io
import math
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import IO, NamedTuple

import numpy as np

from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.image_ref import printable
from shardwright.transforms import storage
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.sources.source import Context
from shardwright.transforms.storage.random_access import RandomAccessFile

#: Bytes at the beginning of an array that are read for its header.
HEADER_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 20
#: Bytes of an array that are in memory at once while it is converted to C order.
_REORDERED_BYTES = 32 << 20
#: Compressed bytes that are unpacked at a time to read the beginning of a stream.
_STEP_BYTES = 256
#: Errors from bytes that are damaged, encrypted, or compressed with an unsupported method.
_DAMAGES = (zlib.error, gzip.BadGzipFile, zipfile.BadZipFile, NotImplementedError, RuntimeError)


class UnreadableRows(NamedTuple):
    """Why rows cannot be read."""

    reason: QuarantineReason
    message: str


class ArrayHeader(NamedTuple):
    """Header of an array.

    Attributes:
      dtype: NumPy's name for the type of its values, with the byte order.
      shape: Shape of the whole array.
      begin: Position of the first byte of its values.
      fortran: Whether it is in Fortran order, in which the first index changes fastest.
    """

    dtype: str
    shape: tuple[int, ...]
    begin: int
    fortran: bool = False

    @property
    def row_bytes(self) -> int:
        """Number of bytes of one row, which is one image or one label."""
        return math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    @property
    def end(self) -> int:
        """Position after the last byte of its values."""
        return self.begin + self.shape[0] * self.row_bytes


@dataclass(frozen=True)
class FileSlice:
    """Bytes with random access: a file, or a part of one.

    Attributes:
      uri: File of the input that the bytes come from.
      file: File to read: the same file, or a spool file.
      offset: Position of the first byte in it.
      length: Number of bytes.
      size: Size of the whole file in bytes.
      version: Mark of the file's state; empty for a spool file.
    """

    uri: str
    file: str
    offset: int
    length: int
    size: int
    version: str

    def read(self, begin: int, length: int) -> bytes:
        """Reads some of the bytes; fewer at the end."""
        length = min(length, self.length - begin)
        if length <= 0 or begin < 0:  # a header may state impossible positions
            return b""
        with storage.translated_errors("read", self.file):
            return storage.read_range(self.file, self.offset + begin, length, self.size, self.version)

    def inside(self, begin: int, length: int) -> FileSlice:
        """Returns a part of the bytes, cut at their end."""
        begin = min(max(begin, 0), self.length)
        length = min(max(length, 0), self.length - begin)
        return FileSlice(self.uri, self.file, self.offset + begin, length, self.size, self.version)

    def open(self) -> io.BufferedReader:
        """Opens the bytes as a seekable file."""
        return io.BufferedReader(RandomAccessFile(self.read, self.length), _CHUNK_BYTES)


def slice_of(path: str) -> FileSlice:
    """Returns all bytes of a file.

    Raises:
      UsageError: if the file does not exist.
    """
    with storage.translated_errors("look for", path):
        found = storage.stat(path)
    if found is None:
        raise UsageError(f"{printable(path)} does not exist any more; check the path.")
    return FileSlice(path, path, 0, found.size, found.size, found.version)


@dataclass(frozen=True)
class Rows:
    """The rows of an array.

    Attributes:
      file_slice: Bytes that hold the rows.
      begin: Position of the first row in them.
      stride: Number of bytes from one row to the next.
      length: Number of bytes of one row.
      count: Number of rows that there should be.
      shape: Shape of one row.
      dtype: NumPy's name for the type of the values, with the byte order.
      planar: Whether the values of an image are stored channel by channel.
      damage: Why no row can be read; None if rows can be read.
    """

    file_slice: FileSlice
    begin: int
    stride: int
    length: int
    count: int
    shape: tuple[int, ...]
    dtype: str
    planar: bool = False
    damage: UnreadableRows | None = None

    @property
    def whole(self) -> int:
        """Number of rows that are complete in the file."""
        if self.damage:
            return 0
        room = self.file_slice.length - self.begin - self.length
        return min(self.count, room // self.stride + 1) if room >= 0 else 0

    @property
    def bytes_behind(self) -> int:
        """Number of bytes after the last row."""
        return 0 if self.damage else max(0, self.file_slice.length - self.begin - self.count * self.stride)

    def read(self, first: int, count: int) -> bytes:
        """Reads some of the rows, with the bytes between them."""
        return self.file_slice.read(self.begin + first * self.stride, (count - 1) * self.stride + self.length)

    def values(self, first: int, count: int) -> np.ndarray:
        """Returns some of the complete rows as an array."""
        count = max(0, min(count, self.whole - first))
        if not count:
            return np.empty((0, *self.shape), self.dtype)
        data = self.read(first, count).ljust(count * self.stride, b"\0")
        table = np.frombuffer(data, np.uint8).reshape(count, self.stride)[:, : self.length]
        return np.ascontiguousarray(table).view(self.dtype).reshape(count, *self.shape)


def rows_of(
    file_slice: FileSlice, header: ArrayHeader, context: Context, damage: UnreadableRows | None = None
) -> Rows:
    """Returns the rows of an array, with random access.

    An array in Fortran order scatters the pixels of each image, so it is first converted to C order
    in the spool.
    """
    size = header.row_bytes
    rows = Rows(
        file_slice, header.begin, size, size, header.shape[0], header.shape[1:], header.dtype, damage=damage
    )
    if not header.fortran or math.prod(header.shape[1:]) <= 1 or header.shape[0] <= 1:
        return rows
    if damage or rows.whole < rows.count:
        cut = UnreadableRows(QuarantineReason.TRUNCATED, "its array is in Fortran order and ends early")
        return replace(rows, damage=damage or cut)
    identity = f"{_identity(file_slice)}:C order:{header}"
    path = context.spool.fill(
        identity, file_slice.uri, lambda file: _write_in_c_order(file_slice, header, file)
    )
    spooled = _spooled(file_slice.uri, path)
    return Rows(spooled, 0, size, size, header.shape[0], header.shape[1:], header.dtype)


def _write_in_c_order(file_slice: FileSlice, header: ArrayHeader, file: IO[bytes]) -> None:
    with storage.open_local(file_slice.file) as source:
        array = np.memmap(source, header.dtype, "r", file_slice.offset + header.begin, header.shape, "F")
        step = max(1, _REORDERED_BYTES // header.row_bytes)
        for first in range(0, header.shape[0], step):
            UNDERWAY.progress()
            file.write(np.ascontiguousarray(array[first : first + step]).tobytes())


def _identity(item: FileSlice) -> str:
    return f"{item.uri}:{item.size}:{item.version}:{item.file}:{item.offset}:{item.length}"


def _spooled(uri: str, path: str) -> FileSlice:
    size = storage.size_of(path)
    return FileSlice(uri, path, 0, size, size, "")


class _DamagedStreamError(Exception):
    """A compressed stream is damaged, not only cut off."""


def unpack(
    file_slice: FileSlice, name: str, open_stream: Callable[[], IO[bytes]], limit: int, context: Context
) -> tuple[FileSlice, UnreadableRows | None]:
    """Unpacks a compressed stream into the spool.

    Data before an early end of the stream is kept. A damaged stream yields nothing, because the position
    of its first wrong byte is unknown.

    Args:
      file_slice: Bytes of the compressed file.
      name: Name of the stream in it, if there are several.
      open_stream: Function that opens the stream.
      limit: Most bytes that the stream should have; one more is unpacked to detect a longer stream.
      context: Context of the listing.

    Returns:
      The unpacked bytes, and the damage if the stream is damaged, else None.
    """

    def write(file: IO[bytes]) -> None:
        left = limit + 1
        try:
            with open_stream() as stream:
                # In small steps, so that data before an early end is not lost.
                while left > 0 and (chunk := stream.read1(min(left, _CHUNK_BYTES))):  # type: ignore[attr-defined]
                    file.write(chunk)
                    left -= len(chunk)
                    UNDERWAY.progress()
        except EOFError:
            return
        except _DAMAGES as error:
            raise _DamagedStreamError(words_of(error)) from error

    try:
        path = context.spool.fill(f"{_identity(file_slice)}:{name}:{limit}", file_slice.uri, write)
    except _DamagedStreamError as error:
        message = f"its file cannot be unpacked ({error}); download it again"
        return file_slice.inside(0, 0), UnreadableRows(QuarantineReason.CORRUPT, message)
    return _spooled(file_slice.uri, path), None


def head_of(packed: bytes, wbits: int) -> bytes:
    """Returns the unpacked beginning of a compressed stream, as much as can be unpacked.

    Args:
      packed: First bytes of the stream.
      wbits: Format of the stream, as the `wbits` of `zlib`.
    """
    inflater = zlib.decompressobj(wbits)
    head = b""
    for begin in range(0, len(packed), _STEP_BYTES):
        try:
            head += inflater.decompress(packed[begin : begin + _STEP_BYTES], HEADER_BYTES)
        except zlib.error:
            break
        if inflater.eof or len(head) >= HEADER_BYTES:
            break
    return head[:HEADER_BYTES]


def read_first(open_stream: Callable[[], IO[bytes]], length: int) -> bytes:
    """Returns the first bytes of a compressed stream, as many as can be unpacked."""
    parts: list[bytes] = []
    with contextlib.suppress(*_DAMAGES, EOFError), open_stream() as stream:
        while length > 0 and (chunk := stream.read1(min(length, _CHUNK_BYTES))):  # type: ignore[attr-defined]
            parts.append(chunk)
            length -= len(chunk)
    return b"".join(parts)


def open_gzip(file_slice: FileSlice) -> IO[bytes]:
    """Opens the content of a gzip file."""
    return gzip.GzipFile(fileobj=file_slice.open(), mode="rb")  # type: ignore[return-value]
