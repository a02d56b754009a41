"""The ledgers of two datasets as rows to compare, and their way from one worker to another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from shardwright.schemas.codes import Outcome
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import LABEL_SEPARATOR, printable
from shardwright.schemas.ledger import Entry, load_ledger
from shardwright.schemas.plan import ledger_file
from shardwright.transforms import buckets as shared
from shardwright.transforms import storage

#: Of a sha256 in hex, as much as never meets by chance.
_ENOUGH = 32
_ROWS_PER_BUCKET = 20_000
#: Rows that wait for others of their bucket, whichever shard those come from.
_WAITING = 100_000

OLD, NEW = 0, 1
#: A bucket's number, the side that its rows are from, and the rows: packed columns.
PackedRows = tuple[int, tuple[int, bytes]]


class LedgerPair(NamedTuple):
    """The ledgers of the shard that has one place in both datasets; one is missing where only one has it.

    Attributes:
      file: the ledger's path inside a dataset directory.
      split: the shard's split.
      places: the old and the new dataset's directory, None for one that has no such shard.
      sha256: of the shard in the old and in the new dataset.
      records: of both datasets together.
    """

    file: str
    split: str
    places: tuple[str | None, str | None]
    sha256: tuple[str, str]
    records: int


class LedgerRow(NamedTuple):
    """What a ledger says of one image.

    Attributes:
      key: the image's key.
      split: its split.
      written: whether the dataset holds it.
      source: what tells its source from another: of its sha256, else its fingerprint.
      label: its classes in the order of names, joined by `LABEL_SEPARATOR`.
      length: bytes of the record's frame.
      stored: how the picture is stored.
      note: why it was left out, of this dataset if it was, or else of the other one.
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
        """Whether the source is known by its bytes, so that it can be found under another key."""
        return len(self.source) == _ENOUGH and ":" not in self.source


def list_pairs(old_directory: str, new_directory: str, old: Dataset, new: Dataset) -> Iterator[LedgerPair]:
    """Yields the ledgers of two datasets, those of one place together."""
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
      UsageError: if there is none.
      EngineError: if the storage failed.
    """
    path = storage.join(directory, file)
    with storage.translated_errors("read", path):
        try:
            return storage.read_bytes(path)
        except FileNotFoundError:
            raise UsageError(
                f"{printable(path)} is missing, which says what became of each image of its shard; "
                "restore it, or convert again."
            ) from None


def open_ledger(data: bytes, directory: str, file: str, sha256: str) -> tuple[int, Iterator[Entry]]:
    """Reads how many records a ledger is about and, as they are asked for, its lines.

    Raises:
      UsageError: if it is damaged or not that of the shard with this checksum.
    """
    where = printable(storage.join(directory, file))
    try:
        result, entries = load_ledger(data)
        records = int(result.records)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(where, error) from None
    if result.sha256 != sha256:
        raise UsageError(
            f"{where} belongs to another build than the dataset.json there; compare again when nothing "
            "writes to the dataset, or else convert again."
        )
    return records, entries


def ledger_rows(data: bytes, directory: str, file: str, sha256: str, split: str) -> list[LedgerRow]:
    """Returns a ledger's lines as rows.

    Raises:
      UsageError: as `open_ledger` does.
    """
    _, entries = open_ledger(data, directory, file, sha256)
    try:
        return [_row(entry, split) for entry in entries]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(printable(storage.join(directory, file)), error) from None


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
      UsageError: if a key stands twice.
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
    """Returns the number of buckets that keeps each small, for the records of both datasets."""
    return shared.bucket_count(-(-records // _ROWS_PER_BUCKET))


class Packer:
    """Gathers rows by bucket; equals of both datasets meet in one.

    Args:
      what: the field of a row by which they are to meet.
    """

    def __init__(self, what: Callable[[LedgerRow], str]) -> None:
        self._what = what
        self._rows: defaultdict[tuple[int, int], list[LedgerRow]] = defaultdict(list)
        self._count = 0

    def add(self, side: int, row: LedgerRow, buckets: int) -> Iterator[PackedRows]:
        """Takes a row; yields packed rows when there are many."""
        self._rows[shared.bucket_of(self._what(row), buckets), side].append(row)
        self._count += 1
        if self._count >= _WAITING:
            yield from self.rest()

    def rest(self) -> Iterator[PackedRows]:
        """Yields what is left."""
        rows, self._rows, self._count = self._rows, defaultdict(list), 0
        for (bucket, side), found in rows.items():
            yield bucket, (side, shared.pack_rows(found))


def unpack_rows(pack: bytes) -> Iterator[LedgerRow]:
    """Yields the rows of a pack of a `Packer`."""
    return map(LedgerRow._make, shared.unpack_rows(pack))
