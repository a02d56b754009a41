"""Assigns images to splits and shards, by pure functions of the seed, the key and the carried plan.

It also checks that no key and no id of a record occurs twice.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import unicodedata
import zlib
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate
from operator import attrgetter, itemgetter
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np

from shardwright.schemas.codes import FilterReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import (
    EncodedRefs,
    ImageRef,
    decode_refs,
    encode_refs,
    is_image,
    number_text,
    source_id_of,
)
from shardwright.schemas.plan import BUCKETS, DIGITS, HASH_RANGE, Forecast, PartBounds, ShardPlace

Item = TypeVar("Item")
#: Sort key of images: (hash, key).
Order = tuple[int, str]

#: Mean number of images per shard above which no shard is empty: among 99,999 shards, the probability of an
#: empty one is below 99,999 * exp(-64) = 2e-23.
NEVER_EMPTY = 64
#: Number of items, beyond twice those that are kept, that are collected before the others are dropped.
_MORE = 1000
#: Why `--limit` and `--max_per_class` leave images out.
_LIMITS = (FilterReason.LIMIT, FilterReason.MAX_PER_CLASS)


def hash64(seed: int, purpose: str, text: str) -> int:
    """Returns a 64-bit hash that is equal on every machine: keyed BLAKE2b of the text's UTF-8.

    Args:
      seed: Seed of the dataset, 0 <= seed < 2^63.
      purpose: Name of the use, which makes hashes for different uses independent; at most 16 characters.
      text: Text to hash.
    """
    key, person = seed.to_bytes(8, "big"), purpose.encode()
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=key, person=person)
    return int.from_bytes(digest.digest(), "big")


def ideal_bounds(shares: Sequence[Fraction]) -> tuple[int, ...]:
    """Returns the upper bound of the hashes of each part but the last, for infinitely many images."""
    return tuple(int(total * HASH_RANGE) for total in accumulate(shares[:-1]))


def group_of(key: str, pattern: re.Pattern[str] | None) -> str | None:
    """Returns the group of an image, which stays in one split: the pattern's first group, or its match.

    Returns None if there is no pattern, or it matches no text in the key. Then the key is its own group.
    """
    match = pattern.search(key) if pattern else None
    if not match:
        return None
    return (match[1] if match.re.groups and match[1] is not None else match[0]) or None


def shard_order(seed: int, key: str) -> Order:
    """Returns the sort key of the images in a split: (hash, key)."""
    return hash64(seed, "shard", key), key


def limit_order(seed: int, key: str) -> Order:
    """Returns the sort key by which `--limit` chooses images: (hash, key).

    This hash is independent of the hash for shards, so that the chosen images are spread over all shards.
    """
    return hash64(seed, "limit", key), key


@dataclass
class Lowest(Generic[Item]):
    """The items with the lowest orders of all that were added or merged, in any order.

    Attributes:
      count: Number of items to keep.
      items: The items, each after its order; up to about twice as many until `trim` is called.
      cut: Order above which an item is not kept; None while there are fewer items.
    """

    count: int
    items: list[tuple[Order, Item]] = field(default_factory=list)
    cut: Order | None = None

    def add(self, order: Order, item: Item) -> None:
        """Adds an item."""
        if self.cut is None or order <= self.cut:
            self.items.append((order, item))
            if len(self.items) > 2 * self.count + _MORE:
                self.trim()

    def merge(self, other: Self) -> Self:
        """Adds the items of another collection; returns itself."""
        self.items += other.items
        self.trim()
        return self

    def trim(self) -> None:
        """Drops the items with higher orders, and sorts the others."""
        self.items = sorted(self.items, key=itemgetter(0))[: self.count]
        if self.items and len(self.items) == self.count:
            self.cut = self.items[-1][0]


def add_orders(lowest: Lowest[None], batch: EncodedRefs, seed: int) -> None:
    """Adds the images of a batch that can be written, for `--limit`."""
    for ref in decode_refs(batch):
        if ref.is_candidate:
            lowest.add(limit_order(seed, ref.key), None)


def filter_beyond_limit(batch: EncodedRefs, cut: Order | None, seed: int) -> EncodedRefs:
    """Filters the images of a batch, good or bad, that `--limit` leaves out.

    Args:
      batch: References of images.
      cut: Order of the last image within the limit; None if there are fewer.
      seed: Seed of the dataset.
    """
    if cut is None:
        return batch
    return encode_refs(
        ref.filtered(FilterReason.LIMIT) if is_image(ref) and limit_order(seed, ref.key) > cut else ref
        for ref in decode_refs(batch)
    )


def shard_of(value: int, num_shards: int) -> int:
    """Returns the shard of an image from its 64-bit hash; shards follow the order of the hashes."""
    return value * num_shards >> 64


def fill_empty_shards(hashes: Sequence[int], num_shards: int) -> dict[int, int]:
    """Returns the images that move to a shard other than `shard_of`, so that no shard is empty.

    Images are processed in the order of their hashes. The first image after an empty shard moves down
    into it. If this empties its own shard, the next image moves down into that one, and so on. If the last
    shards are empty, the last images move up. So the order of the hashes is kept, only neighbors of an
    empty shard change, and no image moves if no shard is empty.

    Args:
      hashes: Hashes of the images in a split, in any order.
      num_shards: Number of shards in the split.

    Returns:
      Hash -> number of the shard, for images that move; empty if there are fewer images than shards.
    """
    count = len(hashes)
    if num_shards < 2 or not num_shards <= count < NEVER_EMPTY * num_shards:
        return {}
    moved = {}
    before = -1
    for place, value in enumerate(sorted(hashes)):
        usual = shard_of(value, num_shards)
        before = max(min(usual, before + 1), num_shards - (count - place))
        if before != usual:
            moved[value] = before
    return moved


ShardId = tuple[str, int]


class PlannedShard(NamedTuple):
    """A shard to write: its place, and its references."""

    place: ShardPlace
    refs: Iterable[EncodedRefs]


#: Uses of hashes. The hashes of each use are independent of the others.
SPLIT, FOLD = "split", "fold"


def shares_of(settings: ConvertSettings, purpose: str) -> tuple[Fraction, ...]:
    """Returns the shares of the splits, or equal shares of the folds."""
    if purpose == SPLIT:
        return tuple(settings.parsed_splits.values())
    return (Fraction(1, settings.folds),) * settings.folds


class Placement:
    """Assigns a split to every reference, and a fold to every image.

    Args:
      settings: Checked settings.
      splits: Chosen bounds of the splits; None to divide all hashes by the shares.
      folds: Chosen bounds of the folds; None to divide all hashes evenly.

    Attributes:
      settings: The settings.
    """

    def __init__(
        self, settings: ConvertSettings, splits: PartBounds | None = None, folds: PartBounds | None = None
    ) -> None:
        self.settings = settings
        self._names = tuple(settings.parsed_splits)
        self._chosen = {SPLIT: splits or PartBounds(), FOLD: folds or PartBounds()}
        purposes = (SPLIT, FOLD) if settings.folds else (SPLIT,)
        self._ideal = {purpose: ideal_bounds(shares_of(settings, purpose)) for purpose in purposes}
        self._pattern = re.compile(settings.split_by) if settings.split_by else None

    def split(self, ref: ImageRef) -> str:
        """Returns the split that the source names, or else the split by the hash of the group or key."""
        if ref.split or len(self._names) == 1:
            return ref.split or self._names[0]
        return self._names[self._part(ref, SPLIT, "")]

    def fold(self, ref: ImageRef, split: str) -> int:
        """Returns the fold of an image in its split; -1 if there are no folds."""
        return self._part(ref, FOLD, split) if self.settings.folds else -1

    def _part(self, ref: ImageRef, purpose: str, scope: str) -> int:
        """Returns the number of the part of an image, by the hash of its key or group.

        Args:
          ref: Reference of the image.
          purpose: `SPLIT` or `FOLD`.
          scope: What is divided (`PartBounds`).
        """
        value, chosen = self.hash(ref, purpose), self._chosen[purpose]
        buckets = chosen.buckets.get(scope)
        if buckets is not None:
            return DIGITS.index(buckets[value * BUCKETS >> 64])
        ideal, classes = self._ideal[purpose], chosen.bounds.get(scope)
        if not classes:
            return bisect_right(ideal, value)
        # A file that is not a candidate may have a class of its own.
        name = ref.label if self.settings.split_mode == "stratified" else ""
        return bisect_right(classes.get(name, ideal), value)

    def hash(self, ref: ImageRef, purpose: str) -> int:
        """Returns the hash that decides the split or the fold of an image; `purpose` is `SPLIT` or `FOLD`."""
        group = ref.group or group_of(ref.key, self._pattern)
        return hash64(self.settings.seed, purpose, ref.key if group is None else group)

    def misses_group(self, ref: ImageRef) -> bool:
        """Returns whether `--split_by` was given and does not match this key."""
        return bool(self._pattern) and not ref.group and group_of(ref.key, self._pattern) is None


def hashes_of_sparse_splits(
    batch: EncodedRefs, forecast: Forecast, settings: ConvertSettings
) -> Iterator[tuple[str, bytes]]:
    """Yields the hashes of a batch's images in each split that is so small that a shard may be empty."""
    shards = forecast.plan.shards
    sparse = {
        split
        for split, images in forecast.candidates.items()
        if shards.get(split, 1) > 1 and images < NEVER_EMPTY * shards[split]
    }
    placement = Placement(settings, forecast.plan.split_bounds)
    hashes: defaultdict[str, array[int]] = defaultdict(lambda: array("Q"))
    for ref in decode_refs(batch) if sparse else ():
        split = placement.split(ref)
        if split in sparse and ref.is_candidate:
            hashes[split].append(shard_order(settings.seed, ref.key)[0])
    yield from ((split, values.tobytes()) for split, values in hashes.items())


def fill_shards(forecast: Forecast, packed: Iterable[tuple[str, bytes]]) -> Forecast:
    """Adds to a forecast the images that fill shards that would be empty."""
    hashes: defaultdict[str, array[int]] = defaultdict(lambda: array("Q"))
    shards = forecast.plan.shards
    for split, data in packed:
        if len(hashes[split]) < NEVER_EMPTY * shards[split]:  # of more images, none moves
            hashes[split].frombytes(data)
    moved = {split: fill_empty_shards(values, shards[split]) for split, values in hashes.items()}
    return replace(forecast, moved={split: moves for split, moves in moved.items() if moves})


def refs_by_shard(
    settings: ConvertSettings, refs: Iterable[ImageRef], forecast: Forecast
) -> Iterator[tuple[ShardId, ImageRef]]:
    """Yields references with their splits and folds, each after its shard."""
    plan = forecast.plan
    placement = Placement(settings, plan.split_bounds, plan.fold_bounds)
    for ref in refs:
        split, (value, _) = placement.split(ref), shard_order(settings.seed, ref.key)
        # The message about an image beyond a limit is its place in a list, for the check of keys, or a fault.
        message = "" if ref.reason in _LIMITS else ref.message
        ref = ref._replace(split=split, message=message)
        if settings.folds and ref.is_candidate:
            ref = ref._replace(fold=placement.fold(ref, split))
        # Files without their own key are recorded under one number.
        shard = shard_of(value, plan.shards.get(split, 1))
        if split in forecast.moved and ref.is_candidate:
            shard = forecast.moved[split].get(value, shard)
        yield (split, shard), ref


def every_shard(forecast: Forecast) -> Iterator[tuple[ShardId, EncodedRefs]]:
    """Yields every shard of the plan without references, so that empty shards are written too."""
    for split, count in forecast.plan.shards.items():
        for shard in range(count):
            yield (split, shard), encode_refs(())


#: Number of buckets for the check of keys, and so of workers that can share it.
_KEY_BUCKETS = 2048
#: Marks an id that was made from its image's key.
_MADE = "made"


def keys_by_bucket(refs: Iterable[ImageRef]) -> Iterator[tuple[ShardId, ImageRef]]:
    """Yields keys and locations by the keys alone, so that equal keys of different splits meet."""
    for ref in refs:
        bucket = zlib.crc32(ref.key.encode()) % _KEY_BUCKETS
        yield ("", bucket), ImageRef(ref.key, ref.uri, place=ref.place, message=ref.message)


def source_ids_by_bucket(refs: Iterable[ImageRef]) -> Iterator[tuple[ShardId, ImageRef]]:
    """Yields the ids that records store and the locations of their images, so that equal ids meet."""
    for ref in refs:
        number = number_text(source_id_of(ref)) if ref.is_candidate else ""
        if number:  # other ids never look like a number
            reason = "" if ref.source_id else _MADE
            light = ImageRef(ref.key, ref.uri, reason=reason, message=ref.message, source_id=number)
            yield ("", int(number) % _KEY_BUCKETS), light


def _duplicate_key_error(*refs: ImageRef) -> UsageError:
    # The message is the line of the list that names the image.
    first, second = sorted(f"{ref.location} ({ref.message})" if ref.message else ref.location for ref in refs)
    advice = "rename one, or give each --input a name (a=PATH)"
    if refs[0].place == refs[1].place and len({posixpath.normpath(ref.uri) for ref in refs}) == 1:
        advice = "they are one image: list it once, or give each --input a name (a=PATH)"
    elif unicodedata.normalize("NFC", first) == unicodedata.normalize("NFC", second):
        advice = "they differ only in their Unicode form: rename one"
    return UsageError(f"Two images have the key {refs[0].key!r}: {first} and {second}; {advice}.")


def check_keys(shard: tuple[ShardId, Iterable[EncodedRefs]]) -> Iterator[int]:
    """Checks that no key occurs twice in a shard or bucket.

    Equal keys in one split always meet in one shard. If the sources name splits, equal keys may be in
    different splits; then `keys_by_bucket` comes first.

    Yields:
      The number of references, so that writing can wait for the check of every shard.

    Raises:
      UsageError: If a key occurs twice; the message names it and both places.
    """
    hashes = array("q")  # a key takes 8 bytes here, and 300 in a dictionary with its location
    for batch in shard[1]:
        hashes.extend(map(hash, map(attrgetter("key"), decode_refs(batch))))
    values, counts = np.unique(np.frombuffer(hashes, np.int64), return_counts=True)
    repeated = set(values[counts > 1].tolist())
    seen: dict[str, ImageRef] = {}
    for batch in shard[1] if repeated else ():
        for ref in decode_refs(batch):
            if hash(ref.key) in repeated and (other := seen.setdefault(ref.key, ref)) is not ref:
                raise _duplicate_key_error(other, ref)
    yield len(hashes)


def check_source_ids(bucket: tuple[ShardId, Iterable[EncodedRefs]]) -> Iterator[int]:
    """Checks that no id made from a key is also the id of another image.

    Ids from sources may be equal, because exports often number the images of each split from 0.

    Args:
      bucket: Contents of a bucket from `source_ids_by_bucket`.

    Yields:
      The number of ids, so that writing can wait for every bucket's check.

    Raises:
      UsageError: If ids are equal; the message names the id and both images.
    """
    refs: dict[str, ImageRef] = {}
    for batch in bucket[1]:
        for ref in decode_refs(batch):
            other = refs.setdefault(ref.source_id, ref)
            if other is not ref and _MADE in (ref.reason, other.reason):
                first, second = sorted((other.key, ref.key))
                raise UsageError(
                    f"The images {first!r} and {second!r} would both get the image/source_id "
                    f"{ref.source_id}; rename one of them."
                )
    yield len(refs)
