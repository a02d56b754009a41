"""Finds shards under the names of other shards: files that were swapped, renamed or copied. Needs no Beam."""

from __future__ import annotations

import contextlib
import os
from functools import lru_cache
from typing import NamedTuple

from shardwright.core import storage
from shardwright.core.dataset_files import read_dataset
from shardwright.schemas.dataset import Shard

#: Largest number of files of equal size that changed places in a cycle.
_LONGEST_CYCLE = 32


class Placement(NamedTuple):
    """Where the bytes of a shard are, if not in its own file.

    Attributes:
      path: Path of the file that holds them. None if none was found.
      holds: Name of the other shard that the shard's own file holds. Empty if it holds none.
    """

    path: str | None = None
    holds: str = ""


class _Directory(NamedTuple):
    """A dataset directory: the size in bytes of each file, and the shards that `dataset.json` lists."""

    sizes: dict[str, int]
    shards: list[Shard]


def find_misplaced(directory: str, expected: Shard, run: str = "") -> Placement:
    """Looks for a shard whose own file has other bytes or is missing.

    It reads the shard's own file, and those files that can hold the shard. They have its size, but not that
    of their own shard. If files of equal size changed places, the shard in the own file leads to the next.

    Args:
      directory: The dataset directory.
      expected: The shard as `dataset.json` describes it.
      run: Unique name of the run, during which the directory does not change. Empty to list it again.

    Raises:
      UsageError: If `dataset.json` is not a readable document.
      EngineError: If the storage failed.
    """
    sizes, shards = _listed_once(directory, run) if run else _listed(directory)
    others = [shard for shard in shards if shard.file != expected.file and shard.records]
    holds = _shard_in(directory, expected.file, sizes, others)
    if not expected.records:
        return Placement(None, holds)
    suspects = [
        other.file
        for other in others
        if sizes.get(other.file) == expected.bytes and other.bytes != expected.bytes
    ]
    found = next((file for file in suspects if _sha256_of(directory, file) == expected.sha256), "")
    file, seen = holds, set[str]()
    while file and not found and file not in seen and len(seen) < _LONGEST_CYCLE:
        seen.add(file)
        if sizes.get(file) == expected.bytes and _sha256_of(directory, file) == expected.sha256:
            found = file
        file = _shard_in(directory, file, sizes, others)
    return Placement(storage.join(directory, found) if found else None, holds)


def _listed(directory: str) -> _Directory:
    shards = [shard for _, _, _, shard in read_dataset(directory).placed_shards()]
    return _Directory(_sizes(directory), shards)


@lru_cache(maxsize=1)
def _listed_once(directory: str, run: str) -> _Directory:
    """Lists a directory once for all of its damaged shards that this process saves."""
    return _listed(directory)


def _shard_in(directory: str, file: str, sizes: dict[str, int], shards: list[Shard]) -> str:
    """Returns the name of the shard whose bytes a file has; empty if there is none."""
    candidates = {shard.sha256: shard.file for shard in shards if shard.bytes == sizes.get(file)}
    return candidates.get(_sha256_of(directory, file), "") if candidates else ""


def _sizes(directory: str) -> dict[str, int]:
    """Returns the size in bytes of each file in a directory."""
    if storage.is_remote(directory):
        prefix = directory.rstrip("/") + "/"
        return {
            item.path.removeprefix(prefix): item.size for item in storage.list_objects(directory, deep=False)
        }
    with os.scandir(directory) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}


def _sha256_of(directory: str, file: str) -> str:
    """Returns the sha256 of a file; empty if it is missing."""
    with contextlib.suppress(FileNotFoundError), storage.open_local(storage.join(directory, file)) as opened:
        return storage.sha256_of(opened)
    return ""
