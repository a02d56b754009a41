"""Opens TFRecord files: unpacks compressed ones, damaged ones up to the damage, and reads some records."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zlib
from collections.abc import Collection, Generator, Iterator
from contextlib import closing
from typing import IO, Any, NamedTuple

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.records import framing
from shardwright.core.storage.ranges import open_ranges
from shardwright.schemas.errors import EngineError

#: Number of bytes at the beginning of a file that show its compression.
HEAD_BYTES = 4096
#: Compression -> window bits for zlib.
WBITS = {"gzip": 31, "zlib": 15}
_READ_BYTES = 1 << 20
#: Records above this size are not read by their offset.
MAX_RECORD_BYTES = 64_000_000
#: The first bytes of every gzip stream: two bytes of magic, and the only method.
_GZIP_MAGIC = b"\x1f\x8b\x08"
#: Number of bytes that must unpack for a candidate to count as a stream.
_TRIAL_BYTES = 1 << 12
#: Distance after the start of the next stream within which damage may be noticed.
_LOOK_BACK = 1 << 16
#: Limit for the bytes unpacked in vain, as a multiple of the size of the file.
_MAX_SPENT = 4


@contextlib.contextmanager
def uncompressed(file: IO[bytes], path: str) -> Iterator[tuple[IO[bytes], str, str | None]]:
    """Gives random access to the uncompressed bytes of a shard.

    Args:
      file: Shard, opened at its beginning.
      path: Its name, whose extension may show the compression.

    Yields:
      The uncompressed bytes as a file, up to any damage; the compression (none, gzip or zlib); and the
      error, or None.
    """
    compression = compression_of(path, file.read(HEAD_BYTES))
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
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(tempfile.TemporaryFile())
        error = decompress_into(target, source, compression)
        target.seek(0)
        stack.pop_all()  # the caller closes it
    return target, error


def decompress_into(target: IO[bytes], source: IO[bytes], compression: str) -> str | None:
    """Unpacks a compressed shard into a file; returns why parts of it are missing, or None.

    All bytes before damage are unpacked. Nothing after it in the same stream can be unpacked, because each
    byte depends on earlier ones. But a gzip file may consist of several streams, and unpacking continues with
    the next sound one.
    """
    faults: list[str] = []
    start = spent = 0
    while fault := _unpack_streams(target, source, WBITS[compression], start):
        faults.append(fault.message)
        if compression != "gzip":
            break
        spent += fault.offset - fault.begin
        # Damage may become visible only inside the next stream. A stream that fails again is given up.
        behind = 0 if spent > _MAX_SPENT * source.seek(0, os.SEEK_END) else _LOOK_BACK
        next_start = _next_stream(source, max(fault.begin + 1, fault.offset - behind))
        if next_start is None:
            break
        faults[-1] += f"; it goes on with the stream at byte {next_start}"
        source.seek(next_start)
        start = next_start
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
            inflater = zlib.decompressobj(WBITS["gzip"])
            with contextlib.suppress(zlib.error):
                head = window_and_more[place : place + _TRIAL_BYTES]
                if inflater.decompress(head, _READ_BYTES) or inflater.eof:
                    return position + place
            place = window_and_more.find(_GZIP_MAGIC, place + 1)
        position += len(window)
        window = more
    return None


def unpack(head: bytes, compression: str, limit: int = framing.HEADER_BYTES) -> bytes:
    """Returns the unpacked beginning of a file; empty if it cannot be unpacked."""
    try:
        return zlib.decompressobj(WBITS[compression]).decompress(head, limit)
    except zlib.error:
        return b""


def compression_of(path: str, head: bytes) -> str:
    """Returns the compression of a TFRecord file.

    Args:
      path: Its name. The extension decides only if the content does not tell.
      head: Its first `HEAD_BYTES`; empty to look at the name alone.
    """
    if framing.is_header(head):
        return "none"
    if framing.is_header(unpack(head, "zlib")):
        return "zlib"
    if path.endswith(".gz"):
        return "gzip"
    if path.endswith(".zlib"):
        return "zlib"
    return "gzip" if head[:2] == b"\x1f\x8b" else "none"


def read_lazily(path: str) -> Generator[framing.Record | framing.DamagedRange, None, None]:
    """Yields the records of a shard like `read_records`, and reads only what the caller consumes.

    A compressed shard is unpacked into a temporary file first.

    Raises:
      EngineError: If the file is missing or cannot be read.
    """
    with (
        translated_shard_errors(path),
        storage.open_local(path) as file,
        uncompressed(file, path) as (plain, _, fault),
    ):
        yield from framing.read_records(plain, fault)


@contextlib.contextmanager
def translated_shard_errors(path: str) -> Iterator[None]:
    """Turns any OSError of the block into an `EngineError`. If the shard is missing, it says what to do."""
    with storage.translated_errors("read", path):
        try:
            yield
        except FileNotFoundError as error:
            raise EngineError(f"{path} is missing; restore it or convert again.") from error


def records_at(path: str, offsets: Collection[int]) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, data) of the sound records at the given offsets of a shard, in order.

    Only these records of an uncompressed shard are read, and only those of at most `MAX_RECORD_BYTES`.

    Raises:
      EngineError: If the file is missing or cannot be read.
    """
    left = set(offsets)
    if not left:
        return
    with translated_shard_errors(path), open_ranges(path) as reader:
        if compression_of(path, reader.read_at(0, HEAD_BYTES)) == "none":
            for offset in sorted(left):
                with contextlib.suppress(framing.FrameDamage):
                    length = framing.data_length(
                        reader.read_at(offset, framing.HEADER_BYTES), reader.size - offset
                    )
                    if length <= MAX_RECORD_BYTES:
                        yield offset, framing.data_of(reader.read_at(offset, length + framing.FRAME_BYTES))
            return
    for item in read_lazily(path):
        if isinstance(item, framing.Record) and item.offset in left:
            yield item.offset, item.data
            left.remove(item.offset)
            if not left:
                return
