"""Matches the records found in a damaged shard with those that were written. Needs no Beam."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple


class Frame(NamedTuple):
    """A record: offset and length of its frame, its key, and its source's sha256."""

    offset: int
    length: int
    key: str | None = None
    source: str | None = None


class Match(Enum):
    """Result for a found record that has no number."""

    UNKNOWN = "unknown"  # it was written to this shard, but nothing shows which record it is
    UNEXPECTED = "unexpected"  # it was not written to this shard, or is a second copy


def match_records(
    found: Sequence[Frame], written: Sequence[Frame], size: int, has_all_keys: bool = False
) -> list[int | Match]:
    """Returns for each found record its number among the written ones.

    A record is matched by its key, if it has one, else by its source image, if that is unique, else by its
    place.

    Args:
      found: Records that were found, by offset.
      written: Records that were written, in order.
      size: Size of the damaged file.
      has_all_keys: Whether the written records have exactly the keys that are in their bytes. Then a record
        with another key was not written to this shard, even if none matches: the file is that of another.
    """
    numbers: list[int | Match | None] = [None] * len(found)
    taken: set[int] = set()
    _by_name([item.key for item in found], [item.key for item in written], found, written, numbers, taken)
    if has_all_keys or any(isinstance(number, int) for number in numbers):
        # Keys can be compared, so a record with an unknown key does not belong to this shard.
        for i, item in enumerate(found):
            if numbers[i] is None and item.key is not None:
                numbers[i] = Match.UNEXPECTED
    _by_name(
        [item.source for item in found], [item.source for item in written], found, written, numbers, taken
    )
    _by_place(found, written, size, numbers, taken)
    return _without_copies(found, numbers)


def _without_copies(found: Sequence[Frame], numbers: Sequence[int | Match | None]) -> list[int | Match]:
    """Decides whether the remaining records are second copies, which damage can leave behind."""
    known = {item.source for item, number in zip(found, numbers) if isinstance(number, int)}
    matches: list[int | Match] = []
    for item, number in zip(found, numbers, strict=True):
        if number is None:
            number = Match.UNEXPECTED if item.source and item.source in known else Match.UNKNOWN
            known.add(item.source)
        matches.append(number)
    return matches


def _by_name(
    names: Sequence[str | None],
    known: Sequence[str | None],
    found: Sequence[Frame],
    written: Sequence[Frame],
    numbers: list[int | Match | None],
    taken: set[int],
) -> None:
    """Matches records with a unique name and the expected length."""
    often = Counter(name for name in known if name)
    index = {name: number for number, name in enumerate(known) if name and often[name] == 1}
    for i, name in enumerate(names):
        number = index.get(name) if name else None
        if numbers[i] is None and number is not None and written[number].length == found[i].length:
            numbers[i] = Match.UNEXPECTED if number in taken else number
            taken.add(number)


def _by_place(
    found: Sequence[Frame],
    written: Sequence[Frame],
    size: int,
    numbers: list[int | Match | None],
    taken: set[int],
) -> None:
    """Matches a record at its written place, or after a known record."""
    at = {item.offset: number for number, item in enumerate(written)}
    shifts = {0, size - (written[-1].offset + written[-1].length) if written else 0}
    same = {
        item.source: written[number]
        for item, number in zip(found, numbers, strict=True)
        if isinstance(number, int) and item.source
    }
    undamaged_to = 0
    for i, item in enumerate(found):
        certain = item.offset == undamaged_to
        if certain:
            undamaged_to += item.length
        if numbers[i] is not None:
            continue
        before = found[i - 1] if i else None
        follows = before is not None and before.offset + before.length == item.offset
        last = numbers[i - 1] if follows else None
        if certain:
            possible = {at.get(item.offset, -1)}
        elif isinstance(last, int):
            possible = {last + 1}
        elif follows:
            continue  # the sequence that contains it could not be placed
        else:
            possible = {at.get(item.offset - shift, -1) for shift in shifts}
        possible = {
            number
            for number in possible - taken
            if 0 <= number < len(written)
            and written[number].length == item.length
            and (certain or _may_equal(written[number], same.get(item.source or "")))
        }
        if len(possible) == 1:
            number = possible.pop()
            numbers[i] = number
            taken.add(number)
            if item.source:
                same.setdefault(item.source, written[number])


def _may_equal(written: Frame, other: Frame | None) -> bool:
    """Returns whether a record may hold the same image as another; a ledger knows the sources of both."""
    return other is None or (bool(written.source) and written.source == other.source)
