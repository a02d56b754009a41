"""Reads a dataset back and checks that it is sound."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from shardwright.core import storage
from shardwright.core.dataset_files import read_dataset, remove_unfinished, short_names
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.sources.inputs import check_inputs
from shardwright.core.sources.rules import make_rules
from shardwright.core.sources.spool import Spool
from shardwright.core.validation.dataset_json import check_dataset_json, recipes_of_dataset
from shardwright.core.validation.directory import (
    check_directory,
    check_reports,
    check_sidecars,
    check_version_files,
    stray_files,
)
from shardwright.core.validation.ledger import ShardTerms
from shardwright.core.validation.results import ResultFiles, Results, read_unchanged, write_results
from shardwright.core.validation.shard import ShardCheck, ShardTask, shard_task
from shardwright.pipelines import cli, log, prepare
from shardwright.pipelines import options as cli_options
from shardwright.pipelines.command import CommandResult
from shardwright.pipelines.job_file import read_gates
from shardwright.pipelines.places import Target, check_result_place, resolve_target, schema_of
from shardwright.pipelines.results import print_findings, print_statistics, refusal_of
from shardwright.pipelines.run import converting
from shardwright.pipelines.tables import console, visible
from shardwright.schemas.codes import DECODED, OF_SOURCE, QUALITY, CheckDepth, FindingCode, Severity
from shardwright.schemas.configuration.gates import OF_DATASET, Expectations, GateFile, Thresholds, gates_from
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS, settings_from
from shardwright.schemas.dataset import DATASET_JSON, REPORT_HTML, RUN_JSON, WORK_DIR, Dataset
from shardwright.schemas.drift import Previous
from shardwright.schemas.errors import EngineError, UsageError, as_sentence
from shardwright.schemas.findings import Finding, FindingSummary, Gates, ValidationReport
from shardwright.schemas.plain_text import printable
from shardwright.schemas.plain_yaml import WrongValue

if TYPE_CHECKING:
    from shardwright.core.validation.against import Comparison

#: Words for the depths of a validation.
_MODES = tuple(depth.word for depth in (CheckDepth.FAST, CheckDepth.FULL, CheckDepth.QUALITY))
#: Settings of `convert` that decide how a source is listed and that may be given (again) with `--against`.
_LISTING = ("source", *prepare.UNSTORED, "rename_labels", "folders")
_STRAY = "dataset.json does not list it, but its name is like that of a shard"
EXAMPLE = """
# everything, and statistics of the images
shardwright validate out/ --quality
# a gate for CI: fails if images are missing, or are in two splits
shardwright validate out/ --expect gates.yaml --fail_on SPLIT_LEAKAGE --junit findings.xml
# a comparison with the source, record by record
shardwright validate out/ --against photos/
"""


def list_tasks(target: Target) -> Iterator[ShardTask]:
    """Yields the shards to check."""
    if target.directory is None:
        for name, path in short_names(target.files).items():
            yield ShardTask(path, name, "", None)
        return
    dataset = read_dataset(target.directory)
    recipes = recipes_of_dataset(dataset)
    terms = None
    if recipes is not None:
        with contextlib.suppress(UsageError, ValueError, TypeError):  # the check of dataset.json reports it
            settings = settings_from({}, dataset.plan.settings)
            terms = ShardTerms(recipes.shard, settings.seed, not settings.strip_metadata)
    for placed in dataset.placed_shards():
        yield shard_task(target.directory, *placed)._replace(terms=terms)


def directory_findings(target: Target) -> FindingSummary:
    """Returns the findings about the directory as a whole."""
    summary = FindingSummary()
    if target.directory is not None:
        dataset = read_dataset(target.directory)
        with storage.translated_errors("list", target.directory):
            files = storage.list_files(target.directory)
        strays = stray_files(dataset, files)
        summary.add(check_directory(dataset, files))
        summary.add(Finding(FindingCode.SHARD_UNEXPECTED, _STRAY, file) for file in strays)
        summary.add(check_sidecars(dataset, target.directory))
        summary.add(check_reports(target.directory, dataset, files))
        summary.add(check_version_files(target.directory, dataset, files))
    return summary


def statement_findings(target: Target, dataset: Dataset, checks: Sequence[ShardCheck]) -> FindingSummary:
    """Returns findings for statements of the dataset that differ from its shards and ledgers."""
    assert target.directory is not None
    data = storage.read_existing(storage.join(target.directory, DATASET_JSON))
    return FindingSummary().add(check_dataset_json(target.directory, data, dataset, checks))


def build_validate(
    pipeline: Any,
    target: Target,
    mode: str,
    files: ResultFiles,
    gates: GateFile,
    comparison: Comparison | None,
    previous: Previous | None,
) -> Any:
    """Builds the validation: one element per shard, then the records among each other.

    Args:
      pipeline: A Beam pipeline.
      target: What to validate.
      mode: Mode: fast, full or quality.
      files: Paths of the results.
      gates: Which findings are errors, and expectations about the dataset.
      comparison: Source to compare it with.
      previous: The previous dataset, for the page.

    Returns:
      A PCollection with one report.
    """
    import apache_beam as beam

    from shardwright.transforms.building_blocks import added_findings, added_statistics
    from shardwright.transforms.validate import ValidateShards

    depth, directory = CheckDepth[mode.upper()], target.directory
    begin = pipeline | "Begin" >> beam.Impulse()  # bytes
    tasks = begin | "ListShards" >> beam.FlatMap(lambda _: list_tasks(target)).with_output_types(
        ShardTask
    )  # ShardTask
    schema = begin | "ReadSchema" >> beam.Map(lambda _: schema_of(target)).with_output_types(
        RecordSchema
    )  # RecordSchema
    whole = begin | "CheckDirectory" >> beam.Map(lambda _: directory_findings(target)).with_output_types(
        FindingSummary
    )  # FindingSummary
    validated = tasks | "ValidateShards" >> ValidateShards(schema, depth, summaries=True)
    summaries = [whole, validated.findings]
    if comparison is not None:
        from shardwright.transforms.against import CompareWithSource

        summaries.append(pipeline | "CompareWithSource" >> CompareWithSource(comparison))  # FindingSummary
    fingerprint = read_dataset(directory).fingerprint if directory else ""
    against = tuple(printable(item.path) for item in comparison.inputs) if comparison else ()

    def report(_: bytes, checks: Any, statistics: Any, *parts: Iterable[FindingSummary]) -> ValidationReport:
        findings = added_findings(chain(*parts))
        # Read here, since the shards of a large dataset do not fit into the description of a job.
        dataset = read_unchanged(directory, fingerprint) if directory else None
        if dataset is not None:
            findings.merge(statement_findings(target, dataset, checks))
        paths = () if directory else tuple(target.files)
        results = Results(
            printable(target.name), dataset, depth, checks, findings, statistics,
            directory=directory or "", paths=paths, against=against, previous=previous,
        )  # fmt: skip
        return write_results(files, results, gates)

    return begin | "Report" >> beam.Map(
        report,
        beam.pvalue.AsList(validated.checks),
        added_statistics(validated.statistics),
        *map(beam.pvalue.AsIter, summaries),
    )  # ValidationReport


def validate(
    dataset: str | os.PathLike[str],
    *,
    mode: str = "full",
    fail_on: str | Sequence[str] = (),
    warn_on: str | Sequence[str] = (),
    expect: str | os.PathLike[str] | Mapping[str, Any] = "",
    report: str | os.PathLike[str] | None = None,
    html: str | os.PathLike[str] | None = None,
    junit: str | os.PathLike[str] = "",
    against: str | Sequence[str] = (),
    listing: Mapping[str, Any] | None = None,
    previous: str | os.PathLike[str] = "",
    beam_options: Any = None,
    progress: bool = False,
) -> ValidationReport:
    """Validates a dataset: the same as `shardwright validate`, as a function.

    Args:
      dataset: Dataset directory, or a pattern of TFRecord files.
      mode: `fast` checks frames and Examples, `full` also decodes each image, `quality` also measures it.
      fail_on: Codes of findings to treat as errors.
      warn_on: Codes of findings to treat as warnings.
      expect: A gate file, or its content.
      report: File for the report; None for `findings.json` in the dataset directory.
      html: File for the page; None for `report.html` in the dataset directory.
      junit: File for the report as JUnit XML; empty for none.
      against: Source to compare the dataset with, as the `input` of `convert`; a list for several.
      listing: Settings of `convert` for listing the source that the dataset does not store:
        `image_root`, `mask_dir`, `keep_labels`, `include`, `exclude`; also `source` and `rename_labels` if
        they changed.
      previous: The previous dataset, for the differences on the page.
      beam_options: Beam's PipelineOptions, or a list of its command-line options.
      progress: Whether to show progress on stderr.

    Returns:
      The findings.

    Raises:
      UsageError: If there is nothing to validate, or the options are wrong.
      EngineError: If the engine, the storage or the machine failed.
    """
    report, html, junit, previous = (os.fspath(path or "") for path in (report, html, junit, previous))
    options = prepare.given_options(beam_options)
    if options != []:  # the first checks may read from a bucket
        beam_options = prepare.as_beam_options(beam_options)
    gates = read_gates(expect, "--expect") if expect else GateFile()
    if expect:
        place = "expect" if isinstance(expect, Mapping) else f"--expect {os.fspath(expect)}"
        if gates == GateFile():
            raise UsageError(f"{place} has no gates; write one on each line, such as min_images: 1000.")
        others = [name for name in gates.named(Thresholds) if name != "max_bad_fraction"]
        if others:
            note = (
                f"{', '.join(others)} compare two datasets, so they are ignored here; use shardwright diff "
                "for them"
            )
            log.about(place, note)
    gates = _with_options(gates, fail_on=fail_on, warn_on=warn_on)
    target = resolve_target(os.fspath(dataset))
    mode = _mode_for(mode, gates, target, bool(against))
    folder = (os.path.dirname(report) or ".") if report else target.directory or ""
    page = html or (storage.join(folder, REPORT_HTML) if folder and not report else "")
    files = ResultFiles.in_folder(folder, mode == "quality", report, page=page, junit=junit)
    names = ("page", "report", "statistics", "stats", "junit")
    written = {name: path for name in names if (path := getattr(files, name))}
    for option, path in (("--report", files.report), ("--html", files.page), ("--junit", junit)):
        check_result_place(option, path)
    if previous and not files.page:
        raise UsageError("--previous needs a page to show the differences on; name one with --html.")
    with converting(options):
        beam_options = prepare.as_beam_options(beam_options)
        remove_unfinished(written.values())
        prepare.check_reachable(
            beam_options, dataset=target.name, report=files.report, html=files.page, junit=junit
        )
        paths = [against] if isinstance(against, str) else list(against)
        given = {name: value for name, value in (listing or {}).items() if value is not None}
        with prepared_comparison(target, paths, given, mode) as comparison:
            if comparison is not None:
                prepare.check_reachable(beam_options, **prepare.places_read(comparison))
            before = None
            if previous:
                if target.directory is None:
                    raise UsageError(
                        "--previous compares two dataset directories; leave it out for files from elsewhere."
                    )
                from shardwright.pipelines.diff import images_since

                before = images_since(previous, target.directory, beam_options, progress)
            result: ValidationReport = prepare.run_for_result(
                lambda pipeline, _: build_validate(pipeline, target, mode, files, gates, comparison, before),
                beam_options,
                progress,
            )
    return replace(result, files=written)


def _with_options(gates: GateFile, **options: str | Sequence[str]) -> GateFile:
    """Returns the gates of a file with `--fail_on` and `--warn_on`, which take precedence.

    Raises:
      UsageError: If a code is unknown, or in both options.
    """
    try:
        given = gates_from(options)
    except WrongValue as error:
        raise UsageError(as_sentence(f"--{error}".replace(" warn_on", " --warn_on"))) from None
    chosen = (*given.fail_on, *given.warn_on)
    fail_on = (*given.fail_on, *(code for code in gates.fail_on if code not in chosen))
    warn_on = (*given.warn_on, *(code for code in gates.warn_on if code not in chosen))
    return gates.model_copy(update={"fail_on": fail_on, "warn_on": warn_on})


def _mode_for(mode: str, gates: GateFile, target: Target, compared: bool) -> str:
    """Returns the mode that the gates need: `quality` if a gate depends on image statistics.

    Raises:
      UsageError: If the mode is unknown, or a gate needs what the mode, the files or the command do not have.
    """
    if mode not in _MODES:
        raise UsageError(f"There is no mode {mode!r}; choose one of {', '.join(_MODES)}.")
    counted = target.directory is not None
    for name in OF_DATASET:
        if name in gates.named(Expectations) and not counted:
            raise UsageError(
                f"--expect {name} needs a dataset.json, which these files do not have; leave {name} out."
            )
    required = [(f"--fail_on {code}", code) for code in gates.fail_on]
    required += [(f"--expect max_fraction {code}", code) for code in gates.max_fraction]
    named = [*required, *((f"--warn_on {code}", code) for code in gates.warn_on)]
    for text, code in required:
        if code in OF_SOURCE and not compared:
            raise UsageError(f"{text} needs the images that were converted; name them with --against.")
    asking = [text for text, code in named if code in QUALITY]
    asking += [f"--expect {name}" for name in gates.measured_names(counted)]
    decoding = [*asking, *(text for text, code in required if code in DECODED)]
    if decoding and mode == "fast":
        raise UsageError(f"{decoding[0]} needs decoded images, and --fast decodes none; leave --fast out.")
    return "quality" if asking else mode


@contextlib.contextmanager
def prepared_comparison(
    target: Target, against: Sequence[str], listing: Mapping[str, Any], mode: str
) -> Iterator[Comparison | None]:
    """Prepares a comparison: checks it before the source is listed, and cleans up afterwards.

    Args:
      target: The dataset.
      against: The source, as `convert --input` takes it; empty for no comparison.
      listing: Settings of the listing that were given.
      mode: Mode of the validation; `fast` converts no image.

    Raises:
      UsageError: If the source cannot be listed as it was for the dataset.
    """
    if not against:
        if listing:
            raise UsageError(
                f"--{next(iter(listing))} says how the source is listed; name the source with --against, "
                "or leave it out."
            )
        yield None
        return
    from shardwright.core.validation.against import Comparison  # only a comparison needs it

    if target.directory is None:
        raise UsageError(
            f"--against needs a dataset.json that says how the dataset was made, and --dataset "
            f"{target.name} has none; leave --against out, or name a dataset directory."
        )
    dataset = read_dataset(target.directory)
    listed_by, processor = _read_run(target.directory)
    for name in prepare.UNSTORED:
        if name not in listing and listed_by.get(name):
            what = "which" if name in ("include", "exclude") else "a path that"
            raise UsageError(
                f"The dataset was made with --{name} {listed_by[name]}, {what} it does not store; "
                f"give --{name} together with --against."
            )
    number = listed_by.get(prepare.FIRST_NUMBER)
    with _in_words_of_validate():
        values = {**listing, "input": tuple(against)}
        if listed_by.get(prepare.CONFINE) == "true":
            values[prepare.CONFINE] = True
        settings = settings_from(values, dataset.plan.settings)
        settings.check()
        numbered = (dataset.plan.labels, number) if type(number) is int else ((), 0)
        rules = make_rules(settings, *numbered)
        inputs = check_inputs(settings, None)
    # Remote workers can reach the dataset's storage, but not this machine's disk.
    place = storage.join(target.directory, WORK_DIR) if storage.is_remote(target.directory) else ""
    with prepare.work_folder(place) as folder, _in_words_of_validate():
        yield Comparison(
            directory=target.directory,
            dataset=dataset,
            settings=settings,
            inputs=inputs,
            rules=rules,
            spool=Spool(folder),
            convert=mode != "fast",
            same_machine=processor in (None, platform.machine()),
        )


@contextlib.contextmanager
def _in_words_of_validate() -> Iterator[None]:
    """Makes the errors of code that `convert` also uses name the options of `validate`."""
    try:
        yield
    except UsageError as error:
        raise UsageError(error.message.replace("--input", "--against")) from error
    except EngineError as error:
        raise EngineError(error.message.replace(" with --resume", "")) from error


def _read_run(directory: str) -> tuple[Mapping[str, Any], str | None]:
    """Returns how the source was listed, and on what processor; `run.json` may be missing or damaged."""
    try:
        run = json.loads(storage.read_bytes(storage.join(directory, RUN_JSON)))
        return dict(run.get("listing", {})), run.get("machine", {}).get("processor")
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}, None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    lines = ["findings (docs/dataset.md says what they mean):"]
    for severity in Severity:
        codes = ", ".join(code for code in FindingCode if Gates().severity(code) is severity)
        folded = textwrap.wrap(f"{severity}s: {codes}", 76, subsequent_indent="  ")
        lines += [f"  {line}" for line in folded]
    parser.epilog = "\n".join([*lines, "", parser.epilog or ""])
    cli_options.add_dataset(parser, "a dataset directory, or 'dir/*.tfrecord'")
    parser.add_argument("--fast", action="store_true", help="check frames and Examples, but decode no images")
    parser.add_argument(
        "--quality", action="store_true",
        help="also image statistics: duplicates, dark and blurred images, ...",
    )  # fmt: skip
    gates = parser.add_argument_group("gates")
    cli_options.add_text(gates, "fail_on", "CODE,...", "make these findings errors")
    cli_options.add_text(gates, "warn_on", "CODE,...", "make these findings warnings")
    cli_options.add_text(gates, "expect", "FILE", "a gate file: the requirements of the dataset")
    results = parser.add_argument_group("results")
    cli_options.add_text(results, "junit", "FILE", "write the findings as JUnit XML, for CI systems")
    what = "the JSON file to write (default: findings.json in the dataset directory)"
    cli_options.add_text(results, "report", "FILE", what)
    what = "the page to write (default: report.html in the dataset directory)"
    cli_options.add_text(results, "html", "FILE", what)
    what = "the previous dataset, to show the differences on the page"
    cli_options.add_text(results, "previous", "DIR", what)
    group = parser.add_argument_group("comparison with the source")
    group.add_argument(
        "--against", action="append", default=[], metavar="PATH",
        help="the source of the dataset, as for convert --input: prove record by record that no image is "
        "lost, duplicated, mislabeled or changed; repeatable",
    )  # fmt: skip
    for name in _LISTING:
        cli_options.add_setting(group, CONVERT_SETTINGS[name], "for --against, as for convert: ")


def execute(options: argparse.Namespace) -> CommandResult:
    """Runs the command."""
    if options.fast and options.quality:
        raise UsageError("--fast decodes no images and --quality measures all of them; choose one.")
    report = validate(
        mode="fast" if options.fast else "quality" if options.quality else "full",
        listing={name: value for name, value in vars(options).items() if name in _LISTING},
        **cli_options.arguments_of(validate, options),
    )

    def show() -> None:
        print_findings(report, stored="report" in report.files)
        if "statistics" in report.files:
            print_statistics(json.loads(prepare.fetch_result(report.files["statistics"], "--report")))
        if report.files:
            console().print(f"  see {', '.join(visible(printable(path)) for path in report.files.values())}")

    def fields() -> dict[str, Any]:
        files = {name: printable(path) for name, path in report.files.items()}
        return {**report.as_json(), "files": files}

    return CommandResult(show, fields, "" if report.passed else refusal_of(report))


if __name__ == "__main__":
    sys.exit(cli.main(["validate", *sys.argv[1:]]))
