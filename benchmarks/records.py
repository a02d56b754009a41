"""Counts the records that a competitor has written, without its libraries."""

from __future__ import annotations

import json
import struct
import tarfile
from pathlib import Path

HEADER = struct.Struct("<Q")


def count_tfrecord(path: Path) -> int:
    """Counts the records of one TFRecord file by its framing.

    Args:
      path: Path of an uncompressed file.

    Returns:
      The number of records.

    Raises:
      ValueError: If the file ends inside a record.
    """
    size = path.stat().st_size
    count, position = 0, 0
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            header = file.read(HEADER.size)
            if len(header) < HEADER.size:
                raise ValueError(f"{path.name} ends within a record")
            # Length, its checksum, the data, and the checksum of the data.
            position += HEADER.size + 4 + HEADER.unpack(header)[0] + 4
            if position > size:
                raise ValueError(f"{path.name} ends within a record")
            count += 1
    return count


def count_tfrecords(output: Path) -> int:
    """Counts the records of all TFRecord files under a folder."""
    return sum(count_tfrecord(path) for path in output.rglob("*.tfrecord"))


def count_webdataset(output: Path) -> int:
    """Counts the images in all tar files under a folder."""
    count = 0
    for path in output.rglob("*.tar"):
        with tarfile.open(path) as archive:
            count += sum(member.name.endswith(".jpg") for member in archive)
    return count


def count_litdata(output: Path) -> int:
    """Adds up the samples of the chunks in LitData's index, if the chunk files exist."""
    chunks = json.loads((output / "index.json").read_text())["chunks"]
    for chunk in chunks:
        size = (output / chunk["filename"]).stat().st_size
        if size < chunk["chunk_bytes"]:
            raise ValueError(f"{chunk['filename']} has {size} of {chunk['chunk_bytes']} bytes")
    return sum(int(chunk["chunk_size"]) for chunk in chunks)
