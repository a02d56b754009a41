"""Rows from the ledgers of two datasets, and how they are packed between workers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from shardwright.schemas.codes import Outcome
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import LABEL_SEPARATOR, printable
from shardwright.schemas.ledger import Entry, entries_of, load_lines, parsed_entries, written_runs
from shardwright.schemas.plan import ledger_file
from shardwright.transforms import hash_buckets, storage

#: Number of hex digits of a sha256 that is enough to avoid collisions.
_ENOUGH = 32
_ROWS_PER_BUCKET = 20_000
#: Number of lines that are parsed together. One unusual line makes the others of its group slower to parse.
_LINES_TOGETHER = 256
#: Number of rows of a bucket, from any shards, that are packed together.
_WAITING = 100_000

OLD, NEW = 0, 1
#: Number of a bucket, the side of its rows, and the rows as packed columns.
PackedRows = tuple[int, tuple[int, bytes]]


class LedgerPair(NamedTuple):
    """The ledgers of one shard place in both datasets; one is missing if only one dataset has the place.

    Attributes:
      file: Path of the ledger inside a dataset directory.
      split: Split of the shard.
      places: Directories of the old and the new dataset. None for one without such a shard.
      sha256: sha256 of the shard in the old and in the new dataset.
      records: Number of records in both datasets together.
    """

    file: str
    split: str
    places: tuple[str | None, str | None]
    sha256: tuple[str, str]
    records: int


class LedgerRow(NamedTuple):
    """What a ledger states about one image.

    Attributes:
      key: Key of the image.
      split: Split of the image.
      written: Whether the dataset contains it.
      source: Identity of the source: the beginning of its sha256, or else its fingerprint.
      label: Its classes in the order of names, joined by `LABEL_SEPARATOR`.
      length: Number of bytes in the record's frame.
      stored: How the image is stored.
      note: Reason why this dataset left the image out.
    """

    key: str
    split: str
    written: bool
    source: str
    label: str
    length: int
    stored: str
    note: str = ""

    @property
    def is_known(self) -> bool:
        """Whether the source is identified by its bytes, so that it can be found under another key."""
        return len(self.source) == _ENOUGH and ":" not in self.source


def list_pairs(old_directory: str, new_directory: str, old: Dataset, new: Dataset) -> Iterator[LedgerPair]:
    """Yields the ledgers of two datasets, paired by place."""
    sides = []
    for dataset in (old, new):
        placed = dataset.placed_shards()
        sides.append({ledger_file(split, n, of): (split, shard) for split, n, of, shard in placed})
    records = old.all_records + new.all_records
    for file in sorted(sides[OLD].keys() | sides[NEW].keys()):
        found = [side.get(file) for side in sides]
        shards = [item[1] if item else None for item in found]
        yield LedgerPair(
            file=file,
            split=next(item[0] for item in found if item),
            places=(old_directory if found[OLD] else None, new_directory if found[NEW] else None),
            sha256=(shards[0].sha256 if shards[0] else "", shards[1].sha256 if shards[1] else ""),
            records=records,
        )


def read_ledger(directory: str, file: str) -> bytes:
    """Reads a ledger.

    Raises:
      UsageError: If there is none.
      EngineError: If the storage failed.
    """
    path = storage.join(directory, file)
    with storage.translated_errors("read", path):
        try:
            return storage.read_bytes(path)
        except FileNotFoundError:
            raise UsageError(
                f"{printable(path)} is missing, so what happened to the images of its shard is unknown; "
                "restore it, or convert again."
            ) from None


def count_of_ledger(data: bytes, directory: str, file: str, sha256: str) -> int:
    """Returns the number of records in a ledger.

    Raises:
      UsageError: If it is damaged, or does not belong to the shard with this checksum.
    """
    return open_ledger(data, directory, file, sha256).records


class OpenedLedger(NamedTuple):
    """The lines of a shard's ledger.

    Attributes:
      where: Its place, for messages.
      records: Number of records of the shard.
      lines: Its lines without line ends and without the header.
    """

    where: str
    records: int
    lines: Sequence[bytes]


def open_ledger(data: bytes, directory: str, file: str, sha256: str) -> OpenedLedger:
    """Reads a ledger without parsing its lines.

    Raises:
      UsageError: If it is damaged, or does not belong to the shard with this checksum.
    """
    where = printable(storage.join(directory, file))
    try:
        header, lines = load_lines(data)
        records = int(header.records)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(where, error) from None
    if header.sha256 != sha256:
        raise UsageError(
            f"{where} belongs to another build than the dataset.json there; compare again when nothing "
            "writes to the dataset, or convert again."
        )
    return OpenedLedger(where, records, lines)


def rows_of(ledger: OpenedLedger, split: str) -> list[LedgerRow]:
    """Parses the lines of a ledger.

    Raises:
      UsageError: If it is damaged.
    """
    lines = ledger.lines
    try:
        groups = (lines[first : first + _LINES_TOGETHER] for first in range(0, len(lines), _LINES_TOGETHER))
        runs = chain.from_iterable(map(written_runs, groups))
        blocks = (columns or parsed_entries(run) for run, columns in runs)
        return [_row(entry, split) for block in blocks for entry in entries_of(block)]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(ledger.where, error) from None


class DifferingRows(NamedTuple):
    """The rows of two ledgers that may differ.

    Attributes:
      old: Rows of the old ledger that the new one does not have.
      new: Rows of the new ledger that the old one does not have.
      equal: Number of records that are equal in both. They have no rows here.
    """

    old: list[LedgerRow]
    new: list[LedgerRow]
    equal: int


def differing_rows(old: OpenedLedger | None, new: OpenedLedger | None, split: str) -> DifferingRows:
    """Returns the rows of two ledgers of one split, without most of those that are equal.

    Equal lines are not parsed, which takes most of the time that a comparison takes otherwise.

    Args:
      old: The old ledger; None if there is none.
      new: The new ledger; None if there is none.
      split: Name of the split.

    Raises:
      UsageError: If a ledger is damaged.
    """
    old_texts, new_texts = _without_places(old), _without_places(new)
    equal: set[bytes] = set()
    if _has_own_keys(old_texts) and _has_own_keys(new_texts):
        equal = {text for text in set(old_texts).intersection(new_texts) if _WRITTEN in text}
    old_rows = _other_rows(old, old_texts, equal, split)
    return DifferingRows(old_rows, _other_rows(new, new_texts, equal, split), len(equal))


#: The fields of a line that may differ although the record is the same, and what the line of a record has.
_PLACE = re.compile(rb'"offset": [0-9]+, ')
_DIGEST = re.compile(rb'"digest": "[0-9a-f]*", ')
_WRITTEN = b'", "outcome": "written", "'
#: What lines begin with, and what follows their keys. An unescaped quotation mark is not part of a key.
_BEGIN, _END_OF_KEY = b'{"key": "', b'", "'


def _without_places(ledger: OpenedLedger | None) -> Sequence[bytes]:
    """Returns the lines of a ledger without the offsets of records and the digests of references."""
    if ledger is None or not ledger.lines:
        return ()
    return _DIGEST.sub(b"", _PLACE.sub(b"", b"\n".join(ledger.lines))).split(b"\n")


def _has_own_keys(lines: Sequence[bytes]) -> bool:
    """Returns whether all lines begin with a key, and no key occurs twice."""
    keys = {line.partition(_END_OF_KEY)[0] for line in lines}
    return len(keys) == len(lines) and all(key.startswith(_BEGIN) for key in keys)


def _other_rows(
    ledger: OpenedLedger | None, texts: Sequence[bytes], equal: Container[bytes], split: str
) -> list[LedgerRow]:
    """Returns the rows of the lines whose texts are not among the equal ones."""
    if ledger is None:
        return []
    lines = [line for line, text in zip(ledger.lines, texts) if text not in equal]
    return rows_of(ledger._replace(lines=lines), split)


def _damaged(where: str, error: Exception) -> UsageError:
    detail = " ".join(str(error).split()).removeprefix("the shard ledger is damaged: ")[:200].rstrip(".")
    return UsageError(f"{where} is damaged ({detail}); restore it, or convert again.")


def _row(entry: Entry, split: str) -> LedgerRow:
    key, label = entry.key, entry.label
    if not (isinstance(key, str) and isinstance(label, str)):
        raise TypeError("a line names no image")
    if entry.outcome != Outcome.WRITTEN:
        note = f"{entry.outcome}: {entry.reason}" if entry.reason else entry.outcome
        return LedgerRow(key, split, False, "", "", 0, "", note)
    if LABEL_SEPARATOR in label:
        label = LABEL_SEPARATOR.join(sorted(label.split(LABEL_SEPARATOR)))
    source = entry.sha256[:_ENOUGH] or entry.fingerprint
    return LedgerRow(key, split, True, source, label, entry.length or 0, f"{entry.stored} {entry.format}")


def by_key(rows: Iterable[LedgerRow], whose: str) -> dict[str, LedgerRow]:
    """Returns rows by their key.

    Raises:
      UsageError: If a key occurs twice.
    """
    found: dict[str, LedgerRow] = {}
    for row in rows:
        if found.setdefault(row.key, row) is not row:
            raise UsageError(
                f"The {whose} dataset's ledgers name {printable(row.key)!r} twice, so its images cannot be "
                "told apart by their keys; convert again."
            )
    return found


def bucket_count(records: int) -> int:
    """Returns the number of buckets that keeps each bucket small, for the records of both datasets."""
    return hash_buckets.bucket_count(-(-records // _ROWS_PER_BUCKET))


class Packer:
    """Collects rows by bucket. Rows with an equal value meet in one bucket.

    Args:
      what: Function that returns the value of a row by which rows meet.
    """

    def __init__(self, what: Callable[[LedgerRow], str]) -> None:
        self._what = what
        self._rows: defaultdict[tuple[int, int], list[LedgerRow]] = defaultdict(list)
        self._count = 0

    def add(self, side: int, row: LedgerRow, buckets: int) -> Iterator[PackedRows]:
        """Adds a row; yields packed rows when a bucket is full."""
        self._rows[hash_buckets.bucket_of(self._what(row), buckets), side].append(row)
        self._count += 1
        if self._count >= _WAITING:
            yield from self.rest()

    def rest(self) -> Iterator[PackedRows]:
        """Yields the remaining rows."""
        rows, self._rows, self._count = self._rows, defaultdict(list), 0
        for (bucket, side), found in rows.items():
            yield bucket, (side, hash_buckets.pack_rows(found))


def unpack_rows(pack: bytes) -> Iterator[LedgerRow]:
    """Yields the rows that a `Packer` packed."""
    return map(LedgerRow._make, hash_buckets.unpack_rows(pack))
