"""`DedupeNear`: keeps one of several images that look alike, the largest.

Every image is read and decoded once, small if its format allows that, for a fingerprint of 320 bytes
(`images/near_duplicates.py`). Fingerprints are compared as a validation compares those of records:

    FingerprintSources     -> pictures, and the digests of their bands
    GroupPicturesThatShare -> the pictures that share a band with another one
    LinkSimilar            -> pairs of keys, after comparing all pictures that share a band
    JoinGroups             -> key of a copy -> key of the image that is kept

A validation has the second step, too. Here, the picture of an image states its batch as its file, and its
number of pixels as its offset.

Images that are linked directly or through others form a group. So no two images of a group are kept, and none
can be in two splits.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import apache_beam as beam

from shardwright.core.conversion import Fingerprint, ShardRecipe, fingerprint_read, map_reads
from shardwright.core.images.near_duplicates import alike
from shardwright.core.validation.duplicates import (
    MAX_IN_BAND,
    Bucket,
    ComparedRecord,
    band_number,
    bucketed_fingerprints,
    pictures_by_place,
    shared_rows,
)
from shardwright.core.validation.shard import ShardTotals
from shardwright.schemas.codes import Outcome
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import EncodedRefs, decode_refs, encode_refs
from shardwright.schemas.key_rules import KeyRules
from shardwright.schemas.pictures import ImageQuality, Picture
from shardwright.transforms.building_blocks import composite
from shardwright.transforms.validate import GroupPicturesThatShare

#: Number of buckets in which values meet, and so of workers that can share the comparison.
_BUCKETS = 512
_NAME_BYTES = 8
_FINGERPRINTS = "prints"
#: An image of a pair: negative number of pixels, and key, so that the image that is kept is the smallest.
Ranked = tuple[int, str]


def _fingerprint_sources(
    batch: EncodedRefs, recipe: ShardRecipe, class_names: frozenset[str]
) -> Iterator[Any]:
    """Yields the pictures of a batch by its bucket, and the digests of their bands by their own buckets."""
    # An image of an unknown class is quarantined, so no copy may be removed in its favor.
    refs = [
        ref
        for ref in decode_refs(batch)
        if ref.is_candidate and (not class_names or class_names.issuperset(ref.labels))
    ]
    reads = map_reads(partial(fingerprint_read, recipe.settings), refs, recipe)
    # A batch that is processed again gets the same name.
    name = hashlib.blake2b("\n".join(ref.key for ref in refs).encode(), digest_size=_NAME_BYTES).hexdigest()
    pictures = [
        picture_of(name, place, ref.key, seen)
        for place, (ref, seen) in enumerate(zip(refs, reads, strict=True))
        if seen is not None
    ]
    yield from pictures_by_place(pictures, _BUCKETS)
    for packed in bucketed_fingerprints(pictures, _BUCKETS):
        yield beam.pvalue.TaggedOutput(_FINGERPRINTS, packed)


def picture_of(batch: str, place: int, key: str, seen: Fingerprint) -> Picture:
    """Returns the picture of an image by its place in a batch; only its bands are shared with others."""
    quality = ImageQuality((), (), seen.pixels, b"", seen.hash, seen.patch)
    return Picture(batch, place, seen.pixels, key, "", (), 0, "", 0, 0, quality=quality)


def link_similar(bucket: tuple[Bucket, Iterable[bytes]]) -> Iterator[list[tuple[Ranked, Ranked]]]:
    """Yields pairs that connect all similar images of a bucket: each image with the best of its group."""
    (kind, _), packs = bucket
    groups: defaultdict[bytes, list[ComparedRecord]] = defaultdict(list)
    for value, row in shared_rows(packs):
        groups[value].append(row)
    for group in groups.values():
        rows = sorted(group, key=lambda row: str(row.key))  # the order of arrival does not count
        for begin in range(0, len(rows), MAX_IN_BAND):
            part = rows[begin : begin + MAX_IN_BAND]
            pairs = alike([row.hash for row in part], [row.patch for row in part], band=band_number(kind))
            ranked = [(-row.offset, str(row.key)) for row in part]
            links = join_groups((ranked[first], ranked[second]) for first, second, _ in pairs)
            if links:
                yield list(links.items())


def join_groups(pairs: Iterable[tuple[Ranked, Ranked]]) -> dict[Ranked, Ranked]:
    """Returns, for each image that is not the best of its group, the best one.

    A group has all images that pairs connect, directly or through others.

    Args:
      pairs: Pairs of similar images, in any order.
    """
    parents: dict[Ranked, Ranked] = {}

    def best(item: Ranked) -> Ranked:
        path = []
        while item in parents:
            path.append(item)
            item = parents[item]
        for passed in path[:-1]:
            parents[passed] = item
        return item

    for pair in pairs:
        first, second = sorted(map(best, pair))
        if first != second:
            parents[second] = first
    return {item: best(item) for item in list(parents)}


def _copies(_: bytes, links: Iterable[list[tuple[Ranked, Ranked]]]) -> dict[str, str]:
    """Returns key of a copy -> key of the image that is kept."""
    joined = join_groups(itertools.chain.from_iterable(links))
    return {copy[1]: kept[1] for copy, kept in sorted(joined.items())}


def _mark(batch: EncodedRefs, copies: Mapping[str, str]) -> EncodedRefs:
    """Marks the copies in a batch."""
    refs = list(decode_refs(batch))
    if copies.keys().isdisjoint(ref.key for ref in refs):
        return batch
    return encode_refs(
        ref._replace(outcome=Outcome.DEDUPLICATED, reason=copies[ref.key], message="")
        if ref.is_candidate and ref.key in copies
        else ref
        for ref in refs
    )


@composite
def DedupeNear(
    batches: beam.PCollection, settings: ConvertSettings, keys: KeyRules, class_names: Sequence[str]
) -> beam.PCollection:
    """Marks images that look like a larger one. `PCollection[EncodedRefs] -> PCollection[EncodedRefs]`.

    Args:
      batches: References of images.
      settings: Checked settings.
      keys: Rules of `--include` and `--exclude`.
      class_names: Class names that are allowed. Empty to allow any.
    """
    recipe = ShardRecipe(settings, settings.record_layout, {}, keys=keys)  # to read, not to convert
    seen = (
        batches
        | "SpreadOut" >> beam.Reshuffle()  # EncodedRefs
        | "FingerprintSources"
        >> beam.FlatMap(_fingerprint_sources, recipe, frozenset(class_names))
        .with_output_types(tuple[int, bytes])
        .with_outputs(_FINGERPRINTS, main="pictures")
    )  # (bucket, pictures); (bucket, fingerprints)
    links = (
        (seen[_FINGERPRINTS], seen.pictures)
        | "GroupPictures" >> GroupPicturesThatShare(ShardTotals(_BUCKETS))  # ((band, bucket), [rows])
        | "LinkSimilar" >> beam.FlatMap(link_similar)  # [(copy, better one)]
    )
    copies = (
        batches.pipeline
        | "Once" >> beam.Impulse()  # bytes
        | "JoinGroups" >> beam.Map(_copies, beam.pvalue.AsIter(links))  # {copy: kept}
    )
    return batches | "MarkCopies" >> beam.Map(_mark, beam.pvalue.AsSingleton(copies)).with_output_types(
        EncodedRefs
    )  # EncodedRefs
