"""Checks shards, compares their records with each other, and yields checks, findings and statistics."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam

from shardwright.core import storage
from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.concurrency.resources import worker_threads
from shardwright.core.hash_buckets import UNKNOWN_RECORDS, bucket_count
from shardwright.core.lease import HeldLease
from shardwright.core.records.record_schema import RecordSchema, schema_of_plan
from shardwright.core.validation.duplicates import (
    Bucket,
    ComparedRecord,
    bucket_rows,
    bucketed_hashes,
    compare_bucket,
    duplicate_candidates,
    link_pictures,
    measured_rows,
    name_duplicates,
    pictures_by_place,
    pictures_that_share,
    rows_of_ledger,
)
from shardwright.core.validation.objects import drops_objects, find_dropped_objects
from shardwright.core.validation.outliers import (
    added_counts,
    check_balance,
    count_classes,
    count_sizes,
    find_outliers,
    sizes_of,
)
from shardwright.core.validation.shard import ShardCheck, ShardTask, check_shard
from shardwright.core.validation.stored_checks import check_and_store, sum_up
from shardwright.schemas.codes import CheckDepth, FindingCode
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.findings import Finding, FindingSummary
from shardwright.schemas.ledger import ShardResult, written_entries
from shardwright.schemas.plan import Forecast, ledger_file
from shardwright.schemas.statistics import Statistics
from shardwright.transforms.building_blocks import CallOnce, InThreads, composite, tagged

_FINDINGS, _ROWS, _STATISTICS = "findings", "rows", "statistics"
_HASHES, _PLACES, _SIZES, _CLASSES = "hashes", "places", "sizes", "classes"
#: Tags of the outputs besides the checks.
_TAGS = (_FINDINGS, _ROWS, _STATISTICS, _HASHES, _PLACES, _SIZES, _CLASSES)


class Validated(NamedTuple):
    """Outputs of a validation.

    Attributes:
      checks: PCollection of ShardCheck, without the values in the other outputs. None if no shard was read.
      findings: PCollection of FindingSummary, for single shards and for comparisons.
      statistics: PCollection of Statistics, one for each shard. None if no image was decoded.
    """

    checks: beam.PCollection[ShardCheck] | None
    findings: beam.PCollection[FindingSummary]
    statistics: beam.PCollection[Statistics] | None = None


class _CheckShard(InThreads):
    """Checks shards, as `ValidateShards` says."""

    def __init__(self, depth: CheckDepth, stores: bool, hold: HeldLease | None, summaries: bool) -> None:
        self._depth = depth
        self._stores = stores
        self._hold = hold
        self._summaries = summaries

    def setup(self) -> None:
        # If images are decoded, those of one shard keep the whole pool busy.
        self.start_threads(1 if self._depth >= CheckDepth.FULL else worker_threads())

    def process(self, task: ShardTask, schema: RecordSchema, buckets: int | None) -> Iterator[Any]:
        if self._hold is not None:
            self._hold.renew()
        yield from self.submit(self._check, task, schema, buckets)

    def _check(self, task: ShardTask, schema: RecordSchema, buckets: int | None) -> list[Any]:
        depth = self._depth
        if self._stores and depth >= CheckDepth.FAST:
            check = check_and_store(task, schema, depth, self._hold)
        else:
            check = sum_up(check_shard(task, schema, depth), depth)
        return [*self._outputs(check, buckets)]

    def _outputs(self, check: ShardCheck, buckets: int | None) -> Iterator[Any]:
        """Yields the outputs of the step for a shard; without buckets, no rows to compare."""
        if buckets is not None:
            yield from tagged(_ROWS, bucket_rows(_rows(check, self._depth), buckets))
        if buckets is not None and self._depth >= CheckDepth.QUALITY:
            rows = measured_rows(check.pictures)
            yield from tagged(_HASHES, bucketed_hashes(rows, buckets))
            yield from tagged(_PLACES, pictures_by_place(rows, buckets))
            yield beam.pvalue.TaggedOutput(_SIZES, sizes_of(check.file, check.pictures))
            yield beam.pvalue.TaggedOutput(_CLASSES, count_classes(check.pictures))
            yield beam.pvalue.TaggedOutput(_STATISTICS, check.statistics)
        count = sum(check.summary.counts.values())
        if count:
            yield beam.pvalue.TaggedOutput(_FINDINGS, check.summary)
        PROGRESS.add(checked_records=check.records, checked_shards=1, findings=count)
        summary = check.ledger_summary if self._summaries else None
        yield ShardCheck(
            check.file, check.split, check.records, check.bytes, ledger_summary=summary, stored=check.stored
        )


@composite
def GroupPicturesThatShare(
    seen: tuple[beam.PCollection[tuple[int, bytes]], beam.PCollection[tuple[int, bytes]]],
    buckets: int | beam.pvalue.AsSingleton,
) -> beam.PCollection[tuple[Bucket, Iterable[bytes]]]:
    """Brings images together that share a value: `two PCollections -> PCollection[((what, bucket), [rows])]`.

    Args:
      seen: PCollections of (bucket, values that others may share) and (bucket, images).
      buckets: Number of buckets, or a side input of it.
    """
    hashes, places = seen
    shared = (
        hashes
        | "GroupHashes" >> beam.GroupByKey()  # (bucket, [hashes])
        | "FindShared" >> beam.FlatMap(duplicate_candidates, buckets).with_output_types(tuple[int, bytes])
    )  # (bucket, shared)
    return (
        {"pictures": places, "shared": shared}
        | "GroupPlaces" >> beam.CoGroupByKey()  # (bucket, {pictures, shared})
        | "PicturesThatShare"
        >> beam.FlatMap(
            lambda met, buckets: pictures_that_share(met[1]["pictures"], met[1]["shared"], buckets),
            buckets,
        ).with_output_types(tuple[Bucket, bytes])  # ((what, bucket), rows)
        | "GroupByValue" >> beam.GroupByKey()  # ((what, bucket), [rows])
    )


@composite
def CompareImages(
    seen: tuple[beam.PCollection[Any], ...],
    schema: beam.PCollection[RecordSchema],
    buckets: beam.PCollection[int],
) -> beam.PCollection[FindingSummary]:
    """Compares images with each other: `four PCollections -> PCollection[FindingSummary]`.

    Finds duplicates, outliers, and unbalanced classes.

    Args:
      seen: PCollections of (bucket, values that others may share), (bucket, images), ShardSizes and
        ClassCounts.
      schema: PCollection of the one record schema.
      buckets: PCollection of the one number of buckets.
    """
    buckets = beam.pvalue.AsSingleton(buckets)
    hashes, places, all_sizes, classes = seen
    duplicates = (
        (hashes, places)
        | "GroupPictures" >> GroupPicturesThatShare(buckets)  # ((what, bucket), [rows])
        | "LinkPictures"
        >> beam.FlatMap(link_pictures, buckets).with_output_types(tuple[int, bytes])  # (bucket, links)
        | "GroupLinks" >> beam.GroupByKey()  # (bucket, [links])
        | "NameDuplicates" >> beam.Map(_summing(name_duplicates))
    )  # FindingSummary
    sizes = (
        all_sizes
        | "CountSizes" >> beam.Map(count_sizes)  # SizeCounts
        | "AddSizes" >> beam.CombineGlobally(added_counts).as_singleton_view()
    )  # SizeCounts
    outliers = all_sizes | "FindOutliers" >> beam.Map(_summing(find_outliers), sizes)  # FindingSummary
    balance = (
        classes
        | "CountClasses" >> beam.CombineGlobally(added_counts)  # ClassCounts
        | "CheckBalance"
        >> beam.Map(
            _summing(lambda counts, schema: check_balance(counts, schema.classes)),
            beam.pvalue.AsSingleton(schema),
        )
    )  # FindingSummary
    return (duplicates, outliers, balance) | "FindingsOfImages" >> beam.Flatten()  # FindingSummary


@composite
def ValidateShards(
    tasks: beam.PCollection[ShardTask],
    schema: beam.PCollection[RecordSchema],
    depth: CheckDepth,
    stores: bool = False,
    hold: HeldLease | None = None,
    summaries: bool = False,
) -> Validated:
    """Checks every shard, and compares the records with each other.

    `PCollection[ShardTask] -> Validated`. A check of frames only runs where the tasks are, because it
    compares no records.

    Args:
      tasks: The shards.
      schema: PCollection of the one record schema.
      depth: Depth of the check.
      stores: Whether to store the results beside the shards, and to skip shards with a stored result.
      hold: Lease that the run must hold to store results, and renews meanwhile. None if it needs no lease.
      summaries: Whether the checks contain the summaries of the ledgers. A summary takes 6 kB, and more with
        many classes, and one step holds all checks.
    """
    buckets = None
    if depth > CheckDepth.FRAMES:
        counts = tasks | "CountRecords" >> beam.Map(
            lambda task: UNKNOWN_RECORDS if task.expected is None else task.expected.records
        ).with_output_types(int)  # int
        buckets = tasks.pipeline | "ChooseBuckets" >> CallOnce(
            lambda counts: bucket_count(sum(counts)), beam.pvalue.AsIter(counts)
        ).with_output_types(int)  # int
        tasks = tasks | "SpreadOut" >> beam.Reshuffle()  # ShardTask
    checked = tasks | "CheckShard" >> beam.ParDo(
        _CheckShard(depth, stores, hold, summaries),
        beam.pvalue.AsSingleton(schema),
        None if buckets is None else beam.pvalue.AsSingleton(buckets),
    ).with_output_types(ShardCheck).with_outputs(*_TAGS, main="checks")
    # ShardCheck; FindingSummary; ((what, bucket), rows); Statistics; (bucket, hashes);
    # (bucket, pictures); ShardSizes; ClassCounts
    findings = [checked[_FINDINGS]]
    if depth >= CheckDepth.FAST:
        findings.append(
            checked[_ROWS]
            | "GroupByBucket" >> beam.GroupByKey()  # ((what, bucket), [rows])
            | "CompareBucket" >> beam.Map(_summing(compare_bucket))
        )  # FindingSummary
    if depth >= CheckDepth.QUALITY:
        seen = tuple(checked[name] for name in (_HASHES, _PLACES, _SIZES, _CLASSES))
        findings.append(seen | "CompareImages" >> CompareImages(schema, buckets))  # FindingSummary
    together = findings | "FindingsOfRecords" >> beam.Flatten().with_output_types(
        FindingSummary
    )  # FindingSummary
    statistics = checked[_STATISTICS] if depth >= CheckDepth.QUALITY else None
    return Validated(checked.checks, together, statistics)


@composite
def CompareLedgers(
    results: beam.PCollection[ShardResult], directory: str, forecast: beam.PCollection[Forecast]
) -> tuple[beam.PCollection[FindingSummary], beam.PCollection[FindingSummary]]:
    """Compares the sources of all records. `PCollection[ShardResult] -> two of FindingSummary`.

    Equal sources and dropped objects are found from the ledgers alone, without reading shards. The first
    result has findings about damaged ledgers and dropped objects, the second those about equal sources. It
    does not look for duplicate keys: planning the records already found those.

    Args:
      results: The shards.
      directory: Directory that contains the shards.
      forecast: PCollection of the one Forecast.
    """
    read = beam.FlatMap(_read_ledger, beam.pvalue.AsSingleton(forecast), directory).with_output_types(
        FindingSummary
    )
    rows = results | "ReadLedger" >> read.with_outputs(_ROWS, main="damaged")
    # FindingSummary, ((what, bucket), rows)
    equal = (
        rows[_ROWS]
        | "GroupBySource" >> beam.GroupByKey()  # ((what, bucket), [rows])
        | "CompareSources" >> beam.Map(_summing(compare_bucket)).with_output_types(FindingSummary)
    )  # FindingSummary
    return rows.damaged, equal


def _read_ledger(result: ShardResult, forecast: Forecast, directory: str) -> Iterator[Any]:
    """Yields the rows of a shard's ledger by bucket, and findings about it."""
    header = result.header
    # Records of a dataset with one split and one class have no differences.
    compares = len(forecast.plan.shards) > 1 or len(forecast.plan.labels) > 1
    drops = drops_objects(header)
    if not header.file or not (compares or drops):
        return
    ledger = ledger_file(*header.place)
    data = storage.read_existing(storage.join(directory, ledger))
    try:
        rows = rows_of_ledger(written_entries(data), header.split, header.file)
        packed = [*bucket_rows(rows, bucket_count(forecast.total), keys=False)]
        lost = [*find_dropped_objects(written_entries(data), header.file)] if drops else []
    except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError) as error:
        message = f"its ledger {ledger} is damaged ({error})"
        yield FindingSummary().add([Finding(FindingCode.LEDGER_MISMATCH, message, header.file)])
    else:
        if lost:
            yield FindingSummary().add(lost)
        yield from tagged(_ROWS, packed)


@composite
def VerifyShards(
    results: beam.PCollection[ShardResult],
    forecast: beam.PCollection[Forecast],
    directory: str,
    settings: ConvertSettings,
    tasks_of: Callable[..., Iterable[ShardTask]],
    *sides: beam.pvalue.AsSideInput,
    stores: bool = False,
    hold: HeldLease | None = None,
) -> Validated:
    """Reads written shards back, as `--verify` says. `PCollection[ShardResult] -> Validated`.

    Args:
      results: The shards.
      forecast: PCollection of the one Forecast.
      directory: Directory of the shards.
      settings: Checked settings.
      tasks_of: Returns the shards to read for a result, given the side inputs.
      *sides: Side inputs of `tasks_of`.
      stores: Whether to store the results beside the shards, and to skip shards with a stored result.
      hold: Lease that the run must hold to store results, and renews meanwhile. None if it needs no lease.
    """
    depth, layout = CheckDepth.of_verification(settings.verify), settings.record_layout
    checks = statistics = None
    findings: list[beam.PCollection[FindingSummary]] = []
    if depth is not CheckDepth.NONE:
        schema = forecast | "NameSchema" >> beam.Map(
            lambda forecast: schema_of_plan(layout.features, layout.first_label, forecast.plan)
        ).with_output_types(RecordSchema)  # RecordSchema
        tasks = results | "NameShardTasks" >> beam.FlatMap(tasks_of, *sides).with_output_types(
            ShardTask
        )  # ShardTask
        checks, summaries, statistics = tasks | "ValidateShards" >> ValidateShards(
            schema, depth, stores, hold
        )  # ShardCheck; FindingSummary; Statistics
        findings.append(summaries)
    if depth <= CheckDepth.FRAMES:  # a deeper check compares the records
        compare = CompareLedgers(directory, forecast)
        findings += results | "CompareLedgers" >> compare  # FindingSummary
    together = findings | "AllFindings" >> beam.Flatten().with_output_types(FindingSummary)  # FindingSummary
    return Validated(checks, together, statistics)


def _rows(check: ShardCheck, depth: CheckDepth) -> list[ComparedRecord]:
    """Returns the records to compare; images with quality metrics are compared elsewhere by source.

    There only the classes of whole images count. So images without such a class are compared here, with
    each other, by the classes of their objects.
    """
    if depth < CheckDepth.QUALITY:
        return check.rows
    labels = {picture.number: picture.labels for picture in check.pictures}
    rows = []
    for row in check.rows:
        if row.number in labels:
            of_objects = row.labels and not labels[row.number]
            row = row._replace(split="", source=f"objects {row.source}" if of_objects else None)
        rows.append(row)
    return rows


def _summing(find: Callable[..., Iterable[Finding]]) -> Callable[..., FindingSummary]:
    """Returns a function that sums up the findings of another one."""
    return lambda *args: FindingSummary().add(find(*args))
