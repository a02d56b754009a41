"""Chooses which versions are kept, and removes versions."""

from __future__ import annotations

from collections.abc import Iterable

from shardwright.core import storage
from shardwright.core.versions.pointer import read_pointer
from shardwright.schemas.configuration.job import RebuildSettings
from shardwright.schemas.dataset import COMMIT_FILES
from shardwright.schemas.version import PINNED_JSON, VERSION_JSON, VersionRecord, VersionState, version_path

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
        found = read_pointer(output)
        if (found and found[0].version == version) or storage.exists(storage.join(directory, PINNED_JSON)):
            return False
        for file in (VERSION_JSON, *COMMIT_FILES):
            storage.remove(storage.join(directory, file))
        storage.remove_tree(directory)
    return True
