"""Decides which records of a shard are kept, lists the lost ones, writes the new ledger. Needs no Beam."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from shardwright.core.records.recovery import DamagedRange
from shardwright.schemas.codes import FindingCode, Outcome, QuarantineReason, Stage
from shardwright.schemas.ledger import Entry
from shardwright.schemas.lost_records import LostRecord


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


Problem = tuple[FindingCode, str]

_NO_TRACE: Problem = (FindingCode.COUNT_MISMATCH, "there is no trace of it in the shard")


class FoundRecord(NamedTuple):
    """A record of a shard with a sound frame, and the result of its check.

    Attributes:
      found: Its place and identity.
      problem: Reason why it cannot be kept. None if it can.
      label: Its classes, as a ledger writes them. Empty if they were not read.
      format: Format of its image. Empty if it was not read.
      dtype: Type of its samples. Empty if the record does not say.
      file_name: File name in the record, if that is all it says about its key.
    """

    found: Frame
    problem: Problem | None
    label: str
    format: str
    dtype: str = ""
    file_name: str = ""


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
    if ledger is not None:
        written = [
            Frame(entry.offset or 0, entry.length or 0, entry.name_in_record, entry.sha256)
            for entry in ledger
            if entry.outcome == Outcome.WRITTEN
        ]
    elif index is not None:
        written = list(index)
    else:
        return _without_names(file, uri, content, records)
    found = [record.found for record in content.records]
    numbers: list[int | Match] = list(range(len(found)))
    if not intact or len(found) != len(written):
        # Version 0.1 stored the key where the ledger has a file name.
        has_all_keys = ledger is not None and not any(entry.file_name for entry in ledger)
        numbers = match_records(found, written, content.size, has_all_keys)
    return _with_names(file, uri, content, written, numbers, ledger)


def _with_names(
    file: str,
    uri: str,
    content: Content,
    written: Sequence[Frame],
    numbers: Sequence[int | Match],
    ledger: Sequence[Entry] | None,
) -> SalvagedLedger:
    """Accounts for a shard whose written records are known."""
    salvaged = SalvagedLedger()
    unmatched = set(range(len(written))) - {number for number in numbers if isinstance(number, int)}
    unknown = [i for i, number in enumerate(numbers) if number is Match.UNKNOWN]
    belong = set(unknown[: len(unmatched)])
    salvaged.unexpected = sum(number is Match.UNEXPECTED for number in numbers) + len(unknown) - len(belong)
    problems: dict[int, Problem] = {}
    kept: list[tuple[int, int]] = []  # (number, i)
    for i, number in enumerate(numbers):
        problem = content.records[i].problem
        if isinstance(number, int) and problem:
            problems[number] = problem
        elif isinstance(number, int):
            kept.append((number, i))
        elif i in belong and not problem:
            kept.append((-1, i))
    if not belong:
        kept.sort()  # sequences that changed places return to theirs
        problems |= _why_lost(sorted(unmatched), content, numbers)
    salvaged.kept = [i for _, i in kept]
    for number, problem in sorted(problems.items()):
        item = written[number]
        key = item.key if ledger is not None else None
        salvaged.lost.append(LostRecord(key, file, number, item.offset, item.length, *_plain(problem)))
    if belong:  # it is not known which records these are, and so not which records are lost
        salvaged.lost += _unnamed(
            file, content, [i for i in belong if content.records[i].problem], len(unmatched) - len(belong)
        )
    if ledger is None:
        salvaged.entries = _new_entries(content, salvaged.kept, salvaged.lost, uri)
    else:
        _rewrite_ledger(salvaged, uri, content, kept, ledger, unnamed=bool(belong))
    return salvaged


def _rewrite_ledger(
    salvaged: SalvagedLedger,
    uri: str,
    content: Content,
    kept: Sequence[tuple[int, int]],
    ledger: Sequence[Entry],
    unnamed: bool,
) -> None:
    """Sets the lines of the new ledger from those of the old one.

    Args:
      salvaged: Result so far, with its kept and lost records.
      uri: Path of the shard.
      content: The records found in it.
      kept: Number and index of each kept record. The number is -1 if it is not known.
      ledger: Lines of the old ledger.
      unnamed: Whether some records are kept without knowing which ones they are.
    """
    places: dict[int, tuple[int, int]] = {}
    new: list[Entry] = []
    for (number, i), place in zip(kept, _new_places(content, salvaged.kept), strict=True):
        if number >= 0:
            places[number] = place
        else:
            new.append(_entry(content.records[i], place))
    lost = {item.record: item for item in salvaged.lost if item.record is not None}
    number = -1
    for entry in ledger:
        if entry.outcome != Outcome.WRITTEN:
            salvaged.entries.append(entry)
            continue
        number += 1
        if number in places:
            salvaged.entries.append(entry._replace(offset=places[number][0], length=places[number][1]))
        elif number in lost:
            salvaged.entries.append(_quarantined(lost[number], uri, entry))
    if not unnamed:
        return
    salvaged.entries += new
    salvaged.entries += [_quarantined(item, uri) for item in salvaged.lost if item.record is None]
    salvaged.entries.sort(key=lambda entry: -1 if entry.offset is None else entry.offset)


def _without_names(file: str, uri: str, content: Content, records: int) -> SalvagedLedger:
    """Accounts for a shard if only its number of records is known."""
    salvaged = SalvagedLedger()
    bad, seen = [], set[str]()
    for i, record in enumerate(content.records):
        key = record.found.key or record.found.source
        if key is not None and key in seen:
            salvaged.unexpected += 1
        elif record.problem:
            bad.append(i)
        elif len(salvaged.kept) >= records:
            salvaged.unexpected += 1
        else:
            salvaged.kept.append(i)
            seen.update(() if key is None else (key,))
    missing = records - len(salvaged.kept)
    bad = bad[: max(0, missing)]
    one_each = len(content.records) + len(content.damages) == records
    salvaged.lost = _unnamed(file, content, bad, missing - len(bad), one_each)
    salvaged.entries = _new_entries(content, salvaged.kept, salvaged.lost, uri)
    return salvaged


def _unnamed(
    file: str, content: Content, bad: Sequence[int], missing: int, one_each: bool = False
) -> list[LostRecord]:
    """Returns lost records whose place among all records is not known.

    Args:
      file: Name of the shard.
      content: The records found in it.
      bad: Indexes of the found records that cannot be kept.
      missing: Number of records that were not found.
      one_each: Whether each damaged range is one record, so that record numbers are exact.
    """
    lost = []
    for i in bad:
        record = content.records[i]
        if record.problem:
            place = record.found[:2]
            lost.append(LostRecord(record.found.key, file, None, *place, *_plain(record.problem)))
    for damage in content.damages[:missing]:
        size = damage.end - damage.offset
        number = damage.number if one_each else None
        lost.append(LostRecord(None, file, number, damage.offset, size, damage.code.value, damage.message))
    last: Problem = (content.damages[-1].code, content.damages[-1].message) if content.damages else _NO_TRACE
    lost += [
        LostRecord(None, file, None, None, None, *_plain(last))
        for _ in range(missing - len(content.damages[:missing]))
    ]
    return sorted(lost, key=lambda item: (item.offset is None, item.offset or 0))


def _why_lost(
    unmatched: Sequence[int], content: Content, numbers: Sequence[int | Match]
) -> dict[int, Problem]:
    """Returns, for each record that was not found, the damage in its place."""
    found = sorted((number, i) for i, number in enumerate(numbers) if isinstance(number, int))
    known = [number for number, _ in found]
    begins = [damage.offset for damage in content.damages]
    problems: dict[int, Problem] = {}
    before, in_gap = -1, 0
    for number in unmatched:
        place = bisect_left(known, number)
        in_gap = in_gap + 1 if place == before else 0
        before = place
        last = content.records[found[place - 1][1]].found if place else Frame(0, 0)
        low = bisect_left(begins, last.offset + last.length)
        end = content.records[found[place][1]].found.offset if place < len(found) else content.size + 1
        high = bisect_left(begins, end)
        if low < high:
            damage = content.damages[min(low + in_gap, high - 1)]
            problems[number] = damage.code, damage.message
        else:
            problems[number] = _NO_TRACE
    return problems


def _new_places(content: Content, kept: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields offset and length of each kept record in the new shard."""
    offset = 0
    for i in kept:
        length = content.records[i].found.length
        yield offset, length
        offset += length


def _plain(problem: Problem) -> tuple[str, str]:
    return problem[0].value, problem[1]


def _new_entries(content: Content, kept: Sequence[int], lost: Sequence[LostRecord], uri: str) -> list[Entry]:
    """Returns a ledger built from the records themselves."""
    places = _new_places(content, kept)
    entries = [_entry(content.records[i], place) for i, place in zip(kept, places, strict=True)]
    return entries + [_quarantined(item, uri) for item in lost]


def _entry(record: FoundRecord, place: tuple[int, int]) -> Entry:
    return Entry(
        key=record.found.key or "",
        outcome=Outcome.WRITTEN,
        sha256=record.found.source or "",
        label=record.label,
        format=record.format,
        dtype=record.dtype,
        file_name=record.file_name,
        offset=place[0],
        length=place[1],
    )


def _quarantined(lost: LostRecord, uri: str, entry: Entry | None = None) -> Entry:
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
