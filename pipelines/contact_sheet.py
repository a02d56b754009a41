"""The contact sheet of `inspect`: which pictures are drawn, and where the sheet goes."""

from __future__ import annotations

import io
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from PIL.Image import Image

from shardwright.pipelines.record_values import is_bare_pixels, without_encodings
from shardwright.schemas.dataset import Dataset, Shard
from shardwright.schemas.errors import EngineError, ImageFault, UsageError
from shardwright.schemas.example import Feature, parse_example
from shardwright.schemas.image_ref import LABEL_SEPARATOR, printable
from shardwright.schemas.layouts import Encoding, Fill
from shardwright.schemas.place import Place as Part
from shardwright.schemas.tensor_proto import parse_tensor
from shardwright.transforms import storage
from shardwright.transforms.checks.contract import Contract
from shardwright.transforms.images.contact_sheet import (
    Tile,
    draw_sheet,
    raw_thumbnail,
    thumbnail,
    with_boxes,
    with_masks,
)
from shardwright.transforms.images.parts import as_image_file
from shardwright.transforms.records.encodings import plain_spec
from shardwright.transforms.records.framing import Record
from shardwright.transforms.records.sample import (
    Place,
    ledger_places,
    pick_evenly,
    read_lazily,
    records_at,
)
from shardwright.transforms.sources.tfrecord.images import find_image
from shardwright.transforms.sources.tfrecord.layouts import roles_of
from shardwright.transforms.sources.tfrecord.record import SourceRecord

_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
#: Names under which layouts in wide use store a class, the best first.
_CLASS_NAMES = ("image/class/text", "image/class/label", "label")
#: Where no ledger says where the classes are: records, and their bytes, that are looked at.
_MAX_SCANNED = 2_048
_MAX_SCANNED_BYTES = 256 * 10**6
#: Where one does: ledger lines.
_MAX_LISTED = 200_000


def write_contact_sheet(
    path: str,
    shards: Sequence[tuple[str, Shard | None]],
    contract: Contract,
    count: int,
    directory: str | None = None,
    dataset: Dataset | None = None,
    split: str = "",
) -> int:
    """Draws a sheet of pictures, evenly over the classes, and writes it.

    Args:
      path: where it goes; its extension is the format.
      shards: the path of each shard, and what `dataset.json` says of it.
      contract: what the records hold.
      count: pictures at most.
      directory: the dataset directory; None for foreign files.
      dataset: its `dataset.json`.
      split: the split that the shards belong to.

    Returns:
      The number of pictures drawn.

    Raises:
      UsageError: if the path is none for a picture, or there is no picture to draw.
      EngineError: if a shard cannot be read or the sheet not be written.
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
    places = _places(shards, contract, directory, split)
    picked = pick_evenly(places, counts, count, _MAX_LISTED if dataset else _MAX_SCANNED)
    tiles = _tiles(picked, contract)
    if not tiles:
        raise UsageError(f"--contact_sheet {shown}: there is no picture to draw; choose another --split.")
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
    shards: Sequence[tuple[str, Shard | None]], contract: Contract, directory: str | None, split: str
) -> Iterator[Place]:
    """Yields where records are and of which class, from the ledgers where there are any."""
    scanned = scanned_bytes = 0
    listed = [shard for _, shard in shards if shard is not None]
    for number, (path, shard) in enumerate(shards):
        if shard is not None and not shard.records:
            continue
        if shard is not None and directory is not None:
            known = ledger_places(directory, split, listed, number)
            if known is not None:
                yield from known
                continue
        for item in read_lazily(path):
            if scanned >= _MAX_SCANNED or scanned_bytes >= _MAX_SCANNED_BYTES:
                return
            if isinstance(item, Record):
                scanned += 1
                scanned_bytes += len(item.data)
                yield Place(path, item.offset, _class_of(item.data, contract))


def _class_of(data: bytes, contract: Contract) -> str:
    """Returns the class that a record says it has; empty if it says none."""
    try:
        example = without_encodings(parse_example(data), contract)
    except ValueError:
        return ""
    specs = (contract.spec(Fill.LABEL_TEXT), contract.spec(Fill.LABEL))
    objects = _several(example, contract, Fill.OBJECT_TEXT)
    if objects:
        return LABEL_SEPARATOR.join(sorted({text.decode("utf-8", "replace") for text in objects}))
    for name in (*(spec.name for spec in specs if spec), *_CLASS_NAMES):
        feature = example.get(name)
        if feature and len(feature.values) == 1:
            value = feature.values[0]
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return ""


def _tiles(picked: Sequence[Place], contract: Contract) -> list[Tile]:
    """Reads and decodes the picked records, in their order."""
    offsets: defaultdict[str, set[int]] = defaultdict(set)
    for place in picked:
        offsets[place.path].add(place.offset)
    found: dict[tuple[str, int], Tile] = {}
    names = {(place.path, place.offset): place.label for place in picked}
    numbers = {name: str(contract.first_label + i) for i, name in enumerate(contract.labels or ())}
    for path, wanted in offsets.items():
        for offset, data in records_at(path, wanted):
            tile = _tile(data, contract, names[path, offset], numbers)
            if tile is not None:
                found[path, offset] = tile
    return [found[key] for key in names if key in found]


def _tile(data: bytes, contract: Contract, name: str, numbers: Mapping[str, str]) -> Tile | None:
    """Decodes a record's picture; None if it has none."""
    try:
        stored = parse_example(data)
    except ValueError:
        return None
    example = without_encodings(stored, contract)
    encoded = _single(example, contract, Fill.ENCODED)
    found = _image_in(data) if contract.labels is None else None
    if found is None and not isinstance(encoded, bytes):
        return None
    key = _single(example, contract, Fill.KEY)
    caption = ", ".join(name.split(LABEL_SEPARATOR)) or (
        key.decode("utf-8", "replace") if isinstance(key, bytes) else ""
    )
    try:
        if found is not None or not isinstance(encoded, bytes):
            image = thumbnail(found or b"")
        elif is_bare_pixels(example, contract):
            sides = _sides_in_tensor(stored, contract) or _sides(example, contract, len(encoded))
            image = raw_thumbnail(encoded, *sides)
        else:
            image = thumbnail(encoded)
        image = _annotated(image, example, contract)
    except ImageFault as fault:
        return Tile(None, f"{fault.reason} {caption}")
    return Tile(image, caption, numbers.get(name, ""))


def _image_in(data: bytes) -> bytes | None:
    """Returns the image of a record of unknown origin as an image file; None if it cannot be found."""
    try:
        record = SourceRecord(data)
        image = find_image(record, roles_of(tuple(record.features)), None)
        stored = data[image.span.begin : image.span.end]
        place = Part(
            "", 0, len(stored), image.method,
            shape=image.shape, planar=bool(image.planar), dtype=image.dtype,
        )  # fmt: skip
        return as_image_file(stored, place)
    except (ValueError, ImageFault):
        return None


def _sides(example: Mapping[str, Feature], contract: Contract, size: int) -> list[int]:
    """Returns height, width and channels of bare pixels; 0 for what nothing says."""
    found = [_single(example, contract, fill) for fill in (Fill.HEIGHT, Fill.WIDTH, Fill.CHANNELS)]
    shape = _several(example, contract, Fill.SHAPE)
    if len(shape) == len(found):
        found = list(shape)
    promised = contract.pixels or (None, None, None)
    height, width, channels = (
        side if isinstance(side, int) else promise or 0 for side, promise in zip(found, promised)
    )
    return [height, width, channels or size // max(height * width, 1)]


def _sides_in_tensor(stored: Mapping[str, Feature], contract: Contract) -> list[int]:
    """Returns height, width and channels of pixels in a serialized tensor; none if there is none."""
    spec = contract.spec(Fill.ENCODED)
    if spec is None or spec.encoding is not Encoding.TENSOR or len(stored[spec.name].values) != 1:
        return []
    try:
        return list(parse_tensor(stored[spec.name].values[0]).shape)
    except (ValueError, TypeError):
        return []


def _annotated(image: Image, example: Mapping[str, Feature], contract: Contract) -> Image:
    """Draws on a thumbnail what its record says of it."""
    wanted = (Fill.SEMANTIC_MASK, Fill.PANOPTIC_CATEGORY, Fill.PANOPTIC_INSTANCE)
    masks = [mask for fill in wanted if isinstance(mask := _single(example, contract, fill), bytes) and mask]
    if masks:
        image = with_masks(image, masks)
    fills = (Fill.BOX_XMIN, Fill.BOX_YMIN, Fill.BOX_XMAX, Fill.BOX_YMAX)
    boxes: list[tuple[float, ...]] = list(zip(*(_several(example, contract, fill) for fill in fills)))
    fours = _several(example, contract, Fill.BOXES)
    for ymin, xmin, ymax, xmax in zip(*(iter(fours),) * 4) if not boxes else ():
        boxes.append((xmin, ymin, xmax, ymax))
    ids = _several(example, contract, Fill.OBJECT_LABEL) or range(1, len(boxes) + 1)
    return with_boxes(image, boxes, ids) if boxes else image


def _several(example: Mapping[str, Feature], contract: Contract, fill: Fill) -> Sequence[Any]:
    """Returns the values of the feature that is filled by `fill`."""
    spec = contract.spec(fill)
    feature = example.get(spec.name) if spec else None
    return feature.values if spec and feature and feature.type is plain_spec(spec).type else ()


def _single(example: Mapping[str, Feature], contract: Contract, fill: Fill) -> object:
    """Returns the one value of the feature that is filled by `fill`; None if there is not one."""
    spec = contract.spec(fill)
    feature = example.get(spec.name) if spec else None
    return feature.values[0] if feature and len(feature.values) == 1 else None
