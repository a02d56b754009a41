"""Decides which records of a shard are kept, lists the lost ones, writes the new ledger. Needs no Beam."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shardwright.core.records.recovery import DamagedRange
from shardwright.core.salvage.match import Frame, Match, match_records
from shardwright.schemas.codes import FindingCode, Outcome, QuarantineReason, Stage
from shardwright.schemas.ledger import Entry
from shardwright.schemas.lost_records import LostRecord

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
