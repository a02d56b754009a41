"""Draws small images of records with captions, and a contact sheet of them for the dataset card."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from shardwright.core import storage
from shardwright.core.concurrency.converters import current_converters
from shardwright.core.images.contact_sheet import Tile, draw_sheet
from shardwright.core.preview.picture import record_of, record_thumbnail
from shardwright.core.records.record_schema import RecordSchema, schema_of_plan
from shardwright.core.records.sample import RecordLocation, ledger_entries, pick_evenly, records_at
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.layouts import FeatureRole

#: Number of images, in 5 rows of 5.
_COUNT = 25
#: Limits of the search for images of rare classes: number of ledger lines, and of ledgers.
MAX_LINES = 20_000
_MAX_LEDGERS = 16
#: Longer records are not drawn, because decoding a few of them would take many seconds.
MAX_BYTES = 16 << 20
_QUALITY = 80


class _Labelled(NamedTuple):
    """A record, the class in its ledger, and the number of that class."""

    data: bytes
    name: str
    number: str

    @property
    def caption(self) -> str:
        return ", ".join(self.name.split(LABEL_SEPARATOR))


def read_tiles(places: Sequence[RecordLocation], schema: RecordSchema) -> list[Tile]:
    """Reads records and draws their images.

    Args:
      places: Locations of the records.
      schema: Schema of the records.

    Returns:
      A tile for each sound record that has an image, in the order of the locations. A tile whose image cannot
      be decoded states the reason.

    Raises:
      EngineError: If a shard cannot be read.
    """
    offsets: defaultdict[str, set[int]] = defaultdict(set)
    for place in places:
        offsets[place.path].add(place.offset)
    names = {(place.path, place.offset): place.label for place in places}
    numbers = {name: str(schema.first_label + i) for i, name in enumerate(schema.labels or ())}
    read: list[tuple[str, int]] = []

    def records() -> Iterator[_Labelled]:
        for path, wanted in offsets.items():
            for offset, data in records_at(path, wanted):
                read.append((path, offset))
                name = names[path, offset]
                yield _Labelled(data, name, numbers.get(name, ""))

    tiles = current_converters().map(
        partial(_tile, schema),
        records(),
        weigh=lambda record: len(record.data),
        crashed=lambda record, how: Tile(None, f"{QuarantineReason.DECODER_CRASHED} {record.caption}"),
    )
    found = dict(zip(read, list(tiles), strict=True))
    return [tile for place in names if (tile := found.get(place)) is not None]


def _tile(schema: RecordSchema, record: _Labelled) -> Tile | None:
    """Decodes the image of a record; None if it has none."""
    try:
        caption = record.caption or record_of(record.data, schema).text(FeatureRole.KEY)
    except ValueError:
        return None
    try:
        image = record_thumbnail(record.data, schema)
    except ImageFault as fault:
        return Tile(None, f"{fault.reason} {caption}")
    except Exception as error:  # a damaged record may raise any error in a library; the sheet is drawn anyway
        return Tile(None, f"{type(error).__name__} {caption}")
    return None if image is None else Tile(image, caption, record.number)


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
        path = storage.join(directory, shard.file)
        for entry in ledger_entries(directory, (split, number, count), shard):
            if entry.offset is not None and (entry.length or 0) <= MAX_BYTES:
                yield RecordLocation(path, entry.offset, entry.label)
