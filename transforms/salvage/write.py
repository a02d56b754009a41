"""Writes the sound records of a damaged shard to a new file, and reads it back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import IO, Any

from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import printable
from shardwright.transforms import storage
from shardwright.transforms.records.compression import decompress
from shardwright.transforms.records.framing import FOOTER_BYTES, HEADER_BYTES, FrameDamage, read_frames
from shardwright.transforms.shards.finish import discard


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

    It uses the sink that wrote the dataset, so equal records give equal bytes.

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
    import apache_beam as beam
    from apache_beam.io.filesystem import CompressionTypes

    compressions = {
        "none": CompressionTypes.UNCOMPRESSED,
        "gzip": CompressionTypes.GZIP,
        "zlib": CompressionTypes.DEFLATE,
    }
    sink: Any = beam.io.WriteToTFRecord(
        directory, beam.coders.BytesCoder(), compression_type=compressions[compression]
    )._sink
    path = storage.join(directory, file)
    with storage.translated_errors("write", path):
        temporary = storage.temporary_path(directory, file, existing)
        try:
            handle = sink.open(temporary)
            try:
                for data in _records(source, source_path, frames):
                    sink.write_record(handle, data)
            finally:
                sink.close(handle)
            _read_back(temporary, _records(source, source_path, frames), compression, printable(path))
        except BaseException:
            discard(temporary)
            raise
    return temporary


def _records(source: IO[bytes] | None, path: str, frames: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    for offset, length in frames if source else ():
        with storage.translated_errors("read", path):
            source.seek(offset + HEADER_BYTES)  # type: ignore[union-attr]
            data = source.read(length - HEADER_BYTES - FOOTER_BYTES)  # type: ignore[union-attr]
        yield data


def _read_back(temporary: str, wanted: Iterator[bytes], compression: str, shown: str) -> None:
    """Compares the records of the written file with the wanted ones."""
    with open(temporary, "rb") as written:
        plain, error = decompress(written, compression) if compression != "none" else (written, None)
        with closing(plain):
            try:
                read = (record.data for record in read_frames(plain))
                same = error is None and all(data == next(wanted, None) for data in read)
            except FrameDamage:
                same = False
            if not same or next(wanted, None) is not None:
                raise EngineError(
                    f"{shown} does not read back as it was written; check the disk, then run again."
                )
