"""Compares records with each other as the pipeline does, without an engine."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from shardwright.core.validation import duplicates
from shardwright.schemas.findings import Finding
from shardwright.schemas.pictures import Picture


def compare_rows(
    shards: Iterable[Iterable[duplicates.ComparedRecord]], buckets: int = 1, keys: bool = True
) -> Iterator[Finding]:
    """Yields the findings about equal keys and sources."""
    packs = defaultdict(list)
    for rows in shards:
        for bucket, packed in duplicates.bucket_rows(rows, buckets, keys):
            packs[bucket].append(packed)
    for item in packs.items():
        yield from duplicates.compare_bucket(item)


def find_duplicates(pictures: Sequence[Picture], buckets: int = 16, seed: int = 0) -> list[Finding]:
    """Returns the findings: each file's pictures are bucketed separately, the rest in any order."""
    order = random.Random(seed)
    shards = defaultdict(list)
    for row in duplicates.measured_rows(pictures):
        shards[row.file].append(row)
    fingerprints, places, shared, grouped = (defaultdict(list) for _ in range(4))
    for shard in order.sample(list(shards.values()), len(shards)):
        for stage, packs in (
            (fingerprints, duplicates.bucketed_hashes(shard, buckets)),
            (places, duplicates.pictures_by_place(shard, buckets)),
        ):
            for bucket, pack_ in packs:
                stage[bucket].append(pack_)
    for item in fingerprints.items():
        for bucket, pack_ in duplicates.duplicate_candidates(item, buckets):
            shared[bucket].append(pack_)
    for bucket, packs in places.items():
        for meeting, rows in duplicates.pictures_that_share(packs, shared[bucket], buckets):
            grouped[meeting].append(rows)
    linked = defaultdict(list)
    for item in grouped.items():
        for number, links in duplicates.link_pictures(item, buckets):
            linked[number].append(links)
    items = [(number, order.sample(packs, len(packs))) for number, packs in linked.items()]
    return sorted(
        (finding for item in items for finding in duplicates.name_duplicates(item)), key=Finding.order
    )
