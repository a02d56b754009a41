"""Chooses the records that the page shows: those with the lowest hashes of each class."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice

from shardwright.core import storage
from shardwright.core.records.sample import ledger_entries
from shardwright.core.report.data import ClassSheet, ObjectCounts, RecordAt, Sample
from shardwright.core.report.thumbnails import has_drawn_annotations
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.drift_tables import as_mapping
from shardwright.schemas.errors import EngineError
from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.ledger import Entry

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
NO_CLASS = ""


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
    for sample in islice(_samples(directory, dataset), _MAX_LINES):
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
    """Yields the places of records."""
    for split, path, entry in _entries(directory, dataset):
        if entry.offset is not None:
            yield Sample(RecordAt(path, entry.offset), split, entry.label, entry.key)


def _entries(directory: str, dataset: Dataset) -> Iterator[tuple[str, str, Entry]]:
    """Yields split, path and entry of records: the first shard of each split first, then the second ones."""
    for split, number, count, shard in islice(dataset.filled_shards_in_turn(), _MAX_LEDGERS):
        with contextlib.suppress(EngineError):
            for entry in ledger_entries(directory, (split, number, count), shard):
                yield split, storage.join(directory, shard.file), entry


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
    for _, _, entry in islice(_entries(directory, dataset), _MAX_LINES):
        counts = {name: n for name, n in as_mapping(entry.boxes).items() if isinstance(n, int)}
        images[counts.get("written", 0)] += 1
        lost += counts.get("dropped", 0) + counts.get("vanished", 0)
    return ObjectCounts(images, lost) if images else None
