"""Lists the versions of a dataset and reads their records."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from shardwright.core import storage
from shardwright.core.lease import HeldLease, write_held
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.image_ref import printable
from shardwright.schemas.version import (
    PINNED_JSON,
    VERSION_JSON,
    VERSIONS_DIR,
    VersionRecord,
    VersionState,
    created_at,
    is_version,
    version_path,
)

_REQUESTS_AT_ONCE = 16
_NAMED = 3


def version_names(output: str) -> list[str]:
    """Returns the names of all versions, oldest first, including incomplete ones.

    Raises:
      EngineError: If the storage failed.
    """
    directory = storage.join(output, VERSIONS_DIR)
    with storage.translated_errors("list", directory):
        if storage.is_remote(directory):
            folders = storage.list_folders(directory)
        else:
            try:
                folders = [entry.name for entry in os.scandir(directory) if entry.is_dir()]
            except (FileNotFoundError, NotADirectoryError):
                folders = []
    return sorted(filter(is_version, folders))


def list_versions(output: str) -> list[VersionRecord]:
    """Returns the records of all versions, oldest first; a version without a record is being built.

    A version with a damaged `version.json` has the state `DAMAGED`, which no other function returns.

    Raises:
      EngineError: If the storage failed.
    """

    def read(name: str) -> VersionRecord:
        try:
            return read_version_record(output, name)
        except UsageError as error:
            path = storage.join(version_path(output, name), PINNED_JSON)
            with storage.translated_errors("look for", path):
                pinned = storage.exists(path)
            return VersionRecord(
                name, VersionState.DAMAGED, created_at(name), pinned=pinned, problem=error.message
            )

    names = version_names(output)
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as executor:
        return list(executor.map(read, names))


def require_undamaged(record: VersionRecord) -> None:
    """Checks that the record of a version is not damaged.

    Raises:
      UsageError: If its `version.json` is damaged.
    """
    if record.state is VersionState.DAMAGED:
        raise UsageError(record.problem)


def read_version_record(output: str, version: str) -> VersionRecord:
    """Returns the record of a version.

    Raises:
      UsageError: If its `version.json` is damaged.
      EngineError: If the storage failed.
    """
    directory = version_path(output, version)
    path = storage.join(directory, VERSION_JSON)
    data = storage.read_if_exists(path)
    if data is None:
        return VersionRecord(version, VersionState.BUILDING, created_at(version))
    with storage.translated_errors("look for", path):
        pinned = storage.exists(storage.join(directory, PINNED_JSON))
    try:
        return replace(VersionRecord.loads(data), version=version, pinned=pinned)  # it may be copied
    except ValueError as error:
        raise UsageError(
            f"{printable(path)} cannot be used: {str(error).rstrip('.')}; restore it, or remove that "
            "version's directory."
        ) from error


def write_version_record(output: str, record: VersionRecord, hold: HeldLease | None = None) -> None:
    """Writes the record of a version, while the lease `hold` is held.

    Raises:
      EngineError: If the lease was lost, or the storage failed.
    """
    directory = version_path(output, record.version)
    with storage.translated_errors("write", storage.join(directory, VERSION_JSON)):
        write_held(directory, VERSION_JSON, record.dumps().encode(), hold)


def mark_published(output: str, record: VersionRecord, when: float) -> VersionRecord:
    """Records the time when a version was published, unless it is recorded or the version's state changed.

    Args:
      output: Directory that holds the versions.
      record: Record of the version.
      when: Time in seconds since the epoch.

    Returns:
      The current record of the version.

    Raises:
      UsageError: If its `version.json` is damaged.
      EngineError: If the storage failed.
    """
    path = storage.join(version_path(output, record.version), VERSION_JSON)
    with storage.translated_errors("write", path):
        found = storage.read_with_etag(path)
        now = read_version_record(output, record.version)
        if found is None or not now.is_unseen:
            return now
        seen = replace(now, finished=when)
        return seen if storage.write_if_match(path, seen.dumps().encode(), found[1]) else now


def no_such_version(output: str, version: str, names: Sequence[str] | None = None) -> UsageError:
    """Returns the error for a missing version, which suggests a similar name or the newest versions.

    Args:
      output: Directory that holds the versions.
      version: Name of the missing version.
      names: Names of the versions to choose from; None for all.
    """
    names = version_names(output) if names is None else names
    shown = f"{printable(output)} has no version {printable(version)}"
    if not names:
        return UsageError(f"{printable(output)} holds no versions; check the path.")
    hint = nearest(version, [*names][::-1])
    if hint:
        return UsageError(shown + hint)
    newest = ", ".join(sorted(names)[: -_NAMED - 1 : -1])
    return UsageError(f"{shown}; its newest are {newest}.")
