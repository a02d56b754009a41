"""Publishes a conversion: the ledger totals, the gate, the side files, and `dataset.json`; or refuses it."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from shardwright.core import dataset_files, storage
from shardwright.core.images.metadata import PRIVATE_KINDS
from shardwright.core.lease import HeldLease, while_held
from shardwright.core.overwrite import discard_staging, swap
from shardwright.core.preview import draw_card_samples
from shardwright.core.shards.finish import with_shards
from shardwright.core.shards.quarantined import write_quarantine
from shardwright.core.validation.directory import check_directory, unexpected_shards, unneeded_indexes
from shardwright.core.validation.results import ResultFiles, Results, write_results
from shardwright.core.validation.shard import ShardCheck
from shardwright.schemas import dataset
from shardwright.schemas.codes import CheckDepth, ExitCode, Outcome, QuarantineReason, Severity
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.dataset import Dataset, pretty_json, with_digest
from shardwright.schemas.errors import DataRefused, EngineError
from shardwright.schemas.findings import FindingSummary, ValidationReport
from shardwright.schemas.image_ref import NO_SPLIT
from shardwright.schemas.ledger import ShardResult, ShardTotals, total_of, totals_of_splits
from shardwright.schemas.plain_text import printable
from shardwright.schemas.plan import Forecast, ledger_file
from shardwright.schemas.sidecars import SIDECARS, with_sidecars
from shardwright.schemas.splits import SplitShares
from shardwright.schemas.statistics import Statistics
from shardwright.schemas.units import counted, is_or_are

_SHOWN = 3
_UNLISTED_CLASS = r"its class ('[^'\\]+') is not among the class names"
#: Number of bytes of the quarantine list that are searched.
_SEARCHED_BYTES = 1 << 16


@dataclass(frozen=True)
class ConversionJob:
    """A conversion: its settings, its places, and how it runs.

    Attributes:
      output: Dataset directory that the user named.
      directory: Directory in which the dataset is built. Differs from `output` under `--overwrite`.
      settings: Checked settings.
      versions: Software versions that affect bytes.
      run: Values for `run.json` (command, runner, machine).
      started: Start of the run, in seconds since the epoch.
      hold: Lease that the run must hold for each write. None if it needs no lease.
      described: Whether the job is described now and runs later, maybe several times.
    """

    output: str
    directory: str
    settings: ConvertSettings
    versions: Mapping[str, str]
    run: Mapping[str, Any] = field(default_factory=dict)
    started: float = 0.0
    hold: HeldLease | None = None
    described: bool = False


def describe(job: ConversionJob, forecast: Forecast, results: Sequence[ShardResult]) -> Dataset:
    """Returns the dataset that consists of the shards."""
    layout = job.settings.record_layout
    bare = Dataset(
        name=dataset_files.dataset_name(job.output),
        layout=layout.name,
        features=layout.features,
        plan=forecast.plan,
        versions=job.versions,
        splits={},
        ledger={},
        class_counts={},
        first_label=layout.first_label,
        statements_version=dataset.STATEMENTS_VERSION,
        provenance=job.settings.provenance,
    )
    return with_shards(bare, results)


def check_counts(forecast: Forecast, results: Sequence[ShardResult], checks: Sequence[ShardCheck]) -> None:
    """Checks that every listed file is accounted for and that every written record was read back.

    Raises:
      EngineError: If the totals do not balance.
    """
    headers = [result.header for result in results]
    shards = Counter(header.split for header in headers if header.split != NO_SPLIT)
    if shards != Counter(forecast.plan.shards):
        raise EngineError(
            f"The counts do not agree: the plan has the shards {dict(forecast.plan.shards)}, "
            f"and {dict(shards)} were written; run again with --resume."
        )
    totals = totals_of_splits(headers)
    for split, listed in forecast.listed.items():
        accounted = totals[split].counts.total() - totals[split].multiplied
        if accounted != listed:
            raise EngineError(
                f"The counts do not agree: split {split!r} had {counted(listed, 'file')} listed and "
                f"{accounted:,} accounted for; run again with --resume."
            )
    read_back = {check.file: check.records for check in checks if check.file}
    for header in headers:
        if read_back.get(header.file, header.records) != header.records:
            raise EngineError(
                f"The counts do not agree: {header.file} should hold {counted(header.records, 'record')} "
                f"and {read_back[header.file]:,} came back; run again with --resume."
            )


def commit(
    job: ConversionJob,
    forecast: Forecast,
    results: Sequence[ShardResult],
    checks: Sequence[ShardCheck] = (),
    findings: FindingSummary | None = None,
    statistics: Statistics | None = None,
) -> dict[str, Any]:
    """Publishes a dataset, or refuses it.

    Returns:
      The outcome, as `_work/outcome.json` stores it.

    Raises:
      DataRefused: If too many images are bad or the written data does not verify. The outcome file and the
        quarantine list name the problems, and nothing is published.
      EngineError: If the totals do not balance, the lease was lost, or the storage failed.
    """
    with storage.translated_errors("write to", job.directory):
        if job.hold is not None:
            try:
                job.hold.keep()
            except EngineError:
                finished = outcome_of(job)
                if finished is None:
                    raise
                return finished  # the engine ran this step again
        check_counts(forecast, results, checks)
        result = describe(job, forecast, results)
        total = total_of(sorted((shard.header for shard in results), key=attrgetter("file")))
        outcome = _outcome(job, forecast, result, results, total)
        listed = storage.list_files(job.directory)
        if was_swapped(job, result, listed):
            outcome["warnings"] += dataset_files.left_behind(
                job.directory, lambda: discard_staging(job.output)
            )
            return outcome
        dataset_files.check_shards(job.directory, result, listed)
        result, sidecars = with_sidecars(result, draw_card_samples(job.directory, result))
        sha256 = write_quarantine(job.directory, dataset.QUARANTINE_JSONL, results, job.hold)
        result = replace(result, files={**result.files, dataset.QUARANTINE_JSONL: sha256})
        stale = _remove_stale(job, result, results, listed)
        left = [file for file in listed if file not in stale]
        # Publication removes the unfinished files of killed workers.
        whole_files = [file for file in left if not storage.is_temporary(file)]
        whole = FindingSummary().add(check_directory(result, whole_files))
        whole = whole.merge(findings) if findings else whole
        depth = CheckDepth.of_verification(job.settings.verify)
        checked = Results(printable(job.output), result, depth, checks, whole, statistics, job.output)
        measured = statistics is not None
        places = ResultFiles.in_folder(job.directory, measured, hold=job.hold, option="--output")
        stored = write_results(places, checked)
        # The file keeps the findings of earlier checks of the same build, but this run found only its own.
        report = replace(stored, counts=whole.by_code(), findings=whole.by_place())
        outcome["findings"] = report.counts
        outcome["warnings"] += [group.line for group in report.groups() if group.severity is Severity.WARNING]
        refusal = _refusal(job, result, report)
        if refusal:
            outcome |= {"exit_code": int(ExitCode.REFUSED), "message": refusal}
            dataset_files.write_text(job.directory, dataset.OUTCOME_JSON, pretty_json(outcome), job.hold)
            raise DataRefused(refusal)
        run = _run(job, forecast, results, result.split_shares, total)
        dataset_files.write_commit(job.directory, result, sidecars, run, outcome, left, job.hold)
        if job.directory != job.output:
            swap(job.output, job.hold)
            if warnings := dataset_files.left_behind(job.directory, lambda: discard_staging(job.output)):
                outcome["warnings"] += warnings
                with contextlib.suppress(OSError, EngineError):
                    text = pretty_json(with_digest(outcome))
                    dataset_files.write_text(job.output, dataset.OUTCOME_JSON, text, job.hold)
        return outcome


def _outcome(
    job: ConversionJob,
    forecast: Forecast,
    result: Dataset,
    results: Sequence[ShardResult],
    total: ShardTotals,
) -> dict[str, Any]:
    """Returns the outcome of a conversion, before its findings are known."""
    return {
        **dataset_files.new_outcome(job.started, job.hold),
        "fingerprint": result.fingerprint,
        "ledger": result.ledger,
        "reused_shards": sum(shard.reused for shard in results),
        **{name: getattr(total, name) for name in ("animated", "damaged", "warned", "kept")},
        "boxes": dict(total.boxes),
        "findings": {},
        "warnings": [
            *forecast.warnings,
            *warnings_of(total),
            *result.balance.sentences,
        ],
    }


def outcome_of(job: ConversionJob) -> dict[str, Any] | None:
    """Returns the outcome of a run that has already published its dataset, otherwise None.

    An engine may run any step again, even after the run gave its lease back.
    """
    outcome = dataset_files.own_outcome(job.output, job.hold)
    if outcome.get("exit_code") != ExitCode.DONE:
        return None
    published = dataset_files.stored_document(job.output, dataset.DATASET_JSON)
    return outcome if published.get("fingerprint") == outcome.get("fingerprint") else None


def begin_conversion(hold: HeldLease | None, job: ConversionJob) -> HeldLease | None:
    """Takes the lease, unless the launcher already has it, and creates the directory to write to.

    An engine may run this step again, even after the run has ended and given the lease back.

    Raises:
      EngineError: If another run has the lease, or the storage failed.
    """
    if outcome_of(replace(job, hold=hold)) is None:
        if hold is not None:
            hold.acquire()
        with storage.translated_errors("write to", job.directory):
            storage.make_dirs(job.directory)
    return hold


def remove_commit(hold: HeldLease | None, changed: bool, job: ConversionJob) -> HeldLease | None:
    """Removes the old `dataset.json` before any shard is overwritten.

    Raises:
      EngineError: If the lease was lost, or the storage failed.
    """
    if changed and outcome_of(replace(job, hold=hold)) is None:
        with storage.translated_errors("write to", job.directory), while_held(hold):
            for file in dataset.COMMIT_FILES:
                storage.remove(storage.join(job.directory, file))
    return hold


def warnings_of(total: ShardTotals) -> Iterator[str]:
    """Yields warnings about annotations that could not be used, and about people's data in kept originals."""
    if count := total.boxes["dropped"]:
        examples = "; ".join(map(printable, total.bad_boxes))
        yield f"{counted(count, 'bad annotation')} {is_or_are(count)} left out, such as {examples}."
    if count := total.boxes["unlisted"]:
        segments = counted(count, "segment")
        yield f"{segments} of masks {is_or_are(count)} not listed by the source and not counted."
    if counts := total.private:
        kinds = ", ".join(
            f"{PRIVATE_KINDS[kind]} ({counts[kind]:,})" for kind in PRIVATE_KINDS if counts[kind]
        )
        yield f"The metadata of kept originals have {kinds}; --strip_metadata removes them."


def was_swapped(job: ConversionJob, result: Dataset, listed: Sequence[str]) -> bool:
    """Returns whether an earlier attempt of this step has already replaced the old dataset.

    The staged files are removed last. While all of them exist, the swap starts again.
    """
    if job.directory == job.output or not dataset_files.missing_shards(result, listed):
        return False
    return bool(
        dataset_files.stored_document(job.output, dataset.DATASET_JSON).get("fingerprint")
        == result.fingerprint
    )


def _most_common(reasons: Mapping[str, int]) -> str:
    shown = ", ".join(f"{count:,} {reason}" for reason, count in Counter(reasons).most_common(_SHOWN))
    return f"{shown}, ..." if len(reasons) > _SHOWN else shown


def _refusal(job: ConversionJob, built: Dataset, report: ValidationReport) -> str | None:
    """Returns the reason why nothing is published, as one sentence, or None."""
    bad, written = built.ledger[Outcome.QUARANTINED], built.ledger[Outcome.WRITTEN]
    bad_reasons = Counter(built.ledger["reasons"].get(Outcome.QUARANTINED, {}))
    filtered = built.ledger["reasons"].get(Outcome.FILTERED, {})
    if report.errors:
        return (
            f"The written dataset did not pass verification ({report.errors_of(report.counts)}): see "
            f"{printable(storage.join(job.directory, dataset.FINDINGS_JSON))}; nothing was published. "
            "Check the disk, then run "
            "again with --resume."
        )
    if not bad and not written:
        return (
            f"No image was written, because all were filtered ({_most_common(filtered)}); nothing was "
            "published. Check --input and the settings that leave images out."
        )
    if built.bad_fraction > job.settings.max_bad_fraction or not written:
        reasons = _most_common(bad_reasons)
        too_many = f", more than --max_bad_fraction {job.settings.max_bad_fraction:g} allows"
        quarantine = storage.join(job.directory, dataset.QUARANTINE_JSONL)
        convert = bad_reasons[QuarantineReason.UNSUPPORTED_FORMAT]
        advice = f"convert (to JPEG or PNG), {'fix' if written else 'or fix'}" if convert else "fix"
        names = job.settings.class_names
        if names and (name := _first_match(quarantine, QuarantineReason.UNKNOWN_LABEL, _UNLISTED_CLASS)):
            advice = f"list the class {name} in --class_names {names}, {advice}"
        if option := _first_match(quarantine, QuarantineReason.UNSUPPORTED_FORMAT, r"(--channels \d+)"):
            advice = f"keep those of many channels with {option}, {advice}"
        of_hook = bad_reasons[QuarantineReason.MAP_FAILED]
        advice += f"{' or remove' if written else ''} {'the others' if of_hook else 'them'}"
        if of_hook:
            failed = QuarantineReason.MAP_FAILED
            failure = _first_match(quarantine, failed, r"(.*?)\.*$") or failed
            fix = f"fix the function {job.settings.map} ({failure})"
            advice = fix if of_hook == bad else f"{fix} and {advice}"
        if written:
            enough = math.ceil(built.bad_fraction * 1000) / 1000
            advice += f", or allow more with --max_bad_fraction {enough:g},"
        elif filtered:
            reasons += f"; filtered: {_most_common(filtered)}"
            advice += ", check the settings that leave images out,"
        return (
            f"{bad:,} of {counted(bad + written, 'image')} {is_or_are(bad)} bad "
            f"({reasons}){too_many if written else ''}: nothing was published. "
            f"Look at {printable(quarantine)}; {advice} "
            "and run again with --resume."
        )
    return None


def _first_match(quarantine: str, reason: QuarantineReason, pattern: str) -> str:
    """Returns what a pattern finds in a message about a reason, in the first lines of a quarantine list."""
    for line in storage.read_range(quarantine, 0, _SEARCHED_BYTES).split(b"\n")[:-1]:
        entry = json.loads(line)
        match = re.search(pattern, entry["message"])
        if match and entry["reason"] == reason:
            return match[1]
    return ""


def _run(
    job: ConversionJob,
    forecast: Forecast,
    results: Sequence[ShardResult],
    shares: SplitShares | None,
    total: ShardTotals,
) -> dict[str, Any]:
    written = [result for result in results if result.header.file and not result.reused]
    starts = [result.started for result in written]
    ended = [result.finished for result in written]
    facts: dict[str, Any] = {"splits_from": str(forecast.splits_from)}
    if shares is not None:
        facts["split_shares"] = shares.as_json()
    if "folds" in forecast.plan.settings:
        folds = range(int(forecast.plan.settings["folds"]))
        totals = totals_of_splits(result.header for result in results)
        facts["folds"] = {
            split: [totals[split].folds[str(fold)] for fold in folds] for split in forecast.plan.shards
        }
    facts |= {
        "sources": total.sizes_of_sources(),
        "convert_seconds": round(max(ended) - min(starts), 3) if starts else 0.0,
        "reused_shards": sum(result.reused for result in results),
    }
    return dataset_files.run_document(job.run, job.output, job.started, facts)


def _remove_stale(
    job: ConversionJob, result: Dataset, results: Iterable[ShardResult], files: Sequence[str]
) -> set[str]:
    """Removes files of an earlier run that this run, maybe with other settings, does not overwrite.

    Returns:
      The listed files that were removed.
    """
    ledgers = {ledger_file(*result.header.place) for result in results}
    stale = [
        file
        for file in files
        if file.startswith(f"{dataset.SHARDS_DIR}/") and file.endswith(".jsonl.gz") and file not in ledgers
    ]
    stale += unneeded_indexes(result, files)
    if job.settings.resume:
        if unexpected := unexpected_shards(result, files):
            # If all others are unchanged, the old dataset.json is still there, and lists these.
            stale = [*dataset.COMMIT_FILES, *stale, *unexpected]
        for_readers = {*SIDECARS, dataset.SAMPLES_JPG, dataset.LOST_JSONL}
        stale += [file for file in files if file in for_readers and file not in result.sidecars]
    with while_held(job.hold if stale else None):
        for file in stale:
            storage.remove(storage.join(job.directory, file))
    return set(stale)
