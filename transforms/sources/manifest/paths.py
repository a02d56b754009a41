"""Resolves the paths in manifests to images and their keys."""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import key_from_bytes, printable
from shardwright.transforms import storage

#: Matches paths that cannot be used as a key unchanged. They have an empty, `.` or `..` segment (also the
#: `//` of a scheme), a NUL, or white space around them.
_ODD = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)|\0|\A\s|\s\Z")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)\Z", re.DOTALL)
#: Matches URIs that cannot name an object or a bucket.
_NO_OBJECT = re.compile(r"[\r\n]|\A(?:gs|s3)://(?![A-Za-z0-9][A-Za-z0-9._-]*/)")
#: Largest number of bytes in an object name in Google's and Amazon's storage.
_MAX_OBJECT_NAME = 1024
#: Number of characters that never take more bytes than that.
_SURELY_SHORT = _MAX_OBJECT_NAME // 4
#: Errors of a single file; other errors affect the whole machine.
_ABSENT = (FileNotFoundError, NotADirectoryError, PermissionError)
_LONG_OR_LOOP = frozenset((errno.ENAMETOOLONG, errno.ELOOP))


class RowFault(Exception):
    """Raised for a bad row; the message says what is wrong."""


class FileFault(Exception):
    """Raised for a bad file that a row names; the message says what is wrong."""


class ImageRoot:
    """Folder to which the paths of a manifest are relative.

    Args:
      root: Local or remote folder; empty for the working directory.
    """

    def __init__(self, root: str) -> None:
        self._remote = storage.is_remote(root)
        self._base = f"{root.rstrip('/')}/" if root else ""
        if self._remote:
            self._below = self._base
        else:
            self._below = os.path.abspath(root or ".").rstrip("/") + "/"

    def find(self, path: str) -> tuple[str, str]:
        """Returns (key, URI) of the image that a path names.

        Raises:
          RowFault: If the path cannot name an image.
        """
        if _ODD.search(path):
            relative, uri = self._find_odd(path)
            if not relative:
                raise RowFault(f"its path {_quoted(path)} names no file")
        else:
            relative, uri = path, self._base + path
        if storage.is_remote(uri):
            _check_object(uri)
        if relative.isascii():
            key = relative.replace("%", "%25") if "%" in relative else relative
            return key, uri
        try:
            return key_from_bytes(relative.encode("utf-8", "surrogateescape")), uri
        except UnicodeEncodeError:
            raise RowFault(f"its path {_quoted(path)} is not UTF-8") from None

    def _find_odd(self, path: str) -> tuple[str, str]:
        if "\0" in path:
            raise RowFault(f"its path {_quoted(path)} holds a NUL")
        if not path.strip():
            raise RowFault("it names no image")
        bare = path.strip()
        if bare != path and (self._remote or _SCHEME.match(bare) or not _is_there(self._base + path)):
            return self._find_bare(bare)
        return self._find_bare(path)

    def _find_bare(self, path: str) -> tuple[str, str]:
        """Returns (path for the key, URI) of a path that may have segments such as `..`."""
        match = _SCHEME.match(path)
        if match and match[1].lower() != "file":
            return self._find_object(path, match[1].lower(), match[2])
        if match:
            path = _path_of_file_uri(match[2])
        if path.endswith(("/", "/.", "/..")) or path in (".", ".."):
            raise RowFault(f"its path {_quoted(path)} names a folder")
        if path.startswith("/"):
            whole = "/" + _normal(path)
            uri = path
        elif self._remote:
            scheme, rest = self._base.split("://", 1)
            inside = rest.split("/", 1)[1]
            if _leaves(inside + path):
                raise RowFault(f"its path {_quoted(path)} leads out of the bucket")
            bucket = rest.split("/", 1)[0]
            whole = uri = f"{scheme}://{bucket}/{_normal(inside + path)}"
        else:
            whole = "/" + _normal(self._below + path)
            uri = self._base + path
        if storage.is_remote(uri) and not storage.is_remote(whole):
            raise RowFault(f"there is no storage for its path {_quoted(path)}")
        if whole.startswith(self._below):
            return whole.removeprefix(self._below), uri
        return _normal(path), uri

    def _find_object(self, path: str, scheme: str, rest: str) -> tuple[str, str]:
        if not _has_storage(scheme):
            raise RowFault(f"there is no storage for {scheme}://, as in {_quoted(path)}")
        bucket, _, name = rest.partition("/")
        if not bucket or not name or name.endswith("/"):
            raise RowFault(f"its path {_quoted(path)} names no object")
        uri = f"{scheme}://{rest}"
        if self._remote and uri.startswith(self._below):
            return _normal(uri.removeprefix(self._below)), uri
        return _normal(rest), uri


def _check_object(uri: str) -> None:
    """Checks that a URI can name an object, because a request for an impossible name would fail the job.

    Raises:
      RowFault: If it cannot name an object.
    """
    if len(uri) > _SURELY_SHORT or _NO_OBJECT.search(uri) or not uri.isascii():
        try:
            size = len(uri.split("/", 3)[-1].encode())
        except UnicodeEncodeError:
            raise RowFault(f"its path {_quoted(uri)} is not UTF-8") from None
        if size > _MAX_OBJECT_NAME or _NO_OBJECT.search(uri):
            raise RowFault(f"its path {_quoted(uri)} cannot be that of an object")


def _normal(path: str) -> str:
    """Returns a path without empty, `.` and `..` segments; a `..` at the top is dropped."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _leaves(path: str) -> bool:
    depth = 0
    for part in path.split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return True
    return False


def _path_of_file_uri(rest: str) -> str:
    """Returns the path after `file://`, with percent escapes decoded unless that exact file exists."""
    path = rest.removeprefix("localhost") if rest.startswith("localhost/") else rest
    if "%" in path and not _is_there(path):
        return os.fsdecode(unquote_to_bytes(path.encode("utf-8", "surrogateescape"))).replace("\0", "")
    return path


def _is_there(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:
        return False


def _quoted(path: str) -> str:
    shown = repr(printable(path[:200]))
    return f"{shown[:-1]}...{shown[-1]}" if len(path) > 200 else shown


@lru_cache
def _has_storage(scheme: str) -> bool:
    try:
        storage.require_known("", f"{scheme}://a/b")
    except UsageError:
        return False
    except Exception:  # a Beam file system whose package is missing
        return False
    return True


def state_of(uri: str) -> tuple[str, int, str]:
    """Returns (URI, size, version) of a local file; its name may have another Unicode form.

    Raises:
      FileFault: If the file is missing or not a regular file.
      EngineError: If the machine failed.
    """
    try:
        status = os.stat(uri)
    except (OSError, ValueError) as error:
        other = _other_form(uri)
        if other:
            return _exact_state(other)
        raise _file_fault(error, uri) from None
    return _state(uri, status)


def _exact_state(uri: str) -> tuple[str, int, str]:
    """Returns (URI, size, version) of a local file."""
    try:
        return _state(uri, os.stat(uri))
    except (OSError, ValueError) as error:
        raise _file_fault(error, uri) from None


def _state(uri: str, status: os.stat_result) -> tuple[str, int, str]:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise FileFault(f"{_quoted(uri)} is {kind}")
    return uri, status.st_size, storage.local_version(status)


def _other_form(uri: str) -> str:
    """Returns an existing path that differs only in its Unicode form; empty if there is none."""
    if uri.isascii():
        return ""
    forms = (unicodedata.normalize("NFC", uri), unicodedata.normalize("NFD", uri))
    return next((form for form in forms if form != uri and _is_there(form)), "")


def _file_fault(error: OSError | ValueError, uri: str) -> FileFault:
    if isinstance(error, OSError):
        if not isinstance(error, _ABSENT) and error.errno not in _LONG_OR_LOOP:
            raise storage.fault(error, "look for", uri) from error
        what = (error.strerror or str(error)).lower()
    else:
        what = "no such file"
    advice = "" if "\\" not in uri else "; write / instead of \\"
    return FileFault(f"{_quoted(uri)}: {what}{advice}")
