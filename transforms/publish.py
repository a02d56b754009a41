"""`--overwrite` on a local disk: build beside the old dataset, then swap by renames."""

from __future__ import annotations

import contextlib
import os

from shardwright.schemas.dataset import DATASET_JSON
from shardwright.transforms import storage


def _sibling(output: str, what: str) -> str:
    parent, name = os.path.split(os.path.realpath(output))
    return os.path.join(parent, f".{name}.shardwright-{what}")


def staging_path(output: str) -> str:
    """Returns where the successor of a local dataset directory is built."""
    return _sibling(output, "new")


def swap(output: str) -> None:
    """Puts the finished staging directory in the place of the output, and removes the old one.

    Each step is a rename; `repair_swap` finishes a swap that was cut off between them. Readers
    that opened a file of the old dataset can read it to its end.
    """
    output = os.path.realpath(output)  # a symbolic link to a dataset goes on pointing to it
    old, new = _sibling(output, "old"), staging_path(output)
    storage.remove_tree(old)
    if os.path.lexists(output):
        os.rename(output, old)
    # A reader that found the output missing may have finished the swap meanwhile.
    with contextlib.suppress(FileNotFoundError):
        os.rename(new, output)
    _discard(old)


def repair_swap(output: str) -> None:
    """Finishes or undoes a swap that was cut off. Every command calls it on its dataset first."""
    if storage.is_remote(output):
        return
    output = os.path.realpath(output)
    old, new = _sibling(output, "old"), staging_path(output)
    if not os.path.isdir(old):
        return
    if not os.path.lexists(output):
        finished = os.path.isfile(os.path.join(new, DATASET_JSON))
        with (
            storage.faults("finish the interrupted replacement of", output),
            contextlib.suppress(FileNotFoundError),
        ):
            os.rename(new if finished else old, output)
    _discard(old)


def _discard(directory: str) -> None:
    """Removes a directory that nothing points to any more, as far as that is possible."""
    with contextlib.suppress(OSError):
        storage.remove_tree(directory)
