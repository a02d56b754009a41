"""Opens a dataset directory, or the version of it that this process reads; checks common arguments."""

from __future__ import annotations

import os
from operator import index as as_int

from shardwright.core import storage, versions
from shardwright.schemas.dataset import DATASET_JSON, Dataset
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.version import split_version, version_name

#: Directory with versions -> the dataset directory of the version that this process reads.
_pinned: dict[str, str] = {}


def open_dataset(dataset: str | os.PathLike[str]) -> Dataset:
    """Reads the `dataset.json` of a local or remote dataset directory.

    Args:
      dataset: Dataset directory, such as `out/` or `gs://bucket/out`. If it has versions, `out` is the
        version that this process opened first (`pin`), and `out@20261121T020000Z` is that version.

    Raises:
      UsageError: If there is no dataset.
      EngineError: If the storage failed.
    """
    return read_dataset(located(dataset))


def pin(dataset: str | os.PathLike[str]) -> str:
    """Finds the latest version of a directory; from now on, this process reads that version by its name.

    A process reads one version of `OUT` for as long as it runs: the one that was the latest when it first
    opened `OUT`. A training that takes a week reads the same data in each epoch, and its validation split
    belongs to its training split. A process that should continue with a newer version calls `pin` again.

    If a training has many processes or hosts, call `pin` in one of them and send the result to the others.
    Then all read the same version, even if a rebuild publishes another one meanwhile:

        name = broadcast(pin("gs://bucket/pets") if rank == 0 else None)  # gs://bucket/pets@20261121T020000Z
        data = load(name, "train")

    Worker processes that receive `Records` (those of `DataLoader` and Grain) read the same version.
    A version must not be removed while it is read: see `keep` and `shardwright versions OUT --pin V`.

    Args:
      dataset: `OUT`, or `OUT@V` to read version V as `OUT` in this process.

    Returns:
      `OUT@V`, which the loader and all commands that read accept; the directory, if it has no versions.

    Raises:
      UsageError: If there is no dataset, or no such version.
      EngineError: If the storage failed.
    """
    found = _located_now(absolute(dataset))
    read_dataset(found)
    name = version_name(found)
    if name != found:
        _pinned[split_version(name)[0]] = found
    return name


def located(directory: str | os.PathLike[str]) -> str:
    """Returns the absolute dataset directory that a name means in this process.

    Raises:
      UsageError: If the name is empty, or there is no such version.
      EngineError: If the storage failed.
    """
    path = absolute(directory)
    if path in _pinned:
        return _pinned[path]
    found = _located_now(path)
    if found == path or split_version(path)[1]:
        return found
    return _pinned.setdefault(path, found)  # threads that ask at once agree, even if the pointer moves


def _located_now(path: str) -> str:
    storage.require_known("dataset", path)
    return versions.located(path)


def read_dataset(directory: str) -> Dataset:
    """Reads the `dataset.json` of a directory that `located` returned.

    Raises:
      UsageError: If there is no dataset.
      EngineError: If the storage failed.
    """
    path = storage.join(directory, DATASET_JSON)
    with storage.translated_errors("read", path):
        try:
            return Dataset.from_bytes(storage.read_bytes(path), printable(path))
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(
                f"{printable(directory)} is not a dataset, because it has no {DATASET_JSON}; "
                "name a directory that `shardwright convert` finished."
            ) from None


def at_least(least: int, value: object) -> bool:
    """Returns whether a value is an integer of Python or NumPy, and not below a minimum."""
    try:
        return as_int(value) >= least  # type: ignore[arg-type]
    except TypeError:
        return False


def require_seed(seed: object) -> None:
    """Checks a seed.

    Raises:
      UsageError: If it is not a valid seed.
    """
    if not at_least(0, seed):
        raise UsageError(f"seed {seed!r}: write a whole number from 0 on.")


def absolute(directory: str | os.PathLike[str]) -> str:
    """Returns the absolute path of a directory, which stays valid if the working directory changes.

    Raises:
      UsageError: If the name is empty.
    """
    path = os.fspath(directory)
    if not path:
        raise UsageError(
            "The directory is an empty string; name the one that `shardwright convert` finished."
        )
    return path.rstrip("/") if storage.is_remote(path) else os.path.abspath(path)
