"""Files on any storage: each function calls the module for the storage of its path."""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import google_crc32c

from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.plain_text import check_utf8
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.storage import beam_files, local
from shardwright.transforms.storage.deadlines import LAST_TRY_SECONDS, at_most
from shardwright.transforms.storage.faults import changed, fault, translated_errors
from shardwright.transforms.storage.listings import ListedPage, folder_names, folder_prefix, objects_of
from shardwright.transforms.storage.local import local_version, read_fully, unfinished
from shardwright.transforms.storage.range_listing import pages_in_ranges
from shardwright.transforms.storage.stored_object import NoConditions, ObjectTooLarge, StoredObject

__all__ = [
    "LAST_TRY_SECONDS",
    "NoConditions",
    "ObjectTooLarge",
    "StoredObject",
    "alone_with",
    "at_most",
    "can_read_ahead",
    "changed",
    "checksums_of",
    "copy_files",
    "crc32c_of",
    "exists",
    "fault",
    "has_folders",
    "is_remote",
    "is_temporary",
    "join",
    "knows_conditions",
    "link_files",
    "list_files",
    "list_folders",
    "list_level",
    "list_objects",
    "local_version",
    "make_dirs",
    "modified_at",
    "open_local",
    "publish",
    "read_at_most",
    "read_bytes",
    "read_fully",
    "read_head",
    "read_range",
    "read_text",
    "read_version",
    "read_with_etag",
    "reading_ahead",
    "remove",
    "remove_files",
    "remove_if_match",
    "remove_tree",
    "require_known",
    "sha256_of",
    "size_of",
    "stat",
    "temporary_path",
    "translated_errors",
    "unfinished",
    "use_options",
    "write_bytes",
    "write_if_match",
]  # fmt: skip

_COPY_BYTES = 1 << 20
_REQUESTS_AT_ONCE = 16
#: Scheme -> module of a storage that can list a single level, read the listed version of an object, and share
#: connections. A module is imported when a path needs it, since the clients of HTTP take as long as NumPy.
_OBJECT_STORES: Mapping[str, str] = {"gs": "gcs", "s3": "s3", "az": "azure"}
#: Schemes of storages that can begin a listing after any name.
_RANGE_SCHEMES = ("gs", "s3")
_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp\Z")


def is_remote(path: str) -> bool:
    """Returns whether a path has a scheme such as `gs://`."""
    return "://" in path


def _scheme(path: str) -> str:
    """Returns the scheme of a path, such as `gs`; empty for a local path."""
    scheme, found, _ = path.partition("://")
    return scheme if found else ""


def _store(path: str) -> ModuleType:
    """Returns the module for the storage of a path."""
    if not is_remote(path):
        return local
    name = _OBJECT_STORES.get(_scheme(path))
    return _imported(name) if name else beam_files


@cache
def _imported(name: str) -> ModuleType:
    return import_module(f"{__name__}.{name}")


def _tagging(path: str) -> ModuleType:
    """Returns the module for conditional requests to the storage of a path."""
    return _imported("gcs_etags") if _scheme(path) == "gs" else _store(path)


def join(base: str, *parts: str) -> str:
    """Joins path segments with `/`; an empty first segment is ignored."""
    return "/".join([base.rstrip("/"), *parts] if base else parts)


def use_options(beam_options: Any) -> None:
    """Applies Beam's options (credentials, endpoints) to the storage access of this process."""
    from apache_beam.io.filesystems import FileSystems

    FileSystems.set_options(beam_options)


def require_known(option: str, path: str) -> None:
    """Checks that the scheme of a path is supported.

    Raises:
      UsageError: if it is not; the message names the option.
    """
    scheme = path.partition("://")[0]
    if scheme in _OBJECT_STORES and is_remote(path):
        if not path.split("/")[2]:
            kind = "container" if scheme == "az" else "bucket"
            raise UsageError(
                f"{option} {printable(path)} names no {kind}; write {scheme}://{kind.upper()}/..."
            )
    elif is_remote(path):
        from apache_beam.io.filesystems import FileSystems

        try:
            FileSystems.get_filesystem(path)
        except ValueError:
            raise UsageError(
                f"{option} {printable(path)}: there is no storage for {path.partition('://')[0]}://; "
                "write a path or gs://BUCKET/..."
            ) from None


def read_text(option: str, path: str, content: str = "") -> str:
    """Reads a text file that an option names.

    Args:
      option: the option.
      path: path of the file.
      content: what the file has to contain, for the message if it is missing: `a class name on each line`.

    Raises:
      UsageError: if it cannot be read or is not UTF-8.
    """
    require_known(option, path)
    try:
        # A shell's `<(...)` is a pipe.
        data = read_bytes(path) if is_remote(path) else Path(path).read_bytes()
        check_utf8(f"{option} {path}", data)
        return data.decode("utf-8-sig")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        todo = f"name a file with {content}" if content else "check the path"
        raise UsageError(f"{option} {path}: {reason}; {todo}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{option} {path} is not UTF-8 text; save it as UTF-8.") from None


def read_bytes(path: str) -> bytes:
    """Reads a whole file; raises FileNotFoundError or another OSError."""
    return bytes(_store(path).read_bytes(path))


def read_at_most(path: str, limit: int) -> bytes:
    """Reads a whole remote file, unless it is too large.

    Args:
      path: path of the file.
      limit: largest size to read in bytes.

    Raises:
      ObjectTooLarge: if the file is larger; little more than the limit is in memory by then.
      FileNotFoundError: or another OSError.
    """
    return bytes(_store(path).read_bytes(path, limit=limit))


def read_version(path: str, version: str) -> bytes:
    """Reads a remote file in the listed version; the caller compares the checksum.

    Raises:
      FileNotFoundError: if that version no longer exists.
    """
    options = {"checked": False} if _scheme(path) == "gs" else {}
    return bytes(_store(path).read_bytes(path, version, **options))


def can_read_ahead(path: str) -> bool:
    """Returns whether `reading_ahead` requests files in the storage of a path."""
    return _scheme(path) == "gs" and bool(_store(path).can_read_ahead())


def reading_ahead(objects: Iterable[tuple[str, str]], limit: int = -1) -> AbstractContextManager[None]:
    """Returns a context manager that requests files which this thread will read in its block.

    Their bytes arrive while the first ones are processed. Only for `gs://`; other storages have clients of
    their own.

    Args:
      objects: paths and versions of files, for `read_version`, or for `read_at_most` if the version is empty.
      limit: limit of `read_at_most`; -1 for files that `read_bytes` will read.
    """
    found = [item for item in objects if _scheme(item[0]) == "gs"]
    if not found:
        return contextlib.nullcontext()
    ahead: AbstractContextManager[None] = _imported("gcs").reading_ahead(found, limit)
    return ahead


def crc32c_of(data: bytes) -> str:
    """Returns the crc32c of bytes as storages write it: base64 of the big-endian value."""
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


def read_range(path: str, offset: int, length: int, size: int = -1, version: str = "") -> bytes:
    """Reads a range of a file; the result is shorter at the end of the file.

    Args:
      path: path of the file.
      offset: offset of the range.
      length: length of the range in bytes.
      size: size of the file when it was listed; -1 if unknown.
      version: version of the file when it was listed; empty if unknown.

    Raises:
      EngineError: if the file changed since it was listed.
      FileNotFoundError: or another OSError.
    """
    data = bytes(_store(path).read_range(path, offset, length, size, version))
    UNDERWAY.progress()
    return data


def read_head(path: str, size: int) -> bytes:
    """Reads the first bytes of a file, or all if it is shorter."""
    return read_range(path, 0, size)


def exists(path: str) -> bool:
    """Returns whether a file (or a local directory) exists."""
    return bool(_store(path).exists(path))


def stat(path: str) -> StoredObject | None:
    """Returns the storage's metadata of a file; None if there is no such file."""
    found: StoredObject | None = _store(path).stat(path)
    return found


def size_of(path: str) -> int:
    """Returns the size of a file in bytes; raises FileNotFoundError or another OSError."""
    if not is_remote(path):
        return os.path.getsize(path)
    found = stat(path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "no such object", path)
    return found.size


def modified_at(path: str) -> float | None:
    """Returns when a file was last written, by the clock of its storage.

    Returns:
      Seconds since the epoch; None if there is no such file.
    """
    found: float | None = _store(path).modified_at(path)
    return found


def make_dirs(path: str, inside: str = "") -> None:
    """Makes a directory and its parents; does nothing on object storage.

    Args:
      path: path of the directory.
      inside: parent directory that must exist; empty to make all of them.

    Raises:
      FileNotFoundError: if `inside` is missing on a disk.
    """
    if not is_remote(path):
        local.make_dirs(path, inside)


def write_bytes(path: str, data: bytes, inside: str = "") -> None:
    """Writes a file atomically: it appears complete or not at all.

    Args:
      path: path of the file.
      data: its content.
      inside: parent directory that must exist; empty to make all of them.

    Raises:
      FileNotFoundError: if `inside` is missing on a disk.
    """
    if inside and not is_remote(path):
        local.write_bytes(path, data, inside)
    else:
        _store(path).write_bytes(path, data)


def alone_with(path: str) -> AbstractContextManager[None]:
    """Blocks conditional writes to a file while the block runs; only on a disk.

    Raises:
      FileNotFoundError: if its directory is missing on a disk.
      EngineError: if another process does not release the lock.
    """
    return contextlib.nullcontext() if is_remote(path) else local.alone_in(os.path.dirname(path) or ".")


def knows_conditions(path: str) -> bool:
    """Returns whether the kind of a path's storage supports conditional requests."""
    return not is_remote(path) or has_folders(path)


def read_with_etag(path: str) -> tuple[bytes, str] | None:
    """Reads a whole file, and a tag of its current state.

    Returns:
      The content and the tag; None if there is no such file.

    Raises:
      UsageError: if the storage does not support conditional writes.
    """
    found: tuple[bytes, str] | None = _tagging(path).read_with_etag(path)
    return found


def write_if_match(path: str, data: bytes, tag: str | None) -> bool:
    """Writes a file if it was not written since it was read; of several concurrent writers, one succeeds.

    Args:
      path: path of the file.
      data: its new content.
      tag: tag of the file when it was read; None if there was no such file.

    Returns:
      Whether the file holds the new content. A file that already holds the same bytes counts as written,
      because a request whose answer was lost is sent again and finds its own result.
    """
    if _tagging(path).write_if_match(path, data, tag):
        return True
    found = read_with_etag(path)
    return found is not None and found[0] == data


def remove_if_match(path: str, tag: str) -> bool:
    """Removes a file if it was not written since it was read.

    Returns:
      Whether the file is gone.
    """
    return bool(_tagging(path).remove_if_match(path, tag))


def move_into_place(temporary: str, path: str) -> None:
    """Moves a finished local file to its final path, by a rename or one upload."""
    _store(path).move_into_place(temporary, path)


def temporary_path(directory: str, name: str, existing: bool = False) -> str:
    """Returns a new path for a temporary file that `move_into_place` will move into a directory.

    It is in the directory's own `_work/` if a rename can move it, else on this machine.

    Args:
      directory: directory for the finished file.
      name: name of the file.
      existing: whether the directory must already exist.

    Raises:
      FileNotFoundError: if the directory must exist and is missing.
    """
    unique = f"{name}.{uuid.uuid4().hex}.tmp"
    if is_remote(directory):
        return os.path.join(tempfile.gettempdir(), unique)
    work = join(directory, "_work")
    make_dirs(work, directory if existing else "")
    return join(work, unique)


def is_temporary(path: str) -> bool:
    """Returns whether `temporary_path` or `write_bytes` generated a path."""
    return bool(_TEMPORARY.search(path))


@contextlib.contextmanager
def open_local(path: str) -> Iterator[IO[bytes]]:
    """Opens a file for random access; a remote file is copied to a temporary file first."""
    with _store(path).open_local(path) as file:
        yield file


def sha256_of(file: IO[bytes]) -> str:
    """Returns the sha256 hex digest of an open file from its position to its end."""
    digest = hashlib.sha256()
    while chunk := file.read(_COPY_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def checksums_of(file: IO[bytes]) -> tuple[str, str]:
    """Returns sha256 (hex) and crc32c (as storages write it) of an open file from its position to its end."""
    digest, crc = hashlib.sha256(), google_crc32c.Checksum()
    while chunk := file.read(_COPY_BYTES):
        digest.update(chunk)
        crc.update(chunk)
    return digest.hexdigest(), base64.b64encode(crc.digest()).decode()


def list_files(directory: str) -> list[str]:
    """Returns the paths of all files below a directory, relative to it; empty if it is missing."""
    if not is_remote(directory):
        return local.list_files(directory)
    prefix = directory.rstrip("/") + "/"
    return sorted(item.path.removeprefix(prefix) for item in list_objects(directory))


def list_objects(directory: str, deep: bool = True, requests: int = 1) -> Iterator[StoredObject]:
    """Yields the storage's metadata of all files below a remote directory.

    Args:
      directory: the remote directory.
      deep: whether to include subfolders; must be true if folders cannot be listed (`has_folders`).
      requests: number of requests at once if the directory is large; with several, files come in any order.
    """
    if requests > 1 and has_folders(directory):
        found = objects_of(_pages(directory, deep, requests))
    else:
        found = _store(directory).list_objects(directory, **({} if deep else {"deep": False}))
    yield from UNDERWAY.passing(found)


def _pages(directory: str, deep: bool, requests: int) -> Iterator[ListedPage]:
    """Yields the pages of a listing in any order; a folder may be on several."""
    store = _store(directory)
    if _scheme(directory) not in _RANGE_SCHEMES:
        yield from store.list_pages(directory, deep)
        return
    root = "/".join([*directory.split("/")[:3], ""])
    yield from pages_in_ranges(directory, root, partial(store.list_pages, directory, deep), requests)


def has_folders(directory: str) -> bool:
    """Returns whether the folders of a remote directory can be listed without their contents."""
    return _scheme(directory) in _OBJECT_STORES


def list_level(directory: str, most: int) -> tuple[list[str], list[str] | None]:
    """Lists the files and folders directly in a remote directory, a page at a time.

    Args:
      directory: the remote directory, which must be able to list folders (`has_folders`).
      most: number of files after which the listing ends.

    Returns:
      The names of the files, and those of the folders, sorted; None for the folders if the listing ended
      before its last page.
    """
    prefix = directory.rstrip("/") + "/"
    files: list[str] = []
    read: list[ListedPage] = []
    for page in UNDERWAY.passing(_pages(directory, False, 1)):
        files += [item.path.removeprefix(prefix) for item in objects_of([page])]
        read.append(page._replace(objects=[]))
        if len(files) >= most and page.token:
            return files[:most], None
    return files[:most], folder_names(read, folder_prefix(_store(directory).split_path(directory)[1]))


def list_folders(directory: str) -> list[str]:
    """Returns the names of the folders directly in a remote directory."""
    prefix = folder_prefix(_store(directory).split_path(directory)[1])
    return folder_names(_pages(directory, False, _REQUESTS_AT_ONCE), prefix)


def copy_files(source: str, target: str, files: Sequence[str]) -> None:
    """Copies remote files on the servers; paths are relative to both directories."""
    copy = _store(target).copy
    _at_once(lambda file: copy(join(source, file), join(target, file)), files)


def link_files(source: str, target: str, files: Sequence[str], existing: bool = False) -> None:
    """Links or copies files into another directory of the same storage, without reading them if possible.

    Local files get a second name (hard links), or are copied if the disk has none. Repeating the call
    changes nothing.

    Args:
      source: directory that holds the files.
      target: directory for the links or copies; subdirectories are made.
      files: paths relative to both directories.
      existing: whether the target directory must already exist.

    Raises:
      FileNotFoundError: if the target must exist and is missing, or a file is missing.
    """
    if is_remote(target):
        copy_files(source, target, files)
        return
    for file in files:
        local.link(join(source, file), join(target, file), target if existing else "")


def remove_files(directory: str, files: Sequence[str]) -> None:
    """Removes files; paths are relative to the directory."""
    _at_once(lambda file: remove(join(directory, file)), files)


def _at_once(function: Callable[[str], None], files: Sequence[str]) -> None:
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as executor:
        for _ in executor.map(function, files):
            pass


def remove(path: str) -> None:
    """Removes a file if it exists."""
    _store(path).remove(path)


def remove_tree(directory: str) -> None:
    """Removes a directory and its contents, if it exists."""
    if is_remote(directory):
        remove_files(directory, list_files(directory))
    else:
        local.remove_tree(directory)
