"""Finds equal source bytes in two splits or two classes from the ledgers alone, without reading shards."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from shardwright.schemas.codes import FindingCode
from shardwright.schemas.findings import Finding, FindingSummary
from shardwright.schemas.ledger import ShardResult
from shardwright.schemas.plan import Forecast, ledger_file
from shardwright.transforms import storage
from shardwright.transforms.validation.duplicate_keys import (
    bucket_rows,
    buckets_of_rows,
    compare_bucket,
    rows_of_ledger,
)
from shardwright.transforms.validation.duplicates import Bucket

_ROWS = "rows"


class CompareLedgers(beam.PTransform):
    """Compares the sources of all records. `PCollection[ShardResult] -> two of FindingSummary`.

    The first has findings about damaged ledgers, the second those about equal sources. It does not look for
    duplicate keys: planning the records already found those.

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
        shards = forecast.plan.shards
        # Records of a shard with one split and one class have no differences.
        if result.header.file and (len(shards) > 1 or len(forecast.plan.labels) > 1):
            yield from self._buckets(result, buckets_of_rows(sum(forecast.candidates.values())))

    def _buckets(self, result: ShardResult, count: int) -> Iterator[Any]:
        """Yields the rows of a shard's ledger by bucket, or a finding if the ledger is damaged."""
        ledger = ledger_file(*result.header.place)
        path = storage.join(self._directory, ledger)
        with storage.translated_errors("read", path):
            data = storage.read_bytes(path)
        try:
            rows = rows_of_ledger(data, result.header.split, result.header.file)
            packed = [*bucket_rows(rows, count, keys=False)]
        except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError) as error:
            message = f"its ledger {ledger} is damaged ({error})"
            yield FindingSummary().add([Finding(FindingCode.LEDGER_MISMATCH, message, result.header.file)])
        else:
            yield from (beam.pvalue.TaggedOutput(_ROWS, bucket) for bucket in packed)


def _compare(bucket: tuple[Bucket, Iterable[bytes]]) -> FindingSummary:
    return FindingSummary().add(compare_bucket(bucket))
