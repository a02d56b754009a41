"""Checks a dataset directory as a whole: its files, those of a version, empty splits, and ledger totals."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardwright.core import storage
from shardwright.core.report.pages import page_digest_problem
from shardwright.schemas import version
from shardwright.schemas.codes import FindingCode, Outcome
from shardwright.schemas.dataset import (
    DATASET_JSON,
    DIGEST,
    FINDINGS_JSON,
    INDEX_DIR,
    LOST_JSONL,
    OUTCOME_JSON,
    REPORT_HTML,
    RUN_JSON,
    STATISTICS_JSON,
    STATS_PB,
    WORK_DIR,
    Dataset,
    has_own_digest,
    strict_json,
)  # fmt: skip
from shardwright.schemas.findings import Finding
from shardwright.schemas.json_values import json_object
from shardwright.schemas.units import counted

#: Number of digits of a digest that a message shows.
_HEX = 12
_SHARD_NAME = re.compile(r"[A-Za-z0-9_]+-\d{5,}-of-\d{5,}\.tfrecord(?:\.gz|\.zlib)?\Z")


def unexpected_shards(dataset: Dataset, files: Sequence[str]) -> list[str]:
    """Returns the files that look like shards of the dataset but are not listed as such."""
    listed = {shard.file for shard in dataset.shards}
    return [file for file in files if _SHARD_NAME.match(file) and file not in listed]


def stray_files(dataset: Dataset, files: Sequence[str]) -> list[str]:
    """Returns the files, besides the unexpected shards, that a reader may take for shards of the dataset.

    They match patterns such as `train*` in some folder, without regard to case or a leading dot, as storages
    and readers compare names. A folder with its own `dataset.json` is another dataset.
    """
    listed = {shard.file for shard in dataset.shards}
    others = tuple(file.removesuffix(DATASET_JSON) for file in files if file.endswith(f"/{DATASET_JSON}"))
    apart = (f"{WORK_DIR}/", f"{version.CHECKS_DIR}/", *others)
    splits = tuple(map(str.casefold, dataset.splits))
    return [
        file
        for file in files
        if _looks_like_shard(file.rpartition("/")[2], splits)
        and not file.startswith(apart)
        and not (_SHARD_NAME.match(file) or file in listed)
    ]


def _looks_like_shard(name: str, splits: tuple[str, ...]) -> bool:
    """Returns whether a name looks like a shard of one of these splits, which are in lower case."""
    if name.startswith("._"):  # macOS keeps attributes of files in these
        return False
    plain = name.lstrip(".").casefold()
    return ".tfrecord" in plain and plain.startswith(splits)


def balances(ledger: Mapping[str, Any], dataset: Dataset) -> bool:
    """Returns whether the totals of a ledger agree with each other and with the number of records."""
    return bool(ledger["listed"] == _accounted(ledger) and ledger["written"] == dataset.all_records)


def _accounted(ledger: Mapping[str, Any]) -> int:
    return sum(ledger[outcome] for outcome in Outcome)


def unneeded_indexes(dataset: Dataset, files: Sequence[str], empty: bool = False) -> list[str]:
    """Returns the indexes that belong to no shard of the dataset that has one.

    Args:
      dataset: Contents of `dataset.json`.
      files: Paths of all files in the directory, relative to it.
      empty: Whether shards without records may have one, too.
    """
    own = set(dataset.index_files(empty).values())
    return [file for file in files if file.startswith(f"{INDEX_DIR}/") and file not in own]


def check_directory(dataset: Dataset, files: Sequence[str]) -> Iterator[Finding]:
    """Yields the findings about a dataset that need no shard to be opened.

    Args:
      dataset: Contents of `dataset.json`.
      files: Paths of all files in the directory, relative to it.
    """
    for file in unexpected_shards(dataset, files):
        message = "the file is named like a shard but dataset.json does not list it"
        yield Finding(FindingCode.SHARD_UNEXPECTED, message, file)
    present = set(files)  # there may be tens of thousands
    for file, index in dataset.index_files().items():
        if index not in present:
            yield Finding(FindingCode.INDEX_MISMATCH, f"its index {index} is missing", file)
    for index in unneeded_indexes(dataset, files, empty=True):
        message = "the index does not belong to an uncompressed shard of dataset.json"
        yield Finding(FindingCode.INDEX_MISMATCH, message, index)
    for split in dataset.splits:
        if not dataset.records(split):
            yield Finding(FindingCode.EMPTY_SPLIT, f"split {split!r} has no records")
    ledger = dataset.ledger
    if not balances(ledger, dataset):
        yield Finding(
            FindingCode.COUNT_MISMATCH,
            f"dataset.json counts {ledger['listed']} as listed, accounts for {_accounted(ledger)} and "
            f"has {counted(dataset.all_records, 'record')} for {ledger['written']} as written",
        )


def check_reports(directory: str, dataset: Dataset, files: Sequence[str]) -> Iterator[Finding]:
    """Yields files that describe the dataset and were changed.

    Raises:
      EngineError: If the storage failed.
    """
    present = set(files)
    code, lost = FindingCode.REPORT_MISMATCH, dataset.files.get(LOST_JSONL)
    if lost is not None:
        yield from compare_files(directory, {LOST_JSONL: lost}, code, DATASET_JSON, "salvage")
    # Salvage checks nothing, so it writes no findings.
    for file in (RUN_JSON, FINDINGS_JSON) if lost is None else (RUN_JSON,):
        if file not in present:
            yield _wrong(file, "the file is missing; the command that made the dataset wrote it")
    for file in (RUN_JSON, OUTCOME_JSON, FINDINGS_JSON):
        if file not in present:
            continue
        try:
            document = strict_json(_read(directory, file))
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, Mapping):
            yield _wrong(file, "the file is damaged")
        elif DIGEST not in document:
            yield _wrong(file, f"its field {DIGEST!r} is missing")
        elif not has_own_digest(document):
            yield _wrong(file, f"its fields are not those that its field {DIGEST!r} was made of")
        elif file == FINDINGS_JSON and document.get("fingerprint") == dataset.fingerprint:
            digests = document.get("files")
            if isinstance(digests, Mapping):
                beside = {STATISTICS_JSON, STATS_PB} & present & digests.keys()
                listed = {name: digests[name] for name in beside}
                yield from compare_files(directory, listed, code, FINDINGS_JSON, "validate")
    if REPORT_HTML in present and (problem := page_digest_problem(_read(directory, REPORT_HTML))):
        yield _wrong(REPORT_HTML, problem)


def check_version_files(directory: str, dataset: Dataset, files: Sequence[str]) -> Iterator[Finding]:
    """Yields the files of a version that were changed.

    `version.json` and `pinned.json` change after the version was made, so each has a digest of its own.
    `version.json` states those of `diff.json` and of the list of stored checks, and the list states the rest.

    Raises:
      EngineError: If the storage failed.
    """
    present = set(files)
    if version.PINNED_JSON in present and not version.is_pin(_read(directory, version.PINNED_JSON)):
        yield _wrong(
            version.PINNED_JSON, f"it is not what its field {DIGEST!r} was made of; pin the version again"
        )
    if version.VERSION_JSON not in present:
        return
    try:
        record = version.VersionRecord.loads(_read(directory, version.VERSION_JSON))
    except ValueError as error:
        yield _wrong(version.VERSION_JSON, f"it cannot be used: {error}")
        return
    if record.fingerprint not in ("", dataset.fingerprint):
        yield _wrong(version.VERSION_JSON, "field 'fingerprint' differs from dataset.json")
    yield from compare_files(
        directory, record.files, FindingCode.REPORT_MISMATCH, version.VERSION_JSON, "rebuild"
    )
    if version.CHECK_LIST not in record.files or version.CHECK_LIST not in present:
        return
    document = json_object(_read(directory, version.CHECK_LIST))
    listed = document.get("files") if has_own_digest(document) else None
    if not isinstance(listed, Mapping):
        return  # its sha256 is wrong too, which is already reported
    yield from compare_files(directory, listed, FindingCode.REPORT_MISMATCH, version.CHECK_LIST, "rebuild")
    for file in sorted(present - listed.keys() - {version.CHECK_LIST}):
        if file.startswith(f"{version.CHECKS_DIR}/"):
            yield _wrong(file, f"{version.CHECK_LIST} does not list it")


def stored_sha256(path: str) -> str | None:
    """Returns the sha256 of a file; None if it is missing.

    Raises:
      EngineError: If the storage failed.
    """
    data = storage.read_if_exists(path)
    return None if data is None else hashlib.sha256(data).hexdigest()


def other_digest(true: str, recorded: object, where: str = DATASET_JSON) -> str:
    """Returns a short text with a file's sha256 and the one that another file states."""
    return f"its sha256 begins {true[:_HEX]}, {where} says {str(recorded)[:_HEX]}"


def compare_files(
    directory: str, recorded: Mapping[str, str], code: FindingCode, where: str, writer: str
) -> Iterator[Finding]:
    """Yields the files that are missing or were changed.

    Args:
      directory: The dataset directory.
      recorded: Mapping of file to the sha256 that another file states.
      code: Code of the findings.
      where: Name of the other file.
      writer: Command that wrote the files.

    Raises:
      EngineError: If the storage failed.
    """
    paths = [storage.join(directory, file) for file in recorded]
    for (file, sha256), true in zip(recorded.items(), storage.at_once(stored_sha256, paths)):
        if true is None:
            yield Finding(code, f"the file is missing; {writer} wrote it", file)
        elif true != sha256:
            yield Finding(code, other_digest(true, sha256, where), file)


def check_sidecars(dataset: Dataset, directory: str) -> Iterator[Finding]:
    """Yields a finding for each sidecar that is missing or was changed.

    Raises:
      EngineError: If the storage failed.
    """
    return compare_files(directory, dataset.sidecars, FindingCode.SIDECAR_MISMATCH, DATASET_JSON, "convert")


def _read(directory: str, file: str) -> bytes:
    return storage.read_existing(storage.join(directory, file))


def _wrong(file: str, message: str) -> Finding:
    return Finding(FindingCode.REPORT_MISMATCH, message, file)
