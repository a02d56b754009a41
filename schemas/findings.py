"""What a validation found, as `validation.json` stores it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shardwright.schemas.codes import WARNINGS, FindingCode, Severity

FORMAT_VERSION = 1
#: Findings stored one by one; beyond it a code is only counted.
MAX_STORED_PER_CODE = 1000


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
    """

    code: FindingCode
    message: str
    shard: str | None = None
    record: int | None = None
    offset: int | None = None
    key: str | None = None

    def order(self) -> tuple[str, int, str, str]:
        """Sorts findings by place."""
        return self.shard or "", -1 if self.offset is None else self.offset, self.code, self.message


def severity_of(code: FindingCode, fail_on: Iterable[str] = ()) -> Severity:
    """Returns a finding's severity: a warning only if its code is one and no gate names it."""
    return Severity.WARNING if code in WARNINGS and code not in fail_on else Severity.ERROR


@dataclass(frozen=True)
class ValidationReport:
    """The outcome of a validation.

    Attributes:
      dataset: what was validated.
      mode: fast (framing, CRCs, counts, checksums) or full.
      fingerprint: of the dataset, None for foreign files.
      shards: shards read.
      records: sound records read.
      bytes: bytes of the shards.
      counts: finding code -> number.
      findings: at most `MAX_STORED_PER_CODE` of each code, by place.
      fail_on: codes that a gate made errors.
    """

    dataset: str
    mode: str
    fingerprint: str | None
    shards: int
    records: int
    bytes: int
    counts: dict[str, int]
    findings: tuple[Finding, ...]
    fail_on: tuple[str, ...] = ()

    @property
    def errors(self) -> int:
        """Number of findings that fail the validation."""
        return sum(
            count
            for code, count in self.counts.items()
            if severity_of(FindingCode(code), self.fail_on) is Severity.ERROR
        )

    @property
    def warnings(self) -> int:
        """Number of findings that do not."""
        return sum(self.counts.values()) - self.errors

    @property
    def sound(self) -> bool:
        """Whether nothing speaks against the dataset."""
        return not self.errors

    def as_json(self) -> dict[str, Any]:
        """Returns the report as `validation.json` stores it."""
        return {
            "format_version": FORMAT_VERSION,
            "dataset": self.dataset,
            "mode": self.mode,
            "sound": self.sound,
            "fingerprint": self.fingerprint,
            "shards": self.shards,
            "records": self.records,
            "bytes": self.bytes,
            "errors": self.errors,
            "warnings": self.warnings,
            "counts": self.counts,
            "findings": [
                {"severity": severity_of(finding.code, self.fail_on).value, **asdict(finding)}
                for finding in self.findings
            ],
        }


def summarise_findings(findings: Sequence[Finding]) -> tuple[dict[str, int], tuple[Finding, ...]]:
    """Returns the number of findings per code, and those that are stored, by place."""
    counts: Counter[str] = Counter(finding.code.value for finding in findings)
    stored: list[Finding] = []
    taken: Counter[str] = Counter()
    for finding in sorted(findings, key=Finding.order):
        taken[finding.code] += 1
        if taken[finding.code] <= MAX_STORED_PER_CODE:
            stored.append(finding)
    return dict(sorted(counts.items())), tuple(stored)
