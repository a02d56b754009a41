"""Matches images and records that did not meet in their shard: moved, renamed, or in another split.

Like all comparisons of records it uses buckets: first of equal keys, then of equal source checksums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from shardwright.core.hash_buckets import bucket_of, packed_by, unpack_rows
from shardwright.core.validation.against.record import classes
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.findings import Finding
from shardwright.schemas.image_ref import labels_of

#: (what, bucket), packed leftovers.
Packed = tuple[tuple[str, int], bytes]
KEY, SOURCE = "key", "source"


class Leftover(NamedTuple):
    """An image without a record, or a record without an image.

    Attributes:
      is_record: Whether it is a record. Otherwise it is an image.
      code: Code of its finding if it has no partner.
      message: Message of that finding.
      key: Key of the image. None if it is not known.
      sha256: sha256 of the source's bytes. Empty if it is not known.
      label: Class names, as in an `ImageRef`.
      split: Split of the record, or planned split of the image.
      file: Name of the shard.
      number: Number of the record in its shard.
      offset: Offset of the record in its shard.
      given_split: Whether the source itself names the split.
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
    given_split: bool = False

    def finding(self) -> Finding:
        """Returns the finding if it has no partner."""
        return self.as_finding(FindingCode(self.code), self.message)

    def as_finding(self, code: FindingCode, message: str) -> Finding:
        """Returns a finding at the place of this leftover."""
        return Finding(code, message, self.file, self.number, self.offset, self.key)


def bucket_leftovers(leftovers: Iterable[Leftover], what: str, buckets: int) -> Iterator[Packed]:
    """Returns leftovers packed by bucket, so that equal ones meet.

    Args:
      leftovers: Leftovers of a shard or bucket.
      what: Value that has to be equal: `KEY` or `SOURCE`.
      buckets: Number of buckets.
    """
    return packed_by(
        ((what, bucket_of((item.key if what == KEY else item.sha256) or "", buckets)), item)
        for item in leftovers
    )


def meet(bucket: tuple[tuple[str, int], Iterable[bytes]]) -> Iterator[Finding | Leftover]:
    """Yields the findings of the pairs in a bucket, and the leftovers without a partner."""
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
    """Pairs equal leftovers, those of one class first."""
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
    """Yields findings for a record whose image has the same key but is planned in another shard."""
    if record.split != image.split:
        yield record.as_finding(
            FindingCode.SOURCE_LABEL,
            f"the source puts it into split {image.split!r}, the record is in {record.split!r}",
        )
    if _other_class(record, image):
        yield record.as_finding(FindingCode.SOURCE_LABEL, _class_difference(record, image))
    if record.sha256 and image.sha256 and record.sha256 != image.sha256:
        yield record.as_finding(
            FindingCode.SOURCE_CHANGED,
            f"its source's sha256 begins with {image.sha256[:12]}, but the record was made from "
            f"{record.sha256[:12]}",
        )


def _renamed(record: Leftover, image: Leftover) -> Iterator[Finding]:
    """Yields findings for a record whose image now has another key."""
    moved = f"the source has its image as {image.key!r} now"
    if _other_class(record, image):
        yield record.as_finding(FindingCode.SOURCE_LABEL, f"{moved}: {_class_difference(record, image)}")
    elif image.given_split and image.split != record.split:
        yield record.as_finding(
            FindingCode.SOURCE_LABEL, f"{moved}, in split {image.split!r}; the record is in {record.split!r}"
        )
    else:
        yield record.as_finding(FindingCode(record.code), moved)


def _other_class(record: Leftover, image: Leftover) -> bool:
    return bool(record.label and image.label) and record.label != image.label


def _class_difference(record: Leftover, image: Leftover) -> str:
    mine, true = labels_of(record.label), labels_of(image.label)
    return f"the source says {classes(true)}, the record {classes(mine)}"
