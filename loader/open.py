"""Opens a dataset directory: its `dataset.json` says what is in it."""

from __future__ import annotations

import os

from shardwright.loader.arguments import located
from shardwright.schemas.dataset import DATASET_JSON, Dataset
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.transforms import storage


def open_dataset(directory: str | os.PathLike[str]) -> Dataset:
    """Reads the `dataset.json` of a local or remote dataset directory.

    Args:
      directory: where the dataset is, such as `out/` or `gs://bucket/out`.

    Raises:
      UsageError: if there is no dataset.
      EngineError: if the storage failed.
    """
    directory = located(directory)
    path = storage.join(directory, DATASET_JSON)
    storage.require_known("dataset", path)
    with storage.faults("read", path):
        try:
            return Dataset.from_bytes(storage.read_bytes(path), printable(path))
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(
                f"{printable(directory)} is no dataset: it has no {DATASET_JSON}; "
                "name a directory that `shardwright convert` finished."
            ) from None
