"""Chooses the records on the page: those with the lowest hashes of each class, and some with findings."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from shardwright.core import storage
from shardwright.core.records.sample import ledger_entries
from shardwright.core.report.data import (
    Checked,
    ClassSheet,
    ObjectCounts,
    RecordAt,
    Sample,
    ShownFinding,
    Thumbnail,
)
from shardwright.core.report.thumbnails import Seen, has_drawn_annotations
from shardwright.schemas.check_depths import CheckDepth
from shardwright.schemas.codes import QUALITY, FindingCode, Severity
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.drift_tables import as_mapping
from shardwright.schemas.errors import EngineError
from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.findings import Finding, ValidationReport, Where
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
#: Codes whose two records are shown side by side, the most severe first, and the number of pairs of each.
PAIRS = (
    FindingCode.SPLIT_LEAKAGE, FindingCode.LABEL_CONFLICT, FindingCode.EXACT_DUPLICATE,
    FindingCode.NEAR_DUPLICATE, FindingCode.DUPLICATE_KEY,
)  # fmt: skip
_PAIRS_OF_CODE = 12
#: Codes about a single picture that are easier to see than to read.
_VISIBLE = (
    *sorted(QUALITY - set(PAIRS)),
    FindingCode.LABEL_RANGE, FindingCode.LABEL_TEXT, FindingCode.BOX_RANGE, FindingCode.BOX_ORDER,
    FindingCode.KEYPOINT_RANGE, FindingCode.OBJECTS_DROPPED,
    FindingCode.MASK_MISMATCH, FindingCode.SIZE_MISMATCH, FindingCode.FORMAT_MISMATCH,
    FindingCode.SOURCE_LABEL, FindingCode.SOURCE_CHANGED, FindingCode.SOURCE_MISSING, FindingCode.KEPT_BYTES,
)  # fmt: skip
_FINDINGS_OF_CODE = 10


def totals_of(counts_of_splits: Mapping[str, Mapping[str, int]]) -> Counter[str]:
    """Returns the number of records of each class or format in all splits."""
    totals: Counter[str] = Counter()
    for counts in counts_of_splits.values():
        totals.update(counts)
    return totals


def ranked(totals: Mapping[str, int]) -> list[str]:
    """Returns the names by number of records, the most frequent first, equal ones by name."""
    return sorted(totals, key=lambda name: (-totals[name], name))


def shown_classes(dataset: Dataset) -> list[str]:
    """Returns the classes whose images are shown: in id order if all are shown, else by frequency."""
    totals = totals_of(dataset.class_counts)
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
    totals = totals_of(dataset.class_counts)
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


def read_validation(
    document: Mapping[str, Any] | None, fingerprint: str, when: str, left_out: list[str]
) -> Checked | None:
    """Reads a `findings.json`, and selects the findings whose images are shown.

    Args:
      document: Contents of the file. None if there is none.
      fingerprint: Fingerprint of the present dataset. Empty for foreign files.
      when: When the file was written.
      left_out: List that gets a sentence if the file is not understood.
    """
    if document is None:
        return None
    try:
        report = ValidationReport.from_json(document)
        _require_numbers(report)
    except (KeyError, TypeError, ValueError, AttributeError):
        left_out.append("findings.json is damaged or has another version; validate again to replace it.")
        return None
    pairs = {code: [one for one in report.findings if one.code is code and one.other] for code in PAIRS}
    placed = [one for one in report.findings if one.shard and one.offset is not None]
    images = {
        code.value: tuple(map(ShownFinding, some[:_FINDINGS_OF_CODE]))
        for code in _VISIBLE
        if (some := [one for one in placed if one.code is code])
    }
    return Checked(
        report,
        tuple(ShownFinding(one) for some in pairs.values() for one in some[:_PAIRS_OF_CODE]),
        images,
        report.fingerprint in (fingerprint or None, None),
        when,
    )


def places_of(checked: Checked | None, paths: Mapping[str, str]) -> list[RecordAt]:
    """Returns the places of the records whose images are needed.

    Args:
      checked: Results of a validation. None if there are none.
      paths: Mapping of shard to its path.
    """
    if checked is None:
        return []
    images = [one.finding for some in checked.image_findings.values() for one in some]
    pairs = [one.finding for one in checked.pairs]
    places = [_place(one, paths) for one in (*images, *pairs)] + [_place(one.other, paths) for one in pairs]
    return [place for place in places if place is not None]


def with_pictures(
    checked: Checked | None, paths: Mapping[str, str], seen: Mapping[RecordAt, Seen]
) -> Checked | None:
    """Returns the results with the images that could be read, and without other findings about images."""
    if checked is None:
        return None

    def picture(place: RecordAt | None) -> Thumbnail | None:
        return seen[place][0] if place is not None and place in seen else None

    def drawn(one: ShownFinding) -> ShownFinding:
        own, other = _place(one.finding, paths), _place(one.finding.other, paths)
        return ShownFinding(one.finding, picture(own), picture(other))

    images = {
        code: tuple(one for one in map(drawn, some) if one.picture)
        for code, some in checked.image_findings.items()
    }
    return replace(
        checked,
        pairs=tuple(map(drawn, checked.pairs)),
        image_findings={code: some for code, some in images.items() if some},
    )


def _place(at: Finding | Where | None, paths: Mapping[str, str]) -> RecordAt | None:
    """Returns the place of a record; None if it is not known, or not in a shard of the dataset."""
    path = paths.get(at.shard or "") if at is not None else None
    return RecordAt(path, at.offset) if at is not None and path and at.offset is not None else None


def _require_numbers(report: ValidationReport) -> None:
    """Raises a ValueError if the page could not show the numbers of a damaged report."""
    places = (number for finding in report.findings for number in (finding.record, finding.offset))
    numbers = [report.records, *report.counts.values(), *(number for number in places if number is not None)]
    if not all(isinstance(number, int) for number in numbers):
        raise ValueError("it has other values where numbers should be")
    CheckDepth.of(report.depth)
    report.number_of(Severity.NOTE)  # knows all codes
