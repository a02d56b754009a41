"""Draws small images of records with their annotations, and sheets of them with captions."""

from __future__ import annotations

import colorsys
import contextlib
import io
import math
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from shardwright.core import storage
from shardwright.core.concurrency.worker_pool import current_pool
from shardwright.core.images.byte_ranges import as_image_file, bare_pixels
from shardwright.core.images.color import to_color
from shardwright.core.images.decode import load_checked, open_image, upright
from shardwright.core.images.deep_pixels import decode_raw, displayed
from shardwright.core.images.faults import pillow_settings
from shardwright.core.records.compression import records_at
from shardwright.core.records.images import NoImage, find_image, own_image
from shardwright.core.records.record import KnownRecords, SourceRecord, names_of_specs
from shardwright.core.records.record_schema import RecordSchema, schema_of_plan
from shardwright.core.records.values import boxes_of
from shardwright.schemas.bounds import DEFAULT_BOUNDS, Bounds
from shardwright.schemas.byte_range import BARE_PIXELS
from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.dataset import Dataset, Shard
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.feature_roles import KEYPOINT_ROLES, PIXEL_MASKS
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.layouts import FeatureRole, pixel_type_of
from shardwright.schemas.ledger import Entry, written_entries
from shardwright.schemas.plan import ShardPlace, ledger_file
from shardwright.schemas.sample_types import SAMPLE_TYPES
from shardwright.schemas.splits import totals_of

SIDE = 128
_GAP = 8
#: Radius of a key point in pixels.
_POINT_RADIUS = 3
_FONT_SIZE = 13
_CAPTION_HEIGHT = 20
_WHITE, _INK, _FAINT = (255, 255, 255), (32, 32, 32), (214, 214, 214)
#: Larger pictures are not drawn, to save memory; this is Pillow's own limit.
_MAX_PIXELS = 89_478_485
#: Golden ratio: its multiples are spread evenly on a circle of hues.
_GOLDEN = 0.618033988749895
#: Distance in hue between instances of a class; differs from the hues of nearby classes.
_INSTANCE = 257
#: Number of images, in 5 rows of 5.
_COUNT = 25
#: Limits of the search for images of rare classes: number of ledger lines, and of ledgers.
MAX_LINES = 20_000
_MAX_LEDGERS = 16
#: Longer records are not drawn, because decoding a few of them would take many seconds.
MAX_BYTES = 16 << 20
_QUALITY = 80


class Tile(NamedTuple):
    """A picture and its caption; if there is no picture, only `name` is drawn.

    Attributes:
      image: RGB, at most `SIDE` on each side; None if it could not be decoded.
      name: Text under the picture.
      number: Number drawn before a name that has letters missing in the font.
    """

    image: Image.Image | None
    name: str
    number: str = ""


def thumbnail(encoded: bytes, bounds: Bounds = DEFAULT_BOUNDS, side: int = SIDE) -> Image.Image:
    """Decodes a stored picture, upright and in color.

    Args:
      encoded: The picture.
      bounds: Limits on the parts of the file.
      side: Pixels of the longer side of the thumbnail.

    Raises:
      ImageFault: If it cannot be decoded.
    """
    opened = open_image(encoded, "image.jpg", _MAX_PIXELS, bounds)
    shorter = min(opened.image.size)
    opened.reduce(next((factor for factor in (8, 4, 2) if shorter >= 2 * side * factor), 1))
    return fit(upright(load_checked(opened, _MAX_PIXELS, keep_damaged=True).image, opened.orientation), side)


def with_boxes(image: Image.Image, boxes: Sequence[tuple[float, ...]], ids: Sequence[int]) -> Image.Image:
    """Returns a thumbnail with boxes drawn on it.

    Args:
      image: Result of `thumbnail`.
      boxes: xmin, ymin, xmax, ymax, as shares of width and height.
      ids: Class of each box, which decides its color.
    """
    marked = image.copy()
    draw = ImageDraw.Draw(marked)
    edges = np.array([image.width - 1, image.height - 1] * 2)
    for box, class_id in zip(boxes, ids):
        if all(map(math.isfinite, box)) and box[0] <= box[2] and box[1] <= box[3]:
            corners = np.clip(box, 0, 1) * edges
            draw.rectangle(corners.tolist(), outline=_color_of(class_id), width=2)
    return marked


def with_points(
    image: Image.Image, points: Sequence[tuple[float, float, int]], ids: Sequence[int]
) -> Image.Image:
    """Returns a thumbnail with key points drawn on it: visible ones filled, hidden ones as rings.

    Args:
      image: Result of `thumbnail`.
      points: X and y as shares of width and height, and visibility, of the points of all objects in turn.
      ids: Class of each object, which decides the color of its points.
    """
    marked = image.copy()
    draw = ImageDraw.Draw(marked)
    each = max(1, len(points) // max(1, len(ids)))
    for place, (x, y, visibility) in enumerate(points):
        if visibility not in (1, 2) or not (0 <= x <= 1 and 0 <= y <= 1):
            continue
        center = x * (image.width - 1), y * (image.height - 1)
        color = _color_of(ids[min(place // each, len(ids) - 1)]) if ids else _color_of(1)
        draw.circle(center, _POINT_RADIUS, fill=color if visibility == 2 else None, outline=color)
    return marked


def with_masks(image: Image.Image, masks: Sequence[bytes], bounds: Bounds = DEFAULT_BOUNDS) -> Image.Image:
    """Returns a thumbnail tinted with the colors of its classes or segments.

    Args:
      image: Result of `thumbnail`.
      masks: Mask of classes, and mask of instances if there is one.
      bounds: Limits on the parts of a mask.

    Raises:
      ImageFault: If a mask cannot be decoded.
    """
    numbers = np.zeros((image.height, image.width), np.int64)
    for place, mask in enumerate(masks):
        opened = open_image(mask, "mask.png", _MAX_PIXELS, bounds)
        whole = load_checked(opened, _MAX_PIXELS).image
        has_ids = whole.mode in ("P", "1") or whole.mode.startswith("I")
        ids = Image.fromarray(np.asarray(whole if has_ids else whole.convert("L")).astype(np.int32))
        numbers += np.asarray(ids.resize(image.size, Image.Resampling.NEAREST), np.int64) * _INSTANCE**place
    present, places = np.unique(numbers, return_inverse=True)
    colors = np.array([_color_of(int(value)) for value in present], np.uint8)
    return Image.blend(image, Image.fromarray(colors[places].reshape(*image.size[::-1], 3)), 0.5)


def _color_of(value: int) -> tuple[int, int, int]:
    """Returns a color that differs clearly from the colors of nearby values; black for 0."""
    if value == 0:
        return (0, 0, 0)
    red, green, blue = colorsys.hsv_to_rgb(value * _GOLDEN % 1, 1, 0.9 if value % 2 else 0.7)
    return round(red * 255), round(green * 255), round(blue * 255)


def fit(image: Image.Image, side: int) -> Image.Image:
    """Returns a picture in color, with this many pixels on its longer side."""
    # Small pictures are enlarged by whole factors, so that their pixels stay visible.
    resample = Image.Resampling.NEAREST if 2 * max(image.size) <= side else Image.Resampling.BICUBIC
    colored = to_color(image, "rgb", _WHITE)
    width, height = colored.size
    scale = side / max(width, height)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return colored.resize(size, resample, reducing_gap=2.0 if scale < 1 else None)


@pillow_settings(_MAX_PIXELS)  # a caller may have set a limit that captions exceed
def draw_sheet(tiles: Sequence[Tile]) -> Image.Image:
    """Draws the tiles in a grid, row by row.

    A letter that is missing in the font is drawn as its base letter, or as `?`.
    """
    columns = max(1, math.ceil(math.sqrt(len(tiles))))
    rows = math.ceil(len(tiles) / columns)
    step_x, step_y = SIDE + _GAP, SIDE + _CAPTION_HEIGHT + _GAP
    sheet = Image.new("RGB", (columns * step_x + _GAP, rows * step_y + _GAP), _WHITE)
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(_FONT_SIZE)
    assert isinstance(font, ImageFont.FreeTypeFont)  # as a size is given
    for i, tile in enumerate(tiles):
        left, top = _GAP + i % columns * step_x, _GAP + i // columns * step_y
        frame = (left, top, left + SIDE - 1, top + SIDE - 1)
        if tile.image is None:
            draw.rectangle(frame, outline=_FAINT)
            draw.line(frame, fill=_FAINT)
            draw.line((frame[0], frame[3], frame[2], frame[1]), fill=_FAINT)
        else:
            sheet.paste(ImageOps.pad(tile.image, (SIDE, SIDE), color=_WHITE), (left, top))
        caption = _caption(font, tile)
        shift = (SIDE - font.getlength(caption)) / 2
        draw.text((left + max(shift, 0), top + SIDE + 3), caption, fill=_INK, font=font)
    return sheet


def _caption(font: ImageFont.FreeTypeFont, tile: Tile) -> str:
    """Returns a caption with letters that the font has, cut to the width of a tile."""
    caption = "".join(_drawable(font, char) for char in tile.name)
    if tile.number and "?" in caption and "?" not in tile.name:
        caption = f"{tile.number} {caption}"
    if font.getlength(caption) <= SIDE:
        return caption
    caption = caption[:SIDE]  # each letter takes a pixel
    while font.getlength(caption + "...") > SIDE:
        caption = caption[:-1]
    return caption + "..."


def _drawable(font: ImageFont.FreeTypeFont, char: str) -> str:
    if not char.isprintable():
        return " "
    if _has(font, char):
        return char
    plain = "".join(c for c in unicodedata.normalize("NFKD", char) if not unicodedata.combining(c))
    return plain if plain and all(_has(font, c) for c in plain) else "?"


def _has(font: ImageFont.FreeTypeFont, char: str) -> bool:
    if char.isascii():
        return True
    # No font has U+FFFF, so it is drawn like every missing letter.
    mask, lacking = font.getmask(char), font.getmask("\uffff")
    return mask.size != lacking.size or bytes(mask) != bytes(lacking)


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


def record_thumbnail(data: bytes, schema: RecordSchema, side: int = SIDE) -> Image.Image | None:
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
        return _annotate(image, record, schema)
    return image


def _image_of(record: SourceRecord, schema: RecordSchema, side: int) -> Image.Image:
    """Returns a thumbnail of a record's image.

    Raises:
      ImageFault: If the image cannot be decoded.
      ValueError: If the record has no image, or is malformed.
    """
    if not schema.own:
        image, dtype = find_image(record, None), ""
    else:
        typed, dtype = record.name(FeatureRole.DTYPE), pixel_type_of(schema.features)
        states_format = record.name(FeatureRole.FORMAT) in record.features
        own = KnownRecords(
            raw=record.text(FeatureRole.FORMAT) == "raw" if states_format else schema.pixels is not None,
            picture=schema.pixels or (None, None, None),
            dtypes=SAMPLE_TYPES if typed else (dtype or "uint8",),
        )
        image = own_image(record, own, None)
        dtype = np.dtype(image.dtype).name if typed else dtype
    stored = record.stored(image)
    if dtype and image.method in BARE_PIXELS:  # floats are stretched, and channels chosen
        height, width, channels = image.shape
        samples = decode_raw(bare_pixels(stored, image), dtype, (height, width, channels))
        return fit(displayed(samples), side)
    return thumbnail(as_image_file(stored, image), schema.bounds, side)


def _annotate(image: Image.Image, record: SourceRecord, schema: RecordSchema) -> Image.Image:
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


def read_tiles(places: Sequence[RecordLocation], schema: RecordSchema) -> list[Tile]:
    """Reads records and draws their images.

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

    tiles = current_pool().map(
        partial(_tile, schema),
        records(),
        weigh=lambda record: len(record[1]),
        crashed=lambda record, how: Tile(
            None, f"{QuarantineReason.DECODER_CRASHED} {_class_names(record[0])}"
        ),
    )
    tile_of = dict(zip(read, list(tiles), strict=True))
    return [tile for place in dict.fromkeys(places) if (tile := tile_of.get(place)) is not None]


def _class_names(label: str) -> str:
    return ", ".join(label.split(LABEL_SEPARATOR))


def _tile(schema: RecordSchema, record: tuple[str, bytes]) -> Tile | None:
    """Decodes the image of a record, given with its class; None if it has none."""
    label, data = record
    try:
        caption = _class_names(label) or record_of(data, schema).text(FeatureRole.KEY)
    except ValueError:
        return None
    try:
        image = record_thumbnail(data, schema)
    except ImageFault as fault:
        return Tile(None, f"{fault.reason} {caption}")
    except Exception as error:  # a damaged record may raise any error in a library; the sheet is drawn anyway
        return Tile(None, f"{type(error).__name__} {caption}")
    labels = schema.labels or ()
    id_text = str(schema.first_label + labels.index(label)) if label in labels else ""
    return None if image is None else Tile(image, caption, id_text)


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
    totals = totals_of(dataset.class_counts)
    counts = {name: totals[name] for name in dataset.labels}
    places = (  # of the first shard of each split first, then of the second ones, and so on
        RecordLocation(storage.join(directory, shard.file), entry.offset, entry.label)
        for place, shard in islice(dataset.filled_shards_in_turn(), _MAX_LEDGERS)
        for entry in ledger_entries(directory, place, shard)
        if entry.offset is not None and (entry.length or 0) <= MAX_BYTES
    )
    picked = pick_evenly(places, counts, _COUNT, MAX_LINES)
    tiles = read_tiles(picked, schema_of_plan(dataset.features, dataset.first_label, dataset.plan))
    tiles = [tile for tile in tiles if tile.image is not None]
    if not tiles:
        return b""
    buffer = io.BytesIO()
    draw_sheet(tiles).save(buffer, "JPEG", quality=_QUALITY, optimize=True)
    return buffer.getvalue()


def ledger_entries(directory: str, place: ShardPlace, shard: Shard) -> Iterator[Entry]:
    """Yields the entries of a shard's records from its ledger; none if it is damaged or of another build.

    Lines are parsed as they are needed, because the first few hundred are usually enough.

    Args:
      directory: The dataset directory.
      place: Place of the shard.
      shard: The shard as `dataset.json` describes it.

    Raises:
      EngineError: If the ledger is missing or cannot be read.
    """
    data = storage.read_existing(storage.join(directory, ledger_file(*place)))
    with contextlib.suppress(ValueError):  # verification reports it
        for entry in written_entries(data, shard.sha256):
            if entry.offset is not None and entry.length is not None:
                yield entry


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
    quota = even_quota(counts, total)
    missing = sum(quota.values())
    seen: dict[str, list[RecordLocation]] = {}
    for place in islice(places, max_seen):
        of_class = seen.setdefault(place.label, [])
        if len(of_class) < total:
            of_class.append(place)
            missing -= len(of_class) <= quota.get(place.label, 0)
        if quota and not missing:
            break
    if missing or not quota:
        names = [
            *(name for name in counts if name in seen),
            *sorted(
                seen.keys() - counts.keys(),
                # Numbers by their value, before names.
                key=lambda name: (len(name) if name.isdecimal() else 1 << 30, name),
            ),
        ]
        quota = even_quota({name: len(seen[name]) for name in names}, total)
    return [place for name, count in quota.items() for place in seen[name][:count]]
