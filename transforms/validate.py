"""`ValidateShards`: checks shards, and yields checks, findings and statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam

from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.lease import HeldLease
from shardwright.core.records.record_schema import RecordSchema, schema_of_plan
from shardwright.core.validation.duplicate_keys import ComparedRecord, bucket_rows, compare_bucket
from shardwright.core.validation.duplicates import Bucket, bucketed_fingerprints, pictures_by_place
from shardwright.core.validation.outliers import ClassCounts, sizes_of
from shardwright.core.validation.shard import ShardCheck, ShardTask, ShardTotals, check_shard
from shardwright.core.validation.stored_checks import (
    sound_records,
    store_check,
    stored_check,
    sum_up,
)
from shardwright.schemas.check_depths import CheckDepth
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.findings import FindingSummary
from shardwright.transforms.compare_ledgers import CompareLedgers
from shardwright.transforms.merging import MergeAll
from shardwright.transforms.quality import CompareImages, SeenPictures

_FINDINGS, _ROWS, _STATISTICS = "findings", "rows", "statistics"
_FINGERPRINTS, _PLACES, _SIZES, _CLASSES = "prints", "places", "sizes", "classes"
#: Tags of the outputs besides the checks.
_TAGS = (_FINDINGS, _ROWS, _STATISTICS, _FINGERPRINTS, _PLACES, _SIZES, _CLASSES)


class Validated(NamedTuple):
    """Outputs of a validation.

    Attributes:
      checks: PCollection of ShardCheck, without the values in the other outputs.
      findings: PCollection of FindingSummary, for single shards and for comparisons.
      statistics: PCollection of Statistics, one for each shard. None if no image was decoded.
    """

    checks: beam.PCollection
    findings: beam.PCollection
    statistics: beam.PCollection | None = None


class _CheckShard(beam.DoFn):
    def __init__(self, depth: CheckDepth, stores: bool, hold: HeldLease | None, summaries: bool) -> None:
        self._depth = depth
        self._stores = stores
        self._hold = hold
        self._summaries = summaries

    def process(self, task: ShardTask, schema: RecordSchema, totals: ShardTotals | None) -> Iterator[Any]:
        check = self._check(task, schema)
        if totals is not None:
            for bucket in bucket_rows(_rows(check, self._depth), totals.buckets_of_rows):
                yield beam.pvalue.TaggedOutput(_ROWS, bucket)
        if totals is not None and self._depth >= CheckDepth.QUALITY:
            buckets = totals.buckets
            for fingerprints in bucketed_fingerprints(check.pictures, buckets):
                yield beam.pvalue.TaggedOutput(_FINGERPRINTS, fingerprints)
            for pictures in pictures_by_place(check.pictures, buckets):
                yield beam.pvalue.TaggedOutput(_PLACES, pictures)
            yield beam.pvalue.TaggedOutput(_SIZES, sizes_of(check.file, check.pictures))
            yield beam.pvalue.TaggedOutput(_CLASSES, ClassCounts().add(check.pictures))
            yield beam.pvalue.TaggedOutput(_STATISTICS, check.statistics)
        found = sum(check.summary.counts.values())
        if found:
            yield beam.pvalue.TaggedOutput(_FINDINGS, check.summary)
        PROGRESS.add(checked_records=check.records, checked_shards=1, findings=found)
        yield ShardCheck(
            check.file,
            check.split,
            check.records,
            check.bytes,
            ledger_summary=check.ledger_summary if self._summaries else None,
            stored=check.stored,
        )

    def _check(self, task: ShardTask, schema: RecordSchema) -> ShardCheck:
        """Checks a shard, or returns the stored result of an earlier check."""
        depth = self._depth
        if not self._stores or depth < CheckDepth.FAST:
            return sum_up(check_shard(task, schema, depth), depth)
        known = stored_check(task, schema, depth)
        if known is not None:
            return known
        # A check that decodes no image cannot save anything with the digests of sound records.
        sound = sound_records(task, schema, depth) if depth >= CheckDepth.FULL else None
        checked = sum_up(check_shard(task, schema, depth, sound), depth)
        checked.stored = store_check(task, schema, depth, checked, self._hold)
        return checked


class ValidateShards(beam.PTransform):
    """Checks every shard, and compares the records with each other.

    `PCollection[ShardTask] -> Validated`. A check of frames only runs where the tasks are, because it
    compares no records.

    Args:
      schema: Side input of the record schema.
      depth: Depth of the check.
      stores: Whether to store the results beside the shards, and to skip shards with a stored result.
      hold: Lease that the run must hold to store results. None if it needs no lease.
      summaries: Whether the checks contain the summaries of the ledgers. A summary takes 6 kB, and more with
        many classes, and one step holds all checks.
    """

    def __init__(
        self,
        schema: beam.PCollection,
        depth: CheckDepth,
        stores: bool = False,
        hold: HeldLease | None = None,
        summaries: bool = False,
    ) -> None:
        super().__init__()
        self._schema = schema
        self._depth = depth
        self._stores = stores
        self._hold = hold
        self._summaries = summaries

    def expand(self, tasks: beam.PCollection) -> Validated:
        """Applies the transform."""
        schema = beam.pvalue.AsSingleton(self._schema)
        totals: Any = None
        if self._depth > CheckDepth.FRAMES:
            sums = MergeAll(ShardTotals, ShardTotals.add).with_output_types(ShardTotals)
            totals = tasks | "CountShards" >> beam.CombineGlobally(sums).as_singleton_view()  # ShardTotals
            tasks = tasks | "SpreadOut" >> beam.Reshuffle()  # ShardTask
        do = _CheckShard(self._depth, self._stores, self._hold, self._summaries)
        check = beam.ParDo(do, schema, totals).with_output_types(ShardCheck)
        checked = tasks | "CheckShard" >> check.with_outputs(*_TAGS, main="checks")
        # ShardCheck, FindingSummary, ((what, bucket), rows), Statistics, ...
        findings = [checked[_FINDINGS]]
        if self._depth >= CheckDepth.FAST:
            findings.append(
                checked[_ROWS]
                | "GroupByBucket" >> beam.GroupByKey()  # ((what, bucket), [rows])
                | "CompareBucket" >> beam.Map(_compare)
            )  # FindingSummary
        if self._depth >= CheckDepth.QUALITY:
            seen = SeenPictures(*(checked[name] for name in (_FINGERPRINTS, _PLACES, _SIZES, _CLASSES)))
            findings.append(seen | "CompareImages" >> CompareImages(schema, totals))  # FindingSummary
        together = findings[0]
        if len(findings) > 1:
            flatten = beam.Flatten().with_output_types(FindingSummary)
            together = findings | "FindingsOfRecords" >> flatten  # FindingSummary
        return Validated(
            checked.checks, together, checked[_STATISTICS] if self._depth >= CheckDepth.QUALITY else None
        )


def verify_results(
    results: beam.PCollection,
    forecast: beam.PCollection,
    directory: str,
    settings: ConvertSettings,
    tasks_of: Callable[..., Iterable[ShardTask]],
    *sides: beam.pvalue.AsSideInput,
    stores: bool = False,
    hold: HeldLease | None = None,
) -> tuple[beam.PCollection | None, list[beam.PCollection], beam.PCollection | None]:
    """Adds the steps that read written shards back, as `--verify` says.

    Args:
      results: PCollection of ShardResult.
      forecast: PCollection of the one Forecast.
      directory: Directory of the shards.
      settings: Checked settings.
      tasks_of: Returns the shards to read for a result, given the side inputs.
      *sides: Side inputs of `tasks_of`.
      stores: Whether to store the results beside the shards, and to skip shards with a stored result.
      hold: Lease that the run must hold to store results. None if it needs no lease.

    Returns:
      PCollections of ShardCheck, of FindingSummary (several), and of Statistics. None for what `--verify`
      does not ask for.
    """
    depth, layout = CheckDepth.of_verification(settings.verify), settings.record_layout
    checks = statistics = None
    findings: list[beam.PCollection] = []
    if depth is not CheckDepth.NONE:
        schema = forecast | "NameSchema" >> beam.Map(
            lambda forecast: schema_of_plan(layout.features, layout.first_label, forecast.plan)
        ).with_output_types(RecordSchema)  # RecordSchema
        tasks = results | "NameShardTasks" >> beam.FlatMap(tasks_of, *sides).with_output_types(
            ShardTask
        )  # ShardTask
        checks, found, statistics = tasks | "VerifyShards" >> ValidateShards(schema, depth, stores, hold)
        # ShardCheck, FindingSummary, Statistics
        findings.append(found)
    if depth <= CheckDepth.FRAMES:  # a deeper check compares the records
        compare = CompareLedgers(directory, beam.pvalue.AsSingleton(forecast))
        findings += results | "CompareLedgers" >> compare  # FindingSummary
    return checks, findings, statistics


def _rows(check: ShardCheck, depth: CheckDepth) -> list[ComparedRecord]:
    """Returns the records to compare; images with quality metrics are compared elsewhere by source."""
    if depth < CheckDepth.QUALITY:
        return check.rows
    looked = {picture.number for picture in check.pictures}
    return [row._replace(source=None) if row.number in looked else row for row in check.rows]


def _compare(bucket: tuple[Bucket, Iterable[bytes]]) -> FindingSummary:
    return FindingSummary().add(compare_bucket(bucket))
