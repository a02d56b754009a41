"""The steps of a rebuild: compare with the latest version; verify, commit and publish the new one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import apache_beam as beam

from shardwright.core import storage
from shardwright.core.dataset_files import read_dataset
from shardwright.core.diff import LedgerPair, list_pairs
from shardwright.core.plan.assign import PlannedShard
from shardwright.core.rebuild.begin import PreviousState
from shardwright.core.rebuild.compare import (
    Compared,
    Decision,
    ScrubbedShard,
    chosen_shards,
    compare_shard,
    decide,
    input_state,
    previous_build,
    report_decision,
    scrub_shard,
)
from shardwright.core.rebuild.finish import finish, publish
from shardwright.core.rebuild.gate import commit_version, gate_version
from shardwright.core.rebuild.task import RebuildTask
from shardwright.core.shards.reuse import near
from shardwright.core.shards.shard_plan import plan_shard
from shardwright.core.sources.listing import ListingDigest, add_up
from shardwright.core.validation.shard import ShardCheck, ShardTask, shard_task
from shardwright.schemas.codes import CheckDepth
from shardwright.schemas.dataset import Shard
from shardwright.schemas.drift import Changes
from shardwright.schemas.findings import FindingSummary
from shardwright.schemas.ledger import ShardResult
from shardwright.schemas.plan import Forecast, shard_file
from shardwright.schemas.statistics import Statistics
from shardwright.schemas.version import check_file, version_path
from shardwright.transforms.building_blocks import added_findings, added_statistics, composite
from shardwright.transforms.commit import CondenseResults
from shardwright.transforms.diff import CompareDatasets
from shardwright.transforms.runner_features import report_sink
from shardwright.transforms.validate import Validated, VerifyShards


@composite
def CompareWithPrevious(
    planned: beam.PCollection[PlannedShard],
    task: RebuildTask,
    forecast: beam.PCollection[Forecast],
    previous: beam.PCollection[PreviousState],
    digests: beam.PCollection[ListingDigest],
) -> beam.PCollection[Decision]:
    """Compares planned shards with the latest version. `PCollection[PlannedShard] -> PCollection[Decision]`.

    The result has one element. Meanwhile a part of the latest version's shards is read again
    (`rebuild/compare.py`).

    Args:
      planned: The shards.
      task: The rebuild.
      forecast: PCollection of the one Forecast.
      previous: PCollection of the one PreviousState.
      digests: PCollection of the digests of the listing's parts.
    """

    def compare(planned: PlannedShard, forecast: Forecast, previous: PreviousState) -> Compared:
        if not previous.ended:
            task.hold.renew()  # all sources may have to be read
        if previous.dataset is None:
            return Compared(planned.place[:2], True)
        return compare_shard(task, previous, plan_shard(planned, forecast, task.settings, task.versions))

    def decided(
        previous: PreviousState,
        compared: Sequence[Compared],
        forecast: Forecast,
        scrubbed: Sequence[ScrubbedShard],
        digests: Sequence[ListingDigest],
    ) -> Decision:
        seen = input_state(task, forecast, len(compared), add_up(digests))
        decision = decide(previous, forecast, compared, task.versions, task.settings.provenance, scrubbed)
        report_decision(task, previous, decision, seen)
        return decision._replace(input=seen if seen.listing and task.request else None)

    one_forecast, one_previous = map(beam.pvalue.AsSingleton, (forecast, previous))
    step = beam.Map(compare, one_forecast, one_previous).with_output_types(Compared)
    compared = planned | "CompareShard" >> step  # Compared
    scrubbed = (
        previous
        | "ChooseShards"
        >> beam.FlatMap(lambda previous: chosen_shards(task, previous)).with_output_types(Shard)  # Shard
        | "SpreadShards" >> beam.Reshuffle()  # Shard
        | "ScrubShard" >> beam.Map(scrub_shard, one_previous, task).with_output_types(ScrubbedShard)
    )  # ScrubbedShard
    return previous | "Decide" >> beam.Map(
        decided,
        beam.pvalue.AsList(compared),
        one_forecast,
        beam.pvalue.AsList(scrubbed),
        beam.pvalue.AsList(digests),
    ).with_output_types(Decision)  # Decision


@composite
def VerifyVersion(
    results: beam.PCollection[ShardResult],
    task: RebuildTask,
    forecast: beam.PCollection[Forecast],
    previous: beam.PCollection[PreviousState],
) -> Validated:
    """Reads the new shards back, and compares all records. `PCollection[ShardResult] -> Validated`.

    Reused shards are verified by their checksum. In checks deeper than framing, their earlier findings are
    reused with them (`validation/stored_checks.py`).

    Args:
      results: The shards.
      task: The rebuild.
      forecast: PCollection of the one Forecast.
      previous: PCollection of the one PreviousState.
    """
    verify = task.settings.verify
    depth = max(CheckDepth.of_verification(verify), CheckDepth.FRAMES)

    def is_known(result: ShardResult) -> bool:
        return verify == "none" or (depth is CheckDepth.FRAMES and result.carried)

    def known(result: ShardResult) -> Iterator[ShardCheck]:
        header = result.header
        if header.file and is_known(result):
            yield ShardCheck(header.file, header.split, header.records, header.bytes)

    def to_check(result: ShardResult, previous: PreviousState) -> Iterator[ShardTask]:
        header = result.header
        if not header.file or is_known(result):
            return
        build, shared = previous_build(task, previous), []
        if build is not None and header.split in build.shards:
            # The stored checks of the latest version's shards that share records with the new one.
            count = build.shards[header.split]
            for index in near(header.place, count):
                shard = shard_file(header.split, index, count, build.suffix)
                shared.append(storage.join(build.directory, check_file(shard)))
        written = shard_task(task.directory, header.place, header.as_shard())
        yield written._replace(previous_checks=tuple(shared))

    checks = results | "KnownChecks" >> beam.FlatMap(known).with_output_types(ShardCheck)  # ShardCheck
    verified: Validated = results | "VerifyShards" >> VerifyShards(
        forecast,
        task.directory,
        task.settings,
        to_check,
        beam.pvalue.AsSingleton(previous),
        stores=True,
        hold=task.hold,
    )  # ShardCheck; FindingSummary; Statistics
    if verified.checks is not None:
        checks = (checks, verified.checks) | "AllChecks" >> beam.Flatten()  # ShardCheck
    return verified._replace(checks=checks)


@composite
def PublishVersion(
    results: beam.PCollection[ShardResult],
    task: RebuildTask,
    previous: beam.PCollection[PreviousState],
    decision: beam.PCollection[Decision],
    forecast: beam.PCollection[Forecast],
    verified: Validated,
) -> beam.PCollection[dict[str, Any]]:
    """Commits the shards, compares them with the latest version, applies the gates, and switches the pointer.

    `PCollection[ShardResult] -> PCollection[outcome of the rebuild]`. Cleans up in the end.

    Args:
      results: The shards.
      task: The rebuild.
      previous: PCollection of the one PreviousState.
      decision: PCollection of the one Decision.
      forecast: PCollection of the one Forecast.
      verified: Results of checking the version's shards.
    """

    def ledgers(outcome: Mapping[str, Any] | None, previous: PreviousState) -> Iterator[LedgerPair]:
        if outcome is not None and previous.dataset is not None:
            old, new = version_path(task.output, previous.version), task.directory
            yield from list_pairs(old, new, previous.dataset, read_dataset(new))

    def published(
        outcome: Mapping[str, Any] | None, previous: PreviousState, decision: Decision, checks: Any,
        findings: Iterable[FindingSummary], statistics: Statistics | None, changes: Changes,
    ) -> dict[str, Any]:  # fmt: skip
        record = None
        if outcome is not None:
            added = added_findings(findings)
            record = gate_version(task, previous, outcome, list(checks), added, statistics, changes)
        record = publish(task, previous, record)
        if record is not None:
            report_sink(task.output)
        return finish(task, previous, decision, record)

    one_previous, checks = beam.pvalue.AsSingleton(previous), beam.pvalue.AsList(verified.checks)
    condensed = results | "CondenseResults" >> CondenseResults()  # ShardResult
    committed = decision | "Commit" >> beam.Map(
        partial(commit_version, task),
        one_previous,
        beam.pvalue.AsSingleton(forecast),
        beam.pvalue.AsIter(condensed),
        checks,
    )  # outcome or None
    changes = (
        committed
        | "ListLedgers" >> beam.FlatMap(ledgers, one_previous).with_output_types(LedgerPair)  # LedgerPair
        | "CompareDatasets" >> CompareDatasets(lost_is_empty=True)  # Changes
    )
    return committed | "Publish" >> beam.Map(
        published,
        one_previous,
        beam.pvalue.AsSingleton(decision),
        checks,
        beam.pvalue.AsIter(verified.findings),
        added_statistics(verified.statistics),
        beam.pvalue.AsSingleton(changes),
    )  # outcome
