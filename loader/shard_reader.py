"""Reads records of shards by their offsets, at random or in order. Safe for many threads and processes.

The offsets come from a shard's index or ledger. Only without them are its frames read to find them.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import IO

import numpy as np
import numpy.typing as npt

from shardwright.core import storage
from shardwright.core.records.compression import compression_of, decompress, translated_shard_errors
from shardwright.core.records.framing import FRAME_BYTES, HEADER_BYTES, FrameDamage, data_length, data_of
from shardwright.schemas.dataset import Dataset, Shard
from shardwright.schemas.errors import EngineError
from shardwright.schemas.ledger import load_index, written_entries
from shardwright.schemas.plan import ShardPlace, index_file, is_compressed, ledger_file

#: 0, then the end of each record's frame in the unpacked shard. Frames have no gaps between them.
Ends = npt.NDArray[np.int64]
#: Offset and length of a frame; None if a ledger does not state them.
Place = tuple[int | None, int | None]
#: Maximum number of bytes to read at once, and the largest gap between two records that is read along
#: with them instead of starting another read.
_LOCAL_READS, _REMOTE_READS = (4 << 20, 64 << 10), (8 << 20, 1 << 20)


def find_ends(directory: str, place: ShardPlace, shard: Shard) -> Ends | None:
    """Returns the ends of a shard's records, or None if neither index nor ledger has them.

    An index or ledger that does not agree with `dataset.json` is ignored.

    Raises:
      EngineError: If the storage failed.
    """
    ledger = ledger_file(*place)
    sources: list[tuple[str, Callable[[bytes], Iterable[Place]]]] = [
        (ledger, lambda data: ((entry.offset, entry.length) for entry in written_entries(data, shard.sha256)))
    ]
    if shard.records and not is_compressed(shard.file):
        sources.insert(0, (index_file(*place), load_index))
    for file, places_in in sources:
        path = storage.join(directory, file)
        try:
            ends = _checked(places_in(storage.read_bytes(path)), shard)
        except (FileNotFoundError, ValueError, TypeError, OverflowError):
            continue
        except OSError as error:
            raise storage.fault(error, "read", path) from error
        if ends is not None:
            return ends
    return None


def _checked(places: Iterable[Place], shard: Shard) -> Ends | None:
    """Returns the ends if the frames cover the shard from its beginning to its end without gaps."""
    table = np.array(list(places), np.int64).reshape(-1, 2)
    ends = np.concatenate((np.zeros(1, np.int64), table.sum(axis=1)))
    fits = (
        len(table) == shard.records
        and bool(np.array_equal(ends[:-1], table[:, 0]))
        and bool((table[:, 1] >= FRAME_BYTES).all())
        and (is_compressed(shard.file) or int(ends[-1]) == shard.bytes)
    )
    return ends if fits else None


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

    def __init__(self, open_files: int) -> None:
        self.process = os.getpid()
        #: Opens a file, or returns it if it is open. If threads do so at once, one of the files stays open.
        self.opened = lru_cache(open_files)(lambda path: _OpenFile(open(path, "rb", buffering=0)))  # noqa: SIM115
        self.lock = threading.Lock()
        self.unpacking: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
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
        self._shards = {shard.file: (place, shard) for place, shard in dataset.placed_shards()}
        self._verify = verify
        self._open_files = max(open_files, 1)
        self._unpacked_bytes = unpacked_bytes
        self._begin()

    def _begin(self) -> None:
        self._ends: dict[str, Ends] = {}
        self._own = _OfProcess(self._open_files)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_own", "_ends")}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._begin()

    def read(self, file: str, number: int) -> bytes:
        """Reads one record.

        Raises:
          EngineError: If the record is damaged or cannot be read.
        """
        return next(self.read_many(file, (number,)))

    def read_many(self, file: str, numbers: Sequence[int]) -> Iterator[bytes]:
        """Yields the records with the given numbers, with few requests if the numbers ascend.

        Raises:
          EngineError: If a record is damaged or cannot be read.
        """
        longest, gap = _REMOTE_READS if self._is_remote(file) else _LOCAL_READS
        ends = self._ends_of(file)
        at = 0
        while at < len(numbers):
            places: list[tuple[int, int]] = []
            for number in numbers[at:]:
                first, last = ends[number : number + 2].tolist()
                if places and not (0 <= first - places[-1][1] <= gap and last - places[0][0] <= longest):
                    break
                places.append((first, last))
            begin = places[0][0]
            stretch = self._read_at(file, begin, places[-1][1] - begin)
            for number, (first, last) in zip(numbers[at:], places):
                yield self._data_of(stretch[first - begin : last - begin], file, number, first, last)
            at += len(places)

    def _path(self, file: str) -> str:
        return storage.join(self._directory, file)

    def _data_of(self, frame: bytes, file: str, index: int, begin: int, end: int) -> bytes:
        """Returns a record's data after checking its frame."""
        if len(frame) < end - begin:
            raise self.damaged(file, index, begin, "the file ends inside it")
        try:
            return data_of(frame, self._verify)
        except FrameDamage as damage:
            raise self.damaged(file, index, begin, damage.message) from None

    def damaged(self, file: str, number: int, offset: int | None, reason: str) -> EngineError:
        """Returns the error that says which record of which shard is damaged, and how.

        Args:
          file: Name of the shard.
          number: Number of the record.
          offset: Offset of its frame in the (unpacked) shard; None to look it up.
          reason: The damage, as part of a sentence.
        """
        if offset is None:
            offset = int(self._ends_of(file)[number])
        return EngineError(
            f"{self._path(file)}: record {number} at byte {offset} is damaged: {reason}; "
            "`shardwright validate` finds all damage; then restore the file or convert again."
        )

    def _ends_of(self, file: str) -> Ends:
        """Returns the ends of a shard's records, found once in each process."""
        ends = self._ends.get(file)
        if ends is None:
            ends = find_ends(self._directory, *self._shards[file])
            if ends is None:
                shard = self._shards[file][1]
                with translated_shard_errors(self._path(file)):
                    size = shard.bytes if self._is_remote(file) else self._open(file).size
                ends = self._walk(file, size, shard.records)
            self._ends[file] = ends
        return ends

    def _walk(self, file: str, size: int, records: int) -> Ends:
        """Finds the records of a shard without index and ledger, from the lengths in the frames."""
        ends = [0]
        for index in range(records):
            begin = ends[-1]
            try:
                length = data_length(self._read_at(file, begin, HEADER_BYTES), size - begin)
            except FrameDamage as damage:
                raise self.damaged(file, index, begin, damage.message) from None
            ends.append(begin + length + FRAME_BYTES)
        return np.array(ends, np.int64)

    def _is_remote(self, file: str) -> bool:
        """Returns whether a shard is read by requests; a compressed one is unpacked on this machine."""
        return self._remote and not is_compressed(file)

    def _read_at(self, file: str, offset: int, length: int) -> bytes:
        """Reads a range of a shard, or of a compressed one after unpacking."""
        path = self._path(file)
        with translated_shard_errors(path):
            if self._is_remote(file):
                return storage.read_range(path, offset, length, self._shards[file][1].bytes)
            return self._open(file).read_at(offset, length)

    def _open(self, file: str) -> _OpenFile:
        """Returns a shard on this machine, unpacked if it is compressed."""
        if self._own.process != os.getpid():
            self._own = _OfProcess(self._open_files)
        own = self._own
        if not is_compressed(file):
            return own.opened(self._path(file))
        with own.lock:
            lock = own.unpacking[file]
        with lock:  # other threads that need this shard wait for it
            with own.lock:
                opened = own.unpacked.get(file)
                if opened is not None:
                    own.unpacked.move_to_end(file)
                    return opened
            with storage.open_local(self._path(file)) as packed:
                unpacked, error = decompress(packed, compression_of(file, b""))
            opened = _OpenFile(unpacked)
            if error:
                ends = find_ends(self._directory, *self._shards[file])
                ends = np.zeros(2, np.int64) if ends is None else ends
                index = min(int(np.searchsorted(ends, opened.size, side="right")) - 1, len(ends) - 2)
                raise self.damaged(file, index, int(ends[index]), f"from there on {error}")
            with own.lock:
                own.unpacked[file] = opened
                total = sum(item.size for item in own.unpacked.values())
                while total > self._unpacked_bytes and len(own.unpacked) > 1:
                    total -= own.unpacked.popitem(last=False)[1].size
            return opened
