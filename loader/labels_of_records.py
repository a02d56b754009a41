"""Selected records of shards, and their keys and classes from the ledgers, without reading the records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from shardwright.core import storage
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.ledger import Entry, OtherBuild, written_entries
from shardwright.schemas.plan import ledger_file
from shardwright.schemas.units import counted

#: Number of ledgers to read at the same time, which hides the latency of a bucket.
_AT_ONCE = 16


class ShardSlice(NamedTuple):
    """Records of one shard.

    Attributes:
      file: File name of the shard in the dataset directory.
      compression: Compression of the shard: none, gzip or zlib.
      records_in_shard: Number of records in the whole shard.
      numbers: Numbers of the selected records, from 0, ascending.
    """

    file: str
    compression: str
    records_in_shard: int
    numbers: Sequence[int]


def read_labels(
    directory: str, dataset: Dataset, slices: Sequence[ShardSlice]
) -> Iterator[tuple[ShardSlice, list[tuple[int, Entry]]]]:
    """Yields each slice with the numbers and ledger entries of its records, in order.

    Raises:
      UsageError: If a ledger is missing or belongs to another build.
      EngineError: If it cannot be read.
    """
    ledgers = {
        shard.file: (storage.join(directory, ledger_file(split, number, count)), shard.sha256)
        for split, number, count, shard in dataset.placed_shards()
    }

    def read(item: ShardSlice) -> list[tuple[int, Entry]]:
        return _of_slice(item, *ledgers[item.file])

    with ThreadPoolExecutor(_AT_ONCE) as executor:
        # In batches, so that the rows of thousands of shards are not in memory together.
        for start in range(0, len(slices), _AT_ONCE):
            batch = slices[start : start + _AT_ONCE]
            yield from zip(batch, executor.map(read, batch))


def _of_slice(item: ShardSlice, path: str, sha256: str) -> list[tuple[int, Entry]]:
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
    wanted = item.numbers if isinstance(item.numbers, range) else frozenset(item.numbers)
    return [(number, entry) for number, entry in enumerate(written) if number in wanted]
