"""Reads records of shards by their offsets, at random or in order. Safe for many threads and processes.

The offsets come from a shard's index or ledger. Only without them are its frames read to find them.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO

import numpy as np
import numpy.typing as npt

from shardwright.core import storage
from shardwright.core.records.compression import compression_of, decompress
from shardwright.core.records.framing import FRAME_BYTES, HEADER_BYTES, FrameDamage, data_length, data_of
from shardwright.core.records.sample import translated_shard_errors
from shardwright.schemas.dataset import Dataset, Shard
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.ledger import load_index, written_entries
from shardwright.schemas.plan import index_file, is_compressed, ledger_file

#: Offset and length of a frame; None if a ledger does not state them.
Place = tuple[int | None, int | None]
#: Maximum number of bytes to read at once, and the largest gap between two records that is read along
#: with them instead of starting another read.
_LOCAL_STRETCH, _LOCAL_GAP = 4 << 20, 64 << 10
_REMOTE_STRETCH, _REMOTE_GAP = 8 << 20, 1 << 20


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
    ledger = ledger_file(split, number, num_shards)
    sources: list[tuple[str, Callable[[bytes], Iterable[Place]]]] = [
        (ledger, lambda data: ((entry.offset, entry.length) for entry in written_entries(data, shard.sha256)))
    ]
    if shard.records and not is_compressed(shard.file):
        sources.insert(0, (index_file(split, number, num_shards), load_index))
    for file, places_in in sources:
        path = storage.join(directory, file)
        try:
            bounds = _checked(places_in(storage.read_bytes(path)), shard)
        except (FileNotFoundError, ValueError, TypeError):
            continue
        except OSError as error:
            raise storage.fault(error, "read", path) from error
        if bounds:
            return bounds
    return None


def _checked(places: Iterable[Place], shard: Shard) -> Bounds | None:
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


class _OpenFile:
    """A local file: a shard or an unpacked one. It is closed when its last user is done."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size

    def __del__(self) -> None:
        self._file.close()

    def read_at(self, offset: int, length: int) -> bytes:
        return storage.read_fully(self._file.fileno(), offset, length)


class _OfProcess:
    """The files that a process has open. A child of `fork` does not use its parent's."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.unpacking: dict[str, threading.Lock] = {}
        self.files: OrderedDict[str, _OpenFile] = OrderedDict()
        self.unpacked: OrderedDict[str, _OpenFile] = OrderedDict()


class ShardReader:
    """Reads the records of a dataset's shards.

    Args:
      directory: Dataset directory.
      dataset: The content of its `dataset.json`.
      verify: Whether to check the checksums of each record.
      open_files: Maximum number of files that a process keeps open.
      unpacked_bytes: Maximum size on disk of the compressed shards that a process has unpacked (at least
        one shard). Random access to more shards than fit is slow, because each jump unpacks one.
    """

    def __init__(
        self, directory: str, dataset: Dataset, *, verify: bool, open_files: int, unpacked_bytes: int
    ) -> None:
        self._directory = directory
        self._remote = storage.is_remote(directory)
        self._shards: Mapping[str, tuple[str, int, int, Shard]] = {
            placed[3].file: placed for placed in dataset.placed_shards()
        }
        self._verify = verify
        self._open_files = max(open_files, 1)
        self._unpacked_bytes = unpacked_bytes
        self._bounds: dict[str, Bounds] = {}
        self._own = _OfProcess()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_own", "_bounds")}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._bounds = {}
        self._own = _OfProcess()

    def read(self, file: str, number: int) -> bytes:
        """Reads one record.

        Raises:
          EngineError: If the record is damaged or cannot be read.
        """
        bounds = self._bounds_of(file)
        begin, end = bounds.of(number)
        frame = self._read_at(file, begin, end - begin)
        return self._data_of(frame, file, number, begin, end)

    def read_many(self, file: str, numbers: Sequence[int]) -> Iterator[bytes]:
        """Yields the records with the given ascending numbers, with few requests.

        Raises:
          EngineError: If a record is damaged or cannot be read.
        """
        longest, gap = (
            (_REMOTE_STRETCH, _REMOTE_GAP) if self._is_remote(file) else (_LOCAL_STRETCH, _LOCAL_GAP)
        )
        bounds = self._bounds_of(file)
        at = 0
        while at < len(numbers):
            begin, end = bounds.of(numbers[at])
            if isinstance(numbers, range) and numbers.step == 1:
                next_at = at + bounds.fitting(numbers[at], numbers[-1] + 1, begin + longest)
                end = bounds.of(numbers[next_at - 1])[1]
            else:
                next_at = at + 1
                while next_at < len(numbers):
                    following, stop = bounds.of(numbers[next_at])
                    if following - end > gap or stop - begin > longest:
                        break
                    end, next_at = stop, next_at + 1
            stretch = self._read_at(file, begin, end - begin)
            for place in range(at, next_at):
                first, last = bounds.of(numbers[place])
                frame = stretch[first - begin : last - begin]
                yield self._data_of(frame, file, numbers[place], first, last)
            at = next_at

    def _path(self, file: str) -> str:
        return storage.join(self._directory, file)

    def _data_of(self, frame: bytes, file: str, number: int, begin: int, end: int) -> bytes:
        """Returns a record's data after checking its frame."""
        if len(frame) < end - begin:
            raise self.damaged(file, number, begin, "the file ends inside it")
        try:
            return data_of(frame, self._verify)
        except FrameDamage as damage:
            raise self.damaged(file, number, begin, damage.message) from None

    def damaged(self, file: str, number: int, offset: int | None, reason: str) -> EngineError:
        """Returns the error that says which record of which shard is damaged, and how.

        Args:
          file: Name of the shard.
          number: Number of the record.
          offset: Offset of its frame in the (unpacked) shard; None to look it up.
          reason: The damage, as part of a sentence.
        """
        if offset is None:
            offset = self._bounds_of(file).of(number)[0]
        return EngineError(
            f"{printable(self._path(file))}: record {number} at byte {offset} is damaged: {reason}; "
            "`shardwright validate` finds all damage; then restore the file or convert again."
        )

    def _bounds_of(self, file: str) -> Bounds:
        """Returns the bounds of a shard's records, found once in each process."""
        found = self._bounds.get(file)
        if found is None:
            split, number, num_shards, shard = self._shards[file]
            found = find_bounds(self._directory, split, number, num_shards, shard)
            if found is None:
                with translated_shard_errors(self._path(file)):
                    size = shard.bytes if self._is_remote(file) else self._open(file).size
                found = self._walk(file, size, shard.records)
            self._bounds[file] = found
        return found

    def _walk(self, file: str, size: int, records: int) -> Bounds:
        """Finds the records of a shard without index and ledger, from the lengths in the frames."""
        ends = [0]
        for number in range(records):
            begin = ends[-1]
            try:
                length = data_length(self._read_at(file, begin, HEADER_BYTES), size - begin)
            except FrameDamage as damage:
                raise self.damaged(file, number, begin, damage.message) from None
            ends.append(begin + length + FRAME_BYTES)
        return Bounds(np.array(ends, np.int64))

    def _process(self) -> _OfProcess:
        if self._own.process != os.getpid():
            self._own = _OfProcess()
        return self._own

    def _is_remote(self, file: str) -> bool:
        """Returns whether a shard is read by requests; a compressed one is unpacked on this machine."""
        return self._remote and not is_compressed(file)

    def _read_at(self, file: str, offset: int, length: int) -> bytes:
        """Reads a range of a shard, or of a compressed one after unpacking."""
        path = self._path(file)
        with translated_shard_errors(path):
            if self._is_remote(file):
                return storage.read_range(path, offset, length, self._shards[file][3].bytes)
            return self._open(file).read_at(offset, length)

    def _open(self, file: str) -> _OpenFile:
        """Returns a shard on this machine, unpacked if it is compressed."""
        own = self._process()
        if is_compressed(file):
            return self._unpacked(own, file)
        with own.lock:
            found = own.files.get(file)
            if found is not None:
                own.files.move_to_end(file)
                return found
        opened = _OpenFile(open(self._path(file), "rb", buffering=0))  # noqa: SIM115 (its last user closes it)
        with own.lock:
            # Another thread may have opened it first. Its file stays; this one is closed.
            found = own.files.setdefault(file, opened)
            while len(own.files) > self._open_files:
                own.files.popitem(last=False)
        return found

    def _unpacked(self, own: _OfProcess, file: str) -> _OpenFile:
        with own.lock:
            lock = own.unpacking.setdefault(file, threading.Lock())
        with lock:  # other threads that need this shard wait for it
            with own.lock:
                found = own.unpacked.get(file)
                if found is not None:
                    own.unpacked.move_to_end(file)
                    return found
            with storage.open_local(self._path(file)) as packed:
                unpacked, error = decompress(packed, compression_of(file, b""))
            found = _OpenFile(unpacked)
            if error:
                bounds = find_bounds(self._directory, *self._shards[file])
                number = bounds.number_at(found.size) if bounds else 0
                begin = bounds.of(number)[0] if bounds else 0
                raise self.damaged(file, number, begin, f"from there on {error}")
            with own.lock:
                own.unpacked[file] = found
                own.unpacking.pop(file, None)
                total = sum(item.size for item in own.unpacked.values())
                while total > self._unpacked_bytes and len(own.unpacked) > 1:
                    total -= own.unpacked.popitem(last=False)[1].size
            return found
