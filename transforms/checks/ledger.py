"""Compares the records of a shard with what its ledger says of them, one after the other."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from typing import Any

from shardwright.schemas.codes import FindingCode, Outcome
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.ledger import READABLE_VERSIONS
from shardwright.transforms.checks.contract import Problem
from shardwright.transforms.checks.record import CheckedRecord
from shardwright.transforms.records.framing import FRAME_BYTES, Record

#: Longest line that a ledger may have: a header counts classes and reasons, not images.
_MAX_LINE = 1 << 24
_BLOCK_BYTES = 1 << 15
_WRITTEN = Outcome.WRITTEN.value


class LedgerCheck:
    """Goes through a shard's ledger beside its records; memory stays flat.

    Records are found by where they begin, so that one that is lost or damaged leaves the others be.

    Args:
      data: the ledger's file.
      sha256: of the shard, as `dataset.json` says it.

    Attributes:
      matched: the entry of the record that was compared last; None if the ledger has no entry that agrees.
    """

    def __init__(self, data: bytes, sha256: str) -> None:
        self.matched: dict[str, Any] | None = None
        self._lines = ledger_lines(data)
        self._entry: dict[str, Any] | None = None
        self._fault = ""
        header = self._next_line()
        if header is not None and header.get("ledger_version") not in READABLE_VERSIONS:
            self._give_up("it is of another version")
        elif header is not None and header.get("sha256") != sha256:
            self._give_up("it is that of another shard: its sha256 is not the one of dataset.json")
        self._advance()

    def compare(self, record: Record, result: CheckedRecord) -> str:
        """Returns in what a record, sound by itself, differs from its entry; empty if it does not."""
        offset = record.offset
        self.matched = None
        entry = self._entry
        while entry is not None and entry["offset"] < offset:  # its record is lost, which is found elsewhere
            self._advance()
            entry = self._entry
        if entry is None:
            return "" if self._fault else "the shard's ledger has no such record"
        if entry["offset"] != offset:
            return "the shard's ledger has no record at this byte"
        self._advance()
        said: Any = entry.get("length")
        if said != len(record.data) + FRAME_BYTES:
            true = len(record.data) + FRAME_BYTES
            return f"it has {true} bytes with its frame, the shard's ledger says {said}"
        if result.problems:  # which say more
            self.matched = entry
            return ""
        name = entry.get("file_name") or entry["key"]
        if result.key is not None and result.key != name:
            return f"its key is {result.key!r}, the shard's ledger says {name!r}"
        if result.basename is not None and name.rpartition("/")[2] != result.basename:
            return f"its file name is {result.basename!r}, the shard's ledger says {name!r}"
        if result.says_source and result.source != entry.get("sha256", ""):
            return (
                f"its source's sha256 begins {(result.source or '')[:12]}, "
                f"the shard's ledger says {str(entry.get('sha256', ''))[:12]}"
            )
        label = entry.get("label", "")
        if result.classes is not None and LABEL_SEPARATOR.join(result.classes) != label:
            shown = label.replace(LABEL_SEPARATOR, ", ")
            return f"its class is {', '.join(result.classes)!r}, the shard's ledger says {shown!r}"
        self.matched = entry
        return ""

    def finish(self, sound: bool) -> Iterator[Problem]:
        """Yields what is wrong with the ledger as a whole, once all records have been seen.

        Args:
          sound: whether nothing else speaks against the shard, so that what the ledger has more is its fault.
        """
        if sound and self._entry is not None:
            yield (
                FindingCode.LEDGER_MISMATCH,
                f"its ledger has a record at byte {self._entry['offset']}, of {self._entry['key']!r}, "
                "and the shard none",
            )
        while self._entry is not None:
            self._advance()
        if self._fault:
            yield FindingCode.LEDGER_MISMATCH, f"its ledger cannot be used: {self._fault}"

    def _give_up(self, why: str) -> None:
        self._fault, self._entry, self._lines = why, None, iter(())

    def _next_line(self) -> dict[str, Any] | None:
        """Returns the next line; None behind the last, or behind damage."""
        try:
            found: dict[str, Any] | None = next(self._lines, None)
        except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
            self._give_up(f"it is damaged ({error})")
            return None
        return found

    def _advance(self) -> None:
        """Goes on to the next record's entry."""
        self._entry = None
        while not self._fault:
            entry = self._next_line()
            if entry is None:
                return
            if entry.get("outcome") == _WRITTEN:
                if (
                    type(entry.get("offset")) is not int
                    or type(entry.get("key")) is not str
                    or type(entry.get("label", "")) is not str
                    or type(entry.get("sha256", "")) is not str
                    or type(entry.get("file_name", "")) is not str
                ):
                    self._give_up("it is damaged (a record's place or name is missing)")
                    return
                self._entry = entry
                return


def ledger_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """Yields the lines of a ledger's file, its header first; memory stays flat.

    Raises:
      OSError, EOFError, zlib.error, ValueError: if it is damaged.
    """
    rest = b""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        while block := file.read(_BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            if len(rest) > _MAX_LINE:
                raise ValueError("a line is too long")
            yield from _parsed(lines)
    yield from _parsed([rest] if rest else [])


def _parsed(lines: list[bytes]) -> list[dict[str, Any]]:
    """Returns lines parsed as one list, which takes half of the time."""
    found: list[dict[str, Any]] = json.loads(b"[" + b",".join(lines) + b"]")
    if len(found) != len(lines) or not all(isinstance(item, dict) for item in found):
        raise ValueError("a line is no object")
    return found
