"""What the check of a shard showed, stored beside it, so that nobody reads a shard again that stays as it is.

That is a function of the shard, its ledger and its index, of what records promise, of how deep was looked,
and of the software. All of these are stored with it, and it counts only where they agree; else the shard is
read. New classes come after those that there are: in a shard in which nothing was wrong they change nothing.

Nor is the image of a record decoded again that stands with the same bytes, and sound, in the version before.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import platform
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from shardwright.schemas import __version__
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.dataset import canonical_json
from shardwright.schemas.findings import Finding, FindingSummary
from shardwright.schemas.layouts import features_json
from shardwright.schemas.pictures import ImageQuality, Picture
from shardwright.schemas.statistics.dataset_statistics import Statistics
from shardwright.schemas.version import check_file
from shardwright.transforms import storage
from shardwright.transforms.images.encode import codec_versions
from shardwright.transforms.images.perceptual_hash import HASH_BYTES, PATCH_BYTES
from shardwright.transforms.lease import HeldLease, write_held
from shardwright.transforms.records.record_schema import RecordSchema
from shardwright.transforms.validation.ledger import ShardBooks
from shardwright.transforms.validation.quality import odd_pictures
from shardwright.transforms.validation.shard import (
    ComparedRecord,
    Depth,
    Digest,
    ShardCheck,
    ShardTask,
    SoundRecords,
)

#: To be raised whenever a check finds something else than it did, or a picture's looks are others.
FORMAT_VERSION = 3
_LEVEL = 1
_DIGEST_BYTES = 16
#: Bytes that the stored checks of a shard may unpack to.
_MAX_BYTES = 1 << 28
#: Findings that say that the bytes which were read are not those of the shard.
_OTHER_BYTES = (FindingCode.SHARD_CHECKSUM, FindingCode.SHARD_MISSING)
_DAMAGED = (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, AttributeError, RecursionError)


@dataclass
class ShardSummary:
    """What is known of a shard that was checked, as it is compared with others and added up.

    Attributes:
      file: the shard's name.
      split: its split.
      records: sound records.
      bytes: size of the file.
      sound: whether nothing is wrong with the shard or its records; odd pictures are not wrong.
      findings: what is wrong or odd.
      rows: the records' identities.
      pictures: the records' pictures, where looks were taken.
      statistics: of these, where looks were taken.
      digests: of each record in `rows`, of its bytes; empty for one with problems. None at all unless they
        were asked for.
      books: what the shard's ledger states and comes to; None if it is unusable, or checks are stored.
      stored: sha256 of the file in which this is stored; empty if it is not.
    """

    file: str
    split: str
    records: int
    bytes: int
    sound: bool
    findings: FindingSummary
    rows: list[ComparedRecord] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    statistics: Statistics | None = None
    digests: list[Digest] = field(default_factory=list)
    books: ShardBooks | None = None
    stored: str = ""


def sum_up(check: ShardCheck, depth: Depth) -> ShardSummary:
    """Returns what a check showed."""
    findings = FindingSummary().add(check.findings)
    statistics = None
    if depth >= Depth.LOOKS:
        findings.add(odd_pictures(check.pictures))
        statistics = Statistics.of_shard(check.split, check.pictures, check.features)
    return ShardSummary(
        check.file, check.split, check.records, check.bytes, not check.findings, findings,
        check.rows, check.pictures, statistics, check.digests,
    )  # fmt: skip


def store_check(
    task: ShardTask,
    contract: RecordSchema,
    depth: Depth,
    checked: ShardSummary,
    hold: HeldLease | None = None,
) -> str:
    """Stores what a check showed beside its shard, unless other bytes were read than the shard's.

    Args:
      task: the shard.
      contract: what its records promise.
      depth: how deep was looked.
      checked: what was found.
      hold: the lease that has to be held for that; None where anybody may write.

    Returns:
      The sha256 of the file; empty if nothing was stored.

    Raises:
      EngineError: if the lease was lost, or the storage failed.
    """
    if task.expected is None or any(code in checked.findings.counts for code in _OTHER_BYTES):
        return ""
    document = {
        **_terms(contract, task.split, len(contract.labels or ())),
        **_files(task),
        "labels": len(contract.labels or ()),
        "depth": int(depth),
        "records": checked.records,
        "bytes": checked.bytes,
        "sound": checked.sound,
        "counts": checked.findings.by_code(),
        "findings": [finding.as_json() for finding in checked.findings.by_place()],
        "rows": [
            [*column]
            for column in zip(*((r.key, r.source, r.number, r.offset, r.label) for r in checked.rows))
        ],
        "digests": _packed(digest or bytes(_DIGEST_BYTES) for digest in checked.digests),
        **_pictures_json(checked.pictures),
        "statistics": None if checked.statistics is None else checked.statistics.state(),
    }
    data = gzip.compress(json.dumps(document).encode(), _LEVEL, mtime=0)
    with storage.translated_errors("write to", _path(task)):
        write_held(_directory(task), check_file(task.file), data, hold)
    return hashlib.sha256(data).hexdigest()


def stored_check(task: ShardTask, contract: RecordSchema, depth: Depth) -> ShardSummary | None:
    """Returns what the check of a shard would show, if that is stored beside it.

    Args:
      task: the shard.
      contract: what its records promise.
      depth: how deep to look.
    """
    try:
        data = storage.read_bytes(_path(task))
        said = _parsed(data, contract, task.split)
        if said is None or any(said[name] != value for name, value in _files(task).items()):
            return None
        sound = bool(said["sound"])
        # What is wrong may be wrong otherwise where there are more classes, and where less is looked at.
        if said["depth"] < depth or (
            not sound and (said["depth"] != depth or said["labels"] != len(contract.labels or ()))
        ):
            return None
        rows = list(_rows(said, task))
        looked = depth >= Depth.LOOKS
        return ShardSummary(
            task.file, task.split, int(said["records"]), int(said["bytes"]), sound,
            _summary(said) if looked or not sound else FindingSummary(),
            rows,
            list(_pictures(said, rows)) if looked else [],
            Statistics.from_state(said["statistics"]) if looked else None,
            stored=hashlib.sha256(data).hexdigest(),
        )  # fmt: skip
    except _DAMAGED:
        return None


def sound_records(task: ShardTask, contract: RecordSchema, depth: Depth) -> SoundRecords:
    """Returns the records of an earlier version that were found sound, by what is stored beside its shards.

    Args:
      task: the shard that may hold them too.
      contract: what its records promise.
      depth: how deep to look.
    """
    found: dict[Digest, Picture | None] = {}
    for path in task.earlier:
        try:
            said = _parsed(storage.read_bytes(path), contract, task.split)
            if said is None or said["depth"] < depth:
                continue
            rows = list(_rows(said, task))
            looked = depth >= Depth.LOOKS
            pictures = {picture.number: picture for picture in _pictures(said, rows)} if looked else {}
            digests = _unpacked(said["digests"], _DIGEST_BYTES)
            for digest, row in zip(digests, rows, strict=True):
                found[digest] = pictures.get(row.number)
        except _DAMAGED:
            continue
    found.pop(bytes(_DIGEST_BYTES), None)
    return found


def _directory(task: ShardTask) -> str:
    return task.path.removesuffix(f"/{task.file}")


def _path(task: ShardTask) -> str:
    return storage.join(_directory(task), check_file(task.file))


def _parsed(data: bytes, contract: RecordSchema, split: str) -> dict[str, Any] | None:
    """Returns what is stored of a shard, if it was found on the same terms.

    Raises:
      OSError, ValueError or the like: if it is damaged.
    """
    said: dict[str, Any] = json.loads(_bounded(data))
    there, now = said["labels"], len(contract.labels or ())
    if there > now or bool(there) != bool(now):
        return None
    terms = _terms(contract, split, there)
    return said if all(said[name] == value for name, value in terms.items()) else None


def _bounded(data: bytes) -> bytes:
    """Unpacks a file that may not unpack to too much."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        unpacked = file.read(_MAX_BYTES + 1)
    if len(unpacked) > _MAX_BYTES:
        raise ValueError(f"it unpacks to more than {_MAX_BYTES} bytes")
    return unpacked


def _terms(contract: RecordSchema, split: str, labels: int) -> dict[str, Any]:
    """Returns on what terms a shard is checked.

    Args:
      contract: what its records promise.
      split: its split.
      labels: how many of the classes count.
    """
    return {
        "format_version": FORMAT_VERSION,
        "software": _software(),
        "split": split,
        "contract": _contract_digest(contract._replace(split=""), labels),
    }


@lru_cache(16)
def _software() -> dict[str, str]:
    """Returns the versions of what decides how a picture is decoded and what is seen in it."""
    here = {"shardwright": __version__, "numpy": np.__version__, "machine": platform.machine()}
    return {**codec_versions(), **here}


@lru_cache(16)
def _contract_digest(contract: RecordSchema, labels: int) -> str:
    names = contract.labels
    promised = {
        "features": features_json(contract.features),
        "labels": None if names is None else names[:labels],
        "texts": (contract.texts or names or ())[:labels],
        "first_label": contract.first_label,
        "unlabelled": contract.unlabelled,
        "pixels": contract.pixels,
    }
    return hashlib.sha256(canonical_json(promised).encode("utf-8", "surrogatepass")).hexdigest()


def _files(task: ShardTask) -> dict[str, Any]:
    """Returns what tells the files of a shard from others: their checksums."""
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


def _rows(said: Mapping[str, Any], task: ShardTask) -> Iterator[ComparedRecord]:
    for key, source, number, offset, label in zip(*said["rows"], strict=True):
        yield ComparedRecord(key, source, task.split, task.file, number, offset, label)


def _summary(said: Mapping[str, Any]) -> FindingSummary:
    summary = FindingSummary({FindingCode(code): count for code, count in said["counts"].items()})
    for value in said["findings"]:
        finding = Finding.from_json(value)
        summary.first.setdefault(finding.code, []).append(finding)
    return summary


def _pictures_json(pictures: Sequence[Picture]) -> dict[str, Any]:
    """Returns pictures with their looks, column by column, without what the rows of their records say."""
    looked = [(picture, picture.looks) for picture in pictures if picture.looks is not None]
    return {
        "pictures": [
            [*column]
            for column in zip(
                *(
                    (
                        picture.number, picture.labels, picture.bytes, picture.format, picture.width,
                        picture.height, picture.channels, picture.boxes, picture.source is not None,
                        looks.sums, looks.squares, looks.pixels, looks.issues, looks.scores,
                    )
                    for picture, looks in looked
                )
            )
        ],
        "pixels": _packed(looks.digest for _, looks in looked),
        "hashes": _packed(looks.hash for _, looks in looked),
        "patches": _packed(looks.patch or bytes(PATCH_BYTES) for _, looks in looked),
    }  # fmt: skip


def _pictures(said: Mapping[str, Any], rows: Sequence[ComparedRecord]) -> Iterator[Picture]:
    """Yields the pictures that `_pictures_json` packed.

    Args:
      said: what it returned.
      rows: of the records of the shard.
    """
    by_number = {row.number: row for row in rows}
    prints = (
        _unpacked(said["pixels"], _DIGEST_BYTES),
        _unpacked(said["hashes"], HASH_BYTES),
        _unpacked(said["patches"], PATCH_BYTES),
    )
    for item in zip(*said["pictures"], *prints, strict=True) if said["pictures"] else ():
        number, labels, size, format_, width, height, channels, boxes, says_source, *looks = item
        sums, squares, pixels, issues, scores, digest, hash_, patch = looks
        row = by_number[number]
        yield Picture(
            row.file, number, row.offset, row.key, row.split, tuple(labels), size, format_, width, height,
            channels, tuple(map(tuple, boxes)), row.source if says_source else None,
            ImageQuality(
                tuple(sums), tuple(squares), pixels, digest, hash_, patch if pixels else b"",
                tuple(issues), tuple(scores),
            ),
        )  # fmt: skip


def _packed(values: Iterator[bytes]) -> str:
    return base64.b64encode(b"".join(values)).decode()


def _unpacked(text: str, size: int) -> list[bytes]:
    data = base64.b64decode(text)
    return [data[place : place + size] for place in range(0, len(data), size)]
