"""Draws the tiles of a contact sheet: small images of records, each with its class or key as the caption."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from shardwright.core.concurrency.converters import current_converters
from shardwright.core.images.contact_sheet import Tile
from shardwright.core.preview.decoded_values import without_encodings
from shardwright.core.preview.picture import record_thumbnail, single_value
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.records.sample import RecordLocation, records_at
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.example import parse_example
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.layouts import FeatureRole


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
        example = without_encodings(parse_example(record.data), schema)
    except ValueError:
        return None
    key = single_value(example, schema, FeatureRole.KEY)
    caption = record.caption or (key.decode("utf-8", "replace") if isinstance(key, bytes) else "")
    try:
        image = record_thumbnail(record.data, schema)
    except ImageFault as fault:
        return Tile(None, f"{fault.reason} {caption}")
    except Exception as error:  # a damaged record may raise any error in a library; the sheet is drawn anyway
        return Tile(None, f"{type(error).__name__} {caption}")
    return None if image is None else Tile(image, caption, record.number)
