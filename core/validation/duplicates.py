"""Compares records with each other: duplicate keys, and equal or nearly equal images.

Rows meet in buckets by hash, so that no worker holds all of them. Equal keys and equal source bytes are found
from a few values of each record; images are compared by their pixels, too.

Images that may be equal meet in a bucket: those with one source, with equal pixels, or with an equal band
of the perceptual hash. There the later image of a pair, by place, is linked to the earlier one. An image may
have several links, and these meet again. An image in another split than an earlier one gets a finding, and so
does an image with other classes. Otherwise the most severe link becomes the finding. Of equal images a worker
holds one for each split and each set of classes, and it passes links on in batches.

Most images share nothing: neither the source, nor the pixels, nor a band of the hash. So each value is first
counted as eight bytes (`duplicate_candidates`), and only the rows of images with a shared value are shuffled.
With rows in every bucket, a job would shuffle five times as much.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from enum import IntEnum
from hashlib import blake2b
from itertools import chain
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
#: Message for a record whose source has the same bytes as another record's source.
SAME_SOURCE = "same source bytes as {}"


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


def in_conflict(classes: frozenset[str], others: frozenset[str]) -> bool:
    """Returns whether two images both have classes, and these differ."""
    return bool(classes) and bool(others) and classes != others


class EqualPictures:
    """Records of one image. It holds one record for each split and for each set of classes.

    The later record of a pair, by place, is reported. So an image that occurs n times is reported at most
    n - 1 times.
    """

    def __init__(self) -> None:
        self._splits: dict[str, ComparedRecord] = {}
        self._classes: dict[frozenset[str], ComparedRecord] = {}

    def add(self, row: ComparedRecord) -> None:
        """Adds a record."""
        _keep_first(self._splits, row.split, row, _PLACE)
        if row.classes:
            _keep_first(self._classes, row.classes, row, _PLACE)

    def first(self) -> ComparedRecord:
        """Returns the first record by place."""
        return min(self._splits.values(), key=_PLACE)

    def settle(self) -> None:
        """Drops the records that are not needed for comparison; afterwards nothing can be added."""
        # Any record that differs from some record also differs from one of the first two different ones.
        self._splits = {row.split: row for row in heapq.nsmallest(2, self._splits.values(), _PLACE)}
        self._classes = {row.classes: row for row in heapq.nsmallest(2, self._classes.values(), _PLACE)}

    def earlier_conflicts(self, row: ComparedRecord) -> dict[FindingCode, ComparedRecord]:
        """Returns the first earlier record in another split, and the first one with other classes, by code.

        A record without classes has none of the latter.
        """
        others = {
            FindingCode.SPLIT_LEAKAGE: (one for one in self._splits.values() if one.split != row.split),
            FindingCode.LABEL_CONFLICT: (
                one for one in self._classes.values() if in_conflict(row.classes, one.classes)
            ),
        }
        earlier = {code: [one for one in some if one.place < row.place] for code, some in others.items()}
        return {code: min(some, key=_PLACE) for code, some in earlier.items() if some}


def _finding_of_pair(code: FindingCode, likeness: str, row: ComparedRecord, other: ComparedRecord) -> Finding:
    """Returns a finding that says what two records share, and how their splits and classes differ.

    Args:
      code: Code of the finding.
      likeness: What they share, with {} for the other record, such as `same pixels as {}`.
      row: Record that is reported.
      other: The other record.
    """
    differences = []
    if row.split != other.split:
        differences.append(f"in split {other.split!r}")
    if in_conflict(row.classes, other.classes):
        differences.append(f"of class {_names(other.classes)}, not {_names(row.classes)}")
    message = ", ".join([likeness.format(f"record {other.number} of {other.file}"), *differences])
    return Finding(code, message, *row[:4], Where(*other[:4]))


def _names(classes: frozenset[str]) -> str:
    return " and ".join(repr(name) for name in sorted(classes))


def _keep_first(firsts: dict[K, T], key: K, item: T, order: Callable[[T], Any]) -> None:
    if key not in firsts or order(item) < order(firsts[key]):
        firsts[key] = item


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
        record = ComparedRecord(file, number, entry.offset or 0, entry.key, split, labels)
        yield record._replace(source=entry.sha256 or None)


def labels_of(entry: Entry) -> tuple[str, ...]:
    """Returns the classes of an image, as its ledger states them."""
    return tuple(entry.label.split(LABEL_SEPARATOR)) if entry.label else ()


def compare_bucket(bucket: tuple[tuple[str, int], Iterable[bytes]]) -> Iterator[Finding]:
    """Yields the findings of one bucket: rows with one key, or one source in two splits or two classes."""
    (what, _), packs = bucket
    groups: defaultdict[str, list[ComparedRecord]] = defaultdict(list)
    for row in map(ComparedRecord._make, chain.from_iterable(map(unpack_rows, packs))):
        groups[getattr(row, what)].append(row)
    for group in groups.values():
        if len(group) == 1:  # as nearly all
            continue
        group.sort(key=_PLACE)
        if what == SOURCE:
            yield from _same_source(group)
        else:
            likeness = "its key is also the key of {}"
            for row in group[1:]:
                yield _finding_of_pair(FindingCode.DUPLICATE_KEY, likeness, row, group[0])


def _same_source(rows: list[ComparedRecord]) -> Iterator[Finding]:
    """Yields findings for records with one source. A record in another split and class gets both findings."""
    equals = EqualPictures()
    for row in rows:
        equals.add(row)
    equals.settle()
    for row in rows:
        for code, other in equals.earlier_conflicts(row).items():
            yield _finding_of_pair(code, SAME_SOURCE, row, other)


#: Key of the shuffled data; its values are packed rows.
Bucket = tuple[str, int]
#: Largest number of images with an equal band that one worker compares, the first by place.
MAX_IN_BAND = 50_000
#: Number of images of a shard that are packed together.
BATCH = 4_096
#: Number of links that are passed on together.
_MAX_LINKS = 1_000
_NEAR_BITS = 256
#: Number of bytes of a value that is only counted.
_PRINT_BYTES = 8
#: Number of fields of a row with which equal images are compared, and similar ones.
_WITH_DIGEST, _WITH_PRINTS = 7, 9

#: Codes for a pair, the most severe first.
_CODES = (
    FindingCode.SPLIT_LEAKAGE,
    FindingCode.LABEL_CONFLICT,
    FindingCode.EXACT_DUPLICATE,
    FindingCode.NEAR_DUPLICATE,
)


_BAND = "band"


class Likeness(IntEnum):
    """In what way two images are equal."""

    SOURCE = 0
    PIXELS = 1
    SIMILAR = 2


class Link(NamedTuple):
    """An image that is like another, both without their hashes."""

    row: ComparedRecord
    other: ComparedRecord
    gravity: int
    likeness: int
    bits_apart: int

    def order(self) -> tuple[str, int, int, int, str, int]:
        """Sort key for links: by image, then the most severe first."""
        return *self.row.place, self.gravity, self.likeness, *self.other.place


def shared_values(rows: Sequence[ComparedRecord]) -> Iterator[list[tuple[str, bytes]]]:
    """Yields for each image the pairs (kind, value) that similar images share."""
    bands = bands_of([row.hash for row in rows], [row.patch for row in rows])
    for row, values in zip(rows, bands):
        shared = [("pixels", row.digest)] if row.digest else []
        if row.source is not None:
            shared.append(("source", row.source.encode("utf-8", "surrogatepass")))
        yield shared + [(f"{_BAND}{index}", value) for index, value in enumerate(values)]


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
        links = _equal_links(packs, Likeness.SOURCE if kind == "source" else Likeness.PIXELS)
    return packed_by(
        ((bucket_of(f"{link.row.file} {link.row.number}", buckets), link) for link in links), _MAX_LINKS
    )


def _equal_links(packs: Iterable[bytes], likeness: Likeness) -> Iterator[Link]:
    """Yields links of equal images to the first in another split or class, else to the first of all."""
    groups: defaultdict[bytes, EqualPictures] = defaultdict(EqualPictures)
    for shared, row in shared_rows(packs):
        groups[shared].add(row)
    for equals in groups.values():
        equals.settle()
    for shared, row in shared_rows(packs):
        equals = groups[shared]
        others = dict.fromkeys(equals.earlier_conflicts(row).values())
        for other in others or [equals.first()]:
            if row.place != other.place:
                yield _link(row, other, likeness)


def _near_links(packs: Iterable[bytes], band: int) -> Iterator[Link]:
    """Yields the links of similar images; of images with equal pixels, only the first is compared."""
    groups: defaultdict[bytes, dict[bytes, ComparedRecord]] = defaultdict(dict)
    for shared, row in shared_rows(packs):
        group = groups[shared]
        _keep_first(group, row.digest, row, _PLACE)
        if len(group) >= 2 * MAX_IN_BAND:
            first_rows = heapq.nsmallest(MAX_IN_BAND, group.values(), key=_PLACE)
            groups[shared] = {row.digest: row for row in first_rows}
    for group in groups.values():
        yield from _near(sorted(group.values(), key=_PLACE)[:MAX_IN_BAND], band)


def band_number(kind: str) -> int:
    """Returns the number of the band that images of a bucket share."""
    return int(kind.removeprefix(_BAND))


def shared_rows(packs: Iterable[bytes]) -> Iterator[tuple[bytes, ComparedRecord]]:
    """Yields the shared value and the row of each image that `pictures_that_share` packed."""
    for packed in packs:
        for shared, row in unpack_rows(packed):
            yield shared, ComparedRecord(*row)


def name_duplicates(bucket: tuple[int, Iterable[bytes]]) -> Iterator[Finding]:
    """Yields the findings for each image that is linked to an earlier one."""
    gravest: defaultdict[tuple[str, int], dict[FindingCode, Link]] = defaultdict(dict)
    for packed in bucket[1]:
        for link in itertools.starmap(Link, unpack_rows(packed)):
            links = gravest[link.row.place]
            codes = [_CODES[link.gravity]]
            if codes[0] is FindingCode.SPLIT_LEAKAGE and in_conflict(link.row.classes, link.other.classes):
                codes.append(FindingCode.LABEL_CONFLICT)
            for code in codes:
                _keep_first(links, code, link, Link.order)
    for links in gravest.values():
        grave = [code for code in _CODES[:2] if code in links]
        for code in grave or [min(links, key=_CODES.index)]:
            yield _finding(code, links[code])


def _near(rows: Sequence[ComparedRecord], band: int) -> Iterator[Link]:
    """Yields for each image the most severe of its links to similar earlier images."""
    gravest: dict[int, tuple[int, int, int]] = {}
    for first, second, apart in alike([row.hash for row in rows], [row.patch for row in rows], band):
        pair = _gravity(rows[second], rows[first], Likeness.SIMILAR), first, apart
        gravest[second] = min(pair, gravest.get(second, pair))
    for second, (_, first, apart) in gravest.items():
        yield _link(rows[second], rows[first], Likeness.SIMILAR, apart)


def _gravity(row: ComparedRecord, other: ComparedRecord, likeness: Likeness) -> int:
    """Returns the place in `_CODES` of the code for a pair."""
    if row.split != other.split:
        return 0
    if row.labels != other.labels and in_conflict(row.classes, other.classes):
        return 1
    return 3 if likeness is Likeness.SIMILAR else 2


def _link(row: ComparedRecord, other: ComparedRecord, likeness: Likeness, apart: int = 0) -> Link:
    gravity = _gravity(row, other, likeness)
    row, other = (ComparedRecord(*item[:6]) for item in (row, other))
    return Link(row, other, gravity, int(likeness), apart)


def _finding(code: FindingCode, link: Link) -> Finding:
    texts = {
        Likeness.SOURCE: SAME_SOURCE,
        Likeness.PIXELS: "same pixels as {}",
        Likeness.SIMILAR: f"it looks like {{}} ({link.bits_apart} of {_NEAR_BITS} bits differ)",
    }
    return _finding_of_pair(code, texts[Likeness(link.likeness)], link.row, link.other)


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
            for row, shared in zip(batch, shared_values(batch)):
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
    batches = itertools.groupby(rows, lambda row: (row.file, row.number // BATCH))
    yield from (list(batch) for _, batch in batches)


def _bucket_of_place(file: str, index: int, buckets: int) -> int:
    return bucket_of(f"{file} {index // BATCH}", buckets)


def duplicate_candidates(bucket: tuple[int, Iterable[bytes]], buckets: int) -> Iterator[tuple[int, bytes]]:
    """Returns the places of the images that share a value, and the kinds of these values, packed by place.

    Args:
      bucket: Number of the bucket and the packs of `bucketed_hashes`, which are read twice.
      buckets: Number of buckets.
    """
    _, packs = bucket
    once: set[bytes] = set()
    shared: set[bytes] = set()
    for digest, *_ in chain.from_iterable(map(unpack_rows, packs)):
        (shared if digest in once else once).add(digest)
    return packed_by(
        (_bucket_of_place(file, number, buckets), (file, number, kind))
        for digest, kind, file, number in chain.from_iterable(map(unpack_rows, packs))
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
    kinds: defaultdict[RecordPlace, set[str]] = defaultdict(set)
    for file, number, kind in chain.from_iterable(map(unpack_rows, shared)):
        kinds[file, number].add(kind)

    def bucketed() -> Iterator[tuple[Bucket, tuple[bytes, tuple[Any, ...]]]]:
        for pack in pictures if kinds else ():
            rows = [row for row in map(ComparedRecord._make, unpack_rows(pack)) if row.place in kinds]
            for row, values in zip(rows, shared_values(rows)):
                for kind, value in values:
                    if kind in kinds[row.place]:
                        compared = row[:_WITH_PRINTS] if kind.startswith(_BAND) else row[:_WITH_DIGEST]
                        yield (kind, bucket_of(value, buckets)), (value, compared)

    return packed_by(bucketed())
