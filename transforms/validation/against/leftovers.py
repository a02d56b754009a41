"""Brings together images and records that did not meet in their shard: moved, renamed, in another split.

As every comparison among records it goes by buckets: first of equal keys, then of equal source checksums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from shardwright.schemas.codes import FindingCode
from shardwright.schemas.findings import Finding
from shardwright.transforms.buckets import bucket_of, pack_rows, unpack_rows
from shardwright.transforms.validation.against.record import classes, labels_of

#: (what, bucket), packed leftovers.
Packed = tuple[tuple[str, int], bytes]
KEY, SOURCE = "key", "source"


class Leftover(NamedTuple):
    """An image without a record, or a record without an image.

    Attributes:
      is_record: which of the two.
      code: of the finding that it is if it finds no partner.
      message: of that finding.
      key: of the image; None if nothing tells it.
      sha256: of the source's bytes; empty if it is not known.
      label: class names, as an `ImageRef` has them.
      split: where the record is, or the image would be.
      file: the shard.
      number: of the record in its shard.
      offset: of the record in its shard.
      split_is_said: whether the source itself names the split.
    """

    is_record: bool
    code: str
    message: str
    key: str | None
    sha256: str
    label: str
    split: str
    file: str | None
    number: int | None = None
    offset: int | None = None
    split_is_said: bool = False

    def finding(self) -> Finding:
        """Returns what it is without a partner."""
        return self.as_finding(FindingCode(self.code), self.message)

    def as_finding(self, code: FindingCode, message: str) -> Finding:
        """Returns a finding at its place."""
        return Finding(code, message, self.file, self.number, self.offset, self.key)


def bucket_leftovers(leftovers: Iterable[Leftover], what: str, buckets: int) -> Iterator[Packed]:
    """Yields leftovers packed by bucket, so that equals meet in one.

    Args:
      leftovers: of a shard or bucket.
      what: has to be equal: `KEY` or `SOURCE`.
      buckets: how many there are.
    """
    packed: defaultdict[int, list[Leftover]] = defaultdict(list)
    for item in leftovers:
        name = (item.key if what == KEY else item.sha256) or ""
        packed[bucket_of(name, buckets)].append(item)
    for bucket, found in packed.items():
        yield (what, bucket), pack_rows(found)


def meet(bucket: tuple[tuple[str, int], Iterable[bytes]]) -> Iterator[Finding | Leftover]:
    """Yields findings of the pairs in a bucket, and those that are still alone."""
    (what, _), packs = bucket
    groups: defaultdict[str, tuple[list[Leftover], list[Leftover]]] = defaultdict(lambda: ([], []))
    for pack in packs:
        for item in map(Leftover._make, unpack_rows(pack)):
            name = item.key if what == KEY else item.sha256
            if not name:
                yield item
                continue
            groups[name][item.is_record].append(item)
    for images, records in groups.values():
        yield from _meet(images, records, what)


def _meet(images: list[Leftover], records: list[Leftover], what: str) -> Iterator[Finding | Leftover]:
    """Pairs equals, those of one class first."""
    by_label: defaultdict[str, list[Leftover]] = defaultdict(list)
    for image in sorted(images, key=_order, reverse=True):
        by_label[image.label].append(image)
    pairs, alone = [], []
    for record in sorted(records, key=_order):
        same = by_label.get(record.label)
        if same:
            pairs.append((record, same.pop()))
        else:
            alone.append(record)
    left = sorted((image for group in by_label.values() for image in group), key=_order)
    pairs += zip(alone, left)
    for record, image in pairs:
        yield from _moved(record, image) if what == KEY else _renamed(record, image)
    paired = min(len(alone), len(left))
    yield from alone[paired:]
    yield from left[paired:]


def _order(item: Leftover) -> tuple[str, str, int]:
    return item.key or "", item.file or "", item.offset or 0


def _moved(record: Leftover, image: Leftover) -> Iterator[Finding]:
    """Says what is wrong with a record whose image has its key, and would be in another shard."""
    if record.split != image.split:
        yield record.as_finding(
            FindingCode.SOURCE_LABEL,
            f"the source puts it into split {image.split!r}, the record is in {record.split!r}",
        )
    if _other_class(record, image):
        yield record.as_finding(FindingCode.SOURCE_LABEL, _says(record, image))
    if record.sha256 and image.sha256 and record.sha256 != image.sha256:
        yield record.as_finding(
            FindingCode.SOURCE_CHANGED,
            f"its source's sha256 begins {image.sha256[:12]}, that of what it was made from "
            f"{record.sha256[:12]}",
        )


def _renamed(record: Leftover, image: Leftover) -> Iterator[Finding]:
    """Says what is wrong with a record whose image has another key now."""
    moved = f"the source has its picture as {image.key!r} now"
    if _other_class(record, image):
        yield record.as_finding(FindingCode.SOURCE_LABEL, f"{moved}: {_says(record, image)}")
    elif image.split_is_said and image.split != record.split:
        yield record.as_finding(
            FindingCode.SOURCE_LABEL, f"{moved}, in split {image.split!r}; the record is in {record.split!r}"
        )
    else:
        yield record.as_finding(FindingCode(record.code), moved)


def _other_class(record: Leftover, image: Leftover) -> bool:
    return bool(record.label and image.label) and record.label != image.label


def _says(record: Leftover, image: Leftover) -> str:
    mine, true = labels_of(record.label), labels_of(image.label)
    return f"the source says {classes(true)}, the record {classes(mine)}"
