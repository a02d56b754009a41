"""`ValidateShards`: shards in, a validation report out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam

from shardwright.schemas.findings import Finding, ValidationReport, summarise_findings
from shardwright.transforms.checks.across import bucket_count, bucket_rows, compare_bucket
from shardwright.transforms.checks.contract import Contract
from shardwright.transforms.checks.shard import Depth, ShardCheck, ShardTask, check_shard
from shardwright.transforms.images.decode import limit_pixels
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.shards.pool import converting_executor

_ROWS = "rows"
#: Stored pictures were accepted by their writer; Pillow's own limit is lifted.
_NO_LIMIT = 2**31 - 1


class _CheckShard(beam.DoFn):
    def __init__(self, depth: Depth) -> None:
        self._depth = depth

    def setup(self) -> None:
        limit_pixels(_NO_LIMIT)

    def process(
        self, task: ShardTask, contract: Contract, shards: int
    ) -> Iterator[ShardCheck | beam.pvalue.TaggedOutput]:
        check = check_shard(task, contract, self._depth, converting_executor())
        for bucket in bucket_rows(check.rows, bucket_count(shards)):
            yield beam.pvalue.TaggedOutput(_ROWS, bucket)
        PROGRESS.add(checked_records=check.records, checked_shards=1, findings=len(check.findings))
        check.rows = []
        yield check


class ValidateShards(beam.PTransform):
    """Checks every shard and the records among each other.

    `PCollection[ShardTask] -> PCollection[ShardCheck], PCollection[Finding] | None`: what each
    shard showed, and what the records show together (None where only frames are looked at, right
    where the tasks are, since they say nothing about records among each other).

    Args:
      contract: side input, what every record promises.
      depth: how deep to look.
    """

    def __init__(self, contract: beam.PCollection, depth: Depth) -> None:
        super().__init__()
        self._contract = contract
        self._depth = depth

    def expand(self, tasks: beam.PCollection) -> tuple[beam.PCollection, beam.PCollection | None]:
        """Applies the transform."""
        contract = beam.pvalue.AsSingleton(self._contract)
        if self._depth is Depth.FRAMES:
            return tasks | "CheckShard" >> beam.ParDo(
                _CheckShard(self._depth), contract, 0
            ).with_output_types(ShardCheck), None  # ShardCheck
        count = tasks | "CountShards" >> beam.combiners.Count.Globally()  # int
        checked = (
            tasks
            | "SpreadOut" >> beam.Reshuffle()  # ShardTask
            | "CheckShard"
            >> beam.ParDo(_CheckShard(self._depth), contract, beam.pvalue.AsSingleton(count)).with_outputs(
                _ROWS, main="checks"
            )
        )  # ShardCheck, ((what, bucket), rows)
        across = (
            checked[_ROWS]
            | "GroupByBucket" >> beam.GroupByKey()  # ((what, bucket), [rows])
            | "CompareBucket" >> beam.FlatMap(compare_bucket).with_output_types(Finding)  # Finding
        )
        return checked.checks, across


def make_report(
    checks: Iterable[ShardCheck],
    findings: Iterable[Finding],
    dataset: str,
    mode: str,
    fingerprint: str | None,
    fail_on: tuple[str, ...] = (),
) -> ValidationReport:
    """Sums up what the shards and their comparison showed."""
    checks = list(checks)
    counts, stored = summarise_findings(
        [*findings, *(finding for check in checks for finding in check.findings)]
    )
    return ValidationReport(
        dataset=dataset,
        mode=mode,
        fingerprint=fingerprint,
        shards=len(checks),
        records=sum(check.records for check in checks),
        bytes=sum(check.bytes for check in checks),
        counts=counts,
        findings=stored,
        fail_on=fail_on,
    )
