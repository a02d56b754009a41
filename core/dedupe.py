"""Decides which listed images are copies of others: by equal source bytes, or by pictures that look alike.

The steps that bring images together are in `transforms/dedupe.py` and `transforms/dedupe_near.py`.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from shardwright.core.conversion import ShardRecipe, fingerprint_read, map_reads
from shardwright.core.images.near_duplicates import alike
from shardwright.core.images.read import check_sha256, map_refs, read_image
from shardwright.core.validation.duplicates import (
    MAX_IN_BAND,
    Bucket,
    ComparedRecord,
    band_number,
    shared_rows,
)
from shardwright.schemas.codes import Outcome, QuarantineReason
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import EncodedRefs, ImageRef, decode_refs, encode_refs
from shardwright.schemas.key_rules import KeyRules

_NAME_BYTES = 8
#: An image of a pair: negative number of pixels, and key, so that the image that is kept is the smallest.
Ranked = tuple[int, str]


def _may_have_copies(ref: ImageRef, class_names: frozenset[str]) -> bool:
    """Returns whether copies may be removed in favor of an image; one of an unknown class is quarantined."""
    return ref.is_candidate and (not class_names or class_names.issuperset(ref.labels))


def hash_sources(
    batch: EncodedRefs, max_bytes: int, keys: KeyRules, class_names: frozenset[str]
) -> EncodedRefs:
    """Returns references with the sha256 of their sources, without it where no copy may be removed for them.

    A reference whose source states another checksum is quarantined.

    Args:
      batch: References of images.
      max_bytes: Largest size of a file that is read.
      keys: Rules of `--include` and `--exclude`.
      class_names: Class names that are allowed. Empty to allow any.
    """

    def hashed_ref(ref: ImageRef) -> ImageRef:
        bare = ref._replace(sha256="")
        if not _may_have_copies(ref, class_names):
            return bare
        try:
            sha256 = hashlib.sha256(read_image(ref, max_bytes)).hexdigest()
            check_sha256(ref, sha256)
        except ImageFault as fault:
            wrong = fault.reason == QuarantineReason.CHECKSUM_MISMATCH
            return bare.quarantined(fault.reason, fault.message) if wrong else bare
        left_out = keys.need_bytes and keys.reason_by_bytes(ref.key, sha256)
        return bare if left_out else ref._replace(sha256=sha256)

    return encode_refs(map_refs(hashed_ref, list(decode_refs(batch))))


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


def fingerprint_sources(
    batch: EncodedRefs, recipe: ShardRecipe, class_names: frozenset[str]
) -> list[ComparedRecord]:
    """Returns the images of a batch that can be decoded, as rows with fingerprints.

    The batch stands for their shard. In place of an offset they have the number of their pixels, by which
    `link_similar` ranks them.

    Args:
      batch: References of images.
      recipe: How the images are read.
      class_names: Class names that are allowed. Empty to allow any.
    """
    refs = [ref for ref in decode_refs(batch) if _may_have_copies(ref, class_names)]
    reads = map_reads(partial(fingerprint_read, recipe.settings), refs, recipe)
    # A batch that is processed again gets the same name.
    name = hashlib.blake2b("\n".join(ref.key for ref in refs).encode(), digest_size=_NAME_BYTES).hexdigest()
    return [
        ComparedRecord(
            name, place, seen.pixels, ref.key, "", digest=seen.digest, hash=seen.hash, patch=seen.patch
        )
        for place, (ref, seen) in enumerate(zip(refs, reads, strict=True))
        if seen is not None
    ]


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
            pairs = alike([row.hash for row in part], [row.patch for row in part], band_number(kind))
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


def copies_of(links: Iterable[list[tuple[Ranked, Ranked]]]) -> dict[str, str]:
    """Returns key of a copy -> key of the image that is kept."""
    joined = join_groups(itertools.chain.from_iterable(links))
    return {copy[1]: kept[1] for copy, kept in sorted(joined.items())}


def mark_similar(batch: EncodedRefs, copies: Mapping[str, str]) -> EncodedRefs:
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
