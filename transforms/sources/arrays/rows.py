"""Rows of arrays: where in a file each image's pixels or each label lie, without taking its header's word."""

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
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.transforms import storage
from shardwright.transforms.sources.source import Context

#: Bytes of the beginning of an array in which its header stands.
HEADER_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 20
#: Bytes of an array that are in memory at once while it is brought into another order.
_REORDERED_BYTES = 32 << 20
#: Bytes of a compressed stream that are unpacked at a time to see its beginning.
_STEP_BYTES = 256
#: What is raised where compressed bytes are wrong, or encrypted, or compressed in some other way.
_DAMAGES = (zlib.error, gzip.BadGzipFile, zipfile.BadZipFile, NotImplementedError, RuntimeError)


class UnreadableRows(NamedTuple):
    """Why rows cannot be had."""

    reason: QuarantineReason
    message: str


class ArrayHeader(NamedTuple):
    """What the beginning of an array says.

    Attributes:
      dtype: NumPy's name of the type of its values, with the byte order.
      shape: of all of it.
      begin: the first byte of its values.
      fortran: whether the first index runs fastest.
    """

    dtype: str
    shape: tuple[int, ...]
    begin: int
    fortran: bool = False

    @property
    def row_bytes(self) -> int:
        """Bytes of one row: one image, or one label."""
        return math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    @property
    def end(self) -> int:
        """The byte behind its values."""
        return self.begin + self.shape[0] * self.row_bytes


@dataclass(frozen=True)
class Stretch:
    """Bytes that can be read at random: a file, or a part of one.

    Attributes:
      uri: the file of the input that they come from.
      file: the file to read: the same, or a spool file.
      offset: where they begin in it.
      length: how many they are.
      size: bytes of the whole file.
      version: the mark of its state; empty for a spool file.
    """

    uri: str
    file: str
    offset: int
    length: int
    size: int
    version: str

    def read(self, begin: int, length: int) -> bytes:
        """Reads some of the bytes; fewer at their end."""
        length = min(length, self.length - begin)
        if length <= 0 or begin < 0:  # no file is that way round, but its own header may say so
            return b""
        with storage.translated_errors("read", self.file):
            return storage.read_range(self.file, self.offset + begin, length, self.size, self.version)

    def inside(self, begin: int, length: int) -> Stretch:
        """Returns a part of the bytes; what would lie behind their end is left out."""
        begin = min(max(begin, 0), self.length)
        length = min(max(length, 0), self.length - begin)
        return Stretch(self.uri, self.file, self.offset + begin, length, self.size, self.version)

    def open(self) -> io.BufferedReader:
        """Opens the bytes as a file that can be read and searched."""
        return io.BufferedReader(_StretchFile(self), _CHUNK_BYTES)


class _StretchFile(io.RawIOBase):
    """A stretch as a file."""

    def __init__(self, stretch: Stretch) -> None:
        super().__init__()
        self._stretch = stretch
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._stretch.length}[whence]
        if base + offset < 0:
            raise ValueError("negative seek position")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stretch.read(self._position, len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def stretch_of(path: str) -> Stretch:
    """Returns all bytes of a file.

    Raises:
      UsageError: if it is not there.
    """
    with storage.translated_errors("look for", path):
        found = storage.stat(path)
    if found is None:
        raise UsageError(f"{printable(path)} is not there any more; check the path.")
    return Stretch(path, path, 0, found.size, found.size, found.version)


@dataclass(frozen=True)
class Rows:
    """The rows of an array.

    Attributes:
      stretch: what they lie in.
      begin: where the first one begins in it.
      stride: bytes from one to the next.
      length: bytes of one.
      count: how many there should be.
      shape: of one.
      dtype: NumPy's name of the type of the values, with its byte order.
      planar: whether the values of an image stand channel by channel.
      damage: why none of them can be had, if so.
    """

    stretch: Stretch
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
        """How many of them are there to the last byte."""
        if self.damage:
            return 0
        room = self.stretch.length - self.begin - self.length
        return min(self.count, room // self.stride + 1) if room >= 0 else 0

    @property
    def bytes_behind(self) -> int:
        """Bytes that follow the last row and belong to nothing."""
        return 0 if self.damage else max(0, self.stretch.length - self.begin - self.count * self.stride)

    def read(self, first: int, count: int) -> bytes:
        """Reads some of the rows, with what stands between them."""
        return self.stretch.read(self.begin + first * self.stride, (count - 1) * self.stride + self.length)

    def values(self, first: int, count: int) -> np.ndarray:
        """Returns some of the rows that are there as an array."""
        count = max(0, min(count, self.whole - first))
        if not count:
            return np.empty((0, *self.shape), self.dtype)
        data = self.read(first, count).ljust(count * self.stride, b"\0")
        table = np.frombuffer(data, np.uint8).reshape(count, self.stride)[:, : self.length]
        return np.ascontiguousarray(table).view(self.dtype).reshape(count, *self.shape)


def rows_of(
    stretch: Stretch, header: ArrayHeader, context: Context, damage: UnreadableRows | None = None
) -> Rows:
    """Returns the rows of an array that can be read at random.

    An array in Fortran order, in which no image's pixels stand together, is brought into C order in
    the spool first.
    """
    size = header.row_bytes
    rows = Rows(
        stretch, header.begin, size, size, header.shape[0], header.shape[1:], header.dtype, damage=damage
    )
    if not header.fortran or math.prod(header.shape[1:]) <= 1 or header.shape[0] <= 1:
        return rows
    if damage or rows.whole < rows.count:
        cut = UnreadableRows(QuarantineReason.TRUNCATED, "its array is in Fortran order and ends early")
        return replace(rows, damage=damage or cut)
    identity = f"{_identity(stretch)}:C order:{header}"
    path = context.spool.fill(identity, lambda file: _write_in_c_order(stretch, header, file))
    spooled = _spooled(stretch.uri, path)
    return Rows(spooled, 0, size, size, header.shape[0], header.shape[1:], header.dtype)


def _write_in_c_order(stretch: Stretch, header: ArrayHeader, file: IO[bytes]) -> None:
    with storage.open_local(stretch.file) as source:
        array = np.memmap(source, header.dtype, "r", stretch.offset + header.begin, header.shape, "F")
        step = max(1, _REORDERED_BYTES // header.row_bytes)
        for first in range(0, header.shape[0], step):
            file.write(np.ascontiguousarray(array[first : first + step]).tobytes())


def _identity(stretch: Stretch) -> str:
    return f"{stretch.uri}:{stretch.size}:{stretch.version}:{stretch.file}:{stretch.offset}:{stretch.length}"


def _spooled(uri: str, path: str) -> Stretch:
    size = storage.size_of(path)
    return Stretch(uri, path, 0, size, size, "")


class _DamagedStreamError(Exception):
    """A compressed stream whose bytes are wrong, not only too few."""


def unpack(
    stretch: Stretch, name: str, open_stream: Callable[[], IO[bytes]], limit: int, context: Context
) -> tuple[Stretch, UnreadableRows | None]:
    """Unpacks a compressed stream into the spool.

    What a stream that ends early has is kept. One whose bytes are wrong yields nothing: its first wrong
    byte cannot be told.

    Args:
      stretch: the compressed file.
      name: of the stream in it, if it has several.
      open_stream: opens it.
      limit: bytes that it should have at most; one more is unpacked, so that too many can be seen.
      context: of the listing.

    Returns:
      The unpacked bytes, and why there are none, if so.
    """

    def write(file: IO[bytes]) -> None:
        left = limit + 1
        try:
            with open_stream() as stream:
                # A step at a time: where the stream is cut off, what came before is not lost.
                while left > 0 and (chunk := stream.read1(min(left, _CHUNK_BYTES))):  # type: ignore[attr-defined]
                    file.write(chunk)
                    left -= len(chunk)
        except EOFError:
            return
        except _DAMAGES as error:
            raise _DamagedStreamError(str(error)) from error

    try:
        path = context.spool.fill(f"{_identity(stretch)}:{name}:{limit}", write)
    except _DamagedStreamError as error:
        message = f"its file cannot be unpacked without fault ({error}); get it again"
        return stretch.inside(0, 0), UnreadableRows(QuarantineReason.CORRUPT, message)
    return _spooled(stretch.uri, path), None


def head_of(packed: bytes, wbits: int) -> bytes:
    """Returns the beginning of a compressed stream, as far as it can be unpacked.

    Args:
      packed: its first bytes.
      wbits: what `zlib` calls its form.
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
    """Returns the first bytes of a compressed stream, as far as it can be unpacked."""
    parts: list[bytes] = []
    with contextlib.suppress(*_DAMAGES, EOFError), open_stream() as stream:
        while length > 0 and (chunk := stream.read1(min(length, _CHUNK_BYTES))):  # type: ignore[attr-defined]
            parts.append(chunk)
            length -= len(chunk)
    return b"".join(parts)


def open_gzip(stretch: Stretch) -> IO[bytes]:
    """Opens the bytes that a gzip file holds."""
    return gzip.GzipFile(fileobj=stretch.open(), mode="rb")  # type: ignore[return-value]
