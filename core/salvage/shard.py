"""Saves one shard: copies it if it is intact, otherwise rewrites its sound records. Needs no Beam."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import IO, NamedTuple

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.concurrency.worker_pool import current_pool
from shardwright.core.dataset_files import read_dataset
from shardwright.core.lease import HeldLease, while_held
from shardwright.core.records.compression import WBITS, compression_of, decompress, uncompressed
from shardwright.core.records.framing import FRAME_BYTES, DamagedRange, Record, read_records
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.salvage import salvaged_ledger
from shardwright.core.shards.finish import finish_shard
from shardwright.core.validation.record import CheckedRecord, RecordChecker, after_crash
from shardwright.schemas.codes import FindingCode, Outcome
from shardwright.schemas.dataset import Shard
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.ledger import Entry, LedgerLines, ShardHeader, ShardResult, load_index, load_ledger
from shardwright.schemas.plan import ShardPlace, index_file, is_compressed, ledger_file

#: Problems that make a record useless in any dataset. Other checks only reflect what most records have.
_UNUSABLE = (FindingCode.UNPARSEABLE, FindingCode.UNDECODABLE)


class SalvageTask(NamedTuple):
    """A shard to save.

    Attributes:
      path: Path of the shard.
      output: Directory in which it is saved.
      file: Name of the saved shard.
      directory: The dataset directory. Empty for foreign files.
      place: Split and number of the shard. None for foreign files.
      expected: Its description in `dataset.json`. None for foreign files.
      hold: Lease that the run must hold to save it. None if it needs no lease.
    """

    path: str
    output: str
    file: str
    directory: str = ""
    place: ShardPlace | None = None
    expected: Shard | None = None
    hold: HeldLease | None = None


@dataclass(frozen=True)
class SavedShard:
    """Result of saving one shard.

    Attributes:
      file: Name of the shard.
      records: Number of records that were saved.
      copied: Whether the shard was intact and copied unchanged.
      unexpected: Number of records left out because they do not belong to the shard, or are second copies.
      lost: Records that could not be saved.
      misplaced: Whether the shard was found under the name of another one.
    """

    file: str
    records: int
    copied: bool
    unexpected: int
    lost: tuple[salvaged_ledger.LostRecord, ...]
    misplaced: bool = False


def save_shard(
    task: SalvageTask, schema: RecordSchema, decode: bool
) -> tuple[SavedShard, ShardResult | None]:
    """Saves a shard; returns also its result for the dataset's ledger, which foreign files do not have.

    Args:
      task: The shard.
      schema: Record schema of the dataset.
      decode: Whether to leave out records whose image cannot be decoded, too.

    Raises:
      EngineError: If the storage failed.
    """
    started = time.time()
    header, entries = _read_ledger(task)
    with ExitStack() as stack, storage.translated_errors("save", task.path):
        file = _open(stack, task.path)
        intact = file is not None and _is_intact(file, task.expected)
        misplaced, why_missing = False, "its shard is missing"
        if not intact and task.expected is not None:
            path, holds = find_misplaced(task.directory, task.expected, task.hold.holder if task.hold else "")
            if path is not None:
                file, intact, misplaced = _open(stack, path), True, True
            elif holds:
                file, why_missing = None, f"its file holds the records of {holds}"
        if file is None:  # all its records are lost, and an empty shard takes its place
            plain: IO[bytes] = io.BytesIO()
            compression = "none"
            content = salvaged_ledger.Content(
                [], [DamagedRange(0, 0, 0, FindingCode.SHARD_MISSING, why_missing)], 0
            )
        else:
            plain, compression, fault = stack.enter_context(uncompressed(file, task.file))
            # Without a ledger, the classes and formats have to come from the images.
            content = _read(plain, fault, schema, decode or (entries is None and task.place is not None))
        if task.place is None:
            if file is None:
                raise EngineError(f"{task.path} disappeared before it was saved; run again.")
            unusable = _UNUSABLE if schema.features else ()  # otherwise the records need not be Examples
            return _save_foreign(task, file, plain, compression, content, unusable), None
        index = _read_index(task) if entries is None else None
        records = task.expected.records if task.expected else 0
        salvaged = salvaged_ledger.reconcile(task.file, task.path, content, entries, index, records, intact)
        copied = intact and not salvaged.lost
        if copied and file is not None and len(salvaged.kept) == len(content.records):
            temporary = _copy(file, task)
        else:
            frames = [content.records[i].frame[:2] for i in salvaged.kept]
            temporary = _write(task, plain, frames, compression_of(task.file, b""))
        same = header is not None and not salvaged.lost and all(entry.key for entry in salvaged.entries)
        lines = LedgerLines(salvaged.entries)
        saved_header = replace(
            lines.header(task.place),
            file=task.file,
            plan_digest=header.plan_digest if header and same else "",
            recipe=header.recipe if header else "",
        )
        result = finish_shard(task.output, saved_header, temporary, lines, started, task.hold)
        lost, kept = tuple(salvaged.lost), len(salvaged.kept)
        return SavedShard(task.file, kept, copied, salvaged.unexpected, lost, misplaced), result


def _open(stack: ExitStack, path: str) -> IO[bytes] | None:
    """Opens a file until the end of a stack; returns None if it is missing."""
    try:
        return stack.enter_context(storage.open_local(path))
    except FileNotFoundError:
        return None


def _is_intact(file: IO[bytes], expected: Shard | None) -> bool:
    if expected is None or os.fstat(file.fileno()).st_size != expected.bytes:
        return False
    sha256 = storage.sha256_of(file)
    file.seek(0)
    return sha256 == expected.sha256


def _read_ledger(task: SalvageTask) -> tuple[ShardHeader, list[Entry]] | tuple[None, None]:
    """Returns the contents of a shard's ledger, or None twice if there is no reliable one."""
    if task.place is None or task.expected is None:
        return None, None
    data = storage.read_if_exists(storage.join(task.directory, ledger_file(*task.place)))
    try:
        result, lines = load_ledger(data or b"", task.expected.sha256)
        return result, list(lines)
    except ValueError:
        return None, None


def _read_index(task: SalvageTask) -> list[salvaged_ledger.Frame] | None:
    """Returns the frames that a shard's index lists, or None if there is no plausible index."""
    if task.place is None or task.expected is None or is_compressed(task.file):
        return None
    if not task.expected.records:
        return []
    try:
        data = storage.read_if_exists(storage.join(task.directory, index_file(*task.place)))
        frames = load_index(data or b"")
    except ValueError:
        return None
    end = 0
    for offset, length in frames:
        if offset != end or length < FRAME_BYTES:
            return None
        end += length
    if len(frames) != task.expected.records or end != task.expected.bytes:
        return None
    return [salvaged_ledger.Frame(*frame) for frame in frames]


def _read(file: IO[bytes], fault: str | None, schema: RecordSchema, decode: bool) -> salvaged_ledger.Content:
    damages: list[DamagedRange] = []

    def sound() -> Iterator[Record]:
        for item in read_records(file, fault):
            if isinstance(item, DamagedRange):
                damages.append(item)
            else:
                yield item

    checker = RecordChecker(schema, decode)
    reader = RecordChecker(schema, decode=False)
    records: Iterable[salvaged_ledger.FoundRecord] = map(partial(_check, checker), sound())
    if decode:
        records = current_pool().map(
            partial(_check, checker),
            sound(),
            weigh=lambda record: len(record.data),
            crashed=lambda record, how: _combine(record, after_crash(reader.check(record.data), how)),
        )
    return salvaged_ledger.Content(list(records), damages, os.fstat(file.fileno()).st_size)


def _check(checker: RecordChecker, record: Record) -> salvaged_ledger.FoundRecord:
    with UNDERWAY.working_on(f"the record at byte {record.offset}", "check"):
        return _combine(record, checker.check(record.data))


def _combine(record: Record, checked: CheckedRecord) -> salvaged_ledger.FoundRecord:
    frame = salvaged_ledger.Frame(record.offset, len(record.data) + FRAME_BYTES, checked.key, checked.source)
    # Other problems do not make a record of unknown origin useless.
    unusable = (problem for problem in checked.problems if problem[0] in _UNUSABLE)
    problem = next(unusable, checked.problems[0] if checked.problems else None)
    entry = Entry(
        key=checked.key or "",
        outcome=Outcome.WRITTEN,
        sha256=checked.source or "",
        label=LABEL_SEPARATOR.join(checked.classes or ()) if not problem else "",
        format=checked.format,
        dtype=checked.dtype,
        file_name="" if checked.key is not None else checked.basename or "",
        fold=checked.fold,
        length=frame.length,
    )
    return salvaged_ledger.FoundRecord(frame, problem, entry)


@contextmanager
def _new_file(task: SalvageTask) -> Iterator[IO[bytes]]:
    """Opens the temporary file of a shard; removes it if the block fails."""
    with storage.translated_errors("write", storage.join(task.output, task.file)):
        temporary = storage.temporary_path(task.output, task.file, existing=task.hold is not None)
        with storage.removed_on_failure(temporary), open(temporary, "wb") as target:
            yield target


def _copy(file: IO[bytes], task: SalvageTask) -> str:
    """Copies an intact shard to a temporary file; returns its path."""
    file.seek(0)
    with _new_file(task) as target:
        shutil.copyfileobj(file, target)
    return target.name


def _write(task: SalvageTask, source: IO[bytes], frames: Sequence[tuple[int, int]], compression: str) -> str:
    """Writes records to a temporary file, and reads it back. Equal records give the bytes of Beam's sink.

    Args:
      task: The shard.
      source: File that contains the frames, uncompressed.
      frames: Offset and length of each frame, in the order in which they are written.
      compression: none, gzip or zlib.

    Returns:
      Path of the temporary file.

    Raises:
      EngineError: If the storage failed, or the file does not read back as it was written.
    """
    with _new_file(task) as target:
        compressor = zlib.compressobj(wbits=WBITS[compression]) if compression != "none" else None
        for frame in _frames(source, task.path, frames):
            target.write(compressor.compress(frame) if compressor else frame)
        if compressor:
            target.write(compressor.flush())
        target.flush()
        _read_back(target.name, _frames(source, task.path, frames), compression, task)
    return target.name


def _frames(source: IO[bytes], path: str, frames: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    for offset, length in frames:
        with storage.translated_errors("read", path):
            source.seek(offset)
            frame = source.read(length)
        if len(frame) < length:
            raise storage.changed(path)
        yield frame


def _read_back(temporary: str, frames: Iterator[bytes], compression: str, task: SalvageTask) -> None:
    """Compares the written file with the frames that it should hold."""
    with open(temporary, "rb") as written:
        plain, error = decompress(written, compression) if compression != "none" else (written, None)
        with closing(plain):
            same = error is None and all(plain.read(len(frame)) == frame for frame in frames)
            if not same or plain.read(1):
                raise EngineError(
                    f"{storage.join(task.output, task.file)} does not read back as it was "
                    "written; check the disk, then run again."
                )


def _save_foreign(
    task: SalvageTask,
    file: IO[bytes],
    plain: IO[bytes],
    compression: str,
    content: salvaged_ledger.Content,
    unusable: Sequence[FindingCode],
) -> SavedShard:
    """Saves the records of a file for which there is no dataset."""
    lost = [salvaged_ledger.lost_range(task.file, damage, damage.number) for damage in content.damages]
    kept = []
    for record in content.records:
        if record.problem is None or record.problem[0] not in unusable:
            kept.append(record.frame[:2])
            continue
        lost.append(record.as_lost(task.file))
    lost.sort(key=lambda item: item.offset or 0)
    temporary = _write(task, plain, kept, compression) if lost else _copy(file, task)
    with while_held(task.hold):
        storage.move_into_place(temporary, storage.join(task.output, task.file))
    return SavedShard(task.file, len(kept), not lost, 0, tuple(lost))


def find_misplaced(directory: str, expected: Shard, run: str = "") -> tuple[str | None, str]:
    """Looks for a shard whose own file has other bytes or is missing, in all files of its size.

    Args:
      directory: The dataset directory.
      expected: The shard as `dataset.json` describes it.
      run: Unique name of the run, during which the directory does not change. Empty to list it again.

    Returns:
      Path of the file that holds its bytes, or None if none was found; and the name of the other shard that
      its own file holds, which is empty if it holds none.

    Raises:
      UsageError: If `dataset.json` is not a readable document.
      EngineError: If the storage failed.
    """
    if not run:
        _list_shards.cache_clear()
        _sha256_of.cache_clear()
    sizes, shards = _list_shards(directory, run)
    own = {shard.sha256: shard.file for shard in shards if shard.bytes == sizes.get(expected.file)}
    own.pop(expected.sha256, None)
    holds = own.get(_sha256_of(directory, expected.file, run), "") if own else ""
    for file, size in sizes.items() if expected.records else ():
        if size == expected.bytes and _sha256_of(directory, file, run) == expected.sha256:
            return storage.join(directory, file), holds
    return None, holds


@lru_cache(maxsize=1)
def _list_shards(directory: str, run: str) -> tuple[dict[str, int], list[Shard]]:
    """Returns the size of each file, and the shards with records, once for all shards that a run saves."""
    shards = [shard for shard in read_dataset(directory).shards if shard.records]
    if storage.is_remote(directory):
        prefix = directory.rstrip("/") + "/"
        objects = storage.list_objects(prefix, deep=False)
        return {item.path.removeprefix(prefix): item.size for item in objects}, shards
    with os.scandir(directory) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}, shards


@lru_cache(maxsize=10_000)
def _sha256_of(directory: str, file: str, run: str) -> str:
    """Returns the sha256 of a file; empty if it is missing. A run reads each file once in this process."""
    with contextlib.suppress(FileNotFoundError), storage.open_local(storage.join(directory, file)) as opened:
        return storage.sha256_of(opened)
    return ""
