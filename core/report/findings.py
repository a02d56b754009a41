"""Selects the findings of a validation for the page: the first ones of each code, and some images."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from shardwright.core.report.data import (
    MAX_ROWS,
    MAX_ROWS_PER_CODE,
    Checked,
    PreviousCheck,
    RecordAt,
    ShownFinding,
    Thumbnail,
)
from shardwright.core.report.thumbnails import Seen
from shardwright.schemas.check_depths import time_in_words
from shardwright.schemas.codes import NOTES, QUALITY, FindingCode, Severity

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
_ORDER = {Severity.ERROR.value: 0, Severity.WARNING.value: 1, Severity.NOTE.value: 2}


@dataclass(frozen=True)
class Validation:
    """A validation as it was read, without images.

    Attributes:
      checked: Results, with all listed findings.
      paths: Mapping of shard to its path.
    """

    checked: Checked
    paths: Mapping[str, str]

    def places(self) -> list[RecordAt]:
        """Returns the places of the records whose images are needed."""
        image_findings = [finding for found in self.checked.image_findings.values() for finding in found]
        places = [
            self._place(finding.shard, finding.offset) for finding in (*image_findings, *self.checked.pairs)
        ]
        places += [self._place(finding.other_shard, finding.other_offset) for finding in self.checked.pairs]
        return [place for place in places if place is not None]

    def with_pictures(self, seen: Mapping[RecordAt, Seen]) -> Checked:
        """Returns the results with the images that could be read."""

        def drawn(finding: ShownFinding) -> ShownFinding:
            return finding._replace(
                picture=self._picture(seen, finding.shard, finding.offset),
                other_picture=self._picture(seen, finding.other_shard, finding.other_offset),
            )

        image_findings = {
            code: tuple(item for item in map(drawn, found) if item.picture)
            for code, found in self.checked.image_findings.items()
        }
        return replace(
            self.checked,
            pairs=tuple(map(drawn, self.checked.pairs)),
            image_findings={code: found for code, found in image_findings.items() if found},
        )

    def _place(self, shard: str, offset: int | None) -> RecordAt | None:
        path = self.paths.get(shard)
        return RecordAt(path, offset) if path is not None and offset is not None else None

    def _picture(self, seen: Mapping[RecordAt, Seen], shard: str, offset: int | None) -> Thumbnail | None:
        place = self._place(shard, offset)
        return seen[place][0] if place is not None and place in seen else None


def read_validation(
    document: Mapping[str, Any] | None,
    fingerprint: str,
    paths: Mapping[str, str],
    when: str,
    left_out: list[str],
) -> Validation | None:
    """Reads a `findings.json`. Codes of later versions are shown like any other.

    Args:
      document: Contents of the file. None if there is none.
      fingerprint: Fingerprint of the present dataset. Empty for foreign files.
      paths: Mapping of shard to its path.
      when: When the file was written.
      left_out: List that gets a sentence if the file is not understood.
    """
    if document is None:
        return None
    try:
        return Validation(_checked(document, fingerprint, when), paths)
    except (KeyError, TypeError, ValueError, AttributeError):
        left_out.append("findings.json is damaged or has another version; validate again to replace it.")
        return None


def _checked(document: Mapping[str, Any], fingerprint: str, when: str) -> Checked:
    counts = {str(code): int(count) for code, count in document["counts"].items()}
    findings: defaultdict[str, list[ShownFinding]] = defaultdict(list)
    severities: dict[str, str] = {}
    for value in document["findings"]:
        finding = _finding(value)
        findings[finding.code].append(finding)
        severities[finding.code] = finding.severity
    for code in counts:  # a code may have a count without findings
        severities.setdefault(code, (Severity.NOTE if code in NOTES else Severity.ERROR).value)
    codes = sorted(counts.keys() | findings.keys(), key=lambda code: (_ORDER.get(severities[code], 3), code))
    share = max(1, min(MAX_ROWS_PER_CODE, MAX_ROWS // max(1, len(codes))))
    return Checked(
        mode=str(document["depth"]),
        sound=_is_sound(document),
        errors=int(document["errors"]),
        warnings=int(document["warnings"]),
        notes=int(document.get("notes", 0)),
        counts={code: counts.get(code, len(findings[code])) for code in codes},
        severities={code: severities[code] for code in codes},
        findings=tuple(finding for code in codes for finding in findings[code][:share])[:MAX_ROWS],
        pairs=tuple(_pairs(findings)),
        image_findings={
            code.value: tuple(found) for code in _VISIBLE if (found := _single(findings[code.value]))
        },
        records=int(document["records"]),
        current=document.get("fingerprint") in (fingerprint or None, None),
        when=when,
        previous=tuple(map(_previous, document.get("checks", ())[1:])),
    )


def _is_sound(document: Mapping[str, Any]) -> bool | None:
    """Returns whether a dataset is sound; None if it was not read."""
    return None if document["sound"] is None else bool(document["sound"])


def _previous(value: Mapping[str, Any]) -> PreviousCheck:
    counts = {str(code): int(count) for code, count in value["counts"].items()}
    return PreviousCheck(str(value["depth"]), time_in_words(str(value["time"])), counts)


def _pairs(findings: Mapping[str, list[ShownFinding]]) -> Iterable[ShownFinding]:
    for code in PAIRS:
        of_two = [finding for finding in findings.get(code.value, ()) if finding.other_shard]
        yield from of_two[:_PAIRS_OF_CODE]


def _single(found: Iterable[ShownFinding]) -> list[ShownFinding]:
    return [finding for finding in found if finding.shard and finding.offset is not None][:_OF_CODE]


def _finding(value: Mapping[str, Any]) -> ShownFinding:
    other = value.get("other") or {}
    return ShownFinding(
        code=str(value["code"]),
        severity=str(value.get("severity", Severity.ERROR.value)),
        message=str(value["message"]),
        shard=_text(value.get("shard")),
        record=_number(value.get("record")),
        offset=_number(value.get("offset")),
        key=_text(value.get("key")),
        other_shard=_text(other.get("shard")),
        other_offset=_number(other.get("offset")),
        other_key=_text(other.get("key")),
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
