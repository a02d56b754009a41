"""The result of a validation, as `findings.json` stores it, and the gates that a dataset does not pass.

A finding in a shard with the bytes that `dataset.json` lists is a property of the fingerprint. So it stays
true until the fingerprint changes, and only a check that looks for it as thoroughly replaces it:
`with_previous_checks` keeps what earlier, deeper checks found when a shallower one writes its report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from shardwright.schemas.codes import (
    DAMAGES,
    NOTES,
    WARNINGS,
    CheckDepth,
    FindingCode,
    Severity,
    found_completely,
    sought,
)
from shardwright.schemas.json_values import fields_json, from_json, to_json
from shardwright.schemas.plain_text import printable

FORMAT_VERSION = 1
#: Number of findings of a code to store one by one; further findings are only counted.
MAX_STORED_PER_CODE = 1000


class Where(NamedTuple):
    """The place of a record.

    Attributes:
      shard: Name of the shard file.
      record: Number of the record in its shard, from 0.
      offset: Byte offset in the (uncompressed) shard.
      key: Key of the image.
    """

    shard: str | None = None
    record: int | None = None
    offset: int | None = None
    key: str | None = None


@dataclass(frozen=True)
class Finding:
    """A fault, and where it is.

    Attributes:
      code: Kind of the fault.
      message: One sentence.
      shard: Name of the shard file, if the finding is about one.
      record: Number of the record in its shard, from 0.
      offset: Byte offset in the (uncompressed) shard.
      key: Key of the image.
      other: The other record, if the finding is about a pair.
      depth: Depth of the earlier check that found it; empty for the check that wrote the report.
      time: Time of that check.
      score: How usual the image is in this respect, from 0 for the worst to 1; None if nothing measures it.
    """

    code: FindingCode
    message: str
    shard: str | None = None
    record: int | None = None
    offset: int | None = None
    key: str | None = None
    other: Where | None = None
    depth: str = ""
    time: str = ""
    score: float | None = None

    @property
    def place(self) -> str:
        """The shard, the record and the byte, those that are known."""
        record = "" if self.record is None else f"record {self.record}"
        offset = "" if self.offset is None else f"byte {self.offset}"
        return ", ".join(filter(None, (self.shard, record, offset)))

    @property
    def sentence(self) -> str:
        """The message, which names another image by its key instead of its place."""
        if self.other is None or self.other.key is None:
            return self.message
        return self.message.replace(f"record {self.other.record} of {self.other.shard}", self.other.key)

    def order(self) -> tuple[str, int, str, str]:
        """Returns a key that sorts findings by place."""
        return self.shard or "", -1 if self.offset is None else self.offset, self.code, self.message

    def as_json(self) -> dict[str, Any]:
        """Returns the finding as `findings.json` stores it, without its severity and its check."""
        value = fields_json(self)
        absent = {"depth", "time"} | {name for name in ("other", "score") if value[name] is None}
        return {name: item for name, item in value.items() if name not in absent}


@dataclass(frozen=True)
class Gates:
    """The findings that fail a validation, where they differ from the defaults.

    Attributes:
      fail_on: Codes that are errors.
      warn_on: Codes that are warnings.
    """

    fail_on: tuple[str, ...] = ()
    warn_on: tuple[str, ...] = ()

    def severity(self, code: FindingCode) -> Severity:
        """Returns the severity of a finding."""
        if code in self.fail_on:
            return Severity.ERROR
        if code in WARNINGS or code in self.warn_on:
            return Severity.WARNING
        return Severity.NOTE if code in NOTES else Severity.ERROR


@dataclass(frozen=True)
class FindingsOfCode:
    """The findings of one code in a report.

    Attributes:
      code: The code.
      severity: Severity of the findings.
      count: Number of findings.
      findings: Those that the report stores, by place.
    """

    code: FindingCode
    severity: Severity
    count: int
    findings: Sequence[Finding]

    @property
    def line(self) -> str:
        """The number of findings, and the message of the first one."""
        text = f"{self.count:,} {self.code}"
        for first in self.findings[:1]:
            where = f" in {first.shard}" if first.shard else ""
            key = f" ({first.key})" if first.key else ""
            text += f", the first{where}{key}: {first.sentence}"
        return printable(text)


@dataclass(frozen=True)
class CheckRun:
    """One check of a dataset.

    Attributes:
      depth: How deep the check looked (`CheckDepth`).
      time: When it ended, in UTC; empty if unknown.
      against: Source that the dataset was compared with, as the user wrote it.
      counts: Finding code -> number of findings of this check that are still valid.
    """

    depth: str
    time: str
    against: tuple[str, ...]
    counts: Mapping[str, int]

    @property
    def check_depth(self) -> CheckDepth:
        """How deep the check looked."""
        return CheckDepth[self.depth.upper()]


@dataclass(frozen=True)
class ValidationReport:
    """The result of a validation, with the findings of earlier and deeper checks of the same build.

    Attributes:
      dataset: The dataset that was validated.
      mode: How deep this check looked, as a word of `CheckDepth`: none, frames, fast (every Example), full
        (every image decoded) or quality (every image measured).
      fingerprint: Fingerprint of the dataset; None for foreign files.
      shards: Number of shards read.
      records: Number of sound records read.
      bytes: Number of bytes in the shards.
      counts: Finding code -> number of all known findings.
      findings: At most `MAX_STORED_PER_CODE` of each code, by place.
      gates: Codes whose severity a gate changed.
      against: Source that the dataset was compared with, as the user wrote it.
      time: When it ended, in UTC; empty if unknown.
      found: Finding code -> number of findings of this check alone; None if there is no earlier check.
      previous: Earlier checks whose findings are still valid, the newest first.
      files: Where `validate` wrote its results: page, report, statistics, stats or junit -> path.
    """

    dataset: str
    mode: str
    fingerprint: str | None
    shards: int
    records: int
    bytes: int
    counts: dict[str, int]
    findings: tuple[Finding, ...]
    gates: Gates = field(default_factory=Gates)
    against: tuple[str, ...] = ()
    time: str = ""
    found: Mapping[str, int] | None = None
    previous: tuple[CheckRun, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def run(self) -> CheckRun:
        """This check, without earlier ones."""
        counts = self.counts if self.found is None else self.found
        return CheckRun(self.mode, self.time, self.against, counts)

    def findings_of(self, run: CheckRun) -> list[Finding]:
        """Returns the findings of this check or of an earlier one."""
        made_by = ("", "") if run == self.run else (run.depth, run.time)
        return [finding for finding in self.findings if (finding.depth, finding.time) == made_by]

    def number_of(self, severity: Severity, counts: Mapping[str, int] | None = None) -> int:
        """Number of findings of a severity.

        Args:
          severity: Severity of the findings to count.
          counts: Finding code -> number; by default the numbers of all checks.
        """
        counts = self.counts if counts is None else counts
        return sum(
            count for code, count in counts.items() if self.gates.severity(FindingCode(code)) is severity
        )

    @property
    def errors(self) -> int:
        """Number of findings that fail the validation."""
        return self.number_of(Severity.ERROR)

    @property
    def warnings(self) -> int:
        """Number of findings that are warnings."""
        return self.number_of(Severity.WARNING)

    @property
    def notes(self) -> int:
        """Number of findings that are only counted and shown."""
        return self.number_of(Severity.NOTE)

    @property
    def sound(self) -> bool | None:
        """Whether no check found an error; None if no check found an error and none has read the shards."""
        if self.errors:
            return False
        depth = max(run.check_depth for run in (self.run, *self.previous))
        return None if depth is CheckDepth.NONE else True

    @property
    def passed(self) -> bool:
        """Whether this check found no error; this decides the exit code."""
        return not self.number_of(Severity.ERROR, self.run.counts)

    def groups(self) -> list[FindingsOfCode]:
        """Returns the findings of each code, in the order of the codes."""
        stored: dict[FindingCode, list[Finding]] = {FindingCode(code): [] for code in self.counts}
        for finding in self.findings:
            stored.setdefault(finding.code, []).append(finding)
        return [
            FindingsOfCode(code, self.gates.severity(code), self.counts.get(code, len(some)), some)
            for code, some in sorted(stored.items())
        ]

    def by_severity(self) -> list[FindingsOfCode]:
        """Returns the findings of each code, the most severe first."""
        severities = list(Severity)
        return sorted(self.groups(), key=lambda group: severities.index(group.severity))

    def errors_of(self, counts: Mapping[str, int]) -> str:
        """Returns the codes that are errors, with their numbers in `counts`."""
        errors = (code for code in counts if self.gates.severity(FindingCode(code)) is Severity.ERROR)
        return ", ".join(f"{counts[code]:,} {code}" for code in errors)

    def as_json(self) -> dict[str, Any]:
        """Returns the report as `findings.json` stores it."""
        names = (
            "time", "against", "sound", "passed", "fingerprint",
            "shards", "records", "bytes", "errors", "warnings", "notes",
        )  # fmt: skip
        return {
            "format_version": FORMAT_VERSION,
            "dataset": self.dataset,
            **dict.fromkeys(("mode", "depth"), self.mode),
            **{name: to_json(getattr(self, name)) for name in names},
            **to_json(self.gates),
            "counts": self.counts,
            "checks": to_json((self.run, *self.previous)),
            "findings": [
                {
                    "severity": self.gates.severity(finding.code).value,
                    **finding.as_json(),
                    "depth": finding.depth or self.mode,
                    "time": finding.time if finding.depth else self.time,
                }
                for finding in self.findings
            ],
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> ValidationReport:
        """Reads a stored report.

        Raises:
          LookupError, TypeError, ValueError or AttributeError: if it is damaged, or a later version wrote it.
        """
        report = from_json(ValidationReport, value)
        checks = [from_json(CheckRun, item) for item in value["checks"]]
        for run in (report.run, *checks):
            _ = run.check_depth, [*map(FindingCode, run.counts)]  # raises for other words
        own = {"depth": report.mode, "time": report.time}
        return replace(
            report,
            findings=tuple(
                replace(item, depth="", time="") if own == {"depth": item.depth, "time": item.time} else item
                for item in report.findings
            ),
            gates=from_json(Gates, value),
            found=checks[0].counts if len(checks) > 1 else None,
            previous=tuple(checks[1:]),
            files={},
        )


@dataclass
class FindingSummary:
    """Counts of findings, and the first findings of each code by place; summaries can be merged.

    Attributes:
      counts: Code -> number of findings.
      first: Code -> at most `MAX_STORED_PER_CODE` findings, by place.
    """

    counts: Counter[FindingCode] = field(default_factory=Counter)
    first: dict[FindingCode, list[Finding]] = field(default_factory=dict)

    def add(self, findings: Iterable[Finding]) -> FindingSummary:
        """Adds findings; returns the summary itself."""
        for finding in findings:
            self.counts[finding.code] += 1
            kept = self.first.setdefault(finding.code, [])
            kept.append(finding)
            if len(kept) >= 2 * MAX_STORED_PER_CODE:
                _keep_first(kept)
        for kept in self.first.values():
            _keep_first(kept)
        return self

    def merge(self, other: FindingSummary) -> FindingSummary:
        """Adds another summary; returns the summary itself."""
        self.counts.update(other.counts)
        for code in other.counts:
            kept = self.first.setdefault(code, [])
            kept.extend(other.first[code])
            _keep_first(kept)
        return self

    def by_code(self) -> dict[str, int]:
        """Returns the number of findings of each code, by name."""
        return {code.value: count for code, count in sorted(self.counts.items())}

    def by_place(self) -> tuple[Finding, ...]:
        """Returns the stored findings by place."""
        return tuple(sorted((f for group in self.first.values() for f in group), key=Finding.order))


def _keep_first(findings: list[Finding]) -> None:
    findings.sort(key=Finding.order)
    del findings[MAX_STORED_PER_CODE:]


class Violation(NamedTuple):
    """One gate that a dataset or a version does not pass, or a warning of that gate.

    Attributes:
      gate: The group of gates: `findings`, `expectations`, `drift`, `bad_images` or `rolled_back`.
      name: Name of the gate, or code of the finding.
      severity: An error refuses the dataset, a warning does not.
      message: One line.
      value: The actual value; None if it is not a number.
      limit: The allowed value; None if there is no limit.
    """

    gate: str
    name: str
    severity: Severity
    message: str
    value: float | None = None
    limit: float | str | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the violation as `version.json` stores it."""
        return {"gate": self.gate, "name": self.name, "severity": self.severity, "message": self.message}


#: An earlier check, and its findings that are stored one by one.
_Past = tuple[CheckRun, tuple[Finding, ...]]


def with_previous_checks(
    report: ValidationReport, documents: Iterable[Mapping[str, Any]]
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
            past.setdefault((item[0].depth, item[0].time), item)
    kept: list[_Past] = []
    for run, findings in sorted(past.values(), key=lambda item: item[0].time, reverse=True):
        still = _still_standing(run, [report.run, *(other for other, _ in kept)])
        if still:
            run = replace(run, counts={code: count for code, count in run.counts.items() if code in still})
            kept.append((run, tuple(one for one in findings if one.code in still)))
    return _merged(report, kept)


def _past_checks(document: Mapping[str, Any], report: ValidationReport) -> list[_Past]:
    """Returns the checks in a stored report, without findings in shards that have been repaired since."""
    if not report.fingerprint or document.get("fingerprint") != report.fingerprint:
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
    return replace(run, counts={code: count for code, count in counts.items() if count > 0}), tuple(kept)


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
    identities = set(map(_identity, findings))
    for run, found in past:
        findings += (one for one in found if _identity(one) not in identities)
        identities.update(map(_identity, found))
        for code, count in run.counts.items():  # the deeper check finds all that the other finds
            counts[code] = max(counts.get(code, 0), count)
    summary = FindingSummary().add(findings)
    listed = summary.by_code()
    return replace(
        report,
        counts={code: max(count, listed.get(code, 0)) for code, count in sorted(counts.items())},
        findings=summary.by_place(),
        found=report.run.counts,
        previous=tuple(run for run, _ in past),
    )


def _identity(finding: Finding) -> tuple[Any, ...]:
    """Returns the values that are the same if two checks made the same finding."""
    if finding.record is None:
        return finding.code, finding.shard, finding.message
    return finding.code, finding.shard, finding.record
