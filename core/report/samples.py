"""Chooses the records on the page: those with the lowest hashes of each class, and some with findings."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from shardwright.core.preview import ledger_entries
from shardwright.core.report.data import Checked, ClassSheet, RecordAt, Sample
from shardwright.core.report.measures import ObjectCounts, ranked, totals_of
from shardwright.core.report.thumbnails import has_drawn_annotations
from shardwright.schemas.check_depths import CheckDepth
from shardwright.schemas.codes import QUALITY, FindingCode, Severity
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.errors import EngineError
from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.findings import Finding, ValidationReport
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
    for file, entry in islice(_entries(directory, dataset), _MAX_LINES):
        assert entry.offset is not None  # because the image was written
        for label in entry.label.split(LABEL_SEPARATOR) if names else [NO_CLASS]:
            if missing.get(label):
                wanted[label].append(Sample(RecordAt(file, entry.offset), entry.key))
                missing[label] -= 1
        if not any(missing.values()):
            break
    return [ClassSheet(name, totals[name], tuple(samples)) for name, samples in wanted.items() if samples]


def _entries(directory: str, dataset: Dataset) -> Iterator[tuple[str, Entry]]:
    """Yields shard and entry of records: of the first shard of each split first, then of the second ones."""
    for split, number, count, shard in islice(dataset.filled_shards_in_turn(), _MAX_LEDGERS):
        with contextlib.suppress(EngineError):
            for entry in ledger_entries(directory, (split, number, count), shard):
                yield shard.file, entry


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
    for _, entry in islice(_entries(directory, dataset), _MAX_LINES):
        counts = entry.boxes if isinstance(entry.boxes, Mapping) else {}
        written, *left_out = (counts.get(name, 0) for name in ("written", "dropped", "vanished"))
        if isinstance(written, int):  # the ledger may be damaged
            images[written] += 1
            lost += sum(count for count in left_out if isinstance(count, int))
    return ObjectCounts(images, lost) if images else None


def read_report(document: Mapping[str, Any]) -> ValidationReport:
    """Reads a `findings.json`.

    Raises:
      LookupError, TypeError, ValueError or AttributeError: if it is damaged, or has codes of a later version.
    """
    report = ValidationReport.from_json(document)
    CheckDepth.of(report.depth)
    report.number_of(Severity.NOTE)  # knows all codes
    return report


def select_findings(report: ValidationReport | None, fingerprint: str, when: str) -> Checked | None:
    """Selects the findings whose images are shown.

    Args:
      report: Contents of `findings.json`. None if there is none.
      fingerprint: Fingerprint of the present dataset. Empty for foreign files.
      when: When the file was written.
    """
    if report is None:
        return None

    def some(code: FindingCode, most: int, of: Sequence[Finding]) -> tuple[Finding, ...]:
        return tuple(islice((one for one in of if one.code is code), most))

    pairs = [one for one in report.findings if one.other]
    placed = [one for one in report.findings if one.shard and one.offset is not None]
    return Checked(
        report,
        tuple(one for code in PAIRS for one in some(code, _PAIRS_OF_CODE, pairs)),
        {code.value: found for code in _VISIBLE if (found := some(code, _FINDINGS_OF_CODE, placed))},
        report.fingerprint in (fingerprint or None, None),
        when,
    )


def shown_places(checked: Checked | None, shards: Container[str]) -> Iterator[RecordAt]:
    """Yields the places of the records whose images are needed.

    Args:
      checked: Results of a validation. None if there are none.
      shards: Shards of the dataset. A damaged `findings.json` may name other files.
    """
    if checked is not None:
        images = (one for some in checked.image_findings.values() for one in some)
        for at in (*images, *checked.pairs, *(one.other for one in checked.pairs)):
            if at is not None and at.shard is not None and at.shard in shards and at.offset is not None:
                yield RecordAt(at.shard, at.offset)
