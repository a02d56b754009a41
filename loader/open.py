"""Opens a dataset directory, or the version that a process reads: its `dataset.json` says what is in it."""

from __future__ import annotations

import os

from shardwright.loader.arguments import absolute
from shardwright.schemas.dataset import DATASET_JSON, Dataset
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.version import split_version, version_name
from shardwright.transforms import storage
from shardwright.transforms.versions import pointer

#: Directory that holds versions -> the dataset directory that it means in this process.
_pinned: dict[str, str] = {}


def open_dataset(directory: str | os.PathLike[str]) -> Dataset:
    """Reads the `dataset.json` of a local or remote dataset directory.

    Args:
      directory: where the dataset is, such as `out/` or `gs://bucket/out`; of one with versions, the name
        means the version that it first meant in this process (`pin`), and `out@20261121T020000Z` that one.

    Raises:
      UsageError: if there is no dataset.
      EngineError: if the storage failed.
    """
    return read_dataset(located(directory))


def pin(directory: str | os.PathLike[str]) -> str:
    """Returns the version that a directory has as its latest now, and has its name mean that from now on.

    All that a process opens by the name `OUT` is of one version, the one that was the latest when the first
    of it was opened: a training of a week reads the same data in its last epoch as in its first, and its
    validation goes with its training split. For processes that go on for longer than that, `pin` looks anew.

    Where a training has many processes or hosts, let one of them ask and tell the others the answer, so
    that no rebuild comes between two questions:

        name = broadcast(pin("gs://bucket/pets") if rank == 0 else None)  # gs://bucket/pets@20261121T020000Z
        data = load(name, "train")

    Worker processes that are given `Records` (those of `DataLoader` and Grain) read what these read.
    A version that is read must not be removed: see `keep` and `shardwright versions OUT --pin V`.

    Args:
      directory: `OUT`, or `OUT@V`, to have `OUT` mean that version in this process.

    Returns:
      `OUT@V`, which every reading command and the loader take; of a dataset without versions, its directory.

    Raises:
      UsageError: if there is no dataset, or no such version.
      EngineError: if the storage failed.
    """
    found = _located_now(absolute(directory))
    read_dataset(found)
    name = version_name(found)
    if name != found:
        _pinned[split_version(name)[0]] = found
    return name


def located(directory: str | os.PathLike[str]) -> str:
    """Returns the dataset directory that a name means in this process, whatever the working directory.

    Raises:
      UsageError: if nothing is named, or no such version is there.
      EngineError: if the storage failed.
    """
    path = absolute(directory)
    if path in _pinned:
        return _pinned[path]
    found = _located_now(path)
    if found == path or split_version(path)[1]:
        return found
    return _pinned.setdefault(path, found)  # threads that ask at once, while the pointer moves, agree


def _located_now(path: str) -> str:
    storage.require_known("dataset", path)
    return pointer.located(path)


def read_dataset(directory: str) -> Dataset:
    """Reads the `dataset.json` of a directory that `located` returned.

    Raises:
      UsageError: if there is no dataset.
      EngineError: if the storage failed.
    """
    path = storage.join(directory, DATASET_JSON)
    with storage.translated_errors("read", path):
        try:
            return Dataset.from_bytes(storage.read_bytes(path), printable(path))
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(
                f"{printable(directory)} is no dataset: it has no {DATASET_JSON}; "
                "name a directory that `shardwright convert` finished."
            ) from None
