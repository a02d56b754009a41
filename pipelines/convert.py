"""Turns images into a verified, sharded TFRecord dataset."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shardwright.core import storage
from shardwright.core.commit import ConversionJob
from shardwright.core.dataset_files import read_dataset, remove_work_leftovers
from shardwright.core.plan.request import ConversionRequest
from shardwright.core.sources.spool import Spool
from shardwright.core.sources.unused_settings import without_effect
from shardwright.pipelines import cli, log, places, prepare
from shardwright.pipelines import options as cli_options
from shardwright.pipelines.command import CommandResult
from shardwright.pipelines.progress import show_progress
from shardwright.pipelines.results import ConvertResult, print_convert_summary, print_inputs
from shardwright.pipelines.run import converting, description_of, metrics_of, run_pipeline, workers_of
from shardwright.schemas.codes import ExitCode
from shardwright.schemas.dataset import OUTCOME_JSON, RUN_JSON
from shardwright.schemas.errors import DataRefused, EngineError, ShardwrightError, UsageError

EXAMPLE = """
# class folders, as JPEGs of 224x224 pixels in three splits
shardwright convert photos/ out/ --resize 224 --splits train=0.8,validation=0.1,test=0.1
# COCO with its boxes, original files kept, for object detection
shardwright convert coco/ out/ --layout detection
# a CSV file with paths and classes, from a bucket, on Dataflow
shardwright convert --input gs://bucket/rows.csv --label_column kind --output gs://bucket/out \
--runner DataflowRunner --project my-project --region europe-west1 --temp_location gs://bucket/tmp
"""


def build_convert(pipeline: Any, job: ConversionJob, request: ConversionRequest) -> Any:
    """Builds the whole conversion as one graph: list, plan, convert, verify, commit.

    Args:
      pipeline: A Beam pipeline.
      job: What to build, and where.
      request: The checked request.

    Returns:
      A PCollection with one outcome.
    """
    from shardwright.core.validation.shard import ShardTask, shard_task
    from shardwright.schemas.ledger import ShardResult
    from shardwright.transforms.commit import BeginConversion, CommitDataset, RemoveCommit
    from shardwright.transforms.plan import PlanDataset, PlanShards
    from shardwright.transforms.validate import VerifyShards
    from shardwright.transforms.write_shards import WritePlannedShards

    settings = job.settings
    lease = pipeline | "BeginConversion" >> BeginConversion(job)  # HeldLease or None
    batches, forecast, _ = lease | "PlanDataset" >> PlanDataset(request, Spool(job.directory))
    # EncodedRefs; Forecast; ListingDigest
    planned = batches | "PlanShards" >> PlanShards(request, forecast)  # PlannedShard
    if settings.resume or job.described:  # otherwise the launcher found an empty output
        lease = lease | "RemoveCommit" >> RemoveCommit(job, planned, forecast)  # HeldLease or None
    results = planned | "WritePlannedShards" >> WritePlannedShards(
        job.directory, settings, job.versions, forecast, resume=settings.resume, hold=lease
    )  # ShardResult

    def to_check(result: ShardResult) -> list[ShardTask]:
        header = result.header
        return [shard_task(job.directory, header.place, header.as_shard())] if header.file else []

    verified = results | "VerifyShards" >> VerifyShards(forecast, job.directory, settings, to_check)
    # ShardCheck; FindingSummary; Statistics
    return results | "CommitDataset" >> CommitDataset(job, forecast, verified, lease)  # outcome


def convert(*, beam_options: Any = None, progress: bool = False, **values: Any) -> ConvertResult:
    """Converts images to a dataset: the same as `shardwright convert`, as a function.

    Args:
      beam_options: Beam's PipelineOptions, or a list of its command-line options; without a
        runner, Beam's in-process runner is used.
      progress: Whether to show progress on stderr.
      **values: The settings of `shardwright convert` by name (input, output, resize, ...).

    Returns:
      The finished dataset.

    Raises:
      UsageError: If the settings or the input are wrong; nothing was written.
      DataRefused: If the data did not pass; nothing was published.
      NotRun: If Beam's options only describe the job (a template, a dry run).
      EngineError: If the engine, the storage or the machine failed; `resume=True` continues.
    """
    started = time.time()
    options = prepare.given_options(beam_options)
    if options != []:  # the first checks may read from a bucket
        beam_options = prepare.as_beam_options(beam_options)
    request = prepare.make_request(values, with_output=True)
    with converting(options):
        beam_options = prepare.as_beam_options(beam_options)
        settings, described = request.settings, bool(description_of(beam_options))
        facts = prepare.run_facts(request, beam_options, workers_of(beam_options))
        prepare.check_reachable(beam_options, **prepare.places_read(request), output=settings.output)
        directory = places.check_output(settings)
        existed = places.nearest_existing(settings.output)
        if storage.is_remote(directory) and not described:
            places.check_remote_writable(directory)
        try:
            with places.one_writer(settings.output, beam_options, described) as hold:
                if hold is not None and not described:
                    # Another run may have written it meanwhile.
                    directory = places.check_output(settings, hold.holder)
                if not described:
                    places.clear_staging(settings)
                    log.warning(*remove_work_leftovers(directory))
                output, versions = settings.output, prepare.software_versions(settings.map)
                job = ConversionJob(
                    output, directory, settings, versions, facts, started, hold=hold, described=described
                )
                if progress:
                    print_inputs(request, without_effect(request.given, request.facts))
                with show_progress(progress, directory):
                    return _run(job, request, beam_options)
        except BaseException as error:
            if isinstance(error, UsageError):
                Spool(directory).remove()
            places.mark_stopped_run(directory, existed, error)
            raise


def _run(job: ConversionJob, request: ConversionRequest, beam_options: Any) -> ConvertResult:
    """Runs a conversion."""
    try:
        result = run_pipeline(lambda pipeline: build_convert(pipeline, job, request), beam_options)
    except EngineError as error:
        refusal = _refusal_of(job)
        if refusal:
            raise refusal from error
        conversion = _committed(job)
        if conversion is None:
            raise
        warning = f"The dataset is published and complete; after that the run failed: {error.message}"
        return replace(
            conversion, outcome={**conversion.outcome, "warnings": [*conversion.outcome["warnings"], warning]}
        )
    conversion = load_result(job.output, metrics_of(result))
    count = conversion.metrics.get("images_on_background")
    if count is None or conversion.outcome.get("reused_shards") or not conversion.dataset.ledger["written"]:
        return conversion
    # Settings that had no effect on the images, which is known if no shard was reused.
    facts = replace(request.facts, on_background=count)
    return replace(conversion, notes=tuple(without_effect(request.given, facts, request.facts)))


def _refusal_of(job: ConversionJob) -> DataRefused | None:
    """Returns the refusal in a run's outcome file, for engines that only report a failure.

    The storage may be the cause of the failure, so this does not wait for it again.
    """
    with contextlib.suppress(Exception), storage.brief():
        outcome = json.loads(storage.read_bytes(storage.join(job.directory, OUTCOME_JSON)))
        if outcome["run"] == job.started and outcome["exit_code"] == ExitCode.REFUSED:
            return DataRefused(outcome["message"])
    return None


def _committed(job: ConversionJob) -> ConvertResult | None:
    """Returns the dataset that a run published although the engine reports a failure; None if none."""
    try:
        result = load_result(job.output, {})
    except (OSError, ValueError, KeyError, TypeError, ShardwrightError):
        return None
    done = result.outcome.get("exit_code") == ExitCode.DONE and result.outcome.get("run") == job.started
    return result if done and result.outcome.get("fingerprint") == result.dataset.fingerprint else None


def load_result(path: str, metrics: Mapping[str, Any]) -> ConvertResult:
    """Reads the result of a finished conversion from its dataset directory."""
    with storage.translated_errors("read the finished dataset in", path):
        outcome, run = (
            json.loads(storage.read_bytes(storage.join(path, name))) for name in (OUTCOME_JSON, RUN_JSON)
        )
        return ConvertResult(path, read_dataset(path), outcome, run, metrics)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    cli_options.add_input_and_output(parser)
    cli_options.add_settings(parser)


def execute(options: argparse.Namespace) -> CommandResult:
    """Runs the command."""
    settings = cli_options.given_settings(options)
    result = convert(beam_options=options.beam_options, progress=True, **settings)
    return CommandResult(lambda: print_convert_summary(result), result.as_json)


if __name__ == "__main__":
    sys.exit(cli.main(["convert", *sys.argv[1:]]))
