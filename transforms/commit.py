"""The last step of a conversion: the books, the gate, the side files, and `dataset.json`."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam

from shardwright.schemas import dataset
from shardwright.schemas.check_depths import CheckDepth
from shardwright.schemas.codes import ExitCode, FindingCode, Outcome, QuarantineReason, Severity
from shardwright.schemas.dataset import Dataset, pretty_json
from shardwright.schemas.earlier_checks import with_earlier_checks
from shardwright.schemas.errors import DataRefused, EngineError
from shardwright.schemas.findings import FindingSummary, ValidationReport
from shardwright.schemas.image_ref import NO_SPLIT, printable
from shardwright.schemas.ledger import Books, ShardResult
from shardwright.schemas.plan import Forecast, ledger_file
from shardwright.schemas.settings import ConvertSettings
from shardwright.schemas.sidecars import SIDECARS, with_sidecars
from shardwright.schemas.source_sizes import SourceSizes
from shardwright.schemas.statistics import Statistics
from shardwright.schemas.units import counted, is_or_are
from shardwright.transforms import storage
from shardwright.transforms.checks.directory import check_directory, unexpected_shards, unneeded_indexes
from shardwright.transforms.checks.results import make_report, measured_in, statistics_files, stored_findings
from shardwright.transforms.checks.shard import ShardCheck
from shardwright.transforms.checks.summary import SummariseFindings
from shardwright.transforms.dataset_files import (
    check_shards,
    dataset_name,
    machine_facts,
    missing_shards,
    publish_files,
    remove_old_findings,
    utc,
    write_lines,
    write_text,
)
from shardwright.transforms.publish import swap
from shardwright.transforms.statistics.combine import AddUpStatistics

_SHOWN = 3


@dataclass(frozen=True)
class Job:
    """What a conversion is told besides its settings.

    Attributes:
      output: the dataset directory that the user named.
      directory: where it is built; another one when an old dataset is to be replaced.
      settings: checked settings.
      versions: the software versions that decide bytes.
      run: what `run.json` says of the run (command, runner, machine).
      started: seconds since the epoch.
      called: the dataset's name; empty for that of its directory.
    """

    output: str
    directory: str
    settings: ConvertSettings
    versions: Mapping[str, str]
    run: Mapping[str, Any] = field(default_factory=dict)
    started: float = 0.0
    called: str = ""

    @property
    def name(self) -> str:
        """The dataset's name."""
        return self.called or dataset_name(self.output)


def describe(job: Job, forecast: Forecast, results: Sequence[ShardResult]) -> Dataset:
    """Returns the dataset that the shards make."""
    layout = job.settings.record_layout
    books = Books()
    classes: dict[str, Counter[str]] = {split: Counter() for split in forecast.plan.shards}
    formats: dict[str, Counter[str]] = {split: Counter() for split in forecast.plan.shards}
    for result in results:
        books.add(result)
        if result.split != NO_SPLIT:
            classes[result.split].update(result.class_counts)
            formats[result.split].update(result.formats)
    return Dataset(
        name=job.name,
        layout=layout.name,
        features=layout.features,
        plan=forecast.plan,
        versions=job.versions,
        splits={
            split: tuple(
                result.as_shard()
                for result in sorted(results, key=lambda result: result.shard)
                if result.split == split
            )
            for split in forecast.plan.shards
        },
        ledger=books.as_json(),
        class_counts={
            split: dict(sorted(counts.items(), key=lambda item: item[0].encode()))
            for split, counts in classes.items()
        },
        first_label=layout.first_label,
        formats={split: dict(sorted(counts.items())) for split, counts in formats.items()},
    )


def check_books(forecast: Forecast, results: Sequence[ShardResult], checks: Sequence[ShardCheck]) -> None:
    """Proves that every listed file is accounted for and every written record is there.

    Raises:
      EngineError: if the books do not balance.
    """
    shards = Counter(result.split for result in results if result.split != NO_SPLIT)
    if shards != Counter(forecast.plan.shards):
        raise EngineError(
            f"The books do not balance: the plan has the shards {dict(forecast.plan.shards)}, "
            f"and {dict(shards)} were written; run again with --resume."
        )
    accounted: Counter[str] = Counter()
    for result in results:
        accounted[result.split] += sum(result.counts.values())
    for split, listed in forecast.listed.items():
        if accounted[split] != listed:
            raise EngineError(
                f"The books do not balance: split {split!r} had {counted(listed, 'file')} listed and "
                f"{accounted[split]:,} accounted for; run again with --resume."
            )
    read_back = {check.file: check.records for check in checks if check.file}
    for result in results:
        if read_back.get(result.file, result.records) != result.records:
            raise EngineError(
                f"The books do not balance: {result.file} should hold {counted(result.records, 'record')} "
                f"and {read_back[result.file]:,} came back; run again with --resume."
            )


def commit(
    job: Job,
    forecast: Forecast,
    results: Sequence[ShardResult],
    checks: Sequence[ShardCheck] = (),
    findings: FindingSummary | None = None,
    statistics: Statistics | None = None,
) -> dict[str, Any]:
    """Publishes a dataset, or refuses to.

    Returns:
      The outcome, as `_work/outcome.json` stores it.

    Raises:
      DataRefused: if too many images are bad or what was written does not verify; the outcome
        file and the quarantine say so, nothing is published.
      EngineError: if the books do not balance or the storage failed.
    """
    with storage.faults("write to", job.directory):
        check_books(forecast, results, checks)
        result = describe(job, forecast, results)
        books = Books()
        boxes: Counter[str] = Counter()
        for shard in results:
            books.add(shard)
            boxes.update(shard.boxes)
        outcome: dict[str, Any] = {
            "run": job.started,
            "exit_code": int(ExitCode.DONE),
            "message": "",
            "fingerprint": result.fingerprint,
            "ledger": result.ledger,
            "reused_shards": sum(shard.reused for shard in results),
            "animated": sum(shard.animated for shard in results),
            "damaged": sum(shard.damaged for shard in results),
            "warned": sum(shard.warned for shard in results),
            "kept": sum(shard.kept for shard in results),
            "boxes": dict(boxes),
            "findings": {},
            "warnings": [
                *forecast.warnings,
                *_box_warnings(boxes, results),
                *result.balance.sentences,
            ],
        }
        if _was_swapped(job, result):
            storage.remove_tree(job.directory)
            return outcome
        check_shards(job.directory, result)
        result, sidecars = with_sidecars(result)
        quarantine = _write_quarantine(job, results)
        _remove_stale(job, result, results)
        whole = FindingSummary().add(check_directory(result, storage.list_files(job.directory)))
        report = make_report(
            checks,
            whole.merge(findings) if findings else whole,
            printable(job.output),
            job.settings.verify,
            result.fingerprint,
            depth=CheckDepth.of_verification(job.settings.verify),
        )
        earlier = stored_findings(job.output, result.fingerprint)
        if statistics is not None:
            measured = measured_in(statistics, result.fingerprint)
            for name, content in statistics_files(statistics, measured).items():
                storage.write_bytes(storage.join(job.directory, name), content)
        write_text(
            job.directory,
            dataset.FINDINGS_JSON,
            pretty_json(with_earlier_checks(report, [earlier]).as_json()),
        )
        if job.settings.resume:
            remove_old_findings(job.directory)
        outcome["findings"] = report.counts
        outcome["warnings"] += report.lines(Severity.WARNING)
        refusal = _refusal(job, books, report, quarantine)
        if refusal:
            outcome |= {"exit_code": int(ExitCode.REFUSED), "message": refusal}
            write_text(job.directory, dataset.OUTCOME_JSON, pretty_json(outcome))
            raise DataRefused(refusal)
        publish_files(job.directory, result, sidecars, _run(job, forecast, results), outcome)
        if job.directory != job.output:
            swap(job.output)
        return outcome


def _box_warnings(boxes: Mapping[str, int], results: Sequence[ShardResult]) -> Iterator[str]:
    """Yields what is to be said of annotations that could not be used."""
    if boxes.get("dropped"):
        shards = sorted(results, key=lambda result: result.file)
        shown = [text for result in shards for text in result.bad_boxes][:_SHOWN]
        count = boxes["dropped"]
        told = "; ".join(map(printable, shown))
        yield f"{counted(count, 'bad annotation')} {is_or_are(count)} left out, such as {told}."
    if boxes.get("unlisted"):
        count = boxes["unlisted"]
        segments = counted(count, "segment")
        yield f"{segments} of masks {is_or_are(count)} not listed by the source and not counted."


def _was_swapped(job: Job, result: Dataset) -> bool:
    """Whether an earlier attempt of this step, which engines may run again, has replaced the old dataset.

    Its successor's files are removed last, so where they are all there the swap is begun anew.
    """
    if job.directory == job.output or missing_shards(job.directory, result) == []:
        return False
    try:
        document = json.loads(storage.read_bytes(storage.join(job.output, dataset.DATASET_JSON)))
        return bool(document["fingerprint"] == result.fingerprint)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _write_quarantine(job: Job, results: Iterable[ShardResult]) -> str:
    """Writes `quarantine.jsonl`, by key; returns its path."""
    entries = sorted(
        (entry for result in results for entry in result.quarantine),
        key=lambda entry: entry.key,
    )
    write_lines(job.directory, dataset.QUARANTINE_JSONL, (entry.quarantine_line() for entry in entries))
    return storage.join(job.directory, dataset.QUARANTINE_JSONL)


def _refusal(job: Job, books: Books, report: ValidationReport, quarantine: str) -> str | None:
    """Returns why nothing is published, in one sentence, or None."""
    bad, written = books.total(Outcome.QUARANTINED), books.total(Outcome.WRITTEN)
    if not report.sound:
        counts = ", ".join(
            f"{count:,} {code}"
            for code, count in report.counts.items()
            if report.gates.severity(FindingCode(code)) is Severity.ERROR
        )
        return (
            f"What was written does not verify ({counts}): see {printable(job.directory)}/findings.json; "
            "nothing was published. Check the disk, then run again with --resume."
        )
    if not bad and not written:
        return "No image was written, all were filtered: nothing was published. Check the --input."
    if books.bad_fraction > job.settings.max_bad_fraction or not written:
        reasons = ", ".join(
            f"{count:,} {reason}" for reason, count in books.reasons["quarantined"].most_common(_SHOWN)
        )
        too_many = f", more than --max_bad_fraction {job.settings.max_bad_fraction:g} allows"
        convert = books.reasons["quarantined"][QuarantineReason.UNSUPPORTED_FORMAT]
        advice = f"convert (to JPEG or PNG), {'fix' if written else 'or fix'}" if convert else "fix"
        if written:
            enough = math.ceil(books.bad_fraction * 1000) / 1000
            advice += f" or remove them, or allow more with --max_bad_fraction {enough:g},"
        else:
            advice += " them"
        return (
            f"{bad:,} of {counted(bad + written, 'image')} {is_or_are(bad + written)} bad "
            f"({reasons}){too_many if written else ''}: nothing was published. "
            f"Look at {printable(quarantine)}; {advice} and run again with --resume."
        )
    return None


def _run(job: Job, forecast: Forecast, results: Sequence[ShardResult]) -> dict[str, Any]:
    finished = time.time()
    written = [result for result in results if result.file and not result.reused]
    begun = [result.started for result in written]
    ended = [result.finished for result in written]
    return {
        **job.run,
        "output": printable(job.output),
        "splits_from": str(forecast.splits_from),
        "sources": _source_sizes(results).as_json(),
        "started": utc(job.started),
        "finished": utc(finished),
        "seconds": round(finished - job.started, 3),
        "convert_seconds": round(max(ended) - min(begun), 3) if begun else 0.0,
        "reused_shards": sum(result.reused for result in results),
        "machine": machine_facts(),
    }


def _source_sizes(results: Iterable[ShardResult]) -> SourceSizes:
    """Adds up how large the sources of all written images were; ledgers that do not say it add nothing."""
    sizes = SourceSizes()
    for result in results:
        try:
            sizes.merge(SourceSizes.from_state(result.sources))
        except (KeyError, TypeError, ValueError, IndexError):  # a damaged header of an earlier build
            continue
    return sizes


def _remove_stale(job: Job, result: Dataset, results: Iterable[ShardResult]) -> None:
    """Removes what an earlier run left that this one, whose settings may be others, does not write over."""
    files = storage.list_files(job.directory)
    ledgers = {ledger_file(shard.split, shard.shard, shard.num_shards) for shard in results}
    stale = [
        file
        for file in files
        if file.startswith(f"{dataset.SHARDS_DIR}/") and file.endswith(".jsonl.gz") and file not in ledgers
    ]
    stale += unneeded_indexes(result, files)
    if job.settings.resume:
        stale += unexpected_shards(result, files)
        stale += [file for file in files if file in SIDECARS and file not in result.sidecars]
    for file in stale:
        storage.remove(storage.join(job.directory, file))


class CommitDataset(beam.PTransform):
    """Commits. `PCollection[ShardResult] -> PCollection[outcome]`.

    Args:
      job: what to commit.
      forecast: of one Forecast.
      checks: what reading back showed, of ShardCheck; None when nothing was verified.
      findings: what is wrong, of FindingSummary; None where nothing was looked for.
      statistics: of the shards, of Statistics; None where no picture was looked at.
    """

    def __init__(
        self,
        job: Job,
        forecast: beam.PCollection,
        checks: beam.PCollection | None = None,
        findings: beam.PCollection | None = None,
        statistics: beam.PCollection | None = None,
    ) -> None:
        super().__init__()
        self._job = job
        self._forecast = forecast
        self._checks = checks
        self._findings = findings
        self._statistics = statistics

    def expand(self, results: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        checks: Any = []
        findings: Any = None
        if self._checks is not None:
            checks = beam.pvalue.AsList(self._checks)
        if self._findings is not None:
            findings = beam.pvalue.AsSingleton(
                self._findings
                | "SummariseFindings"
                >> beam.CombineGlobally(SummariseFindings()).with_output_types(FindingSummary)
            )  # FindingSummary
        statistics: Any = None
        if self._statistics is not None:
            added = self._statistics | "AddUpStatistics" >> beam.CombineGlobally(
                AddUpStatistics()
            )  # Statistics
            statistics = beam.pvalue.AsSingleton(added)
        forecast = beam.pvalue.AsSingleton(self._forecast)
        return (
            results
            | "GatherShards" >> beam.combiners.ToList()  # [ShardResult]
            | "Commit" >> beam.Map(_commit, self._job, forecast, checks, findings, statistics)
        )  # outcome


def _commit(
    results: Sequence[ShardResult],
    job: Job,
    forecast: Forecast,
    checks: Sequence[ShardCheck],
    findings: FindingSummary | None,
    statistics: Statistics | None,
) -> dict[str, Any]:
    return commit(job, forecast, results, checks, findings, statistics)
