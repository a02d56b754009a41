"""Stores the result of checking a shard beside it, so that an unchanged shard is not read again.

The result depends on the shard, its ledger and its index, on the record schema, the depth, and the software.
All of these are stored with the result, and it is used only if they agree. Otherwise the shard is read. New
classes are appended to the existing ones, so they do not affect a shard without problems.

Nor is an image decoded again if its record was sound, with the same bytes, in the previous version.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwright.core import storage
from shardwright.core.images.encode import codec_versions
from shardwright.core.lease import HeldLease, write_held
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.validation.directory import stored_sha256
from shardwright.core.validation.duplicates import ComparedRecord
from shardwright.core.validation.outliers import odd_pictures
from shardwright.core.validation.shard import Digest, ShardCheck, ShardTask, SoundRecords, check_shard
from shardwright.schemas import __version__
from shardwright.schemas.codes import CheckDepth, FindingCode
from shardwright.schemas.dataset import canonical_json
from shardwright.schemas.findings import FindingSummary
from shardwright.schemas.json_values import from_json, to_json
from shardwright.schemas.pictures import Picture
from shardwright.schemas.statistics import RecordStatistics, Statistics
from shardwright.schemas.version import check_file

#: Raise this number when a check gives other findings than before, or other quality metrics, or when its
#: result is stored in another form (`tests/core/validation/test_stored_checks.py` detects this).
FORMAT_VERSION = 8
_LEVEL = 1
#: Largest uncompressed size in bytes of the stored checks of a shard.
_MAX_BYTES = 1 << 28
#: Codes of findings that show that other bytes were read than those of the shard.
_OTHER_BYTES = (FindingCode.SHARD_CHECKSUM, FindingCode.SHARD_MISSING)
_DAMAGED = (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class StoredCheck:
    """The contents of a file with the result of a check.

    Attributes:
      terms: Terms on which the shard was checked.
      files: Checksums of the shard, its ledger and its index.
      labels: Number of classes that the dataset had.
      depth: Depth of the check.
      records: Number of sound records.
      bytes: Size of the shard.
      sound: Whether the shard and its records have no problem.
      summary: The findings.
      rows: Number, offset, key, classes and source of each record that is compared, as lists, which are
        read faster than objects.
      digests: Digest of each record in `rows`. Empty for one with problems.
      pictures: Descriptions of the images, if quality metrics were computed.
      features: Statistics of the features, if quality metrics were computed.
    """

    terms: Mapping[str, Any]
    files: Mapping[str, Any]
    labels: int
    depth: int
    records: int
    bytes: int
    sound: bool
    summary: FindingSummary
    rows: Any
    digests: list[Digest]
    pictures: list[Picture]
    features: RecordStatistics | None


def sum_up(check: ShardCheck, depth: CheckDepth) -> ShardCheck:
    """Adds to a check what it is compared by with other shards; returns it."""
    check.sound = not check.findings
    check.summary.add(check.findings)
    if depth >= CheckDepth.QUALITY:
        check.summary.add(odd_pictures(check.pictures))
        check.statistics = Statistics.of_shard(check.split, check.pictures, check.features)
    return check


def check_and_store(
    task: ShardTask, schema: RecordSchema, depth: CheckDepth, hold: HeldLease | None = None
) -> ShardCheck:
    """Checks a shard and stores the result, or returns the stored result of an earlier check.

    Args:
      task: The shard.
      schema: Record schema of the dataset.
      depth: Depth of the check.
      hold: Lease that the run must hold. None if it needs no lease.

    Raises:
      EngineError: If the lease was lost, or the storage failed.
    """
    check = stored_check(task, schema, depth)
    if check is not None:
        return check
    # A check that decodes no image cannot save anything with the digests of sound records.
    sound = sound_records(task, schema, depth) if depth >= CheckDepth.FULL else None
    checked = sum_up(check_shard(task, schema, depth, sound), depth)
    checked.stored = store_check(task, schema, depth, checked, hold)
    return checked


def store_check(
    task: ShardTask,
    schema: RecordSchema,
    depth: CheckDepth,
    checked: ShardCheck,
    hold: HeldLease | None = None,
) -> str:
    """Stores the result of a check beside its shard, unless other bytes than the shard's were read.

    Args:
      task: The shard.
      schema: Record schema of the dataset.
      depth: Depth of the check.
      checked: Result of the check.
      hold: Lease that the run must hold. None if it needs no lease.

    Returns:
      sha256 of the file. Empty if nothing was stored.

    Raises:
      EngineError: If the lease was lost, or the storage failed.
    """
    if task.expected is None or any(code in checked.summary.counts for code in _OTHER_BYTES):
        return ""
    labels, statistics = len(schema.labels or ()), checked.statistics
    stored = StoredCheck(
        _terms(schema, task.split, labels),
        _files(task),
        labels,
        int(depth),
        checked.records,
        checked.bytes,
        checked.sound,
        checked.summary,
        [(row.number, row.offset, row.key, row.labels, row.source) for row in checked.rows],
        checked.digests,
        checked.pictures,
        None if statistics is None else statistics.splits[task.split].records,
    )
    data = gzip.compress(json.dumps(to_json(stored)).encode(), _LEVEL, mtime=0)
    with storage.translated_errors("write to", _path(task)):
        write_held(_directory(task), check_file(task.file), data, hold)
    return hashlib.sha256(data).hexdigest()


def stored_check(task: ShardTask, schema: RecordSchema, depth: CheckDepth) -> ShardCheck | None:
    """Returns the stored result of checking a shard, or None if there is none that applies."""
    try:
        data = storage.read_bytes(_path(task))
        stored = _parse(data, schema, task.split)
        if stored is None or stored.files != _files(task) or stored.depth < depth:
            return None
        # Findings may differ with more classes or at another depth, so they are not reused then.
        if not stored.sound and (stored.depth != depth or stored.labels != len(schema.labels or ())):
            return None
        looked = depth >= CheckDepth.QUALITY
        pictures = stored.pictures if looked else []
        return ShardCheck(
            task.file,
            task.split,
            stored.records,
            stored.bytes,
            rows=[
                ComparedRecord(task.file, number, offset, key, task.split, tuple(labels), source=source)
                for number, offset, key, labels, source in stored.rows
            ],
            pictures=pictures,
            stored=hashlib.sha256(data).hexdigest(),
            sound=stored.sound,
            summary=stored.summary if looked or not stored.sound else FindingSummary(),
            statistics=Statistics.of_shard(task.split, pictures, stored.features) if looked else None,
        )
    except _DAMAGED:
        return None


def sound_records(task: ShardTask, schema: RecordSchema, depth: CheckDepth) -> SoundRecords:
    """Returns the sound records of an earlier version, from the checks stored beside its shards.

    Args:
      task: The shard that may contain the same records.
      schema: Record schema of the dataset.
      depth: Depth of the check.
    """
    records: dict[Digest, Picture | None] = {}
    for path in task.previous_checks:
        try:
            stored = _parse(storage.read_bytes(path), schema, task.split)
            if stored is None or stored.depth < depth:
                continue
            looked = stored.pictures if depth >= CheckDepth.QUALITY else ()
            pictures = {picture.number: picture for picture in looked}
            for digest, (number, *_) in zip(stored.digests, stored.rows, strict=True):
                records[digest] = pictures.get(number)
        except _DAMAGED:
            continue
    records.pop(b"", None)
    return records


def _directory(task: ShardTask) -> str:
    return task.path.removesuffix(f"/{task.file}")


def _path(task: ShardTask) -> str:
    return storage.join(_directory(task), check_file(task.file))


def _parse(data: bytes, schema: RecordSchema, split: str) -> StoredCheck | None:
    """Returns the stored contents, if they were computed on the same terms.

    Raises:
      OSError, ValueError or the like: If the contents are damaged.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        unpacked = file.read(_MAX_BYTES + 1)
    if len(unpacked) > _MAX_BYTES:
        raise ValueError(f"it unpacks to more than {_MAX_BYTES} bytes")
    document = json.loads(unpacked)
    there, now = document["labels"], len(schema.labels or ())
    if there > now or bool(there) != bool(now) or document["terms"] != _terms(schema, split, there):
        return None
    return from_json(StoredCheck, document)


def _terms(schema: RecordSchema, split: str, labels: int) -> dict[str, Any]:
    """Returns the terms on which a shard is checked.

    Args:
      schema: Record schema of the dataset.
      split: Split of the shard.
      labels: Number of classes that count.
    """
    names = schema.labels
    promised = {
        "features": to_json(schema.features),
        "labels": None if names is None else names[:labels],
        "texts": (schema.texts or names or ())[:labels],
        "first_label": schema.first_label,
        "unlabelled": schema.unlabelled,
        "pixels": schema.pixels,
    }
    return {
        "format_version": FORMAT_VERSION,
        "software": software(),
        "split": split,
        "schema": hashlib.sha256(canonical_json(promised).encode("utf-8", "surrogatepass")).hexdigest(),
    }


def software() -> dict[str, str]:
    """Returns the versions of the software that decodes and judges images."""
    here = {"shardwright": __version__, "numpy": np.__version__, "machine": platform.machine()}
    return {**codec_versions(), **here}


def _files(task: ShardTask) -> dict[str, Any]:
    """Returns the checksums that identify the files of a shard."""
    assert task.expected is not None
    return {
        "file": task.file,
        "sha256": task.expected.sha256,
        "ledger": stored_sha256(task.ledger_path) if task.ledger_path else None,
        "index": stored_sha256(task.index_path) if task.index_path else None,
    }
