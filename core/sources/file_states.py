"""Finds the images that annotations, rows and lists name: their places, keys and states.

Resume and rebuild detect changes from the states.
"""

from __future__ import annotations

import hashlib
import math
import os
import posixpath
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from urllib.parse import unquote_to_bytes

from shardwright.core import storage
from shardwright.core.sources import image_files
from shardwright.core.sources.annotation_files import OF_ONE_FILE, AnnotationFault, side_by_side
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.image_ref import ImageRef, key_from_bytes
from shardwright.schemas.plain_text import printable

#: Fewest objects that are listed before the listing is given up.
MIN_LISTED = 10_000
#: Objects to list for each wanted one: listing a thousand takes as long as one request.
LISTED_FOR_EACH = 10
#: Matches paths that cannot be used as a key unchanged. They have an empty, `.` or `..` segment (also the
#: `//` of a scheme), a NUL, or white space around them.
_ODD = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)|\0|\A\s|\s\Z")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)\Z", re.DOTALL)
#: Longest path in a message.
_LONGEST_PATH = 200


def name_hash(name: str) -> int:
    """Returns 64 bits of a name's BLAKE2b digest, which is the same in every process, unlike `hash`.

    Hashes save memory where millions of names would be stored.

    Args:
      name: Name; bytes that are not UTF-8 are surrogate escapes.

    Returns:
      A number from 0 to 2**64 - 1.
    """
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


class FileStates:
    """Finds the states of files, most of which are in one folder.

    A folder of object storage is listed completely, unless it holds far more objects than are wanted.

    Args:
      folder: Folder of the files, which is listed if it is remote.
      count: Approximate number of wanted files.
    """

    def __init__(self, folder: str, count: int) -> None:
        self.folder = folder.rstrip("/")
        #: Hash of each object's path -> its size, checksum and version: about 200 bytes for each.
        self._listing: dict[int, str] | None = None
        if count and storage.is_remote(folder):
            items = storage.list_objects(f"{self.folder}/")
            listed = islice(items, max(MIN_LISTED, LISTED_FOR_EACH * count))
            listing = {name_hash(item.path): f"{item.size} {item.crc32c} {item.version}" for item in listed}
            self._listing = listing if next(items, None) is None else None

    def has(self, path: str) -> bool | None:
        """Returns whether a file exists; None if only a request for this file would tell."""
        if storage.is_remote(path):
            listed = self._listing is not None and image_files.below(path, self.folder) is not None
            return self.find(path) is not None if listed else None
        return image_files.is_file(path)

    def find(self, path: str) -> storage.StoredObject | None:
        """Returns the state of a file; None if it does not exist or cannot be read."""
        if self._listing is not None and image_files.below(path, self.folder) is not None:
            state = self._listing.get(name_hash(path))
            if state is None:
                return None
            size, crc32c, version = state.split(" ", 2)
            return storage.StoredObject(path, int(size), version, crc32c)
        try:
            return storage.stat(path)
        except (OSError, ValueError):  # reading the file later reports the fault
            return None


@dataclass(frozen=True)
class TouchedFiles:
    """The local files that may have new bytes although their sizes and modification times are the same.

    A copy that keeps the modification time, or a program that sets it, cannot set the change time (ctime).
    Other names, permissions and copies of a folder change it, too, so only the bytes of such a file decide.
    The change time is compared and never stored: equal files give equal ledgers.

    Attributes:
      since: Time in seconds since the epoch at which the files were as the earlier build states; infinity to
        trust every state.
      spool: Folder of spool files, which each run writes again. Their names state the files they are from.
    """

    since: float = math.inf
    spool: str = ""

    def has(self, ref: ImageRef) -> bool:
        """Returns whether the file of a reference was touched since then."""
        if self.since == math.inf or storage.is_remote(ref.uri):
            return False
        if self.spool and ref.uri.startswith(f"{self.spool}/"):
            return False
        try:
            status = os.lstat(ref.uri)
            is_new = status.st_ctime > self.since  # of a link: it may lead to another file now
            return is_new or (stat.S_ISLNK(status.st_mode) and os.stat(ref.uri).st_ctime > self.since)
        except (OSError, ValueError):  # reading the file later reports the fault
            return False


def with_states(refs: Iterable[ImageRef], states: FileStates) -> Iterator[ImageRef]:
    """Yields references in order, with the sizes and states of their files, or marked as missing.

    Args:
      refs: References; those that are not candidates stay unchanged.
      states: States of the files, most of which are in its folder.
    """
    return side_by_side(lambda ref: _with_state(ref, states), refs, states.folder)


def _with_state(ref: ImageRef, states: FileStates) -> ImageRef:
    if not ref.is_candidate:
        return ref
    if storage.is_remote(ref.uri):
        state = states.find(ref.uri)
        if state is None:
            return ref.quarantined(QuarantineReason.BAD_ANNOTATION, image_files.MISSING)
        return ref._replace(size=state.size, version=state.version, crc32c=state.crc32c)
    try:
        status = os.stat(ref.uri)
    except PermissionError:
        return ref
    except (OSError, ValueError):
        return ref.quarantined(QuarantineReason.BAD_ANNOTATION, image_files.MISSING)
    if not stat.S_ISREG(status.st_mode):
        return ref.quarantined(QuarantineReason.BAD_ANNOTATION, "its image is not a regular file")
    return ref._replace(size=status.st_size, version=storage.local_version(status))


# Rows, whose paths may lead to any file or object


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
            raise AnnotationFault(f"its path {_quote(path)} names no file")
        try:
            key = key_from_bytes(relative.encode("utf-8", "surrogateescape"))
            if storage.is_remote(uri):
                uri.encode()
        except UnicodeEncodeError:
            raise AnnotationFault(f"its path {_quote(path)} is not UTF-8") from None
        if storage.is_remote(uri) and storage.is_impossible(uri):
            raise AnnotationFault(f"its path {_quote(uri)} cannot be that of an object")
        return key, uri

    def _find_odd(self, path: str) -> tuple[str, str]:
        """Returns (path for the key, URI) of a path that may have segments such as `..`."""
        if "\0" in path:
            raise AnnotationFault(f"its path {_quote(path)} holds a NUL")
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
            raise AnnotationFault(f"its path {_quote(path)} names a folder")
        if path.startswith("/"):
            uri, whole = path, "/" + _normal(path)
        elif self._remote:
            scheme, _, rest = self._base.partition("://")
            bucket, _, inside = rest.partition("/")
            if posixpath.normpath((inside + path).lstrip("/")).split("/")[0] == "..":
                raise AnnotationFault(f"its path {_quote(path)} leads out of the bucket")
            uri = whole = f"{scheme}://{bucket}/{_normal(inside + path)}"
        else:
            uri, whole = self._base + path, "/" + _normal(self._below + path)
        if storage.is_remote(uri) and not storage.is_remote(whole):
            raise AnnotationFault(f"there is no storage for its path {_quote(path)}")
        return whole.removeprefix(self._below) if whole.startswith(self._below) else _normal(path), uri

    def _find_object(self, path: str, scheme: str, rest: str) -> tuple[str, str]:
        if not _has_storage(scheme):
            raise AnnotationFault(f"there is no storage for {scheme}://, as in {_quote(path)}")
        bucket, _, name = rest.partition("/")
        if not bucket or not name or name.endswith("/"):
            raise AnnotationFault(f"its path {_quote(path)} names no object")
        uri = f"{scheme}://{rest}"
        is_below = self._remote and uri.startswith(self._below)
        return _normal(uri.removeprefix(self._below) if is_below else rest), uri


def _normal(path: str) -> str:
    """Returns a path without empty, `.` and `..` segments; a `..` at the top is dropped."""
    return posixpath.normpath(f"/{path}").lstrip("/")


def _quote(path: str) -> str:
    text = repr(printable(path[:_LONGEST_PATH]))
    return f"{text[:-1]}...{text[-1]}" if len(path) > _LONGEST_PATH else text


@lru_cache
def _has_storage(scheme: str) -> bool:
    try:
        storage.require_known("", f"{scheme}://a/b")
    except Exception:  # also those of a Beam file system whose package is missing
        return False
    return True


def local_state(uri: str) -> tuple[str, int, str]:
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
        raise AnnotationFault(f"{_quote(uri)}: {what}{advice}", QuarantineReason.UNREADABLE) from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise AnnotationFault(f"{_quote(path)} is {kind}", QuarantineReason.UNREADABLE)
    return path, status.st_size, storage.local_version(status)


# Lists of images


def list_images(path: str, root: str, prefix: str) -> Iterator[ImageRef]:
    """Yields a reference for each line of a list.

    Its paths are relative to the folder of the list, to the folder of the dataset, or to the folder in which
    Darknet runs. So `data/train.txt` may contain `data/obj/1.jpg`, and so may the list of an export to
    another folder. If a path does not exist, the folder of the dataset is searched for its file name.

    Args:
      path: Path of the list.
      root: Folder of the dataset, to which keys are relative.
      prefix: Beginning of the keys.

    Raises:
      UsageError: If a line has an unsupported scheme, such as `https`.
      EngineError: If the list cannot be read.
    """
    data = storage.read_existing(path)
    storage.check_utf8(f"--input {path}", data)
    lines = [line.strip() for line in data.decode("utf-8-sig", "surrogateescape").splitlines()]
    for line_number, line in enumerate(lines, 1):
        if storage.is_remote(line):
            storage.require_known(f"--input {path}: line {line_number}:", line)
    lines = list(filter(None, lines))
    states = FileStates(root, len(lines))
    here = image_files.folder_of(path)
    images = {line: _find_listed(line, here, root, states) for line in dict.fromkeys(lines)}
    moved = image_files.find_moved((line for line in lines if not images[line]), root)

    def refs() -> Iterator[ImageRef]:
        for line in lines:
            inner, fault = moved.get(line, ("", image_files.MISSING))
            named = image_files.join(root, inner) if inner else resolve(root, line.removeprefix("./"))
            uri = images[line] or named
            below_root = image_files.below(uri, root)
            key = image_files.key_of(
                (uri.partition("://")[2] or uri).lstrip("/") if below_root is None else below_root
            )
            key = "/".join(step for step in key.split("/") if step != "..")
            ref = ImageRef(prefix + key, uri, message=f"listed in {printable(path)}")
            is_there = images[line] or inner
            yield ref if is_there else ref.quarantined(QuarantineReason.BAD_ANNOTATION, fault)

    return with_states(refs(), states)


def _find_listed(line: str, here: str, root: str, states: FileStates) -> str:
    """Returns the path of the image that a line names; empty if it does not exist.

    If the check would need a request for each image, the likeliest path is returned unchecked.
    """
    folders = here, root, image_files.parent_of(root)
    tried = [resolve(root, line)] if is_absolute(line) else [*possible_paths(line, folders)]
    image = next(filter(states.has, tried), "")
    is_unknown = not image and all(states.has(path) is None for path in tried)
    return tried[0] if tried and is_unknown else image


def possible_paths(text: str, folders: Sequence[str]) -> Iterator[str]:
    """Yields the files that a relative path may mean, the likeliest first.

    The path is first joined with each folder. Then its leading folders are removed one by one, as long as
    a folder remains in the path, or the removed one is `data` or has the name of the folder.

    >>> list(possible_paths("data/obj/1.jpg", ["/set"]))
    ['/set/data/obj/1.jpg', '/set/obj/1.jpg']
    """
    parts = [part for part in image_files.with_slashes(text).split("/") if part not in ("", ".")]
    for begin in range(len(parts)):
        for folder in folders:
            own = folder.rstrip("/").rpartition("/")[2]
            if not begin or begin < len(parts) - 1 or parts[begin - 1] in ("data", own):
                yield image_files.join(folder, "/".join(parts[begin:]))


def resolve(here: str, text: str) -> str:
    """Returns a path joined with a folder; a path in a bucket stays in its bucket."""
    if storage.is_remote(here) and not storage.is_remote(text):
        text = text.lstrip("/")  # a dataset in a bucket cannot name local files
    path = text if is_absolute(text) else image_files.join(here, text)
    scheme, separator, rest = path.rpartition("://")
    if not separator:
        return os.path.normpath(path)
    bucket, _, name = rest.partition("/")
    return f"{scheme}://{bucket}{os.path.normpath(f'/{name}')}"


def is_absolute(path: str) -> bool:
    """Returns whether a path does not start at the folder of its file."""
    return storage.is_remote(path) or path.startswith("/")
