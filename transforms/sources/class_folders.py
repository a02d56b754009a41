"""Class folders: `CLASS/...` or `SPLIT/CLASS/...`, every file in them accounted for."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from shardwright.schemas.codes import FilterReason, QuarantineReason
from shardwright.schemas.errors import EngineError, ImageFault, NotACandidate, UsageError
from shardwright.schemas.image_ref import ImageRef, key_from_bytes, one_label, printable
from shardwright.schemas.layouts import Needs
from shardwright.schemas.settings import ConvertSettings
from shardwright.schemas.units import ALL_FOLDERS, LAST_FOLDER
from shardwright.transforms import storage
from shardwright.transforms.images.decode import check_kind
from shardwright.transforms.images.signatures import HEAD_BYTES, claims_to_be_image, is_image_name
from shardwright.transforms.shards.pool import merge_streams
from shardwright.transforms.sources.glimpse import Glimpse
from shardwright.transforms.sources.source import Context, Input, Part, Source

#: Folders of an object storage listed, and objects looked into, at once.
_REQUESTS_AT_ONCE = 16
#: Objects collected before they are looked into.
_LOOKS_TOGETHER = 256
#: Why an image has no class.
NO_FOLDER = "it lies in no class folder"
#: Folder names that are splits when every folder at the top has one of them.
SPLIT_FOLDERS = (
    "train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval"
)  # fmt: skip


def _describe(glimpse: Glimpse, settings: ConvertSettings) -> str:
    if glimpse.is_file:
        raise UsageError(
            f"--input {printable(glimpse.path)} is no folder; name the folder that holds the images."
        )
    return "class folders"


def list_part(part: Part, context: Context) -> Iterator[ImageRef]:
    """Yields a reference for every file below a folder."""
    for ref in list_class_folders(part.item, context.settings.folders_of_label):
        yield ref._replace(message=NO_FOLDER) if ref.is_candidate and not ref.label else ref


def list_class_folders(source: Input, depth: int = 1) -> Iterator[ImageRef]:
    """Yields a reference for every file below a folder, symbolic links followed.

    The first folder of a path is the class. Where all folders at the top are named like splits
    and have folders in them, the first is the split and the second the class.

    Args:
      source: the folder.
      depth: how many folders make a class name (`place`).

    Raises:
      EngineError: if a folder cannot be listed.
    """
    if storage.is_remote(source.path):
        yield from _list_remote(source, depth)
        return
    root = os.fsencode(source.path)
    splits = _split_folders(root)
    for path, relative, entry in walk(root):
        yield _reference(path, relative, entry, source.prefix, splits, depth)


def _split_folders(root: bytes) -> tuple[str, ...]:
    """Returns the split folders at the top, or nothing if the folders there are classes."""
    folders = {os.fsdecode(entry.name): entry.path for entry in _scan(root) if _is_dir(entry)}
    if not could_be_splits(folders):
        return ()
    return splits_among(
        {
            name: [os.fsdecode(child.name) for child in _scan(path) if _is_dir(child)]
            for name, path in folders.items()
            if not name.startswith(".")
        }
    )


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


def walk(root: bytes) -> Iterator[tuple[bytes, bytes, os.DirEntry[bytes]]]:
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


def place(key: str, splits: tuple[str, ...], depth: int = 1) -> tuple[str, str]:
    """Returns (split, label) that a key's folders say; empty where they say none.

    In a split layout, what lies outside of the split folders goes to the first split.

    Args:
      key: of a file.
      splits: the folders at the top that are splits.
      depth: how many folders make a class name, as far as there are so many; or `ALL_FOLDERS` or
        `LAST_FOLDER`.
    """
    folders = key.split("/")[:-1]
    if not splits:
        return "", _label_of(folders, depth)
    if not folders or folders[0] not in splits:
        return splits[0], ""
    return folders[0], _label_of(folders[1:], depth)


def _label_of(folders: Sequence[str], depth: int) -> str:
    if depth == LAST_FOLDER:
        folders = folders[-1:]
    elif depth != ALL_FOLDERS:
        folders = folders[:depth]
    return one_label("/".join(filter(None, folders)))  # in a bucket names may be empty


def _reference(
    path: bytes,
    relative: bytes,
    entry: os.DirEntry[bytes],
    prefix: str,
    splits: tuple[str, ...],
    depth: int,
) -> ImageRef:
    key = key_from_bytes(relative)
    split, label = place(key, splits, depth)
    ref = ImageRef(key=prefix + key, uri=os.fsdecode(path), label=label, split=split)
    if relative.startswith(b".") or b"/." in relative:
        return ref.filtered(FilterReason.DOTFILE)
    try:
        status = entry.stat()
    except OSError:  # a link to nowhere, or gone since the folder was listed
        return _absent(ref)
    if stat.S_ISDIR(status.st_mode):
        return ref.filtered(FilterReason.SYMLINK_LOOP)
    if not stat.S_ISREG(status.st_mode):
        return ref.filtered(FilterReason.SPECIAL_FILE)
    ref = ref._replace(size=status.st_size, version=storage.local_version(status))
    return ref if claims_to_be_image(key) else _look_into(ref)


def _absent(ref: ImageRef) -> ImageRef:
    if not is_image_name(ref.key):
        return ref.filtered(FilterReason.NOT_AN_IMAGE)
    return ref.quarantined(QuarantineReason.UNREADABLE, "the symbolic link points nowhere")


def _look_into(ref: ImageRef) -> ImageRef:
    """Looks into a file whose name promises no image that can be read, and returns what it turns out to be.

    Something else is filtered; an image of a kind that is not read is quarantined.
    """
    try:
        check_kind(storage.read_head(ref.uri, HEAD_BYTES) if ref.size else b"", ref.key)
    except NotACandidate as filtered:
        return ref.filtered(filtered.reason)
    except ImageFault as fault:
        return ref.quarantined(fault.reason, fault.message)
    except OSError:
        # Whoever reads an image tells a storage that is away from a file that may not be read.
        return ref if is_image_name(ref.key) else ref.filtered(FilterReason.NOT_AN_IMAGE)
    return ref


def _list_remote(source: Input, depth: int) -> Iterator[ImageRef]:
    """Lists objects as their storage tells them; only what does not claim to be an image is looked into."""
    base = source.path.rstrip("/") + "/"
    splits, streams = _list_by_folder(base) if storage.has_folders(base) else _list_at_once(base)
    to_look_into: list[ImageRef] = []
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as executor:
        for item in merge_streams(streams, _REQUESTS_AT_ONCE):
            ref = _remote_reference(item, base, source.prefix, splits, depth)
            if not ref.is_candidate or claims_to_be_image(ref.key):
                yield ref
                continue
            to_look_into.append(ref)
            if len(to_look_into) >= _LOOKS_TOGETHER:
                yield from executor.map(_look_into, to_look_into)
                to_look_into = []
        yield from executor.map(_look_into, to_look_into)


_Listing = tuple[tuple[str, ...], Sequence[Iterable[storage.StoredObject]]]


def _list_by_folder(base: str) -> _Listing:
    """Returns the split folders and the listings of all class folders, to be drawn side by side."""
    tops = storage.list_folders(base)
    inner = {}
    if could_be_splits(tops):
        inner = {name: storage.list_folders(f"{base}{name}/") for name in tops}
    splits = splits_among(inner)
    deep = [f"{base}{name}/" for name in tops if name not in splits]  # a name may be empty
    deep += [f"{base}{name}/{child}/" for name in splits for child in inner[name]]
    shallow = [base, *(f"{base}{name}/" for name in splits)]
    return splits, [
        *(storage.list_objects(folder) for folder in deep),
        *(storage.list_objects(folder, deep=False) for folder in shallow),
    ]


def _list_at_once(base: str) -> _Listing:
    """Returns the split folders and the one listing of a storage that cannot list a level alone."""
    found = list(storage.list_objects(base))
    folders = [item.path.removeprefix(base).split("/")[:-1] for item in found]
    inner: dict[str, set[str]] = {path[0]: set() for path in folders if path}
    for path in folders:
        if len(path) > 1:
            inner[path[0]].add(path[1])
    return splits_among(inner), [found]


def could_be_splits(tops: Iterable[str]) -> bool:
    """Whether all folders at the top, hidden ones left out, are named like splits."""
    names = {name for name in tops if not name.startswith(".")}
    return bool(names) and names <= set(SPLIT_FOLDERS)


def splits_among(inner: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Returns the folders at the top if they are splits: named like some, and with folders in them."""
    names = [name for name in inner if not name.startswith(".")]
    nested = any(not child.startswith(".") for name in names for child in inner[name])
    return tuple(sorted(names, key=SPLIT_FOLDERS.index)) if nested and could_be_splits(names) else ()


def _remote_reference(
    item: storage.StoredObject, base: str, prefix: str, splits: tuple[str, ...], depth: int
) -> ImageRef:
    key = key_from_bytes(item.path.removeprefix(base).encode("utf-8", "surrogateescape"))
    split, label = place(key, splits, depth)
    ref = ImageRef(
        key=prefix + key,
        uri=item.path,
        label=label,
        split=split,
        size=item.size,
        version=item.version,
        crc32c=item.crc32c,
    )
    if any(part.startswith(".") for part in key.split("/")):
        return ref.filtered(FilterReason.DOTFILE)
    return ref


SOURCE = Source(
    name="class_folders",
    provides=frozenset({Needs.LABEL}),
    accepts=lambda glimpse, settings: not glimpse.is_file,
    describe=_describe,
    list_part=list_part,
    unique_keys=True,
    names_classes_by_folder=True,
)
