"""The steps of a rebuild after the shards are written, as Beam transforms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam

from shardwright.core import storage
from shardwright.core.dataset_files import read_dataset
from shardwright.core.diff.rows import LedgerPair, list_pairs
from shardwright.core.lease import renew
from shardwright.core.rebuild.begin import PreviousState
from shardwright.core.rebuild.decision import Decision, previous_build
from shardwright.core.rebuild.gate import gate_version
from shardwright.core.rebuild.task import RebuildTask
from shardwright.core.records.record_schema import RecordSchema, schema_of_plan
from shardwright.core.shards.finish import ShardPlace
from shardwright.core.shards.reuse import near
from shardwright.core.validation.shard import DEPTHS, Depth, ShardCheck, ShardTask, shard_task_of
from shardwright.schemas.changes import Changes
from shardwright.schemas.findings import FindingSummary
from shardwright.schemas.ledger import ShardResult
from shardwright.schemas.plan import Forecast, shard_file
from shardwright.schemas.statistics.dataset_statistics import Statistics
from shardwright.schemas.version import VersionRecord, check_file, version_path
from shardwright.transforms.commit_version import commit_version
from shardwright.transforms.compare_ledgers import CompareLedgers
from shardwright.transforms.condense_results import CondenseBundle, CondensedResults, merged_results
from shardwright.transforms.diff import CompareDatasets
from shardwright.transforms.merging import added_findings, added_statistics
from shardwright.transforms.validate import Validated, ValidateShards


class VerifyVersion(beam.PTransform):
    """Reads the new shards back, and compares all records. `PCollection[ShardResult] -> Validated`.

    Reused shards are verified by their checksum. In checks deeper than framing, their earlier findings are
    reused with them (`validation/stored_checks.py`).

    Args:
      task: The rebuild.
      forecast: PCollection of the one forecast.
      previous: Side input of the PreviousState.
    """

    def __init__(self, task: RebuildTask, forecast: beam.PCollection, previous: Any) -> None:
        super().__init__()
        self._task = task
        self._forecast = forecast
        self._previous = previous

    def expand(self, results: beam.PCollection) -> Validated:
        """Applies the transform."""
        task, verify = self._task, self._task.settings.verify
        layout = task.settings.record_layout
        depth = DEPTHS.get(verify, Depth.FRAMES)

        def is_known(result: ShardResult) -> bool:
            return verify == "none" or (depth is Depth.FRAMES and result.carried)

        def known(result: ShardResult) -> Iterator[ShardCheck]:
            header = result.header
            if header.file and is_known(result):
                yield ShardCheck(header.file, header.split, header.records, header.bytes)

        def to_check(result: ShardResult, previous: PreviousState) -> Iterator[ShardTask]:
            if result.header.file and not is_known(result):
                place = ShardPlace(*result.header.place)
                made = shard_task_of(task.directory, result.header)
                yield made._replace(previous_checks=tuple(_previous_checks(task, previous, place)))

        def still_at_work(check: ShardCheck) -> ShardCheck:
            renew(task.output, task.holder)
            return check

        def schema(forecast: Forecast) -> RecordSchema:
            return schema_of_plan(layout.features, layout.first_label, forecast.plan)

        checks = results | "KnownChecks" >> beam.FlatMap(known).with_output_types(ShardCheck)  # ShardCheck
        compare = CompareLedgers(task.directory, beam.pvalue.AsSingleton(self._forecast))
        if verify == "none":
            equal = results | "CompareLedgers" >> compare  # FindingSummary
            return Validated(checks, equal | "AllFindings" >> beam.Flatten(), None)
        contracts = self._forecast | "NameSchema" >> beam.Map(schema).with_output_types(
            RecordSchema
        )  # RecordSchema
        validated = (
            results
            | "NameShardTasks"
            >> beam.FlatMap(to_check, self._previous).with_output_types(ShardTask)  # ShardTask
            | "VerifyShards" >> ValidateShards(contracts, depth, stores=True, hold=task.hold)
        )
        read = validated.checks | "StillAtWork" >> beam.Map(still_at_work).with_output_types(
            ShardCheck
        )  # ShardCheck
        together = (checks, read) | "AllChecks" >> beam.Flatten()  # ShardCheck
        findings = validated.findings
        if depth is Depth.FRAMES:
            equal = results | "CompareLedgers" >> compare  # FindingSummary
            findings = (findings, *equal) | "AllFindings" >> beam.Flatten()  # FindingSummary
        return Validated(together, findings, validated.statistics)


def _previous_checks(task: RebuildTask, previous: PreviousState, place: ShardPlace) -> Iterator[str]:
    """Yields the paths of stored checks of the latest version's shards that share records with a new one."""
    build = previous_build(task, previous)
    if build is not None and place.split in build.shards:
        for number in near(place, build.shards[place.split]):
            shard = shard_file(place.split, number, build.shards[place.split], build.suffix)
            yield storage.join(build.directory, check_file(shard))


class CommitVersion(beam.PTransform):
    """Commits the shards as a dataset. `PCollection[ShardResult] -> PCollection[outcome or None]`.

    Args:
      task: The rebuild.
      previous: Side input of the PreviousState.
      decision: PCollection of the one Decision.
      forecast: Side input of the forecast.
      checks: PCollection of ShardCheck.
    """

    def __init__(
        self,
        task: RebuildTask,
        previous: Any,
        decision: beam.PCollection,
        forecast: Any,
        checks: beam.PCollection,
    ) -> None:
        super().__init__()
        self._previous = previous
        self._task = task
        self._decision = decision
        self._forecast = forecast
        self._checks = checks

    def expand(self, results: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        task = self._task

        def committed(
            decision: Decision,
            condensed: Iterable[CondensedResults],
            forecast: Forecast,
            checks: Any,
            previous: PreviousState,
        ) -> dict[str, Any] | None:
            results = merged_results(condensed).as_results()
            return commit_version(task, previous, decision, forecast, results, list(checks))

        condensed = results | "CondenseBundle" >> beam.ParDo(CondenseBundle()).with_output_types(
            CondensedResults
        )  # CondensedResults of a bundle
        return self._decision | "Commit" >> beam.Map(
            committed,
            beam.pvalue.AsIter(condensed),
            self._forecast,
            beam.pvalue.AsList(self._checks),
            self._previous,
        )  # outcome or None


class GateVersion(beam.PTransform):
    """Compares a new version with the latest one and applies the gates.

    `PCollection[outcome or None] -> PCollection[VersionRecord or None]`.

    Args:
      task: The rebuild.
      previous: Side input of the PreviousState.
      verified: Results of checking the version's shards.
    """

    def __init__(self, task: RebuildTask, previous: Any, verified: Validated) -> None:
        super().__init__()
        self._task = task
        self._previous = previous
        self._verified = verified

    def expand(self, committed: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        task, verified = self._task, self._verified

        def ledgers(outcome: Mapping[str, Any] | None, previous: PreviousState) -> Iterator[LedgerPair]:
            if outcome is not None and previous.dataset is not None:
                old, new = version_path(task.output, previous.version), task.directory
                yield from list_pairs(old, new, previous.dataset, read_dataset(new))

        def gated(
            outcome: Mapping[str, Any] | None, previous: PreviousState, checks: Any,
            findings: Iterable[FindingSummary], statistics: Statistics | None, changes: Changes,
        ) -> VersionRecord | None:  # fmt: skip
            if outcome is None:
                return None
            found = added_findings(findings)
            return gate_version(task, previous, outcome, list(checks), found, statistics, changes)

        changes = (
            committed
            | "ListLedgers"
            >> beam.FlatMap(ledgers, self._previous).with_output_types(LedgerPair)  # LedgerPair
            | "CompareDatasets" >> CompareDatasets(lost_is_empty=True)  # Changes
        )
        return committed | "Gate" >> beam.Map(
            gated,
            self._previous,
            beam.pvalue.AsList(verified.checks),
            beam.pvalue.AsIter(verified.findings),
            added_statistics(verified.statistics),
            beam.pvalue.AsSingleton(changes),
        )  # VersionRecord or None
