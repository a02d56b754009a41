"""`shardwright validate`: reads a dataset back and says whether it is sound."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from shardwright.pipelines import options as cli_options
from shardwright.pipelines.datasets import (
    Target,
    contract_of,
    foreign_files,
    read_dataset,
    resolve_target,
)
from shardwright.pipelines.prepare import as_beam_options, check_reachable, fetch_result
from shardwright.pipelines.progress import show_progress
from shardwright.pipelines.run import exit_code_of, quiet_engine, run_pipeline
from shardwright.pipelines.tables import console, print_table
from shardwright.schemas.codes import ExitCode, FindingCode
from shardwright.schemas.dataset import VALIDATION_JSON, pretty_json
from shardwright.schemas.errors import EngineError, UsageError, nearest
from shardwright.schemas.findings import Finding, ValidationReport, severity_of
from shardwright.schemas.image_ref import printable
from shardwright.schemas.units import format_size
from shardwright.transforms import storage
from shardwright.transforms.checks.directory import check_directory
from shardwright.transforms.checks.shard import Depth, ShardTask, shard_task
from shardwright.transforms.checks.sidecars import check_sidecars

EXAMPLE = "shardwright validate --dataset out/"
MODES = {"fast": Depth.EXAMPLES, "full": Depth.PIXELS}
_SHOWN = 20


def list_tasks(target: Target) -> Iterator[ShardTask]:
    """Yields the shards to check."""
    if target.directory is None:
        for path in foreign_files(target.pattern or ""):
            yield ShardTask(path, os.path.basename(path), "", None)
        return
    dataset = read_dataset(target.directory)
    for placed in dataset.placed_shards():
        yield shard_task(target.directory, *placed)


def directory_findings(target: Target) -> Iterator[Finding]:
    """Yields what is wrong with the directory as a whole."""
    if target.directory is not None:
        dataset = read_dataset(target.directory)
        yield from check_directory(dataset, storage.list_files(target.directory))
        yield from check_sidecars(dataset, target.directory)


def build_validate(
    pipeline: Any,
    target: Target,
    mode: str,
    result_path: str,
    fail_on: tuple[str, ...] = (),
) -> Any:
    """Builds the validation: one element per shard, then the records among each other.

    Args:
      pipeline: a Beam pipeline.
      target: what to validate.
      mode: fast or full.
      result_path: where the report goes, as JSON.
      fail_on: finding codes that are errors though they would be warnings.

    Returns:
      The PCollection of the one report.
    """
    import apache_beam as beam

    from shardwright.transforms.checks.validate import ValidateShards, make_report

    begin = pipeline | "Begin" >> beam.Create([target], reshuffle=False)  # Target
    tasks = begin | "ListShards" >> beam.FlatMap(list_tasks).with_output_types(ShardTask)  # ShardTask
    contract = begin | "ReadContract" >> beam.Map(contract_of)  # Contract
    whole = begin | "CheckDirectory" >> beam.FlatMap(directory_findings)  # Finding
    checks, across = tasks | "ValidateShards" >> ValidateShards(contract, MODES[mode])  # ShardCheck, Finding
    fingerprint = read_dataset(target.directory).fingerprint if target.directory else None
    findings = (whole, across) | "AllFindings" >> beam.Flatten()  # Finding

    def report(_: Target, checks: Any, findings: Any) -> ValidationReport:
        made = make_report(checks, findings, printable(target.name), mode, fingerprint, fail_on)
        storage.write_bytes(result_path, pretty_json(made.as_json()).encode())
        return made

    return begin | "Report" >> beam.Map(
        report, beam.pvalue.AsList(checks), beam.pvalue.AsList(findings)
    )  # ValidationReport


def validate(
    dataset: str,
    *,
    mode: str = "full",
    fail_on: Sequence[str] = (),
    report: str | None = None,
    beam_options: Any = None,
    progress: bool = False,
) -> ValidationReport:
    """Validates a dataset: the same as `shardwright validate`, as a function.

    Args:
      dataset: a dataset directory, or a pattern of TFRecord files.
      mode: `full` decodes every image; `fast` stops at the Examples.
      fail_on: finding codes that fail the validation though they would be warnings.
      report: where the report goes; None for the dataset's own `validation.json`.
      beam_options: Beam's PipelineOptions, or a list of its command-line options.
      progress: whether to show progress on stderr.

    Returns:
      What was found.

    Raises:
      UsageError: there is nothing to validate.
      EngineError: the engine, the storage or the machine failed.
    """
    unknown = [code for code in fail_on if code not in FindingCode.__members__]
    if unknown:
        hint = nearest(unknown[0], list(FindingCode.__members__))
        raise UsageError(f"--fail_on {unknown[0]}: there is no such finding{hint or '.'}")
    beam_options = as_beam_options(beam_options)
    target = resolve_target(dataset)
    kept = report or (storage.join(target.directory, VALIDATION_JSON) if target.directory else "")
    storage.require_known("--report", kept)
    check_reachable(beam_options, dataset=target.name, report=kept)
    with tempfile.TemporaryDirectory() as scratch:
        path = kept if kept and _runs_elsewhere(beam_options) else os.path.join(scratch, VALIDATION_JSON)
        with show_progress(progress):
            run_pipeline(
                lambda pipeline: build_validate(pipeline, target, mode, path, tuple(fail_on)),
                beam_options,
            )
        text = fetch_result(path, "--report")
    made = _report_from_json(json.loads(text), tuple(fail_on))
    if kept and kept != path:
        try:
            storage.write_bytes(kept, text)
        except OSError as error:
            raise EngineError(
                f"Cannot write the report to {printable(kept)}: "
                f"{(error.strerror or str(error)).lower()}; choose another place with --report."
            ) from error
    return made


def _runs_elsewhere(beam_options: Any) -> bool:
    """Whether the last step may run on a machine that does not see this one's temporary files."""
    from apache_beam.options.pipeline_options import StandardOptions

    return bool(beam_options.view_as(StandardOptions).runner != cli_options.DEFAULT_RUNNER)


def _report_from_json(value: dict[str, Any], fail_on: tuple[str, ...]) -> ValidationReport:
    findings = tuple(
        Finding(
            FindingCode(item["code"]), item["message"], item["shard"], item["record"],
            item["offset"], item["key"],
        )
        for item in value["findings"]
    )  # fmt: skip
    names = ("dataset", "mode", "fingerprint", "shards", "records", "bytes", "counts")
    return ValidationReport(**{n: value[n] for n in names}, findings=findings, fail_on=fail_on)


def print_report(report: ValidationReport) -> None:
    """Prints what was found."""
    out = console()
    if report.findings:
        print_table(
            out,
            ("finding", "shard", "record", "byte", "what is wrong"),
            [
                [
                    f"{finding.code.value}"
                    + (" (warning)" if severity_of(finding.code, report.fail_on) == "warning" else ""),
                    finding.shard or "",
                    "" if finding.record is None else finding.record,
                    "" if finding.offset is None else finding.offset,
                    finding.message + (f" [{finding.key}]" if finding.key else ""),
                ]
                for finding in report.findings[:_SHOWN]
            ],
        )
        total = sum(report.counts.values())
        if total > _SHOWN:
            counts = ", ".join(f"{count} {code}" for code, count in report.counts.items())
            out.print(f"  {total} findings in all: {counts}")
    state = "sound" if report.sound else "NOT SOUND"
    out.print(
        f"  {report.dataset}: {state}; {report.records} records in {report.shards} shards, "
        f"{format_size(report.bytes)}; {report.errors} errors, {report.warnings} warnings"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `shardwright validate`; returns the exit code."""
    verbose = False

    def command() -> int:
        nonlocal verbose
        parser = cli_options.make_parser(
            "shardwright validate", "Reads a dataset back and says whether it is sound.", EXAMPLE
        )
        parser.add_argument(
            "--dataset", default="", metavar="DIR", help="a dataset directory, or 'dir/*.tfrecord'"
        )
        parser.add_argument("--fast", action="store_true", help="check frames and Examples, decode no image")
        parser.add_argument("--fail_on", default="", metavar="CODE,...", help="warnings that shall be errors")
        parser.add_argument(
            "--report", default=None, metavar="FILE",
            help="where the report goes (default: validation.json in the dataset directory)",
        )  # fmt: skip
        cli_options.add_common(parser)
        namespace, rest = cli_options.parse(parser, sys.argv[1:] if argv is None else argv)
        verbose = namespace.verbose
        with quiet_engine(verbose):
            known = ["dataset", "fast", "fail_on", "report", "verbose"]
            report = validate(
                namespace.dataset,
                mode="fast" if namespace.fast else "full",
                fail_on=[code for code in namespace.fail_on.split(",") if code],
                report=namespace.report,
                beam_options=cli_options.beam_options(rest, known),
                progress=True,
            )
        print_report(report)
        return int(ExitCode.DONE if report.sound else ExitCode.REFUSED)

    return exit_code_of(command, lambda: verbose)


if __name__ == "__main__":
    sys.exit(main())
