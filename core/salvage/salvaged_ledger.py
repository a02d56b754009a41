"""Decides which records of a shard are kept, lists the lost ones, writes the new ledger. Needs no Beam."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from typing import NamedTuple

from shardwright.core.records.framing import DamagedRange
from shardwright.schemas.codes import FindingCode, Outcome, QuarantineReason, Stage
from shardwright.schemas.ledger import Entry


class LostRecord(NamedTuple):
    """A record that could not be saved; a field is None if its value is not known any more.

    Attributes:
      key: Key of the image.
      shard: Name of its shard file.
      record: Number of the record in the shard, from 0.
      offset: Where its frame began in the (uncompressed) shard, before the damage; where the damage begins,
        if the shard has no ledger or index.
      length: Bytes of its frame, or of the damage.
      code: Code of the validation finding that describes the damage.
      message: One sentence.
    """

    key: str | None
    shard: str
    record: int | None
    offset: int | None
    length: int | None
    code: str
    message: str


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
    frames: Sequence[Frame], written: Sequence[Frame], size: int, has_all_keys: bool = False
) -> list[int | Match]:
    """Returns for each found record its number among the written ones.

    A record is matched by its key, if it has one, else by its source image, if that is unique, else by its
    place.

    Args:
      frames: Records that were found, by offset.
      written: Records that were written, in order.
      size: Size of the damaged file.
      has_all_keys: Whether the written records have exactly the keys that are in their bytes. Then a record
        with another key was not written to this shard, even if none matches: the file belongs to another.
    """
    numbers: list[int | Match | None] = [None] * len(frames)
    _match_by_name(frames, written, numbers, attrgetter("key"))
    if has_all_keys or any(isinstance(index, int) for index in numbers):
        # Keys can be compared, so a record with an unknown key does not belong to this shard.
        for i, item in enumerate(frames):
            if numbers[i] is None and item.key is not None:
                numbers[i] = Match.UNEXPECTED
    _match_by_name(frames, written, numbers, attrgetter("source"))
    _match_by_place(frames, written, numbers, size)
    # The remaining records may be second copies, which damage can leave behind.
    names = [item.key or item.source for item in frames]
    matched_names = {name for name, index in zip(names, numbers, strict=True) if isinstance(index, int)}
    matches: list[int | Match] = []
    for name, index in zip(names, numbers, strict=True):
        if index is None:
            index = Match.UNEXPECTED if name and name in matched_names else Match.UNKNOWN
            matched_names.add(name)
        matches.append(index)
    return matches


def _match_by_name(
    frames: Sequence[Frame],
    written: Sequence[Frame],
    numbers: list[int | Match | None],
    name_of: Callable[[Frame], str | None],
) -> None:
    """Adds the numbers of records with a unique name and the expected length."""
    often = Counter(map(name_of, written))
    by_name = {name_of(item): index for index, item in enumerate(written) if often[name_of(item)] == 1}
    used = {number for number in numbers if isinstance(number, int)}
    for i, item in enumerate(frames):
        name = name_of(item)
        index = by_name.get(name) if name else None
        if numbers[i] is None and index is not None and written[index].length == item.length:
            numbers[i] = Match.UNEXPECTED if index in used else index
            used.add(index)


def _match_by_place(
    frames: Sequence[Frame], written: Sequence[Frame], numbers: list[int | Match | None], size: int
) -> None:
    """Adds the numbers of records at their written places, or after a known one, in a file of this size."""
    used = {number for number in numbers if isinstance(number, int)}
    at = {item.offset: index for index, item in enumerate(written)}
    shifts = {0, size - (written[-1].offset + written[-1].length) if written else 0}
    same = {
        item.source: written[index]
        for item, index in zip(frames, numbers, strict=True)
        if isinstance(index, int) and item.source
    }
    undamaged_to = 0
    for i, item in enumerate(frames):
        certain = item.offset == undamaged_to
        if certain:
            undamaged_to += item.length
        if numbers[i] is not None:
            continue
        before = frames[i - 1] if i else None
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
            index
            for index in possible - used
            if 0 <= index < len(written)
            and written[index].length == item.length
            and (
                certain
                or (other := same.get(item.source or "")) is None
                or (bool(written[index].source) and written[index].source == other.source)
            )
        }
        if len(possible) == 1:
            index = numbers[i] = possible.pop()
            used.add(index)
            if item.source:
                same.setdefault(item.source, written[index])


Problem = tuple[FindingCode, str]

_NO_TRACE: Problem = (FindingCode.COUNT_MISMATCH, "there is no trace of it in the shard")


class FoundRecord(NamedTuple):
    """A record of a shard with a sound frame, and the result of its check.

    Attributes:
      frame: Its place and identity.
      problem: Reason why it cannot be kept. None if it can.
      entry: Its line in a ledger, as far as the record and its image state it.
    """

    frame: Frame
    problem: Problem | None
    entry: Entry

    def as_lost(self, file: str) -> LostRecord:
        """Returns the lost record, if it has a problem and its number is not known."""
        assert self.problem is not None
        return LostRecord(self.frame.key, file, None, *self.frame[:2], *self.problem)


class Content(NamedTuple):
    """What was found in a shard: its records, the damage between them, and its uncompressed size."""

    records: list[FoundRecord]
    damages: list[DamagedRange]
    size: int


@dataclass
class SalvagedLedger:
    """Result of a salvage for the records of one shard.

    Attributes:
      kept: Indexes of the kept records among those found, in the order in which they are written.
      lost: Lost records, by place.
      entries: Lines of the new ledger.
      unexpected: Number of records left out because they do not belong to the shard, or are second copies.
    """

    kept: list[int] = field(default_factory=list)
    lost: list[LostRecord] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    unexpected: int = 0


def reconcile(
    file: str,
    uri: str,
    content: Content,
    ledger: Sequence[Entry] | None,
    index: Sequence[Frame] | None,
    records: int,
    intact: bool,
) -> SalvagedLedger:
    """Decides which records of a shard are kept and lists the lost ones.

    Args:
      file: Name of the shard.
      uri: Path of the shard.
      content: The records found in it.
      ledger: Lines of its ledger. None if it has no reliable ledger.
      index: Its frames, if it has no ledger. None if it has no index either.
      records: Number of records that it should have.
      intact: Whether its bytes are those that were written.
    """
    frames = [record.frame for record in content.records]
    if index is None and intact:
        index = frames  # as they were written, also those of equal images
    is_placed = ledger is not None or index is not None
    written = list(index or [Frame(0, 0)] * records)
    keys = [item.key for item in written]
    if ledger is not None:
        entries = [entry for entry in ledger if entry.outcome == Outcome.WRITTEN]
        written = [
            Frame(entry.offset or 0, entry.length or 0, entry.name_in_record, entry.sha256)
            for entry in entries
        ]
        keys = [entry.key for entry in entries]
    numbers: list[int | Match] = list(range(len(frames)))
    if not (is_placed and intact and len(frames) == len(written)):
        # Version 0.1 stored the key where the ledger has a file name.
        has_all_keys = ledger is not None and not any(entry.file_name for entry in ledger)
        numbers = match_records(frames, written, content.size, has_all_keys)
    unmatched = sorted(set(range(len(written))).difference(numbers))
    unknown = [i for i, number in enumerate(numbers) if number is Match.UNKNOWN]
    unknown.sort(key=lambda i: content.records[i].problem is not None)  # those that can be kept come first
    belong = set(unknown[: len(unmatched)])
    salvaged = SalvagedLedger(unexpected=numbers.count(Match.UNEXPECTED) + len(unknown) - len(belong))
    problems: dict[int, Problem] = {}
    kept: list[tuple[int, int]] = []  # (number, i)
    for i, number in enumerate(numbers):
        problem = content.records[i].problem
        if isinstance(number, int) and problem:
            problems[number] = problem
        elif not problem and (isinstance(number, int) or i in belong):
            kept.append((number if isinstance(number, int) else -1, i))
    if is_placed and not belong:
        kept.sort()  # sequences that changed places return to theirs
        problems |= _why_lost(unmatched, content, numbers)
    salvaged.kept = [i for _, i in kept]
    for number, problem in sorted(problems.items()):
        item = written[number]
        salvaged.lost.append(LostRecord(keys[number], file, number, item.offset, item.length, *problem))
    if belong or not is_placed:  # it is not known which records these are, and so not which records are lost
        bad = [i for i in belong if content.records[i].problem]
        one_each = not is_placed and len(content.records) + len(content.damages) == len(written)
        salvaged.lost += _unnamed(file, content, bad, len(unmatched) - len(belong), one_each)
    salvaged.entries = _new_entries(salvaged.lost, uri, content, kept, ledger)
    return salvaged


def _new_entries(
    all_lost: Sequence[LostRecord],
    uri: str,
    content: Content,
    kept: Sequence[tuple[int, int]],
    ledger: Sequence[Entry] | None,
) -> list[Entry]:
    """Returns the lines of the new ledger: those of the old one, and of records that it does not name.

    Args:
      all_lost: Lost records.
      uri: Path of the shard.
      content: The records found in it.
      kept: Number and index of each kept record. The number is -1 if it is not known.
      ledger: Lines of the old ledger. None if there is none.
    """
    places: dict[int, tuple[int, int]] = {}
    unnamed: list[Entry] = []
    offset = 0
    for number, i in kept:
        record = content.records[i]
        if ledger is not None and number >= 0:
            places[number] = (offset, record.frame.length)
        else:
            unnamed.append(record.entry._replace(offset=offset))
        offset += record.frame.length
    lost: dict[int, LostRecord] = {}
    for item in all_lost:
        if ledger is not None and item.record is not None:
            lost[item.record] = item
        else:
            unnamed.append(_quarantine(item, uri))
    entries: list[Entry] = []
    number = -1
    for entry in ledger or ():
        if entry.outcome != Outcome.WRITTEN:
            entries.append(entry)
            continue
        number += 1
        if number in places:
            entries.append(entry._replace(offset=places[number][0], length=places[number][1]))
        elif number in lost:
            entries.append(_quarantine(lost[number], uri, entry))
    if entries and unnamed:
        return sorted(entries + unnamed, key=lambda entry: -1 if entry.offset is None else entry.offset)
    return entries + unnamed


def lost_range(file: str, damage: DamagedRange, number: int | None) -> LostRecord:
    """Returns the lost record of a damaged range.

    Args:
      file: Name of the shard.
      damage: The range.
      number: Number of the record. None if it is not known.
    """
    size = damage.end - damage.offset
    return LostRecord(None, file, number, damage.offset, size, damage.code, damage.message)


def _unnamed(
    file: str, content: Content, bad: Sequence[int], missing: int, one_each: bool
) -> list[LostRecord]:
    """Returns lost records whose place among all records is not known.

    Args:
      file: Name of the shard.
      content: The records found in it.
      bad: Indexes of the found records that cannot be kept.
      missing: Number of records that were not found.
      one_each: Whether each damaged range is one record, so that record numbers are exact.
    """
    lost = [content.records[i].as_lost(file) for i in bad]
    damages = content.damages[:missing]
    lost += [lost_range(file, damage, damage.number if one_each else None) for damage in damages]
    last: Problem = (content.damages[-1].code, content.damages[-1].message) if content.damages else _NO_TRACE
    lost += [LostRecord(None, file, None, None, None, *last)] * (missing - len(damages))
    return sorted(lost, key=lambda item: (item.offset is None, item.offset or 0))


def _why_lost(
    unmatched: Sequence[int], content: Content, numbers: Sequence[int | Match]
) -> dict[int, Problem]:
    """Returns, for each record that was not found, the damage in its place."""
    placed = sorted((number, i) for i, number in enumerate(numbers) if isinstance(number, int))
    placed_numbers = [number for number, _ in placed]
    begins = [damage.offset for damage in content.damages]
    problems: dict[int, Problem] = {}
    before, in_gap = -1, 0
    for number in unmatched:
        place = bisect_left(placed_numbers, number)
        in_gap = in_gap + 1 if place == before else 0
        before = place
        last = content.records[placed[place - 1][1]].frame if place else Frame(0, 0)
        low = bisect_left(begins, last.offset + last.length)
        end = content.records[placed[place][1]].frame.offset if place < len(placed) else content.size + 1
        high = bisect_left(begins, end)
        if low < high:
            damage = content.damages[min(low + in_gap, high - 1)]
            problems[number] = damage.code, damage.message
        else:
            problems[number] = _NO_TRACE
    return problems


def _quarantine(lost: LostRecord, uri: str, entry: Entry | None = None) -> Entry:
    """Returns the ledger line of a lost record."""
    return Entry(
        key=lost.key or "",
        outcome=Outcome.QUARANTINED,
        fingerprint=entry.fingerprint if entry else "",
        sha256=entry.sha256 if entry else "",
        label=entry.label if entry else "",
        reason=QuarantineReason.DAMAGED_RECORD,
        stage=Stage.READ,
        message=f"{lost.code}: {lost.message}",
        uri=uri,
    )
