"""Findings: their severities, which of many are stored, and the report as JSON and as JUnit XML."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.codes import NOTES, QUALITY, WARNINGS, FindingCode, Severity
from shardwright.schemas.findings import (
    MAX_STORED_PER_CODE,
    Finding,
    FindingSummary,
    Gates,
    ValidationReport,
    Where,
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


def report_of(findings: list[Finding], gates: Gates | None = None, mode: str = "full") -> ValidationReport:
    summary = FindingSummary().add(findings)
    return ValidationReport(
        "data", mode, "f" * 64, 1, 10, 100, summary.by_code(), summary.by_place(), gates or Gates()
    )


def test_gates_change_severities() -> None:
    plain, gates = Gates(), Gates(("DARK", "SPLIT_LEAKAGE"), ("DATA_CRC", "BLURRY"))
    assert [code for code in FindingCode if plain.severity(code) is Severity.NOTE] == sorted(
        NOTES, key=list(FindingCode).index
    )
    assert {code for code in FindingCode if plain.severity(code) is Severity.WARNING} == WARNINGS
    assert gates.severity(FindingCode.DARK) is gates.severity(FindingCode.SPLIT_LEAKAGE) is Severity.ERROR
    assert gates.severity(FindingCode.DATA_CRC) is gates.severity(FindingCode.BLURRY) is Severity.WARNING
    assert gates.severity(FindingCode.LIGHT) is Severity.NOTE
    assert not report_of([Finding(FindingCode.DARK, "")], gates).sound
    assert report_of([Finding(FindingCode.DARK, "")]).sound


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
    report = report_of(findings, Gates(("DARK",), ("DATA_CRC",)))
    stored = json.loads(json.dumps(report.as_json()))
    assert ValidationReport.from_json(stored) == report
    assert (stored["errors"], stored["warnings"], stored["notes"]) == (
        report.errors, report.warnings, report.notes,
    )  # fmt: skip


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
    cases = cases_of(junit_xml(report_of(findings), ["min_images", "max_classes"]))
    failure = cases["DATA_CRC"].find("failure")
    assert failure is not None and failure.text is not None
    assert failure.text == "s-0, record 3, byte 99, cats/1.jpg: its <sum> & \ufffd is\ufffd wrong"
    aside = cases["SPLIT_LEAKAGE"].find("system-out")
    assert aside is not None and aside.text == "s-0, record 4, byte 120: also in test"
    assert cases["min_images"].find("failure") is not None
    assert cases["max_classes"].find("failure") is None
    assert list(cases["UNDECODABLE"]) == []
    assert not {code.value for code in QUALITY} & set(cases)  # no check looked for them


def test_junit_of_a_quality_check_counts_findings_that_it_does_not_list() -> None:
    findings = [Finding(FindingCode.DARK, f"dark {n}", "s", n, n) for n in range(60)]
    cases = cases_of(junit_xml(report_of(findings, Gates(("DARK",)), "quality")))
    failure = cases["DARK"].find("failure")
    assert failure is not None and failure.text is not None
    assert failure.attrib["message"] == "60 findings"
    assert failure.text.endswith("s, record 49, byte 49: dark 49\nand 10 more, see the report")
    assert {code.value for code in QUALITY} <= set(cases)
