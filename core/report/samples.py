"""The records that the page shows: chosen from ledgers, read by offset, and drawn small.

Of each class, those with the lowest hashes are chosen. A faulty record or ledger never stops the page.
"""

from __future__ import annotations

import io
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice

from PIL import Image

from shardwright.core import storage
from shardwright.core.concurrency.converters import current_converters
from shardwright.core.images.contact_sheet import SIDE
from shardwright.core.images.decode import open_image
from shardwright.core.preview.decoded_values import without_encodings
from shardwright.core.preview.picture import record_thumbnail, single_value
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.records.sample import records_at
from shardwright.core.report.data import ClassSheet, ObjectCounts, PictureSize, RecordAt, Sample, Thumbnail
from shardwright.schemas.codes import Outcome, QuarantineReason
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.drift_tables import as_mapping
from shardwright.schemas.errors import EngineError, ImageFault
from shardwright.schemas.example import parse_example
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.layouts import FeatureRole, FeatureSpec
from shardwright.schemas.ledger import Entry, load_ledger
from shardwright.schemas.plan import is_compressed, ledger_file

#: Classes whose images are shown: up to this many all, else the largest, the smallest and some between.
_MAX_CLASSES = 48
#: Largest number of images, together and of one class.
_PICTURES = 288
_MAX_PER_CLASS, _MIN_PER_CLASS = 12, 3
_WITHOUT_CLASSES = 48
#: Such numbers for images with annotations, which are larger.
_ANNOTATED, _MAX_ANNOTATED = 96, 4
#: Limits of the search for images of rare classes: number of ledger lines, and of ledgers.
_MAX_LINES = 150_000
_MAX_LEDGERS = 64
#: Name of the sheet of a dataset without classes.
NO_CLASS = ""
#: Pixels of the longer side of an image with annotations, which have to be recognized.
_ANNOTATED_SIDE = 320
_ANNOTATIONS = (
    FeatureRole.BOX_XMIN, FeatureRole.BOXES, FeatureRole.OBJECT_MASK, FeatureRole.SEMANTIC_MASK,
    FeatureRole.PANOPTIC_CATEGORY, FeatureRole.PANOPTIC_INSTANCE, FeatureRole.KEYPOINT_X,
)  # fmt: skip
#: Largest size of a thumbnail in bytes, for `SIDE` pixels and in proportion to its side; and the JPEG
#: qualities that are tried to reach it.
_ENOUGH = 7_000
_QUALITIES = (74, 55, 30)
#: Largest uncompressed offset in a compressed shard at which a thumbnail is read.
_MAX_UNPACKED = 64_000_000
#: Seconds after which no more shards are opened, and number of shards that are read in parallel.
_PATIENCE = 60.0
_AT_ONCE = 8
#: Number of thumbnails of a shard that are drawn or wait.
_WAITING = 16
_MAX_PIXELS = 89_478_485

#: A thumbnail, and the size of the stored image if it is known.
Seen = tuple[Thumbnail, PictureSize | None]


def class_totals(class_counts: Mapping[str, Mapping[str, int]]) -> Counter[str]:
    """Returns the number of records of each class in all splits."""
    totals: Counter[str] = Counter()
    for counts in class_counts.values():
        totals.update(counts)
    return totals


def ranked(totals: Mapping[str, int]) -> list[str]:
    """Returns the classes by number of records, the most frequent first, equal ones by name."""
    return sorted(totals, key=lambda name: (-totals[name], name))


def shown_classes(dataset: Dataset) -> list[str]:
    """Returns the classes whose images are shown: in id order if all are shown, else by frequency."""
    totals = class_totals(dataset.class_counts)
    filled = [name for name in dataset.labels if totals[name]]
    filled += sorted(name for name in totals.keys() - set(filled) if totals[name])
    if len(filled) <= _MAX_CLASSES:
        return filled
    names = ranked({name: totals[name] for name in filled})
    third = _MAX_CLASSES // 3
    middle = names[third:-third]
    between = [middle[i * len(middle) // third] for i in range(third)]
    return [*names[:third], *between, *names[-third:]]


def choose_sheets(directory: str, dataset: Dataset) -> list[ClassSheet]:
    """Chooses some records of each shown class, without reading them.

    The lines of a ledger are in the order of their hashes, and so are the shards of a split. So any reader
    that follows this rule chooses the same records.
    """
    totals = class_totals(dataset.class_counts)
    names = shown_classes(dataset)
    wanted: dict[str, list[Sample]] = {name: [] for name in names}
    annotated = has_drawn_annotations(dataset.features)
    pictures, most = (_ANNOTATED, _MAX_ANNOTATED) if annotated else (_PICTURES, _MAX_PER_CLASS)
    quota = max(_MIN_PER_CLASS, min(most, pictures // max(1, len(names))))
    if not names:
        wanted, quota = {NO_CLASS: []}, _WITHOUT_CLASSES
        totals[NO_CLASS] = dataset.all_records
    missing = {name: min(quota, totals[name]) for name in wanted}
    left = sum(missing.values())
    for sample in _samples(directory, dataset):
        for label in sample.label.split(LABEL_SEPARATOR):
            name = NO_CLASS if not names else label
            if missing.get(name):
                wanted[name].append(sample)
                missing[name] -= 1
                left -= 1
        if not left:
            break
    return [ClassSheet(name, totals[name], tuple(samples)) for name, samples in wanted.items() if samples]


def _samples(directory: str, dataset: Dataset) -> Iterator[Sample]:
    """Yields the places of records: the first shard of each split first, then the second ones, and so on."""
    for split, path, entry in _written_entries(directory, dataset):
        if isinstance(entry.offset, int):
            at = RecordAt(path, entry.offset)
            yield Sample(at, split, entry.label, entry.key, original=_original(entry))


def _original(entry: Entry) -> PictureSize | None:
    """Returns the size of an entry's source; None if the ledger does not state it."""
    sizes = entry.source_width, entry.source_height, entry.source_bytes
    numbers = [size for size in sizes if isinstance(size, int) and size >= 0]
    return PictureSize(*numbers) if len(numbers) == len(sizes) else None


def _written_entries(directory: str, dataset: Dataset) -> Iterator[tuple[str, str, Entry]]:
    """Yields split, path of the shard, and ledger line of written records, up to the limits of the search.

    A ledger that is missing, damaged or of another build has no lines. Lines are parsed as they are needed,
    because the first few hundred are usually enough.
    """

    def of_shard(split: str, number: int, sha256: str) -> Iterator[Entry]:
        try:
            name = ledger_file(split, number, len(dataset.splits[split]))
            header, entries = load_ledger(storage.read_bytes(storage.join(directory, name)))
            if header.sha256 == sha256:
                yield from entries
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return

    written = (
        (split, storage.join(directory, shard.file), entry)
        for split, number, _, shard in islice(dataset.filled_shards_in_turn(), _MAX_LEDGERS)
        for entry in of_shard(split, number, shard.sha256)
        if entry.outcome == Outcome.WRITTEN
    )
    return islice(written, _MAX_LINES)


def count_objects(directory: str, dataset: Dataset) -> ObjectCounts | None:
    """Counts the objects of the images from the ledgers; None if the records have no boxes.

    Args:
      directory: The dataset directory.
      dataset: The dataset.
    """
    if not any(spec.fill in (FeatureRole.BOX_XMIN, FeatureRole.BOXES) for spec in dataset.features):
        return None
    images: Counter[int] = Counter()
    lost = 0
    for _, _, entry in _written_entries(directory, dataset):
        counts = {name: n for name, n in as_mapping(entry.boxes).items() if isinstance(n, int)}
        images[counts.get("written", 0)] += 1
        lost += counts.get("dropped", 0) + counts.get("vanished", 0)
    return ObjectCounts(images, lost) if images else None


def has_drawn_annotations(features: Iterable[FeatureSpec]) -> bool:
    """Returns whether thumbnails of records with these features show boxes, masks or key points."""
    return any(spec.fill in _ANNOTATIONS for spec in features)


def read_thumbnails(places: Iterable[RecordAt], schema: RecordSchema) -> dict[RecordAt, Seen]:
    """Reads records and draws thumbnails.

    Args:
      places: Places of the records. Each shard is opened once.
      schema: Record schema of the dataset.

    Returns:
      A thumbnail for each sound record, with the size of its image.
    """
    offsets: defaultdict[str, set[int]] = defaultdict(set)
    for place in places:
        offsets[place.path].add(place.offset)
    end = time.monotonic() + _PATIENCE

    def look(item: tuple[str, set[int]]) -> list[tuple[RecordAt, Seen]]:
        path, wanted = item
        found: list[tuple[RecordAt, Seen]] = []
        try:
            if is_compressed(path):
                wanted = {offset for offset in wanted if offset <= _MAX_UNPACKED}
            records = ((RecordAt(path, offset), data) for offset, data in records_at(path, wanted))
            for seen in draw_thumbnails(records, schema):
                found.append(seen)
                if time.monotonic() > end:
                    break
        except (OSError, EngineError, ValueError):
            pass  # the shard is missing or damaged: a finding reports it, and here a thumbnail is missing
        return found

    with ThreadPoolExecutor(_AT_ONCE) as executor:
        results = list(executor.map(lambda item: look(item) if time.monotonic() < end else [],
                                    sorted(offsets.items())))  # fmt: skip
    return {place: seen for found in results for place, seen in found}


def draw_thumbnails(
    records: Iterable[tuple[RecordAt, bytes]], schema: RecordSchema
) -> Iterator[tuple[RecordAt, Seen]]:
    """Draws the images of records small, in parallel, and yields them in order.

    Args:
      records: Places and bytes of the records.
      schema: Their schema.
    """
    return iter(
        current_converters().map(
            partial(_draw, schema),
            records,
            weigh=lambda item: len(item[1]),
            crashed=lambda item, how: (item[0], (Thumbnail(problem=QuarantineReason.DECODER_CRASHED), None)),
            max_items=_WAITING,
            chunk_items=1,
        )
    )


def _draw(schema: RecordSchema, item: tuple[RecordAt, bytes]) -> tuple[RecordAt, Seen]:
    """Draws a record's image small; if that fails, the thumbnail contains the reason."""
    at, data = item
    try:
        side = _ANNOTATED_SIDE if has_drawn_annotations(schema.features) else SIDE
        image = record_thumbnail(data, schema, side)
        if image is None:
            return at, (Thumbnail(problem="it contains no image"), None)
        return at, (as_thumbnail(image), _stored_size(data, schema))
    except ImageFault as fault:
        return at, (Thumbnail(problem=fault.reason.value), None)
    except Exception as error:  # a damaged record may raise any error in a library; the page continues
        return at, (Thumbnail(problem=type(error).__name__), None)


def as_thumbnail(image: Image.Image) -> Thumbnail:
    """Encodes a small image in few bytes."""
    rgb = image.convert("RGB")
    for quality in _QUALITIES:
        buffer = io.BytesIO()
        rgb.save(buffer, "JPEG", quality=quality, optimize=True)
        if buffer.tell() <= _ENOUGH * max(rgb.size) / SIDE:
            break
    return Thumbnail(buffer.getvalue(), *rgb.size)


def _stored_size(data: bytes, schema: RecordSchema) -> PictureSize | None:
    """Returns the size of a stored image: from its header, or from its record for raw pixels."""
    example = without_encodings(parse_example(data), schema)
    encoded = single_value(example, schema, FeatureRole.ENCODED)
    if not isinstance(encoded, bytes):
        return None
    height, width = (single_value(example, schema, role) for role in (FeatureRole.HEIGHT, FeatureRole.WIDTH))
    if not isinstance(height, int) or not isinstance(width, int):
        try:
            width, height = open_image(encoded, "image", _MAX_PIXELS, schema.bounds).image.size
        except Exception:  # raw pixels whose order the record does not state
            return None
    return PictureSize(width, height, len(encoded))
