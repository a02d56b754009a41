"""Checks one shard: the whole file, its frames, and every record. Needs no Beam."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import tee, zip_longest
from typing import IO, NamedTuple

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.concurrency.worker_pool import current_pool
from shardwright.core.images.metadata import PRIVATE_KINDS
from shardwright.core.records.compression import uncompressed
from shardwright.core.records.framing import FRAME_BYTES, DamagedRange, Record, read_records
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.validation.directory import other_digest
from shardwright.core.validation.duplicates import ComparedRecord, labels_of
from shardwright.core.validation.ledger import LedgerCheck, LedgerSummary, ShardTerms
from shardwright.core.validation.objects import dropped_objects
from shardwright.core.validation.record import CheckedRecord, RecordChecker, after_crash
from shardwright.schemas.codes import DAMAGES, CheckDepth, FindingCode
from shardwright.schemas.dataset import Shard
from shardwright.schemas.findings import Finding, FindingSummary
from shardwright.schemas.ledger import index_line
from shardwright.schemas.pictures import Picture
from shardwright.schemas.plain_text import printable
from shardwright.schemas.plan import ShardPlace, index_file, is_compressed, ledger_file
from shardwright.schemas.statistics import RecordStatistics, Statistics
from shardwright.schemas.units import counted, listed

#: Digest of the bytes of a record, which identifies it.
Digest = bytes

#: Codes of findings that explain why a shard lacks entries of its ledger.
_DAMAGES = (FindingCode.SHARD_TRUNCATED, FindingCode.LENGTH_CRC, FindingCode.DATA_CRC)
#: Codes of findings that show that the shard itself is not the one to which its index belongs.
_OTHER_SHARD = DAMAGES | {FindingCode.COUNT_MISMATCH, FindingCode.LEDGER_MISMATCH}
_SHOWN_BYTES = 60


class ShardTask(NamedTuple):
    """A shard to check.

    Attributes:
      path: Path of the shard.
      file: Name of the shard in findings.
      split: Split of the shard. Empty if unknown.
      expected: The shard's entry in `dataset.json`. None for foreign files.
      index_path: Path of the index. Empty for a shard without one. The check of the directory, not
        this one, reports a missing index.
      ledger_path: Path of the ledger. Empty for a shard without one.
      previous_checks: Paths of stored checks of an earlier version's shards with the same records, perhaps.
      terms: Values that its ledger is checked against. None to compare the ledger only with itself.
    """

    path: str
    file: str
    split: str
    expected: Shard | None
    index_path: str = ""
    ledger_path: str = ""
    previous_checks: tuple[str, ...] = ()
    terms: ShardTerms | None = None


def shard_task(directory: str, place: ShardPlace, shard: Shard) -> ShardTask:
    """Returns the task to check a shard of a dataset.

    Args:
      directory: The dataset directory.
      place: Place of the shard.
      shard: The shard's entry in `dataset.json`.
    """
    return ShardTask(
        storage.join(directory, shard.file),
        shard.file,
        place.split,
        shard,
        "" if is_compressed(shard.file) else storage.join(directory, index_file(*place)),
        storage.join(directory, ledger_file(*place)),
    )


@dataclass(slots=True)
class ShardCheck:
    """Result of checking one shard.

    Attributes:
      file: Name of the shard.
      split: Split of the shard.
      records: Number of sound records.
      bytes: Size of the file.
      findings: Findings about the shard.
      rows: Values of the records that are compared.
      pictures: Descriptions of the decoded images, if quality metrics were computed.
      features: Summary of the records' features, if quality metrics were computed.
      digests: Digest of the bytes of each record in `rows`, empty for one with problems. No digests unless
        they were requested.
      ledger_summary: Header and computed values of the ledger. None if it was not read, or is unusable.
      stored: sha256 of the file in which the check is stored. Empty if it is not stored.
      sound: Whether the shard and its records have no problem. Odd images are not a problem.
      summary: All findings about the shard, also about odd images.
      statistics: Statistics of the images, if quality metrics were computed.
    """

    file: str
    split: str
    records: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    rows: list[ComparedRecord] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    features: RecordStatistics = field(default_factory=RecordStatistics)
    digests: list[Digest] = field(default_factory=list)
    ledger_summary: LedgerSummary | None = None
    stored: str = ""
    sound: bool = True
    summary: FindingSummary = field(default_factory=FindingSummary)
    statistics: Statistics | None = None


#: Mapping of record digest to image description (or None), for records without problems.
SoundRecords = Mapping[Digest, Picture | None]


class _OpenedShard(NamedTuple):
    """A shard with its other files, as a worker process gets it.

    Attributes:
      task: The shard.
      path: Path of the shard, or of a copy, on this machine.
      ledger_data: Contents of its ledger. None if it is missing, or not compared.
      index_data: Contents of its index. None if it is missing, or the shard should have none.
    """

    task: ShardTask
    path: str
    ledger_data: bytes | None
    index_data: bytes | None


def check_shard(
    task: ShardTask,
    schema: RecordSchema,
    depth: CheckDepth,
    sound: SoundRecords | None = None,
) -> ShardCheck:
    """Checks a shard.

    A converter checks the whole shard, or, if images are decoded, each record of it.

    Args:
      task: The shard.
      schema: Record schema of the dataset.
      depth: Depth of the check.
      sound: Records that the same check found sound, whose images need not be decoded again. If given, even
        empty, digests of the records are computed.

    Raises:
      EngineError: If the storage failed, or a worker process ended.
    """
    compares_ledger = depth >= CheckDepth.FAST and bool(task.ledger_path) and task.expected is not None
    try:
        with storage.open_local(task.path, by_name=True) as file:
            opened = _OpenedShard(
                task,
                os.path.abspath(file.name),
                storage.read_if_exists(task.ledger_path) if compares_ledger else None,
                storage.read_if_exists(task.index_path) if task.index_path else None,
            )
            check = partial(_check_opened, schema, depth, sound)
            if depth >= CheckDepth.FULL:
                return check(opened)
            return next(current_pool().map(check, [opened], weigh=lambda _: 0))
    except FileNotFoundError:
        missing = Finding(FindingCode.SHARD_MISSING, "the file is missing", task.file)
        return ShardCheck(task.file, task.split, findings=[missing])
    except OSError as error:
        raise storage.fault(error, "read", task.path) from error


def _check_opened(
    schema: RecordSchema, depth: CheckDepth, sound: SoundRecords | None, opened: _OpenedShard
) -> ShardCheck:
    """Checks a shard on this machine.

    Raises:
      OSError: If it cannot be read.
    """
    task = opened.task
    check = ShardCheck(task.file, task.split)
    records = _Records(task, schema, check)
    find = records.find
    crc32c = ""
    with storage.open_local(opened.path) as file:
        check.bytes = os.fstat(file.fileno()).st_size
        if task.expected:
            if check.bytes < task.expected.bytes:
                sizes = f"it has {check.bytes} bytes, dataset.json says {task.expected.bytes}"
                find(FindingCode.SHARD_TRUNCATED, sizes)
            sha256, checksum = storage.checksums_of(file)
            if sha256 == task.expected.sha256:
                crc32c = checksum
            else:
                find(FindingCode.SHARD_CHECKSUM, other_digest(sha256, task.expected.sha256))
            file.seek(0)
            if opened.ledger_data is not None:
                records.ledger = LedgerCheck(opened.ledger_data, task.expected, task.terms)
            elif depth >= CheckDepth.FAST and task.ledger_path:
                message = f"its ledger {os.path.basename(task.ledger_path)} is missing"
                find(FindingCode.LEDGER_MISMATCH, message)
        _check_records(file, records, depth, sound)
    ledger = records.ledger
    if ledger is not None:
        whole = task.expected is not None and check.records == task.expected.records
        codes = {finding.code for finding in check.findings}
        intact = whole and codes.isdisjoint((*_DAMAGES, FindingCode.LEDGER_MISMATCH))
        for code, message in ledger.finish(intact, crc32c):
            find(code, message)
        check.ledger_summary = ledger.summary
    if task.expected and check.records != task.expected.records:
        holds = counted(check.records, "sound record")
        find(FindingCode.COUNT_MISMATCH, f"it holds {holds}, dataset.json says {task.expected.records}")
    if opened.index_data is not None and _OTHER_SHARD.isdisjoint(finding.code for finding in check.findings):
        records.check_index(opened.index_data)
    return check


@dataclass
class _Records:
    """Adds the results of a shard's records to its check, and compares them with its ledger.

    Attributes:
      task: The shard.
      schema: Record schema of the dataset.
      check: Where the results go.
      ledger: The shard's ledger. None without one.
      index: The lines of the shard's true index.
    """

    task: ShardTask
    schema: RecordSchema
    check: ShardCheck
    ledger: LedgerCheck | None = None
    index: bytearray = field(default_factory=bytearray)

    def find(
        self, code: FindingCode, message: str, at: Record | DamagedRange | None = None, key: str | None = None
    ) -> None:
        """Adds a finding about the shard, or about a record of it."""
        number, offset = (None, None) if at is None else (at.number, at.offset)
        self.check.findings.append(Finding(code, message, self.task.file, number, offset, key))

    def check_index(self, stored: bytes) -> None:
        """Compares the shard's index with the index of its records."""
        true = bytes(self.index)
        if stored == true:
            return
        name = os.path.basename(self.task.index_path)
        pairs = enumerate(zip_longest(stored.split(b"\n"), true.split(b"\n")))
        index, lines = next((index, pair) for index, pair in pairs if pair[0] != pair[1])
        line_text, expected = (
            "nothing" if line is None else repr(printable(line[:_SHOWN_BYTES].decode("utf-8", "replace")))
            for line in lines
        )
        message = f"line {index + 1} of its index {name} is {line_text}, not {expected}"
        self.find(FindingCode.INDEX_MISMATCH, message)

    def count(self, record: Record) -> None:
        """Counts a record, and adds it to the index."""
        self.check.records += 1
        if self.task.index_path:
            self.index += index_line(record.offset, len(record.data) + FRAME_BYTES)

    def add(self, record: Record, result: CheckedRecord, digest: Digest) -> None:
        """Adds a record."""
        check, split, problems, matched = self.check, self.task.split, list(result.problems), None
        self.count(record)
        if result.private:
            kinds = listed(PRIVATE_KINDS[kind] for kind in result.private)
            problems.append((FindingCode.PRIVATE_METADATA, f"the metadata of its image has {kinds}"))
        if self.ledger is not None:
            differences, matched = self.ledger.compare(record, result)
            problems += differences
        for code, message in problems:
            self.find(code, message, record, result.key)
        source, labels = result.source, result.classes or ()
        picture_source = source if result.source_in_record else None
        if matched is not None:
            if message := dropped_objects(matched):
                self.find(FindingCode.OBJECTS_DROPPED, message, record, matched.key)
            # Other images may have the same file name, so use the ledger's key.
            if result.key and matched.file_name == result.key:
                result = result._replace(key=matched.key)
            if not result.source_in_record:
                source = matched.sha256 or source
                picture_source = source if source != result.source else None
            if result.classes is None:
                labels = labels_of(matched)
            if matched.source_key:  # --map made several images of one source, which may differ in class
                labels, picture_source = (), None
        place = self.task.file, record.number, record.offset, result.key
        check.rows.append(ComparedRecord(*place, split, labels, source=source))
        if digest:
            # A record without a digest is decoded again in the next version, and its finding made again.
            check.digests.append(b"" if result.problems or result.private else digest)
        if result.features is not None:
            check.features.add(result.features, {spec.name: spec for spec in self.schema.features})
        if result.picture is not None:
            check.pictures.append(
                result.picture._replace(
                    file=self.task.file,
                    number=record.number,
                    offset=record.offset,
                    key=result.key,
                    split=split,
                    source=picture_source,
                )
            )


def _check_records(
    file: IO[bytes], records: _Records, depth: CheckDepth, known_records: SoundRecords | None
) -> None:
    """Checks every sound record of a shard, and reports damage as a finding."""
    task, known = records.task, known_records or {}
    with uncompressed(file, task.file) as (plain, _, error):

        def sound() -> Iterator[_RecordToCheck]:
            for item in read_records(plain):
                if isinstance(item, DamagedRange):
                    records.find(item.code, item.message, item)
                    continue
                digest = b"" if known_records is None else blake2b(item.data, digest_size=16).digest()
                yield _RecordToCheck(item, digest, digest in known)

        if depth is CheckDepth.FRAMES:
            for item in sound():
                records.count(item.record)
        else:
            for item, result in _check_items(sound(), records.schema._replace(split=task.split), depth, task):
                if item.is_known:
                    result = result._replace(picture=known[item.digest])
                records.add(item.record, result, item.digest)
    if error:
        records.find(FindingCode.SHARD_TRUNCATED, error)


class _RecordToCheck(NamedTuple):
    """A record on its way to a converter.

    Attributes:
      record: The record.
      digest: Its digest; empty if it is not needed.
      is_known: Whether the same check found it sound, so that its image need not be decoded.
    """

    record: Record
    digest: Digest
    is_known: bool


def _check_items(
    items: Iterator[_RecordToCheck], schema: RecordSchema, depth: CheckDepth, task: ShardTask
) -> Iterator[tuple[_RecordToCheck, CheckedRecord]]:
    """Yields records with their results, in order."""
    look = depth >= CheckDepth.QUALITY
    reader = RecordChecker(schema, decode=False, look=look)
    checker = RecordChecker(
        schema,
        decode=depth >= CheckDepth.FULL,
        look=look,
        hash_images=task.terms is not None and task.terms.keeps,
    )
    if depth < CheckDepth.FULL:  # a converter runs this
        with UNDERWAY.working_on(task.path, "check") as step:
            for item in items:
                step.place = f"the record at byte {item.record.offset} of {task.path}"
                UNDERWAY.progress()
                yield item, reader.check(item.record.data)
        return
    items, again = tee(items)
    results = current_pool().map(
        partial(_check_record, reader, checker, task.path),
        items,
        weigh=lambda item: len(item.record.data),
        crashed=lambda item, how: after_crash(reader.check(item.record.data), how),
    )
    yield from zip(again, results, strict=True)


def _check_record(
    reader: RecordChecker, checker: RecordChecker, path: str, item: _RecordToCheck
) -> CheckedRecord:
    with UNDERWAY.working_on(f"the record at byte {item.record.offset} of {path}", "check"):
        return (reader if item.is_known else checker).check(item.record.data)
