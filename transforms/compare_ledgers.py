"""Finds equal source bytes and dropped objects from the ledgers alone, without reading shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from shardwright.core import storage
from shardwright.core.validation.duplicate_keys import (
    bucket_rows,
    buckets_of_rows,
    compare_bucket,
    rows_of_entries,
)
from shardwright.core.validation.duplicates import Bucket
from shardwright.core.validation.objects import dropped_objects, drops_objects
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.findings import Finding, FindingSummary
from shardwright.schemas.ledger import ShardResult, written_entries
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
        header = result.header
        ledger = ledger_file(*header.place)
        path = storage.join(self._directory, ledger)
        with storage.translated_errors("read", path):
            data = storage.read_bytes(path)
        try:
            entries = written_entries(data, header.sha256)
        except ValueError as error:
            message = f"its ledger {ledger} cannot be used: {error}"
            yield FindingSummary().add([Finding(FindingCode.LEDGER_MISMATCH, message, header.file)])
            return
        if drops_objects(header):
            yield FindingSummary().add(
                Finding(FindingCode.OBJECTS_DROPPED, message, header.file, number, entry.offset, entry.key)
                for number, entry in enumerate(entries)
                if (message := dropped_objects(entry))
            )
        for bucket in bucket_rows(rows_of_entries(entries, header.split, header.file), count, keys=False):
            yield beam.pvalue.TaggedOutput(_ROWS, bucket)


def _compare(bucket: tuple[Bucket, Iterable[bytes]]) -> FindingSummary:
    return FindingSummary().add(compare_bucket(bucket))
