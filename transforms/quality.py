"""Findings of `--quality`: odd images, duplicates, outliers, and unbalanced classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam

from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.validation.duplicates import (
    Bucket,
    duplicate_candidates,
    link_pictures,
    name_duplicates,
    pictures_that_share,
)
from shardwright.core.validation.outliers import (
    ClassCounts,
    ShardSizes,
    Sizes,
    check_balance,
    find_outliers,
)
from shardwright.core.validation.shard import ShardTotals
from shardwright.schemas.findings import FindingSummary
from shardwright.transforms.merging import MergeAll


class SeenPictures(NamedTuple):
    """Values of images that are compared, packed by shard.

    Attributes:
      fingerprints: PCollection of (bucket, values that others may share).
      places: PCollection of (bucket, images).
      sizes: PCollection of ShardSizes.
      classes: PCollection of ClassCounts.
    """

    fingerprints: beam.PCollection
    places: beam.PCollection
    sizes: beam.PCollection
    classes: beam.PCollection


class CompareImages(beam.PTransform):
    """Compares images with each other: `SeenPictures -> PCollection[FindingSummary]`.

    Args:
      schema: Side input of the record schema.
      totals: Side input of the ShardTotals of the validation.
    """

    def __init__(self, schema: Any, totals: Any) -> None:
        super().__init__()
        self._schema = schema
        self._totals = totals

    def expand(self, seen: SeenPictures) -> beam.PCollection:
        """Applies the transform."""
        fingerprints, places, shards, classes = seen
        shared = (
            fingerprints
            | "GroupPrints" >> beam.GroupByKey()  # (bucket, [fingerprints])
            | "FindShared" >> beam.FlatMap(_shared, self._totals)
        )  # (bucket, shared)
        duplicates = (
            {"pictures": places, "shared": shared}
            | "GroupPlaces" >> beam.CoGroupByKey()  # (bucket, {pictures, shared})
            | "PicturesThatShare" >> beam.FlatMap(_meeting, self._totals)  # ((what, bucket), rows)
            | "GroupPictures" >> beam.GroupByKey()  # ((what, bucket), [rows])
            | "LinkPictures" >> beam.FlatMap(_link, self._totals)  # (bucket, links)
            | "GroupLinks" >> beam.GroupByKey()  # (bucket, [links])
            | "NameDuplicates" >> beam.Map(_name)
        )  # FindingSummary
        count = beam.CombineGlobally(MergeAll(Sizes, Sizes.add)).as_singleton_view()
        sizes = shards | "CountSizes" >> count  # Sizes
        outliers = shards | "FindOutliers" >> beam.Map(_outliers, sizes)  # FindingSummary
        balance = (
            classes
            | "CountClasses" >> beam.CombineGlobally(MergeAll(ClassCounts))  # ClassCounts
            | "CheckBalance" >> beam.Map(_balance, self._schema)
        )  # FindingSummary
        return (duplicates, outliers, balance) | "FindingsOfImages" >> beam.Flatten()  # FindingSummary


def _shared(bucket: tuple[int, Iterable[bytes]], totals: ShardTotals) -> Iterator[tuple[int, bytes]]:
    yield from duplicate_candidates(bucket, totals.buckets)


def _meeting(
    place: tuple[int, Mapping[str, Iterable[bytes]]], totals: ShardTotals
) -> Iterator[tuple[Bucket, bytes]]:
    _, met = place
    yield from pictures_that_share(met["pictures"], met["shared"], totals.buckets)


def _link(bucket: tuple[Bucket, Iterable[bytes]], totals: ShardTotals) -> Iterator[tuple[int, bytes]]:
    yield from link_pictures(bucket, totals.buckets)


def _name(bucket: tuple[int, Iterable[bytes]]) -> FindingSummary:
    return FindingSummary().add(name_duplicates(bucket))


def _outliers(shard: ShardSizes, sizes: Sizes) -> FindingSummary:
    return FindingSummary().add(find_outliers(shard, sizes))


def _balance(counts: ClassCounts, schema: RecordSchema) -> FindingSummary:
    return FindingSummary().add(check_balance(counts, schema.classes))
