"""Writes report.html again from stored results; validates nothing."""

from __future__ import annotations

import argparse
import os
from typing import Any, NamedTuple

from shardwright.core import storage
from shardwright.core.concurrency.worker_pool import worker_pool
from shardwright.core.dataset_files import write_result
from shardwright.core.report.gather import ReportData, gather, gather_files
from shardwright.core.report.render import render
from shardwright.pipelines import options as cli_options
from shardwright.pipelines import run
from shardwright.pipelines.command import CommandResult
from shardwright.pipelines.places import check_result_place, resolve_target
from shardwright.pipelines.prepare import as_beam_options
from shardwright.pipelines.tables import console
from shardwright.schemas.dataset import REPORT_HTML
from shardwright.schemas.errors import UsageError
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import format_size

EXAMPLE = "shardwright report pets-2/ --previous pets-1/"


class ReportResult(NamedTuple):
    """A report page.

    Attributes:
      path: Path of the page.
      bytes: Size of the page in bytes.
      data: Data that it shows.
    """

    path: str
    bytes: int
    data: ReportData

    def as_json(self) -> dict[str, Any]:
        """Returns the result as `--json` prints it."""
        return {
            "page": printable(self.path),
            "bytes": self.bytes,
            "fingerprint": self.data.dataset.fingerprint if self.data.dataset else None,
            "validated": self.data.checked is not None,
            "left_out": list(self.data.left_out),
        }


def report(
    dataset: str | os.PathLike[str],
    *,
    previous: str | os.PathLike[str] = "",
    output: str | os.PathLike[str] = "",
    beam_options: object = None,
    progress: bool = False,
) -> ReportResult:
    """Writes the report page of a dataset, like `shardwright report`.

    Args:
      dataset: Dataset directory, or a pattern of TFRecord files.
      previous: Dataset to compare it with; empty for none, or for the stored `diff.json` of a version.
      output: File to write; empty for `report.html` in the dataset directory.
      beam_options: Beam's PipelineOptions, or a list of its command-line options, for the comparison.
      progress: Whether to show the comparison's progress on stderr.

    Returns:
      The path of the page, and the data that it shows.

    Raises:
      UsageError: If the dataset does not exist, or there is no path for the page.
      EngineError: If the storage or the machine failed.
    """
    previous, output = os.fspath(previous), os.fspath(output)
    if beam_options:
        beam_options = as_beam_options(beam_options)
    target = resolve_target(os.fspath(dataset), "report")
    path = output or storage.join(target.directory or "", REPORT_HTML)
    check_result_place("--output", path if output or target.directory else "")
    if target.directory is None:
        if previous:
            raise UsageError(
                "--previous compares datasets, and these files have no dataset.json; leave it out."
            )
        if not output:
            raise UsageError(
                "--output is missing; for files without a dataset.json, name the page to write, such as "
                "report.html."
            )
    drift = None
    if target.directory and previous:
        from shardwright.pipelines.diff import compare, describe

        datasets = describe("--previous", previous), describe("--dataset", target.directory)
        drift = compare(*datasets, beam_options, progress).as_json()
    with worker_pool(run.uses_processes("")):
        if target.directory:
            data = gather(target.directory, drift=drift, page=path)
        else:
            data = gather_files(target.name, target.files)
    page = render(data).encode()
    write_result(path, page, "--output", "page")
    return ReportResult(path, len(page), data)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    cli_options.add_dataset(parser, "a dataset directory, or 'dir/*.tfrecord'")
    cli_options.add_text(parser, "previous", "DIR", "the previous dataset, to show the differences")
    what = "the page to write (default: report.html in the dataset directory)"
    cli_options.add_text(parser, "output", "FILE", what)


def execute(options: argparse.Namespace) -> CommandResult:
    """Runs the command."""
    result = report(**cli_options.arguments_of(report, options))
    return CommandResult(lambda: print_report(result), result.as_json)


def print_report(result: ReportResult) -> None:
    """Prints where the page is, and which parts it lacks."""
    out = console()
    for sentence in result.data.left_out:
        out.print(f"  {sentence}")
    if result.data.checked is None and result.data.dataset:
        out.print("  not validated yet; shardwright validate --quality adds findings and measurements")
    out.print(f"  {result.path}: {format_size(result.bytes)}, to be opened in a browser")
