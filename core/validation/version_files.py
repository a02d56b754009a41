"""Checks the files that only a version of a dataset has."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from shardwright.core import storage
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.dataset import DIGEST, Dataset, has_own_digest
from shardwright.schemas.findings import Finding
from shardwright.schemas.version import (
    CHECK_LIST,
    CHECKS_DIR,
    PINNED_JSON,
    VERSION_JSON,
    VersionRecord,
    is_pin,
)

_READS_AT_ONCE = 16
_HEX = 12


def check_version_files(directory: str, dataset: Dataset, files: Sequence[str]) -> Iterator[Finding]:
    """Yields the files of a version that were changed.

    `version.json` and `pinned.json` change after the version was made, so each has a digest of its own.
    `version.json` states those of `diff.json` and of the list of stored checks, and the list states the rest.
    Versions of older software have no such digests, so their files have nothing to be compared with.

    Args:
      directory: Directory of the version.
      dataset: Its `dataset.json`.
      files: Files in the directory.

    Raises:
      EngineError: If the storage failed.
    """
    present = set(files)
    if PINNED_JSON in present and not is_pin(_read(directory, PINNED_JSON)):
        yield _wrong(PINNED_JSON, f"it is not what its field {DIGEST!r} was made of; pin the version again")
    if VERSION_JSON not in present:
        return
    try:
        record = VersionRecord.loads(_read(directory, VERSION_JSON))
    except ValueError as error:
        yield _wrong(VERSION_JSON, f"it cannot be used: {error}")
        return
    if record.fingerprint not in ("", dataset.fingerprint):
        yield _wrong(VERSION_JSON, "field 'fingerprint' differs from dataset.json")
    yield from _compare(directory, record.files, present, VERSION_JSON)
    if CHECK_LIST in record.files and CHECK_LIST in present:
        yield from _check_stored_checks(directory, present)


def _check_stored_checks(directory: str, present: set[str]) -> Iterator[Finding]:
    try:
        document = json.loads(_read(directory, CHECK_LIST))
    except (ValueError, RecursionError):
        return  # its sha256 is wrong too, which is already reported
    if not isinstance(document, Mapping) or not has_own_digest(document):
        return  # already reported
    listed = document.get("files")
    if not isinstance(listed, Mapping):
        return
    yield from _compare(directory, listed, present, CHECK_LIST)
    for file in sorted(present - listed.keys() - {CHECK_LIST}):
        if file.startswith(f"{CHECKS_DIR}/"):
            yield _wrong(file, f"{CHECK_LIST} does not list it")


def _compare(directory: str, recorded: Mapping[str, str], present: set[str], where: str) -> Iterator[Finding]:
    """Compares files with the sha256 values that another file states."""
    there = [file for file in recorded if file in present]
    with ThreadPoolExecutor(_READS_AT_ONCE) as executor:
        found = executor.map(lambda file: hashlib.sha256(_read(directory, file)).hexdigest(), there)
        for file, sha256 in zip(there, found):
            if sha256 != recorded[file]:
                yield _wrong(
                    file, f"its sha256 begins {sha256[:_HEX]}, {where} says {str(recorded[file])[:_HEX]}"
                )
    for file in recorded:
        if file not in present:
            yield _wrong(file, "the file is missing; rebuild wrote it")


def _read(directory: str, file: str) -> bytes:
    path = storage.join(directory, file)
    with storage.translated_errors("read", path):
        return storage.read_bytes(path)


def _wrong(file: str, message: str) -> Finding:
    return Finding(FindingCode.REPORT_MISMATCH, message, file)
