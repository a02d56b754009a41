"""Creates a new version of a dataset and rebuilds only changes."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shardwright.core import storage
from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.lease import Lease, this_process
from shardwright.core.plan.request import ConversionRequest
from shardwright.core.rebuild.begin import is_overtaken
from shardwright.core.rebuild.finish import fail, tell_failure
from shardwright.core.rebuild.task import RebuildTask, outcome_file, read_outcome, show_stages, stage
from shardwright.core.rebuild.unchanged import end_if_unchanged
from shardwright.core.sources.spool import Spool
from shardwright.core.sources.unused_settings import without_effect
from shardwright.core.versions import list_versions, remove_version, version_names
from shardwright.pipelines import cli, log, places, prepare
from shardwright.pipelines import options as cli_options
from shardwright.pipelines.command import CommandResult
from shardwright.pipelines.job_file import job_of, naming_lines, read_job
from shardwright.pipelines.progress import show_progress
from shardwright.pipelines.results import RebuildResult, print_inputs, print_rebuild_summary
from shardwright.pipelines.run import (
    as_shardwright_error,
    converting,
    description_of,
    run_pipeline,
    without_resume,
    workers_of,
)
from shardwright.schemas.codes import ExitCode
from shardwright.schemas.configuration.setting import settings_of
from shardwright.schemas.configuration.settings import NOT_FOR_REBUILDS, REBUILD_SETTINGS, RebuildSettings
from shardwright.schemas.errors import DataRefused, EngineError, NotRun, ShardwrightError, UsageError
from shardwright.schemas.labels import check_carried
from shardwright.schemas.plan import Plan
from shardwright.schemas.version import VERSIONS_DIR, VersionRecord, next_version

EXAMPLE = """
# the next version of a dataset, as a scheduler does it every night
shardwright rebuild --job job.yaml --log_format json --wait 70
# without a job file
shardwright rebuild --input photos/ --output pets/ --resize 224
# read every source and every shard again
shardwright rebuild --job job.yaml --verify_sources --scrub 1
"""
#: Environment variable of the launcher of a Flex Template.
_FLEX_LAUNCHER = "FLEX_TEMPLATE_PYTHON_PY_FILE"
#: Number of attempts to begin a version if other rebuilds take its name first.
_ATTEMPTS = 4


def build_rebuild(pipeline: Any, task: RebuildTask, request: ConversionRequest) -> Any:
    """Builds the whole rebuild as one graph: lease, plan, compare, convert, verify, commit, gates, pointer.

    Args:
      pipeline: A Beam pipeline.
      task: What to rebuild.
      request: The checked request.

    Returns:
      A PCollection with one outcome.
    """
    import apache_beam as beam

    from shardwright.core.plan.assign import PlannedShard
    from shardwright.core.rebuild.begin import PreviousState, begin
    from shardwright.core.rebuild.compare import reusable_builds
    from shardwright.core.shards.reuse import ReusableBuilds
    from shardwright.transforms.building_blocks import CallOnce
    from shardwright.transforms.plan import PlanDataset, PlanShards
    from shardwright.transforms.rebuild import CompareWithPrevious, PublishVersion, VerifyVersion
    from shardwright.transforms.write_shards import WritePlannedShards

    settings = task.settings

    def carry(previous: PreviousState) -> Plan | None:
        if previous.dataset is None:
            return request.carried
        plan = previous.dataset.plan
        if request.class_names:
            first = settings.record_layout.first_label
            check_carried(request.class_names, plan.labels, first, settings.class_names, previous.version)
        return plan

    begin_rebuild = CallOnce(begin, task).with_output_types(PreviousState)
    previous = pipeline | "BeginRebuild" >> begin_rebuild  # PreviousState
    carried = previous | "CarryPlan" >> beam.Map(carry)  # Plan or None
    batches, forecast, digests = previous | "PlanDataset" >> PlanDataset(
        request, Spool(task.directory), carried
    )  # EncodedRefs; Forecast; ListingDigest
    planned = batches | "PlanShards" >> PlanShards(request, forecast)  # PlannedShard
    decision = planned | "CompareWithPrevious" >> CompareWithPrevious(
        task, forecast, previous, digests
    )  # Decision
    reusable = decision | "FindReusableBuilds" >> beam.Map(
        lambda decision, previous: reusable_builds(task, previous, decision),
        beam.pvalue.AsSingleton(previous),
    ).with_output_types(ReusableBuilds)  # ReusableBuilds
    results = (
        planned
        | "WhereChanged"
        >> beam.FlatMap(
            lambda planned, decision: [planned] if decision.build else [], beam.pvalue.AsSingleton(decision)
        ).with_output_types(PlannedShard)  # PlannedShard
        | "WritePlannedShards"
        >> WritePlannedShards(
            task.directory, settings, task.versions, forecast, reusable=reusable, hold=task.hold
        )
    )  # ShardResult
    verified = results | "VerifyVersion" >> VerifyVersion(task, forecast, previous)
    # ShardCheck; FindingSummary; Statistics
    publish = PublishVersion(task, previous, decision, forecast, verified)
    return results | "PublishVersion" >> publish  # outcome


def rebuild(
    job: str | os.PathLike[str] = "",
    *,
    wait_minutes: float = 0.0,
    log_format: str = "",
    beam_options: Any = None,
    progress: bool = False,
    **values: Any,
) -> RebuildResult:
    """Rebuilds a dataset: the same as `shardwright rebuild`, as a function.

    Settings that are given override those of the job file.

    Args:
      job: Job file; empty if the settings contain everything.
      wait_minutes: Minutes to wait for another rebuild to finish.
      log_format: Format of the log on stderr, with a line for each stage: text or json; empty for no log.
      beam_options: Beam's PipelineOptions, or a list of its command-line options; they override the job file.
      progress: Whether to show progress on stderr.
      **values: Settings by name.

    Returns:
      The result of the rebuild.

    Raises:
      UsageError: If the job, its settings or the input are wrong; no version was created.
      DataRefused: If a gate refused the version; the latest version stays.
      NotRun: If Beam's options only describe the job (a template, a dry run).
      EngineError: If the engine, the storage or the machine failed; run again.
    """
    started = time.time()
    extra = prepare.given_options(beam_options)
    job = os.fspath(job or "")
    if extra != [] and storage.is_remote(job):
        prepare.as_beam_options(beam_options)  # the job file is read with their credentials and endpoint
    job_file = read_job(job, values) if job else job_of(values)
    arguments = None if extra is None else [*job_file.beam, *extra]
    options, described = None, False  # Beam is not imported if there turns out to be nothing to do
    try:
        with naming_lines(job_file, extra or ()) if job else contextlib.nullcontext():
            if arguments != []:
                options = prepare.as_beam_options(beam_options if arguments is None else arguments)
            request = prepare.make_request(job_file.settings, with_output=True)
        if options is not None:
            prepare.check_reachable(options, **prepare.places_read(request), output=request.settings.output)
            _check_launched_once(options)
            described = bool(description_of(options))
        places.check_versioned_output(request.settings.output)
        if storage.is_remote(request.settings.output) and not described:
            places.check_remote_writable(request.settings.output)
    except ShardwrightError as error:  # also a job that is refused before it begins is told to its hooks
        output = str(job_file.settings.get("output", ""))
        log.warning(*tell_failure(job_file.hooks, error, output, started)[1])
        raise
    if log_format:
        show_stages()
    notes = list(without_effect(request.given, request.facts))
    if job_file.rules.keep_days and not job_file.rules.keep:
        notes.insert(0, "keep_days has no effect with keep: 0, which keeps all versions.")
    if progress:
        print_inputs(request, notes)
    launcher = this_process() if options is None else places.launcher_of(options)
    output, versions = request.settings.output, prepare.software_versions(request.settings.map)
    task = RebuildTask(
        output=output,
        lease=Lease("", "", *launcher, seconds=60 * job_file.rules.lease_minutes),
        settings=request.settings,
        versions=versions,
        gates=job_file.gates,
        hooks=job_file.hooks,
        rules=job_file.rules,
        wait_seconds=wait_minutes * 60,
        started=started,
        log_format=log_format or "text",
        request=request.digest(prepare.listing_software(versions)),
    )
    if log_format == "json":
        for sentence in notes:
            stage(task, "note", sentence)
            log.note(sentence, written=True)
    existed = places.nearest_existing(output)

    def work(task: RebuildTask) -> None:
        try:
            # A job that outlives this process compares the input itself.
            ended = task.lease.pid and not described and end_if_unchanged(task, request)
        except Exception as error:
            raise as_shardwright_error(error) from error
        if not ended:
            PROGRESS.reset()  # the graph lists the input again
            with converting(arguments):
                of_beam = options or prepare.as_beam_options(arguments)
                run = replace(task, run=prepare.run_facts(request, of_beam, workers_of(of_beam)))
                run_pipeline(lambda pipeline: build_rebuild(pipeline, run, request), of_beam)

    try:
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(_Overtaken):
                return _run(task, work, progress)
        return _run(task, work, progress)
    except UsageError:
        if not storage.is_remote(output):
            places.remove_empty_folders(storage.join(output, VERSIONS_DIR), existed)
        raise


class _Overtaken(EngineError):
    """Another rebuild took the version's name, or a later one, before this one began."""


def _run(task: RebuildTask, work: Callable[[RebuildTask], None], progress: bool) -> RebuildResult:
    """Names a new version, does the work of a rebuild, and cleans up after it if it fails."""
    with storage.translated_errors("read the versions in", task.output):
        version = next_version(time.time(), version_names(task.output))
    task = replace(task, lease=replace(task.lease, version=version, holder=uuid.uuid4().hex))
    try:
        with show_progress(progress, task.directory), task.hold.heartbeat():
            work(task)
    except (ShardwrightError, KeyboardInterrupt) as error:
        if isinstance(error, ShardwrightError):
            error = type(error)(without_resume(error.message))
        outcome, records = None, None  # a storage that does not answer knows neither
        with storage.brief():  # do not wait for it again
            try:
                outcome = read_outcome(task)
                records = list_versions(task.output)
            except EngineError:
                pass
            except ShardwrightError:
                records = []
            if isinstance(error, EngineError) and records is not None and is_overtaken(task, records):
                task.hold.release()
                error = _Overtaken(error.message)
            elif outcome is None and not isinstance(error, NotRun):
                _clean_up(task, error, records)
        if outcome is not None and outcome["exit_code"] == ExitCode.REFUSED:
            log.warning(*outcome["warnings"])  # no summary is printed
            raise DataRefused(outcome["message"]) from error
        raise error
    outcome = json.loads(prepare.fetch_result(storage.join(task.output, outcome_file(task)), "--output"))
    return RebuildResult(task.output, outcome["version"], outcome["state"] != "no_change", outcome)


def _check_launched_once(beam_options: Any) -> None:
    """Checks that a stored job cannot be launched twice, which would create the same version again.

    Raises:
      UsageError: If the job is a classic template or a jar. A Flex Template describes a job at each launch.
    """
    from apache_beam.options.pipeline_options import TestOptions

    written = description_of(beam_options) and not beam_options.view_as(TestOptions).dry_run
    if written and not os.environ.get(_FLEX_LAUNCHER):
        raise UsageError(
            "A template makes only one version, however often it is launched; build the Flex "
            "Template (docs/dataflow.md), which describes a job for each launch, or let a scheduler run "
            "shardwright rebuild."
        )


def _clean_up(
    task: RebuildTask, error: ShardwrightError | KeyboardInterrupt, records: list[VersionRecord] | None
) -> None:
    """Cleans up after a failed job that did not do so itself.

    Args:
      task: What to rebuild.
      error: Error that ended the job.
      records: Records of all versions; None if the storage does not answer and need not be asked again.
    """
    if isinstance(error, KeyboardInterrupt):
        if task.lease.pid:  # otherwise the job continues
            task.hold.release()
        return
    if isinstance(error, UsageError) and any(record.holder == task.holder for record in records or ()):
        with contextlib.suppress(ShardwrightError):
            remove_version(task.output, task.version)  # nothing here can be resumed
    fail(task, error, reachable=records is not None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("places", nargs="*", metavar="JOB", help="the same as --job JOB")
    cli_options.add_settings(parser, leave_out=NOT_FOR_REBUILDS)
    for name in NOT_FOR_REBUILDS:  # refused, with the reason
        parser.add_argument(
            f"--{name}", nargs="?", const=True, default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )
    group = parser.add_argument_group("rebuild")
    for item in settings_of(RebuildSettings).values():
        cli_options.add_setting(group, item)
    group.add_argument(
        "--wait", default="0", metavar="MINUTES", help="minutes to wait for another rebuild to finish"
    )


def execute(options: argparse.Namespace) -> CommandResult:
    """Runs the command."""
    if options.quiet:
        show_stages(is_shown=False)  # an earlier command of this process may have shown them
    jobs = [*options.places, *filter(None, [options.job])]
    if len(jobs) > 1:
        raise UsageError(f"Name one job file, not {len(jobs)}; write shardwright rebuild --job job.yaml.")
    if not jobs and not getattr(options, "input", None):
        raise UsageError(
            "Name a job file with --job job.yaml; shardwright init writes one. Without a job file name the "
            "images with --input and the place for the versions with --output."
        )
    result = rebuild(
        *jobs,
        wait_minutes=cli_options.number_of("wait", options.wait, 0, 1e6),
        log_format="" if options.quiet else options.log_format,
        beam_options=options.beam_options,
        progress=options.quiet or options.log_format == "text",
        **{name: value for name, value in vars(options).items() if name in REBUILD_SETTINGS},
    )
    if options.log_format == "json":  # no summary is printed
        log.warning(*result.outcome["warnings"])

    def show() -> None:
        if options.log_format == "text":  # the log says the same
            print_rebuild_summary(result)

    return CommandResult(show, result.as_json)


if __name__ == "__main__":
    sys.exit(cli.main(["rebuild", *sys.argv[1:]]))
