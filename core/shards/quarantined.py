"""Writes `quarantine.jsonl`, the quarantined images of all shards, from the ledgers.

There may be millions of them, so they are neither part of the shards' results nor all in memory at once. The
step that publishes a dataset streams them from the ledgers.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import IO, Any, NamedTuple

from shardwright.core import storage
from shardwright.core.concurrency.pool import CONNECTIONS, IN_FLIGHT_BYTES, map_ordered, reading_executor
from shardwright.core.dataset_files import json_lines
from shardwright.core.lease import HeldLease, while_held, write_held
from shardwright.core.shards.finish import discard
from shardwright.schemas.codes import Outcome
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.ledger import Entry, ShardHeader, ShardResult, line_blocks
from shardwright.schemas.plan import ledger_file

Line = Mapping[str, Any]

#: Bytes of memory for lines that are sorted at once, and the overhead of a line besides its text and key.
_SORT_BYTES, _LINE_BYTES = 64 * 10**6, 500
#: Number of files of sorted lines that are open at once.
MAX_FILES = 64
#: Number of bytes that are written to a file at once.
_WRITE_BYTES = 1 << 20
#: Approximate bytes of a line in a ledger file, and approximate bytes of memory for a quarantined image.
_STORED_BYTES, _READ_BYTES = 100, 1000
#: Text that all lines of quarantined images contain. Searching for it is faster than parsing all lines.
_MARK = json.dumps(Outcome.QUARANTINED.value).encode()


class SortedLines:
    """JSON documents sorted by a key; documents with equal keys keep their order.

    Lines that do not fit into memory are kept in unnamed temporary files. Use it as a context manager.

    Args:
      key: Function that returns the key of a document.
      max_bytes: Approximate limit of memory in bytes.
    """

    def __init__(self, key: Callable[[Line], Any], max_bytes: int = _SORT_BYTES) -> None:
        self._key, self._max_bytes = key, max_bytes
        self._lines: list[tuple[Any, bytes]] = []
        self._bytes = 0
        self._runs: list[IO[bytes]] = []
        self._open = contextlib.ExitStack()

    def __enter__(self) -> SortedLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def fit_into_memory(self) -> bool:
        """Whether no line had to be written to a file."""
        return not self._runs

    def add(self, line: Line) -> None:
        """Adds a document."""
        text = json_lines([line]).encode()
        self._lines.append((self._key(line), text))
        self._bytes += 3 * len(text) + _LINE_BYTES
        if self._bytes > self._max_bytes:
            self._write_run()

    def __iter__(self) -> Iterator[bytes]:
        """Yields the sorted lines, each with its line end."""
        self._sort()
        runs = [self._read(file) for file in self._runs]
        for _, text in heapq.merge(*runs, self._lines, key=lambda item: item[0]):
            yield text

    def _sort(self) -> None:
        self._lines.sort(key=lambda item: item[0])

    def _read(self, file: IO[bytes]) -> Iterator[tuple[Any, bytes]]:
        file.seek(0)
        for text in file:
            yield self._key(json.loads(text)), text

    def _write_run(self) -> None:
        """Writes the lines in memory to a file, and merges all files if there are too many."""
        whole = len(self._runs) + 1 >= MAX_FILES
        self._sort()
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(tempfile.TemporaryFile())
            file.writelines(self if whole else (text for _, text in self._lines))
            opened = stack.pop_all()
        if whole:
            self._open.close()
            self._runs.clear()
        self._open.callback(opened.close)
        self._runs.append(file)
        self._lines, self._bytes = [], 0


class LedgerFile(NamedTuple):
    """A ledger file, as it was when its shard was finished or checked.

    Attributes:
      file: Path relative to the dataset directory.
      lines: Number of listed files.
      quarantined: Number of quarantined files among them.
      sha256: sha256 of the ledger file; empty if unknown.
    """

    file: str
    lines: int
    quarantined: int
    sha256: str = ""

    @staticmethod
    def of(file: str, header: ShardHeader, sha256: str) -> LedgerFile:
        """Returns the ledger of a shard."""
        counts = header.counts
        return LedgerFile(file, sum(counts.values()), counts.get(Outcome.QUARANTINED, 0), sha256)


def ledgers_of(results: Iterable[ShardResult]) -> Iterator[LedgerFile]:
    """Yields the ledgers of finished shards."""
    for result in results:
        file = ledger_file(*result.header.place)
        yield LedgerFile.of(file, result.header, result.files.get(file, ""))


def quarantined_lines(directory: str, ledgers: Iterable[LedgerFile]) -> Iterator[dict[str, str]]:
    """Yields the lines of `quarantine.jsonl` in the order of the ledgers.

    Args:
      directory: Dataset directory.
      ledgers: Ledgers of its shards; only ledgers with quarantined images are read.

    Raises:
      EngineError: If a ledger has changed, or the storage failed.
    """
    parts = map_ordered(
        lambda ledger: _lines_of(directory, ledger),
        (ledger for ledger in ledgers if ledger.quarantined),
        reading_executor(),
        weigh=lambda ledger: _STORED_BYTES * ledger.lines + _READ_BYTES * ledger.quarantined,
        max_items=CONNECTIONS,
        max_weight=IN_FLIGHT_BYTES,
        chunk_items=1,
    )
    for lines in parts:
        yield from lines


def _lines_of(directory: str, ledger: LedgerFile) -> list[dict[str, str]]:
    """Returns the lines of one ledger."""
    path = storage.join(directory, ledger.file)
    with storage.translated_errors("read", path):
        try:
            data = storage.read_bytes(path)
        except FileNotFoundError:
            data = b""
    if not ledger.sha256 or ledger.sha256 == hashlib.sha256(data).hexdigest():
        for mark in (_MARK, b""):
            with contextlib.suppress(OSError, EOFError, zlib.error, ValueError, TypeError, RecursionError):
                lines = list(_ledger_quarantine(data, mark))
                if len(lines) == ledger.quarantined:
                    return lines
    raise EngineError(
        f"The ledger {printable(path)} changed while the command ran: find out which other program writes "
        "there, then run again (a conversion with --resume)."
    )


def _ledger_quarantine(data: bytes, mark: bytes) -> Iterator[dict[str, str]]:
    """Yields the quarantined images in a ledger file, from the lines that contain a mark."""
    blocks = line_blocks(data)
    next(blocks)  # the header
    for block in blocks:
        for line in block:
            if line and mark in line:
                entry = Entry.from_json(json.loads(line))
                if entry.outcome == Outcome.QUARANTINED:
                    yield entry.quarantine_line()


def in_order(line: Line) -> tuple[Any, ...]:
    """Returns the sort key of a line in `quarantine.jsonl`: the image's key, then the other fields."""
    return tuple(line.values())


def write_in_parts(
    directory: str, name: str, texts: Iterable[bytes], small: bool, hold: HeldLease | None
) -> str:
    """Writes a file of a dataset.

    Args:
      directory: Dataset directory.
      name: Name of the file.
      texts: Its content, in parts.
      small: Whether the content fits into memory.
      hold: Lease that must be held; None if there is none.

    Returns:
      The sha256 of the file.

    Raises:
      EngineError: If the lease was lost.
      OSError: If the storage failed.
    """
    if small:
        data = b"".join(texts)
        write_held(directory, name, data, hold)
        return hashlib.sha256(data).hexdigest()
    digest = hashlib.sha256()
    temporary = storage.temporary_path(directory, name, existing=hold is not None)
    try:
        with open(temporary, "wb", buffering=_WRITE_BYTES) as file:
            for text in texts:
                digest.update(text)
                file.write(text)
            file.flush()
            if not storage.is_remote(directory):
                os.fsync(file.fileno())
        with while_held(hold):
            storage.move_into_place(temporary, storage.join(directory, name))
    except BaseException:
        discard(temporary)
        raise
    return digest.hexdigest()


def write_quarantine(
    directory: str, name: str, results: Iterable[ShardResult], hold: HeldLease | None
) -> str:
    """Writes the quarantined images of all shards, sorted by key; returns the sha256 of the file.

    Args:
      directory: Dataset directory.
      name: Name of the file.
      results: Results of its shards.
      hold: Lease that must be held; None if there is none.

    Raises:
      EngineError: If a ledger differs from what its shard wrote, the lease was lost, or the storage failed.
    """
    with SortedLines(in_order) as lines:
        for line in quarantined_lines(directory, ledgers_of(results)):
            lines.add(line)
        return write_in_parts(directory, name, lines, lines.fit_into_memory, hold)
