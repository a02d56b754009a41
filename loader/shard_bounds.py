"""Finds where the records of a shard begin and end from its index or ledger, without reading the shard."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from shardwright.core import storage
from shardwright.core.records.framing import FRAME_BYTES
from shardwright.schemas.dataset import Shard
from shardwright.schemas.ledger import load_index, written_entries
from shardwright.schemas.plan import index_file, is_compressed, ledger_file


class Bounds:
    """Where each record's frame begins and ends in the unpacked shard. Frames have no gaps between them.

    Args:
      ends: 0, then the end of each record.
    """

    __slots__ = ("_ends",)

    def __init__(self, ends: npt.NDArray[np.int64]) -> None:
        self._ends = ends

    def of(self, number: int) -> tuple[int, int]:
        """Returns the begin and the end of a record's frame."""
        return int(self._ends[number]), int(self._ends[number + 1])

    def fitting(self, first: int, stop: int, limit: int) -> int:
        """Returns how many records from `first` to before `stop` end before `limit`; at least 1."""
        last = int(np.searchsorted(self._ends, limit, side="right")) - 1
        return max(min(last, stop) - first, 1)

    def number_at(self, offset: int) -> int:
        """Returns the number of the record that contains an offset, or of the last record."""
        return min(int(np.searchsorted(self._ends, offset, side="right")) - 1, len(self._ends) - 2)


def find_bounds(directory: str, split: str, number: int, num_shards: int, shard: Shard) -> Bounds | None:
    """Returns the bounds of a shard's records, or None if neither index nor ledger has them.

    An index or ledger that does not agree with `dataset.json` is ignored.

    Raises:
      EngineError: If the storage failed.
    """
    if shard.records and not is_compressed(shard.file):
        try:
            found = load_index(_read(directory, index_file(split, number, num_shards)))
            bounds = _checked(found, shard)
            if bounds:
                return bounds
        except (FileNotFoundError, ValueError):
            pass
    try:
        data = _read(directory, ledger_file(split, number, num_shards))
        places = [
            (entry.offset, entry.length)
            for entry in written_entries(data, shard.sha256)
            if entry.offset is not None and entry.length is not None
        ]
        return _checked(places, shard)
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _read(directory: str, file: str) -> bytes:
    path = storage.join(directory, file)
    try:
        return storage.read_bytes(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise storage.fault(error, "read", path) from error


def _checked(places: Iterable[tuple[int, int]], shard: Shard) -> Bounds | None:
    """Returns the bounds if the frames cover the shard from its beginning to its end without gaps."""
    table = np.array(list(places), np.int64).reshape(-1, 2)
    ends = np.concatenate((np.zeros(1, np.int64), table.sum(axis=1)))
    fits = (
        len(table) == shard.records
        and bool(np.array_equal(ends[:-1], table[:, 0]))
        and bool((table[:, 1] >= FRAME_BYTES).all())
        and (is_compressed(shard.file) or int(ends[-1]) == shard.bytes)
    )
    return Bounds(ends) if fits else None
