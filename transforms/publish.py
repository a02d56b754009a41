"""`--overwrite`: build the new dataset beside the old one, then put it in its place."""

from __future__ import annotations

import contextlib
import os

from shardwright.schemas.dataset import DATASET_INFO_JSON, DATASET_JSON, ENTRANCES, WORK_DIR
from shardwright.transforms import storage

#: Where the successor of a dataset on object storage is built.
REPLACEMENT_DIR = f"{WORK_DIR}/replacement"


def _sibling(output: str, what: str) -> str:
    parent, name = os.path.split(os.path.realpath(output))
    return os.path.join(parent, f".{name}.shardwright-{what}")


def staging_path(output: str) -> str:
    """Returns where the successor of a dataset directory is built."""
    return storage.join(output, REPLACEMENT_DIR) if storage.is_remote(output) else _sibling(output, "new")


def swap(output: str) -> None:
    """Puts the finished staging directory in the place of the output, and removes the old one."""
    if storage.is_remote(output):
        _replace_objects(output)
    else:
        _swap_by_renames(output)


def _replace_objects(output: str) -> None:
    """Replaces a dataset where nothing can be renamed.

    Between the removal of the old `dataset.json` and the arrival of the new one there is no dataset;
    cut off there, `--resume` finds the finished successor and begins again here.
    """
    staging = staging_path(output)
    new = storage.list_files(staging)
    staged = {f"{REPLACEMENT_DIR}/{file}" for file in new}
    for file in ENTRANCES:
        storage.remove(storage.join(output, file))
    old = [file for file in storage.list_files(output) if file not in staged and file not in new]
    storage.remove_files(output, old)
    storage.copy_files(staging, output, [file for file in new if file not in ENTRANCES])
    storage.copy_files(staging, output, [file for file in new if file == DATASET_INFO_JSON])
    storage.copy_files(staging, output, [DATASET_JSON])
    storage.remove_tree(staging)


def _swap_by_renames(output: str) -> None:
    """Swaps two directories.

    Each step is a rename; `repair_swap` finishes a swap that was cut off between them. Readers
    that opened a file of the old dataset can read it to its end.
    """
    output = os.path.realpath(output)  # a symbolic link to a dataset goes on pointing to it
    old, new = _sibling(output, "old"), staging_path(output)
    storage.remove_tree(old)
    if os.path.lexists(output):
        os.rename(output, old)
    try:
        os.rename(new, output)
    except FileNotFoundError:
        # A reader that found the output missing, or another attempt of this step, has finished the swap.
        if not os.path.lexists(output):
            os.rename(old, output)
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
