"""The last step of a validation: compares with expectations, and writes the requested files."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardwright.core import storage
from shardwright.core.dataset_files import read_dataset, stored_document, utc, write_result
from shardwright.core.lease import HeldLease
from shardwright.core.report.gather import gather, gather_files
from shardwright.core.report.render import render
from shardwright.core.stats_pb import stats_pb
from shardwright.core.validation.shard import ShardCheck
from shardwright.schemas.codes import CheckDepth, FindingCode
from shardwright.schemas.configuration.gates import DatasetFacts, Expectations, GateFile, unmet
from shardwright.schemas.dataset import (
    DATASET_JSON,
    FINDINGS_JSON,
    STATISTICS_JSON,
    STATS_PB,
    Dataset,
    pretty_json,
    with_digest,
)
from shardwright.schemas.drift import Described, Previous, drift_between
from shardwright.schemas.findings import Finding, FindingSummary, ValidationReport, with_previous_checks
from shardwright.schemas.json_values import json_object
from shardwright.schemas.splits import totals_of
from shardwright.schemas.statistics import Statistics, statistics_text


@dataclass(frozen=True)
class ResultFiles:
    """Paths of the results of a validation; a file with an empty path is not written.

    Attributes:
      report: Path of `findings.json`.
      statistics: Path of `statistics.json`.
      stats: Path of `stats.pb`, the statistics for TensorFlow Data Validation.
      page: Path of `report.html`.
      junit: Path of the report as JUnit XML.
      hold: Lease that the run must hold for each file. None if it needs no lease.
      option: Option that sets the place of the report and the statistics, for messages.
    """

    report: str
    statistics: str = ""
    stats: str = ""
    page: str = ""
    junit: str = ""
    hold: HeldLease | None = None
    option: str = "--report"

    @staticmethod
    def in_folder(folder: str, measured: bool, report: str = "", **others: Any) -> ResultFiles:
        """Returns the usual paths in a folder.

        Args:
          folder: The folder. Empty for none.
          measured: Whether there are statistics.
          report: Path of the report, if it has another name.
          **others: Other attributes.
        """
        report = report or (storage.join(folder, FINDINGS_JSON) if folder else "")
        if not folder or not measured:
            return ResultFiles(report, **others)
        statistics, stats = (storage.join(folder, name) for name in (STATISTICS_JSON, STATS_PB))
        return ResultFiles(report, statistics, stats, **others)


@dataclass(frozen=True)
class Results:
    """Results of a validation.

    Attributes:
      name: Name of the dataset, as the user wrote it.
      dataset: Contents of `dataset.json`. None for foreign files.
      depth: Depth of the check.
      checks: Checks of the shards.
      findings: Findings of all kinds.
      statistics: Statistics of all shards. None if no image was decoded.
      directory: The dataset directory. Empty for foreign files.
      paths: Paths of foreign files.
      against: Source with which the dataset was compared.
      previous: The previous dataset. None if there is none.
    """

    name: str
    dataset: Dataset | None
    depth: CheckDepth
    checks: Sequence[ShardCheck]
    findings: FindingSummary
    statistics: Statistics | None = None
    directory: str = ""
    paths: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    previous: Previous | None = None


def write_results(
    files: ResultFiles,
    results: Results,
    gates: GateFile | None = None,
) -> ValidationReport:
    """Writes the results of a validation: `findings.json` after the others, and then the page drawn from it.

    Args:
      files: Paths of the files.
      results: Results of the validation.
      gates: Which findings are errors, and expectations about the dataset. None for the default ones.

    Raises:
      EngineError: If the storage failed.
    """
    dataset, statistics, checks = results.dataset, results.statistics, results.checks
    findings = FindingSummary().merge(results.findings)
    gates = gates or GateFile()
    expected = gates.named(Expectations)
    if expected:
        facts = facts_of(dataset, checks, findings, statistics)
        findings.add(Finding(FindingCode.EXPECTATION, item.message) for item in unmet(gates, facts))
    fingerprint = dataset.fingerprint if dataset else None
    own_report = ValidationReport(
        dataset=results.name,
        mode=results.depth.word,
        fingerprint=fingerprint,
        shards=len(checks),
        records=sum(check.records for check in checks),
        bytes=sum(check.bytes for check in checks),
        counts=findings.by_code(),
        findings=findings.by_place(),
        gates=gates.findings,
        against=results.against,
        time=utc(time.time()),
    )
    report = with_previous_checks(own_report, _stored_reports(files.report, results.directory))
    measured, contents = None, dict[str, bytes]()
    if statistics is not None:
        measured = {**statistics.as_json(), "fingerprint": fingerprint}
        contents = {STATISTICS_JSON: statistics_text(measured).encode(), STATS_PB: stats_pb(statistics)}
        for path, name in ((files.statistics, STATISTICS_JSON), (files.stats, STATS_PB)):
            if path:
                write_result(path, contents[name], files.option, hold=files.hold)
    if files.junit:
        from shardwright.schemas.junit import junit_xml  # hardly anybody needs XML

        write_result(files.junit, junit_xml(own_report, expected), "--junit")
    if files.report:
        digests = _digests_beside(contents, files, results.directory, fingerprint)
        text = pretty_json(with_digest({**report.as_json(), "files": digests}))
        write_result(files.report, text.encode(), files.option, hold=files.hold)
    if files.page:
        write_result(files.page, _page(results, report, measured, files.page).encode(), "--html")
    return report


def _digests_beside(
    contents: Mapping[str, bytes], files: ResultFiles, directory: str, fingerprint: str | None
) -> dict[str, str]:
    """Returns the digests of the statistics beside the report, written now or by an earlier check."""
    if contents:
        written = {STATISTICS_JSON: files.statistics, STATS_PB: files.stats}
        return {
            name: hashlib.sha256(content).hexdigest() for name, content in contents.items() if written[name]
        }
    if not directory or fingerprint is None or files.report != storage.join(directory, FINDINGS_JSON):
        return {}
    document = stored_document(directory, FINDINGS_JSON)
    stored = document.get("files") if document.get("fingerprint") == fingerprint else {}
    return {str(name): str(sha256) for name, sha256 in stored.items()} if isinstance(stored, Mapping) else {}


def _stored_reports(path: str, directory: str) -> Iterator[Mapping[str, Any]]:
    """Yields the stored reports of earlier checks: in the dataset, and at the path of the new report."""
    if not directory:
        return
    yield stored_document(directory, FINDINGS_JSON)
    if path and path != storage.join(directory, FINDINGS_JSON):
        with contextlib.suppress(OSError):
            yield json_object(storage.read_bytes(path))


def read_unchanged(directory: str, fingerprint: str) -> Dataset:
    """Reads the `dataset.json` of a dataset after its validation.

    Raises:
      EngineError: If it was replaced meanwhile, so that the findings fit neither dataset.
    """
    dataset = read_dataset(directory)
    if dataset.fingerprint != fingerprint:
        raise storage.changed(storage.join(directory, DATASET_JSON))
    return dataset


def _page(results: Results, report: ValidationReport, measured: Mapping[str, Any] | None, path: str) -> str:
    """Draws `report.html` for a path."""
    if not results.directory:
        return render(gather_files(results.name, results.paths, validation=report, statistics=measured))
    drift, previous = None, results.previous
    if previous is not None and results.dataset is not None:
        described = Described(results.name, results.dataset, report, measured)
        drift = drift_between(previous.described, described, previous.changes).as_json()
    return render(gather(results.directory, validation=report, statistics=measured, drift=drift, page=path))


def facts_of(
    dataset: Dataset | None,
    checks: Sequence[ShardCheck],
    findings: FindingSummary,
    statistics: Statistics | None,
) -> DatasetFacts:
    """Returns the facts about a dataset: what was read, and the counts in its `dataset.json`."""
    records: Counter[str] = Counter()
    for check in checks:
        records[check.split] += check.records
    classes: Counter[str] = Counter()
    formats: Counter[str] = Counter()
    dtypes: Counter[str] = Counter()
    if dataset is not None:
        classes.update(dict.fromkeys(dataset.classes.values(), 0))
        classes.update(totals_of(dataset.class_counts))
        formats.update(_by_setting(totals_of(dataset.formats)))
        dtypes.update(dataset.dtypes or {"uint8": dataset.all_records})
    bad_fraction = dataset.bad_fraction if dataset is not None else None
    facts = DatasetFacts(records, classes, formats, dtypes, bad_fraction, findings.by_code())
    if statistics is None:
        return facts
    total = statistics.total()
    if dataset is None:
        formats.update(_by_setting(total.pictures.formats))
        for kind, sums in total.pictures.samples.stated.items():
            dtypes[kind.dtype] += sums.images
    spreads = total.pictures.spreads
    if not spreads:
        return facts
    widths, heights, ratios = (spreads[name] for name in ("width", "height", "aspect_ratio"))
    return replace(
        facts,
        widths=(int(widths.low), int(widths.high)),
        heights=(int(heights.low), int(heights.high)),
        aspect_ratio=max(ratios.high, 1 / ratios.low),
    )


def _by_setting(formats: Mapping[str, int]) -> dict[str, int]:
    """Returns counts of formats by the names that `--image_format` has for them."""
    return {"jpeg" if name == "jpg" else name: count for name, count in formats.items()}
