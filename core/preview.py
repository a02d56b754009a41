"""Draws small images of records with their annotations, and a contact sheet of them for the dataset card."""

from __future__ import annotations

import contextlib
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
from PIL.Image import Image

from shardwright.core import storage
from shardwright.core.concurrency.converters import current_converters
from shardwright.core.images.byte_ranges import as_image_file, bare_pixels
from shardwright.core.images.contact_sheet import (
    SIDE,
    Tile,
    draw_sheet,
    raw_thumbnail,
    thumbnail,
    with_boxes,
    with_masks,
    with_points,
)
from shardwright.core.records.compression import records_at
from shardwright.core.records.images import NoImage, find_image, own_image
from shardwright.core.records.record import PIXEL_MASKS, KnownRecords, SourceRecord, names_of_specs
from shardwright.core.records.record_schema import RecordSchema, schema_of_plan
from shardwright.core.records.values import boxes_of
from shardwright.schemas.byte_range import BARE_PIXELS
from shardwright.schemas.codes import Outcome, QuarantineReason, Stage
from shardwright.schemas.dataset import Dataset, Shard
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.feature_roles import KEYPOINT_ROLES
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.layouts import FeatureRole
from shardwright.schemas.ledger import Entry, load_ledger
from shardwright.schemas.plan import ledger_file
from shardwright.schemas.sample_types import SAMPLE_TYPES


class RecordLocation(NamedTuple):
    """The location of a record: its file, the offset of its frame in the uncompressed file, and its class."""

    path: str
    offset: int
    label: str


def record_of(data: bytes, schema: RecordSchema) -> SourceRecord:
    """Returns the features of a record, with their roles in the dataset.

    Raises:
      ValueError: If the record is malformed.
    """
    return SourceRecord(data, names_of_specs(schema.features))


def record_thumbnail(data: bytes, schema: RecordSchema, side: int = SIDE) -> Image | None:
    """Returns a thumbnail of a record's image with its boxes and masks; None if it has no image.

    Args:
      data: The record.
      schema: Record schema of the dataset.
      side: Pixels of the longer side of the thumbnail.

    Raises:
      ImageFault: If the image or a mask cannot be decoded.
    """
    try:
        record = record_of(data, schema)
    except ValueError:
        return None
    looked_at = record if schema.own else SourceRecord(data)
    try:
        image = _image_of(looked_at, schema, side)
    except ValueError as error:
        if not any(looked_at.features.get(name) for name in looked_at.names.images):
            return None
        reason = error.reason if isinstance(error, NoImage) else QuarantineReason.CORRUPT
        raise ImageFault(reason, Stage.READ, str(error)) from error
    with contextlib.suppress(ValueError):  # validation reports lists that do not fit
        return _annotated(image, record, schema)
    return image


def _image_of(record: SourceRecord, schema: RecordSchema, side: int) -> Image:
    """Returns a thumbnail of a record's image.

    Raises:
      ImageFault: If the image cannot be decoded.
      ValueError: If the record has no image, or is malformed.
    """
    if not schema.own:
        image, dtype = find_image(record, None), ""
    else:
        encoded, typed = schema.spec(FeatureRole.ENCODED), record.name(FeatureRole.DTYPE)
        dtype = encoded.pixel_type if encoded else ""
        states_format = record.name(FeatureRole.FORMAT) in record.features
        own = KnownRecords(
            raw=record.text(FeatureRole.FORMAT) == "raw" if states_format else schema.pixels is not None,
            picture=schema.pixels or (None, None, None),
            dtypes=SAMPLE_TYPES if typed else (dtype or "uint8",),
        )
        image = own_image(record, own, None)
        dtype = np.dtype(image.dtype).name if typed else dtype
    stored = record.stored(image)
    if schema.own and image.method in BARE_PIXELS:
        return raw_thumbnail(bare_pixels(stored, image), image.shape, dtype, side)
    return thumbnail(as_image_file(stored, image), schema.bounds, side)


def _annotated(image: Image, record: SourceRecord, schema: RecordSchema) -> Image:
    """Draws the annotations of a record on its thumbnail.

    Raises:
      ImageFault: If a mask cannot be decoded.
      ValueError: If lists of values do not fit each other.
    """
    parts = map(record.only_part, map(record.name, PIXEL_MASKS))
    masks = [record.value_of(part) for part in parts if part and part.length]
    if masks:
        image = with_masks(image, masks, schema.bounds)
    boxes = boxes_of(record)
    ids = record.numbers(FeatureRole.OBJECT_LABEL) or range(1, len(boxes) + 1)
    image = with_boxes(image, boxes, ids) if boxes else image
    points = list(zip(*map(record.numbers, KEYPOINT_ROLES[:3])))
    return with_points(image, points, ids) if points else image


#: Number of images, in 5 rows of 5.
_COUNT = 25
#: Limits of the search for images of rare classes: number of ledger lines, and of ledgers.
MAX_LINES = 20_000
_MAX_LEDGERS = 16
#: Longer records are not drawn, because decoding a few of them would take many seconds.
MAX_BYTES = 16 << 20
_QUALITY = 80


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
    offsets: defaultdict[str, dict[int, RecordLocation]] = defaultdict(dict)
    for place in places:
        offsets[place.path][place.offset] = place
    read: list[RecordLocation] = []

    def records() -> Iterator[tuple[str, bytes]]:
        for path, of_path in offsets.items():
            for offset, data in records_at(path, of_path):
                read.append(of_path[offset])
                yield of_path[offset].label, data

    tiles = current_converters().map(
        partial(_tile, schema),
        records(),
        weigh=lambda record: len(record[1]),
        crashed=lambda record, how: Tile(None, f"{QuarantineReason.DECODER_CRASHED} {_caption(record[0])}"),
    )
    found = dict(zip(read, list(tiles), strict=True))
    return [tile for place in dict.fromkeys(places) if (tile := found.get(place)) is not None]


def _caption(label: str) -> str:
    return ", ".join(label.split(LABEL_SEPARATOR))


def _tile(schema: RecordSchema, record: tuple[str, bytes]) -> Tile | None:
    """Decodes the image of a record, given with its class; None if it has none."""
    label, data = record
    try:
        caption = _caption(label) or record_of(data, schema).text(FeatureRole.KEY)
    except ValueError:
        return None
    try:
        image = record_thumbnail(data, schema)
    except ImageFault as fault:
        return Tile(None, f"{fault.reason} {caption}")
    except Exception as error:  # a damaged record may raise any error in a library; the sheet is drawn anyway
        return Tile(None, f"{type(error).__name__} {caption}")
    labels = schema.labels or ()
    number = str(schema.first_label + labels.index(label)) if label in labels else ""
    return None if image is None else Tile(image, caption, number)


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


def ledger_entries(directory: str, place: tuple[str, int, int], shard: Shard) -> Iterator[Entry]:
    """Yields the entries of a shard's records from its ledger; none if it is damaged or of another build.

    Lines are parsed as they are needed, because the first few hundred are usually enough.

    Args:
      directory: The dataset directory.
      place: Split and number of the shard, and the number of shards in the split.
      shard: The shard as `dataset.json` describes it.

    Raises:
      EngineError: If the ledger is missing or cannot be read.
    """
    path = storage.join(directory, ledger_file(*place))
    with storage.translated_errors("read", path):
        data = storage.read_bytes(path)
    try:
        header, entries = load_ledger(data)
        for entry in entries if header.sha256 == shard.sha256 else ():
            is_written = entry.outcome == Outcome.WRITTEN
            if is_written and isinstance(entry.offset, int) and isinstance(entry.length, int):
                yield entry
    except (ValueError, TypeError, RecursionError):
        return  # verification reports it


def even_quota(counts: Mapping[str, int], total: int) -> dict[str, int]:
    """Divides `total` records evenly among classes; if a class has too few, the others get more.

    Args:
      counts: Class -> number of records, in the order of the classes.
      total: Number of wanted records.

    Returns:
      Class -> number of records to take. With more classes than records, evenly spread classes get one.
    """
    names = [name for name, count in counts.items() if count > 0]
    if len(names) > total:
        names = [names[i * len(names) // total] for i in range(total)]
    quota = dict.fromkeys(names, 0)
    left = min(total, sum(counts[name] for name in names))
    while left:
        for name in names:
            if left and quota[name] < counts[name]:
                quota[name] += 1
                left -= 1
    return quota


def pick_evenly(
    places: Iterable[RecordLocation], counts: Mapping[str, int], total: int, max_seen: int
) -> list[RecordLocation]:
    """Picks the first records of each class, evenly over the classes.

    Args:
      places: Locations of records; consumed only until enough are found.
      counts: Class -> number of records, in the order of the classes; empty if unknown.
      total: Number of wanted records.
      max_seen: Number of locations to consume at most.
    """
    wanted = even_quota(counts, total)
    missing = sum(wanted.values())
    seen: dict[str, list[RecordLocation]] = {}
    for i, place in enumerate(places):
        of_class = seen.setdefault(place.label, [])
        if len(of_class) < total:
            of_class.append(place)
            if len(of_class) <= wanted.get(place.label, 0):
                missing -= 1
        if (wanted and not missing) or i + 1 >= max_seen:
            break
    if missing or not wanted:
        names = [
            *(name for name in counts if name in seen),
            *sorted(
                seen.keys() - counts.keys(),
                # Numbers by their value, before names.
                key=lambda name: (len(name) if name.isdecimal() else 1 << 30, name),
            ),
        ]
        wanted = even_quota({name: len(seen[name]) for name in names}, total)
    return [place for name, count in wanted.items() for place in seen[name][:count]]
