"""What a validation found, as `findings.json` stores it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shardwright.schemas.codes import NOTES, WARNINGS, FindingCode, Severity
from shardwright.schemas.image_ref import printable

FORMAT_VERSION = 1
#: Findings stored one by one; beyond it a code is only counted.
MAX_STORED_PER_CODE = 1000


class Where(NamedTuple):
    """The place of a record.

    Attributes:
      shard: the file.
      record: the record's number in its shard, from 0.
      offset: byte offset in the (uncompressed) shard.
      key: the image's key.
    """

    shard: str | None = None
    record: int | None = None
    offset: int | None = None
    key: str | None = None


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, and where.

    Attributes:
      code: what kind.
      message: one sentence.
      shard: the file, where the finding is about one.
      record: the record's number in its shard, from 0.
      offset: byte offset in the (uncompressed) shard.
      key: the image's key.
      other: the other record, where it is about a pair.
    """

    code: FindingCode
    message: str
    shard: str | None = None
    record: int | None = None
    offset: int | None = None
    key: str | None = None
    other: Where | None = None

    def order(self) -> tuple[str, int, str, str]:
        """Sorts findings by place."""
        return self.shard or "", -1 if self.offset is None else self.offset, self.code, self.message

    def as_json(self) -> dict[str, Any]:
        """Returns the finding as `findings.json` stores it, without its severity."""
        value: dict[str, Any] = {
            "code": self.code.value,
            "message": self.message,
            "shard": self.shard,
            "record": self.record,
            "offset": self.offset,
            "key": self.key,
        }
        return value if self.other is None else {**value, "other": self.other._asdict()}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Finding:
        """Reads a stored finding."""
        other = value.get("other")
        return Finding(
            FindingCode(value["code"]), value["message"], value["shard"], value["record"],
            value["offset"], value["key"], Where(**other) if other else None,
        )  # fmt: skip


@dataclass(frozen=True)
class Gates:
    """Which findings fail a validation, other than by default.

    Attributes:
      fail_on: codes that are errors.
      warn_on: codes that are warnings.
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
class ValidationReport:
    """The outcome of a validation.

    Attributes:
      dataset: what was validated.
      mode: fast (no image decoded), full (all), or quality (and looked at).
      fingerprint: of the dataset, None for foreign files.
      shards: shards read.
      records: sound records read.
      bytes: bytes of the shards.
      counts: finding code -> number.
      findings: at most `MAX_STORED_PER_CODE` of each code, by place.
      gates: what a gate made of the codes.
      against: the source that it was compared with, as the user wrote it.
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

    def number_of(self, severity: Severity) -> int:
        """Number of findings of a severity."""
        return sum(
            count for code, count in self.counts.items() if self.gates.severity(FindingCode(code)) is severity
        )

    @property
    def errors(self) -> int:
        """Number of findings that fail the validation."""
        return self.number_of(Severity.ERROR)

    @property
    def warnings(self) -> int:
        """Number of findings that ask to be looked at."""
        return self.number_of(Severity.WARNING)

    @property
    def notes(self) -> int:
        """Number of findings that are only counted and shown."""
        return self.number_of(Severity.NOTE)

    @property
    def sound(self) -> bool:
        """Whether nothing speaks against the dataset."""
        return not self.errors

    def lines(self, severity: Severity) -> list[str]:
        """Returns a line for each code of a severity: how many findings there are, and the first of them."""
        return [
            self.line(FindingCode(code))
            for code in self.counts
            if self.gates.severity(FindingCode(code)) is severity
        ]

    def line(self, code: FindingCode) -> str:
        """Returns how many findings of a code there are, and what the first of them says."""
        first = next(finding for finding in self.findings if finding.code is code)
        where = f" in {first.shard}" if first.shard else ""
        key = f" ({first.key})" if first.key else ""
        return printable(f"{self.counts[code.value]:,} {code}, the first{where}{key}: {first.message}")

    def as_json(self) -> dict[str, Any]:
        """Returns the report as `findings.json` stores it."""
        return {
            "format_version": FORMAT_VERSION,
            "dataset": self.dataset,
            "mode": self.mode,
            "against": list(self.against),
            "sound": self.sound,
            "fingerprint": self.fingerprint,
            "shards": self.shards,
            "records": self.records,
            "bytes": self.bytes,
            "errors": self.errors,
            "warnings": self.warnings,
            "notes": self.notes,
            "fail_on": list(self.gates.fail_on),
            "warn_on": list(self.gates.warn_on),
            "counts": self.counts,
            "findings": [
                {"severity": self.gates.severity(finding.code).value, **finding.as_json()}
                for finding in self.findings
            ],
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> ValidationReport:
        """Reads a stored report."""
        names = ("dataset", "mode", "fingerprint", "shards", "records", "bytes", "counts")
        return ValidationReport(
            **{name: value[name] for name in names},
            findings=tuple(map(Finding.from_json, value["findings"])),
            gates=Gates(tuple(value.get("fail_on", ())), tuple(value.get("warn_on", ()))),
            against=tuple(value.get("against", ())),
        )


@dataclass
class FindingSummary:
    """Findings counted, and the first of each code by place; summaries can be merged.

    Attributes:
      counts: code -> number of findings.
      first: code -> at most `MAX_STORED_PER_CODE` findings, by place.
    """

    counts: dict[FindingCode, int] = field(default_factory=dict)
    first: dict[FindingCode, list[Finding]] = field(default_factory=dict)

    def add(self, findings: Iterable[Finding]) -> FindingSummary:
        """Adds findings; returns the summary itself."""
        changed = set()
        for finding in findings:
            self.counts[finding.code] = self.counts.get(finding.code, 0) + 1
            kept = self.first.setdefault(finding.code, [])
            kept.append(finding)
            if len(kept) >= 2 * MAX_STORED_PER_CODE:
                _keep_first(kept)
            changed.add(finding.code)
        for code in changed:
            _keep_first(self.first[code])
        return self

    def merge(self, other: FindingSummary) -> FindingSummary:
        """Adds another summary; returns the summary itself."""
        for code, count in other.counts.items():
            self.counts[code] = self.counts.get(code, 0) + count
            kept = self.first.setdefault(code, [])
            kept.extend(other.first[code])
            _keep_first(kept)
        return self

    def by_code(self) -> dict[str, int]:
        """Returns the number of findings of each code, by name."""
        return {code.value: count for code, count in sorted(self.counts.items())}

    def by_place(self) -> tuple[Finding, ...]:
        """Returns the stored findings by place."""
        return tuple(sorted((f for found in self.first.values() for f in found), key=Finding.order))


def _keep_first(findings: list[Finding]) -> None:
    findings.sort(key=Finding.order)
    del findings[MAX_STORED_PER_CODE:]
