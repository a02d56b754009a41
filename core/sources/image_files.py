"""Lists the files of a folder, finds the images that annotations name, and makes references to them."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import stat
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.schemas.annotations import Annotations
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import LABEL_SEPARATOR, NO_SPLIT, ImageRef, key_from_bytes
from shardwright.schemas.plain_text import printable

_SPLIT_NAME = re.compile(r"[a-z0-9_]{1,64}\Z")

#: Names of splits in names of files and folders; no other letter may be directly beside them.
_SPLIT_TOKEN = re.compile(
    r"(?:\A|[^a-z])(train|training|val|valid|validation|minival|dev|test|testing|eval)(?![a-z])"
)
#: Characters that no file's name has: NUL, and surrogates that do not represent bytes.
_NOT_IN_NAMES = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")
MISSING = "its image is missing"
#: Number of characters of a value in a message.
_MAX_CHARACTERS = 200
#: Folder that archive tools add; it holds no images of the dataset.
_IGNORED = "__MACOSX"
#: Largest number of files in a folder to search by name; in a larger folder, no file is found.
_MAX_FILES = 5_000_000


def split_token(name: str) -> str:
    """Returns the split that a file's or folder's name contains; empty if it contains none.

    >>> split_token("instances_train2017.json")
    'train'
    """
    splits = _SPLIT_TOKEN.findall(name.lower())
    return splits[-1] if splits else ""


def splits_of_files(paths: Iterable[str]) -> dict[str, str]:
    """Returns the split of each annotation file, from its name or else from its folder's name.

    Names count only if they differ: a single `train.csv` says nothing about splits.

    >>> splits_of_files(["train.csv", "test/boxes.csv"])
    {'train.csv': 'train', 'test/boxes.csv': 'test'}
    """
    splits = {path: split_token(path.rpartition("/")[2]) or split_token(path) for path in paths}
    several = len(set(splits.values()) - {""}) > 1
    return {path: split if several else "" for path, split in splits.items()}


def is_text(value: Any) -> bool:
    """Returns whether a value is a string that is not blank and can be encoded in UTF-8."""
    try:
        return isinstance(value, str) and bool(value.strip()) and bool(value.encode())
    except UnicodeEncodeError:
        return False


def class_name(value: Any) -> str:
    """Returns a value from a file as a class name of objects; empty if it cannot be one."""
    return value.strip() if is_text(value) and LABEL_SEPARATOR not in value else ""


def number(value: Any) -> float | None:
    """Returns a finite number; None for anything else, also for booleans and strings."""
    if type(value) not in (int, float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


def number_in(text: str) -> float | None:
    """Returns the finite number in a text; None for any other text."""
    try:
        return number(float(text))
    except ValueError:
        return None


def inner_path(text: str) -> str:
    """Returns a normalized relative path; empty if it leads out of its folder or is not a relative path."""
    if not text or _NOT_IN_NAMES.search(text) or "://" in text or text.startswith("/"):
        return ""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    return "" if ".." in parts else "/".join(parts)


def key_of(path: str) -> str:
    """Returns the key of a relative path; surrogates that do not represent bytes are replaced."""
    try:
        return key_from_bytes(os.fsencode(path))
    except UnicodeEncodeError:
        return key_from_bytes(path.encode("utf-8", "replace"))


def with_slashes(path: str) -> str:
    """Returns a path with backslashes replaced by slashes."""
    return path.replace("\\", "/")


def file_name(path: str) -> str:
    r"""Returns the last part of a POSIX or Windows path.

    >>> file_name(r"C:\photos\cat.jpg")
    'cat.jpg'
    """
    return with_slashes(path).rpartition("/")[2]


def is_hidden(path: str) -> bool:
    """Returns whether a relative path leads through a hidden folder or to a hidden file."""
    return path.startswith(".") or "/." in path


def is_folder(path: str) -> bool:
    """Returns whether a folder exists; a remote folder must contain an object."""
    if storage.is_remote(path):
        return next(storage.list_objects(path.rstrip("/") + "/"), None) is not None
    return os.path.isdir(path)


def is_file(path: str) -> bool:
    """Returns whether a file exists."""
    if storage.is_remote(path):
        return storage.stat(path) is not None
    return os.path.isfile(path)


def folder_of(path: str) -> str:
    """Returns the folder of a file."""
    if storage.is_remote(path):
        return path.rpartition("/")[0]
    return os.path.dirname(path) or "."


def parent_of(folder: str) -> str:
    """Returns the parent of a folder; a bucket is its own parent."""
    if storage.is_remote(folder):
        above = folder.rstrip("/").rpartition("/")[0]
        return folder if above.endswith("/") else above
    above, name = os.path.split(folder.rstrip("/"))
    return os.path.join(folder, "..") if name in ("", ".", "..") else above or "."


def join(folder: str, name: str) -> str:
    """Joins a folder and a name in it."""
    return name if folder == "." else storage.join(folder, name)


def below(path: str, folder: str) -> str | None:
    """Returns a path relative to a folder; None if it is not in the folder.

    On a disk, either may be relative to the working directory. A slash at the end of the path is kept, except
    if it is the folder itself.
    """
    slash = "/" if path.endswith("/") else ""
    path, folder = (_plain(item) for item in (path, folder))
    if path == folder:
        return ""
    prefix = folder.rstrip("/") + "/"
    return path.removeprefix(prefix) + slash if path.startswith(prefix) else None


def key_prefix(folder: str, roots: Iterable[str], name: str) -> str:
    """Returns the beginning of the keys of the images in a folder.

    Args:
      folder: Folder of the images.
      roots: Folders to which the keys may be relative: the first one that holds the images counts. An empty
        path is no folder.
      name: Beginning of the keys if none of them does.
    """
    inner = (below(f"{folder}/", root) for root in roots if root)
    return key_of(next((path for path in inner if path is not None), f"{name}/"))


def as_prefix(folder: str) -> str:
    """Returns how all paths in a folder begin, after resolving the links of a local one."""
    return (folder if storage.is_remote(folder) else os.path.realpath(folder)).rstrip("/") + "/"


def _plain(path: str) -> str:
    return path.rstrip("/") if storage.is_remote(path) else os.path.abspath(path)


def files_below(folder: str) -> Iterator[tuple[str, storage.StoredObject]]:
    """Yields (path relative to a folder, state) of all files in it; none if the folder does not exist."""
    if storage.is_remote(folder):
        base = folder.rstrip("/") + "/"
        for item in storage.list_objects(base):
            yield item.path.removeprefix(base), item
    elif os.path.isdir(folder):
        yield from walk(folder)


def walk(folder: str) -> Iterator[tuple[str, storage.StoredObject]]:
    """Yields (path relative to a folder on a disk, state) of everything in it except directories.

    Links are followed, except those to a folder that contains them.

    A size of -1 means no regular file: a broken link, a pipe, or a link to a folder that contains it.

    Raises:
      EngineError: If a folder cannot be listed.
    """
    above = frozenset(_identity(bytes(parent)) for parent in Path(folder).resolve().parents)
    waiting = [(os.fsencode(folder), b"", above)]
    while waiting:
        here, relative, above = waiting.pop()
        UNDERWAY.progress()
        try:
            above |= {_identity(here)}
            with os.scandir(here) as entries:
                by_name = sorted(UNDERWAY.passing(entries), key=attrgetter("name"))
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENAMETOOLONG):
                raise storage.fault(error, "list", os.fsdecode(here)) from error
            raise EngineError(
                f"Cannot list {os.fsdecode(here)}: {(error.strerror or str(error)).lower()}; "
                "make it readable or move it out of the input."
            ) from error
        inner = []
        for entry in by_name:
            name = relative + entry.name
            if _leads_down(entry, above):
                inner.append((entry.path, name + b"/", above))
            else:
                yield os.fsdecode(name), _state_of(entry)
        waiting += reversed(inner)


def _identity(folder: bytes) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _state_of(entry: os.DirEntry[bytes]) -> storage.StoredObject:
    path = os.fsdecode(entry.path)
    with contextlib.suppress(OSError):  # a broken link, or deleted since the folder was listed
        status = entry.stat()
        if stat.S_ISREG(status.st_mode):
            return storage.StoredObject(path, status.st_size, storage.local_version(status))
    return storage.StoredObject(path, -1, "")


def _leads_down(entry: os.DirEntry[bytes], above: Collection[tuple[int, int]]) -> bool:
    """Returns whether an entry is a directory, or a link to one, that does not contain the entry.

    Args:
      entry: The entry; a broken link is no directory.
      above: Identities of the folders that contain it.
    """
    try:
        return entry.is_dir() and _identity(entry.path) not in above
    except OSError:
        return False


def find_root(candidates: Iterable[str], names: Sequence[str]) -> str:
    """Returns the first folder that contains one of the images; empty if none does.

    Args:
      candidates: Folders, most likely first.
      names: Paths of a few images, relative to the folder.
    """
    for folder in dict.fromkeys(candidates):
        if any(is_file(join(folder, name)) for name in names):
            return folder
    return ""


def find_moved(paths: Iterable[str], folder: str) -> dict[str, tuple[str, str]]:
    r"""Searches a folder for files by name if annotations contain paths of another machine.

    `C:\photos\cat.jpg` and `/home/ann/photos/cat.jpg` both name `cat.jpg`. If exactly one file below the
    folder has that name, it is the image. The folder is listed only once.

    Hidden files and folders are ignored. Names may differ in their Unicode form. The search gives up in a
    folder with more than five million files, so that a root such as `/` does not delay a build for hours.

    Args:
      paths: Paths as written in annotations.
      folder: Folder of the images.

    Returns:
      Path, as given -> the path of the image relative to the folder, and why no file was chosen; one of them
      is empty. Paths whose name no file has are left out.
    """
    paths_by_name: dict[str, list[str]] = {}
    for path in dict.fromkeys(paths):
        if name := unicodedata.normalize("NFC", file_name(path)):
            paths_by_name.setdefault(name, []).append(path)
    if not paths_by_name:
        return {}
    files_by_name: dict[str, list[str]] = {}
    for count, (inner, _) in enumerate(files_below(folder)):
        if count == _MAX_FILES:
            return {}
        name = unicodedata.normalize("NFC", inner.rpartition("/")[2])
        if name in paths_by_name and not (is_hidden(inner) or _IGNORED in inner.split("/")):
            files_by_name.setdefault(name, []).append(inner)
    return {path: _choose(files_by_name[name]) for name in files_by_name for path in paths_by_name[name]}


def _choose(files: list[str]) -> tuple[str, str]:
    if len(files) == 1:
        return files[0], ""
    first, second = sorted(files)[:2]
    more = f" (and {len(files) - 2} more)" if len(files) > 2 else ""
    return "", f"{MISSING}, and its name alone could mean {printable(first)} and {printable(second)}{more}"


def annotated(ref: ImageRef, annotations: Annotations) -> ImageRef:
    """Returns a reference with its annotations, and the class names of its objects."""
    names = sorted(annotations.labels - {""})
    return ref.annotated(annotations)._replace(label=LABEL_SEPARATOR.join(names))


def labelled(ref: ImageRef, names: Sequence[str], noun: str, settings: ConvertSettings) -> ImageRef:
    """Returns a reference with the classes of its image.

    Args:
      ref: Reference.
      names: Names of the classes.
      noun: Plural of what names a class in the format.
      settings: Settings with `label_separator`.

    Raises:
      AnnotationFault: If there are several classes, but the settings allow only one.
    """
    if len(names) > 1 and not settings.label_separator:
        raise AnnotationFault(
            f"it has several {noun} ({', '.join(names[:3])[:_MAX_CHARACTERS]}); --label_separator '|' lets "
            "an image have several classes"
        )
    message = ref.message if names else f"{ref.message} has no class"
    return ref._replace(label=LABEL_SEPARATOR.join(names), message=message)


def bad_entry(key: str, uri: str, message: str, reason: str = QuarantineReason.BAD_ANNOTATION) -> ImageRef:
    """Returns the reference for an entry of an annotation file without an image."""
    return ImageRef(key=key, uri=uri, split=NO_SPLIT).quarantined(reason, message)


def split_name(text: str) -> str:
    """Returns a split name in lower case; empty for no split and for AutoML's UNASSIGNED.

    Raises:
      ValueError: If the text cannot be the name of a split.
    """
    name = text.strip().lower()
    if name in ("", "unassigned"):
        return ""
    if not _SPLIT_NAME.match(name) or name == NO_SPLIT:
        raise ValueError(f"{text!r} cannot be a split's name; use letters, digits and _")
    return name


def split_in(text: str) -> str:
    """Returns the name of the split that an annotation gives; empty if it gives none.

    Raises:
      AnnotationFault: If the text cannot be the name of a split.
    """
    try:
        return split_name(text[:_MAX_CHARACTERS])
    except ValueError as error:
        raise AnnotationFault(str(error)) from None
