"""Files on any storage: each function calls the store for the scheme of its path."""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import IO, Any, TypeVar

import google_crc32c

from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.storage import local
from shardwright.core.storage.faults import Damaged, Result, current_operation
from shardwright.core.storage.faults import brief as brief
from shardwright.core.storage.faults import changed as changed
from shardwright.core.storage.faults import fault as fault
from shardwright.core.storage.faults import is_impossible as is_impossible
from shardwright.core.storage.faults import translated_errors as translated_errors
from shardwright.core.storage.local import local_version as local_version
from shardwright.core.storage.local import read_fully as read_fully
from shardwright.core.storage.local import removed_on_failure as removed_on_failure
from shardwright.core.storage.local import unfinished as unfinished
from shardwright.core.storage.store import PART_BYTES, RemoteStore, Store
from shardwright.core.storage.store import NoConditions as NoConditions
from shardwright.core.storage.store import ObjectTooLarge as ObjectTooLarge
from shardwright.core.storage.store import StoredObject as StoredObject
from shardwright.schemas.errors import UsageError
from shardwright.schemas.missing_packages import needed_by
from shardwright.schemas.plain_text import UTF16, is_utf16

Item = TypeVar("Item")

_COPY_BYTES = 1 << 20
_REQUESTS_AT_ONCE = 16
#: Number of attempts to read an object that is written between the request for its state and its reading.
_ATTEMPTS_TO_MEET = 20
#: Scheme -> module and class of its store. A module is imported when a path needs it, since the clients take
#: long, and Beam is needed only for other schemes.
_STORES = {
    "": f"{__name__}.local:LocalStore",
    "gs": f"{__name__}.gcs:GcsStore",
    "s3": f"{__name__}.s3:S3Store",
    "az": f"{__name__}.azure:AzureStore",
}
_OTHERS = "shardwright.transforms.beam_files:BeamStore"
_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp\Z")


def is_remote(path: str) -> bool:
    """Returns whether a path has a scheme such as `gs://`."""
    return "://" in path


def _scheme(path: str) -> str:
    """Returns the scheme of a path, such as `gs`; empty for a local path."""
    return path.partition("://")[0] if is_remote(path) else ""


@cache
def store_for(scheme: str) -> Any:
    """Returns the store for a scheme, which all threads share."""
    with needed_by(f"{scheme}://"):
        return resolve_name(_STORES.get(scheme, _OTHERS))()


def _run(doing: str, path: str, send: Callable[[RemoteStore], Result]) -> Result:
    """Calls a function that sends requests with the store of a path, as `Store.run` does.

    For a local path, the function may use only the methods of `Store`.
    """
    store = store_for(_scheme(path))
    result: Result = store.run(doing, path, lambda: send(store))
    return result


def join(base: str, *parts: str) -> str:
    """Joins path segments with `/`; an empty first segment is ignored."""
    return "/".join([base.rstrip("/"), *parts] if base else parts)


def require_known(option: str, path: str) -> None:
    """Checks that the scheme of a path is supported.

    Raises:
      UsageError: If it is not; the message names the option.
    """
    scheme = _scheme(path)
    if scheme not in _STORES and not store_for(scheme).can_open(path):
        raise UsageError(
            f"{option} {path}: there is no storage for {scheme}://; write a path or gs://BUCKET/..."
        )
    if scheme in _STORES and scheme and not path.split("/")[2]:
        kind = "container" if scheme == "az" else "bucket"
        raise UsageError(f"{option} {path} names no {kind}; write {scheme}://{kind.upper()}/...")


def check_utf8(option_and_file: str, data: bytes) -> None:
    """Checks that a text file is not in UTF-16.

    Files are read in parts that begin at any byte, which UTF-16 does not allow, so no reader supports it.

    Args:
      option_and_file: Option and name of the file, for the message.
      data: First bytes of the file.

    Raises:
      UsageError: If it is.
    """
    if is_utf16(data):
        raise UsageError(f"{option_and_file} is {UTF16}.")


def read_text(option: str, path: str, content: str = "") -> str:
    """Reads a text file that an option names.

    Args:
      option: The option.
      path: Path of the file.
      content: What the file has to contain, for the message if it is missing: `a class name on each line`.

    Raises:
      UsageError: If it cannot be read or is not UTF-8.
    """
    require_known(option, path)
    where = f"{option} {path}"
    try:
        # A shell's `<(...)` is a pipe.
        data = read_bytes(path) if is_remote(path) else Path(path).read_bytes()
        check_utf8(where, data)
        return data.decode("utf-8-sig")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        todo = f"name a file with {content}" if content else "check the path"
        raise UsageError(f"{where}: {reason}; {todo}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{where} is not UTF-8 text; save it as UTF-8.") from None


def read_bytes(path: str, version: str = "", limit: int = -1) -> bytes:
    """Reads a whole file.

    Args:
      path: Path of the file.
      version: Version of a remote file when it was listed, of which the caller compares the checksum; empty
        if unknown.
      limit: Largest size to read in bytes; -1 is none.

    Raises:
      ObjectTooLarge: If the file is larger; little more than the limit is in memory by then.
      FileNotFoundError: If the file, or that version of it, does not exist; or another OSError.
    """
    return _run("read", path, lambda store: store.read(path, version, limit))


def read_existing(path: str) -> bytes:
    """Reads a whole file that must exist.

    Raises:
      EngineError: If it does not, or the storage failed.
    """
    with translated_errors("read", path):
        return read_bytes(path)


def read_if_exists(path: str) -> bytes | None:
    """Reads a whole file; returns None if there is none.

    Raises:
      EngineError: If the storage failed.
    """
    with translated_errors("read", path):
        try:
            return read_bytes(path)
        except (FileNotFoundError, NotADirectoryError):
            return None


def crc32c_of(data: bytes) -> str:
    """Returns the crc32c of bytes as storages write it: base64 of the big-endian value."""
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


def read_range(path: str, offset: int, length: int, size: int = -1, version: str = "") -> bytes:
    """Reads a range of a file; the result is shorter at the end of the file.

    Args:
      path: Path of the file.
      offset: Offset of the range.
      length: Length of the range in bytes.
      size: Size of the file when it was listed; -1 if unknown.
      version: Version of the file when it was listed; empty if unknown.

    Raises:
      EngineError: If the file changed since it was listed.
      FileNotFoundError: Or another OSError.
    """
    if is_remote(path) and (length <= 0 or 0 <= size <= offset):
        return b""
    try:
        data = _run("read", path, lambda store: store.read_range(path, offset, length, size, version))
    except FileNotFoundError:
        if version and exists(path):
            raise changed(path) from None
        raise
    UNDERWAY.progress()
    return data


def read_head(path: str, size: int) -> bytes:
    """Reads the first bytes of a file, or all if it is shorter."""
    return read_range(path, 0, size)


def exists(path: str) -> bool:
    """Returns whether a file (or a local directory) exists."""
    return stat(path) is not None if is_remote(path) else os.path.lexists(path)


def stat(path: str) -> StoredObject | None:
    """Returns the storage's metadata of a file; None if there is no such file."""
    try:
        return _run("look for", path, lambda store: store.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def size_of(path: str) -> int:
    """Returns the size of a file in bytes; raises FileNotFoundError or another OSError."""
    return state_of(path).size


def state_of(path: str) -> StoredObject:
    """Returns the storage's metadata of a file; raises FileNotFoundError or another OSError."""
    state = stat(path)
    if state is None:
        raise FileNotFoundError(errno.ENOENT, "no such object", path)
    return state


def modified_at(path: str) -> float | None:
    """Returns when a file was last written, by the clock of its storage.

    Returns:
      Seconds since the epoch; None if there is no such file.
    """
    state = stat(path)
    return state and state.modified


def make_dirs(path: str, inside: str = "") -> None:
    """Makes a directory and its parents; does nothing on object storage.

    Args:
      path: Path of the directory.
      inside: Parent directory that must exist; empty to make all of them.

    Raises:
      FileNotFoundError: If `inside` is missing on a disk.
    """
    if not is_remote(path):
        local.make_dirs(path, inside)


def write_bytes(path: str, data: bytes, inside: str = "") -> None:
    """Writes a file atomically: it appears complete or not at all.

    Args:
      path: Path of the file.
      data: Its content.
      inside: Parent directory that must exist; empty to make all of them.

    Raises:
      FileNotFoundError: If `inside` is missing on a disk.
    """
    _run("write", path, lambda store: store.write(path, data, inside))


def alone_with(path: str) -> AbstractContextManager[None]:
    """Blocks conditional writes to a file while the block runs; only on a disk.

    Raises:
      FileNotFoundError: If its directory is missing on a disk.
      EngineError: If another process does not release the lock.
    """
    return contextlib.nullcontext() if is_remote(path) else local.alone_in(os.path.dirname(path) or ".")


def knows_conditions(path: str) -> bool:
    """Returns whether the kind of a path's storage supports conditional requests."""
    return _scheme(path) in _STORES


def _require_conditions(path: str) -> None:
    if not knows_conditions(path):
        raise UsageError(
            f"{path}: versions need a local disk, gs://, s3:// or az://, which can switch from "
            "one version to the next in one step; choose an output there."
        )


def read_with_etag(path: str) -> tuple[bytes, str] | None:
    """Reads a whole file, and a tag of its current state.

    Returns:
      The content and the tag; None if there is no such file.

    Raises:
      UsageError: If the storage does not support conditional writes.
    """
    _require_conditions(path)
    for _ in range(_ATTEMPTS_TO_MEET):
        state = stat(path)
        if state is None:
            return None
        with contextlib.suppress(FileNotFoundError):  # written in between
            data = read_bytes(path, state.version)
            if not is_remote(path):
                return data, local.digest_of(data)
            if state.crc32c in ("", crc32c_of(data)):
                return data, state.version
    raise changed(path)


def write_if_match(path: str, data: bytes, tag: str | None) -> bool:
    """Writes a file if it was not written since it was read; of several concurrent writers, one succeeds.

    Args:
      path: Path of the file.
      data: Its new content.
      tag: Tag of the file when it was read; None if there was no such file.

    Returns:
      Whether the file holds the new content. A file that already holds the same bytes counts as written,
      because a request whose answer was lost is sent again and finds its own result.
    """
    _require_conditions(path)
    if _run("write", path, lambda store: store.write_if(path, data, tag)):
        return True
    entry = read_with_etag(path)
    return entry is not None and entry[0] == data


def move_into_place(temporary: str, path: str) -> None:
    """Moves a finished local file to its final path, by a rename or one upload."""
    with open(temporary, "rb") as file:
        if not is_remote(path):
            os.fsync(file.fileno())
            os.replace(temporary, path)
            return
        _run("write", path, lambda store: store.upload(file, path))
    os.unlink(temporary)


def temporary_path(directory: str, name: str, existing: bool = False) -> str:
    """Returns a new path for a temporary file that `move_into_place` will move into a directory.

    It is in the directory's own `_work/` if a rename can move it, else on this machine.

    Args:
      directory: Directory for the finished file.
      name: Name of the file.
      existing: Whether the directory must already exist.

    Raises:
      FileNotFoundError: If the directory must exist and is missing.
    """
    if is_remote(directory):
        return unfinished(os.path.join(tempfile.gettempdir(), name))
    work = join(directory, "_work")
    make_dirs(work, directory if existing else "")
    return unfinished(join(work, name))


def is_temporary(path: str) -> bool:
    """Returns whether `temporary_path` or `write_bytes` generated a path."""
    return bool(_TEMPORARY.search(path))


@contextlib.contextmanager
def open_local(path: str, by_name: bool = False) -> Iterator[IO[bytes]]:
    """Opens a file for random access; a remote file is copied to a temporary file first.

    The copy is read in parts, of one version. A part that breaks off is read again, and the others stay.

    Args:
      path: The file.
      by_name: Whether another process opens the copy by the name of the file. Without it, nothing can be left
        behind if this process is killed.

    Raises:
      EngineError: If the file changes while it is copied, or does not match its checksum.
      FileNotFoundError: Or another OSError.
    """
    if not is_remote(path):
        with local.open_local(path) as file:
            yield file
        return
    state = state_of(path)
    with tempfile.NamedTemporaryFile() if by_name else tempfile.TemporaryFile() as copy:
        _run("read", path, lambda store: _copy_to(copy, state, store))
        copy.seek(0)
        yield copy


def _copy_to(copy: IO[bytes], source: StoredObject, store: Store) -> None:
    """Continues a copy of an object where it ends.

    Raises:
      Damaged: If it does not match the checksum of the storage; the copy is empty then.
    """
    while (position := copy.tell()) < source.size:
        part = store.read_range(source.path, position, PART_BYTES, source.size, source.version)
        if not part:
            raise changed(source.path)
        copy.write(part)
        current_operation().reached(position + len(part))
    if source.crc32c:
        copy.seek(0)
        if checksums_of(copy)[1] != source.crc32c:
            copy.seek(0)
            copy.truncate()
            raise Damaged


def sha256_of(file: IO[bytes]) -> str:
    """Returns the sha256 hex digest of an open file from its position to its end."""
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def checksums_of(file: IO[bytes]) -> tuple[str, str]:
    """Returns sha256 (hex) and crc32c (as storages write it) of an open file from its position to its end."""
    digest, crc = hashlib.sha256(), google_crc32c.Checksum()
    while chunk := file.read(_COPY_BYTES):
        digest.update(chunk)
        crc.update(chunk)
    return digest.hexdigest(), base64.b64encode(crc.digest()).decode()


def list_files(directory: str) -> list[str]:
    """Returns the paths of all files below a directory, relative to it; empty if it is missing."""
    prefix = directory.rstrip("/") + "/"
    return sorted(item.path.removeprefix(prefix) for item in list_objects(prefix))


def list_objects(directory: str, deep: bool = True) -> Iterator[StoredObject]:
    """Yields the storage's metadata of all files below a directory.

    Args:
      directory: The directory.
      deep: Whether to include subfolders.
    """
    for page in store_for(_scheme(directory)).pages(directory, deep):
        UNDERWAY.progress()
        yield from page.objects


def list_level(directory: str, most: int) -> tuple[list[str], list[str] | None]:
    """Lists the files and folders directly in a remote directory, a page at a time.

    Args:
      directory: The remote directory.
      most: Number of files after which the listing ends.

    Returns:
      The names of the files and the names of the folders, sorted; None for the folders if the listing ended
      before its last page.
    """
    prefix = directory.rstrip("/") + "/"
    files: list[str] = []
    folders: list[str] = []
    for page in store_for(_scheme(directory)).pages(prefix, False):
        UNDERWAY.progress()
        files += [item.path.removeprefix(prefix) for item in page.objects]
        folders += page.folders
        if len(files) >= most and page.token:
            return files[:most], None
    return files[:most], sorted(folders)


def list_folders(directory: str) -> list[str]:
    """Returns the names of the folders directly in a remote directory."""
    return list_level(directory, sys.maxsize)[1] or []


def _copy(source: str, target: str) -> None:
    if not _run("copy", source, lambda store: store.copy(source, target)):
        with open_local(source) as file:
            _run("write", target, lambda store: store.upload(file, target))


def link_files(source: str, target: str, files: Sequence[str], existing: bool = False) -> None:
    """Links or copies files into another directory of the same storage, without reading them if possible.

    Local files get a second name (hard links), or are copied if the disk has none. Remote files are copied,
    on the servers if possible. Repeating the call changes nothing.

    Args:
      source: Directory that holds the files.
      target: Directory for the links or copies; subdirectories are made.
      files: Paths relative to both directories.
      existing: Whether the target directory must already exist.

    Raises:
      FileNotFoundError: If the target must exist and is missing, or a file is missing.
    """
    if is_remote(target):
        at_once(lambda file: _copy(join(source, file), join(target, file)), files)
        return
    for file in files:
        local.link(join(source, file), join(target, file), target if existing else "")


def remove_files(directory: str, files: Sequence[str]) -> None:
    """Removes files; paths are relative to the directory."""
    at_once(lambda file: remove(join(directory, file)), files)


def at_once(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Calls a function that waits for a storage for several items at once; returns the results in order."""
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as executor:
        return list(executor.map(function, items))


def remove(path: str) -> None:
    """Removes a file if it exists."""
    with contextlib.suppress(FileNotFoundError):
        _run("remove", path, lambda store: store.delete(path))


def remove_tree(directory: str) -> None:
    """Removes a directory and its contents, if it exists, but nothing that a symbolic link points to."""
    if is_remote(directory):
        remove_files(directory, list_files(directory))
    elif os.path.isdir(directory) and not os.path.islink(directory):
        shutil.rmtree(directory)
