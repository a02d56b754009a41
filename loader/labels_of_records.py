"""Reads the keys and classes of a shard's records from its ledger, without reading the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from shardwright.core import storage
from shardwright.loader.shard_slice import ShardSlice
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.image_ref import LABEL_SEPARATOR, printable
from shardwright.schemas.ledger import OtherBuild, written_entries
from shardwright.schemas.plan import ledger_file
from shardwright.schemas.units import counted

#: Number of ledgers to read at the same time, which hides the latency of a bucket.
_AT_ONCE = 16


class RecordLabel(NamedTuple):
    """The key and the class of one record, from a ledger.

    Attributes:
      number: Position of the record in its shard, from 0.
      key: Key of the image.
      label: Class name. Several names are joined by U+001F; empty if the image has no class.
      fold: Fold of the image; None if the dataset has no folds.
    """

    number: int
    key: str
    label: str
    fold: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The class names."""
        return tuple(self.label.split(LABEL_SEPARATOR)) if self.label else ()


def read_labels(
    directory: str, dataset: Dataset, slices: Sequence[ShardSlice]
) -> Iterator[tuple[ShardSlice, list[RecordLabel]]]:
    """Yields each slice with the keys and classes of its records, in order.

    Raises:
      UsageError: if a ledger is missing or belongs to another build.
      EngineError: if it cannot be read.
    """
    ledgers = {
        shard.file: (storage.join(directory, ledger_file(split, number, count)), shard.sha256)
        for split, number, count, shard in dataset.placed_shards()
    }

    def read(item: ShardSlice) -> list[RecordLabel]:
        return _of_slice(item, *ledgers[item.file])

    with ThreadPoolExecutor(_AT_ONCE) as executor:
        # In batches, so that the rows of thousands of shards are not in memory together.
        for start in range(0, len(slices), _AT_ONCE):
            batch = slices[start : start + _AT_ONCE]
            yield from zip(batch, executor.map(read, batch))


def _of_slice(item: ShardSlice, path: str, sha256: str) -> list[RecordLabel]:
    with storage.translated_errors("read", path):
        try:
            written = written_entries(storage.read_bytes(path), sha256)
        except OtherBuild:
            raise UsageError(
                f"{printable(path)} belongs to another build of {item.file}; "
                "`shardwright validate` finds all differences."
            ) from None
        except FileNotFoundError:
            raise UsageError(
                f"{printable(path)} is missing, and with it the keys and classes of the shard's records; "
                "restore it or convert again."
            ) from None
        except ValueError as error:
            raise EngineError(
                f"{printable(path)} is damaged ({error}); restore it or convert again."
            ) from error
    if len(written) != item.records_in_shard:
        raise EngineError(
            f"{printable(path)} lists {counted(len(written), 'record')} of {item.records_in_shard:,}; "
            "restore it or convert again."
        )
    return list(_at(item.numbers, ((e.key, e.label, e.fold) for e in written)))


def _at(numbers: Sequence[int], rows: Iterable[tuple[str, str, int | None]]) -> Iterator[RecordLabel]:
    wanted = frozenset(numbers) if not isinstance(numbers, range) else numbers
    for number, (key, label, fold) in enumerate(rows):
        if number in wanted:
            yield RecordLabel(number, key, label, fold)
