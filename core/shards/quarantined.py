"""Writes `quarantine.jsonl`, the quarantined images of all shards, from the ledgers.

There may be millions of them, so they are neither part of the shards' results nor all in memory at once. The
step that publishes a dataset streams them from the ledgers.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from shardwright.core import storage
from shardwright.core.concurrency.thread_pool import CONNECTIONS, each, ordered_map, reading_executor
from shardwright.core.dataset_files import json_lines
from shardwright.core.lease import HeldLease, while_held
from shardwright.schemas.codes import Outcome
from shardwright.schemas.errors import EngineError
from shardwright.schemas.ledger import ShardResult, load_ledger
from shardwright.schemas.plan import ledger_file

Line = Mapping[str, Any]

#: Number of bytes that are written to a file at once.
_WRITE_BYTES = 1 << 20
#: Approximate bytes of a line in a ledger file, and approximate bytes of memory for a quarantined image.
_STORED_BYTES, _READ_BYTES = 100, 1000


@contextlib.contextmanager
def sorted_lines(
    lines: Iterable[Line], key: Callable[[Line], str] | None = None
) -> Iterator[Iterator[bytes]]:
    """Sorts JSON documents in a temporary database, which needs little memory for any number of them.

    Args:
      lines: The documents.
      key: Function that returns the key of a document; documents with equal keys keep their order. None to
        sort by all fields, in their order: in `quarantine.jsonl`, the image's key comes first.

    Yields:
      The sorted lines, each with its line end.

    Raises:
      OSError: If the temporary disk is full or fails.
    """
    rows = ((key(line) if key else "\0".join(line.values()), json_lines([line])) for line in lines)
    with contextlib.closing(sqlite3.connect("")) as database:  # SQLite removes its temporary file
        try:
            database.execute("CREATE TABLE lines (key BLOB, text BLOB)")
            # UTF-8 has the order of the texts, also with the surrogates of undecodable bytes.
            encoded = ((name.encode("utf-8", "surrogatepass"), text.encode()) for name, text in rows)
            database.executemany("INSERT INTO lines VALUES (?, ?)", encoded)
            yield (text for (text,) in database.execute("SELECT text FROM lines ORDER BY key, rowid"))
        except sqlite3.OperationalError as error:
            raise OSError(errno.EIO, f"{error} while lines were sorted") from error


class LedgerFile(NamedTuple):
    """A ledger file, as it was when its shard was finished or checked.

    Attributes:
      file: Path relative to the dataset directory.
      counts: Outcome -> number of files.
      sha256: sha256 of the ledger file; empty if unknown.
    """

    file: str
    counts: Mapping[str, int]
    sha256: str = ""

    @property
    def quarantined(self) -> int:
        """Number of quarantined files."""
        return self.counts.get(Outcome.QUARANTINED, 0)


def ledgers_of(results: Iterable[ShardResult]) -> Iterator[LedgerFile]:
    """Yields the ledgers of finished shards."""
    for result in results:
        file = ledger_file(*result.header.place)
        yield LedgerFile(file, result.header.counts, result.files.get(file, ""))


def quarantined_lines(directory: str, ledgers: Iterable[LedgerFile]) -> Iterator[dict[str, str]]:
    """Yields the lines of `quarantine.jsonl` in the order of the ledgers.

    Args:
      directory: Dataset directory.
      ledgers: Ledgers of its shards; only ledgers with quarantined images are read.

    Raises:
      EngineError: If a ledger has changed, or the storage failed.
    """
    parts = ordered_map(
        each(partial(_lines_of, directory)),
        (ledger for ledger in ledgers if ledger.quarantined),
        reading_executor(),
        weigh=lambda ledger: _STORED_BYTES * sum(ledger.counts.values()) + _READ_BYTES * ledger.quarantined,
        max_items=CONNECTIONS,
        chunk_items=1,
    )
    for lines in parts:
        yield from lines


def _lines_of(directory: str, ledger: LedgerFile) -> list[dict[str, str]]:
    """Returns the lines of one ledger."""
    path = storage.join(directory, ledger.file)
    data = storage.read_if_exists(path) or b""
    if not ledger.sha256 or ledger.sha256 == hashlib.sha256(data).hexdigest():
        with contextlib.suppress(ValueError, AttributeError):
            entries = (entry for entry in load_ledger(data)[1] if entry.outcome == Outcome.QUARANTINED)
            lines = [entry.quarantine_line() for entry in entries]
            if len(lines) == ledger.quarantined:
                return lines
    raise EngineError(
        f"The ledger {path} changed while the command ran: find out which other program writes "
        "there, then run again (a conversion with --resume)."
    )


def write_in_parts(directory: str, name: str, texts: Iterable[bytes], hold: HeldLease | None) -> str:
    """Writes a file of a dataset.

    Args:
      directory: Dataset directory.
      name: Name of the file.
      texts: Its content, in parts.
      hold: Lease that must be held; None if there is none.

    Returns:
      The sha256 of the file.

    Raises:
      EngineError: If the lease was lost.
      OSError: If the storage failed.
    """
    digest = hashlib.sha256()
    temporary = storage.temporary_path(directory, name, existing=hold is not None)
    with storage.removed_on_failure(temporary):
        with open(temporary, "wb", buffering=_WRITE_BYTES) as file:
            for text in texts:
                digest.update(text)
                file.write(text)
        with while_held(hold):
            storage.move_into_place(temporary, storage.join(directory, name))
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
    with sorted_lines(quarantined_lines(directory, ledgers_of(results))) as lines:
        return write_in_parts(directory, name, lines, hold)
