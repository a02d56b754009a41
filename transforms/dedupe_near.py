"""`DedupeNear`: keeps one of several images that look alike, the largest.

Every image is read and decoded once, small if its format allows that, for a fingerprint of 320 bytes
(`images/near_duplicates.py`). Fingerprints are compared as a validation compares those of records:

    FingerprintSources -> rows, and the digests of their bands
    FindShared         -> the rows that share a band with another row
    LinkSimilar        -> pairs of keys, after comparing all rows that share a band
    JoinGroups         -> key of a copy -> key of the image that is kept

Images that are linked directly or through others form a group. So no two images of a group are kept, and none
can be in two splits.
"""

from __future__ import annotations

import hashlib
import itertools
import pickle
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam

from shardwright.core.conversion import ShardRecipe, fingerprint_read, map_reads
from shardwright.core.images.near_duplicates import alike, bands_of
from shardwright.schemas.codes import Outcome
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import EncodedRefs, decode_refs, encode_refs
from shardwright.schemas.key_rules import KeyRules
from shardwright.transforms.building_blocks import composite

#: Number of buckets in which values meet, and so of workers that can share the comparison.
_BUCKETS = 512
#: Number of images with an equal band that are compared together. More are compared in parts of this size.
_MAX_IN_BAND = 50_000
_PRINT_BYTES = 8
_FINGERPRINTS = "prints"


class Row(NamedTuple):
    """An image to compare with others.

    Attributes:
      key: Key of the image.
      pixels: Number of its pixels.
      hash: Hash of its fingerprint.
      patch: Patch of its fingerprint.
    """

    key: str
    pixels: int
    hash: bytes
    patch: bytes

    @property
    def rank(self) -> tuple[int, str]:
        """Sort key: the image that is kept comes first."""
        return -self.pixels, self.key


#: An image of a pair: negative number of pixels, and key, so that the image that is kept is the smallest.
Ranked = tuple[int, str]


def _fingerprint_sources(
    batch: EncodedRefs, recipe: ShardRecipe, class_names: frozenset[str]
) -> Iterator[Any]:
    """Yields the rows of a batch by the bucket of the batch, and the digests of their bands by their own."""
    # An image of an unknown class is quarantined, so no copy may be removed in its favor.
    refs = [
        ref
        for ref in decode_refs(batch)
        if ref.is_candidate and (not class_names or class_names.issuperset(ref.labels))
    ]
    found = map_reads(partial(fingerprint_read, recipe.settings), refs, recipe)
    rows = [Row(ref.key, *seen) for ref, seen in zip(refs, found, strict=True) if seen is not None]
    if not rows:
        return
    name = _name_of(rows)
    yield _bucket_of(name), pickle.dumps((name, list(map(tuple, rows))))
    for bucket, packed in bucketed_fingerprints(name, rows):
        yield beam.pvalue.TaggedOutput(_FINGERPRINTS, (bucket, packed))


def _name_of(rows: Sequence[Row]) -> bytes:
    """Returns a name for a batch of rows that is the same if the batch is processed again."""
    keys = "\n".join(row.key for row in rows)
    return hashlib.blake2b(keys.encode(), digest_size=_PRINT_BYTES).digest()


def _bucket_of(value: bytes) -> int:
    return zlib.crc32(value) % _BUCKETS


def _values_of(rows: Sequence[Row]) -> Iterator[list[bytes]]:
    """Yields the bands of each row; each begins with its number."""
    for bands in bands_of([row.hash for row in rows], [row.patch for row in rows]):
        yield [bytes([number]) + band for number, band in enumerate(bands)]


def bucketed_fingerprints(name: bytes, rows: Sequence[Row]) -> Iterator[tuple[int, bytes]]:
    """Yields digests of the bands of a batch's rows, packed by the bucket where equal ones meet."""
    packed: defaultdict[int, list[tuple[bytes, int, int]]] = defaultdict(list)
    for place, values in enumerate(_values_of(rows)):
        for band, value in enumerate(values):
            digest = hashlib.blake2b(value, digest_size=_PRINT_BYTES).digest()
            packed[_bucket_of(digest)].append((digest, place, band))
    for bucket, found in packed.items():
        yield bucket, pickle.dumps((name, found))


def find_shared(bucket: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yields the places of rows that share a band with another row, packed by the bucket of their batch."""
    packs = [pickle.loads(packed) for packed in bucket[1]]
    once: set[bytes] = set()
    shared: set[bytes] = set()
    for _, found in packs:
        for digest, _, _ in found:
            (shared if digest in once else once).add(digest)
    for name, found in packs:
        places = [(place, band) for digest, place, band in found if digest in shared]
        if places:
            yield _bucket_of(name), pickle.dumps((name, places))


def rows_that_share(
    bucket: tuple[int, Mapping[str, Iterable[bytes]]],
) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Yields the rows that share a band, packed by band and the bucket where they are compared."""
    wanted: defaultdict[bytes, list[tuple[int, int]]] = defaultdict(list)
    for packed in bucket[1]["shared"]:
        name, places = pickle.loads(packed)
        wanted[name] += places
    for packed in bucket[1]["rows"]:
        name, found = pickle.loads(packed)
        rows = [Row(*row) for row in found]
        values = list(_values_of(rows)) if wanted[name] else []
        meeting: defaultdict[tuple[int, int], list[tuple[Any, ...]]] = defaultdict(list)
        for place, band in wanted[name]:
            value = values[place][band]
            meeting[band, _bucket_of(value)].append((value, *rows[place]))
        for where, items in meeting.items():
            yield where, pickle.dumps(items)


def link_similar(bucket: tuple[tuple[int, int], Iterable[bytes]]) -> Iterator[list[tuple[Ranked, Ranked]]]:
    """Yields pairs that connect all similar images of a bucket: each image with the best of its group."""
    (band, _), packs = bucket
    groups: defaultdict[bytes, list[Row]] = defaultdict(list)
    for packed in packs:
        for value, *row in pickle.loads(packed):
            groups[value].append(Row(*row))
    for group in groups.values():
        rows = sorted(group)  # the order of arrival does not count
        for begin in range(0, len(rows), _MAX_IN_BAND):
            part = rows[begin : begin + _MAX_IN_BAND]
            found = alike([row.hash for row in part], [row.patch for row in part], band=band)
            links = join_groups((part[first].rank, part[second].rank) for first, second, _ in found)
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
    batches: beam.PCollection, settings: ConvertSettings, keys: KeyRules, class_names: Sequence[str] = ()
) -> beam.PCollection:
    """Marks images that look like a larger one. `PCollection[EncodedRefs] -> PCollection[EncodedRefs]`.

    Args:
      batches: References of images.
      settings: Checked settings.
      keys: Rules of `--include` and `--exclude`.
      class_names: Class names that are allowed. Empty to allow any.
    """
    packs = tuple[int, bytes]
    recipe = ShardRecipe(settings, settings.record_layout, {}, keys=keys)  # to read, not to convert
    seen = (
        batches
        | "SpreadOut" >> beam.Reshuffle()  # EncodedRefs
        | "FingerprintSources"
        >> beam.FlatMap(_fingerprint_sources, recipe, frozenset(class_names))
        .with_output_types(packs)
        .with_outputs(_FINGERPRINTS, main="rows")
    )  # (bucket, rows); (bucket, fingerprints)
    shared = (
        seen[_FINGERPRINTS]
        | "GroupPrints" >> beam.GroupByKey()  # (bucket, [fingerprints])
        | "FindShared" >> beam.FlatMap(find_shared).with_output_types(packs)  # (bucket, places)
    )
    links = (
        {"rows": seen.rows, "shared": shared}
        | "GroupRows" >> beam.CoGroupByKey()  # (bucket, {rows, shared})
        | "RowsThatShare"
        >> beam.FlatMap(rows_that_share).with_output_types(
            tuple[tuple[int, int], bytes]
        )  # ((band, bucket), rows)
        | "GroupByBand" >> beam.GroupByKey()  # ((band, bucket), [rows])
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
