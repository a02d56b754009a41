"""Writes the sound records of a damaged shard to a new file, and reads it back."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import IO

from shardwright.core import storage
from shardwright.core.records.compression import WBITS, decompress
from shardwright.core.shards.finish import discard
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import printable


def write_frames(
    source: IO[bytes] | None,
    source_path: str,
    frames: Sequence[tuple[int, int]],
    directory: str,
    file: str,
    compression: str,
    existing: bool = False,
) -> str:
    """Writes the records of the given frames of a file to a temporary file; returns its path.

    Equal records give the bytes that Beam's sink writes.

    Args:
      source: File that contains the frames, uncompressed. None if there are none.
      source_path: Its path, for messages.
      frames: Offset and length of each frame, in the order in which they are written.
      directory: Directory in which the file will be published.
      file: Its name there.
      compression: none, gzip or zlib.
      existing: Whether the directory must exist already; it is not created.

    Raises:
      EngineError: If the storage failed, or the file does not read back as it was written.
    """
    path = storage.join(directory, file)
    with storage.translated_errors("write", path):
        temporary = storage.temporary_path(directory, file, existing)
        try:
            with open(temporary, "wb") as target:
                compressor = zlib.compressobj(wbits=WBITS[compression]) if compression != "none" else None
                for frame in _frames(source, source_path, frames):
                    target.write(compressor.compress(frame) if compressor else frame)
                if compressor:
                    target.write(compressor.flush())
            _read_back(temporary, _frames(source, source_path, frames), compression, printable(path))
        except BaseException:
            discard(temporary)
            raise
    return temporary


def _frames(source: IO[bytes] | None, path: str, frames: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    for offset, length in frames if source else ():
        with storage.translated_errors("read", path):
            source.seek(offset)  # type: ignore[union-attr]
            frame = source.read(length)  # type: ignore[union-attr]
        if len(frame) < length:
            raise storage.changed(path)
        yield frame


def _read_back(temporary: str, frames: Iterator[bytes], compression: str, name: str) -> None:
    """Compares the written file with the frames that it should hold."""
    with open(temporary, "rb") as written:
        plain, error = decompress(written, compression) if compression != "none" else (written, None)
        with closing(plain):
            same = error is None and all(plain.read(len(frame)) == frame for frame in frames)
            if not same or plain.read(1):
                raise EngineError(
                    f"{name} does not read back as it was written; check the disk, then run again."
                )
