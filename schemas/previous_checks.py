"""Keeps what earlier, deeper checks of a dataset found when a shallower one writes its report.

A finding in a shard with the bytes that `dataset.json` lists is a property of the fingerprint. So it stays
true until the fingerprint changes, and only a check that looks for it as thoroughly replaces it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from shardwright.schemas.check_depths import found_completely, sought
from shardwright.schemas.codes import DAMAGES, FindingCode
from shardwright.schemas.findings import (
    MAX_STORED_PER_CODE,
    CheckRun,
    Finding,
    ValidationReport,
)


class _Past(NamedTuple):
    """An earlier check, and its findings that are stored one by one."""

    run: CheckRun
    findings: tuple[Finding, ...]


def with_previous_checks(
    report: ValidationReport, documents: Iterable[Mapping[str, Any] | None]
) -> ValidationReport:
    """Returns a report with the findings of earlier checks that it did not look for as thoroughly.

    Args:
      report: Result of a check.
      documents: Earlier reports, as they are stored. Reports of another fingerprint, and those that cannot be
        read, are ignored.
    """
    past: dict[tuple[str, str], _Past] = {}
    for document in documents:
        for item in _past_checks(document, report):
            past.setdefault((item.run.depth, item.run.time), item)
    newest_first = sorted(past.values(), key=lambda item: item.run.time, reverse=True)
    kept: list[_Past] = []
    for item in newest_first:
        still = _still_standing(item.run, [report.run, *(other.run for other in kept)])
        if still:
            run = replace(item.run, counts={c: n for c, n in item.run.counts.items() if c in still})
            kept.append(_Past(run, tuple(one for one in item.findings if one.code in still)))
    return _merged(report, kept)


def _past_checks(document: Mapping[str, Any] | None, report: ValidationReport) -> list[_Past]:
    """Returns the checks in a stored report, without findings in shards that have been repaired since."""
    if document is None or not report.fingerprint or document.get("fingerprint") != report.fingerprint:
        return []
    try:
        stored = ValidationReport.from_json(document)
        damaged = {one.shard for one in stored.findings if one.code in DAMAGES}
        damaged -= {one.shard for one in report.findings if one.code in DAMAGES}
        return [_without(run, stored.findings_of(run), damaged) for run in (stored.run, *stored.previous)]
    except (LookupError, TypeError, ValueError, AttributeError):
        return []


def _without(run: CheckRun, findings: Sequence[Finding], shards: set[str | None]) -> _Past:
    """Returns a check without its findings in some shards, which had other bytes when it read them."""
    counts = dict(run.counts)
    kept = []
    for one in findings:
        if one.shard in shards or (one.other is not None and one.other.shard in shards):
            counts[one.code.value] -= 1
        else:
            kept.append(replace(one, depth=run.depth, time=run.time))
    return _Past(
        replace(run, counts={code: count for code, count in counts.items() if count > 0}), tuple(kept)
    )


def _still_standing(run: CheckRun, newer: Sequence[CheckRun]) -> frozenset[FindingCode]:
    """Returns the codes of a check for which no newer check was as thorough."""
    depth, codes = run.check_depth, sought(run.check_depth, bool(run.against))
    for other in newer:
        codes -= found_completely(other.check_depth, bool(other.against))
        if other.check_depth >= depth:
            codes -= sought(other.check_depth, bool(other.against))
    return codes


def _merged(report: ValidationReport, past: Sequence[_Past]) -> ValidationReport:
    if not past:
        return report
    counts = dict(report.counts)
    findings = list(report.findings)
    known = set(map(_identity, findings))
    for run, found in past:
        findings += (one for one in found if _identity(one) not in known)
        known.update(map(_identity, found))
        for code, count in run.counts.items():  # the deeper check finds all that the other finds
            counts[code] = max(counts.get(code, 0), count)
    by_code: dict[str, list[Finding]] = {}
    for one in sorted(findings, key=Finding.order):
        by_code.setdefault(one.code.value, []).append(one)
    first = [one for found_of in by_code.values() for one in found_of[:MAX_STORED_PER_CODE]]
    return replace(
        report,
        counts={code: max(count, len(by_code.get(code, ()))) for code, count in sorted(counts.items())},
        findings=tuple(sorted(first, key=Finding.order)),
        found=report.run.counts,
        previous=tuple(item.run for item in past),
    )


def _identity(finding: Finding) -> tuple[Any, ...]:
    """Returns the values that are the same if two checks made the same finding."""
    if finding.record is None:
        return finding.code, finding.shard, finding.message
    return finding.code, finding.shard, finding.record
