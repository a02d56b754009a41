"""Finds the images that share a value with another image, so that only those are shuffled and compared.

Most images share nothing: neither the source, nor the pixels, nor a band of the perceptual hash. So each
value is first counted as eight bytes, and only the rows of images with a shared value go to the comparison.
With rows in every bucket, a job would shuffle five times as much.
"""

from __future__ import annotations

import itertools
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

from shardwright.core.validation.duplicates import (
    BATCH,
    Bucket,
    bucket_pictures,
    pack,
    shared_values,
    unpack,
)
from shardwright.schemas.pictures import ImageQuality, Picture

_PRINT_BYTES = 8

RecordPlace = tuple[str, int]


def bucketed_fingerprints(pictures: Iterable[Picture], buckets: int) -> Iterator[tuple[int, bytes]]:
    """Yields the values of a shard's images that others may share, packed by the bucket where they meet.

    Args:
      pictures: Images of one shard, with their quality metrics.
      buckets: Number of buckets.
    """
    for batch in _batches(pictures):
        packed: defaultdict[int, list[tuple[bytes, str, int]]] = defaultdict(list)
        for (picture, _), shared in zip(batch, shared_values(batch)):
            for kind, value in shared:
                digest = blake2b(value, digest_size=_PRINT_BYTES, person=kind.encode()).digest()
                packed[zlib.crc32(digest) % buckets].append((digest, kind, picture.number))
        for bucket, found in packed.items():
            yield bucket, pack([(batch[0][0].file, found)])


def pictures_by_place(pictures: Iterable[Picture], buckets: int) -> Iterator[tuple[int, bytes]]:
    """Yields a shard's images, packed by the bucket where they meet the results of `duplicate_candidates`."""
    for batch in _batches(pictures):
        first, _ = batch[0]
        rows = [
            (*picture[:6], picture.source, quality.pixels, quality.digest, quality.hash, quality.patch)
            for picture, quality in batch
        ]
        yield _bucket_of(first.file, first.number, buckets), pack(rows)


def _whole(row: tuple[Any, ...]) -> Picture:
    """Returns the image of a row, with the values that are compared."""
    file, number, offset, key, split, labels, source, pixels, digest, hash_, patch = row
    quality = ImageQuality((), (), pixels, digest, hash_, patch)
    return Picture(
        file, number, offset, key, split, labels,
        bytes=0, format="", width=0, height=0, channels=0, source=source, quality=quality,
    )  # fmt: skip


def _batches(pictures: Iterable[Picture]) -> Iterator[list[tuple[Picture, ImageQuality]]]:
    """Yields the images that have quality metrics in batches; a batch is in one bucket of places."""
    looked = (
        (picture, picture.quality) for picture in pictures if picture.quality and picture.quality.pixels
    )
    for _, batch in itertools.groupby(looked, lambda item: (item[0].file, item[0].number // BATCH)):
        yield list(batch)


def _bucket_of(file: str, number: int, buckets: int) -> int:
    return zlib.crc32(f"{file} {number // BATCH}".encode("utf-8", "surrogatepass")) % buckets


def duplicate_candidates(bucket: tuple[int, Iterable[bytes]], buckets: int) -> Iterator[tuple[int, bytes]]:
    """Yields the places of the images that share a value, and the kinds of these values, packed by place.

    Args:
      bucket: Number of the bucket and the packs of `bucketed_fingerprints`, which are read twice.
      buckets: Number of buckets.
    """
    _, packs = bucket
    once: set[bytes] = set()
    shared: set[bytes] = set()
    for _, found in _prints(packs):
        for digest, _, _ in found:
            (shared if digest in once else once).add(digest)
    packed: defaultdict[int, list[tuple[str, str, int]]] = defaultdict(list)
    for file, found in _prints(packs):
        for digest, kind, number in found:
            if digest in shared:
                packed[_bucket_of(file, number, buckets)].append((file, kind, number))
        for place in [place for place, items in packed.items() if len(items) >= BATCH]:
            yield place, pack(packed.pop(place))
    for place, items in packed.items():
        yield place, pack(items)


def _prints(packs: Iterable[bytes]) -> Iterator[tuple[str, list[tuple[bytes, str, int]]]]:
    for packed in packs:
        yield from unpack(packed)


def pictures_that_share(
    pictures: Iterable[bytes], shared: Iterable[bytes], buckets: int
) -> Iterator[tuple[Bucket, bytes]]:
    """Yields the images of some places that share a value, by the buckets where they are compared.

    Args:
      pictures: Packs of `pictures_by_place`.
      shared: Packs of `duplicate_candidates` for the same places.
      buckets: Number of buckets of each kind.
    """
    kinds: defaultdict[RecordPlace, set[str]] = defaultdict(set)
    for packed in shared:
        for file, kind, number in unpack(packed):
            kinds[file, number].add(kind)
    if not kinds:
        return
    for packed in pictures:
        rows = [row for row in unpack(packed) if (row[0], row[1]) in kinds]
        yield from bucket_pictures(map(_whole, rows), buckets, kinds)
