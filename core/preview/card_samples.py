"""Draws the samples of the dataset card: a contact sheet with images of all classes."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from shardwright.core import storage
from shardwright.core.images.contact_sheet import draw_sheet
from shardwright.core.preview.tiles import read_tiles
from shardwright.core.records.record_schema import schema_of_plan
from shardwright.core.records.sample import RecordLocation, pick_evenly
from shardwright.schemas.codes import Outcome
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.ledger import load_ledger
from shardwright.schemas.plan import ledger_file

#: Number of images, in 5 rows of 5.
_COUNT = 25
#: Limits of the search for images of rare classes: number of ledger lines, and of ledgers.
MAX_LINES = 20_000
_MAX_LEDGERS = 16
#: Longer records are not drawn, because decoding a few of them would take many seconds.
MAX_BYTES = 16 << 20
_QUALITY = 80


def draw_card_samples(directory: str, dataset: Dataset) -> bytes:
    """Draws images of a dataset with their classes, evenly over the classes.

    The same shards give the same images.

    Args:
      directory: Directory with the shards and their ledgers.
      dataset: The dataset.

    Returns:
      A JPEG file. Empty if there is nothing to draw.

    Raises:
      EngineError: If a shard or a ledger cannot be read.
    """
    totals: Counter[str] = Counter()
    for counts in dataset.class_counts.values():
        totals.update(counts)
    counts = {name: totals[name] for name in dataset.labels}
    picked = pick_evenly(_places(directory, dataset), counts, _COUNT, MAX_LINES)
    tiles = read_tiles(picked, schema_of_plan(dataset.features, dataset.first_label, dataset.plan))
    tiles = [tile for tile in tiles if tile.image is not None]
    if not tiles:
        return b""
    buffer = io.BytesIO()
    draw_sheet(tiles).save(buffer, "JPEG", quality=_QUALITY, optimize=True)
    return buffer.getvalue()


def _places(directory: str, dataset: Dataset) -> Iterator[RecordLocation]:
    """Yields locations of records: the first shard of each split first, then the second ones, and so on."""
    for split, number, count, shard in islice(dataset.filled_shards_in_turn(), _MAX_LEDGERS):
        ledger = storage.join(directory, ledger_file(split, number, count))
        with storage.translated_errors("read", ledger):
            data = storage.read_bytes(ledger)
        path = storage.join(directory, shard.file)
        try:
            header, entries = load_ledger(data)
            # Lines are parsed as they are needed, because the first few hundred are usually enough.
            for entry in entries if header.sha256 == shard.sha256 else ():
                if entry.outcome != Outcome.WRITTEN or entry.offset is None:
                    continue
                if (entry.length or 0) <= MAX_BYTES:
                    yield RecordLocation(path, entry.offset, entry.label)
        except (ValueError, TypeError, RecursionError):
            continue  # a damaged ledger; verification reports it
