"""Draws the tiles of a contact sheet: small images of records, each with its class or key as the caption."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from shardwright.schemas.errors import ImageFault
from shardwright.schemas.example import parse_example
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.layouts import FeatureRole
from shardwright.transforms.images.contact_sheet import Tile
from shardwright.transforms.preview.decoded_values import without_encodings
from shardwright.transforms.preview.picture import record_thumbnail, single_value
from shardwright.transforms.records.record_schema import RecordSchema
from shardwright.transforms.records.sample import RecordLocation, records_at


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
    found: dict[tuple[str, int], Tile] = {}
    for path, wanted in offsets.items():
        for offset, data in records_at(path, wanted):
            tile = _tile(data, schema, names[path, offset], numbers)
            if tile is not None:
                found[path, offset] = tile
    return [found[key] for key in names if key in found]


def _tile(data: bytes, schema: RecordSchema, name: str, numbers: Mapping[str, str]) -> Tile | None:
    """Decodes the image of a record; None if it has none."""
    try:
        example = without_encodings(parse_example(data), schema)
    except ValueError:
        return None
    key = single_value(example, schema, FeatureRole.KEY)
    caption = ", ".join(name.split(LABEL_SEPARATOR)) or (
        key.decode("utf-8", "replace") if isinstance(key, bytes) else ""
    )
    try:
        image = record_thumbnail(data, schema)
    except ImageFault as fault:
        return Tile(None, f"{fault.reason} {caption}")
    except Exception as error:  # a damaged record may raise any error in a library; the sheet is drawn anyway
        return Tile(None, f"{type(error).__name__} {caption}")
    return None if image is None else Tile(image, caption, numbers.get(name, ""))
