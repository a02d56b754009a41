"""The contact sheet of `inspect`: chooses the images, draws them and writes the sheet."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence

from shardwright.core import storage
from shardwright.core.concurrency.converters import converters
from shardwright.core.images.contact_sheet import draw_sheet
from shardwright.core.preview import read_tiles, record_of
from shardwright.core.records.framing import Record
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.records.sample import (
    RecordLocation,
    ledger_entries,
    pick_evenly,
    read_lazily,
)
from shardwright.core.sources.tfrecord.record import SourceRecord
from shardwright.pipelines import workers
from shardwright.schemas.dataset import Dataset, Shard
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.image_ref import LABEL_SEPARATOR, printable
from shardwright.schemas.layouts import FeatureRole
from shardwright.schemas.ledger import Entry

_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
#: Maximum number of records, and of their bytes, to read for their classes if there is no ledger.
_MAX_SCANNED = 2_048
_MAX_SCANNED_BYTES = 256 * 10**6
#: Maximum number of ledger lines to read for classes.
_MAX_LISTED = 200_000


def write_contact_sheet(
    path: str,
    shards: Sequence[tuple[str, Shard | None]],
    schema: RecordSchema,
    count: int,
    directory: str | None = None,
    dataset: Dataset | None = None,
    split: str = "",
) -> int:
    """Draws a sheet with images from all classes in equal shares, and writes it.

    Args:
      path: File to write; its extension chooses the format.
      shards: Path of each shard with its entry in `dataset.json`.
      schema: Schema of the records.
      count: Maximum number of images.
      directory: The dataset directory; None for foreign files.
      dataset: Its `dataset.json`.
      split: The split that the shards belong to.

    Returns:
      The number of pictures drawn.

    Raises:
      UsageError: The extension is not an image format, or there is no image to draw.
      EngineError: A shard cannot be read, or the sheet cannot be written.
    """
    shown = printable(path)
    extension = os.path.splitext(path)[1].lower()
    if extension not in _FORMATS:
        raise UsageError(f"--contact_sheet {shown}: name a file that ends in .png, .jpg or .webp.")
    if os.path.isdir(path):
        raise UsageError(f"--contact_sheet {shown} is a directory; name a file.")
    counts: Mapping[str, int] = {}
    if dataset is not None:
        of_split = dataset.class_counts.get(split, {})
        counts = {name: of_split.get(name, 0) for name in dataset.labels}
    places = _places(shards, schema, directory, split)
    picked = pick_evenly(places, counts, count, _MAX_LISTED if dataset else _MAX_SCANNED)
    with converters(workers.uses_processes("")):
        tiles = read_tiles(picked, schema)
    if not tiles:
        raise UsageError(f"--contact_sheet {shown}: there is no image to draw; choose another --split.")
    buffer = io.BytesIO()
    draw_sheet(tiles).save(buffer, _FORMATS[extension])
    try:
        storage.write_bytes(path, buffer.getvalue())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise EngineError(
            f"Cannot write the contact sheet to {shown}: {reason}; choose another place."
        ) from error
    return len(tiles)


def _places(
    shards: Sequence[tuple[str, Shard | None]], schema: RecordSchema, directory: str | None, split: str
) -> Iterator[RecordLocation]:
    """Yields the location and the class of records, from the ledgers if there are any."""
    scanned = scanned_bytes = 0
    listed = [shard for _, shard in shards if shard is not None]
    for number, (path, shard) in enumerate(shards):
        if shard is not None and not shard.records:
            continue
        if shard is not None and directory is not None:
            place, known = (split, number, len(listed)), list[Entry]()
            with contextlib.suppress(EngineError):
                known = list(ledger_entries(directory, place, shard))
            yield from (RecordLocation(path, entry.offset or 0, entry.label) for entry in known)
            if known:
                continue
        for item in read_lazily(path):
            if scanned >= _MAX_SCANNED or scanned_bytes >= _MAX_SCANNED_BYTES:
                return
            if isinstance(item, Record):
                scanned += 1
                scanned_bytes += len(item.data)
                yield RecordLocation(path, item.offset, _class_of(item.data, schema))


def _class_of(data: bytes, schema: RecordSchema) -> str:
    """Returns the class of a record; empty if it has none."""
    try:
        record = record_of(data, schema) if schema.own else SourceRecord(data)
        objects = record.texts(FeatureRole.OBJECT_TEXT)
        if objects:
            return LABEL_SEPARATOR.join(sorted(set(objects)))
        return record.text(FeatureRole.LABEL_TEXT) or record.text(FeatureRole.LABEL)
    except ValueError:
        return ""
