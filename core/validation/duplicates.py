"""Compares records with each other: duplicate keys, and equal or nearly equal images.

Rows meet in buckets by hash, so that no worker holds all of them. Equal keys and equal source bytes are found
from a few values of each record; images are compared by their pixels, too.

Images that may be equal meet in a bucket: those with one source, with equal pixels, or with an equal band
of the perceptual hash. There the later image of a pair, by place, is linked to the earlier one. An image may
have several links, and these meet again. An image in another split than an earlier one gets a finding, and so
does an image with other classes. Otherwise the most severe link becomes the finding. Of equal images a worker
holds a few, and it passes links on in batches.

Most images share nothing: neither the source, nor the pixels, nor a band of the hash. So each value is first
counted as eight bytes (`duplicate_candidates`), and only the rows of images with a shared value are shuffled.
With rows in every bucket, a job would shuffle five times as much.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import IntEnum
from hashlib import blake2b
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from shardwright.core.hash_buckets import bucket_of, pack_rows, packed_by, unpack_rows
from shardwright.core.images.near_duplicates import alike, bands_of
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.findings import Finding, Where
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.ledger import Entry
from shardwright.schemas.pictures import Picture

#: Name of a shard, and the number of a record.
RecordPlace = tuple[str, int]


class ComparedRecord(NamedTuple):
    """Values of a record that are compared across shards.

    Attributes:
      file: Name of the shard.
      number: Number of the record in its shard, from 0.
      offset: Byte offset of the record in the uncompressed shard.
      key: Key of the image. None if the record does not say.
      split: Split of the record. Empty if unknown.
      labels: Names of the image's classes.
      digest: Digest of the image's pixels (`ImageQuality`). Empty if the image is not compared.
      hash: Perceptual hash of the image. Empty in the same case.
      patch: Small copy of the image. Empty in the same case.
      source: sha256 of the source's bytes, or of the stored image if the source's is unknown.
    """

    file: str
    number: int
    offset: int
    key: str | None
    split: str
    labels: tuple[str, ...] = ()
    digest: bytes = b""
    hash: bytes = b""
    patch: bytes = b""
    source: str | None = None

    @property
    def place(self) -> RecordPlace:
        """Name of the shard and number of the record."""
        return self.file, self.number

    @property
    def classes(self) -> frozenset[str]:
        """Classes of the image."""
        return frozenset(self.labels)


_PLACE = attrgetter("place")
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def conflicts(row: ComparedRecord, other: ComparedRecord) -> list[FindingCode]:
    """Returns how two records of one image contradict each other, the more severe code first."""
    codes = [FindingCode.SPLIT_LEAKAGE] if row.split != other.split else []
    if row.labels and other.labels and row.labels != other.labels and row.classes != other.classes:
        codes.append(FindingCode.LABEL_CONFLICT)
    return codes


def _rank(row: ComparedRecord, other: ComparedRecord) -> int:
    """Returns how severe the conflict of two records is, from 0; 2 for none."""
    return 0 if row.split != other.split else 1 if conflicts(row, other) else 2


class Likeness(IntEnum):
    """What two records share."""

    KEY = 0
    SOURCE = 1
    PIXELS = 2
    SIMILAR = 3


#: What two records share -> the code of a finding about it, unless they contradict each other, and its
#: message, with places for the other record and the number of bits.
_FINDINGS = {
    Likeness.KEY: (FindingCode.DUPLICATE_KEY, "its key is also the key of {}"),
    Likeness.SOURCE: (FindingCode.EXACT_DUPLICATE, "same source bytes as {}"),
    Likeness.PIXELS: (FindingCode.EXACT_DUPLICATE, "same pixels as {}"),
    Likeness.SIMILAR: (FindingCode.NEAR_DUPLICATE, "it looks like {} ({} of 256 bits differ)"),
}


class Link(NamedTuple):
    """A record that is like an earlier one.

    Attributes:
      row: The record.
      other: The earlier record.
      likeness: What they share.
      bits_apart: Number of bits of their hashes that differ.
    """

    row: ComparedRecord
    other: ComparedRecord
    likeness: Likeness
    bits_apart: int = 0

    @property
    def codes(self) -> list[FindingCode]:
        """Codes of the findings about the pair."""
        return conflicts(self.row, self.other) or [_FINDINGS[self.likeness][0]]

    def order(self) -> tuple[int, int, str, int]:
        """Sort key for the links of an image, the most severe first."""
        return _rank(self.row, self.other), self.likeness, *self.other.place

    def finding(self, code: FindingCode) -> Finding:
        """Returns a finding that says what the records share, and how their splits and classes differ."""
        row, other, differences = self.row, self.other, conflicts(self.row, self.other)
        _, message = _FINDINGS[self.likeness]
        parts = [message.format(f"record {other.number} of {other.file}", self.bits_apart)]
        if FindingCode.SPLIT_LEAKAGE in differences:
            parts.append(f"in split {other.split!r}")
        if FindingCode.LABEL_CONFLICT in differences:
            parts.append(f"of class {_names(other)}, not {_names(row)}")
        return Finding(code, ", ".join(parts), *row[:4], Where(*other[:4]))


def _names(row: ComparedRecord) -> str:
    return " and ".join(repr(name) for name in sorted(row.classes))


def _keep_first(firsts: dict[K, T], key: K, item: T, order: Callable[[T], Any]) -> None:
    if key not in firsts or order(item) < order(firsts[key]):
        firsts[key] = item


class EqualPictures:
    """Records of one image. It holds the first two that are in different splits, or of different classes.

    Any record that differs from some record also differs from one of these two. The later record of a pair,
    by place, is reported. So an image that occurs n times is reported at most n - 1 times.
    """

    def __init__(self) -> None:
        self._splits: dict[str, ComparedRecord] = {}
        self._classes: dict[frozenset[str], ComparedRecord] = {}

    def add(self, row: ComparedRecord) -> None:
        """Adds a record."""
        self._keep_two(self._splits, row.split, row)
        if row.labels:
            self._keep_two(self._classes, row.classes, row)

    @staticmethod
    def _keep_two(firsts: dict[K, ComparedRecord], key: K, row: ComparedRecord) -> None:
        _keep_first(firsts, key, row, _PLACE)
        if len(firsts) > 2:
            del firsts[max(firsts, key=lambda key: firsts[key].place)]

    def first(self) -> ComparedRecord:
        """Returns the first record by place."""
        return min(self._splits.values(), key=_PLACE)

    def earlier_conflicts(self, row: ComparedRecord) -> dict[FindingCode, ComparedRecord]:
        """Returns the first earlier record in another split, and the first one with other classes, by code.

        A record without classes has none of the latter.
        """
        found: dict[FindingCode, ComparedRecord] = {}
        firsts = (*self._splits.values(), *self._classes.values())
        for other in sorted((first for first in firsts if first.place < row.place), key=_PLACE):
            for code in conflicts(row, other):
                found.setdefault(code, other)
        return found


#: What is compared in a bucket: the fields with keys or sources.
KEY, SOURCE = "key", "source"


def bucket_rows(
    rows: Iterable[ComparedRecord], buckets: int, keys: bool = True
) -> Iterator[tuple[tuple[str, int], bytes]]:
    """Returns a shard's rows packed by bucket: once by key, once by source. Equal values meet in one bucket.

    Args:
      rows: Rows of the shard.
      buckets: Number of buckets of each kind (`bucket_count`). All shards need the same number.
      keys: Whether to look for duplicate keys.

    Returns:
      Pairs ((what, bucket), packed rows), where `what` is `KEY` or `SOURCE`.
    """

    def bucketed() -> Iterator[tuple[tuple[str, int], ComparedRecord]]:
        for row in rows:
            if keys and row.key is not None:
                yield (KEY, bucket_of(row.key, buckets)), ComparedRecord(*row[:4], split="")
            if row.source is not None and (row.split or row.labels):
                yield (SOURCE, bucket_of(row.source, buckets)), row

    return packed_by(bucketed())


def rows_of_ledger(entries: Iterable[Entry], split: str, file: str) -> Iterator[ComparedRecord]:
    """Yields the rows for the records of a shard, given their entries in its ledger."""
    for number, entry in enumerate(entries):
        # Images that --map made of one source may have different classes.
        labels = () if entry.source_key else labels_of(entry)
        place = file, number, entry.offset or 0, entry.key
        yield ComparedRecord(*place, split, labels, source=entry.sha256 or None)


def labels_of(entry: Entry) -> tuple[str, ...]:
    """Returns the classes of an image, as its ledger states them."""
    return tuple(entry.label.split(LABEL_SEPARATOR)) if entry.label else ()


def compare_bucket(bucket: tuple[tuple[str, int], Iterable[bytes]]) -> Iterator[Finding]:
    """Yields the findings of one bucket: rows with one key, or one source in two splits or two classes."""
    (what, _), packs = bucket
    groups: defaultdict[str, list[ComparedRecord]] = defaultdict(list)
    for row in map(ComparedRecord._make, unpack_rows(packs)):
        groups[getattr(row, what)].append(row)
    for group in groups.values():
        if len(group) == 1:  # as nearly all
            continue
        group.sort(key=_PLACE)
        if what == KEY:
            links = (Link(row, group[0], Likeness.KEY) for row in group[1:])
            yield from (link.finding(FindingCode.DUPLICATE_KEY) for link in links)
            continue
        equals = EqualPictures()
        for row in group:  # of those before it, each differs from the first two that differ
            for code, other in equals.earlier_conflicts(row).items():
                yield Link(row, other, Likeness.SOURCE).finding(code)
            equals.add(row)


#: Key of the shuffled data; its values are packed rows.
Bucket = tuple[str, int]
#: Largest number of images with an equal band that one worker compares, the first by place.
MAX_IN_BAND = 50_000
#: Number of images of a shard that are packed together.
BATCH = 4_096
#: Number of links that are passed on together.
_MAX_LINKS = 1_000
#: Number of bytes of a value that is only counted.
_PRINT_BYTES = 8
#: Number of fields of a row without its digest and hashes, and with them.
_BARE, _WITH_PRINTS = 6, 9
#: Kinds of values that images share, besides `SOURCE`.
_PIXELS, _BAND = "pixels", "band"


def link_pictures(bucket: tuple[Bucket, Iterable[bytes]], buckets: int) -> Iterator[tuple[int, bytes]]:
    """Returns the links between the images of one bucket, packed by the bucket where they meet again.

    Args:
      bucket: Pair ((kind, number), packed rows); the packs are read twice.
      buckets: Number of buckets for links.
    """
    (kind, _), packs = bucket
    if kind.startswith(_BAND):
        links = _near_links(packs, band_number(kind))
    else:
        links = _equal_links(packs, Likeness.SOURCE if kind == SOURCE else Likeness.PIXELS)
    return packed_by(
        ((bucket_of(f"{link.row.file} {link.row.number}", buckets), link) for link in links), _MAX_LINKS
    )


def _equal_links(packs: Iterable[bytes], likeness: Likeness) -> Iterator[Link]:
    """Yields links of equal images to the first in another split or class, else to the first of all."""
    groups: defaultdict[bytes, EqualPictures] = defaultdict(EqualPictures)
    for shared, row in shared_rows(packs):
        groups[shared].add(row)
    for shared, row in shared_rows(packs):
        equals = groups[shared]
        for other in dict.fromkeys(equals.earlier_conflicts(row).values()) or [equals.first()]:
            if row.place != other.place:
                yield Link(row, other, likeness)


def _near_links(packs: Iterable[bytes], band: int) -> Iterator[Link]:
    """Yields for each image the most severe of its links to similar earlier images.

    Of images with equal pixels, only the first is compared.
    """
    groups: defaultdict[bytes, dict[bytes, ComparedRecord]] = defaultdict(dict)
    for shared, row in shared_rows(packs):
        group = groups[shared]
        _keep_first(group, row.digest, row, _PLACE)
        if len(group) >= 2 * MAX_IN_BAND:
            first_rows = heapq.nsmallest(MAX_IN_BAND, group.values(), key=_PLACE)
            groups[shared] = {row.digest: row for row in first_rows}
    for group in groups.values():
        rows = sorted(group.values(), key=_PLACE)[:MAX_IN_BAND]
        bare = [row._replace(digest=b"", hash=b"", patch=b"") for row in rows]
        gravest: dict[int, tuple[int, int, int]] = {}
        for first, second, apart in alike([row.hash for row in rows], [row.patch for row in rows], band):
            pair = _rank(rows[second], rows[first]), first, apart
            gravest[second] = min(pair, gravest.get(second, pair))
        for second, (_, first, apart) in gravest.items():
            yield Link(bare[second], bare[first], Likeness.SIMILAR, apart)


def band_number(kind: str) -> int:
    """Returns the number of the band that images of a bucket share."""
    return int(kind.removeprefix(_BAND))


def shared_rows(packs: Iterable[bytes]) -> Iterator[tuple[bytes, ComparedRecord]]:
    """Yields the shared value and the row of each image that `pictures_that_share` packed."""
    for shared, row in unpack_rows(packs):
        yield shared, ComparedRecord(*row)


def name_duplicates(bucket: tuple[int, Iterable[bytes]]) -> Iterator[Finding]:
    """Yields the findings for each image that is linked to an earlier one."""
    gravest: defaultdict[RecordPlace, dict[FindingCode, Link]] = defaultdict(dict)
    for link in map(Link._make, unpack_rows(bucket[1])):
        for code in link.codes:
            _keep_first(gravest[link.row.place], code, link, Link.order)
    for links in gravest.values():
        gravest_link = min(links.values(), key=Link.order)
        for code, link in links.items():
            if link is gravest_link or conflicts(link.row, link.other):
                yield link.finding(code)


def measured_rows(pictures: Iterable[Picture]) -> list[ComparedRecord]:
    """Returns the rows of those of a shard's images that have quality metrics."""
    return [
        ComparedRecord(*picture[:6], quality.digest, quality.hash, quality.patch, picture.source)
        for picture in pictures
        if (quality := picture.quality) and quality.pixels
    ]


def bucketed_hashes(rows: Iterable[ComparedRecord], buckets: int) -> Iterator[tuple[int, bytes]]:
    """Returns the values of a shard's images that others may share, packed by the bucket where they meet.

    Args:
      rows: Images of one shard.
      buckets: Number of buckets.
    """

    def bucketed() -> Iterator[tuple[int, tuple[bytes, str, str, int]]]:
        for batch in _batches(rows):
            bands = bands_of([row.hash for row in batch], [row.patch for row in batch])
            for row, values in zip(batch, bands):
                shared = [(f"{_BAND}{index}", value) for index, value in enumerate(values)]
                if row.digest:
                    shared.append((_PIXELS, row.digest))
                if row.source is not None:
                    shared.append((SOURCE, row.source.encode("utf-8", "surrogatepass")))
                for kind, value in shared:
                    digest = blake2b(value, digest_size=_PRINT_BYTES, person=kind.encode()).digest()
                    yield bucket_of(digest, buckets), (digest, kind, row.file, row.number)

    return packed_by(bucketed())


def pictures_by_place(rows: Iterable[ComparedRecord], buckets: int) -> Iterator[tuple[int, bytes]]:
    """Yields a shard's images, packed by the bucket where they meet the results of `duplicate_candidates`."""
    for batch in _batches(rows):
        yield _bucket_of_place(*batch[0].place, buckets), pack_rows(batch)


def _batches(rows: Iterable[ComparedRecord]) -> Iterator[list[ComparedRecord]]:
    """Yields a shard's images in batches; a batch is in one bucket of places."""
    for _, batch in groupby(rows, lambda row: (row.file, row.number // BATCH)):
        yield list(batch)


def _bucket_of_place(file: str, index: int, buckets: int) -> int:
    return bucket_of(f"{file} {index // BATCH}", buckets)


def duplicate_candidates(bucket: tuple[int, Iterable[bytes]], buckets: int) -> Iterator[tuple[int, bytes]]:
    """Returns the shared values, with their kinds and the places of the images, packed by place.

    Args:
      bucket: Number of the bucket and the packs of `bucketed_hashes`, which are read twice.
      buckets: Number of buckets.
    """
    _, packs = bucket
    once: set[bytes] = set()
    shared: set[bytes] = set()
    for digest, *_ in unpack_rows(packs):
        (shared if digest in once else once).add(digest)
    return packed_by(
        (_bucket_of_place(file, number, buckets), (digest, kind, file, number))
        for digest, kind, file, number in unpack_rows(packs)
        if digest in shared
    )


def pictures_that_share(
    pictures: Iterable[bytes], shared: Iterable[bytes], buckets: int
) -> Iterator[tuple[Bucket, bytes]]:
    """Returns the images of some places that share a value, by the buckets where they are compared.

    Args:
      pictures: Packs of `pictures_by_place`.
      shared: Packs of `duplicate_candidates` for the same places.
      buckets: Number of buckets of each kind.
    """
    values: defaultdict[RecordPlace, list[tuple[str, bytes]]] = defaultdict(list)
    for digest, kind, file, number in unpack_rows(shared):
        values[file, number].append((kind, digest))

    def bucketed() -> Iterator[tuple[Bucket, tuple[str | bytes | None, tuple[Any, ...]]]]:
        for row in map(ComparedRecord._make, unpack_rows(pictures if values else ())):
            exact = {SOURCE: row.source, _PIXELS: row.digest}
            for kind, digest in values.get(row.place, ()):
                compared = row[:_BARE] if kind in exact else row[:_WITH_PRINTS]
                yield (kind, bucket_of(digest, buckets)), (exact.get(kind, digest), compared)

    return packed_by(bucketed())
