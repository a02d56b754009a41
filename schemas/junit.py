"""Writes a validation as JUnit XML, the form in which CI systems show tests.

There is one test case for each kind of finding that the check looked for, and one for each expectation. Error
findings are failures. The elements are those that Jenkins, GitLab and others read:
testsuites/testsuite/testcase with failure and system-out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from xml.etree import ElementTree

from shardwright.schemas.codes import FindingCode, Severity, sought
from shardwright.schemas.findings import Finding, FindingsOfCode, ValidationReport
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
    found = {group.code: group for group in report.groups()}
    unmet = found.pop(FindingCode.EXPECTATION, None)  # each expectation has its own test case
    codes = found.keys() | sought(report.run.check_depth, bool(report.against)) - {FindingCode.EXPECTATION}
    cases = [_case("findings", code.value, found.get(code)) for code in FindingCode if code in codes]
    for name in expectations:
        findings = [one for one in unmet.findings if one.message.startswith(f"{name}: ")] if unmet else []
        of_name = replace(unmet, count=len(findings), findings=findings) if unmet else None
        cases.append(_case("expectations", name, of_name))
    failures = sum(case.find("failure") is not None for case in cases)
    counts = {"tests": str(len(cases)), "failures": str(failures), "errors": "0", "skipped": "0"}
    suites = ElementTree.Element("testsuites", {"name": "shardwright", **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": _clean(report.dataset), **counts})
    suite.extend(cases)
    ElementTree.indent(suites)
    return bytes(ElementTree.tostring(suites, "utf-8", xml_declaration=True)) + b"\n"


def _case(group: str, name: str, found: FindingsOfCode | None) -> ElementTree.Element:
    """Returns a test case with its findings, which are errors or not."""
    case = ElementTree.Element("testcase", classname=f"shardwright.{group}", name=name, time="0")
    if found is None or not found.count:
        return case
    text = "\n".join(_line(finding) for finding in found.findings[:_SHOWN])
    if found.count > _SHOWN:
        text += f"\nand {found.count - _SHOWN} more, see the report"
    message = found.findings[0].message if found.count == 1 else counted(found.count, "finding")
    if found.severity is Severity.ERROR:
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
