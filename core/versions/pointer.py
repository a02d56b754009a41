"""Reads, switches and follows `latest.json`, which names the version for readers."""

from __future__ import annotations

import glob
import os
import shlex

from shardwright.core import storage
from shardwright.core.versions.listing import no_such_version, version_names
from shardwright.schemas.dataset import DATASET_JSON
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.version import (
    LATEST_JSON,
    Pointer,
    split_version,
    version_name,
    version_path,
)

#: Number of attempts to follow the pointer while versions are published and removed.
_ATTEMPTS = 3


def can_hold_versions(path: str) -> bool:
    """Returns whether the storage of a path supports the conditional writes that versions need."""
    return storage.knows_conditions(path)


def read_pointer(output: str) -> tuple[Pointer, str] | None:
    """Reads which version is the latest.

    Returns:
      The pointer and the tag of its state; None if there is none.

    Raises:
      UsageError: If it is damaged, or the storage cannot hold versions.
      EngineError: If the storage failed.
    """
    found = _read_with_tag(output)
    return None if found is None else (_parse(output, found[0]), found[1])


def _read_with_tag(output: str) -> tuple[bytes, str] | None:
    path = storage.join(output, LATEST_JSON)
    with storage.translated_errors("read", path):
        return storage.read_with_etag(path)


def _parse(output: str, data: bytes) -> Pointer:
    try:
        return Pointer.loads(data)
    except ValueError as error:
        raise _useless(output, f"cannot be used: {str(error).rstrip('.')}") from error


def _useless(output: str, why: str) -> UsageError:
    shown, path = _word(output), printable(storage.join(output, LATEST_JSON))
    return UsageError(
        f"{path} {why}; choose a version V that shardwright versions {shown} lists, with shardwright "
        f"rollback {shown} V."
    )


def _word(path: str) -> str:
    """Returns a path as it is written in a shell command."""
    return shlex.quote(printable(path))


def pointer_tag(output: str) -> str | None:
    """Returns the tag of the pointer's state, damaged or not; None if there is none.

    Raises:
      EngineError: If the storage failed.
    """
    found = _read_with_tag(output)
    return found[1] if found else None


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
        found = storage.read_with_etag(path)
    try:
        return found is not None and Pointer.loads(found[0]).version == pointer.version
    except ValueError:
        return False


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
        return _version_located(path, output, version)
    if not _may_hold_versions(path) or version_name(path) != path or _is_dataset(path):
        return path
    return follow(path) or path


def _may_hold_versions(path: str) -> bool:
    """Returns whether a path may hold versions."""
    if storage.is_remote(path):
        return can_hold_versions(path) and not glob.has_magic(path)
    return os.path.isdir(path)


def follow(output: str) -> str:
    """Returns the dataset directory that the pointer currently names; empty if there are no versions.

    Raises:
      UsageError: If the version is gone, no version is published, or the pointer is damaged.
      EngineError: If the storage failed.
    """
    gone = ""
    for _ in range(_ATTEMPTS):
        found = _read_latest(output)
        if found is None:
            if names := version_names(output):
                raise _none_published(output, names)
            return ""
        directory = version_path(output, found.version)
        if _is_dataset(directory):
            return directory
        if gone == found.version:
            break
        gone = found.version  # the pointer may have changed, and retention may have removed the version
    raise _useless(output, f"names version {gone}, which is missing or incomplete")


def _read_latest(output: str) -> Pointer | None:
    """Reads the pointer in one request, for readers that do not write it."""
    data = storage.read_if_exists(storage.join(output, LATEST_JSON))
    return None if data is None else _parse(output, data)


def _is_dataset(directory: str) -> bool:
    path = storage.join(directory, DATASET_JSON)
    with storage.translated_errors("look for", path):
        return storage.exists(path)


def _version_located(path: str, output: str, version: str) -> str:
    if not can_hold_versions(output):
        read_pointer(output)  # raises an error that names the storages that can
    directory = version_path(output, version)
    if _is_dataset(directory):
        return directory
    names = version_names(output)
    if version not in names:
        raise no_such_version(output, version, names)
    raise UsageError(
        f"{printable(path)} is not complete: it is being built, or the run that built it was interrupted; "
        f"name another one that shardwright versions {_word(output)} lists."
    )


def _none_published(output: str, names: list[str]) -> UsageError:
    shown = printable(output)
    return UsageError(
        f"{shown} has versions, but none is published; read one by its name, such "
        f"as {shown}@{names[-1]}, or see with shardwright versions {_word(output)} why none is."
    )
