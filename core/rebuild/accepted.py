"""Compares what the gates of a version find with what somebody accepted in the version before."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from shardwright.core.dataset_files import read_measured
from shardwright.core.report.version_view import is_accepted
from shardwright.core.versions.listing import read_version_record
from shardwright.schemas.codes import Severity
from shardwright.schemas.dataset import FINDINGS_JSON, Dataset
from shardwright.schemas.errors import UsageError
from shardwright.schemas.findings import Finding, ValidationReport
from shardwright.schemas.image_ref import printable
from shardwright.schemas.units import is_or_are
from shardwright.schemas.version import version_path
from shardwright.schemas.violation import Violation


@dataclass(frozen=True)
class Accepted:
    """What somebody accepted in the latest version; nothing by default.

    Attributes:
      version: Name of the version.
      names: Accepted violations, by their names or their gates.
      bad_images: Number of images that were left out because of a fault.
      counts: Finding code -> number of findings when the version was accepted.
      findings: Finding code -> identities of its findings that are stored one by one.
    """

    version: str = ""
    names: tuple[str, ...] = ()
    bad_images: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    findings: Mapping[str, frozenset[Hashable]] = field(default_factory=dict)

    def weigh_findings(self, violation: Violation, report: ValidationReport) -> Violation:
        """Returns a violation about findings, as a warning if all of them were accepted.

        Findings are compared one by one if both versions store all of them, else by their number.
        """
        if not self._covers(violation):
            return violation
        code = violation.name
        count, before = report.counts[code], self.counts.get(code, 0)
        stored = [finding for finding in report.findings if finding.code == code]
        known = self.findings.get(code, frozenset())
        if (len(stored), len(known)) != (count, before):
            return self._weigh(violation, max(0, count - before))
        new = [finding for finding in stored if _identity(finding) not in known]
        first = new[0] if new else None
        return self._weigh(
            violation, len(new), f"{first.key or first.shard}: {first.sentence}" if first else ""
        )

    def weigh_images(self, violation: Violation, made: Dataset) -> Violation:
        """Returns a violation about the number of bad images, as a warning if there are no more of them."""
        if not self._covers(violation):
            return violation
        return self._weigh(violation, max(0, made.ledger["quarantined"] - self.bad_images))

    def _covers(self, violation: Violation) -> bool:
        return violation.severity is Severity.ERROR and is_accepted(violation, self.names)

    def _weigh(self, violation: Violation, new: int, first: str = "") -> Violation:
        if not new:
            message = f"{violation.message}; all were accepted with version {self.version}"
            return violation._replace(severity=Severity.WARNING, message=message)
        beginning = f", the first: {printable(first)}" if first else ""
        message = f"{violation.message}; {new:,} {is_or_are(new)} new since version {self.version}{beginning}"
        return violation._replace(message=message)


def read_accepted(output: str, version: str, dataset: Dataset) -> Accepted:
    """Returns what somebody accepted in a version. A damaged record or `findings.json` accepts nothing.

    Args:
      output: Directory that holds the versions.
      version: Name of the version.
      dataset: The dataset of the version.

    Raises:
      EngineError: If the storage failed.
    """
    try:
        record = read_version_record(output, version)
        if not record.accepted:
            return Accepted()
        document = read_measured(version_path(output, version), FINDINGS_JSON, dataset.fingerprint)
        report = ValidationReport.from_json(document) if document is not None else None
    except (UsageError, ValueError, LookupError, TypeError, AttributeError):
        return Accepted()
    identities: dict[str, set[Hashable]] = {}
    for finding in report.findings if report is not None else ():
        identities.setdefault(finding.code.value, set()).add(_identity(finding))
    return Accepted(
        version,
        record.accepted,
        dataset.ledger["quarantined"],
        record.findings,
        {code: frozenset(found) for code, found in identities.items()},
    )


def _identity(finding: Finding) -> Hashable:
    """Returns what stays the same if records only move: the images of a pair, or an image and its fault."""
    if finding.other is not None and finding.key and finding.other.key:
        return frozenset((finding.key, finding.other.key))
    return finding.key or finding.shard, finding.message
