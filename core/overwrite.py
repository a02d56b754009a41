"""`--overwrite`: builds the new dataset beside the old one, then puts it in the old one's place."""

from __future__ import annotations

import contextlib
import errno
import os

from shardwright.core import storage
from shardwright.core.lease import HeldLease, check_free, while_held
from shardwright.schemas.dataset import COMMIT_FILES, DATASET_INFO_JSON, DATASET_JSON, WORK_DIR, WRITER_JSON
from shardwright.schemas.errors import EngineError

#: Directory in which the new dataset is built on object storage.
REPLACEMENT_DIR = f"{WORK_DIR}/replacement"
#: Number of attempts to rename a directory to the output.
_ATTEMPTS = 5


def _sibling(output: str, what: str) -> str:
    parent, name = os.path.split(os.path.realpath(output))
    return os.path.join(parent, f".{name}.shardwright-{what}")


def staging_path(output: str) -> str:
    """Returns the directory in which the new dataset is built."""
    return storage.join(output, REPLACEMENT_DIR) if storage.is_remote(output) else _sibling(output, "new")


def swap(output: str, hold: HeldLease | None) -> None:
    """Replaces the output by the finished staging directory.

    Locally, the old dataset is removed. In a bucket, the copies in the staging directory stay for
    `discard_staging`.

    Args:
      output: The dataset directory.
      hold: Lease of the output. It stays there. None if the run needs no lease.

    Raises:
      EngineError: If the lease was lost.
      OSError: If the storage failed.
    """
    if hold is not None:
        hold.keep()
    if storage.is_remote(output):
        _replace_objects(output, hold)
    else:
        _swap_by_renames(output, hold)


def _replace_objects(output: str, hold: HeldLease | None) -> None:
    """Replaces a dataset on storage that cannot rename directories.

    There is no dataset from the removal of the old `dataset.json` until the new one arrives. After an
    interruption in between, `--resume` finds the finished new dataset and starts again here.
    """
    staging = staging_path(output)
    new = storage.list_files(staging)
    staged = {f"{REPLACEMENT_DIR}/{file}" for file in new}
    for file in COMMIT_FILES:
        storage.remove(storage.join(output, file))
    kept = {*staged, *new, WRITER_JSON}
    old = [file for file in storage.list_files(output) if file not in kept]
    storage.remove_files(output, old)
    storage.link_files(staging, output, [file for file in new if file not in COMMIT_FILES])
    if hold is not None:
        hold.check()
    storage.link_files(staging, output, [file for file in new if file == DATASET_INFO_JSON])
    storage.link_files(staging, output, [DATASET_JSON])


def discard_staging(output: str) -> None:
    """Removes the rest of the staging directory after a swap."""
    storage.remove_tree(staging_path(output))


def _swap_by_renames(output: str, hold: HeldLease | None) -> None:
    """Swaps two directories. The new one gets the lease first, so that a lease is always visible.

    Each step is a rename. `repair_swap` finishes a swap that was interrupted. Readers that opened
    a file of the old dataset can read it to its end.
    """
    output = os.path.realpath(output)  # keep a symbolic link that points to the dataset
    old, new = _sibling(output, "old"), staging_path(output)
    storage.remove_tree(old)
    with while_held(hold):
        if hold is not None:
            lease = storage.read_bytes(storage.join(output, hold.file))
            storage.write_bytes(storage.join(new, hold.file), lease, inside=new)
        if os.path.lexists(output):
            os.rename(output, old)
        try:
            move_in(new, output)
        except FileNotFoundError:
            # A reader that found no output, or another attempt of this step, has finished the swap.
            if not os.path.lexists(output):
                os.rename(old, output)
    _discard(old)


def move_in(new: str, output: str) -> None:
    """Renames the new directory to the output, even if another run took a lease there meanwhile."""
    for _ in range(_ATTEMPTS):
        try:
            os.rename(new, output)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not _has_only_a_lease(output):
                raise
        storage.remove_tree(output)  # the other run notices before it writes anything
    os.rename(new, output)


def _has_only_a_lease(output: str) -> bool:
    """Returns whether a directory contains only the lease of a run that came during the replacement."""
    return os.path.isdir(output) and all(file.startswith(WRITER_JSON) for file in storage.list_files(output))


def is_being_replaced(output: str) -> bool:
    """Returns whether a local dataset was moved away and the new one is not in place yet."""
    if storage.is_remote(output):
        return False
    output = os.path.realpath(output)
    moved = os.path.isdir(_sibling(output, "old"))
    return moved and (not os.path.lexists(output) or _has_only_a_lease(output))


def repair_swap(output: str) -> None:
    """Finishes or undoes an interrupted swap. Every command first calls it on its dataset."""
    if storage.is_remote(output):
        return
    output = os.path.realpath(output)
    old, new = _sibling(output, "old"), staging_path(output)
    if not os.path.isdir(old):
        return
    if _has_only_a_lease(output):
        try:
            check_free(output)
        except EngineError:
            return  # the other run is about to notice that the output is not free
        storage.remove_tree(output)
    if not os.path.lexists(output):
        finished = os.path.isfile(os.path.join(new, DATASET_JSON))
        with (
            storage.translated_errors("finish the interrupted replacement of", output),
            contextlib.suppress(FileNotFoundError),
        ):
            os.rename(new if finished else old, output)
    _discard(old)


def _discard(directory: str) -> None:
    """Tries to remove a directory that is not needed any more."""
    with contextlib.suppress(OSError):
        storage.remove_tree(directory)
