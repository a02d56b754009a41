"""Other storages that Beam supports (hdfs://, ...), through its FileSystems."""

from __future__ import annotations

import contextlib
import errno
import glob
import shutil
from collections.abc import Iterator, Mapping
from typing import IO, Any

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from shardwright.core.storage.faults import Fault
from shardwright.core.storage.local import unfinished
from shardwright.core.storage.store import ListedPage, ObjectTooLarge, RemoteStore, StoredObject
from shardwright.schemas.errors import EngineError, ShardwrightError, words_of


class BeamStore(RemoteStore):
    """Any scheme that Beam can open. Its file systems repeat requests themselves, and list all at once."""

    def connect(self, options: Mapping[str, Any]) -> Any:
        """Returns Beam's file systems, which know the options themselves."""
        return FileSystems

    @staticmethod
    def can_open(path: str) -> bool:
        """Returns whether Beam has a file system for a path."""
        try:
            FileSystems.get_filesystem(path)
        except ValueError:
            return False
        return True

    def fault(self, doing: str, path: str, error: Exception) -> Fault | None:
        """Explains an exception of a file system, except for a missing file."""
        if isinstance(error, ShardwrightError | FileNotFoundError | ObjectTooLarge | ModuleNotFoundError):
            return None
        missing = FileNotFoundError(errno.ENOENT, "no such object", path)
        with contextlib.suppress(Exception):
            if doing == "read" and not self.client().exists(path):
                return Fault(missing)
        if isinstance(error.__context__, FileNotFoundError):
            return Fault(missing)
        detail = words_of(error).rstrip(".")
        return Fault(
            EngineError(
                f"Cannot {doing} {path}: {detail}; check its name, your credentials and "
                "permissions, then run again with --resume."
            )
        )

    def _open(self, path: str) -> Any:
        return self.client().open(path, compression_type="uncompressed")

    def list_pages(self, directory: str, deep: bool, token: str) -> Iterator[ListedPage]:
        """Yields one page, for which all files below a directory are listed."""
        prefix = directory.rstrip("/") + "/"
        matched = self.client().match([glob.escape(prefix) + "**"])[0].metadata_list
        files = {item.path.removeprefix(prefix): _stored(item) for item in matched}
        folders = {name.partition("/")[0] for name in files if "/" in name and not deep}
        yield ListedPage([item for name, item in files.items() if deep or "/" not in name], [*folders], "")

    def read(self, path: str, version: str = "", limit: int = -1) -> bytes:
        """Reads a file; these file systems keep one version only."""
        with self._open(path) as file:
            data = bytes(file.read(limit + 1) if limit >= 0 else file.read())
        if 0 <= limit < len(data):
            raise ObjectTooLarge
        return data

    def read_range(self, path: str, offset: int, length: int, size: int = -1, version: str = "") -> bytes:
        """Reads a range of a file; these file systems do not state a version to compare."""
        with self._open(path) as file:
            file.seek(offset)
            return bytes(file.read(length))

    def write_if(self, path: str, data: bytes, version: str | None) -> bool:
        """Raises an error: these file systems do not support conditional requests."""
        raise NotImplementedError

    def upload(self, file: IO[bytes], path: str) -> None:
        """Writes an open file; if the storage has directories, under another name until it is finished."""
        place = unfinished(path) if self._make_folder(path) else path
        file.seek(0)
        with self.client().create(place, compression_type="uncompressed") as target:
            shutil.copyfileobj(file, target)
        if place != path:
            self.delete(path)
            self.client().rename([place], [path])

    def _make_folder(self, path: str) -> bool:
        """Makes the folder of a file; returns false if the storage has none."""
        filesystem, folder = self.client().get_filesystem(path), path.rpartition("/")[0]
        if not filesystem.has_dirs():
            return False
        if not filesystem.exists(folder):
            with contextlib.suppress(BeamIOError):  # another worker was faster; else the next request fails
                filesystem.mkdirs(folder)
        return True

    def copy(self, source: str, target: str) -> bool:
        """Copies a file, on the servers if possible."""
        if self._make_folder(target):
            self.delete(target)  # HDFS replaces no file
        self.client().copy([source], [target])
        return True

    def delete(self, path: str) -> None:
        """Removes a file if it exists."""
        if self.client().exists(path):
            self.client().delete([path])

    def stat(self, path: str) -> StoredObject:
        """Returns the metadata of a file."""
        for item in self.client().match([glob.escape(path)])[0].metadata_list:
            return _stored(item)
        raise FileNotFoundError(errno.ENOENT, "no such object", path)


def _stored(item: Any) -> StoredObject:
    modified = float(item.last_updated_in_seconds or 0) or None
    return StoredObject(
        item.path, item.size_in_bytes, str(item.last_updated_in_seconds or ""), modified=modified
    )
