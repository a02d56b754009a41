"""`--overwrite`: build the new dataset beside the old one, then put it in its place."""

from __future__ import annotations

import contextlib
import errno
import os

from shardwright.schemas.dataset import COMMIT_FILES, DATASET_INFO_JSON, DATASET_JSON, WORK_DIR, WRITER_JSON
from shardwright.schemas.errors import EngineError
from shardwright.transforms import storage
from shardwright.transforms.lease import HeldLease, check_free

#: Where the successor of a dataset on object storage is built.
REPLACEMENT_DIR = f"{WORK_DIR}/replacement"
#: How often a directory is renamed into the place of another one.
_ATTEMPTS = 5


def _sibling(output: str, what: str) -> str:
    parent, name = os.path.split(os.path.realpath(output))
    return os.path.join(parent, f".{name}.shardwright-{what}")


def staging_path(output: str) -> str:
    """Returns where the successor of a dataset directory is built."""
    return storage.join(output, REPLACEMENT_DIR) if storage.is_remote(output) else _sibling(output, "new")


def swap(output: str, hold: HeldLease | None) -> None:
    """Puts the finished staging directory in the place of the output.

    Locally the old one is removed, too. In a bucket the copies in the staging directory are left for
    `discard_staging`.

    Args:
      output: the dataset directory.
      hold: the lease of the output, which stays there; None where there is none.

    Raises:
      EngineError: if the lease was lost.
      OSError: if the storage failed.
    """
    if hold is not None:
        hold.keep()
    if storage.is_remote(output):
        _replace_objects(output, hold)
    else:
        _swap_by_renames(output, hold)


def _replace_objects(output: str, hold: HeldLease | None) -> None:
    """Replaces a dataset where nothing can be renamed.

    Between the removal of the old `dataset.json` and the arrival of the new one there is no dataset;
    cut off there, `--resume` finds the finished successor and begins again here.
    """
    staging = staging_path(output)
    new = storage.list_files(staging)
    staged = {f"{REPLACEMENT_DIR}/{file}" for file in new}
    for file in COMMIT_FILES:
        storage.remove(storage.join(output, file))
    kept = {*staged, *new, WRITER_JSON}
    old = [file for file in storage.list_files(output) if file not in kept]
    storage.remove_files(output, old)
    storage.copy_files(staging, output, [file for file in new if file not in COMMIT_FILES])
    if hold is not None:
        hold.check()
    storage.copy_files(staging, output, [file for file in new if file == DATASET_INFO_JSON])
    storage.copy_files(staging, output, [DATASET_JSON])


def discard_staging(output: str) -> None:
    """Removes what is left of the staging directory after a swap."""
    storage.remove_tree(staging_path(output))


def _swap_by_renames(output: str, hold: HeldLease | None) -> None:
    """Swaps two directories; the new one gets the lease first, so that there is one whenever it is seen.

    Each step is a rename; `repair_swap` finishes a swap that was cut off between them. Readers
    that opened a file of the old dataset can read it to its end.
    """
    output = os.path.realpath(output)  # a symbolic link to a dataset goes on pointing to it
    old, new = _sibling(output, "old"), staging_path(output)
    storage.remove_tree(old)
    with hold.held() if hold is not None else contextlib.nullcontext():
        if hold is not None:
            lease = storage.read_bytes(storage.join(output, hold.file))
            storage.write_bytes(storage.join(new, hold.file), lease, inside=new)
        if os.path.lexists(output):
            os.rename(output, old)
        try:
            _move_in(new, output)
        except FileNotFoundError:
            # A reader that found the output missing, or another attempt of this step, has finished the swap.
            if not os.path.lexists(output):
                os.rename(old, output)
    _discard(old)


def _move_in(new: str, output: str) -> None:
    """Renames the new directory to the output, where between two renames somebody may have taken a lease."""
    for _ in range(_ATTEMPTS):
        try:
            os.rename(new, output)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not _has_only_a_lease(output):
                raise
        storage.remove_tree(output)  # who took it finds out before anything is written
    os.rename(new, output)


def _has_only_a_lease(output: str) -> bool:
    """Whether a directory holds nothing but the lease of somebody who came while it was being replaced."""
    return os.path.isdir(output) and all(file.startswith(WRITER_JSON) for file in storage.list_files(output))


def is_being_replaced(output: str) -> bool:
    """Whether a local dataset is moved away and its successor is not there yet."""
    if storage.is_remote(output):
        return False
    output = os.path.realpath(output)
    moved = os.path.isdir(_sibling(output, "old"))
    return moved and (not os.path.lexists(output) or _has_only_a_lease(output))


def repair_swap(output: str) -> None:
    """Finishes or undoes a swap that was cut off. Every command calls it on its dataset first."""
    if storage.is_remote(output):
        return
    output = os.path.realpath(output)
    old, new = _sibling(output, "old"), staging_path(output)
    if not os.path.isdir(old):
        return
    if os.path.lexists(output) and is_being_replaced(output):
        try:
            check_free(output, file=WRITER_JSON)
        except EngineError:
            return  # somebody is about to see that the output is not free
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
    """Removes a directory that nothing points to any more, as far as that is possible."""
    with contextlib.suppress(OSError):
        storage.remove_tree(directory)
