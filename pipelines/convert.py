"""`shardwright convert`: images in, a verified dataset out."""

from __future__ import annotations

import errno
import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardwright.pipelines import options as cli_options
from shardwright.pipelines.prepare import (
    Request,
    as_beam_options,
    build_forecast,
    make_request,
)
from shardwright.pipelines.progress import show_progress
from shardwright.pipelines.run import exit_code_of, quiet_engine, run_pipeline
from shardwright.pipelines.summary import print_convert_summary
from shardwright.schemas import __version__
from shardwright.schemas.codes import ExitCode
from shardwright.schemas.dataset import DATASET_JSON, SHARDS_DIR, WORK_DIR, Dataset
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.layouts import layout_by_name
from shardwright.schemas.settings import ConvertSettings, setting_fields
from shardwright.transforms import storage
from shardwright.transforms.commit import Job
from shardwright.transforms.images.encode import codec_versions
from shardwright.transforms.publish import repair_swap, staging_path

EXAMPLE = (
    "shardwright convert --input photos/ --output out/ --resize 224 "
    "--splits train=0.8,validation=0.1,test=0.1"
)


@dataclass(frozen=True)
class ConvertResult:
    """What a conversion made.

    Attributes:
      path: the dataset directory.
      dataset: its `dataset.json`.
      outcome: what `_work/outcome.json` says of the run.
      run: what `run.json` says of it.
    """

    path: str
    dataset: Dataset
    outcome: Mapping[str, Any]
    run: Mapping[str, Any]


def software_versions() -> dict[str, str]:
    """Returns the versions that `dataset.json` records."""
    from importlib.metadata import version

    return {"shardwright": __version__, "beam": version("apache-beam"), **codec_versions()}


def build_convert(pipeline: Any, job: Job, request: Request) -> Any:
    """Builds the whole conversion as one graph: list, plan, convert, verify, commit.

    Args:
      pipeline: a Beam pipeline.
      job: what to make, and where.
      request: what was asked for.

    Returns:
      The PCollection of the one outcome.
    """
    import apache_beam as beam

    from shardwright.transforms.checks.record import Contract
    from shardwright.transforms.checks.shard import Depth, ShardTask
    from shardwright.transforms.checks.validate import ValidateShards
    from shardwright.transforms.commit import CommitDataset
    from shardwright.transforms.plan.transforms import (
        AssignShards,
        bucket_keys,
        check_keys,
        name_planned_shard,
    )
    from shardwright.transforms.shards.write import WritePlannedShards

    settings = job.settings
    batches, forecast = build_forecast(pipeline, request)  # EncodedRefs, Forecast
    grouped = batches | "AssignShards" >> AssignShards(settings, forecast)  # (ShardId, [refs])
    keys = grouped
    if len(request.inputs) > 1:
        keys = batches | "BucketKeys" >> beam.FlatMap(bucket_keys) | "GroupKeys" >> beam.GroupByKey()
    keys_checked = keys | "CheckKeys" >> beam.FlatMap(check_keys)  # int
    results = (
        grouped
        | "NamePlannedShards"
        >> beam.Map(
            name_planned_shard,
            beam.pvalue.AsSingleton(forecast),
            beam.pvalue.AsIter(keys_checked),  # nothing is written before every key is checked
        )  # PlannedShard
        | "WritePlannedShards"
        >> WritePlannedShards(
            job.directory,
            settings,
            job.versions,
            beam.pvalue.AsSingleton(forecast),
            resume=settings.resume,
        )  # ShardResult
    )
    checks = findings = None
    if settings.verify != "none":
        layout = layout_by_name(settings.layout)
        contract = forecast | "NameContract" >> beam.Map(
            lambda forecast: Contract(layout.features, forecast.plan.labels, layout.first_label)
        )  # Contract
        checks, findings = (
            results
            | "NameShardTasks"
            >> beam.Map(
                lambda result: ShardTask(
                    storage.join(job.directory, result.file),
                    result.file,
                    result.split,
                    result.as_shard(),
                )
            )  # ShardTask
            | "VerifyShards"
            >> ValidateShards(contract, Depth.PIXELS if settings.verify == "full" else Depth.FRAMES)
        )  # ShardCheck, Finding
    return results | "CommitDataset" >> CommitDataset(job, forecast, checks, findings)  # outcome


def prepare_output(settings: ConvertSettings) -> str:
    """Checks the output and returns the directory to build in; writes nothing.

    What is to replace a dataset is built beside it, and `--resume` goes on there.

    Raises:
      UsageError: if it is missing, no directory, or not empty without --overwrite or --resume.
      EngineError: if it cannot be written to.
    """
    output = settings.output
    if not output:
        raise UsageError("--output is missing; name the dataset directory to write.")
    shown = printable(output)
    if storage.is_remote(output):
        files = storage.list_files(output)
        if settings.overwrite and files:
            raise UsageError(f"--output {shown}: --overwrite works on local disks; write to a new place.")
        _check_free(shown, files, settings)
        return output
    repair_swap(output)
    _check_place(output)
    files = storage.list_files(output)
    staging = staging_path(output)
    if settings.resume and storage.list_files(staging):
        return staging
    _check_free(shown, files, settings)
    if settings.overwrite and files:
        _check_replaceable(output, staging)
    if not settings.resume:
        storage.remove_tree(staging)  # of an --overwrite that was given up
    return staging if settings.overwrite and files else output


def _check_free(shown: str, files: Sequence[str], settings: ConvertSettings) -> None:
    """Checks that nothing in the output would be mixed with what is written."""
    unfinished = any(file.startswith((f"{SHARDS_DIR}/", f"{WORK_DIR}/")) for file in files)
    if not files or settings.overwrite or (settings.resume and (unfinished or DATASET_JSON in files)):
        return
    if settings.resume:
        raise UsageError(
            f"--output {shown} holds files but no run that could be resumed; choose another place."
        )
    if DATASET_JSON in files:
        raise UsageError(
            f"--output {shown} holds a dataset; choose another place, or replace it with --overwrite."
        )
    raise UsageError(
        f"--output {shown} holds an unfinished run; finish it with --resume, or begin anew with --overwrite."
        if unfinished
        else f"--output {shown} is not empty; choose another place, or replace all that is in it "
        "with --overwrite."
    )


def _check_place(output: str) -> None:
    """Checks that a local output is a directory that can be written to, or could be made."""
    shown = printable(output)
    try:
        os.lstat(output)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(f"--output {shown}: the name is too long; choose a shorter one.") from None
    if os.path.islink(output) and not os.path.exists(output):
        raise UsageError(f"--output {shown} is a symbolic link to nowhere; name a directory.")
    if os.path.lexists(output) and not os.path.isdir(output):
        raise UsageError(f"--output {shown} is a file; name a directory.")
    _check_writable(output)


def _check_replaceable(output: str, staging: str) -> None:
    """Checks that a directory can be swapped for another by renames."""
    shown, real = printable(output), os.path.realpath(output)
    if os.path.ismount(real):
        raise UsageError(
            f"--output {shown} is the root of a file system, which --overwrite cannot replace; "
            "name a directory inside it."
        )
    if os.path.commonpath((real, os.getcwd())) == real:
        raise UsageError(
            f"--output {shown} is where this command runs, and --overwrite would replace it; run "
            "from another directory."
        )
    _check_place(staging)


def _check_writable(output: str) -> None:
    existing = os.path.abspath(output)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        raise UsageError(f"--output {printable(output)}: {printable(existing)} is a file.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise EngineError(
            f"Cannot write to {printable(existing)}: permission denied; choose another --output or "
            "change its permissions."
        )


def convert(*, beam_options: Any = None, progress: bool = False, **values: Any) -> ConvertResult:
    """Converts images to a dataset: the same as `shardwright convert`, as a function.

    Args:
      beam_options: Beam's PipelineOptions, or a list of its command-line options; without a
        runner the embedded in-process one is used.
      progress: whether to show progress on stderr.
      **values: the settings of `shardwright convert` by name (input, output, resize, ...).

    Returns:
      What was made.

    Raises:
      UsageError: the settings or the input are wrong; nothing was written.
      DataRefused: the data did not pass; nothing was published.
      EngineError: the engine, the storage or the machine failed; `resume=True` goes on.
    """
    started = time.time()
    request = make_request(values, with_output=True)
    settings = request.settings
    directory = prepare_output(settings)
    fresh = not storage.exists(settings.output)
    beam_options = as_beam_options(beam_options)
    run = _run_facts(settings, beam_options)
    job = Job(settings.output, directory, settings, software_versions(), run, started)
    try:
        with show_progress(progress, directory):
            run_pipeline(lambda pipeline: build_convert(pipeline, job, request), beam_options)
    except UsageError:
        _leave_no_trace(directory, fresh)
        raise
    return load_result(settings.output)


def _leave_no_trace(directory: str, fresh: bool) -> None:
    """Removes the empty directories of a run that stopped before it wrote anything."""
    if storage.is_remote(directory) or storage.list_files(directory):
        return
    if fresh or directory.endswith(".shardwright-new"):
        storage.remove_tree(directory)


def load_result(path: str) -> ConvertResult:
    """Reads what a finished conversion left in its dataset directory."""

    def read(name: str) -> Any:
        return json.loads(storage.read_bytes(storage.join(path, name)))

    with storage.faults("read the finished dataset in", path):
        document = read(DATASET_JSON)
        return ConvertResult(
            path=path,
            dataset=Dataset.from_json(document, storage.join(path, DATASET_JSON)),
            outcome=read(f"{WORK_DIR}/outcome.json"),
            run=read("run.json"),
        )


def _run_facts(settings: ConvertSettings, beam_options: Any) -> dict[str, Any]:
    from apache_beam.options.pipeline_options import DirectOptions, StandardOptions

    direct = beam_options.view_as(DirectOptions)
    return {
        "command": [printable(argument) for argument in sys.argv],
        "runner": beam_options.view_as(StandardOptions).runner,
        "direct_num_workers": direct.direct_num_workers,
        "direct_running_mode": direct.direct_running_mode,
        "input": [printable(item) for item in settings.input],
        "launcher": platform.node(),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `shardwright convert`; returns the exit code."""
    verbose = False

    def command() -> int:
        nonlocal verbose
        parser = cli_options.make_parser(
            "shardwright convert",
            "Turns images into a verified, sharded TFRecord dataset.",
            EXAMPLE,
        )
        cli_options.add_settings(parser)
        cli_options.add_common(parser)
        namespace, rest = cli_options.parse(parser, sys.argv[1:] if argv is None else argv)
        verbose = namespace.verbose
        with quiet_engine(verbose):
            given = cli_options.given_settings(namespace)
            known = [*setting_fields(), "job", "verbose"]
            beam_options = cli_options.beam_options(rest, known)
            result = convert(beam_options=beam_options, progress=True, **given)
        print_convert_summary(result)
        return int(ExitCode.DONE)

    return exit_code_of(command, lambda: verbose, resumable=True)


if __name__ == "__main__":
    sys.exit(main())
