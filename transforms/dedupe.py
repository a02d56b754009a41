"""Leaves out images that were listed: copies of others, and those beyond the limit of a class.

`DedupeExact` keeps one of several images with equal source bytes, the one with the smallest key. References
stay packed, and only checksums and keys are shuffled:

    HashSources   -> EncodedRefs with checksums
    NameKeys      -> (checksum, key) of each image
    GroupBySha256 -> (checksum, [key])
    FindFirst     -> (checksum, smallest key), if several images have it
    MarkCopies    -> EncodedRefs, with the copies marked

`DedupeNear` keeps one of several images that look alike, the largest. Every image is read and decoded once,
small if its format allows that, for hashes of 320 bytes (`images/near_duplicates.py`). They are compared as a
validation compares those of records, with the same second step:

    HashPictures           -> pictures, and the digests of their bands
    GroupPicturesThatShare -> the pictures that share a band with another one
    LinkSimilar            -> pairs of keys, after comparing all pictures that share a band
    JoinGroups             -> key of a copy -> key of the image that is kept

Images that are linked directly or through others form a group. So no two images of a group are kept, and none
can be in two splits.

`LimitPerClass` takes at most N images of each class, those with the lowest hashes, and `LimitImages` takes at
most N images in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import apache_beam as beam

from shardwright.core import dedupe
from shardwright.core.conversion import ShardRecipe
from shardwright.core.plan.assign import Lowest, add_orders, filter_beyond_limit, limit_order
from shardwright.core.validation.duplicates import bucketed_hashes, pictures_by_place
from shardwright.schemas.codes import FilterReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import EncodedRefs, ImageRef, decode_refs, encode_refs
from shardwright.schemas.key_rules import KeyRules
from shardwright.transforms.building_blocks import CallOnce, SumOfBundle, composite, merge_all, tagged
from shardwright.transforms.validate import GroupPicturesThatShare

#: Number of buckets in which values meet, and so of workers that can share the comparison.
_BUCKETS = 512
_HASHES = "hashes"


@composite
def DedupeExact(
    batches: beam.PCollection[EncodedRefs], max_bytes: int, keys: KeyRules, class_names: Sequence[str] = ()
) -> beam.PCollection[EncodedRefs]:
    """Marks copies of images. `PCollection[EncodedRefs] -> PCollection[EncodedRefs]`.

    Args:
      batches: References of images.
      max_bytes: Largest size of a file that is read.
      keys: Rules of `--include` and `--exclude`.
      class_names: Class names that are allowed. Empty to allow any.
    """
    hashed = (
        batches
        | "SpreadOut" >> beam.Reshuffle()  # EncodedRefs
        | "HashSources"
        >> beam.Map(dedupe.hash_sources, max_bytes, keys, frozenset(class_names)).with_output_types(
            EncodedRefs
        )  # EncodedRefs
    )
    copied = (
        hashed
        | "NameKeys" >> beam.FlatMap(dedupe.keys_of).with_output_types(tuple[bytes, str])  # (sha256, key)
        | "GroupBySha256" >> beam.GroupByKey()  # (sha256, [key])
        | "FindFirst"
        >> beam.FlatMap(dedupe.first_of_equal).with_output_types(tuple[str, str])  # (sha256, key)
    )
    return hashed | "MarkCopies" >> beam.Map(
        dedupe.mark_copies, beam.pvalue.AsDict(copied)
    ).with_output_types(EncodedRefs)  # EncodedRefs


def _hash_pictures(batch: EncodedRefs, recipe: ShardRecipe, class_names: frozenset[str]) -> Iterator[Any]:
    """Yields the pictures of a batch by its bucket, and the digests of their bands by their own buckets."""
    rows = dedupe.hash_pictures(batch, recipe, class_names)
    yield from pictures_by_place(rows, _BUCKETS)
    yield from tagged(_HASHES, bucketed_hashes(rows, _BUCKETS))


@composite
def DedupeNear(
    batches: beam.PCollection[EncodedRefs],
    settings: ConvertSettings,
    keys: KeyRules,
    class_names: Sequence[str],
) -> beam.PCollection[EncodedRefs]:
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
        | "HashPictures"
        >> beam.FlatMap(_hash_pictures, recipe, frozenset(class_names))
        .with_output_types(tuple[int, bytes])
        .with_outputs(_HASHES, main="pictures")
    )  # (bucket, pictures); (bucket, hashes)
    links = (
        (seen[_HASHES], seen.pictures)
        | "GroupPictures" >> GroupPicturesThatShare(_BUCKETS)  # ((band, bucket), [rows])
        | "LinkSimilar" >> beam.FlatMap(dedupe.link_similar)  # [(copy, better one)]
    )
    copies = batches.pipeline | "JoinGroups" >> CallOnce(dedupe.copies_of, beam.pvalue.AsIter(links))
    # {copy: kept}
    mark = beam.Map(dedupe.mark_similar, beam.pvalue.AsSingleton(copies)).with_output_types(EncodedRefs)
    return batches | "MarkCopies" >> mark  # EncodedRefs


@composite
def LimitPerClass(
    batches: beam.PCollection[EncodedRefs], limit: int, seed: int
) -> beam.PCollection[EncodedRefs]:
    """Filters images beyond the limit of a class. `PCollection[EncodedRefs] -> PCollection[EncodedRefs]`.

    An image with several classes counts for each of them, and is taken if it is within all their limits. So
    no class has more images than the limit. Images without a class are all taken.

    Args:
      batches: References of images.
      limit: Largest number of images of a class.
      seed: Seed of the dataset.
    """

    def order(ref: ImageRef) -> bytes:
        return limit_order(seed, ref.key)[0].to_bytes(8, "big")  # Beam's integers have a sign

    def name_classes(batch: EncodedRefs) -> Iterator[tuple[str, bytes]]:
        for ref in decode_refs(batch):
            if ref.is_candidate:
                yield from ((name, order(ref)) for name in ref.labels)

    def filter_beyond(batch: EncodedRefs, highest: Mapping[str, bytes]) -> EncodedRefs:
        def filtered(ref: ImageRef) -> ImageRef:
            limits = [highest[name] for name in ref.labels if name in highest] if ref.is_candidate else []
            if not limits or order(ref) <= min(limits):
                return ref
            return ref.filtered(FilterReason.MAX_PER_CLASS)

        return encode_refs(map(filtered, decode_refs(batch)))

    highest = (
        batches
        | "NameClasses" >> beam.FlatMap(name_classes).with_output_types(tuple[str, bytes])  # (class, hash)
        | "LowestHashes" >> beam.combiners.Top.SmallestPerKey(limit)  # (class, [hash])
        | "FullClasses" >> beam.Filter(lambda lowest: len(lowest[1]) == limit)  # (class, [hash])
        | "HighestHash" >> beam.MapTuple(lambda name, hashes: (name, max(hashes)))  # (class, hash)
    )
    return batches | "FilterBeyond" >> beam.Map(filter_beyond, beam.pvalue.AsDict(highest)).with_output_types(
        EncodedRefs
    )  # EncodedRefs


@composite
def LimitImages(
    batches: beam.PCollection[EncodedRefs], limit: int, seed: int
) -> beam.PCollection[EncodedRefs]:
    """Filters images beyond a limit. `PCollection[EncodedRefs] -> PCollection[EncodedRefs]`.

    The limit counts images that can be written. Bad ones among them are left as they are.

    Args:
      batches: References of images.
      limit: Largest number of images.
      seed: Seed of the dataset.
    """
    empty: partial[Lowest[None]] = partial(Lowest, limit)
    add = SumOfBundle(empty, add_orders)
    lowest = batches | "LowestOrders" >> beam.ParDo(add, seed).with_output_types(Lowest)  # Lowest of a bundle
    cut = batches.pipeline | "ChooseCut" >> CallOnce(
        lambda bundles: merge_all(empty)(bundles).cut, beam.pvalue.AsIter(lowest)
    )  # Order or None
    return batches | "FilterBeyond" >> beam.Map(
        filter_beyond_limit, beam.pvalue.AsSingleton(cut), seed
    ).with_output_types(EncodedRefs)  # EncodedRefs
