"""Checks that no key and no id of a record occurs twice."""

from __future__ import annotations

import unicodedata
from array import array
from collections.abc import Iterable, Iterator

import numpy as np

from shardwright.core.plan.assign import ShardId
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import EncodedRefs, ImageRef, decode_refs, printable

#: Marks an id that was made from its image's key.
MADE = "made"


def _duplicate_key_error(key: str, first: str, second: str) -> UsageError:
    advice = "rename one, or give each --input a name (a=PATH)"
    if first != second and unicodedata.normalize("NFC", first) == unicodedata.normalize("NFC", second):
        advice = "they differ only in their Unicode form: rename one"
    return UsageError(
        f"Two images have the key {key!r}: {printable(first)} and {printable(second)}; {advice}."
    )


def check_keys(shard: tuple[ShardId, Iterable[EncodedRefs]]) -> Iterator[int]:
    """Checks that no key occurs twice in a shard or bucket.

    Equal keys in one split always meet in one shard. If the sources name splits, equal keys may be in
    different splits; then use `BucketKeys` first.

    Yields:
      The number of references, so that writing can wait for the check of every shard.

    Raises:
      UsageError: If a key occurs twice; the message names it and both places.
    """
    hashes = array("q")  # a key takes 8 bytes here, and 300 in a dictionary with its location
    for batch in shard[1]:
        hashes.extend(hash(ref.key) for ref in decode_refs(batch))
    found, counts = np.unique(np.frombuffer(hashes, np.int64), return_counts=True)
    repeated = set(found[counts > 1].tolist())
    seen: dict[str, str] = {}
    for batch in shard[1] if repeated else ():
        for ref in decode_refs(batch):
            if hash(ref.key) not in repeated:
                continue
            where = f"{ref.location} ({ref.message})" if ref.message else ref.location
            if ref.key in seen:
                raise _duplicate_key_error(ref.key, *sorted((seen[ref.key], where)))
            seen[ref.key] = where
    yield len(hashes)


def check_source_ids(bucket: tuple[ShardId, Iterable[EncodedRefs]]) -> Iterator[int]:
    """Checks that no id made from a key is also the id of another image.

    Ids from sources may be equal, because exports often number the images of each split from 0.

    Args:
      bucket: Contents of a bucket from `BucketSourceIds`.

    Yields:
      The number of ids, so that writing can wait for every bucket's check.

    Raises:
      UsageError: If ids are equal; the message names the id and both images.
    """
    seen: dict[str, ImageRef] = {}
    for batch in bucket[1]:
        for ref in decode_refs(batch):
            other = seen.setdefault(ref.source_id, ref)
            if other is not ref and MADE in (ref.reason, other.reason):
                first, second = sorted((other.key, ref.key))
                raise UsageError(
                    f"The images {first!r} and {second!r} would both get the image/source_id "
                    f"{ref.source_id}; rename one of them."
                )
    yield len(seen)
