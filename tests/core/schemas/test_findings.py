"""Findings: severities, which of many are stored, what earlier checks found, and JSON and JUnit XML."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.codes import (
    DAMAGES,
    NOTES,
    QUALITY,
    WARNINGS,
    CheckDepth,
    FindingCode,
    Severity,
    found_completely,
    sought,
)
from shardwright.schemas.findings import (
    MAX_STORED_PER_CODE,
    Finding,
    FindingSummary,
    Gates,
    ValidationReport,
    Where,
    with_previous_checks,
)
from shardwright.schemas.junit import junit_xml

FINDINGS = st.builds(
    Finding,
    st.sampled_from([FindingCode.DATA_CRC, FindingCode.DARK, FindingCode.SPLIT_LEAKAGE]),
    st.text(max_size=20),
    st.none() | st.sampled_from(["a", "b"]),
    st.none() | st.integers(0, 5),
    st.none() | st.integers(0, 500),
    st.none() | st.text(max_size=5),
    st.none() | st.builds(Where, st.just("a"), st.integers(0, 5)),
)


def check(
    depth: str, hour: int, *findings: Finding, gates: Gates | None = None, fingerprint: str = "f", **more: Any
) -> ValidationReport:
    summary = FindingSummary().add(findings)
    return ValidationReport(
        "data", depth, fingerprint, 1, 10, 100, summary.by_code(), summary.by_place(), gates or Gates(),
        time=f"2026-10-05T{hour:02}:00:00Z", **more,
    )  # fmt: skip


def test_gates_change_severities() -> None:
    plain, gates = Gates(), Gates(("DARK", "SPLIT_LEAKAGE"), ("DATA_CRC", "BLURRY"))
    assert [code for code in FindingCode if plain.severity(code) is Severity.NOTE] == sorted(
        NOTES, key=list(FindingCode).index
    )
    assert {code for code in FindingCode if plain.severity(code) is Severity.WARNING} == WARNINGS
    assert gates.severity(FindingCode.DARK) is gates.severity(FindingCode.SPLIT_LEAKAGE) is Severity.ERROR
    assert gates.severity(FindingCode.DATA_CRC) is gates.severity(FindingCode.BLURRY) is Severity.WARNING
    assert gates.severity(FindingCode.LIGHT) is Severity.NOTE
    assert not check("full", 9, Finding(FindingCode.DARK, ""), gates=gates).sound
    assert check("full", 9, Finding(FindingCode.DARK, "")).sound


@given(st.lists(FINDINGS, max_size=30), st.integers(1, 4))
def test_summaries_do_not_depend_on_how_findings_are_distributed(findings: list[Finding], parts: int) -> None:
    whole = FindingSummary().add(findings)
    merged = FindingSummary()
    for part in range(parts):
        merged.merge(FindingSummary().add(findings[part::parts]))
    assert merged.by_code() == whole.by_code()
    assert [f.order() for f in merged.by_place()] == [f.order() for f in whole.by_place()]


def test_the_first_of_many_findings_by_place_are_stored() -> None:
    count = 3 * MAX_STORED_PER_CODE
    findings = [Finding(FindingCode.DARK, "", "shard", n, n) for n in reversed(range(count))]
    findings.append(Finding(FindingCode.DATA_CRC, "", "shard", 1, 1))
    halves = (FindingSummary().add(findings[: count // 2]), FindingSummary().add(findings[count // 2 :]))
    for summary in (FindingSummary().add(findings), halves[0].merge(halves[1])):
        assert summary.by_code() == {"DARK": count, "DATA_CRC": 1}
        dark = [finding.record for finding in summary.by_place() if finding.code is FindingCode.DARK]
        assert dark == list(range(MAX_STORED_PER_CODE))
        assert len(summary.by_place()) == MAX_STORED_PER_CODE + 1


@given(st.lists(FINDINGS, max_size=10))
def test_reports_survive_being_stored(findings: list[Finding]) -> None:
    report = check("full", 9, *findings, gates=Gates(("DARK",), ("DATA_CRC",)))
    stored = json.loads(json.dumps(report.as_json()))
    assert ValidationReport.from_json(stored) == report
    for number in ("errors", "warnings", "notes"):
        assert stored[number] == getattr(report, number)


def cases_of(xml: bytes) -> dict[str, ElementTree.Element]:
    (suite,) = ElementTree.fromstring(xml)
    cases = {case.attrib["name"]: case for case in suite}
    failed = [case for case in cases.values() if case.find("failure") is not None]
    assert suite.attrib["tests"] == str(len(cases)) == str(len(suite))
    assert suite.attrib["failures"] == str(len(failed))
    return cases


def test_junit_has_a_case_for_each_kind_of_finding_and_each_expectation() -> None:
    findings = [
        Finding(FindingCode.DATA_CRC, "its <sum> & \x00 is\x1b wrong", "s-0", 3, 99, "cats/1.jpg"),
        Finding(FindingCode.SPLIT_LEAKAGE, "also in test", "s-0", 4, 120),
        Finding(FindingCode.EXPECTATION, "min_images: it has 5 images, less than 10"),
    ]
    cases = cases_of(junit_xml(check("full", 9, *findings), ["min_images", "max_classes"]))
    failure = cases["DATA_CRC"].find("failure")
    assert failure is not None and failure.text is not None
    assert failure.text == "s-0, record 3, byte 99, cats/1.jpg: its <sum> & \ufffd is\ufffd wrong"
    aside = cases["SPLIT_LEAKAGE"].find("system-out")
    assert aside is not None and aside.text == "s-0, record 4, byte 120: also in test"
    assert cases["min_images"].find("failure") is not None
    assert cases["max_classes"].find("failure") is None
    assert list(cases["UNDECODABLE"]) == []
    assert not {code.value for code in QUALITY} & set(cases)  # no check looked for them
    fast = cases_of(junit_xml(check("fast", 9)))
    assert "UNDECODABLE" not in fast and "LABEL_CONFLICT" in fast


def test_junit_of_a_quality_check_counts_findings_that_it_does_not_list() -> None:
    findings = [Finding(FindingCode.DARK, f"dark {n}", "s", n, n) for n in range(60)]
    cases = cases_of(junit_xml(check("quality", 9, *findings, gates=Gates(("DARK",)))))
    failure = cases["DARK"].find("failure")
    assert failure is not None and failure.text is not None
    assert failure.attrib["message"] == "60 findings"
    assert failure.text.endswith("s, record 49, byte 49: dark 49\nand 10 more, see the report")
    assert {code.value for code in QUALITY} <= set(cases)


CODE = FindingCode


def found(code: FindingCode, record: int = 0, shard: str = "train-0") -> Finding:
    return Finding(code, f"{code} is wrong", shard, record, record * 10, f"key {record}")


def after(report: ValidationReport, *earlier: ValidationReport) -> ValidationReport:
    """Returns a report after a round trip through its file, which earlier reports were written to before."""
    stored: dict[str, Any] = {}
    for one in (*earlier, report):
        stored = json.loads(json.dumps(with_previous_checks(one, [stored]).as_json()))
    return ValidationReport.from_json(stored)


def known(report: ValidationReport) -> dict[str, tuple[str, int]]:
    """Returns code -> (depth of the check that found it, hour)."""
    return {
        one.code.value: (one.depth or report.mode, int((one.time or report.time)[11:13]))
        for one in report.findings
    }


def test_a_fast_check_keeps_what_quality_found_with_its_depth_and_time() -> None:
    report = after(
        check("fast", 9, found(CODE.BOX_RANGE)),
        check("quality", 7, found(CODE.LABEL_CONFLICT), found(CODE.DARK, 1), found(CODE.LABEL_TEXT)),
    )
    assert report.counts == {"BOX_RANGE": 1, "DARK": 1, "LABEL_CONFLICT": 1}
    before = ("quality", 7)
    assert known(report) == {"BOX_RANGE": ("fast", 9), "LABEL_CONFLICT": before, "DARK": before}
    assert (report.errors, report.warnings, report.notes) == (1, 1, 1)
    assert [(run.depth, run.time[11:13]) for run in report.previous] == [("quality", "07")]
    assert report.run.counts == {"BOX_RANGE": 1}


def test_a_deep_check_without_findings_is_kept_too() -> None:
    report = after(check("fast", 9), check("quality", 7))
    assert [run.depth for run in report.previous] == ["quality"] and report.counts == {}


@pytest.mark.parametrize("depth", CheckDepth)
def test_each_check_keeps_what_only_deeper_ones_find_completely(depth: CheckDepth) -> None:
    for earlier in CheckDepth:
        every = sought(earlier) - DAMAGES if earlier > depth else sought(earlier)
        report = after(check(depth.word, 9), check(earlier.word, 7, *map(found, sorted(every))))
        assert set(report.counts) == (every - found_completely(depth) if earlier > depth else set()), earlier
        assert [run.depth for run in report.previous] == [earlier.word] * (earlier > depth)


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


def test_another_build_and_damaged_reports_are_forgotten() -> None:
    deep = check("quality", 7, found(CODE.DARK))
    assert after(check("fast", 9, fingerprint="g"), deep).counts == {}
    fast = check("fast", 9)
    of_later_version = {**deep.as_json(), "counts": {"NEW_CODE": 1}, "findings": [{"code": "NEW_CODE"}]}
    for stored in ({}, {"fingerprint": "f"}, {**deep.as_json(), "checks": [3]}, of_later_version):
        assert with_previous_checks(fast, [stored]) == fast
    foreign = check("fast", 9, fingerprint="")
    assert with_previous_checks(foreign, [check("quality", 7, fingerprint="").as_json()]) == foreign


def test_findings_in_a_repaired_shard_are_dropped() -> None:
    damaged = [found(CODE.SHARD_CHECKSUM), found(CODE.UNDECODABLE, 3), found(CODE.UNDECODABLE, 4, "train-1")]
    repaired = after(check("fast", 9), check("full", 7, *damaged))
    assert [one.shard for one in repaired.findings] == ["train-1"] and repaired.counts == {"UNDECODABLE": 1}
    still = after(check("fast", 9, damaged[0]), check("full", 7, *damaged))
    assert still.counts == {"SHARD_CHECKSUM": 1, "UNDECODABLE": 2}
    later = after(check("fast", 11), check("full", 7, *damaged), check("fast", 9, damaged[0]))
    assert later.counts == {"UNDECODABLE": 1}


def test_a_comparison_with_the_source_is_kept_until_the_next_one() -> None:
    compared = check("full", 7, found(CODE.SOURCE_MISSING), against=("photos",))
    assert after(check("quality", 9), compared).counts == {"SOURCE_MISSING": 1}
    assert after(check("fast", 9, against=("photos",)), compared).counts == {"SOURCE_MISSING": 1}
    assert after(check("full", 9, against=("photos",)), compared).counts == {}


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
