"""Files wherever they are: the local disk directly, everything with a scheme through Beam."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from shardwright.schemas.errors import EngineError, ShardwrightError, UsageError
from shardwright.schemas.image_ref import printable

_COPY_BYTES = 1 << 20
_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp\Z")
_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space, then run again with --resume",
    errno.EDQUOT: "the disk quota is used up; free some space, then run again with --resume",
    errno.EFBIG: "the file is larger than this system allows; choose a smaller --shard_size",
    errno.EMFILE: "too many files are open; raise `ulimit -n`, then run again with --resume",
    errno.ENFILE: "the system has too many files open; run again with --resume later",
    errno.EACCES: "permission denied; choose a place you may use or change its permissions",
    errno.EPERM: "the operation is not permitted; choose a place you may use",
    errno.EROFS: "the file system is read-only; choose another place",
    errno.EIO: "the storage reports an input/output error; check the disk, then run again with --resume",
}


def is_remote(path: str) -> bool:
    """Whether a path has a scheme such as `gs://`."""
    return "://" in path


def join(base: str, *parts: str) -> str:
    """Joins path segments with `/`."""
    return "/".join([base.rstrip("/") if base != "/" else "", *parts])


def fault(error: OSError, doing: str, path: str) -> EngineError:
    """Returns the error that ends the command when the storage failed, in one sentence."""
    number = error.errno or 0
    reason = _ADVICE.get(number) or error.strerror or str(error)
    return EngineError(f"Cannot {doing} {printable(path)}: {reason}.")


@contextlib.contextmanager
def faults(doing: str, path: str) -> Iterator[None]:
    """Turns any OSError of the block into the `EngineError` that says what was being done."""
    try:
        yield
    except ShardwrightError:
        raise
    except OSError as error:
        raise fault(error, doing, path) from error


def _filesystems() -> Any:
    from apache_beam.io.filesystems import FileSystems

    return FileSystems


def require_known(option: str, path: str) -> None:
    """Checks that a path's scheme is one that there is a file system for.

    Raises:
      UsageError: naming the option.
    """
    if is_remote(path):
        try:
            _filesystems().get_filesystem(path)
        except ValueError:
            raise UsageError(
                f"{option} {printable(path)}: there is no storage for {path.partition('://')[0]}://; "
                "write a path or gs://BUCKET/..."
            ) from None


def read_bytes(path: str) -> bytes:
    """Reads a whole file; raises FileNotFoundError or another OSError."""
    if not is_remote(path):
        return Path(path).read_bytes()
    if not exists(path):
        raise FileNotFoundError(errno.ENOENT, "no such object", path)
    with _filesystems().open(path, compression_type="uncompressed") as file:
        return bytes(file.read())


def exists(path: str) -> bool:
    """Whether a file (or a local directory) is there."""
    if not is_remote(path):
        return os.path.lexists(path)
    return bool(_filesystems().exists(path))


def make_dirs(path: str) -> None:
    """Makes a directory and its parents; object storage has none."""
    if not is_remote(path):
        os.makedirs(path, exist_ok=True)


def write_bytes(path: str, data: bytes) -> None:
    """Writes a file so that it appears whole or not at all."""
    if is_remote(path):
        with _filesystems().create(path, compression_type="uncompressed") as file:
            file.write(data)
        return
    make_dirs(os.path.dirname(path) or ".")
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def publish(temporary: str, path: str) -> None:
    """Moves a finished local file to its final place: a rename, or one upload."""
    if not is_remote(path):
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        return
    with (
        open(temporary, "rb") as source,
        _filesystems().create(path, compression_type="uncompressed") as target,
    ):
        shutil.copyfileobj(source, target, _COPY_BYTES)
    os.unlink(temporary)


def temporary_path(directory: str, name: str) -> str:
    """Returns a fresh path for a file to be `publish`ed into a directory.

    It lies in the directory's own `_work/` where a rename can publish it, else on this machine.
    """
    unique = f"{name}.{uuid.uuid4().hex}.tmp"
    if is_remote(directory):
        return os.path.join(tempfile.gettempdir(), unique)
    work = join(directory, "_work")
    make_dirs(work)
    return join(work, unique)


def is_temporary(path: str) -> bool:
    """Whether a path is one that `temporary_path` or `write_bytes` made up."""
    return bool(_TEMPORARY.search(path))


@contextlib.contextmanager
def open_local(path: str) -> Iterator[IO[bytes]]:
    """Opens a file for random access, through a temporary copy where it is remote."""
    if not is_remote(path):
        with open(path, "rb") as file:
            yield file
        return
    if not exists(path):
        raise FileNotFoundError(errno.ENOENT, "no such object", path)
    with tempfile.TemporaryFile() as copy:
        with _filesystems().open(path, compression_type="uncompressed") as source:
            shutil.copyfileobj(source, copy, _COPY_BYTES)
        copy.seek(0)
        yield copy


def sha256_of(file: IO[bytes]) -> str:
    """Returns the sha256 hex digest of an open file from its position to its end."""
    digest = hashlib.sha256()
    while chunk := file.read(_COPY_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def list_files(directory: str) -> list[str]:
    """Returns the paths of all files below a directory, relative to it; none if it is missing."""
    if is_remote(directory):
        prefix = directory.rstrip("/") + "/"
        matches = _filesystems().match([prefix + "**"])[0].metadata_list
        return sorted(item.path.removeprefix(prefix) for item in matches)
    found = []
    for folder, _, names in os.walk(directory):
        relative = os.path.relpath(folder, directory)
        found += [name if relative == "." else f"{relative}/{name}" for name in names]
    return sorted(found)


def remove(path: str) -> None:
    """Removes a file if it is there."""
    if is_remote(path):
        if exists(path):
            _filesystems().delete([path])
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_tree(directory: str) -> None:
    """Removes a directory with all that is in it, if it is there."""
    if is_remote(directory):
        _filesystems().delete([join(directory, name) for name in list_files(directory)])
    elif os.path.isdir(directory) and not os.path.islink(directory):
        shutil.rmtree(directory)
