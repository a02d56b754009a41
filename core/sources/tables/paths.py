"""Images that rows name: resolves their paths to files and keys."""

from __future__ import annotations

import os
import posixpath
import re
import stat
import unicodedata
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from shardwright.core import storage
from shardwright.core.sources.annotation_files import OF_ONE_FILE, AnnotationFault
from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.image_ref import key_from_bytes, printable

#: Matches paths that cannot be used as a key unchanged. They have an empty, `.` or `..` segment (also the
#: `//` of a scheme), a NUL, or white space around them.
_ODD = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)|\0|\A\s|\s\Z")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)\Z", re.DOTALL)
#: Matches URIs that cannot name an object or a bucket.
_NO_OBJECT = re.compile(r"[\r\n]|\A(?:gs|s3)://(?![A-Za-z0-9][A-Za-z0-9._-]*/)")
#: Largest number of bytes in an object name in Google's and Amazon's storage.
_MAX_OBJECT_NAME = 1024
#: Longest path in a message.
_SHOWN = 200


class EmbeddedImage(NamedTuple):
    """An image whose bytes are in the row itself, in the place of its path.

    Attributes:
      place: Part of the file with the bytes.
      size: Number of bytes of the image.
      version: Digest of the bytes.
    """

    place: ByteRange
    size: int
    version: str


class ImageRoot:
    """Folder to which the paths in a table are relative.

    Args:
      root: Local or remote folder; empty for the working directory.
    """

    def __init__(self, root: str) -> None:
        self._remote = storage.is_remote(root)
        self._base = f"{root.rstrip('/')}/" if root else ""
        self._below = self._base if self._remote else os.path.abspath(root or ".").rstrip("/") + "/"

    def find(self, path: str) -> tuple[str, str]:
        """Returns (key, URI) of the image that a path names.

        Raises:
          AnnotationFault: If the path cannot name an image.
        """
        relative, uri = self._find_odd(path) if _ODD.search(path) else (path, self._base + path)
        if not relative:
            raise AnnotationFault(f"its path {_quoted(path)} names no file")
        try:
            key = key_from_bytes(relative.encode("utf-8", "surrogateescape"))
            # A request for an impossible name would fail the job.
            size = len(uri.split("/", 3)[-1].encode()) if storage.is_remote(uri) else 0
        except UnicodeEncodeError:
            raise AnnotationFault(f"its path {_quoted(path)} is not UTF-8") from None
        if size > _MAX_OBJECT_NAME or (size and _NO_OBJECT.search(uri)):
            raise AnnotationFault(f"its path {_quoted(uri)} cannot be that of an object")
        return key, uri

    def _find_odd(self, path: str) -> tuple[str, str]:
        """Returns (path for the key, URI) of a path that may have segments such as `..`."""
        if "\0" in path:
            raise AnnotationFault(f"its path {_quoted(path)} holds a NUL")
        bare = path.strip()
        if not bare:
            raise AnnotationFault("it names no image")
        if bare != path and (self._remote or _SCHEME.match(bare) or not os.path.lexists(self._base + path)):
            path = bare
        match = _SCHEME.match(path)
        if match and match[1].lower() != "file":
            return self._find_object(path, match[1].lower(), match[2])
        if match:
            path = match[2].removeprefix("localhost") if match[2].startswith("localhost/") else match[2]
            path = os.fsdecode(unquote_to_bytes(path.encode("utf-8", "surrogateescape"))).replace("\0", "")
        if path.endswith(("/", "/.", "/..")) or path in (".", ".."):
            raise AnnotationFault(f"its path {_quoted(path)} names a folder")
        if path.startswith("/"):
            uri, whole = path, "/" + _normal(path)
        elif self._remote:
            scheme, _, rest = self._base.partition("://")
            bucket, _, inside = rest.partition("/")
            if posixpath.normpath((inside + path).lstrip("/")).split("/")[0] == "..":
                raise AnnotationFault(f"its path {_quoted(path)} leads out of the bucket")
            uri = whole = f"{scheme}://{bucket}/{_normal(inside + path)}"
        else:
            uri, whole = self._base + path, "/" + _normal(self._below + path)
        if storage.is_remote(uri) and not storage.is_remote(whole):
            raise AnnotationFault(f"there is no storage for its path {_quoted(path)}")
        return whole.removeprefix(self._below) if whole.startswith(self._below) else _normal(path), uri

    def _find_object(self, path: str, scheme: str, rest: str) -> tuple[str, str]:
        if not _has_storage(scheme):
            raise AnnotationFault(f"there is no storage for {scheme}://, as in {_quoted(path)}")
        bucket, _, name = rest.partition("/")
        if not bucket or not name or name.endswith("/"):
            raise AnnotationFault(f"its path {_quoted(path)} names no object")
        uri = f"{scheme}://{rest}"
        is_below = self._remote and uri.startswith(self._below)
        return _normal(uri.removeprefix(self._below) if is_below else rest), uri


def _normal(path: str) -> str:
    """Returns a path without empty, `.` and `..` segments; a `..` at the top is dropped."""
    return posixpath.normpath(f"/{path}").lstrip("/")


def _quoted(path: str) -> str:
    shown = repr(printable(path[:_SHOWN]))
    return f"{shown[:-1]}...{shown[-1]}" if len(path) > _SHOWN else shown


@lru_cache
def _has_storage(scheme: str) -> bool:
    try:
        storage.require_known("", f"{scheme}://a/b")
    except Exception:  # also those of a Beam file system whose package is missing
        return False
    return True


def state_of(uri: str) -> tuple[str, int, str]:
    """Returns (URI, size, version) of a local file; its name may have another Unicode form.

    Raises:
      AnnotationFault: If the file is missing or not a regular file.
      EngineError: If the machine failed.
    """
    path = uri
    if not uri.isascii() and not os.path.lexists(uri):
        forms = (unicodedata.normalize(form, uri) for form in ("NFC", "NFD"))
        path = next(filter(os.path.lexists, forms), uri)
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        what = "no such file"
        if isinstance(error, OSError):
            if error.errno not in OF_ONE_FILE:
                raise storage.fault(error, "look for", uri) from error
            what = (error.strerror or str(error)).lower()
        advice = "; write / instead of \\" if "\\" in uri else ""
        raise AnnotationFault(f"{_quoted(uri)}: {what}{advice}", QuarantineReason.UNREADABLE) from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise AnnotationFault(f"{_quoted(path)} is {kind}", QuarantineReason.UNREADABLE)
    return path, status.st_size, storage.local_version(status)
