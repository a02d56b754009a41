"""Shared code for the tests of images inside Parquet and Arrow files: images, tables, and what is listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
from PIL import Image
from pyarrow import parquet

from helpers.listing import listed
from helpers.pictures import file_of
from shardwright.core.images.read import read_image
from shardwright.schemas.image_ref import ImageRef

#: Files that the datasets library wrote.
HUGGING_FACE = Path(__file__).parent / "hugging_face"
IMAGE = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])


def png(number: int, size: tuple[int, int] = (9, 7)) -> bytes:
    """Returns a small image whose color is its number."""
    return file_of(Image.new("RGB", size, (number % 256, number // 256, 77)), "PNG")


def table_of(
    images: Sequence[bytes | None], paths: Sequence[str | None] | None = None, **columns: Any
) -> pyarrow.Table:
    """Returns a table with Hugging Face's column of images, and other columns."""
    paths = paths or [None] * len(images)
    rows = [{"bytes": data, "path": path} for data, path in zip(images, paths, strict=True)]
    return pyarrow.table({"image": pyarrow.array(rows, IMAGE), **columns})


def write_arrow(path: Path, table: pyarrow.Table, is_file: bool = False, rows: int = 2, **how: Any) -> Path:
    """Writes a table as an Arrow file or stream."""
    make = pyarrow.ipc.new_file if is_file else pyarrow.ipc.new_stream
    options = pyarrow.ipc.IpcWriteOptions(**how)
    with pyarrow.OSFile(str(path), "wb") as out, make(out, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def write_parquet(path: Path, table: pyarrow.Table, **how: Any) -> Path:
    """Writes a table as a Parquet file."""
    parquet.write_table(table, path, **how)
    return path


def refs_of(
    path: Path | str, spool: Path, layout: str = "classification", **given: Any
) -> tuple[list[ImageRef], Mapping[str, int]]:
    """Returns the references of an input in the order of their rows, and the ids of classes."""
    spool.mkdir(exist_ok=True)
    found = listed(path, layout, spool, **given)
    return [*found.refs.values()], found.ids


def read(ref: ImageRef) -> bytes:
    """Returns the bytes of an image, as a worker reads them."""
    return read_image(ref, 1 << 30)
