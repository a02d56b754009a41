"""Removes the files that killed runs left beside the versions, and turns cleanup errors into warnings."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from shardwright.core import storage
from shardwright.core.result_files import was_left
from shardwright.core.versions.listing import version_names
from shardwright.schemas.dataset import WORK_DIR
from shardwright.schemas.errors import ShardwrightError
from shardwright.schemas.version import (
    CHECKS_DIR,
    INDEX_HTML,
    LATEST_JSON,
    LEASE_JSON,
    METRICS_PROM,
    PINNED_JSON,
    SCRUB_JSON,
    VERSION_JSON,
    VERSIONS_DIR,
    version_path,
)

#: Files directly in the output that are first written under another name.
_FILES = (LEASE_JSON, LATEST_JSON, INDEX_HTML, METRICS_PROM, SCRUB_JSON)
#: The same for the directory of a version.
_FILES_OF_VERSION = (VERSION_JSON, PINNED_JSON)


@contextlib.contextmanager
def warned(warnings: list[str], what: str) -> Iterator[None]:
    """Turns a storage error in the block into a warning.

    Args:
      warnings: List that gets the warning.
      what: What failed, as the beginning of a sentence.
    """
    try:
        yield
    except (OSError, ShardwrightError) as error:
        reason = error.message if isinstance(error, ShardwrightError) else error.strerror or str(error)
        warnings.append(f"{what}: {reason.rstrip('.')}; the next run tries again.")


def remove_leftovers(output: str, made: str = "") -> int:
    """Removes the unfinished files that killed runs left beside the versions.

    Only local disks have them: an object in a bucket appears whole or not at all. One of them may belong to a
    process that is writing now. That process then writes its file again (`storage.write_bytes`).

    Args:
      output: Directory that contains the versions.
      made: Version that is being built. Its workers may still write.

    Returns:
      Number of files removed.

    Raises:
      OSError: If the storage failed.
    """
    if storage.is_remote(output):
        return 0
    versions = version_names(output)
    folders = [
        output,
        storage.join(output, VERSIONS_DIR),
        storage.join(output, WORK_DIR, "outcomes"),
        *(version_path(output, version) for version in versions),
        *(
            storage.join(version_path(output, version), folder)
            for version in versions
            for folder in (WORK_DIR, CHECKS_DIR)
            if version != made
        ),
    ]
    paths = [storage.join(folder, name) for folder in folders for name in _unfinished_in(folder)]
    for path in paths:
        storage.remove(path)
    return len(paths)


def _unfinished_in(folder: str) -> list[str]:
    """Returns the names of the unfinished files in a folder; validations of its version may be at work."""
    ours = tuple(f"{file}." for file in (*_FILES, *_FILES_OF_VERSION))
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    names = []
    for entry in entries:
        is_ours = entry.name.startswith(ours) and entry.name.endswith(".tmp")
        with contextlib.suppress(FileNotFoundError):  # its command has removed it meanwhile
            if entry.is_file(follow_symlinks=False) and (is_ours or was_left(entry)):
                names.append(entry.name)
    return sorted(names)
