"""Which versions stay, and how one goes."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from shardwright.schemas.configuration.job import Retention
from shardwright.schemas.dataset import COMMIT_FILES
from shardwright.schemas.version import PINNED_JSON, VERSION_JSON, VersionRecord, VersionState, version_path
from shardwright.transforms import storage
from shardwright.transforms.versions.pointer import read_pointer

_DAY_SECONDS = 86_400.0


def surplus(
    versions: Iterable[VersionRecord], latest: str, pinned: Collection[str], retention: Retention, now: float
) -> list[str]:
    """Returns the versions that need not stay, the oldest first.

    Of the published versions the newest `keep` stay, the latest among them. Of those that readers never got
    or get no more (refused, withdrawn) as many stay beside. So do the latest, pinned ones, those that are
    younger than `keep_days`, those that are being built, and withdrawn ones that are newer than the latest,
    for by them a rebuild knows what was rolled back. A version whose `version.json` is damaged stays until
    somebody looks at it.

    Args:
      versions: all there are.
      latest: the one that the pointer names; empty for none.
      pinned: those that somebody wants to stay, besides those whose record says so.
      retention: how many stay, and for how long.
      now: seconds since the epoch.
    """
    if retention.keep <= 0:
        return []
    counts = {True: int(bool(latest)), False: 0}  # published ones, and others
    gone = []
    for record in sorted(versions, key=lambda record: record.version, reverse=True):
        if record.version == latest or record.state in (VersionState.BUILDING, VersionState.DAMAGED):
            continue
        published = record.state is VersionState.PUBLISHED
        counts[published] += 1
        young = now - max(record.created, record.finished) < retention.keep_days * _DAY_SECONDS
        rolled_back = record.state is VersionState.WITHDRAWN and record.version > latest
        if counts[published] <= retention.keep or young or rolled_back:
            continue
        if not record.pinned and record.version not in pinned:
            gone.append(record.version)
    return gone[::-1]


def remove_version(output: str, version: str) -> bool:
    """Removes a version, unless it is the latest or pinned by now.

    What it is goes first, then what readers enter by: cut off anywhere, it is never taken for a dataset
    that it is no more, and the next rebuild removes the rest.

    Returns:
      Whether it is gone.

    Raises:
      UsageError: if the pointer is damaged.
      EngineError: if the storage failed.
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
