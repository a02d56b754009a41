"""The versions of a dataset: their records, `latest.json`, which names the one for readers, and retention."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from shardwright.core import storage
from shardwright.core.lease import HeldLease, write_held
from shardwright.schemas.dataset import COMMIT_FILES, DATASET_JSON
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.findings import Violation
from shardwright.schemas.plain_text import printable, shell_word
from shardwright.schemas.version import (
    LATEST_JSON,
    PINNED_JSON,
    VERSION_JSON,
    VERSIONS_DIR,
    Pointer,
    VersionRecord,
    VersionState,
    created_at,
    is_version,
    split_version,
    version_name,
    version_path,
)

if TYPE_CHECKING:
    from shardwright.schemas.configuration.settings import RebuildSettings

_NAMED = 3
#: Largest number of names in the command that accepts a version. With more, gates are accepted as a whole.
_MAX_ACCEPTED = 4
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,60}")


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
    return storage.at_once(partial(_stored_record, output), version_names(output))


def require_judged(output: str, record: VersionRecord) -> None:
    """Checks that the gates have judged a version, and that its record is not damaged.

    Raises:
      UsageError: If it has no verdict, or its `version.json` is damaged.
    """
    require_undamaged(record)
    if record.state is VersionState.BUILDING:  # it may have a dataset.json already
        raise _not_complete(output, record.version)


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
    record = _stored_record(output, version)
    require_undamaged(record)
    return record


def _stored_record(output: str, version: str) -> VersionRecord:
    """Returns the record of a version; with a damaged `version.json`, it has the state `DAMAGED`."""
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
        problem = (
            f"{printable(path)} cannot be used: {str(error).rstrip('.')}; restore it, or remove that "
            "version's directory."
        )
        return VersionRecord(
            version, VersionState.DAMAGED, created_at(version), pinned=pinned, problem=problem
        )


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
        stored = storage.read_with_etag(path)
        now = read_version_record(output, record.version)
        if stored is None or not now.is_unseen:
            return now
        seen = replace(now, finished=when)
        return seen if storage.write_if_match(path, seen.dumps().encode(), stored[1]) else now


def no_such_version(output: str, version: str, names: Sequence[str]) -> UsageError:
    """Returns the error for a missing version, which suggests a similar name or the newest versions.

    Args:
      output: Directory that holds the versions.
      version: Name of the missing version.
      names: Names of the versions to choose from.
    """
    if not names:
        return UsageError(f"{output} holds no versions; check the path.")
    newest = ", ".join(sorted(names)[: -_NAMED - 1 : -1])
    hint = nearest(version, [*names][::-1]) or f"; its newest are {newest}."
    return UsageError(f"{output} has no version {version}{hint}")


#: Number of attempts to follow the pointer while versions are published and removed.
_ATTEMPTS = 3


def _parse(output: str, data: bytes) -> Pointer:
    try:
        return Pointer.loads(data)
    except ValueError as error:
        raise _useless(output, f"cannot be used: {str(error).rstrip('.')}") from error


def _useless(output: str, why: str) -> UsageError:
    output_word, path = shell_word(output), storage.join(output, LATEST_JSON)
    return UsageError(
        f"{path} {why}; choose a version V that shardwright versions {output_word} lists, with shardwright "
        f"rollback {output_word} V."
    )


def read_pointer(output: str, damaged_is_none: bool = False) -> tuple[Pointer | None, str | None]:
    """Reads which version is the latest.

    Returns:
      The pointer, and the tag of its state; None for what there is none of.

    Raises:
      UsageError: If it is damaged and the caller needs it, or the storage cannot hold versions.
      EngineError: If the storage failed.
    """
    path = storage.join(output, LATEST_JSON)
    with storage.translated_errors("read", path):
        stored = storage.read_with_etag(path)
    if stored is None:
        return None, None
    try:
        return _parse(output, stored[0]), stored[1]
    except UsageError:
        if not damaged_is_none:
            raise
        return None, stored[1]


def switch_pointer(output: str, pointer: Pointer, tag: str | None) -> bool:
    """Switches readers to another version, unless another process has switched the pointer since.

    Args:
      output: Directory that holds the versions.
      pointer: Pointer to the new version.
      tag: Tag of the pointer when it was read; None if there was none.

    Returns:
      Whether the pointer names the version. Calling it again is safe, because it detects its own write.

    Raises:
      EngineError: If the storage failed.
    """
    path = storage.join(output, LATEST_JSON)
    with storage.translated_errors("switch", path):
        if storage.write_if_match(path, pointer.dumps().encode(), tag):
            return True
    now, _ = read_pointer(output, damaged_is_none=True)
    return now is not None and now.version == pointer.version


def located(path: str) -> str:
    """Returns the dataset directory that a path currently names.

    `OUT@V` is version V of OUT, and OUT is the version that its pointer names. A dataset directory or any
    other path is returned unchanged.

    Args:
      path: Path as the user wrote it.

    Raises:
      UsageError: If the version is missing, no version is published, or the pointer is damaged.
      EngineError: If the storage failed.
    """
    output, version = split_version(path)
    if version:
        return _version_located(output, version)
    may_hold = storage.knows_conditions(path) if storage.is_remote(path) else os.path.isdir(path)
    if not may_hold or version_name(path) != path or _is_dataset(path):
        return path
    gone = ""
    for _ in range(_ATTEMPTS):
        # In one request, unlike `read_pointer`, for readers that do not write it.
        data = storage.read_if_exists(storage.join(output, LATEST_JSON))
        if data is None:
            if names := version_names(output):
                raise UsageError(
                    f"{output} has versions, but none is published; read one by its name, such as "
                    f"{output}@{names[-1]}, or see with shardwright versions {shell_word(output)} "
                    "why none is."
                )
            return path
        pointer = _parse(output, data)
        directory = version_path(output, pointer.version)
        if _is_dataset(directory):
            return directory
        if gone == pointer.version:
            break
        gone = pointer.version  # the pointer may have changed, and retention may have removed the version
    raise _useless(output, f"names version {gone}, which is missing or incomplete")


def _is_dataset(directory: str) -> bool:
    path = storage.join(directory, DATASET_JSON)
    with storage.translated_errors("look for", path):
        return storage.exists(path)


def _version_located(output: str, version: str) -> str:
    if not storage.knows_conditions(output):
        read_pointer(output)  # raises an error that names the storages that can
    directory = version_path(output, version)
    if _is_dataset(directory):
        return directory
    names = version_names(output)
    if version not in names:
        raise no_such_version(output, version, names)
    raise _not_complete(output, version)


def _not_complete(output: str, version: str) -> UsageError:
    return UsageError(
        f"{output}@{version} is not complete: it is being built, or the run that built it was "
        f"interrupted; name another one that shardwright versions {shell_word(output)} lists."
    )


_DAY_SECONDS = 86_400.0


def surplus(
    versions: Iterable[VersionRecord],
    latest: str,
    rules: RebuildSettings,
    now: float,
) -> list[str]:
    """Returns the versions that can be removed, oldest first.

    The newest `keep` published versions are kept, including the latest. As many others (refused or
    withdrawn) are kept too. Also kept are the latest version, pinned versions, versions younger than
    `keep_days`, versions that are being built, and withdrawn versions newer than the latest, which show a
    rebuild what was rolled back. A version with a damaged `version.json` is kept until somebody checks it.

    Args:
      versions: Records of all versions.
      latest: Name of the version that the pointer names; empty for none.
      rules: Numbers of versions and days to keep.
      now: Current time in seconds since the epoch.
    """
    if rules.keep <= 0:
        return []
    counts = {True: int(bool(latest)), False: 0}  # published ones, and others
    gone = []
    for record in sorted(versions, key=lambda record: record.version, reverse=True):
        if record.version == latest or record.state in (VersionState.BUILDING, VersionState.DAMAGED):
            continue
        published = record.state is VersionState.PUBLISHED
        counts[published] += 1
        young = now - max(record.created, record.finished) < rules.keep_days * _DAY_SECONDS
        rolled_back = record.state is VersionState.WITHDRAWN and record.version > latest
        if counts[published] > rules.keep and not (young or rolled_back or record.pinned):
            gone.append(record.version)
    return gone[::-1]


def remove_version(output: str, version: str) -> bool:
    """Removes a version, unless it is now the latest or pinned.

    Removes the version's record first, then the files by which readers open a dataset. If it is interrupted,
    the rest is never mistaken for a dataset, and the next rebuild removes it.

    Returns:
      Whether the version was removed.

    Raises:
      UsageError: If the pointer is damaged.
      EngineError: If the storage failed.
    """
    directory = version_path(output, version)
    with storage.translated_errors("remove", directory):
        pointer, _ = read_pointer(output)
        if (pointer and pointer.version == version) or storage.exists(storage.join(directory, PINNED_JSON)):
            return False
        if os.path.islink(directory):  # somebody moved the version elsewhere, where it stays whole
            storage.remove(directory)
            return True
        for file in (VERSION_JSON, *COMMIT_FILES):
            storage.remove(storage.join(directory, file))
        storage.remove_tree(directory)
    return True


def is_accepted(refusal: Violation, accepted: tuple[str, ...]) -> bool:
    """Returns whether somebody accepted a violation."""
    return not {"all", refusal.gate, refusal.name}.isdisjoint(accepted)


def accept_command(place: str, record: VersionRecord, given: Sequence[str] = ()) -> str:
    """Returns the command that publishes a refused version.

    Args:
      place: Name of the version for commands, `OUT@V`.
      record: Its `version.json`.
      given: Refusals that the command accepts besides those that are left.
    """
    accepted = (*record.accepted, *given)
    against = [refusal for refusal in record.errors if not is_accepted(refusal, accepted)]
    names = list(dict.fromkeys(refusal.name for refusal in against))
    if len(names) > _MAX_ACCEPTED or not all(map(_PLAIN.fullmatch, names)):
        names = list(dict.fromkeys(refusal.gate for refusal in against))
    if not all(map(_PLAIN.fullmatch, names)):
        names = ["all"]
    names = list(dict.fromkeys((*given, *names)))
    option = f" --accept {','.join(names)}" if names else ""
    return f"shardwright publish {shell_word(place)}{option}"
