"""Finds equal source bytes and dropped objects from the ledgers alone, without reading shards."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from shardwright.core import storage
from shardwright.core.validation.duplicate_keys import (
    bucket_rows,
    buckets_of_rows,
    compare_bucket,
    rows_of_ledger,
)
from shardwright.core.validation.duplicates import Bucket
from shardwright.core.validation.objects import drops_objects, find_dropped_objects
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.findings import Finding, FindingSummary
from shardwright.schemas.ledger import ShardResult
from shardwright.schemas.plan import Forecast, ledger_file

_ROWS = "rows"


class CompareLedgers(beam.PTransform):
    """Compares the sources of all records. `PCollection[ShardResult] -> two of FindingSummary`.

    The first has findings about damaged ledgers and dropped objects, the second those about equal sources. It
    does not look for duplicate keys: planning the records already found those.

    Args:
      directory: Directory that contains the shards.
      forecast: Side input of the one Forecast.
    """

    def __init__(self, directory: str, forecast: Any) -> None:
        super().__init__()
        self._directory = directory
        self._forecast = forecast

    def expand(self, results: beam.PCollection) -> tuple[beam.PCollection, beam.PCollection]:
        """Applies the transform."""
        step = beam.ParDo(_ReadLedger(self._directory), self._forecast)
        read = step.with_output_types(FindingSummary)
        found = results | "ReadLedger" >> read.with_outputs(_ROWS, main="damaged")
        # FindingSummary, ((what, bucket), rows)
        equal = (
            found[_ROWS]
            | "GroupBySource" >> beam.GroupByKey()  # ((what, bucket), [rows])
            | "CompareSources" >> beam.Map(_compare).with_output_types(FindingSummary)
        )  # FindingSummary
        return found.damaged, equal


class _ReadLedger(beam.DoFn):
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def process(self, result: ShardResult, forecast: Forecast) -> Iterator[Any]:
        # Records of a dataset with one split and one class have no differences.
        compares = len(forecast.plan.shards) > 1 or len(forecast.plan.labels) > 1
        if result.header.file and (compares or drops_objects(result.header)):
            yield from self._read(result, buckets_of_rows(sum(forecast.candidates.values())))

    def _read(self, result: ShardResult, count: int) -> Iterator[Any]:
        """Yields the rows of a shard's ledger by bucket, and findings about it."""
        ledger = ledger_file(*result.header.place)
        path = storage.join(self._directory, ledger)
        with storage.translated_errors("read", path):
            data = storage.read_bytes(path)
        try:
            rows = rows_of_ledger(data, result.header.split, result.header.file)
            packed = [*bucket_rows(rows, count, keys=False)]
            dropped = drops_objects(result.header)
            lost = [*find_dropped_objects(data, result.header.file)] if dropped else []
        except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError) as error:
            message = f"its ledger {ledger} is damaged ({error})"
            yield FindingSummary().add([Finding(FindingCode.LEDGER_MISMATCH, message, result.header.file)])
        else:
            if lost:
                yield FindingSummary().add(lost)
            yield from (beam.pvalue.TaggedOutput(_ROWS, bucket) for bucket in packed)


def _compare(bucket: tuple[Bucket, Iterable[bytes]]) -> FindingSummary:
    return FindingSummary().add(compare_bucket(bucket))
