"""Compares two datasets, image by image."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rich.text import Text

from shardwright.core import storage
from shardwright.core.dataset_files import read_dataset, read_findings, read_measured, write_result
from shardwright.core.diff import MAX_RECORDS, compare_small, list_pairs
from shardwright.core.overwrite import repair_swap
from shardwright.core.versions import located
from shardwright.pipelines import log
from shardwright.pipelines import options as cli_options
from shardwright.pipelines.command import CommandResult
from shardwright.pipelines.job_file import read_gates
from shardwright.pipelines.places import check_result_place
from shardwright.pipelines.prepare import as_beam_options, check_reachable, run_for_result
from shardwright.pipelines.progress import show_progress
from shardwright.pipelines.tables import ERROR, as_text, console, print_table, visible, warn
from shardwright.schemas.codes import Severity
from shardwright.schemas.configuration.gates import Expectations, GateFile, check, unmet
from shardwright.schemas.dataset import DATASET_JSON, FINDINGS_JSON, STATISTICS_JSON, Dataset
from shardwright.schemas.drift import Changes, Described, Drift, Pair, Previous, drift_between, drift_tables
from shardwright.schemas.errors import UsageError
from shardwright.schemas.findings import FindingSummary, Violation
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import counted, is_or_are
from shardwright.schemas.version import version_name

EXAMPLE = "shardwright diff pets-1/ pets-2/ --thresholds limits.yaml"


@dataclass(frozen=True)
class DiffResult:
    """The differences between two datasets, and the limits that they exceed.

    Attributes:
      drift: The differences.
      gates: Gates for the new dataset; None if none were given.
      refusals: Gates that the new dataset does not pass.
    """

    drift: Drift
    gates: GateFile | None = None
    refusals: tuple[Violation, ...] = ()

    @property
    def errors(self) -> list[Violation]:
        """The limits that refuse the new dataset."""
        return [refusal for refusal in self.refusals if refusal.severity is Severity.ERROR]

    @property
    def passed(self) -> bool:
        """Whether no limit refuses the new dataset."""
        return not self.errors

    def as_json(self) -> dict[str, Any]:
        """Returns the report as JSON stores it."""
        return {
            **self.drift.as_json(),
            "thresholds": self.gates.as_json() if self.gates is not None else None,
            "refusals": [
                {name: value for name, value in refusal._asdict().items() if name != "gate"}
                for refusal in self.refusals
            ],
            "passed": self.passed,
        }

    def dumps(self) -> str:
        """Returns the report as text; equal reports are equal texts."""
        return json.dumps(self.as_json(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def build_diff(pipeline: Any, old: str, new: str) -> Any:
    """Builds the comparison: one element per shard, then images without a counterpart in the same shard.

    Args:
      pipeline: A Beam pipeline.
      old: Directory of the old dataset.
      new: Directory of the new dataset.

    Returns:
      A PCollection with one element, the sum of all changes.
    """
    import apache_beam as beam

    from shardwright.core.diff import LedgerPair
    from shardwright.transforms.diff import CompareDatasets

    return (
        pipeline
        | "Begin" >> beam.Impulse()  # bytes
        | "ListLedgers"
        >> beam.FlatMap(
            lambda _: list_pairs(old, new, read_dataset(old), read_dataset(new))
        ).with_output_types(LedgerPair)  # LedgerPair
        | "CompareDatasets" >> CompareDatasets()  # Changes
    )


def diff(
    old: str | os.PathLike[str],
    new: str | os.PathLike[str],
    thresholds: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    report: str | os.PathLike[str] | None = None,
    beam_options: Any = None,
    progress: bool = False,
) -> DiffResult:
    """Compares two datasets: the same as `shardwright diff`, as a function.

    Args:
      old: Directory of the old dataset.
      new: Directory of the new dataset.
      thresholds: Limits for differences, or a gate file.
      report: JSON file to write the report to; None for no file.
      beam_options: Beam's PipelineOptions, or a list of its command-line options.
      progress: Whether to show progress on stderr.

    Returns:
      The differences, and the limits that they exceed.

    Raises:
      UsageError: If a dataset is missing, or a dataset or the limits are damaged.
      EngineError: If the engine, the storage or the machine failed.
    """
    old, new, report = os.fspath(old), os.fspath(new), os.fspath(report or "")
    if beam_options:
        beam_options = as_beam_options(beam_options)
    gates = _gates(thresholds)
    check_result_place("--report", report)
    before, after = describe("OLD", old), describe("NEW", new)
    drift = compare(before, after, beam_options, progress)
    result = DiffResult(drift, gates, () if gates is None else _violations(gates, drift, after.dataset))
    if report:
        write_result(report, result.dumps().encode(), "--report")
    return result


def images_since(previous: str, directory: str, beam_options: Any, progress: bool) -> Previous:
    """Compares the images of a dataset with those of the previous one, before the dataset is measured.

    Raises:
      UsageError: If the previous dataset is wrong; the message names `--previous`.
      EngineError: If the engine, the storage or the machine failed.
    """
    before, after = describe("--previous", previous), describe("--dataset", directory)
    changes = _changes(before, after, beam_options, progress)
    name = printable(version_name(before.name))
    return Previous(_with_measurements(before)._replace(name=name), changes)


def compare(old: Described, new: Described, beam_options: Any, progress: bool) -> Drift:
    """Compares two datasets: their images, and what is stored of their measurements."""
    changes = _changes(old, new, beam_options, progress)
    if old.dataset.fingerprint != new.dataset.fingerprint:
        old, new = _with_measurements(old), _with_measurements(new)
    drift = drift_between(old, new, changes)
    return replace(drift, datasets=Pair(*(printable(version_name(name)) for name in drift.datasets)))


def _changes(old: Described, new: Described, beam_options: Any, progress: bool) -> Changes:
    """Compares the images of two datasets; small ones without Beam, unless its options were given."""
    if old.dataset.fingerprint == new.dataset.fingerprint:
        return Changes(unchanged=new.dataset.all_records)
    if not beam_options and old.dataset.all_records + new.dataset.all_records <= MAX_RECORDS:
        with show_progress(progress):
            return compare_small(list_pairs(old.name, new.name, old.dataset, new.dataset))
    beam_options = as_beam_options(beam_options)
    check_reachable(beam_options, OLD=old.name, NEW=new.name)
    changes: Changes = run_for_result(
        lambda pipeline, _: build_diff(pipeline, old.name, new.name), beam_options, progress
    )
    return changes


def _gates(thresholds: Mapping[str, Any] | str | os.PathLike[str] | None) -> GateFile | None:
    if thresholds is None:
        return None
    gates = read_gates(thresholds, "--thresholds")
    unread = (*gates.fail_on, *gates.warn_on)
    names = (*(["fail_on and warn_on"] if unread else []), *gates.names_read_from_shards())
    if names:
        note = f"diff reads no shards, so it ignores {', '.join(names)}; use shardwright validate for them"
        log.about("thresholds" if isinstance(thresholds, Mapping) else os.fspath(thresholds), note)
    return gates


def _violations(gates: GateFile, drift: Drift, dataset: Dataset) -> tuple[Violation, ...]:
    """Returns the gates that a dataset does not pass, judged by its `dataset.json` and the drift."""
    violations = check(drift, gates)
    if gates.named(Expectations):
        from shardwright.core.validation.results import facts_of

        records = {split: dataset.records(split) for split in dataset.splits}
        facts = replace(facts_of(dataset, (), FindingSummary(), None), records=records)
        skipped = ("max_bad_fraction", *gates.names_read_from_shards())  # the first is checked above
        violations += [one for one in unmet(gates, facts) if one.name not in skipped]
    return tuple(violations)


def describe(what: str, name: str) -> Described:
    """Reads the `dataset.json` of a dataset.

    Args:
      what: Word for the dataset in messages, such as `OLD` or `--previous`.
      name: Name of the dataset, as the user wrote it.

    Raises:
      UsageError: If there is none, or it cannot be read.
    """
    if not name:
        raise UsageError("diff compares two datasets; write shardwright diff OLD NEW.")
    storage.require_known(what, name)
    repair_swap(name)
    name = located(name)
    path = storage.join(name, DATASET_JSON)
    data = storage.read_if_exists(path)
    if data is None:
        raise UsageError(
            f"{what} {name} is not a finished dataset, because it has no dataset.json; "
            "check the path, or finish it with convert --resume."
        )
    return Described(name, Dataset.from_bytes(data, path))


def _with_measurements(described: Described) -> Described:
    """Adds the stored measurements of a dataset if they belong to this build of it."""
    directory, fingerprint = described.name, described.dataset.fingerprint
    file = FINDINGS_JSON
    try:
        validation = read_findings(directory, fingerprint)
        file = STATISTICS_JSON
        statistics = read_measured(directory, file, fingerprint)
    except ValueError:
        path = storage.join(directory, file)
        raise UsageError(f"{path} is damaged; run shardwright validate again, or remove it.") from None
    return described._replace(validation=validation, statistics=statistics)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("datasets", nargs="*", metavar="OLD NEW", help="two dataset directories")
    parser.add_argument(
        "--thresholds", default=None, metavar="FILE",
        help="a gate file: exit code 1 if the new dataset does not pass it",
    )  # fmt: skip
    cli_options.add_text(parser, "report", "FILE", "write a JSON report to this file")


def execute(options: argparse.Namespace) -> CommandResult:
    """Runs the command."""
    if len(options.datasets) != 2:
        raise UsageError(
            f"diff compares two datasets, not {len(options.datasets)}; write shardwright diff OLD NEW."
        )
    old, new = options.datasets
    result = diff(old, new, **cli_options.arguments_of(diff, options))
    errors = "; ".join(refusal.message for refusal in result.errors)
    refusal = f"{printable(result.drift.datasets.new)} does not pass: {errors}." if errors else ""
    return CommandResult(lambda: print_diff(result), result.as_json, refusal)


def print_diff(result: DiffResult) -> None:
    """Prints the differences, and the limits that they exceed."""
    out, drift = console(), result.drift
    old, new = map(as_text, drift.datasets)
    if drift.identical:
        records = drift.records.all.new
        out.print(
            f"  {old} and {new} are identical: {counted(records, 'record')}, "
            f"fingerprint {drift.fingerprints.new}"
        )
    else:
        print_table(
            out,
            ("", "dataset", "fingerprint"),
            [("before", old, drift.fingerprints.old), ("now", new, drift.fingerprints.new)],
        )
        for table in drift_tables(drift.as_json()):
            rows = [[as_text(cell) if isinstance(cell, str) else cell for cell in row] for row in table.rows]
            print_table(out, table.heads, rows, title=f"  {table.title}")
            if table.more:
                out.print(f"  and {counted(table.more, 'more row', 'more rows')}")
    if result.gates is None:
        return
    for refusal in result.refusals:
        if refusal.severity is Severity.ERROR:
            out.print(Text("  ").append("refused", ERROR).append(f": {visible(refusal.message)}"))
        else:
            warn(out, refusal.message)
    errors = len(result.errors)
    exceeded = counted(errors, "limit") if errors else "no limit"
    out.print(f"  {exceeded} {is_or_are(errors or 1)} exceeded")
