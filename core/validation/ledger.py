"""Compares the records of a shard, one after the other, with its ledger."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import fields
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from shardwright.core.plan.assign import shard_order
from shardwright.core.records.framing import FRAME_BYTES, Record
from shardwright.core.records.record_schema import Problem
from shardwright.core.validation.record import CheckedRecord
from shardwright.schemas.codes import FindingCode, Outcome
from shardwright.schemas.dataset import Shard
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.ledger import (
    LEDGER_VERSION,
    OPTIONAL_TOTALS,
    Entry,
    PlanDigest,
    ShardHeader,
    ShardTotals,
    header_from_json,
    line_blocks,
    parsed_lines,
)
from shardwright.schemas.plan import shard_file
from shardwright.schemas.units import counted
from shardwright.schemas.values import short_repr

_WRITTEN = Outcome.WRITTEN.value
#: Errors that reading a damaged ledger raises.
_DAMAGES = (OSError, EOFError, zlib.error, ValueError, RecursionError)


class ShardTerms(NamedTuple):
    """Values of a dataset's plan that a shard's ledger is checked against.

    Attributes:
      recipe: Digest of the settings and versions that affect the shard's bytes (`recipes_of`).
      seed: Seed of the dataset.
      keeps: Whether kept originals are exactly the bytes of their sources, with metadata.
    """

    recipe: str
    seed: int
    keeps: bool = False


class LedgerSummary(NamedTuple):
    """Header of a shard's ledger, and the values computed from its lines.

    Attributes:
      header: The header as it is stored.
      counted: Values computed from the lines.
      plan_digest: Digest of the lines. Empty if the recipe is not known.
      first: Sort key of the first record. None if there is no record, or the seed is unknown.
      last: Sort key of the last record. None in the same cases.
      sha256: sha256 of the ledger file.
    """

    header: ShardHeader
    counted: ShardHeader
    plan_digest: str
    first: tuple[int, str] | None
    last: tuple[int, str] | None
    sha256: str


#: Fields of a header that are compared with the values computed from the lines.
_COUNTED = ("records", *(item.name for item in fields(ShardTotals)))


class LedgerCheck:
    """Reads a shard's ledger in step with its records; memory use stays flat.

    Records are matched by their offset, so a lost or damaged record does not affect the others.

    Args:
      data: Contents of the ledger file.
      shard: The shard's entry in `dataset.json`.
      terms: Values of the dataset's plan. None to compare the ledger only with itself.
    """

    def __init__(self, data: bytes, shard: Shard, terms: ShardTerms | None = None) -> None:
        self._data = data
        self._lines: Iterator[dict[str, Any]] = chain.from_iterable(map(parsed_lines, line_blocks(data)))
        self._entry: Entry | None = None
        self._fault = ""
        self._shard, self._terms = shard, terms
        self._totals = ShardTotals()
        self._plan_digest = PlanDigest(terms.recipe) if terms is not None else None
        self._first: tuple[int, str] | None = None
        self._last: tuple[int, str] | None = None
        header = self._next_line()
        self._header: dict[str, Any] = header or {}
        if header is not None and header.get("ledger_version") != LEDGER_VERSION:
            self._give_up("it is of another version")
        elif header is not None and header.get("sha256") != shard.sha256:
            self._give_up("it belongs to another shard: its sha256 is not the one in dataset.json")
        self._advance()

    def compare(self, record: Record, result: CheckedRecord) -> tuple[list[Problem], Entry | None]:
        """Returns how a valid record differs from the ledger, and its entry if that agrees with it."""
        offset = record.offset
        while self._entry is not None and (self._entry.offset or 0) < offset:  # lost, reported elsewhere
            self._advance()
        entry = self._entry
        if entry is None or entry.offset != offset:
            what = "such record" if entry is None else "record at this byte"
            missing = FindingCode.LEDGER_MISMATCH, f"the shard's ledger has no {what}"
            return [] if self._fault else [missing], None
        self._advance()
        problems: list[Problem] = []
        # Without a digest, a salvage kept it, perhaps without knowing which record it is.
        if entry.digest and self._terms is not None:
            order = shard_order(self._terms.seed, entry.source)
            if self._last is not None and order < self._last:
                problems.append((FindingCode.RECORD_ORDER, "the plan places it before an earlier record"))
            self._first = min(self._first or order, order)
            self._last = max(self._last or order, order)
        if difference := self._difference(entry, len(record.data) + FRAME_BYTES, result):
            return [(FindingCode.LEDGER_MISMATCH, difference), *problems], None
        return problems, entry

    def _difference(self, entry: Entry, length: int, result: CheckedRecord) -> str:
        """Returns how a record, whose frame has this length, differs from its entry; empty if not."""
        if entry.length != length:
            return f"it has {length} bytes with its frame, the shard's ledger says {entry.length}"
        if result.problems:  # these are more specific
            return ""
        name = entry.name_in_record
        if result.key is not None and result.key != name:
            return f"its key is {result.key!r}, the shard's ledger says {name!r}"
        if result.basename is not None and name.rpartition("/")[2] != result.basename:
            return f"its file name is {result.basename!r}, the shard's ledger says {name!r}"
        if result.source_in_record and result.source != entry.sha256:
            return (
                f"its source's sha256 begins {(result.source or '')[:12]}, "
                f"the shard's ledger says {entry.sha256[:12]}"
            )
        keeps = self._terms is not None and self._terms.keeps
        if entry.stored == "kept" and result.stored_sha256 not in ("", entry.sha256) and keeps:
            return "the shard's ledger says that its image has the source's own bytes, but it has others"
        if entry.stored == "encoded" and result.bare is False:
            return (
                "the shard's ledger says that its image was encoded, but it has metadata or bytes after "
                "its end, which convert does not write"
            )
        boxes = entry.boxes or {}
        if result.objects is not None and boxes.get("written", result.objects) != result.objects:
            return f"it has {counted(result.objects, 'object')}, the shard's ledger says {boxes['written']}"
        if result.fold is not None and result.fold != entry.fold:
            return f"its fold is {result.fold}, the shard's ledger says {entry.fold}"
        if result.dtype != entry.dtype:
            recorded = entry.dtype or "no type"
            return (
                f"its samples are {result.dtype or 'of no recorded type'}, the shard's ledger says {recorded}"
            )
        if result.classes is not None and LABEL_SEPARATOR.join(result.classes) != entry.label:
            label = entry.label.replace(LABEL_SEPARATOR, ", ")
            return f"its class is {', '.join(result.classes)!r}, the shard's ledger says {label!r}"
        return ""

    @cached_property
    def summary(self) -> LedgerSummary | None:
        """The header and the computed values, once all records were seen. None if the ledger is unusable."""
        if self._fault:
            return None
        try:
            header = header_from_json(self._header)
            counted_header = self._totals.header(header.place)
        except (TypeError, ValueError, KeyError):
            return None
        return LedgerSummary(
            header,
            counted_header,
            self._plan_digest.hexdigest() if self._plan_digest is not None else "",
            self._first,
            self._last,
            hashlib.sha256(self._data).hexdigest(),
        )

    def _header_problems(self, crc32c: str) -> Iterator[Problem]:
        """Yields the header fields that differ from the lines and the shard."""
        summary = self.summary
        if summary is None:
            yield FindingCode.LEDGER_MISMATCH, "its ledger cannot be used: its header is damaged"
            return
        header, shard = summary.header, self._shard
        true = json.loads(json.dumps(summary.counted.as_json(), sort_keys=True))
        expected: dict[str, Any] = {name: true.get(name, OPTIONAL_TOTALS.get(name)) for name in _COUNTED}
        expected |= {"file": shard.file, "bytes": shard.bytes}
        if header.crc32c and crc32c:
            expected["crc32c"] = crc32c
        for name, value in expected.items():
            stored = self._header.get(name, OPTIONAL_TOTALS.get(name))
            if stored != value:
                message = mismatch(f"field {name!r} of its ledger's header", stored, value)
                yield FindingCode.LEDGER_MISMATCH, message
        place = shard_file(*header.place, "")
        if shard.file.partition(".")[0] != place:
            fields = "fields 'split', 'shard' and 'num_shards' of its ledger's header"
            yield FindingCode.LEDGER_MISMATCH, f"{fields} name the shard {place}"
        unknown = [name for name in true["counts"] if name not in set(Outcome)]
        if unknown:
            yield FindingCode.LEDGER_MISMATCH, f"a line of its ledger has the outcome {unknown[0]!r}"

    def finish(self, sound: bool, crc32c: str = "") -> Iterator[Problem]:
        """Yields the problems of the whole ledger, once all records were seen.

        Args:
          sound: Whether the shard has no other problem, so that surplus entries are the ledger's fault.
          crc32c: crc32c of the shard. Empty if it is not known, or if the shard has other bytes than written.
        """
        surplus = self._entry if sound else None
        if surplus is not None:
            record = f"a record at byte {surplus.offset}, of {surplus.key!r}"
            yield FindingCode.LEDGER_MISMATCH, f"its ledger has {record}, but the shard has none"
        while self._entry is not None:
            self._advance()
        if self._fault:
            yield FindingCode.LEDGER_MISMATCH, f"its ledger cannot be used: {self._fault}"
        elif surplus is None:
            yield from self._header_problems(crc32c)

    def _give_up(self, why: str) -> None:
        self._fault, self._entry = why, None
        self._lines = iter(())

    def _next_line(self) -> dict[str, Any] | None:
        """Returns the next line; None after the last line, or after damage."""
        try:
            return next(self._lines, None)
        except _DAMAGES as error:
            self._give_up(f"it is damaged ({error})")
            return None

    def _advance(self) -> None:
        """Moves to the next record's entry, and adds all lines up to it to the counts."""
        self._entry = None
        while (line := self._next_line()) is not None:
            try:
                entry = Entry.from_json(line)
                self._totals.add(entry)
                if self._plan_digest is not None:
                    self._plan_digest.add_entry(entry)
            except (TypeError, ValueError) as error:
                self._give_up(f"it is damaged (line of {line.get('key')!r}: {error})")
                return
            if entry.outcome != _WRITTEN:
                continue
            if entry.offset is None:
                self._give_up("it is damaged (a record's place is missing)")
                return
            self._entry = entry
            return


def ledger_summary(data: bytes) -> LedgerSummary | None:
    """Returns the header and computed values of a ledger without a shard; None if it is damaged."""
    check = LedgerCheck(data, Shard("", 0, 0, ""))
    list(check.finish(sound=False))
    return check.summary


def mismatch(what: str, recorded: object, true: object) -> str:
    """Returns a short text with the value that a field states and the value it should have."""
    return f"{what} says {short_repr(recorded)}, but should say {short_repr(true)}"
