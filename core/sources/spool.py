"""Spool files: files without random access, unpacked once for all workers of a job."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.dataset import WORK_DIR

_DIRECTORY = "spool"


@dataclass(frozen=True)
class Spool:
    """A directory for spool files that all workers can read, removed when the job is done.

    Attributes:
      directory: Existing directory, which is the dataset that is being built or a temporary one.
    """

    directory: str

    @property
    def path(self) -> str:
        """Path of the folder with the spool files."""
        return storage.join(self.directory, WORK_DIR, _DIRECTORY)

    def fill(self, identity: str, place: str, write: Callable[[IO[bytes]], object]) -> ByteRange:
        """Returns all bytes of a spool file, which is written if it does not exist.

        The file name is a hash of the source's identity. A second attempt or run thus reuses finished
        files, and names from archives never become file names.

        Args:
          identity: Path and state of the source.
          place: Name of the source, for messages.
          write: Function that writes the unpacked bytes, and reports progress (`UNDERWAY.progress`) for each
            piece. If it raises, no file remains.

        Raises:
          EngineError: If the spool file cannot be written.
        """
        name = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        path = storage.join(self.path, name)
        with storage.translated_errors("spool to", path):
            if not storage.exists(path):
                storage.make_dirs(self.path, inside=self.directory)
                temporary = storage.temporary_path(self.directory, name, existing=True)
                with storage.removed_on_failure(temporary):
                    with UNDERWAY.working_on(place, "unpack"), open(temporary, "wb") as file:
                        write(file)
                    storage.move_into_place(temporary, path)
            size = storage.size_of(path)
            return ByteRange(path, 0, size, file_size=size)

    def remove(self) -> None:
        """Removes all spool files."""
        storage.remove_tree(self.path)
