"""Leaves out images that were listed: copies of others, and those beyond the limit of a class.

`DedupeExact` keeps one of several images with equal source bytes, the one with the smallest key. References
stay packed, and only checksums and keys are shuffled:

    HashSources   -> EncodedRefs with checksums
    NameKeys      -> (checksum, key) of each image
    GroupBySha256 -> (checksum, [key])
    FindFirst     -> (checksum, smallest key), if several images have it
    MarkCopies    -> EncodedRefs, with the copies marked

`LimitPerClass` takes at most N images of each class, those with the lowest hashes.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

import apache_beam as beam

from shardwright.core.images.read import check_sha256, map_refs, read_image
from shardwright.core.plan.assign import limit_order
from shardwright.schemas.codes import FilterReason, Outcome, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import EncodedRefs, ImageRef, decode_refs, encode_refs
from shardwright.schemas.key_rules import KeyRules
from shardwright.transforms.building_blocks import composite


def hash_ref(ref: ImageRef, max_bytes: int) -> ImageRef:
    """Returns the reference with the sha256 of its source, or without it if the source cannot be read.

    The reference is quarantined if its source states another checksum.
    """
    try:
        sha256 = hashlib.sha256(read_image(ref, max_bytes)).hexdigest()
        check_sha256(ref, sha256)
    except ImageFault as fault:
        ref = ref._replace(sha256="")
        wrong = fault.reason == QuarantineReason.CHECKSUM_MISMATCH
        return ref.quarantined(fault.reason, fault.message) if wrong else ref
    return ref._replace(sha256=sha256)


def keys_of(batch: EncodedRefs) -> Iterator[tuple[bytes, str]]:
    """Yields the checksum and the key of each image whose checksum is known."""
    for ref in decode_refs(batch):
        if ref.sha256:
            yield bytes.fromhex(ref.sha256), ref.key


def first_of_equal(images: tuple[bytes, Iterable[str]]) -> Iterator[tuple[str, str]]:
    """Yields the checksum in hex and the smallest key of images with one checksum, if there are several."""
    sha256, keys = images
    smallest = heapq.nsmallest(2, keys)
    if len(smallest) > 1:
        yield sha256.hex(), smallest[0]


def mark_copies(batch: EncodedRefs, first_keys: Mapping[str, str]) -> EncodedRefs:
    """Marks those references as copies whose checksum belongs to an image with a smaller key.

    Args:
      batch: References with the sha256 of their sources, or without it if that is not known.
      first_keys: sha256 in hex -> the smallest key, for checksums that several images have.
    """

    def marked(ref: ImageRef) -> ImageRef:
        first = first_keys.get(ref.sha256, ref.key) if ref.sha256 else ref.key
        return ref if first == ref.key else ref._replace(outcome=Outcome.DEDUPLICATED, reason=first)

    return encode_refs(map(marked, decode_refs(batch)))


@composite
def DedupeExact(
    batches: beam.PCollection, max_bytes: int, keys: KeyRules, class_names: Sequence[str] = ()
) -> beam.PCollection:
    """Marks copies of images. `PCollection[EncodedRefs] -> PCollection[EncodedRefs]`.

    Args:
      batches: References of images.
      max_bytes: Largest size of a file that is read.
      keys: Rules of `--include` and `--exclude`.
      class_names: Class names that are allowed. Empty to allow any.
    """
    names = frozenset(class_names)

    def hashed_ref(ref: ImageRef) -> ImageRef:
        # An image of an unknown class is quarantined, so no copy may be removed in its favor.
        is_listed = not names or names.issuperset(ref.labels)
        hashed = hash_ref(ref, max_bytes) if ref.is_candidate and is_listed else ref._replace(sha256="")
        if keys.need_bytes and hashed.sha256 and keys.reason_by_bytes(ref.key, hashed.sha256):
            return hashed._replace(sha256="")  # the same is true of an image whose digest leaves it out
        return hashed

    def hash_sources(batch: EncodedRefs) -> EncodedRefs:
        return encode_refs(map_refs(hashed_ref, list(decode_refs(batch))))

    hashed = (
        batches
        | "SpreadOut" >> beam.Reshuffle()  # EncodedRefs
        | "HashSources" >> beam.Map(hash_sources).with_output_types(EncodedRefs)  # EncodedRefs
    )
    copied = (
        hashed
        | "NameKeys" >> beam.FlatMap(keys_of).with_output_types(tuple[bytes, str])  # (sha256, key)
        | "GroupBySha256" >> beam.GroupByKey()  # (sha256, [key])
        | "FindFirst" >> beam.FlatMap(first_of_equal).with_output_types(tuple[str, str])  # (sha256, key)
    )
    return hashed | "MarkCopies" >> beam.Map(mark_copies, beam.pvalue.AsDict(copied)).with_output_types(
        EncodedRefs
    )  # EncodedRefs


@composite
def LimitPerClass(batches: beam.PCollection, limit: int, seed: int) -> beam.PCollection:
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
            return ref.filtered(FilterReason.MAX_PER_CLASS)._replace(message="")

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


def chosen_images(
    batches: beam.PCollection, settings: ConvertSettings, keys: KeyRules, class_names: Sequence[str]
) -> beam.PCollection:
    """Adds the steps with which the settings leave out images that were listed: copies, then large classes.

    Args:
      batches: PCollection of EncodedRefs.
      settings: Checked settings.
      keys: Rules of `--include` and `--exclude`.
      class_names: Class names that are allowed. Empty to allow any.

    Returns:
      A PCollection of EncodedRefs.
    """
    if settings.dedupe == "exact":
        exact = DedupeExact(settings.max_source_bytes, keys, class_names)
        batches = batches | "DedupeExact" >> exact  # EncodedRefs
    elif settings.dedupe == "near":
        from shardwright.transforms.dedupe_near import DedupeNear  # decodes images, which others do not need

        batches = batches | "DedupeNear" >> DedupeNear(settings, keys, class_names)  # EncodedRefs
    if settings.max_per_class:
        limit = LimitPerClass(settings.max_per_class, settings.seed)
        batches = batches | "LimitPerClass" >> limit  # EncodedRefs
    return batches
