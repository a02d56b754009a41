"""Commits a new version, and compares it with the limits of the job and with what was accepted."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from shardwright.core import storage
from shardwright.core.commit import ConversionJob, commit
from shardwright.core.dataset_files import read_dataset, read_findings, read_measured, write_text
from shardwright.core.rebuild.begin import PreviousState
from shardwright.core.rebuild.compare import Decision, repaired_shards, scrub_facts
from shardwright.core.rebuild.task import RebuildTask, stage
from shardwright.core.report.gather import gather
from shardwright.core.report.render import render
from shardwright.core.shards.finish import condense
from shardwright.core.validation.directory import check_directory, check_sidecars
from shardwright.core.validation.results import ResultFiles, Results, write_results
from shardwright.core.validation.shard import ShardCheck
from shardwright.core.versions import is_accepted, read_version_record, write_version_record
from shardwright.schemas import dataset as files
from shardwright.schemas.codes import CheckDepth, Outcome, Severity
from shardwright.schemas.configuration.gates import IMAGE_LIMITS, GateFile, check
from shardwright.schemas.dataset import Dataset, pretty_json, with_digest
from shardwright.schemas.drift import Changes, Described, Drift, Kind, drift_between
from shardwright.schemas.errors import UsageError
from shardwright.schemas.findings import Finding, FindingsOfCode, FindingSummary, Violation
from shardwright.schemas.ledger import ShardResult
from shardwright.schemas.plain_text import printable
from shardwright.schemas.plan import Forecast
from shardwright.schemas.statistics import Statistics
from shardwright.schemas.units import counted, is_or_are, percent_beside_limit
from shardwright.schemas.version import (
    CHECK_LIST,
    CHECKS_DIR,
    DIFF_JSON,
    VersionRecord,
    VersionState,
    check_file,
    version_path,
)


def commit_version(
    task: RebuildTask,
    decision: Decision,
    previous: PreviousState,
    forecast: Forecast,
    results: Iterable[ShardResult],
    checks: Sequence[ShardCheck],
) -> dict[str, Any] | None:
    """Writes the `dataset.json` of a new version and its side files.

    The gates, not this step, limit the count of bad images, so that a version with too many can be inspected.

    Returns:
      The outcome of the commit, the counts of the work, and the damaged shards of the previous version. None
      if nothing changed.

    Raises:
      DataRefused: If there is no record.
      EngineError: If the totals do not balance, the lease was lost or the storage failed.
    """
    if not decision.build:
        return None
    results = condense(results)
    if read_version_record(task.output, task.version).state is not VersionState.BUILDING:
        return {"work": work_of(results)}  # the engine ran this step again after the gates
    settings = replace(task.settings, max_bad_fraction=1.0)
    rejected = decision.damaged.union(*(result.rejected for result in results))
    facts = scrub_facts(previous, decision.scrubbed)
    run = {**task.run, "scrub": facts} if facts["shards"] else task.run
    job = ConversionJob(
        task.directory, task.directory, settings, task.versions, run, task.started, hold=task.hold
    )
    outcome = {
        **commit(job, forecast, results, checks), "work": work_of(results), "rejected": sorted(rejected),
    }  # fmt: skip
    stage(task, "committed", work_text(outcome["work"]), **outcome["work"])
    return outcome


def work_of(results: Sequence[ShardResult]) -> dict[str, int]:
    """Returns counts of the work done for a version."""
    shards = [result for result in results if result.header.file]
    built = [result for result in results if not result.reused]
    copied = sum(result.copied for result in built)
    return {
        "shards": len(shards),
        "reused_shards": sum(result.reused for result in shards),
        "copied": copied,
        "converted": sum(result.header.records for result in built) - copied,
        "quarantined": sum(result.header.counts.get(Outcome.QUARANTINED, 0) for result in built),
    }


def work_text(work: Mapping[str, int]) -> str:
    """Returns the work done for a version, in words."""
    return (
        f"{work['reused_shards']:,} of {counted(work['shards'], 'shard')} reused, "
        f"{counted(work['copied'], 'record')} copied, {counted(work['converted'], 'image')} converted, "
        f"{work['quarantined']:,} quarantined"
    )


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
    findings: Mapping[str, Set[Hashable]] = field(default_factory=dict)

    def new_findings(self, group: FindingsOfCode) -> tuple[int, str]:
        """Returns the number of findings that were not accepted, and the first of them, if it is known.

        Findings are compared one by one if both versions store all of them, else by their number.
        """
        before, accepted = self.counts.get(group.code, 0), self.findings.get(group.code, set())
        if (len(group.findings), len(accepted)) != (group.count, before):
            return max(0, group.count - before), ""
        new = [finding for finding in group.findings if _identity(finding) not in accepted]
        return len(new), f"{new[0].key or new[0].shard}: {new[0].sentence}" if new else ""

    def weigh(self, violation: Violation, new: int, first: str = "") -> Violation:
        """Returns a violation, as a warning if it was accepted and there are no more faults since.

        Args:
          violation: The violation.
          new: Number of faults that were not accepted.
          first: The first of them. Empty if it is not known.
        """
        if violation.severity is not Severity.ERROR or not is_accepted(violation, self.names):
            return violation
        if not new:
            message = f"{violation.message}; all were accepted with version {self.version}"
            return violation._replace(severity=Severity.WARNING, message=message)
        beginning = f", the first: {printable(first)}" if first else ""
        message = f"{violation.message}; {new:,} {is_or_are(new)} new since version {self.version}{beginning}"
        return violation._replace(message=message)


def read_accepted(output: str, version: str, dataset: Dataset) -> Accepted:
    """Returns what somebody accepted in a version. A damaged record or `findings.json` accepts nothing.

    Raises:
      EngineError: If the storage failed.
    """
    try:
        record = read_version_record(output, version)
        if not record.accepted:
            return Accepted()
        report = read_findings(version_path(output, version), dataset.fingerprint)
    except (UsageError, ValueError):
        return Accepted()
    identities: dict[str, set[Hashable]] = {}
    for finding in report.findings if report is not None else ():
        identities.setdefault(finding.code.value, set()).add(_identity(finding))
    return Accepted(version, record.accepted, dataset.ledger["quarantined"], record.findings, identities)


def _identity(finding: Finding) -> Hashable:
    """Returns what stays the same if records only move: the images of a pair, or an image and its fault."""
    if finding.other is not None and finding.key and finding.other.key:
        return frozenset((finding.key, finding.other.key))
    return finding.key or finding.shard, finding.message


def gate_version(
    task: RebuildTask,
    previous: PreviousState,
    committed: Mapping[str, Any],
    checks: Sequence[ShardCheck],
    findings: FindingSummary,
    statistics: Statistics | None,
    changes: Changes,
) -> VersionRecord:
    """Stores the findings of a new version and whether it passes, in `version.json`.

    That file is written last and stays. If this step runs again, it returns the stored result.

    Args:
      task: The rebuild.
      previous: State at the beginning.
      committed: Outcome of the commit.
      checks: Checks of the shards.
      findings: Findings of all kinds.
      statistics: Statistics of all shards. None if no image was decoded.
      changes: Changes of the images since the latest version.

    Raises:
      EngineError: If the lease was lost, or the storage failed.
    """
    directory = task.directory
    recorded = read_version_record(task.output, task.version)
    if recorded.state is not VersionState.BUILDING:
        return recorded
    with storage.translated_errors("write to", directory):
        task.hold.keep()
        dataset = read_dataset(directory)
        listed = storage.list_files(directory)
        summary = FindingSummary().add(check_directory(dataset, listed))
        summary.add(check_sidecars(dataset, directory))
        summary.add(repaired_shards(previous.version, committed["rejected"]))
        depth, summary = CheckDepth.of_verification(task.settings.verify), summary.merge(findings)
        checked = Results(printable(directory), dataset, depth, checks, summary, statistics, directory)
        # The page is drawn last.
        places = ResultFiles.in_folder(directory, statistics is not None, hold=task.hold, option="--output")
        # If there is a previous version, `check` looks at this limit.
        gates = task.gates.model_copy(update={} if previous.dataset is None else {"max_bad_fraction": None})
        report = write_results(places, checked, gates)
        drift, accepted, digests = None, Accepted(), _write_check_list(task, checks, listed)
        if previous.dataset is not None:
            accepted = read_accepted(task.output, previous.version, previous.dataset)
            old = _describe(task.output, previous.version, previous.dataset)
            drift = drift_between(old, _describe(task.output, task.version, dataset), changes)
            digests[DIFF_JSON] = write_text(directory, DIFF_JSON, pretty_json(drift.as_json()), task.hold)
        judged = []
        for group in report.groups():
            if group.severity is not Severity.NOTE:
                item = Violation("findings", group.code.value, group.severity, group.line)
                judged.append((item, accepted.weigh(item, *accepted.new_findings(group))))
        limit, bad = task.settings.max_bad_fraction, dataset.ledger["quarantined"]
        if dataset.bad_fraction > limit:
            value, most = percent_beside_limit(dataset.bad_fraction, limit)
            tried = bad + dataset.ledger["written"]
            text = f"{value} of the images are bad ({bad:,} of {tried:,}; limit {most})"
            item = Violation("bad_images", "max_bad_fraction", Severity.ERROR, text)
            judged.append((item, accepted.weigh(item, max(0, bad - accepted.bad_images))))
        # What readers have now was accepted after the rollback, so it is not refused once more.
        held = previous.dataset.fingerprint if previous.dataset is not None else ""
        same = (about for what, about in previous.rolled_back if what == dataset.fingerprint != held)
        again = [f"it is identical to {about}" for about in same]
        refusals = (
            *(item for _, item in judged),
            *(_refused_drift(drift, task.gates) if drift is not None else ()),
            *(Violation("rolled_back", "rolled_back", Severity.ERROR, text) for text in again[:1]),
        )
        refused = any(refusal.severity is Severity.ERROR for refusal in refusals)
        record = VersionRecord(
            version=task.version,
            state=VersionState.REFUSED if refused else VersionState.PUBLISHED,
            created=task.started,
            finished=time.time() if refused else 0.0,
            previous=previous.version,
            fingerprint=dataset.fingerprint,
            records=dataset.all_records,
            total_bytes=sum(shard.bytes for shard in dataset.shards),
            classes=len(dataset.classes),
            findings=report.counts,
            work=committed["work"],
            changes={kind.value: changes.total(kind) for kind in Kind} if drift is not None else {},
            refusals=refusals,
            # The next version is compared with this one, so what was accepted stays accepted.
            accepted=tuple(
                item.name for violation, item in judged if item.severity is not violation.severity
            ),
            holder=task.holder,
            files=digests,
        )
        page = render(gather(directory, record=record))
        write_text(directory, files.REPORT_HTML, page, task.hold)
        write_version_record(task.output, record, task.hold)
    worst = [item.name for item in refusals if item.severity is Severity.ERROR or not refused]
    names = ", ".join(dict.fromkeys(worst))
    gated = ("refused: " if refused else "published, with warnings: ") + names if names else "published"
    messages = [refusal.message for refusal in refusals]
    stage(task, "gated", gated, state=record.state.value, refusals=messages)
    return record


def _write_check_list(
    task: RebuildTask, checks: Sequence[ShardCheck], listed: Sequence[str]
) -> dict[str, str]:
    """Writes the sha256 of all stored checks to one file; returns a mapping of its name to its sha256.

    Args:
      task: The rebuild.
      checks: Checks of the shards. They contain the digests of the stored checks that were written or used.
      listed: Files in the version's directory.

    Raises:
      EngineError: If the lease was lost, or the storage failed.
    """
    known_digests = {check_file(check.file): check.stored for check in checks if check.stored}
    stored = [file for file in listed if file.startswith(f"{CHECKS_DIR}/") and file != CHECK_LIST]

    def sha256(file: str) -> str:
        if file in known_digests:
            return known_digests[file]
        # A reused shard brought its stored check along, and this run checks less deeply.
        return hashlib.sha256(storage.read_bytes(storage.join(task.directory, file))).hexdigest()

    digests = dict(zip(stored, storage.at_once(sha256, stored)))
    if not digests:
        return {}
    text = pretty_json(with_digest({"files": digests}))
    return {CHECK_LIST: write_text(task.directory, CHECK_LIST, text, task.hold)}


def _describe(output: str, version: str, dataset: Dataset) -> Described:
    """Returns a version with its findings and statistics; damaged ones are ignored."""
    directory = version_path(output, version)
    described = Described(printable(version), dataset)
    with contextlib.suppress(ValueError):
        described = described._replace(validation=read_findings(directory, dataset.fingerprint))
    with contextlib.suppress(ValueError):
        statistics = read_measured(directory, files.STATISTICS_JSON, dataset.fingerprint)
        described = described._replace(statistics=statistics)
    return described


def _refused_drift(drift: Drift, gates: GateFile) -> Iterator[Violation]:
    """Yields the limits that are exceeded.

    Lost ledgers of the old version are a violation too, and an error if images have limits.
    """
    for violation in check(drift, gates):
        yield violation._replace(message=printable(violation.message))
    if drift.identical:
        return
    limits = [name for name in IMAGE_LIMITS if getattr(gates, name) is not None]
    records, changes = drift.records.all, drift.changes
    # Every new image is either added or stems from an image of the old version; the others were removed.
    compared = records.new - changes.total(Kind.ADDED) + changes.total(Kind.REMOVED)
    if compared < records.old:
        message = (
            f"{records.old - compared:,} of the {counted(records.old, 'image')} of {drift.datasets.old} "
            "cannot be compared, because ledgers of that version are missing or damaged"
        )
        if limits:
            yield Violation("drift", limits[0], Severity.ERROR, f"{limits[0]}: {message}")
        else:
            message += "; the number of added images includes them"
            yield Violation("drift", "unknown_changes", Severity.WARNING, message)
