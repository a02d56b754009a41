"""Spool files: what cannot be read at random, unpacked once for the workers of a job."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from shardwright.schemas.dataset import WORK_DIR
from shardwright.transforms import storage

_DIRECTORY = "spool"
_TREE = "tree.json"


@dataclass(frozen=True)
class Spool:
    """A directory for spool files that all workers can read, removed when the job is done.

    Attributes:
      directory: of the dataset that is being built, or a temporary one; it exists.
    """

    directory: str

    @property
    def path(self) -> str:
        """Where the spool files lie."""
        return storage.join(self.directory, WORK_DIR, _DIRECTORY)

    @property
    def tree_path(self) -> str:
        """A file in which a worker says what the input holds, for the process that shows it."""
        return storage.join(self.path, _TREE)

    def fill(self, identity: str, write: Callable[[IO[bytes]], None]) -> str:
        """Returns the spool file of a source, written if it is not there yet.

        Its name says nothing but what it was made from, so a second attempt, or a second run,
        finds what the first has finished, and no name from an archive ever becomes a file's.

        Args:
          identity: the source's path and state.
          write: writes the unpacked bytes; what it raises is passed on and leaves nothing behind.

        Raises:
          EngineError: if the spool cannot be written.
        """
        name = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        path = storage.join(self.path, name)
        with storage.translated_errors("spool to", path):
            if storage.exists(path):
                return path
            storage.make_dirs(self.path, inside=self.directory)
            temporary = storage.temporary_path(self.directory, name, existing=True)
            try:
                with open(temporary, "wb") as file:
                    write(file)
                storage.publish(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        return path

    def remove(self) -> None:
        """Removes all spool files."""
        storage.remove_tree(self.path)
