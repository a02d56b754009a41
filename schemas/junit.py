"""Writes a validation as JUnit XML, the form in which CI systems show tests.

There is one test case for each kind of finding that the check looked for, and one for each expectation. Error
findings are failures. The elements are those that Jenkins, GitLab and others read:
testsuites/testsuite/testcase with failure and system-out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree

from shardwright.schemas.codes import FindingCode, Severity, sought
from shardwright.schemas.findings import Finding, ValidationReport
from shardwright.schemas.units import counted

#: Number of findings in the text of one test case.
_SHOWN = 50
#: Characters that XML 1.0 cannot contain, not even escaped.
_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(report: ValidationReport, expectations: Iterable[str] = ()) -> bytes:
    """Returns a report as JUnit XML, UTF-8.

    Args:
      report: Result of the validation.
      expectations: Names of the expectations that were checked.
    """
    codes = sought(report.run.check_depth, bool(report.against))
    cases = []
    for code in FindingCode:
        is_shown = code.value in report.counts or code in codes
        if is_shown and code is not FindingCode.EXPECTATION:  # each of these has its own test case
            findings = [finding for finding in report.findings if finding.code is code]
            cases.append(_case("findings", code.value, report, report.counts.get(code.value, 0), findings))
    for name in expectations:
        findings = [
            finding
            for finding in report.findings
            if finding.code is FindingCode.EXPECTATION and finding.message.startswith(f"{name}: ")
        ]
        cases.append(_case("expectations", name, report, len(findings), findings))
    failures = sum(case.find("failure") is not None for case in cases)
    counts = {"tests": str(len(cases)), "failures": str(failures), "errors": "0", "skipped": "0"}
    suites = ElementTree.Element("testsuites", {"name": "shardwright", **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": _clean(report.dataset), **counts})
    suite.extend(cases)
    ElementTree.indent(suites)
    return bytes(ElementTree.tostring(suites, "utf-8", xml_declaration=True)) + b"\n"


def _case(
    group: str, name: str, report: ValidationReport, count: int, findings: list[Finding]
) -> ElementTree.Element:
    names = {"classname": f"shardwright.{group}", "name": name, "time": "0"}
    case = ElementTree.Element("testcase", names)
    if not count:
        return case
    text = "\n".join(_line(finding) for finding in findings[:_SHOWN])
    if count > _SHOWN:
        text += f"\nand {count - _SHOWN} more, see the report"
    message = findings[0].message if count == 1 else counted(count, "finding")
    if report.gates.severity(findings[0].code) is Severity.ERROR:
        failure = ElementTree.SubElement(case, "failure", {"message": _clean(message), "type": name})
        failure.text = _clean(text)
    else:
        ElementTree.SubElement(case, "system-out").text = _clean(text)
    return case


def _line(finding: Finding) -> str:
    where = ", ".join(filter(None, (finding.place, finding.key)))
    return f"{where}: {finding.message}" if where else finding.message


def _clean(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", text)
