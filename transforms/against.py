"""`CompareWithSource`: compares a dataset with its source and yields findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.hash_buckets import bucket_count
from shardwright.core.plan.assign import ShardId, check_keys
from shardwright.core.sources.source import Context
from shardwright.core.validation import against
from shardwright.schemas.codes import Outcome, QuarantineReason
from shardwright.schemas.findings import Finding, FindingSummary
from shardwright.schemas.image_ref import NO_SPLIT, EncodedRefs, decode_refs
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plan import Forecast
from shardwright.transforms.building_blocks import composite, tagged
from shardwright.transforms.plan import AssignShards, ListImages

_LEFTOVERS = "leftovers"


def _compare_shard(
    grouped: tuple[ShardId, Iterable[EncodedRefs]], comparison: against.Comparison
) -> Iterator[Any]:
    """Compares a shard with the images that the plan places there."""
    place, packs = grouped[0], list(grouped[1])
    if place[0] == NO_SPLIT:  # files without a key of their own never had a record
        return
    sum(check_keys((place, packs)))
    refs = [ref for pack in packs for ref in decode_refs(pack)]
    buckets = bucket_count(comparison.dataset.all_records)
    yield from _sorted(against.compare_shard(*place, refs, comparison), against.KEY, buckets)


def _sorted(items: Iterable[Finding | against.Leftover], what: str, buckets: int) -> Iterator[Any]:
    """Yields findings as a summary, and leftovers packed by bucket under their own tag."""
    leftovers: list[against.Leftover] = []

    def findings() -> Iterator[Finding]:
        for item in items:
            if isinstance(item, against.Leftover):
                leftovers.append(item)
            else:
                yield item

    summary = FindingSummary().add(findings())  # keeps the first ones only
    yield from tagged(_LEFTOVERS, against.bucket_leftovers(leftovers, what, buckets))
    PROGRESS.add(findings=sum(summary.counts.values()))
    if summary.counts:
        yield summary


@composite
def CompareWithSource(
    begin: beam.pvalue.PBegin, comparison: against.Comparison
) -> beam.PCollection[FindingSummary]:
    """Lists the source again and compares it with the dataset. `PBegin -> PCollection[FindingSummary]`.

    Images and records meet by shard, because an image's shard is a function of its key and the plan. Those
    without a match there may have moved: they meet by key, then by the source's checksum.

    Args:
      begin: The pipeline.
      comparison: The comparison.
    """
    settings, plan = comparison.settings, comparison.dataset.plan
    buckets = bucket_count(comparison.dataset.all_records)
    # An image of a class that --class_names did not list cannot have copies. A class may also be missing
    # because all of its images were copies, but then no image was quarantined for its class.
    bad = comparison.dataset.ledger.get("reasons", {}).get(Outcome.QUARANTINED, {})
    listed = settings.record_layout.needs is Needs.LABEL and QuarantineReason.UNKNOWN_LABEL in bad
    fatal = plan.labels if listed else ()
    batches, *_ = begin | "ListImages" >> ListImages(
        comparison.inputs, Context(settings, comparison.spool, comparison.rules), fatal
    )  # EncodedRefs; ClassId; RuleMatches; ListingDigest
    carried = Forecast(plan, comparison.images)
    forecast = begin | "CarriedPlan" >> beam.Create([carried], reshuffle=False)  # Forecast
    compared = (
        batches
        | "AssignShards" >> AssignShards(settings, forecast)  # ((split, shard), [EncodedRefs])
        | "CompareShard" >> beam.FlatMap(_compare_shard, comparison).with_outputs(_LEFTOVERS, main="findings")
    )  # FindingSummary, ((what, bucket), leftovers)
    by_key = (
        compared[_LEFTOVERS]
        | "GroupByKeyOfImage" >> beam.GroupByKey()  # ((what, bucket), [leftovers])
        | "MeetByKey"
        >> beam.FlatMap(lambda bucket: _sorted(against.meet(bucket), against.SOURCE, buckets)).with_outputs(
            _LEFTOVERS, main="findings"
        )
    )  # FindingSummary, ((what, bucket), leftovers)
    by_source = (
        by_key[_LEFTOVERS]
        | "GroupBySource" >> beam.GroupByKey()  # ((what, bucket), [leftovers])
        | "MeetBySource"
        >> beam.Map(
            lambda bucket: FindingSummary().add(
                item.finding if isinstance(item, against.Leftover) else item for item in against.meet(bucket)
            )
        )
    )  # FindingSummary
    differences = (compared.findings, by_key.findings, by_source)
    return differences | "AllDifferences" >> beam.Flatten()  # FindingSummary
