"""Finds the bytes of every value in a column of a Parquet row group.

Values of pages that are not compressed are ranges of the file itself, so that a worker can read each of them
with one request. Compressed pages are unpacked one by one into a spool file. A value that a dictionary stores
once is one range, however many rows have it. Memory is bounded by one page.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np

from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import words_of
from shardwright.schemas.units import format_size
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.sources.content_digest import content_digest
from shardwright.transforms.sources.parquet.levels import hybrid_numbers
from shardwright.transforms.sources.parquet.thrift import (
    DATA,
    DATA_V2,
    DICTIONARY,
    INDEX,
    Incomplete,
    PageHeader,
    page_header,
)
from shardwright.transforms.storage.ranges import RangeReader

#: Codec of columns that are not compressed.
UNCOMPRESSED = "UNCOMPRESSED"
#: Codecs that are unpacked here, page by page.
CODECS = frozenset((UNCOMPRESSED, "SNAPPY", "GZIP", "BROTLI", "ZSTD"))
#: Encodings that are read here; others are left to pyarrow.
ENCODINGS = frozenset(("PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"))
_PLAIN, _DICTIONARY_ENCODINGS = 0, (2, 8)
#: Bytes that are read for a page's header at first, and at most; statistics may be in it.
_HEAD_BYTES, _MAX_HEAD_BYTES = 1 << 10, 16 << 20
#: A page may unpack to this many bytes, or else to this many times its size.
_SMALL_PAGE, _PAGE_RATIO = 256 << 20, 20
#: All pages of a row group may unpack to this many bytes, or else to this many times their size.
_SMALL_GROUP, _GROUP_RATIO = 10**9, 200
_PIECE = 8 << 20


class StoredImage(NamedTuple):
    """Bytes of a value: where they begin, how many there are, and a digest of them."""

    offset: int
    length: int
    digest: str


class BadImage(NamedTuple):
    """A value that cannot be read, and why."""

    reason: str
    message: str


#: The image of a row; None if the row has none.
Entry = StoredImage | BadImage | None


class Chunk(NamedTuple):
    """A column of a row group.

    Attributes:
      begin: Position of its first page.
      end: Position after its last page.
      codec: Codec of its pages.
      levels: Highest definition level; values of a lower level are null.
      rows: Number of rows in the row group.
    """

    begin: int
    end: int
    codec: str
    levels: int
    rows: int


class _Damage(Exception):
    """Raised if a page, or the rest of one, cannot be read."""

    def __init__(self, message: str, reason: str = QuarantineReason.CORRUPT) -> None:
        super().__init__(message)
        self.bad = BadImage(reason, message)


class _Area(NamedTuple):
    """The values of a page.

    Attributes:
      begin: Position of the first value in the file that workers read.
      length: Number of bytes.
      read: Function that returns some of the bytes, given a position in the area and a length.
    """

    begin: int
    length: int
    read: Callable[[int, int], bytes]


def column_entries(reader: RangeReader, chunk: Chunk, out: IO[bytes] | None, most: int) -> Iterator[Entry]:
    """Yields the image of every row of a row group, also if pages are damaged or missing.

    Args:
      reader: Reader of the Parquet file.
      chunk: Column with the images.
      out: Spool file for unpacked pages; None if the column is not compressed.
      most: Largest image in bytes; larger ones have no digest, because nobody reads them.
    """
    return _Pages(reader, chunk, out, most).entries()


class _Pages:
    def __init__(self, reader: RangeReader, chunk: Chunk, out: IO[bytes] | None, most: int) -> None:
        self._reader, self._chunk, self._out, self._most = reader, chunk, out, most
        self._dictionary: Sequence[Entry] = ()
        self._packed = self._unpacked = 0

    def entries(self) -> Iterator[Entry]:
        done, position, rows = 0, self._chunk.begin, self._chunk.rows
        while done < rows:
            try:
                header = self._header(position)
            except _Damage as damage:
                yield from [damage.bad] * (rows - done)
                return
            body = position + header.length
            position = body + header.packed
            UNDERWAY.progress()
            if header.kind in (DATA, DATA_V2):
                count = min(header.values, rows - done)
                done += count
                yield from self._values(header, body, count)
            elif header.kind == DICTIONARY:
                self._dictionary = [*self._plain_values(header, body)]

    def _header(self, position: int) -> PageHeader:
        size = _HEAD_BYTES
        if position >= self._chunk.end:
            raise _Damage("the column ends before the last row of its row group")
        while True:
            data = self._reader.read_at(position, min(size, self._chunk.end - position))
            try:
                header = page_header(data)
            except Incomplete:
                if len(data) < size or size >= _MAX_HEAD_BYTES:
                    raise _Damage(f"the page at byte {position} has no header") from None
                size *= 8
            except ValueError as error:
                raise _Damage(f"the page at byte {position} is damaged: {error}") from None
            else:
                break
        if position + header.length + header.packed > self._chunk.end:
            raise _Damage(f"the page at byte {position} reaches beyond its column")
        if header.kind not in (DATA, DATA_V2, DICTIONARY, INDEX):
            raise _Damage(f"the page at byte {position} has an unknown kind")
        return header

    def _values(self, header: PageHeader, body: int, count: int) -> Iterator[Entry]:
        """Yields the values of a data page; after damage, the others are bad values."""
        done = 0
        try:
            area, present = self._present(header, body)
            if header.encoding in _DICTIONARY_ENCODINGS:
                values = self._from_dictionary(area, int(present.sum()))
            elif header.encoding == _PLAIN:
                values = self._plain(area, int(present.sum()))
            else:
                raise _Damage(f"the page at byte {body} has another encoding than its column")
            for there in present[:count].tolist():
                entry = next(values) if there else None
                done += 1
                yield entry
        except _Damage as damage:
            yield from [damage.bad] * (count - done)

    def _plain_values(self, header: PageHeader, body: int) -> Iterator[Entry]:
        """Yields the values of a dictionary page."""
        try:
            yield from self._plain(self._area(header, body), header.values)
        except _Damage:  # indices beyond what could be read are reported for the rows that have them
            return

    def _present(self, header: PageHeader, body: int) -> tuple[_Area, np.ndarray]:
        """Returns the values of a data page, and whether each row has one."""
        if header.values > self._chunk.rows:
            raise _Damage(f"the page at byte {body} has more values than its row group has rows")
        area = self._area(header, body)
        highest = self._chunk.levels
        if not highest:
            return area, np.ones(header.values, bool)
        if header.kind == DATA_V2:
            levels = self._reader.read_at(body, header.levels)
        else:
            length = int.from_bytes(area.read(0, 4), "little")
            if length + 4 > area.length:
                raise _Damage(f"the levels of the page at byte {body} are damaged")
            levels = area.read(4, length)
            area = _inner(area, 4 + length)
        try:
            found = hybrid_numbers(levels, highest.bit_length(), header.values)
        except ValueError as error:
            raise _Damage(f"the levels of the page at byte {body} are damaged: {error}") from None
        return area, found == highest

    def _area(self, header: PageHeader, body: int) -> _Area:
        """Returns what follows the uncompressed levels of a page, unpacked."""
        self._check_crc(header, body)
        begin, packed = body + header.levels, header.packed - header.levels
        reader = self._reader
        if self._out is None:
            return _Area(begin, packed, lambda at, length: reader.read_at(begin + at, length))
        unpacked = header.unpacked - header.levels
        self._check_size(packed, unpacked)
        data = b"".join(self._pieces(begin, packed))
        if self._chunk.codec != UNCOMPRESSED and header.compressed and packed:
            data = _unpacked(data, self._chunk.codec, unpacked, body)
        place = self._out.tell()
        self._out.write(data)
        return _Area(place, len(data), lambda at, length: data[at : at + length])

    def _check_size(self, packed: int, unpacked: int) -> None:
        self._packed += packed
        self._unpacked += unpacked
        page = max(_SMALL_PAGE, _PAGE_RATIO * packed)
        group = max(_SMALL_GROUP, _GROUP_RATIO * self._packed)
        if unpacked > page or self._unpacked > group:
            limit = format_size(page if unpacked > page else group)
            raise _Damage(
                f"{format_size(packed)} of its column unpack to more than {limit}", QuarantineReason.TOO_LARGE
            )

    def _pieces(self, begin: int, length: int) -> Iterator[bytes]:
        for at in range(begin, begin + length, _PIECE):
            yield self._reader.read_at(at, min(_PIECE, begin + length - at))

    def _check_crc(self, header: PageHeader, body: int) -> None:
        if header.crc32 is None:
            return
        found = 0
        for piece in self._pieces(body, header.packed):
            found = zlib.crc32(piece, found)
        if found != header.crc32:
            raise _Damage(
                f"the page at byte {body} does not agree with its CRC-32", QuarantineReason.CHECKSUM_MISMATCH
            )

    def _plain(self, area: _Area, count: int) -> Iterator[StoredImage]:
        position = 0
        for _ in range(count):
            length = int.from_bytes(area.read(position, 4), "little")
            position += 4
            if position + length > area.length:
                raise _Damage(f"a value at byte {area.begin + position} reaches beyond its page")
            digest = content_digest(area.read(position, length)) if length <= self._most else ""
            yield StoredImage(area.begin + position, length, digest)
            position += length

    def _from_dictionary(self, area: _Area, count: int) -> Iterator[Entry]:
        entries = self._dictionary
        try:
            width = int.from_bytes(area.read(0, 1), "little")
            indices = hybrid_numbers(area.read(1, area.length - 1), width, count)
        except ValueError as error:
            raise _Damage(f"the indices at byte {area.begin} are damaged: {error}") from None
        for index in indices.tolist():
            if index < len(entries):
                yield entries[index]
            else:
                yield BadImage(QuarantineReason.CORRUPT, f"its dictionary has no readable value {index}")


def _inner(area: _Area, begin: int) -> _Area:
    read = area.read
    return _Area(area.begin + begin, area.length - begin, lambda at, length: read(begin + at, length))


def _unpacked(data: bytes, codec: str, size: int, body: int) -> bytes:
    import pyarrow

    try:
        found: bytes = pyarrow.Codec(codec.lower()).decompress(data, size, asbytes=True)
    except (pyarrow.ArrowException, OSError) as error:
        raise _Damage(f"the page at byte {body} cannot be unpacked ({words_of(error)})") from None
    return found
