"""Arrays in files: MNIST's idx files, NumPy's `.npy` files, and the members of `.npz` files.

Rows that are stored as they are, one after another, are read in place. Members of `.npz` files and compressed
idx files are unpacked into the spool, and arrays in Fortran order are written there in C order, because it
scatters each image.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.sources.containers import state_of
from shardwright.core.sources.source import Context
from shardwright.core.storage.ranges import RandomAccessFile
from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault, UsageError, words_of
from shardwright.schemas.plain_text import printable

#: Kinds of files, also for messages.
IDX, NPY, NPZ, CIFAR, CIFAR_ARCHIVE = "IDX", "NumPy .npy", "NumPy .npz", "CIFAR batch", "CIFAR archive"
_CHUNK_BYTES = 1 << 20
#: Bytes that are unpacked at a time, so that damage does not hide the header before it.
_STEP_BYTES = 1 << 12
#: Bytes at the beginning of an array that are read for its header.
_HEADER_BYTES = 1 << 16
#: Bytes of an array that are in memory at once while it is written in C order.
_REORDERED_BYTES = 32 << 20
#: The third byte of an idx file -> type of its values, most significant byte first.
_IDX_TYPES = {0x08: "|u1", 0x09: "|i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP = b"\x1f\x8b"
#: Errors from bytes that are damaged, encrypted, or compressed with an unsupported method.
_DAMAGES = (zlib.error, gzip.BadGzipFile, zipfile.BadZipFile, NotImplementedError, RuntimeError)


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


def parse_idx_header(head: bytes) -> ArrayHeader:
    """Reads the header of an idx file.

    Raises:
      ValueError: If the file is not an idx file.
    """
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _IDX_TYPES or not head[3]:
        raise ValueError("it is not an IDX file")
    begin = 4 + 4 * head[3]
    if len(head) < begin:
        raise ValueError("its header is incomplete")
    return ArrayHeader(_IDX_TYPES[head[2]], struct.unpack(f">{head[3]}I", head[4:begin]), begin)


def parse_npy_header(head: bytes) -> ArrayHeader:
    """Reads the header of NumPy's format without unpickling anything.

    Raises:
      ValueError: If it is not an array's header, or the values are not plain.
    """
    file = io.BytesIO(head)
    try:
        version = npy_format.read_magic(file)
        read = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}[version]
        shape, fortran, dtype = read(file)
    except Exception as error:  # NumPy parses it as Python text, which can fail in many ways
        raise ValueError(f"it is not a NumPy array of plain numbers ({words_of(error)})") from None
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never unpickled: save it with a plain dtype")
    if dtype.kind not in "biufSU":
        raise ValueError(f"it holds values of type {dtype}, which are neither pixels nor labels")
    if not all(type(side) is int and 0 <= side < 2**63 for side in shape) or not shape:
        raise ValueError(f"its shape {shape} is not the shape of an array of images or labels")
    return ArrayHeader(dtype.str, shape, file.tell(), fortran)


@dataclass(frozen=True)
class FileSlice:
    """A part of a file.

    Attributes:
      uri: File of the input that the bytes come from.
      place: Where they are: in that file, or in a spool file.
    """

    uri: str
    place: ByteRange

    @property
    def file(self) -> str:
        """File that contains the bytes."""
        return self.place.file or self.uri

    def read(self, begin: int, length: int) -> bytes:
        """Reads some of the bytes; fewer at the end."""
        length = min(length, self.place.length - begin)
        if length <= 0:
            return b""
        with storage.translated_errors("read", self.file):
            _, offset, _, _, size, version, *_ = self.place
            return storage.read_range(self.file, offset + begin, length, size, version)

    def after(self, begin: int) -> FileSlice:
        """Returns the bytes from a position on."""
        offset, length = self.place.offset + begin, max(0, self.place.length - begin)
        return FileSlice(self.uri, self.place._replace(offset=offset, length=length))

    def open(self) -> io.BufferedReader:
        """Opens the bytes as a seekable file."""
        return io.BufferedReader(RandomAccessFile(self.read, self.place.length), _CHUNK_BYTES)


def slice_of(path: str) -> FileSlice:
    """Returns all bytes of a file.

    Raises:
      UsageError: If the file does not exist.
    """
    _, size, version, *_ = state_of(path)
    return FileSlice(path, ByteRange("", 0, size, file_size=size, file_version=version))


@dataclass(frozen=True)
class Rows:
    """The rows of an array. Each row is one image or one label.

    Attributes:
      file_slice: Bytes that begin with the first row.
      stride: Number of bytes from one row to the next.
      count: Number of rows that there should be.
      shape: Shape of one row.
      dtype: NumPy's name for the type of the values, with the byte order.
      planar: Whether the values of an image are stored channel by channel.
      damage: Why no row can be read; None if rows can be read.
    """

    file_slice: FileSlice
    stride: int
    count: int
    shape: tuple[int, ...] = ()
    dtype: str = "|u1"
    planar: bool = False
    damage: ImageFault | None = None

    @property
    def length(self) -> int:
        """Number of bytes of one row."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def whole(self) -> int:
        """Number of rows that are complete in the file."""
        room = self.file_slice.place.length - self.length
        if self.damage or room < 0:
            return 0
        return min(self.count, room // self.stride + 1) if self.stride else self.count

    @property
    def bytes_behind(self) -> int:
        """Number of bytes after the last row."""
        return 0 if self.damage else max(0, self.file_slice.place.length - self.count * self.stride)

    def read(self, first: int, count: int) -> bytes:
        """Reads some of the rows, with the bytes between them."""
        return self.file_slice.read(first * self.stride, (count - 1) * self.stride + self.length)

    def values(self, first: int, count: int) -> np.ndarray:
        """Returns some of the complete rows as an array."""
        count = max(0, min(count, self.whole - first))
        if not count:
            return np.empty((0, *self.shape), self.dtype)
        data = self.read(first, count)
        table = np.ndarray((count, self.length), np.uint8, data, strides=(self.stride, 1))
        return np.ascontiguousarray(table).view(self.dtype).reshape(count, *self.shape)


@dataclass(frozen=True, order=True)
class ArrayFile:
    """An array in a file, or CIFAR's images with their labels.

    Attributes:
      kind: Kind of the file.
      folder: Folder of the input.
      file: Path of the file in it.
      member: Name of the array in a `.npz` file.
    """

    kind: str
    folder: str
    file: str
    member: str = ""

    @property
    def is_cifar(self) -> bool:
        """Whether it is a batch or an archive of CIFAR."""
        return self.kind in (CIFAR, CIFAR_ARCHIVE)

    @property
    def path(self) -> str:
        """Path of the file."""
        return storage.join(self.folder, self.file)

    @property
    def name(self) -> str:
        """Name for messages."""
        return printable(f"{self.path}!{self.member}" if self.member else self.path)

    @cached_property
    def header(self) -> ArrayHeader:
        """Header of the array.

        Raises:
          UsageError: If the file has no such array, or is damaged or encrypted.
        """
        parse = parse_idx_header if self.kind == IDX else parse_npy_header
        try:
            return parse(self.read_first(_HEADER_BYTES))
        except (*_DAMAGES, ValueError, KeyError) as error:
            raise UsageError(f"--input {self.name}: {words_of(error)}; save the array again.") from None

    @property
    def members(self) -> list[str]:
        """Names of the arrays in a `.npz` file.

        Raises:
          UsageError: If it is not a `.npz` file.
        """
        try:
            with zipfile.ZipFile(self._file.open()) as archive:
                names = archive.namelist()
        except (zipfile.BadZipFile, struct.error, ValueError, NotImplementedError) as error:
            raise UsageError(
                f"--input {self.name} is damaged or not a .npz file ({words_of(error)}); download it again."
            ) from None
        return sorted({name.removesuffix(".npy") for name in names if name.endswith(".npy")})

    def read_first(self, length: int) -> bytes:
        """Returns the first bytes of the array, unpacked; fewer if they are damaged."""
        data, stream = bytearray(), self._open()
        with contextlib.suppress(*_DAMAGES):
            for piece in _pieces(stream, length):
                data += piece
        return bytes(data)

    def rows(self, context: Context) -> Rows:
        """Returns the rows of the array in C order, whose bytes are not compressed.

        Raises:
          UsageError: If the file has no such array.
        """
        header, file, damage = self.header, self._file, None
        if self.kind == NPZ or self._is_gzip:
            file, damage = self._unpack(context)
        count, *shape = header.shape
        bytes_of_rows = file.after(header.begin)
        rows = Rows(bytes_of_rows, header.row_bytes, count, tuple(shape), header.dtype, damage=damage)
        if not header.fortran or math.prod(shape) <= 1 or count <= 1:
            return rows
        if damage or rows.whole < count:
            message = "its array is in Fortran order and ends early"
            return replace(rows, damage=damage or ImageFault(QuarantineReason.TRUNCATED, Stage.LIST, message))
        with storage.open_local(file.file) as source:
            array = np.memmap(source, header.dtype, "r", file.place.offset + header.begin, header.shape, "F")
            return spooled_rows(file, f"C order:{header}", array, context)

    def _unpack(self, context: Context) -> tuple[FileSlice, ImageFault | None]:
        """Unpacks the array into the spool.

        Data before an early end of the stream is kept. A damaged stream yields nothing, because the position
        of its first wrong byte is unknown.

        Returns:
          The unpacked bytes and None; or the compressed bytes and the damage, if the stream is damaged.
        """
        most = self.header.end + 1  # one more byte to detect a longer stream

        def write(file: IO[bytes]) -> None:
            try:
                for piece in _pieces(self._open(), most):
                    file.write(piece)
                    UNDERWAY.progress()
            except _DAMAGES as error:
                message = f"its file cannot be unpacked ({words_of(error)}); download it again"
                raise ImageFault(QuarantineReason.CORRUPT, Stage.LIST, message) from error

        try:
            place = context.spool.fill(f"{self._file}:{self.member}:{most}", self.path, write)
        except ImageFault as fault:
            return self._file, fault
        return FileSlice(self.path, place), None

    @cached_property
    def _file(self) -> FileSlice:
        return slice_of(self.path)

    @cached_property
    def _is_gzip(self) -> bool:
        return self.kind == IDX and self._file.read(0, len(_GZIP)) == _GZIP

    def _open(self) -> Any:
        """Opens the unpacked bytes."""
        file = self._file.open()
        if self.kind == NPZ:
            return zipfile.ZipFile(file).open(f"{self.member}.npy")
        return gzip.GzipFile(fileobj=file) if self._is_gzip else file


def _pieces(stream: Any, most: int) -> Iterator[bytes]:
    """Yields a limited number of bytes in small steps, so that none before an early end are lost."""
    with stream, contextlib.suppress(EOFError):
        while most > 0 and (piece := stream.read1(min(most, _STEP_BYTES))):
            yield piece
            most -= len(piece)


def spooled_rows(file_slice: FileSlice, name: str, array: np.ndarray, context: Context) -> Rows:
    """Returns the rows of an array, which is written to the spool in C order.

    Args:
      file_slice: Bytes of the file that the array comes from.
      name: Name of the array, for the name of the spool file.
      array: The array, which may be a memory map.
      context: Context of the listing.
    """
    count, *shape = array.shape
    row_bytes = math.prod(shape) * array.itemsize

    def write(out: IO[bytes]) -> None:
        step = max(1, _REORDERED_BYTES // row_bytes)
        for first in range(0, count, step):
            UNDERWAY.progress()
            out.write(np.ascontiguousarray(array[first : first + step]).data)

    place = context.spool.fill(f"{file_slice}:{name}", file_slice.uri, write)
    return Rows(FileSlice(file_slice.uri, place), row_bytes, count, tuple(shape), array.dtype.str)
