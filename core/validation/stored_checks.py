"""Stores the result of checking a shard beside it, so that an unchanged shard is not read again.

The result depends on the shard, its ledger and its index, on the record schema, the depth, and the software.
All of these are stored with the result, and it is used only if they agree. Otherwise the shard is read. New
classes are appended to the existing ones, so they do not affect a shard without problems.

Nor is an image decoded again if its record was sound, with the same bytes, in the previous version.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import platform
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from shardwright.core import storage
from shardwright.core.images.encode import codec_versions
from shardwright.core.lease import HeldLease, write_held
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.validation.duplicates import ComparedRecord
from shardwright.core.validation.outliers import odd_pictures
from shardwright.core.validation.shard import (
    Digest,
    ShardCheck,
    ShardTask,
    SoundRecords,
)
from shardwright.schemas import __version__
from shardwright.schemas.codes import CheckDepth, FindingCode
from shardwright.schemas.dataset import canonical_json
from shardwright.schemas.findings import Finding, FindingSummary
from shardwright.schemas.json_values import from_json, to_json
from shardwright.schemas.pictures import ChannelSamples, ImageQuality, Picture, Samples
from shardwright.schemas.statistics import RecordStatistics, Statistics
from shardwright.schemas.version import check_file

#: Raise this number when a check gives other findings than before, or other quality metrics.
FORMAT_VERSION = 6
_LEVEL = 1
_DIGEST_BYTES = 16
#: Largest uncompressed size in bytes of the stored checks of a shard.
_MAX_BYTES = 1 << 28
#: Codes of findings that show that other bytes were read than those of the shard.
_OTHER_BYTES = (FindingCode.SHARD_CHECKSUM, FindingCode.SHARD_MISSING)
_DAMAGED = (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, AttributeError, RecursionError)


def sum_up(check: ShardCheck, depth: CheckDepth) -> ShardCheck:
    """Adds to a check what it is compared by with other shards; returns it."""
    check.sound = not check.findings
    check.summary.add(check.findings)
    if depth >= CheckDepth.QUALITY:
        check.summary.add(odd_pictures(check.pictures))
        check.statistics = Statistics.of_shard(check.split, check.pictures, check.features)
    return check


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
    document = {
        **_terms(schema, task.split, len(schema.labels or ())),
        **_files(task),
        "labels": len(schema.labels or ()),
        "depth": int(depth),
        "records": checked.records,
        "bytes": checked.bytes,
        "sound": checked.sound,
        "counts": checked.summary.by_code(),
        "findings": [finding.as_json() for finding in checked.summary.by_place()],
        "rows": [[row.key, row.source, row.number, row.offset, row.label] for row in checked.rows],
        "digests": base64.b64encode(
            b"".join(digest or bytes(_DIGEST_BYTES) for digest in checked.digests)
        ).decode(),
        "pictures": [_picture_json(picture) for picture in checked.pictures],
        "features": None
        if checked.statistics is None
        else checked.statistics.splits[task.split].records.as_json(),
    }
    data = gzip.compress(json.dumps(document).encode(), _LEVEL, mtime=0)
    with storage.translated_errors("write to", _path(task)):
        write_held(_directory(task), check_file(task.file), data, hold)
    return hashlib.sha256(data).hexdigest()


def stored_check(task: ShardTask, schema: RecordSchema, depth: CheckDepth) -> ShardCheck | None:
    """Returns the stored result of checking a shard, or None if there is none that applies."""
    try:
        data = storage.read_bytes(_path(task))
        contents = _parse(data, schema, task.split)
        if contents is None or any(contents[name] != value for name, value in _files(task).items()):
            return None
        sound = bool(contents["sound"])
        # Findings may differ with more classes or at another depth, so they are not reused then.
        if contents["depth"] < depth or (
            not sound and (contents["depth"] != depth or contents["labels"] != len(schema.labels or ()))
        ):
            return None
        rows = _rows(contents, task)
        looked = depth >= CheckDepth.QUALITY
        pictures = [_picture(*item) for item in contents["pictures"]] if looked else []
        features = RecordStatistics.from_json(contents["features"]) if looked else None
        return ShardCheck(
            task.file,
            task.split,
            int(contents["records"]),
            int(contents["bytes"]),
            rows=rows,
            pictures=pictures,
            stored=hashlib.sha256(data).hexdigest(),
            sound=sound,
            summary=_summary(contents) if looked or not sound else FindingSummary(),
            statistics=Statistics.of_shard(task.split, pictures, features) if looked else None,
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
            contents = _parse(storage.read_bytes(path), schema, task.split)
            if contents is None or contents["depth"] < depth:
                continue
            rows = _rows(contents, task)
            looked = depth >= CheckDepth.QUALITY
            stored = (_picture(*item) for item in contents["pictures"])
            pictures = {picture.number: picture for picture in stored} if looked else {}
            packed = base64.b64decode(contents["digests"])
            digests = (packed[at : at + _DIGEST_BYTES] for at in range(0, len(packed), _DIGEST_BYTES))
            for digest, row in zip(digests, rows, strict=True):
                records[digest] = pictures.get(row.number)
        except _DAMAGED:
            continue
    records.pop(bytes(_DIGEST_BYTES), None)
    return records


def _directory(task: ShardTask) -> str:
    return task.path.removesuffix(f"/{task.file}")


def _path(task: ShardTask) -> str:
    return storage.join(_directory(task), check_file(task.file))


def _parse(data: bytes, schema: RecordSchema, split: str) -> dict[str, Any] | None:
    """Returns the stored contents, if they were computed on the same terms.

    Raises:
      OSError, ValueError or the like: If the contents are damaged.
    """
    contents: dict[str, Any] = json.loads(_unpack(data))
    there, now = contents["labels"], len(schema.labels or ())
    if there > now or bool(there) != bool(now):
        return None
    terms = _terms(schema, split, there)
    return contents if all(contents[name] == value for name, value in terms.items()) else None


def _unpack(data: bytes) -> bytes:
    """Unpacks a file within a size limit."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        unpacked = file.read(_MAX_BYTES + 1)
    if len(unpacked) > _MAX_BYTES:
        raise ValueError(f"it unpacks to more than {_MAX_BYTES} bytes")
    return unpacked


def _terms(schema: RecordSchema, split: str, labels: int) -> dict[str, Any]:
    """Returns the terms on which a shard is checked.

    Args:
      schema: Record schema of the dataset.
      split: Split of the shard.
      labels: Number of classes that count.
    """
    return {
        "format_version": FORMAT_VERSION,
        "software": _software(),
        "split": split,
        "schema": _contract_digest(schema._replace(split=""), labels),
    }


@lru_cache(16)
def _software() -> dict[str, str]:
    """Returns the versions of the software that decodes and judges images."""
    here = {"shardwright": __version__, "numpy": np.__version__, "machine": platform.machine()}
    return {**codec_versions(), **here}


@lru_cache(16)
def _contract_digest(schema: RecordSchema, labels: int) -> str:
    names = schema.labels
    promised = {
        "features": to_json(schema.features),
        "labels": None if names is None else names[:labels],
        "texts": (schema.texts or names or ())[:labels],
        "first_label": schema.first_label,
        "unlabelled": schema.unlabelled,
        "pixels": schema.pixels,
    }
    return hashlib.sha256(canonical_json(promised).encode("utf-8", "surrogatepass")).hexdigest()


def _files(task: ShardTask) -> dict[str, Any]:
    """Returns the checksums that identify the files of a shard."""
    assert task.expected is not None
    return {
        "file": task.file,
        "sha256": task.expected.sha256,
        "ledger": _sha256(task.ledger_path),
        "index": _sha256(task.index_path),
    }


def _sha256(path: str) -> str | None:
    try:
        return hashlib.sha256(storage.read_bytes(path)).hexdigest() if path else None
    except FileNotFoundError:
        return None


def _rows(values: Mapping[str, Any], task: ShardTask) -> list[ComparedRecord]:
    return [
        ComparedRecord(key, source, task.split, task.file, number, offset, label)
        for key, source, number, offset, label in values["rows"]
    ]


def _summary(values: Mapping[str, Any]) -> FindingSummary:
    summary = FindingSummary({FindingCode(code): count for code, count in values["counts"].items()})
    for value in values["findings"]:
        finding = from_json(Finding, value)
        summary.first.setdefault(finding.code, []).append(finding)
    return summary


def _picture_json(picture: Picture) -> list[Any]:
    """Returns an image with its quality metrics as JSON for `_picture`."""
    *facts, quality = picture
    if not isinstance(quality, ImageQuality):
        return [facts]
    sums, squares, pixels, digest, hash_, patch, *rest = quality
    prints = [base64.b64encode(value).decode() for value in (digest, hash_, patch)]
    return [facts, [sums, squares, pixels, *prints, *rest]]


def _picture(facts: list[Any], quality: list[Any] | None = None) -> Picture:
    """Reads the result of `_picture_json`."""
    picture = Picture(*facts)
    picture = picture._replace(
        labels=tuple(picture.labels), boxes=tuple((width, height) for width, height in picture.boxes)
    )
    if quality is None:
        return picture
    sums, squares, pixels, *prints, issues, scores, samples = quality
    digest, hash_, patch = map(base64.b64decode, prints)
    if samples is not None:
        samples = Samples(samples[0], tuple(ChannelSamples(*channel) for channel in samples[1]))
    return picture._replace(
        quality=ImageQuality(
            tuple(sums), tuple(squares), pixels, digest, hash_, patch,
            tuple(issues), tuple(scores), samples,
        )
    )  # fmt: skip
