"""Selects the findings of a validation that the page shows with images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shardwright.core.report.data import Checked, RecordAt, ShownFinding, Thumbnail
from shardwright.core.report.thumbnails import Seen
from shardwright.schemas.check_depths import CheckDepth
from shardwright.schemas.codes import QUALITY, FindingCode, Severity
from shardwright.schemas.findings import Finding, ValidationReport, Where

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
_OF_CODE = 10


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
    images = {
        code: [one for one in report.findings if one.code is code and one.shard and one.offset is not None]
        for code in _VISIBLE
    }
    return Checked(
        report,
        tuple(ShownFinding(one) for some in pairs.values() for one in some[:_PAIRS_OF_CODE]),
        {code.value: tuple(map(ShownFinding, some[:_OF_CODE])) for code, some in images.items() if some},
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
