"""Compares ledger rows: what changed for each image, and which removed images returned under another key.

Small datasets are compared here as `CompareDatasets` does it, but without Beam.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from shardwright.core import hash_buckets, storage
from shardwright.core.concurrency.progress import PROGRESS
from shardwright.schemas.codes import Outcome
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.drift import Change, Changes, Kind
from shardwright.schemas.errors import UsageError
from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.ledger import Entry, OtherBuild, ShardHeader, load_ledger
from shardwright.schemas.plain_text import printable
from shardwright.schemas.plan import ledger_file

#: Number of hex digits of a sha256 that is enough to avoid collisions.
_ENOUGH = 32

OLD, NEW = 0, 1


class LedgerFile(NamedTuple):
    """The ledger of a shard.

    Attributes:
      path: Path of the ledger.
      split: Split of the shard.
      sha256: sha256 of the shard.
    """

    path: str
    split: str
    sha256: str


class LedgerPair(NamedTuple):
    """The ledgers of one shard place in both datasets; one is missing if only one dataset has the place.

    Attributes:
      ledgers: The ledger in the old dataset, and the one in the new dataset.
      records: Number of records in both datasets together.
      same_digests: Whether the digests of equal images are equal in both datasets (`_has_same_digests`).
    """

    ledgers: tuple[LedgerFile | None, LedgerFile | None]
    records: int
    same_digests: bool


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
      digest: Digest of what the record holds besides the image; empty if it cannot be compared.
      note: Reason why this dataset left the image out.
      side: Whether the old or the new dataset lists it: `OLD` or `NEW`.
    """

    key: str
    split: str
    written: bool
    source: str
    label: str
    length: int
    stored: str
    digest: str = ""
    note: str = ""
    side: int = OLD

    @property
    def is_known(self) -> bool:
        """Whether the source is identified by its bytes, so that it can be found under another key."""
        return len(self.source) == _ENOUGH and ":" not in self.source


def list_pairs(old_directory: str, new_directory: str, old: Dataset, new: Dataset) -> Iterator[LedgerPair]:
    """Yields the ledgers of two datasets, paired by place."""
    sides = _ledgers(old_directory, old), _ledgers(new_directory, new)
    records, same_digests = old.all_records + new.all_records, _has_same_digests(old, new)
    for file in sorted(sides[OLD].keys() | sides[NEW].keys()):
        yield LedgerPair((sides[OLD].get(file), sides[NEW].get(file)), records, same_digests)


def _ledgers(directory: str, dataset: Dataset) -> dict[str, LedgerFile]:
    """Returns the ledgers of a dataset by their paths inside the directory."""
    files = {ledger_file(*place): (place.split, shard.sha256) for place, shard in dataset.placed_shards()}
    return {file: LedgerFile(storage.join(directory, file), *of_shard) for file, of_shard in files.items()}


def _has_same_digests(old: Dataset, new: Dataset) -> bool:
    """Returns whether the digests of an image can be compared, and say more than its length and its classes.

    They cover the ids of its classes, and the source's sha256 where copies were looked for.
    """
    roles = [spec.fill for spec in new.features if spec.fill is not None]
    if not any(role.needs or role is FeatureRole.EXTRA for role in roles):
        return False
    same_search = old.plan.settings.get("dedupe") == new.plan.settings.get("dedupe")
    return same_search and old.classes.items() <= new.classes.items()


def read_ledger(ledger: LedgerFile) -> bytes:
    """Reads a ledger.

    Raises:
      UsageError: If there is none.
      EngineError: If the storage failed.
    """
    data = storage.read_if_exists(ledger.path)
    if data is None:
        raise UsageError(
            f"{ledger.path} is missing, so what happened to the images of its shard is unknown; "
            "restore it, or convert again."
        )
    return data


@contextlib.contextmanager
def loaded(data: bytes, ledger: LedgerFile) -> Iterator[tuple[ShardHeader, Iterator[Entry]]]:
    """Reads a ledger; yields its header and its entries, which are parsed when they are needed.

    Raises:
      UsageError: If it is damaged, or does not belong to the shard with this checksum.
    """
    try:
        yield load_ledger(data, ledger.sha256)
    except OtherBuild:
        raise UsageError(
            f"{ledger.path} belongs to another build than the dataset.json there; compare again when nothing "
            "writes to the dataset, or convert again."
        ) from None
    except (ValueError, TypeError, AttributeError) as error:
        detail = " ".join(str(error).split()).removeprefix("the shard ledger is damaged: ")[:200].rstrip(".")
        raise UsageError(f"{ledger.path} is damaged ({detail}); restore it, or convert again.") from None


def rows_of(data: bytes, ledger: LedgerFile) -> list[LedgerRow]:
    """Returns the rows of a ledger.

    Raises:
      UsageError: If it is damaged, or does not belong to the shard with this checksum.
    """
    with loaded(data, ledger) as (_, entries):
        return [_row(entry, ledger.split) for entry in entries]


def _row(entry: Entry, split: str) -> LedgerRow:
    key, label = entry.key, entry.label
    if entry.outcome != Outcome.WRITTEN:
        note = f"{entry.outcome}: {entry.reason}" if entry.reason else entry.outcome
        return LedgerRow(key, split, False, "", "", 0, "", note=note)
    if LABEL_SEPARATOR in label:
        label = LABEL_SEPARATOR.join(sorted(label.split(LABEL_SEPARATOR)))
    source = entry.sha256[:_ENOUGH] or entry.fingerprint
    stored = f"{entry.stored} {entry.format}"
    return LedgerRow(key, split, True, source, label, entry.length or 0, stored, entry.digest)


def by_key(rows: Iterable[LedgerRow], whose: str) -> dict[str, LedgerRow]:
    """Returns rows by their key.

    Raises:
      UsageError: If a key occurs twice.
    """
    indexed: dict[str, LedgerRow] = {}
    for row in rows:
        if indexed.setdefault(row.key, row) is not row:
            raise UsageError(
                f"The {whose} dataset's ledgers name {printable(row.key)!r} twice, so its images cannot be "
                "told apart by their keys; convert again."
            )
    return indexed


def pack_by_bucket(rows: Iterable[LedgerRow], meet_by: str, buckets: int) -> Iterator[tuple[int, bytes]]:
    """Yields rows packed by bucket.

    Args:
      rows: Rows of both datasets.
      meet_by: Field of rows; those in which it is equal meet in one bucket.
      buckets: Number of buckets.
    """
    name_of = attrgetter(meet_by)
    return hash_buckets.packed_by((hash_buckets.bucket_of(name_of(row), buckets), row) for row in rows)


def unpack_bucket(packs: Iterable[bytes]) -> Iterator[LedgerRow]:
    """Yields the rows of a bucket."""
    return (LedgerRow(*row) for row in hash_buckets.unpack_rows(packs))


#: Number of records of both datasets together up to which starting Beam takes longer than the comparison.
MAX_RECORDS = 100_000

_Rows = tuple[list[LedgerRow], list[LedgerRow]]


def compare_rows(rows: _Rows, changes: Changes) -> Iterator[LedgerRow]:
    """Compares the images that both datasets list, and records what changed.

    Args:
      rows: Rows of the old and of the new dataset.
      changes: Object that gets the changes.

    Yields:
      The row of each image that only one dataset lists.

    Raises:
      UsageError: If a key occurs twice in one dataset.
    """
    old, new = (by_key(side_rows, whose) for side_rows, whose in zip(rows, ("old", "new"), strict=True))
    for key, row in old.items():
        other = new.get(key)
        if other is None:
            yield row
        elif row.written and other.written:
            note_changes(row, other, changes)
        elif row.written:
            yield row._replace(note=other.note)
        elif other.written:
            yield other._replace(note=row.note)
    yield from (row for key, row in new.items() if key not in old)


def note_changes(old: LedgerRow, new: LedgerRow, changes: Changes) -> None:
    """Records the differences of an image that both datasets contain."""
    differences = []
    if old.key != new.key:
        differences.append((Kind.RENAMED, old.key, new.key))
    if old.source != new.source:
        differences.append((Kind.CHANGED, old.source, new.source))
    elif old.stored != new.stored or _has_other_record(old, new):
        was, now = _stored(old), _stored(new)
        more = ", other annotations or columns" if was == now else ""
        differences.append((Kind.RE_ENCODED, was, now + more))
    if old.label != new.label:
        differences.append((Kind.RELABELLED, old.label, new.label))
        changes.relabels[old.label, new.label] += 1
    if old.split != new.split:
        differences.append((Kind.MOVED, old.split, new.split))
        changes.moves[old.split, new.split] += 1
    for kind, was, now in differences:
        changes.note(kind, new.split, Change(new.key, was, now))
    changes.unchanged += not differences


def _has_other_record(old: LedgerRow, new: LedgerRow) -> bool:
    if (old.key, old.label) != (new.key, new.label):
        return False  # the lengths and the digests differ anyway
    is_known = old.digest and new.digest and old.split == new.split
    return old.length != new.length or bool(is_known and old.digest != new.digest)


def _stored(row: LedgerRow) -> str:
    return f"{row.stored.strip() or 'stored'}, {row.length} bytes"


def note_added_or_removed(row: LedgerRow, changes: Changes) -> None:
    """Records an image that only one of the datasets contains."""
    if row.side == OLD:
        changes.note(Kind.REMOVED, row.split, Change(row.key, row.split, row.note))
    else:
        changes.note(Kind.ADDED, row.split, Change(row.key, row.note, row.split))


def pair_renamed(rows: Iterable[LedgerRow], changes: Changes) -> None:
    """Records images whose key is in only one dataset; those with equal sources count as renamed.

    If several have the same source, they are paired in the order of their keys.
    """
    groups: defaultdict[str, tuple[list[LedgerRow], list[LedgerRow]]] = defaultdict(lambda: ([], []))
    for row in rows:
        groups[row.source][row.side].append(row)
    for gone, come in groups.values():
        gone.sort()
        come.sort()
        for old, new in zip(gone, come):
            note_changes(old, new, changes)
        for row in (*gone[len(come) :], *come[len(gone) :]):
            note_added_or_removed(row, changes)


def compare_place(pair: LedgerPair, changes: Changes, lost_is_empty: bool = False) -> Iterator[LedgerRow]:
    """Compares the ledgers of one place, and records what changed.

    Args:
      pair: The ledgers.
      changes: Object that gets the changes.
      lost_is_empty: Whether a lost ledger of the old dataset counts as empty. Otherwise it is an error.

    Yields:
      The row of each image that only one of the ledgers lists.

    Raises:
      UsageError: If a ledger is missing or damaged.
      EngineError: If the storage failed.
    """
    lost = contextlib.suppress(UsageError) if lost_is_empty else contextlib.nullcontext()
    errors_of = (lost, contextlib.nullcontext())
    ledgers = [(side, ledger) for side, ledger in enumerate(pair.ledgers) if ledger is not None]
    datas = [b"", b""]
    for side, ledger in ledgers:
        with errors_of[side]:
            datas[side] = read_ledger(ledger)
    old, new = pair.ledgers
    same_shard = old is not None and new is not None and old.sha256 == new.sha256
    if same_shard and new is not None and datas[OLD] == datas[NEW]:
        with loaded(datas[NEW], new) as (header, _):
            changes.unchanged += int(header.records)
        return
    rows: _Rows = ([], [])
    # Equal shards have equal records, although a source may state more of its images than before.
    with_digests = pair.same_digests and not same_shard
    for side, ledger in ledgers:
        with errors_of[side]:
            for row in rows_of(datas[side], ledger):
                rows[side].append(row._replace(side=side, digest=row.digest if with_digests else ""))
    PROGRESS.add(listed=sum(map(len, rows)))
    yield from compare_rows(rows, changes)


def compare_elsewhere(unmatched: Iterable[LedgerRow], changes: Changes) -> Iterator[LedgerRow]:
    """Compares by key the images that `compare_place` found in only one ledger of a place.

    Args:
      unmatched: Rows from any places.
      changes: Object that gets the changes.

    Yields:
      The rows of the images to pair by their sources (`pair_renamed`).
    """
    rows: _Rows = ([], [])
    for row in unmatched:
        rows[row.side].append(row)
    for row in compare_rows(rows, changes):
        if row.written and row.is_known:
            yield row
        elif row.written:
            note_added_or_removed(row, changes)


def compare_small(pairs: Iterable[LedgerPair]) -> Changes:
    """Returns the changes between two datasets.

    Raises:
      UsageError: If a ledger is missing or damaged.
      EngineError: If the storage failed.
    """
    changes = Changes()
    unmatched = chain.from_iterable(compare_place(pair, changes) for pair in pairs)
    pair_renamed(compare_elsewhere(unmatched, changes), changes)
    changes.settle()
    changes.pairs = len(changes.relabels)
    return changes
