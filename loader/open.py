"""Opens a dataset directory, or the version of it that this process reads; checks common arguments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from operator import index as as_int

from shardwright.core import storage, versions
from shardwright.schemas.dataset import DATASET_JSON, Dataset, sample_types
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.sample_types import HIGHEST, SAMPLE_TYPES, widest
from shardwright.schemas.version import split_version, version_name

#: The types that NumPy can hold; TensorFlow also has bfloat16.
NUMPY_TYPES = (*SAMPLE_TYPES, "float16")
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


def stored_types(dataset: Dataset) -> tuple[str, ...]:
    """Returns the sample types of a dataset's pictures, from the narrowest on.

    Raises:
      UsageError: If it has a type that this version does not know.
    """
    unknown = sorted(dataset.dtypes.keys() - set(SAMPLE_TYPES))
    if unknown:
        raise UsageError(
            f"The dataset {dataset.name} has images of the type {unknown[0]}, which this version of "
            "shardwright does not read; use the version that wrote it."
        )
    return sample_types(dataset)


def chosen_type(dtype: str | None, stored: Sequence[str], choices: Sequence[str]) -> str:
    """Returns the sample type to read pictures as.

    Args:
      dtype: The type that the caller wants; None for the narrowest that loses nothing.
      stored: The sample types of a dataset.
      choices: The types that the caller can want.

    Raises:
      UsageError: If there is no such type, or the pictures cannot be converted to it.
    """
    if dtype is None:
        if len(stored) > 1 and "float32" in stored:
            raise UsageError(
                f"The images are {' and '.join(stored)}, which have no common scale; choose dtype='float32' "
                "for integers from 0 to 1 and floats as stored."
            )
        return widest(stored)
    if dtype not in choices:
        raise UsageError(f"dtype {dtype!r}: choose one of {', '.join(choices)}.")
    if dtype in HIGHEST and "float32" in stored:
        raise UsageError(
            f"dtype {dtype!r}: some images are float32, whose values have no fixed range; choose "
            "dtype='float32'."
        )
    return dtype
