"""`shardwright convert`: images in, a verified dataset out."""

from __future__ import annotations

import contextlib
import json
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from shardwright.pipelines import options as cli_options
from shardwright.pipelines.against import unstored_settings
from shardwright.pipelines.output import check_remote_writable, leave_no_trace, prepare_output
from shardwright.pipelines.prepare import (
    Request,
    as_beam_options,
    build_forecast,
    build_planned_shards,
    check_reachable,
    make_request,
    places_read,
)
from shardwright.pipelines.progress import show_progress
from shardwright.pipelines.run import description_of, exit_code_of, metrics_of, quiet_engine, run_pipeline
from shardwright.pipelines.summary import print_convert_summary, print_inputs
from shardwright.pipelines.workers import Workers, choose_workers
from shardwright.schemas import __version__
from shardwright.schemas.codes import ExitCode
from shardwright.schemas.dataset import DATASET_JSON, OUTCOME_JSON, RUN_JSON, Dataset
from shardwright.schemas.errors import DataRefused, EngineError, UsageError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.settings_values import setting_fields
from shardwright.transforms import storage
from shardwright.transforms.images.encode import codec_versions
from shardwright.transforms.sources.spool import Spool

if TYPE_CHECKING:
    from shardwright.transforms.commit import Job

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
      outcome: what `_work/outcome.json` says of the run; `findings` in it counts what the verification found.
      run: what `run.json` says of it.
      metrics: what the runner counted (`schemas/metrics.py`), as far as it tells.
    """

    path: str
    dataset: Dataset
    outcome: Mapping[str, Any]
    run: Mapping[str, Any]
    metrics: Mapping[str, Any]

    @property
    def findings(self) -> Mapping[str, int]:
        """Number of findings of each code, such as `LABEL_CONFLICT`."""
        return dict(self.outcome["findings"])


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

    from shardwright.transforms.checks.compare_ledgers import CompareLedgers
    from shardwright.transforms.checks.contract import Contract, contract_of_plan
    from shardwright.transforms.checks.shard import DEPTHS, Depth, ShardTask, shard_task
    from shardwright.transforms.checks.validate import ValidateShards
    from shardwright.transforms.commit import CommitDataset
    from shardwright.transforms.shards.write import WritePlannedShards

    settings = job.settings
    batches, forecast = build_forecast(
        pipeline, request, Spool(job.directory), run=job.started
    )  # EncodedRefs, Forecast
    planned = build_planned_shards(batches, forecast, request)  # PlannedShard
    results = (
        planned
        | "WritePlannedShards"
        >> WritePlannedShards(
            job.directory,
            settings,
            job.versions,
            beam.pvalue.AsSingleton(forecast),
            resume=settings.resume,
        )  # ShardResult
    )
    checks = findings = statistics = None
    depth = DEPTHS.get(settings.verify)
    if depth is not None:
        layout = settings.record_layout
        contract = forecast | "NameContract" >> beam.Map(
            lambda forecast: contract_of_plan(layout.features, layout.first_label, forecast.plan)
        ).with_output_types(Contract)  # Contract
        checks, findings, statistics = (
            results
            | "WithRecords" >> beam.Filter(lambda result: result.file)  # ShardResult
            | "NameShardTasks"
            >> beam.Map(
                lambda result: shard_task(
                    job.directory, result.split, result.shard, result.num_shards, result.as_shard()
                )
            ).with_output_types(ShardTask)
            | "VerifyShards" >> ValidateShards(contract, depth)
        )  # ShardCheck, FindingSummary, Statistics
    if depth is None or depth is Depth.FRAMES:  # a deeper check compares the records
        compare = CompareLedgers(job.directory, beam.pvalue.AsSingleton(forecast))
        equal = results | "CompareLedgers" >> compare  # FindingSummary
        found = (equal,) if findings is None else (findings, equal)
        findings = found | "AllFindings" >> beam.Flatten()  # FindingSummary
    commit = CommitDataset(job, forecast, checks, findings, statistics)
    return results | "CommitDataset" >> commit  # outcome


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
      NotRun: Beam's options have the job described only (a template, a dry run).
      EngineError: the engine, the storage or the machine failed; `resume=True` goes on.
    """
    from shardwright.transforms.commit import Job

    started = time.time()
    given = None if hasattr(beam_options, "view_as") else list(beam_options or ())
    beam_options = as_beam_options(beam_options)
    request = make_request(values, with_output=True)
    settings = request.settings
    described = bool(description_of(beam_options))
    check_reachable(beam_options, **places_read(request), output=settings.output)
    directory = prepare_output(settings, described)
    fresh = storage.is_remote(settings.output) or not storage.exists(settings.output)
    if storage.is_remote(directory) and not described:
        check_remote_writable(directory)
    workers = choose_workers(given, beam_options, request.inputs)
    run = run_facts(request, beam_options, workers)
    job = Job(settings.output, directory, settings, software_versions(), run, started)
    if progress:
        print_inputs(request)
    try:
        with show_progress(progress, directory, started):
            result = run_pipeline(lambda pipeline: build_convert(pipeline, job, request), beam_options)
    except UsageError:
        leave_no_trace(directory, fresh)
        raise
    except EngineError as error:
        refusal = _refusal_of(job)
        if refusal:
            raise refusal from error
        raise
    return load_result(settings.output, metrics_of(result))


def _refusal_of(job: Job) -> DataRefused | None:
    """Returns the refusal that a run left in its outcome file, for engines that only say that it failed."""
    with contextlib.suppress(Exception):
        outcome = json.loads(storage.read_bytes(storage.join(job.directory, OUTCOME_JSON)))
        if outcome["run"] == job.started and outcome["exit_code"] == ExitCode.REFUSED:
            return DataRefused(outcome["message"])
    return None


def load_result(path: str, metrics: Mapping[str, Any]) -> ConvertResult:
    """Reads what a finished conversion left in its dataset directory."""

    def read(name: str) -> Any:
        return json.loads(storage.read_bytes(storage.join(path, name)))

    with storage.faults("read the finished dataset in", path):
        document = read(DATASET_JSON)
        return ConvertResult(
            path=path,
            dataset=Dataset.from_json(document, storage.join(path, DATASET_JSON)),
            outcome=read(OUTCOME_JSON),
            run=read(RUN_JSON),
            metrics=metrics,
        )


def run_facts(request: Request, beam_options: Any, workers: Workers) -> dict[str, Any]:
    """Returns what `run.json` says of a run before it begins."""
    from apache_beam.options.pipeline_options import StandardOptions

    return {
        "command": [printable(argument) for argument in sys.argv],
        "runner": beam_options.view_as(StandardOptions).runner,
        "workers": {**asdict(workers), "text": str(workers)},
        "input": [printable(item) for item in request.settings.input],
        "taken_for": [item.taken_for for item in request.inputs],
        "listing": unstored_settings(request.settings, request.rules),
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
        cli_options.add_input_and_output(parser)
        cli_options.add_settings(parser)
        cli_options.add_common(parser)
        namespace, rest = cli_options.parse(parser, sys.argv[1:] if argv is None else argv)
        verbose = namespace.verbose
        with quiet_engine(verbose):
            given = cli_options.given_settings(namespace)
            known = [*setting_fields(), "job", "verbose"]
            cli_options.beam_options(rest, known)  # refuses unknown ones with the nearest of all
            result = convert(beam_options=rest, progress=True, **given)
        print_convert_summary(result)
        return int(ExitCode.DONE)

    return exit_code_of(command, lambda: verbose, resumable=True)


if __name__ == "__main__":
    sys.exit(main())
