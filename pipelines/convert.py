"""`shardwright convert`: images in, a verified dataset out."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardwright.pipelines import options as cli_options
from shardwright.pipelines.progress import show_progress
from shardwright.pipelines.run import exit_code_of, quiet_engine, run_pipeline
from shardwright.pipelines.summary import print_convert_summary
from shardwright.schemas import __version__
from shardwright.schemas.codes import ExitCode
from shardwright.schemas.dataset import DATASET_JSON, WORK_DIR, Dataset
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.image_ref import EncodedRefs, printable
from shardwright.schemas.labels import parse_class_names
from shardwright.schemas.layouts import layout_by_name
from shardwright.schemas.plan import Plan
from shardwright.schemas.settings import ConvertSettings
from shardwright.transforms import storage
from shardwright.transforms.commit import Job
from shardwright.transforms.images.encode import codec_versions
from shardwright.transforms.publish import repair_swap, staging_path
from shardwright.transforms.sources.inputs import check_inputs

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


def build_convert(
    pipeline: Any,
    job: Job,
    inputs: Sequence[Any],
    carried: Plan | None = None,
    class_names: Sequence[str] = (),
    explicit_shards: bool = False,
) -> Any:
    """Builds the whole conversion as one graph: list, plan, convert, verify, commit.

    Args:
      pipeline: a Beam pipeline.
      job: what to make, from which settings.
      inputs: parsed inputs.
      carried: the plan to carry on.
      class_names: the only class names allowed.
      explicit_shards: the shard settings were given anew.

    Returns:
      The PCollection of the one outcome.
    """
    import apache_beam as beam

    from shardwright.transforms.checks.record import Contract
    from shardwright.transforms.checks.shard import Depth, ShardTask
    from shardwright.transforms.checks.validate import ValidateShards
    from shardwright.transforms.commit import CommitDataset
    from shardwright.transforms.dedupe import DedupeExact
    from shardwright.transforms.plan.transforms import (
        AssignShards,
        BatchRefs,
        ForecastDataset,
        check_keys,
    )
    from shardwright.transforms.shards.write import PlannedShard, WritePlannedShards
    from shardwright.transforms.sources.transforms import ListSources

    settings = job.settings
    batches = (
        pipeline
        | "ListSources" >> ListSources(inputs, settings.source)  # ImageRef
        | "BatchRefs" >> beam.ParDo(BatchRefs()).with_output_types(EncodedRefs)  # EncodedRefs
    )
    if settings.dedupe == "exact":
        batches = batches | "DedupeExact" >> DedupeExact(settings.max_source_bytes)  # EncodedRefs
    forecast = batches | "ForecastDataset" >> ForecastDataset(
        settings, carried, class_names, explicit_shards
    )  # Forecast
    grouped = batches | "AssignShards" >> AssignShards(settings, forecast)  # (ShardId, [refs])
    keys_checked = grouped | "CheckKeys" >> beam.FlatMap(check_keys)  # int
    results = (
        grouped
        | "NamePlannedShards"
        >> beam.Map(
            lambda shard, forecast, _: PlannedShard(
                *shard[0], forecast.plan.shards[shard[0][0]], shard[1]
            ),
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


def read_plan(path: str) -> Plan:
    """Reads the plan that `--plan_from` names: a `dataset.json`, or the directory that holds it.

    Raises:
      UsageError: if there is none.
    """
    if not storage.is_remote(path) and os.path.isdir(path):
        repair_swap(path)
        path = storage.join(path, DATASET_JSON)
    try:
        document = json.loads(storage.read_bytes(path))
    except OSError as error:
        raise UsageError(
            f"--plan_from {path}: {(error.strerror or str(error)).lower()}; name the dataset.json "
            "of an earlier build."
        ) from None
    except ValueError:
        raise UsageError(f"--plan_from {path} is no JSON; name a dataset.json.") from None
    return Dataset.from_json(document, f"--plan_from {path}").plan


def read_class_names(path: str) -> tuple[str, ...]:
    """Reads the `--class_names` file; empty without one."""
    if not path:
        return ()
    try:
        text = storage.read_bytes(path).decode("utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"--class_names {path}: {reason}; check the path.") from None
    except UnicodeDecodeError:
        raise UsageError(f"--class_names {path} is not UTF-8 text; save it as UTF-8.") from None
    return parse_class_names(text, path)


def prepare_output(settings: ConvertSettings) -> str:
    """Checks the output and returns the directory to build in; writes nothing.

    Raises:
      UsageError: if it is missing, no directory, or not empty without --overwrite or --resume.
      EngineError: if it cannot be written to.
    """
    output = settings.output
    if not output:
        raise UsageError("--output is missing; name the dataset directory to write.")
    shown = printable(output)
    repair_swap(output)
    local = not storage.is_remote(output)
    if local and os.path.lexists(output) and not os.path.isdir(output):
        raise UsageError(f"--output {shown} is a file; name a directory.")
    files = storage.list_files(output)
    if local:
        _check_writable(output)
    if settings.overwrite and files:
        if not local:
            raise UsageError(
                f"--output {shown}: --overwrite works on local disks; write to a new place."
            )
        staging = staging_path(output)
        storage.remove_tree(staging)
        return staging
    if files and not settings.resume:
        if DATASET_JSON in files:
            raise UsageError(
                f"--output {shown} holds a dataset; choose another place, or replace it with "
                "--overwrite."
            )
        unfinished = any(file.startswith(("_shards/", f"{WORK_DIR}/")) for file in files)
        raise UsageError(
            f"--output {shown} holds an unfinished run; finish it with --resume, or begin anew "
            "with --overwrite."
            if unfinished
            else f"--output {shown} is not empty; choose another place, or replace all that is in "
            "it with --overwrite."
        )
    return output


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


def convert(
    *, beam_options: Any = None, progress: bool = False, **values: Any
) -> ConvertResult:
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
    plan_from = str(values.get("plan_from") or "")
    carried = read_plan(plan_from) if plan_from else None
    settings = cli_options.build_settings(values, carried.settings if carried else None)
    class_names = read_class_names(settings.class_names)
    inputs = check_inputs(settings.input, settings.output)
    fresh_directory = not storage.exists(settings.output) if settings.output else False
    directory = prepare_output(settings)
    if not hasattr(beam_options, "view_as"):
        beam_options = cli_options.beam_options(beam_options or (), ())
    run = _run_facts(settings, beam_options)
    job = Job(settings.output, directory, settings, software_versions(), run, started)
    explicit = bool({"shards", "shard_size"} & set(values))
    try:
        with show_progress(progress, directory):
            run_pipeline(
                lambda pipeline: build_convert(
                    pipeline, job, inputs, carried, class_names, explicit
                ),
                beam_options,
            )
    except UsageError:
        _leave_no_trace(directory, fresh_directory)
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
            "shardwright convert", "Turns images into a verified, sharded TFRecord dataset.", EXAMPLE
        )
        cli_options.add_settings(parser)
        cli_options.add_common(parser)
        namespace, rest = cli_options.parse(parser, sys.argv[1:] if argv is None else argv)
        verbose = namespace.verbose
        with quiet_engine(verbose):
            given = cli_options.given_settings(namespace)
            known = [*cli_options.setting_fields(), "job", "verbose"]
            beam_options = cli_options.beam_options(rest, known)
            result = convert(beam_options=beam_options, progress=True, **given)
        print_convert_summary(result)
        return int(ExitCode.DONE)

    return exit_code_of(command, lambda: verbose)


if __name__ == "__main__":
    sys.exit(main())

