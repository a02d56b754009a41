"""A shallower check keeps what deeper checks of the same build found, and a thorough one replaces it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shardwright.schemas.check_depths import CheckDepth, found_completely, sought
from shardwright.schemas.codes import DAMAGES, NOTES, FindingCode, Severity
from shardwright.schemas.findings import (
    MAX_STORED_PER_CODE,
    Finding,
    FindingSummary,
    Gates,
    ValidationReport,
)
from shardwright.schemas.junit import junit_xml
from shardwright.schemas.previous_checks import with_previous_checks

CODE = FindingCode


def found(code: FindingCode, record: int = 0, shard: str = "train-0") -> Finding:
    return Finding(code, f"{code} is wrong", shard, record, record * 10, f"key {record}")


def check(
    depth: str, hour: int, *findings: Finding, gates: Gates | None = None, fingerprint: str = "f", **more: Any
) -> ValidationReport:
    summary = FindingSummary().add(findings)
    return ValidationReport(
        "data", depth, fingerprint, 1, 10, 100, summary.by_code(), summary.by_place(), gates or Gates(),
        depth=depth, time=f"2026-10-05T{hour:02}:00:00Z", **more,
    )  # fmt: skip


def after(report: ValidationReport, *earlier: ValidationReport) -> ValidationReport:
    """Returns a report after a round trip through its file, which earlier reports were written to before."""
    stored = None
    for one in (*earlier, report):
        stored = json.loads(json.dumps(with_previous_checks(one, [stored]).as_json()))
    return ValidationReport.from_json(stored or {})


def known(report: ValidationReport) -> dict[str, tuple[str, int]]:
    """Returns code -> (depth of the check that found it, hour)."""
    return {
        one.code.value: (one.depth or report.depth, int((one.time or report.time)[11:13]))
        for one in report.findings
    }


def test_a_fast_check_keeps_what_quality_found_with_its_depth_and_time() -> None:
    report = after(
        check("fast", 9, found(CODE.BOX_RANGE)),
        check("quality", 7, found(CODE.LABEL_CONFLICT), found(CODE.DARK, 1), found(CODE.LABEL_TEXT)),
    )
    assert report.counts == {"BOX_RANGE": 1, "DARK": 1, "LABEL_CONFLICT": 1}
    assert known(report) == {
        "BOX_RANGE": ("fast", 9), "LABEL_CONFLICT": ("quality", 7), "DARK": ("quality", 7),
    }  # fmt: skip
    assert (report.errors, report.warnings, report.notes) == (1, 1, 1)
    assert [(run.depth, run.time[11:13]) for run in report.previous] == [("quality", "07")]
    assert report.run.counts == {"BOX_RANGE": 1}


def test_a_deep_check_without_findings_is_kept_too() -> None:
    report = after(check("fast", 9), check("quality", 7))
    assert [run.depth for run in report.previous] == ["quality"] and report.counts == {}


@pytest.mark.parametrize("depth", ["quality", "full", "fast", "frames", "none"])
def test_a_check_as_deep_replaces_everything(depth: str) -> None:
    every = [found(code) for code in sorted(sought(CheckDepth.of(depth)))]
    report = after(check(depth, 9), check(depth, 7, *every))
    assert (report.counts, report.previous) == ({}, ())


def test_every_depth_keeps_what_only_deeper_ones_find_completely() -> None:
    for depth in CheckDepth:
        for earlier in CheckDepth:
            if earlier > depth:
                every = [found(code) for code in sorted(sought(earlier) - DAMAGES)]
                kept = after(check(depth.word, 9), check(earlier.word, 7, *every)).counts
                assert set(kept) == sought(earlier) - found_completely(depth) - DAMAGES, (depth, earlier)


def test_three_checks_keep_their_own_findings() -> None:
    report = after(
        check("fast", 9),
        check("quality", 7, found(CODE.UNDECODABLE), found(CODE.DARK)),
        check("full", 8, found(CODE.UNDECODABLE, 1)),
    )
    assert known(report) == {"UNDECODABLE": ("full", 8), "DARK": ("quality", 7)}
    assert [run.depth for run in report.previous] == ["full", "quality"]
    report = after(
        check("fast", 9), check("full", 7, found(CODE.UNDECODABLE)), check("quality", 8, found(CODE.DARK))
    )
    assert known(report) == {"DARK": ("quality", 8)}


def test_a_finding_of_two_checks_counts_once_for_the_later_one() -> None:
    conflicts = [found(CODE.LABEL_CONFLICT, number) for number in range(3)]
    report = after(check("fast", 9, conflicts[1]), check("quality", 7, *conflicts))
    assert report.counts == {"LABEL_CONFLICT": 3}
    assert [one.depth for one in report.findings] == ["quality", "", "quality"]
    assert report.run.counts == {"LABEL_CONFLICT": 1}


def test_many_findings_are_counted_and_the_first_are_stored() -> None:
    many = [found(CODE.SPLIT_LEAKAGE, number) for number in range(MAX_STORED_PER_CODE + 50)]
    report = after(check("full", 9, *many[-10:]), check("quality", 7, *many))
    assert report.counts == {"SPLIT_LEAKAGE": len(many)}
    assert len(report.findings) == MAX_STORED_PER_CODE
    assert after(check("full", 9), check("quality", 7, *many)).counts == report.counts


def test_another_build_and_damaged_reports_are_forgotten() -> None:
    deep = check("quality", 7, found(CODE.DARK))
    assert after(check("fast", 9, fingerprint="g"), deep).counts == {}
    fast = check("fast", 9)
    of_later_version = {**deep.as_json(), "counts": {"NEW_CODE": 1}, "findings": [{"code": "NEW_CODE"}]}
    for stored in (None, {}, {"fingerprint": "f"}, {**deep.as_json(), "checks": [3]}, of_later_version):
        assert with_previous_checks(fast, [stored]) == fast
    foreign = check("fast", 9, fingerprint="")
    assert with_previous_checks(foreign, [check("quality", 7, fingerprint="").as_json()]) == foreign


def test_findings_in_a_repaired_shard_are_dropped() -> None:
    damaged = [found(CODE.SHARD_CHECKSUM), found(CODE.UNDECODABLE, 3), found(CODE.UNDECODABLE, 4, "train-1")]
    repaired = after(check("fast", 9), check("full", 7, *damaged))
    assert [one.shard for one in repaired.findings] == ["train-1"] and repaired.counts == {"UNDECODABLE": 1}
    still = after(check("fast", 9, damaged[0]), check("full", 7, *damaged))
    assert still.counts == {"SHARD_CHECKSUM": 1, "UNDECODABLE": 2}
    assert after(check("fast", 11), check("full", 7, *damaged), check("fast", 9, damaged[0])).counts == {
        "UNDECODABLE": 1
    }


def test_a_comparison_with_the_source_is_kept_until_the_next_one() -> None:
    compared = check("full", 7, found(CODE.SOURCE_MISSING), against=("photos",))
    assert after(check("quality", 9), compared).counts == {"SOURCE_MISSING": 1}
    assert after(check("fast", 9, against=("photos",)), compared).counts == {"SOURCE_MISSING": 1}
    assert after(check("full", 9, against=("photos",)), compared).counts == {}


def test_every_check_evaluates_the_expectations_again() -> None:
    assert after(check("fast", 9), check("quality", 7, found(CODE.EXPECTATION))).counts == {}


def test_current_gates_decide_and_only_current_findings_fail() -> None:
    deep = check("quality", 7, found(CODE.UNDECODABLE), found(CODE.DARK), gates=Gates(("DARK",)))
    report = after(check("fast", 9), deep)
    assert report.passed and not report.sound and (report.errors, report.notes) == (1, 1)
    report = after(check("fast", 9, gates=Gates((), ("UNDECODABLE",))), deep)
    assert report.passed and report.sound and report.warnings == 1
    report = after(check("fast", 9, found(CODE.BOX_ORDER)), deep)
    assert not report.passed and report.errors == 2
    stored = report.as_json()
    assert (stored["sound"], stored["passed"], stored["errors"]) == (False, False, 2)
    assert [item["depth"] for item in stored["checks"]] == ["fast", "quality"]
    assert [item["counts"] for item in stored["checks"]] == [{"BOX_ORDER": 1}, {"DARK": 1, "UNDECODABLE": 1}]


def test_junit_has_cases_for_the_findings_of_the_check() -> None:
    fast, full = (junit_xml(check(depth, 9)).decode() for depth in ("fast", "full"))
    assert 'name="UNDECODABLE"' in full and 'name="UNDECODABLE"' not in fast
    assert 'name="LABEL_CONFLICT"' in fast
    assert Gates().severity(CODE.LABEL_CONFLICT) is Severity.WARNING and CODE.LABEL_CONFLICT not in NOTES
