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
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import apache_beam as beam

from shardwright.core.images.read import check_sha256, map_refs, read_image
from shardwright.core.plan.assign import limit_order
from shardwright.schemas.codes import FilterReason, Outcome, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import EncodedRefs, ImageRef, decode_refs, encode_refs
from shardwright.schemas.key_rules import KeyRules
from shardwright.transforms.building_blocks import MergeAll, composite

#: Number of hashes that may be collected for a class above its limit before the highest are dropped.
_SLACK = 1024


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
    batches: beam.PCollection, max_bytes: int, class_names: Sequence[str] = ()
) -> beam.PCollection:
    """Marks copies of images. `PCollection[EncodedRefs] -> PCollection[EncodedRefs]`.

    Args:
      batches: References of images.
      max_bytes: Largest size of a file that is read.
      class_names: Class names that are allowed. Empty to allow any.
    """
    names = frozenset(class_names)

    def hashed_ref(ref: ImageRef) -> ImageRef:
        # An image of an unknown class is quarantined, so no copy may be removed in its favor.
        is_listed = not names or names.issuperset(ref.labels)
        return hash_ref(ref, max_bytes) if ref.is_candidate and is_listed else ref._replace(sha256="")

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


class LowestHashes:
    """The lowest hashes of each class: eight bytes for each image within the limit.

    Args:
      limit: Largest number of images of a class.
      seed: Seed of the dataset.
    """

    def __init__(self, limit: int, seed: int) -> None:
        self._limit = limit
        self._seed = seed
        self._hashes: dict[str, array[int]] = {}

    def add(self, batch: EncodedRefs) -> None:
        """Counts each image of a batch for each of its classes."""
        for ref in decode_refs(batch):
            if ref.is_candidate:
                value = limit_order(self._seed, ref.key)[0]
                for name in ref.labels:
                    self._put(name, (value,))

    def merge(self, other: LowestHashes) -> None:
        """Adds the images that another one counted."""
        for name, values in other._hashes.items():
            self._put(name, values)

    def _put(self, name: str, values: Iterable[int]) -> None:
        hashes = self._hashes.setdefault(name, array("Q"))
        hashes.extend(values)
        if len(hashes) >= 2 * self._limit + _SLACK:
            self._hashes[name] = array("Q", sorted(hashes)[: self._limit])

    def cuts(self) -> ClassCuts:
        """Returns the highest hashes that are taken."""
        full = {name: hashes for name, hashes in self._hashes.items() if len(hashes) >= self._limit}
        return ClassCuts(
            self._seed, {name: sorted(digests)[self._limit - 1] for name, digests in full.items()}
        )


@dataclass(frozen=True)
class ClassCuts:
    """The hashes up to which images of each class are taken.

    Attributes:
      seed: Seed of the dataset.
      highest: Class name -> highest hash that is taken, for classes that reach the limit.
    """

    seed: int
    highest: Mapping[str, int]

    def takes(self, ref: ImageRef) -> bool:
        """Returns whether an image is within the limit of each of its classes."""
        limits = [self.highest[name] for name in ref.labels if name in self.highest]
        return not limits or limit_order(self.seed, ref.key)[0] <= min(limits)


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

    def apply(batch: EncodedRefs, cuts: ClassCuts) -> EncodedRefs:
        return encode_refs(
            ref
            if not ref.is_candidate or cuts.takes(ref)
            else ref.filtered(FilterReason.MAX_PER_CLASS)._replace(message="")
            for ref in decode_refs(batch)
        )

    combine = beam.CombineGlobally(
        MergeAll(partial(LowestHashes, limit, seed), LowestHashes.add, LowestHashes.cuts)
    ).with_output_types(ClassCuts)
    cuts = batches | "FindCuts" >> combine  # ClassCuts
    return batches | "FilterBeyond" >> beam.Map(apply, beam.pvalue.AsSingleton(cuts)).with_output_types(
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
        exact = DedupeExact(settings.max_source_bytes, class_names)
        batches = batches | "DedupeExact" >> exact  # EncodedRefs
    elif settings.dedupe == "near":
        from shardwright.transforms.dedupe_near import DedupeNear  # decodes images, which others do not need

        batches = batches | "DedupeNear" >> DedupeNear(settings, keys, class_names)  # EncodedRefs
    if settings.max_per_class:
        limit = LimitPerClass(settings.max_per_class, settings.seed)
        batches = batches | "LimitPerClass" >> limit  # EncodedRefs
    return batches
