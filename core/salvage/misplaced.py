"""Finds shards under the names of other shards: files that were swapped, renamed or copied. Needs no Beam."""

from __future__ import annotations

import contextlib
import os
from functools import lru_cache
from typing import NamedTuple

from shardwright.core import storage
from shardwright.core.dataset_files import read_dataset
from shardwright.schemas.dataset import Shard


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
    """Looks for a shard whose own file has other bytes or is missing, in all files of its size.

    Args:
      directory: The dataset directory.
      expected: The shard as `dataset.json` describes it.
      run: Unique name of the run, during which the directory does not change. Empty to list it again.

    Raises:
      UsageError: If `dataset.json` is not a readable document.
      EngineError: If the storage failed.
    """
    if not run:
        _listed.cache_clear()
        _sha256_of.cache_clear()
    sizes, shards = _listed(directory, run)
    own = {shard.sha256: shard.file for shard in shards if shard.bytes == sizes.get(expected.file)}
    own.pop(expected.sha256, None)
    holds = own.get(_sha256_of(directory, expected.file, run), "") if own else ""
    for file, size in sizes.items() if expected.records else ():
        if size == expected.bytes and _sha256_of(directory, file, run) == expected.sha256:
            return Placement(storage.join(directory, file), holds)
    return Placement(None, holds)


@lru_cache(maxsize=1)
def _listed(directory: str, run: str) -> _Directory:
    """Lists a directory once for all of its damaged shards that a run saves in this process."""
    shards = [shard for _, _, _, shard in read_dataset(directory).placed_shards() if shard.records]
    return _Directory(_sizes(directory), shards)


def _sizes(directory: str) -> dict[str, int]:
    """Returns the size in bytes of each file in a directory."""
    if storage.is_remote(directory):
        prefix = directory.rstrip("/") + "/"
        return {
            item.path.removeprefix(prefix): item.size for item in storage.list_objects(directory, deep=False)
        }
    with os.scandir(directory) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}


@lru_cache(maxsize=10_000)
def _sha256_of(directory: str, file: str, run: str) -> str:
    """Returns the sha256 of a file; empty if it is missing. A run reads each file once in this process."""
    with contextlib.suppress(FileNotFoundError), storage.open_local(storage.join(directory, file)) as opened:
        return storage.sha256_of(opened)
    return ""
