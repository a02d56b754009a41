"""Reads TFRecord files record by record, and reports the position and kind of any damage.

A record is framed as `uint64 length`, `uint32 masked crc32c(length)`, `data`,
`uint32 masked crc32c(data)`, little endian (tensorflow/core/lib/io/record_writer.h).
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import IO, Any, NamedTuple

import google_crc32c
import numpy as np

from shardwright.schemas.codes import FindingCode
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.records.range_checksums import STRIDE, RangeChecksums

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
#: Bytes of a length, before its checksum.
_LENGTH_BYTES = 8
_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_READ_BYTES = 1 << 20
#: Size of a buffer of a window in bytes, number of its buffers, and of windows whose buffers are kept.
_WINDOW_BYTES = 1 << 20
_BUFFERS, _MAX_KEPT = 2, 4
#: Largest number of lengths whose checksums are kept.
_MAX_LENGTHS = 1 << 15
#: Number of bytes that are searched first for a sound record; doubled each time.
_FIRST_STEP = 1 << 10
#: Limit for the bytes read because of wrong lengths, as a multiple of the file's size.
_MAX_SPENT = 4
#: A larger record is read only after its checksum was found to be correct.
_LARGE_BYTES = 1 << 26
_MASK_DELTA, _ALL_BITS = 0xA282EAD8, 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """Returns the masked CRC-32C, as frames store it."""
    return _masked(google_crc32c.value(data))


def _masked(crc: int) -> int:
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _ALL_BITS


def are_sound(frames: bytes, lengths: Iterable[int]) -> bool:
    """Returns whether bytes are frames of these lengths, one after another, whose checksums are right.

    Args:
      frames: the bytes.
      lengths: number of bytes of each frame.
    """
    position, size = 0, len(frames)
    header_at, footer_at, crc32c = _HEADER.unpack_from, _FOOTER.unpack_from, google_crc32c.value
    for length in lengths:
        begin, end = position + HEADER_BYTES, position + length - FOOTER_BYTES
        if length < FRAME_BYTES or end + FOOTER_BYTES > size:
            return False
        data_bytes, checksum = header_at(frames, position)
        if data_bytes != end - begin or _LENGTH_CHECKSUMS[data_bytes] != checksum:
            return False
        if _masked(crc32c(frames[begin:end])) != footer_at(frames, end)[0]:
            return False
        position += length
    return position == size


class Record(NamedTuple):
    """A sound record.

    Attributes:
      number: number of the record, from 0; every earlier record and damaged range counts as one.
      offset: offset of its frame.
      data: its data, without the frame.
    """

    number: int
    offset: int
    data: bytes


class DamagedRange(NamedTuple):
    """A range of a shard without a sound record.

    Attributes:
      number: number that the damaged record would have.
      offset: offset of the first byte.
      end: offset at which reading continues: the next sound record, or the end of the file.
      code: SHARD_TRUNCATED, LENGTH_CRC or DATA_CRC, for the frame at `offset`.
      message: one sentence about the damage.
    """

    number: int
    offset: int
    end: int
    code: FindingCode
    message: str


class RecordBlock(NamedTuple):
    """Sound records that follow each other in a file.

    Attributes:
      number: number of the first record.
      offset: offset of its frame.
      buffer: buffer that holds the records. It is filled again when later blocks are read.
      begins: where the data of each record begins in the buffer.
      ends: where the data of each record ends.
    """

    number: int
    offset: int
    buffer: bytes | bytearray
    begins: list[int]
    ends: list[int]

    @property
    def end(self) -> int:
        """Offset of the first byte after the last frame."""
        return self.offset + self.ends[-1] - self.begins[0] + FRAME_BYTES

    def offsets(self) -> tuple[int, ...]:
        """Returns the offsets of the frames."""
        shift = self.offset - self.begins[0]
        return tuple([begin + shift for begin in self.begins])

    def lengths(self) -> tuple[int, ...]:
        """Returns the number of bytes of each frame."""
        return tuple([end - begin + FRAME_BYTES for begin, end in zip(self.begins, self.ends)])

    def records(self) -> Iterator[Record]:
        """Yields the records."""
        view = memoryview(self.buffer)
        shift = self.offset - self.begins[0]
        for number, (begin, end) in enumerate(zip(self.begins, self.ends), self.number):
            yield Record(number, shift + begin, bytes(view[begin:end]))


class _Window:
    """Random access to a file through buffers, which are filled in turn, with constant memory.

    Another thread may still hash one buffer (`HashedFile`) while the other is filled and used. Buffers are
    filled again, because a new one costs as much as reading: the system has to map and clear its memory.

    Args:
      file: the file.
      buffers: buffers to use, to which missing ones are added.
      most: number of buffers to fill in turn. One stays in the processor's cache better.
    """

    def __init__(self, file: IO[bytes], buffers: list[bytearray] | None = None, most: int = _BUFFERS) -> None:
        self._file: Any = file
        self._most = most
        self._start = 0
        self._buffers = [] if buffers is None else buffers
        self._buffer = bytearray()
        self._size = 0

    def _find(self, offset: int, size: int) -> int:
        """Returns the place of an offset in the buffer, which holds `size` bytes after it if they exist."""
        begin = offset - self._start
        if begin >= 0 and begin + size <= self._size:
            return begin
        self._file.seek(offset)
        needed = size + HEADER_BYTES  # includes the header after a large record
        if needed > _WINDOW_BYTES:
            self._buffer = bytearray(needed)
        else:
            if len(self._buffers) < self._most:
                self._buffers.append(bytearray(_WINDOW_BYTES))
            if self._most > 1:
                self._buffers.reverse()
            self._buffer = self._buffers[0]
        self._start, self._size = offset, 0
        with memoryview(self._buffer) as view:
            while self._size < len(view) and (more := self._file.readinto(view[self._size :])):
                self._size += more
        return 0

    def read(self, offset: int, size: int) -> bytes:
        """Returns `size` bytes at `offset`; fewer at the end of the file."""
        begin = self._find(offset, size)
        with memoryview(self._buffer) as view:
            return bytes(view[begin : min(begin + size, self._size)])

    def read_two(self, offset: int, first: int, second: int) -> tuple[bytes, bytes]:
        """Returns `first` bytes at `offset` and `second` bytes after them; a large record is copied once."""
        begin = self._find(offset, first + second)
        middle = min(begin + first, self._size)
        with memoryview(self._buffer) as view:
            return bytes(view[begin:middle]), bytes(view[middle : min(middle + second, self._size)])

    def whole_at(self, offset: int, size: int) -> tuple[bytearray, int, int]:
        """Returns the buffer, the place of `offset` in it, and the number of bytes in the buffer.

        Args:
          offset: an offset.
          size: number of bytes there that are needed.
        """
        begin = self._find(offset, size)
        return self._buffer, begin, self._size


#: Buffers that no window uses.
_KEPT: list[list[bytearray]] = []


@contextlib.contextmanager
def borrowed_buffers() -> Iterator[list[bytearray]]:
    """Lends buffers for one file, and keeps them for the next one, because new memory costs time."""
    try:
        buffers = [buffer for buffer in _KEPT.pop() if len(buffer) == _WINDOW_BYTES]
    except IndexError:
        buffers = []
    yield buffers
    # After an error, another thread may still hash them.
    if len(_KEPT) < _MAX_KEPT:
        _KEPT.append(buffers)


def _crc_tables() -> list[np.ndarray]:
    """Returns tables of the CRC-32C contribution of every byte value at each of 8 byte positions.

    A CRC is affine in its input bits. So the CRC of 8 bytes is the XOR of one table entry for each byte and
    the CRC of 8 zero bytes.
    """
    zero = google_crc32c.value(bytes(8))
    tables = []
    for position in range(8):
        values = [
            google_crc32c.value(bytes(position) + bytes((byte,)) + bytes(7 - position)) ^ zero
            for byte in range(256)
        ]
        tables.append(np.array(values, np.uint32))
    tables[0] ^= np.uint32(zero)
    return tables


_TABLES: list[np.ndarray] = []


def _header_candidates(chunk: bytes, limit: int) -> list[int]:
    """Returns the positions in a chunk of headers with a matching CRC.

    Args:
      chunk: bytes to search.
      limit: largest possible length of a record.
    """
    count = len(chunk) - HEADER_BYTES + 1
    if count <= 0:
        return []
    if not _TABLES:
        _TABLES.extend(_crc_tables())
    data = np.frombuffer(chunk, np.uint8)
    # The high bytes of the length alone rule out most positions.
    high_bytes = max(1, 8 - (limit.bit_length() + 7) // 8)
    places = np.flatnonzero(data[7 : 7 + count] == 0)
    for back in range(1, high_bytes):
        places = places[data[places + 7 - back] == 0]
    crc = np.zeros(len(places), np.uint32)
    for position in range(8):
        crc ^= _TABLES[position][data[places + position]]
    masked = ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(_MASK_DELTA)
    stored = np.zeros(len(places), np.uint32)
    for position in range(4):
        stored |= data[places + 8 + position].astype(np.uint32) << np.uint32(8 * position)
    return [int(place) for place in places[masked == stored]]


class _LengthChecksums(dict[int, int]):
    """Length of a record -> its masked CRC-32C, as frames store it. Lengths of similar images repeat."""

    def __missing__(self, length: int) -> int:
        if len(self) >= _MAX_LENGTHS:
            self.clear()
        self[length] = checksum = masked_crc32c(length.to_bytes(_LENGTH_BYTES, "little"))
        return checksum


_LENGTH_CHECKSUMS = _LengthChecksums()


class _Frames:
    """Finds the sound frames of a file, with bounded work even if lengths are wrong.

    Both windows only move forward, and are swapped less than once per damaged range. Checking a wrong length
    with a correct checksum costs reading that many bytes. When this has cost several times the size of the
    file, one more pass over the file makes each further check cheap.
    """

    def __init__(self, file: IO[bytes], buffers: list[bytearray] | None, most: int) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size
        self._frames = _Window(file, buffers, most)
        self._search = _Window(file)
        #: Whether the last block ended at a frame that was not buffered as a whole.
        self.cut = False
        self._spent = 0
        self._checksums: RangeChecksums | None = None

    def sound_from(self, offset: int, number: int) -> RecordBlock | None:
        """Returns the sound records in the buffer that follow each other from an offset; None without one.

        They end at the first frame that is damaged, or not buffered as a whole: `data_at` tells which.

        Args:
          offset: offset of the first frame.
          number: number of the first record.
        """
        self.cut = False
        if self._spent > _MAX_SPENT * self.size:
            return None
        buffer, position, size = self._frames.whole_at(offset, self._sound_bytes(offset))
        last = size - FRAME_BYTES
        begins, ends = list[int](), list[int]()
        header_at, footer_at, crc32c = _HEADER.unpack_from, _FOOTER.unpack_from, google_crc32c.value
        checksums = _LENGTH_CHECKSUMS
        # A part of an array is not copied; a memoryview would be refused.
        data = np.frombuffer(buffer, np.uint8)
        while position <= last:
            length, stored = header_at(buffer, position)
            begin = position + HEADER_BYTES
            end = begin + length
            if end + FOOTER_BYTES > size:
                self.cut = True
                break
            if checksums[length] != stored:
                break
            crc = crc32c(data[begin:end])
            if ((crc >> 15 | crc << 17) + _MASK_DELTA) & _ALL_BITS != footer_at(buffer, end)[0]:
                self._spent += length
                break
            begins.append(begin)
            ends.append(end)
            position = end + FOOTER_BYTES
        else:
            self.cut = True
        return RecordBlock(number, offset, buffer, begins, ends) if ends else None

    def _sound_bytes(self, offset: int) -> int:
        """Returns the size of the frame at an offset if it is sound and fits into a buffer, else 1."""
        header = self._frames.read(offset, HEADER_BYTES)
        if len(header) == HEADER_BYTES:
            length, crc = _HEADER.unpack(header)
            if masked_crc32c(header[:_LENGTH_BYTES]) == crc and length + FRAME_BYTES <= _WINDOW_BYTES:
                return int(length) + FRAME_BYTES
        return 1

    def data_at(self, offset: int) -> bytes | tuple[FindingCode, str]:
        """Returns the data of the record at an offset, or the problem of the frame there."""
        header = self._frames.read(offset, HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            return FindingCode.SHARD_TRUNCATED, "the file ends inside a record's header"
        length, crc = _HEADER.unpack(header)
        if masked_crc32c(header[:8]) != crc:
            return FindingCode.LENGTH_CRC, "the checksum of the record's length is wrong"
        if length > self.size - offset - FRAME_BYTES:
            return FindingCode.SHARD_TRUNCATED, f"the file ends inside a record of {length} bytes"
        if self._may_be_sound(offset, length):
            data, footer = self._frames.read_two(offset + HEADER_BYTES, length, FOOTER_BYTES)
            if masked_crc32c(data) == int.from_bytes(footer, "little"):
                return data
            self._spent += length
        return FindingCode.DATA_CRC, f"the checksum of the record's {length} bytes is wrong"

    def _may_be_sound(self, offset: int, length: int) -> bool:
        """Returns whether it is worth reading a frame's data, given its cost."""
        if length <= 2 * STRIDE or (length <= _LARGE_BYTES and self._spent <= _MAX_SPENT * self.size):
            return True
        if self._checksums is None:
            self._checksums = RangeChecksums(self._file)
        end = offset + HEADER_BYTES + length
        self._file.seek(end)
        footer = self._file.read(FOOTER_BYTES)
        true = _masked(self._checksums.value(offset + HEADER_BYTES, end))
        return len(footer) == FOOTER_BYTES and true == _FOOTER.unpack(footer)[0]

    def next_sound(self, start: int) -> int:
        """Returns the offset of the next sound record at or after `start`, or the size of the file."""
        position, step = start, _FIRST_STEP
        while position < self.size:
            UNDERWAY.progress()
            chunk = self._search.read(position, step + HEADER_BYTES - 1)
            for place in _header_candidates(chunk, self.size):
                if isinstance(self.data_at(position + place), bytes):
                    return position + place
            position += step
            step = min(2 * step, _READ_BYTES)
        return self.size


def read_records(file: IO[bytes]) -> Iterator[Record | DamagedRange]:
    """Yields every sound record of an uncompressed TFRecord file, and every damaged range between them.

    Records and damaged ranges cover the file from the first byte to the last. After damage, reading continues
    at the next offset where length, checksums and data match. The search starts at the second byte of the
    damaged record, so it misses no sound record, even if records have moved.

    A damaged range counts as one record, because its bytes do not show how many it contained. Later numbers
    are correct if it was one, and later offsets are correct if no byte was inserted or removed. The shard's
    ledger or index tells more.

    Args:
      file: a real file, opened for reading in binary mode.
    """
    for item in read_blocks(file):
        if isinstance(item, DamagedRange):
            yield item
        else:
            yield from item.records()


def read_blocks(
    file: IO[bytes], buffers: list[bytearray] | None = None, most: int = _BUFFERS
) -> Iterator[RecordBlock | DamagedRange]:
    """Yields the records of a file as `read_records` does, but all sound records in a buffer together.

    Args:
      file: a real file, opened for reading in binary mode.
      buffers: buffers to use (`borrowed_buffers`). None to make new ones.
      most: number of buffers to fill in turn.
    """
    frames = _Frames(file, buffers, most)
    offset = number = 0
    while offset < frames.size:
        block = frames.sound_from(offset, number)
        if block is not None:
            yield block
            offset, number = block.end, number + len(block.ends)
            if offset >= frames.size:
                return
            if frames.cut:
                continue
        found = frames.data_at(offset)
        if isinstance(found, bytes):
            yield RecordBlock(number, offset, found, [0], [len(found)])
            offset += len(found) + FRAME_BYTES
        else:
            end = frames.next_sound(offset + 1)
            yield DamagedRange(number, offset, end, *found)
            offset = end
        number += 1


#: Compression -> window bits for zlib.
_WBITS = {"gzip": 31, "zlib": 15}
#: The first bytes of every gzip stream: two bytes of magic, and the only method.
_GZIP_MAGIC = b"\x1f\x8b\x08"
#: Number of bytes that must unpack for a candidate to count as a stream.
_TRIAL_BYTES = 1 << 12
#: Distance after the start of the next stream within which damage may be noticed.
_LOOK_BACK = 1 << 16


@contextlib.contextmanager
def uncompressed(file: IO[bytes], path: str) -> Iterator[tuple[IO[bytes], str, str | None]]:
    """Gives random access to the uncompressed bytes of a shard.

    Args:
      file: the shard, opened at its beginning.
      path: its name, whose extension may show the compression.

    Yields:
      The uncompressed bytes as a file, up to any damage; the compression (none, gzip or zlib); and the
      error, or None.
    """
    compression = compression_of(path, file.read(2))
    file.seek(0)
    if compression == "none":
        yield file, compression, None
        return
    plain, error = decompress(file, compression)
    with closing(plain):
        yield plain, compression, error


def decompress(source: IO[bytes], compression: str) -> tuple[IO[bytes], str | None]:
    """Unpacks a compressed shard into a temporary file.

    Returns:
      The uncompressed file, up to any damage, and the error (None without one).
    """
    target = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    try:
        error = decompress_into(target, source, compression)
    except BaseException:
        target.close()
        raise
    target.flush()
    target.seek(0)
    return target, error


def decompress_into(target: IO[bytes], source: IO[bytes], compression: str) -> str | None:
    """Unpacks a compressed shard into a file, as far as possible; returns the error, or None.

    All bytes before damage are unpacked. Nothing after it in the same stream can be unpacked, because each
    byte depends on earlier ones. But a gzip file may consist of several streams. If the source allows random
    access, unpacking continues with the next sound stream.
    """
    faults: list[str] = []
    start = spent = 0
    while fault := _unpack_streams(target, source, _WBITS[compression], start):
        faults.append(fault.message)
        if compression != "gzip" or not hasattr(source, "seek"):
            break
        spent += fault.offset - fault.begin
        # Damage may become visible only inside the next stream. A stream that fails again is given up.
        behind = 0 if spent > _MAX_SPENT * source.seek(0, os.SEEK_END) else _LOOK_BACK
        found = _next_stream(source, max(fault.begin + 1, fault.offset - behind))
        if found is None:
            break
        faults[-1] += f"; it goes on with the stream at byte {found}"
        source.seek(found)
        start = found
    more = f" (and {len(faults) - 1} more like this)" if len(faults) > 1 else ""
    return faults[0] + more if faults else None


class _StreamFault(NamedTuple):
    """A damaged compressed stream: where it begins, where the damage was noticed, and the message."""

    begin: int
    offset: int
    message: str


def _unpack_streams(target: IO[bytes], source: IO[bytes], wbits: int, start: int) -> _StreamFault | None:
    """Unpacks consecutive streams from `start`, the current position of the source."""
    begin = position = start
    inflater = zlib.decompressobj(wbits)
    fresh = True
    while chunk := source.read(_READ_BYTES):
        while chunk:
            UNDERWAY.progress()
            before = inflater.copy()
            try:
                target.write(inflater.decompress(chunk, 8 * _READ_BYTES))
            except zlib.error:
                return _unpack_to_fault(target, before, chunk, begin, position)
            fresh = inflater.eof
            rest = inflater.unused_data if fresh else inflater.unconsumed_tail
            position += len(chunk) - len(rest)
            chunk = rest
            if fresh:  # another stream may follow
                inflater, begin = zlib.decompressobj(wbits), position
    if fresh:
        return None
    target.write(inflater.flush())
    return _StreamFault(begin, position, f"the compressed stream ends early, after {position} bytes")


def _unpack_to_fault(
    target: IO[bytes], inflater: Any, chunk: bytes, begin: int, position: int
) -> _StreamFault:
    """Unpacks a chunk byte by byte up to the damage."""
    message = "it cannot be unpacked"
    for byte in chunk:
        try:
            target.write(inflater.decompress(bytes((byte,))))
        except zlib.error as problem:
            message = str(problem)
            break
        position += 1
    return _StreamFault(begin, position, f"the compressed stream is damaged near byte {position}: {message}")


def _next_stream(source: IO[bytes], start: int) -> int | None:
    """Returns the position of the next gzip stream whose first bytes can be unpacked; None without one."""
    source.seek(start)
    position, window = start, source.read(_READ_BYTES)
    while window:
        more = source.read(_READ_BYTES)
        window_and_more = window + more
        place = window_and_more.find(_GZIP_MAGIC)
        while 0 <= place < len(window):
            if _begins_stream(window_and_more[place : place + _TRIAL_BYTES]):
                return position + place
            place = window_and_more.find(_GZIP_MAGIC, place + 1)
        position += len(window)
        window = more
    return None


def _begins_stream(head: bytes) -> bool:
    inflater = zlib.decompressobj(_WBITS["gzip"])
    try:
        return bool(inflater.decompress(head, _READ_BYTES)) or inflater.eof
    except zlib.error:
        return False


def compression_of(path: str, head: bytes) -> str:
    """Returns the compression of a shard, from its extension, or else from its first bytes."""
    if path.endswith(".gz"):
        return "gzip"
    if path.endswith(".zlib"):
        return "zlib"
    return "gzip" if head[:2] == b"\x1f\x8b" else "none"
