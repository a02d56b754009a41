"""Other storages that Beam supports (hdfs://, ...), through its FileSystems."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from shardwright.schemas.errors import EngineError, ShardwrightError, UsageError, words_of
from shardwright.schemas.image_ref import printable
from shardwright.schemas.missing_packages import needed_by
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.storage.stored_object import ObjectTooLarge, StoredObject

_COPY_BYTES = 1 << 20


def _filesystems() -> Any:
    with needed_by("A storage other than gs://, s3:// and az://"):
        from apache_beam.io.filesystems import FileSystems

    return FileSystems


@contextlib.contextmanager
def _translated_errors(doing: str, path: str) -> Iterator[None]:
    """Turns exceptions of a file system into one sentence, except for missing files."""
    try:
        yield
    except (ShardwrightError, FileNotFoundError):
        raise
    except Exception as error:
        with contextlib.suppress(Exception):
            if doing == "read" and not exists(path):
                raise FileNotFoundError(errno.ENOENT, "no such object", path) from error
        if isinstance(error.__context__, FileNotFoundError):
            raise error.__context__ from None
        detail = words_of(error).rstrip(".")
        raise EngineError(
            f"Cannot {doing} {printable(path)}: {detail}; check its name, your "
            "credentials and permissions, then run again with --resume."
        ) from error


def read_bytes(path: str, version: str = "", limit: int = -1) -> bytes:
    """Reads a whole file; these file systems keep one version only.

    Raises:
      ObjectTooLarge: if the file has more bytes than the limit; -1 is none.
    """
    with _translated_errors("read", path), _filesystems().open(path, compression_type="uncompressed") as file:
        if limit < 0:
            return bytes(file.read())
        data = bytes(file.read(limit + 1))
    if len(data) > limit:
        raise ObjectTooLarge
    return data


def read_range(path: str, offset: int, length: int, size: int = -1, version: str = "") -> bytes:
    """Reads a range of a file; these file systems do not state a version to compare."""
    with _translated_errors("read", path), _filesystems().open(path, compression_type="uncompressed") as file:
        file.seek(offset)
        return bytes(file.read(length))


def exists(path: str) -> bool:
    """Returns whether a file is there."""
    with _translated_errors("look for", path):
        return bool(_filesystems().exists(path))


def write_bytes(path: str, data: bytes) -> None:
    """Writes a file that appears whole or not at all."""
    with _appearing_whole(path) as file:
        file.write(data)


def read_with_etag(path: str) -> tuple[bytes, str] | None:
    """Raises an error: these file systems do not support conditional requests."""
    raise UsageError(
        f"{printable(path)}: versions need a local disk, gs://, s3:// or az://, which can switch from one "
        "version to the next in one step; choose an output there."
    )


def write_if_match(path: str, data: bytes, tag: str | None) -> bool:
    """Raises an error: these file systems do not support conditional requests."""
    raise AssertionError(read_with_etag(path))


def remove_if_match(path: str, tag: str) -> bool:
    """Raises an error: these file systems do not support conditional requests."""
    raise AssertionError(read_with_etag(path))


def move_into_place(temporary: str, path: str) -> None:
    """Uploads a finished local file and removes it."""
    with open(temporary, "rb") as source, _appearing_whole(path) as target:
        shutil.copyfileobj(source, target, _COPY_BYTES)
    os.unlink(temporary)


@contextlib.contextmanager
def _appearing_whole(path: str) -> Iterator[IO[bytes]]:
    """Opens a file for writing; if the storage has directories, an unfinished file has another name."""
    filesystems = _filesystems()
    with _translated_errors("write", path):
        place = path + ".tmp" if filesystems.get_filesystem(path).has_dirs() else path
        if place != path:
            filesystem, folder = filesystems.get_filesystem(path), path.rpartition("/")[0]
            if not filesystem.exists(folder):
                filesystem.mkdirs(folder)
        with filesystems.create(place, compression_type="uncompressed") as file:
            yield file
        if place != path:
            remove(path)
            filesystems.rename([place], [path])


@contextlib.contextmanager
def open_local(path: str) -> Iterator[IO[bytes]]:
    """Opens a local copy of a file."""
    with tempfile.TemporaryFile() as copy:
        with (
            _translated_errors("read", path),
            _filesystems().open(path, compression_type="uncompressed") as source,
        ):
            while chunk := source.read(_COPY_BYTES):
                copy.write(chunk)
                UNDERWAY.progress()
        copy.seek(0)
        yield copy


def list_objects(directory: str) -> Iterator[StoredObject]:
    """Yields the files below a directory; these file systems list all at once."""
    prefix = directory.rstrip("/") + "/"
    with _translated_errors("list", directory):
        matched = _filesystems().match([glob.escape(prefix) + "**"])[0].metadata_list
    for item in matched:
        yield StoredObject(item.path, item.size_in_bytes, str(item.last_updated_in_seconds or ""))


def stat(path: str) -> StoredObject | None:
    """Returns the storage's metadata of a file; None if there is no such file."""
    with _translated_errors("look for", path):
        for item in _filesystems().match([glob.escape(path)])[0].metadata_list:
            return StoredObject(item.path, item.size_in_bytes, str(item.last_updated_in_seconds or ""))
    return None


def modified_at(path: str) -> float | None:
    """Returns when a file was last written, in seconds since the epoch; None if there is none."""
    found = stat(path)
    return float(found.version) if found is not None and found.version else None


def copy(source: str, target: str) -> None:
    """Copies a file, on the servers if possible."""
    with _translated_errors("copy", source):
        _filesystems().copy([source], [target])


def remove(path: str) -> None:
    """Removes a file if it exists."""
    if exists(path):
        with _translated_errors("remove", path):
            _filesystems().delete([path])
