"""Class folders: `CLASS/...` or `SPLIT/CLASS/...`, every file in them accounted for."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from shardwright.schemas.codes import FilterReason, Outcome, QuarantineReason
from shardwright.schemas.errors import EngineError, ImageFault, NotACandidate
from shardwright.schemas.image_ref import ImageRef, key_from_bytes, printable
from shardwright.transforms import storage
from shardwright.transforms.images.decode import check_kind
from shardwright.transforms.images.read import local_version
from shardwright.transforms.images.signatures import HEAD_BYTES, claims_to_be_image
from shardwright.transforms.sources.inputs import Input

#: Folder names that are splits when every folder at the top has one of them.
SPLIT_FOLDERS = (
    "train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval"
)  # fmt: skip


def list_class_folders(source: Input) -> Iterator[ImageRef]:
    """Yields a reference for every file below a folder, symbolic links followed.

    The first folder of a path is the class. Where all folders at the top are named like splits
    and have folders in them, the first is the split and the second the class.

    Raises:
      EngineError: if a folder cannot be listed.
    """
    if storage.is_remote(source.path):
        yield from _list_remote(source)
        return
    root = os.fsencode(source.path)
    splits = _split_folders(root)
    for path, relative, entry in _walk(root):
        yield _reference(path, relative, entry, source.prefix, splits)


def _split_folders(root: bytes) -> tuple[str, ...]:
    """Returns the split folders at the top, or nothing if the folders there are classes."""
    folders = [entry for entry in _scan(root) if not entry.name.startswith(b".") and _is_dir(entry)]
    names = [os.fsdecode(entry.name) for entry in folders]
    if not names or not set(names) <= set(SPLIT_FOLDERS):
        return ()
    nested = any(
        not child.name.startswith(b".") and _is_dir(child)
        for folder in folders
        for child in _scan(folder.path)
    )
    return tuple(sorted(names, key=SPLIT_FOLDERS.index)) if nested else ()


def _scan(folder: bytes) -> list[os.DirEntry[bytes]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise _unlistable(folder, error) from error


def _unlistable(folder: bytes, error: OSError) -> EngineError:
    if error.errno in (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENAMETOOLONG):
        return EngineError(
            f"Cannot list {printable(os.fsdecode(folder))}: {(error.strerror or str(error)).lower()}; "
            "make it readable or move it out of the input."
        )
    return storage.fault(error, "list", os.fsdecode(folder))


def _is_dir(entry: os.DirEntry[bytes]) -> bool:
    """Whether an entry is a directory or a link to one; a link that cannot be followed is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _identity(folder: bytes) -> tuple[int, int]:
    try:
        status = os.stat(folder)
    except OSError as error:
        raise _unlistable(folder, error) from error
    return status.st_dev, status.st_ino


def _walk(root: bytes) -> Iterator[tuple[bytes, bytes, os.DirEntry[bytes]]]:
    """Yields (path, path relative to the input, entry) of all but directories, depth first.

    A link to a directory that it lies in itself is yielded as a file would be.
    """
    open_folders = [(iter(_scan(root)), b"")]
    above = [_identity(root)]  # of the open folders
    while open_folders:
        entries, relative = open_folders[-1]
        for entry in entries:
            name = relative + b"/" + entry.name if relative else entry.name
            if not _is_dir(entry) or (entry.is_symlink() and _identity(entry.path) in above):
                yield entry.path, name, entry
                continue
            open_folders.append((iter(_scan(entry.path)), name))
            above.append(_identity(entry.path))
            break
        else:
            open_folders.pop()
            above.pop()


def place(key: str, splits: tuple[str, ...]) -> tuple[str, str]:
    """Returns (split, label) that a key's folders say; empty where they say none.

    In a split layout, what lies outside of the split folders goes to the first split.
    """
    folders = key.split("/")[:-1]
    if not splits:
        return "", folders[0] if folders else ""
    if not folders or folders[0] not in splits:
        return splits[0], ""
    return folders[0], folders[1] if len(folders) > 1 else ""


def _reference(
    path: bytes, relative: bytes, entry: os.DirEntry[bytes], prefix: str, splits: tuple[str, ...]
) -> ImageRef:
    key = key_from_bytes(relative)
    split, label = place(key, splits)
    ref = ImageRef(key=prefix + key, uri=os.fsdecode(path), label=label, split=split)
    if any(part.startswith(b".") for part in relative.split(b"/")):
        return ref._replace(outcome=Outcome.FILTERED, reason=FilterReason.DOTFILE)
    try:
        status = entry.stat()
    except OSError:  # a link to nowhere, or gone since the folder was listed
        return _absent(ref)
    if stat.S_ISDIR(status.st_mode):
        return ref._replace(outcome=Outcome.FILTERED, reason=FilterReason.SYMLINK_LOOP)
    if not stat.S_ISREG(status.st_mode):
        return ref._replace(outcome=Outcome.FILTERED, reason=FilterReason.SPECIAL_FILE)
    ref = ref._replace(size=status.st_size, version=local_version(status))
    if not claims_to_be_image(key):
        filtered = _not_a_candidate(path, key)
        if filtered:
            return ref._replace(outcome=Outcome.FILTERED, reason=filtered)
    return ref if label else _unlabelled(ref)


def _absent(ref: ImageRef) -> ImageRef:
    if not claims_to_be_image(ref.key):
        return ref._replace(outcome=Outcome.FILTERED, reason=FilterReason.NOT_AN_IMAGE)
    return ref._replace(outcome=Outcome.QUARANTINED, reason=QuarantineReason.UNREADABLE)


def _unlabelled(ref: ImageRef) -> ImageRef:
    return ref._replace(outcome=Outcome.QUARANTINED, reason=QuarantineReason.UNKNOWN_LABEL)


def _not_a_candidate(path: bytes, key: str) -> str | None:
    """Looks into a file that does not claim to be an image; returns why it is none, if so."""
    try:
        with open(path, "rb", buffering=0) as file:
            check_kind(file.read(HEAD_BYTES), key)
    except NotACandidate as filtered:
        return filtered.reason
    except (OSError, ImageFault):
        return FilterReason.NOT_AN_IMAGE
    return None


def _list_remote(source: Input) -> Iterator[ImageRef]:
    """Lists objects with a scheme through Beam's file systems, name and size as they are told."""
    from apache_beam.io.filesystems import FileSystems

    base = source.path.rstrip("/") + "/"
    found = [item for match in FileSystems.match([base + "**"]) for item in match.metadata_list]
    keys = [item.path.removeprefix(base) for item in found]
    tops = {key.split("/")[0] for key in keys if "/" in key and not key.startswith(".")}
    nested = any(key.count("/") > 1 for key in keys)
    splits: tuple[str, ...] = ()
    if tops and nested and tops <= set(SPLIT_FOLDERS):
        splits = tuple(sorted(tops, key=SPLIT_FOLDERS.index))
    for item, name in zip(found, keys, strict=True):
        key = key_from_bytes(name.encode())
        split, label = place(key, splits)
        version = str(item.last_updated_in_seconds or "")
        ref = ImageRef(source.prefix + key, item.path, label, split, "", item.size_in_bytes, version)
        if any(part.startswith(".") for part in key.split("/")):
            ref = ref._replace(outcome=Outcome.FILTERED, reason=FilterReason.DOTFILE)
        elif not claims_to_be_image(key):
            ref = ref._replace(outcome=Outcome.FILTERED, reason=FilterReason.NOT_AN_IMAGE)
        elif not label:
            ref = _unlabelled(ref)
        yield ref
