"""Where an image goes: pure functions of the seed, its key and the carried plan."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

HASH_RANGE = 1 << 64
#: Images per shard, on average, that rule out an empty shard: the chance of one among 99,999 shards is below
#: 99,999 * exp(-64) = 2e-23.
NEVER_EMPTY = 64


def hash64(seed: int, purpose: str, text: str) -> int:
    """Returns a 64-bit hash that is the same everywhere: keyed BLAKE2b of the text's UTF-8.

    Args:
      seed: of the dataset, 0 <= seed < 2^63.
      purpose: keeps hashes for different uses independent; at most 16 characters.
      text: what is hashed.
    """
    digest = _keyed_hash(seed, purpose).copy()
    digest.update(text.encode())
    return int.from_bytes(digest.digest(), "big")


@lru_cache
def _keyed_hash(seed: int, purpose: str) -> hashlib.blake2b:
    """Returns the hash of nothing yet; a copy costs half of a new one."""
    return hashlib.blake2b(digest_size=8, key=seed.to_bytes(8, "big"), person=purpose.encode())


def split_bounds(splits: Mapping[str, Fraction]) -> list[tuple[str, int]]:
    """Returns (split, exclusive upper bound of its hashes) in the order of the splits."""
    bounds = []
    total = Fraction(0)
    for name, share in splits.items():
        total += share
        bounds.append((name, int(total * HASH_RANGE)))
    return bounds


def split_of(seed: int, group: str, bounds: Sequence[tuple[str, int]], purpose: str = "split") -> str:
    """Returns the split of a group (or of a key that is its own group)."""
    if len(bounds) == 1:
        return bounds[0][0]
    value = hash64(seed, purpose, group)
    for name, bound in bounds:
        if value < bound:
            return name
    return bounds[-1][0]


def group_of(key: str, pattern: re.Pattern[str] | None) -> str | None:
    """Returns what must stay together with an image: the pattern's first group, or its match.

    None if the pattern does not match the key (or there is none): the key is its own group.
    """
    match = pattern.search(key) if pattern else None
    if not match:
        return None
    return match[1] if match.re.groups and match[1] is not None else match[0]


def shard_order(seed: int, key: str) -> tuple[int, str]:
    """Returns what the images of a split are ordered by: (hash, key)."""
    return hash64(seed, "shard", key), key


def limit_order(seed: int, key: str) -> tuple[int, str]:
    """Returns what `--limit` takes images by: (hash, key).

    The hash is independent of that of the shards, so that the images taken are spread over all of them.
    """
    return hash64(seed, "limit", key), key


def shard_of(value: int, num_shards: int) -> int:
    """Returns the shard of an image by its 64-bit hash; keeps the order of the hashes."""
    return value * num_shards >> 64


def fill_empty_shards(hashes: Sequence[int], num_shards: int) -> dict[int, int]:
    """Returns the images that go to another shard than `shard_of` says, so that no shard is empty.

    The images are gone through in the order of their hashes. The first image after an empty shard moves down
    into it. If its own shard is empty then, the next image moves down into that one, and so on. The last
    images move up where the last shards are empty. So the order of the hashes is kept, only neighbors of an
    empty shard change, and no image moves where no shard is empty.

    Args:
      hashes: of the images of a split, in any order.
      num_shards: of the split.

    Returns:
      Hash -> number of its shard, for the images that move; nothing if there are fewer images than shards.
    """
    count = len(hashes)
    if num_shards < 2 or not num_shards <= count < NEVER_EMPTY * num_shards:
        return {}
    ordered = sorted(hashes)
    usual = [shard_of(value, num_shards) for value in ordered]
    moved = {}
    before = -1
    for place, (value, shard) in enumerate(zip(ordered, usual, strict=True)):
        before = max(min(shard, before + 1), num_shards - (count - place))
        if before != shard:
            moved[value] = before
    return moved
