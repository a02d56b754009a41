"""Reads class folders, `CLASS/...` or `SPLIT/CLASS/...`; lists every file in them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from shardwright.schemas.codes import FilterReason, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, ImageFault, NotACandidate, UsageError
from shardwright.schemas.image_ref import ImageRef, is_image, key_from_bytes, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.transforms import storage
from shardwright.transforms.concurrency.pool import merge_streams
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.images.decode import check_kind
from shardwright.transforms.images.signatures import (
    HEAD_BYTES,
    claims_to_be_image,
    could_be_image,
    is_image_name,
    kind_of,
)
from shardwright.transforms.sources.files_beside import (
    FolderMetadata,
    MetadataReader,
    check_columns,
    every_image_has_metadata,
    local_images_have_metadata,
    without_metadata,
)
from shardwright.transforms.sources.folder_parts import (
    WHOLE,
    FolderPart,
    decode_part,
    encode_part,
    encode_tree,
)
from shardwright.transforms.sources.folder_tree import (
    AUTO,
    CLASS_FOLDERS,
    IMAGE_FOLDER,
    SPLITS,
    FolderTree,
    TopFolders,
    decide,
    is_shard_number,
    split_folders,
)
from shardwright.transforms.sources.input_probe import InputProbe
from shardwright.transforms.sources.source import Context, Input, InputSplit, Source, whole

#: Folders of object storage that are listed at once, and objects whose first bytes are read at once.
_REQUESTS_AT_ONCE = 16
#: Objects in one batch of such reads.
_LOOKS_TOGETHER = 256
#: Message for an image without a class.
NO_FOLDER = "it is not in a class folder"
#: Meaning of folders that give neither class nor split.
NO_MEANING = FolderTree(names_classes=False)


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    if probe.is_file:
        raise UsageError(
            f"--input {printable(probe.path)} is not a folder; name the folder that holds the images."
        )
    if storage.is_remote(probe.path) and not storage.has_folders(probe.path):
        # Details would need a whole listing, which a worker makes.
        return IMAGE_FOLDER if settings.record_layout.needs is Needs.IMAGE else CLASS_FOLDERS
    tree = find_tree(probe.path, settings, names=probe.folders)
    if not tree.metadata:
        check_columns(probe.path, SOURCE.name, settings)
    return tree.text


def split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields a part for each class folder, and one for the files directly in each folder above these.

    The input stays whole if one worker lists it, if its storage lists all objects at once, and if metadata
    files are beside the images.

    Raises:
      UsageError: if the folders are ambiguous.
      EngineError: if a folder cannot be listed.
    """
    if is_listed_whole(item, context):
        yield from whole(item, context)
    else:
        yield from split_folders_of(item, _checked_tree(item, context.settings, SOURCE.name))


def is_listed_whole(item: Input, context: Context) -> bool:
    """Returns whether one worker lists an input, or its storage lists all objects at once."""
    return context.one_worker or (storage.is_remote(item.path) and not storage.has_folders(item.path))


def split_folders_of(item: Input, tree: FolderTree) -> Iterator[InputSplit]:
    """Yields the parts of a folder, which together are the whole.

    Args:
      item: The folder.
      tree: Meaning of the folders inside.

    Raises:
      EngineError: if a folder cannot be listed.
    """
    parts: Iterable[FolderPart]
    if tree.metadata:
        parts = [WHOLE]
    elif storage.is_remote(item.path):
        parts = _folders_in_bucket(item.path.rstrip("/") + "/", tree)
    else:
        parts = _folders_on_disk(os.fsencode(item.path), tree)
    meaning = encode_tree(tree)
    for part in parts:
        path = f"{item.path.rstrip('/')}/{part.folder}" if part.folder else item.path
        yield InputSplit(item, path, detail=encode_part(part, meaning))


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for each file in a part of a folder, and the ids of numeric classes."""
    if not part.detail:
        yield from list_labelled(part.item, context.settings, SOURCE.name)
        return
    folder, tree = decode_part(part.detail)
    yield from _list_with_tree(part.item, context.settings, tree, part=folder)


def list_labelled(
    source: Input, settings: ConvertSettings, name: str, has_images: bool = True
) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for each file below a folder, with labels from folders and metadata files.

    Args:
      source: The folder.
      settings: Checked settings.
      name: Name of the source that reads the folder, for messages.
      has_images: Whether most files are images, so that missing columns are an error.

    Raises:
      UsageError: if the folders are ambiguous.
    """
    items = _all_objects(source.path)
    tree = _checked_tree(source, settings, name, items, has_images)
    yield from _list_with_tree(source, settings, tree, items)


def _checked_tree(
    source: Input,
    settings: ConvertSettings,
    name: str,
    items: Sequence[storage.StoredObject] | None = None,
    has_images: bool = True,
) -> FolderTree:
    tree = find_tree(source.path, settings, items)
    if not tree.metadata and has_images:
        check_columns(source.path, name, settings)
    return tree


def _list_with_tree(
    source: Input,
    settings: ConvertSettings,
    tree: FolderTree,
    items: Sequence[storage.StoredObject] | None = None,
    part: FolderPart = WHOLE,
) -> Iterator[ImageRef | ClassId]:
    refs = list_class_folders(source, settings.folders_of_label, tree, items, part)
    refs = (_placed(ref, tree, source.prefix) for ref in refs)
    if not tree.metadata:
        yield from refs
        return
    yield from MetadataReader(settings, tree.names_classes).add_all(refs, source.path)


def _placed(ref: ImageRef, tree: FolderTree, prefix: str) -> ImageRef:
    if tree.only_splits and is_image(ref) and tree.leaves_out(ref.key.removeprefix(prefix)):
        return ref._replace(message="").filtered(FilterReason.OUTSIDE_SPLITS)
    lacks_class = not ref.label and ref.is_candidate and not tree.classless
    return ref._replace(message=NO_FOLDER) if lacks_class else ref


def _all_objects(path: str) -> list[storage.StoredObject] | None:
    """Returns all objects if the storage cannot list a single level, so that it is listed only once."""
    if not storage.is_remote(path) or storage.has_folders(path):
        return None
    return sorted(storage.list_objects(path.rstrip("/") + "/"), key=_path_of)


def _path_of(item: storage.StoredObject) -> str:
    return item.path


def list_class_folders(
    source: Input,
    depth: int = 1,
    tree: FolderTree = NO_MEANING,
    items: Sequence[storage.StoredObject] | None = None,
    part: FolderPart = WHOLE,
) -> Iterator[ImageRef]:
    """Yields a reference for each file below a folder; follows symbolic links.

    Args:
      source: The folder.
      depth: Number of folders that make a class name (see `FolderTree.place`).
      tree: Meaning of the folders; by default none. If there is metadata, its files are left out.
      items: All objects of a bucket in the order of their paths, if they are known.
      part: Part of the folder to list.

    Raises:
      EngineError: if a folder cannot be listed.
    """
    if storage.is_remote(source.path):
        yield from _list_remote(source, depth, tree, items, part)
        return
    beside = FolderMetadata() if tree.metadata else None
    place = _PlaceOfFolder(tree, depth)
    for path, relative, entry in walk(os.fsencode(source.path), os.fsencode(part.folder), part.deep):
        if not (beside and beside.holds(path)):
            yield _reference(path, relative, entry, source.prefix, place)


def find_tree(
    path: str,
    settings: ConvertSettings,
    items: Sequence[storage.StoredObject] | None = None,
    names: Sequence[str] | None = None,
) -> FolderTree:
    """Finds the meaning of an input's folders, and whether metadata is beside the images.

    It examines only the names at the top and the first images, unless a folder is named like a split or
    a shard. Then it searches each folder at the top for its first image. A folder without images is
    searched completely, because its first thousand names prove nothing.

    Args:
      path: The input.
      settings: Checked settings.
      items: All objects of a bucket in the order of their paths, if they are known.
      names: Names of the folders at the top, if they are known.

    Raises:
      UsageError: if the folders are ambiguous.
      EngineError: if a folder cannot be listed.
    """
    folders, classless = settings.folders, settings.record_layout.needs is Needs.IMAGE
    metadata = _has_metadata(path, items)
    shown, images_in = _top_folders(path, items, names) if folders in (AUTO, SPLITS) else ([], _no_images)
    tops, empty = _look_at_tops(shown, images_in) if folders == AUTO else (TopFolders(), [])
    tree = decide(tops, folders, path, shown, metadata, classless)
    return replace(tree, empty=tuple(empty))


def _has_metadata(path: str, items: Sequence[storage.StoredObject] | None) -> bool:
    if not storage.is_remote(path):
        return local_images_have_metadata(
            file
            for file, relative, entry in walk(os.fsencode(path))
            if is_image_name(os.fsdecode(entry.name)) and not _is_hidden(relative)
        )
    base = path.rstrip("/") + "/"
    found = storage.list_objects(base) if items is None else items
    return every_image_has_metadata(item.path.removeprefix(base) for item in found)


def _is_hidden(relative: bytes) -> bool:
    return relative.startswith(b".") or b"/." in relative


#: For each image in a top folder, yields whether it is in a subfolder; nested images first if asked.
_ImagesIn = Callable[[str, bool], Iterator[bool]]


def _no_images(name: str, nested_first: bool) -> Iterator[bool]:
    return iter(())


def _top_folders(
    path: str, items: Sequence[storage.StoredObject] | None, names: Sequence[str] | None
) -> tuple[list[str], _ImagesIn]:
    """Returns the names of visible top folders, and a function that finds images in one."""
    if not storage.is_remote(path):
        root = os.fsencode(path)
        found = {os.fsdecode(entry.name): entry.path for entry in _scan(root) if _is_dir(entry)}
        return _visible(found), lambda name, _: _images_in_folder(found[name])
    base = path.rstrip("/") + "/"
    if items is None:
        shown = _visible(storage.list_folders(base) if names is None else names)
        return shown, lambda name, nested_first: _images_in_prefix(f"{base}{name}/", nested_first)
    below: dict[str, list[storage.StoredObject]] = {}
    for item in items:
        top, slash, _ = item.path.removeprefix(base).partition("/")
        if slash:
            below.setdefault(top, []).append(item)
    return _visible(below), lambda name, _: _images_among(f"{base}{name}/", below[name])


def _visible(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name and not name.startswith("."))


def _look_at_tops(names: Sequence[str], images_in: _ImagesIn) -> tuple[TopFolders, list[str]]:
    """Searches the top folders until their meaning is clear; also returns the folders without images."""
    tops = TopFolders()
    empty: list[str] = []
    splits = list(split_folders(names))
    numbers = [name for name in names if is_shard_number(name)]
    if not splits and not numbers:
        return tops, empty
    for name in [name for name in names if name not in splits and name not in numbers] + numbers:
        nested = next(images_in(name, False), None)
        if nested is None:
            empty.append(name)
        else:
            tops.add(name, nested)
            break  # one such folder decides against splits, or makes the numbers ambiguous
    for name in splits:
        for nested in images_in(name, True):
            tops.add(name, nested)
            if nested or tops.other or tops.number:
                return tops, empty
    return tops, empty


def _images_in_folder(folder: bytes) -> Iterator[bool]:
    flat = False
    for path, relative, entry in walk(folder):
        nested = b"/" in relative
        if _is_hidden(relative) or (flat and not nested):
            continue
        name = os.fsdecode(entry.name)
        if is_image_name(name) or (could_be_image(name) and _is_image_file(path, entry)):
            flat = flat or not nested
            yield nested


def _is_image_file(path: bytes, entry: os.DirEntry[bytes]) -> bool:
    try:
        if not stat.S_ISREG(entry.stat().st_mode):
            return False
        return kind_of(storage.read_head(os.fsdecode(path), HEAD_BYTES)) is not None
    except OSError:  # a broken link, or a file without read permission
        return False


def _images_in_prefix(base: str, nested_first: bool) -> Iterator[bool]:
    if not nested_first:
        yield from _images_among(base, storage.list_objects(base))
        return
    for child in _visible(storage.list_folders(base)):
        if next(_images_among(base, storage.list_objects(f"{base}{child}/")), False):
            yield True
    yield from _images_among(base, storage.list_objects(base, deep=False))


def _images_among(base: str, items: Iterable[storage.StoredObject]) -> Iterator[bool]:
    flat = False
    for item in items:
        parts = item.path.removeprefix(base).split("/")
        nested = len(parts) > 1
        if any(part.startswith(".") for part in parts) or (flat and not nested):
            continue
        if is_image_name(parts[-1]) or (could_be_image(parts[-1]) and _is_image_object(item)):
            flat = flat or not nested
            yield nested


def _is_image_object(item: storage.StoredObject) -> bool:
    try:
        return bool(item.size) and kind_of(storage.read_head(item.path, HEAD_BYTES)) is not None
    except OSError:
        return False


def _scan(folder: bytes) -> list[os.DirEntry[bytes]]:
    UNDERWAY.progress()
    try:
        with os.scandir(folder) as entries:
            return sorted(UNDERWAY.passing(entries), key=lambda entry: entry.name)
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
    """Returns whether an entry is a directory or a link to one; a broken link is not."""
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


def walk(
    root: bytes, folder: bytes = b"", deep: bool = True
) -> Iterator[tuple[bytes, bytes, os.DirEntry[bytes]]]:
    """Yields (path, path relative to the input, entry) for everything except directories, depth first.

    A directory that contains itself, because of a link, is yielded like a file.

    Args:
      root: The input.
      folder: Folder to walk, relative to the input; by default the input itself.
      deep: Whether to walk the folders inside too.
    """
    scanned, above = _open(root, folder)
    open_folders = [(iter(scanned), folder)]
    while open_folders:
        entries, relative = open_folders[-1]
        for entry in entries:
            name = relative + b"/" + entry.name if relative else entry.name
            if not _leads_down(entry, above):
                yield entry.path, name, entry
                continue
            if not deep:
                continue
            open_folders.append((iter(_scan(entry.path)), name))
            above.append(_identity(entry.path))
            break
        else:
            open_folders.pop()
            above.pop()


def _open(root: bytes, folder: bytes) -> tuple[list[os.DirEntry[bytes]], list[tuple[int, int]]]:
    """Returns the entries of a folder, and the identities of the folder and of those that contain it."""
    above, path = [_identity(bytes(parent)) for parent in Path(os.fsdecode(root)).resolve().parents], root
    for name in folder.split(b"/") if folder else []:
        above.append(_identity(path))
        path = os.path.join(path, name)
    entries = _scan(path)
    return entries, [*above, _identity(path)]


def _leads_down(entry: os.DirEntry[bytes], above: Sequence[tuple[int, int]]) -> bool:
    """Returns whether an entry is a directory, or a link to one, that does not contain the entry.

    Args:
      entry: The entry.
      above: Identities of the folders that contain it.
    """
    return _is_dir(entry) and _identity(entry.path) not in above


def _folders_on_disk(root: bytes, tree: FolderTree) -> Iterator[FolderPart]:
    """Yields the parts of an input on a disk; together they are everything that `walk` yields."""
    yield FolderPart(deep=False)
    for top in _folders_inside(root, b""):
        name = os.fsdecode(top)
        if name not in tree.splits:
            yield FolderPart(name)
            continue
        yield FolderPart(name, deep=False)
        for inner in _folders_inside(root, top):
            yield FolderPart(os.path.join(name, os.fsdecode(inner)))


def _folders_inside(root: bytes, folder: bytes) -> list[bytes]:
    entries, above = _open(root, folder)
    return [entry.name for entry in entries if _leads_down(entry, above)]


class _PlaceOfFolder:
    """Returns the split and the class of a key, and remembers those of the last folder."""

    def __init__(self, tree: FolderTree, depth: int) -> None:
        self._tree, self._depth = tree, depth
        self._folder: str | None = None
        self._place = "", ""

    def __call__(self, key: str) -> tuple[str, str]:
        folder = key.rpartition("/")[0]
        if folder != self._folder:
            self._folder, self._place = folder, self._tree.place(key, self._depth)
        return self._place


def _reference(
    path: bytes, relative: bytes, entry: os.DirEntry[bytes], prefix: str, place: _PlaceOfFolder
) -> ImageRef:
    key = key_from_bytes(relative)
    split, label = place(key)
    name, uri = prefix + key, path.decode() if path.isascii() else os.fsdecode(path)
    if _is_hidden(relative):
        return ImageRef(name, uri, label, split).filtered(FilterReason.DOTFILE)
    try:
        status = entry.stat()
    except OSError:  # a broken link, or deleted since the folder was listed
        return _absent(ImageRef(name, uri, label, split))
    if stat.S_ISDIR(status.st_mode):
        return ImageRef(name, uri, label, split).filtered(FilterReason.SYMLINK_LOOP)
    if not stat.S_ISREG(status.st_mode):
        return ImageRef(name, uri, label, split).filtered(FilterReason.SPECIAL_FILE)
    # Made at once, because changing a named tuple takes as long as reading the file's state.
    ref = ImageRef(name, uri, label, split, "", status.st_size, storage.local_version(status))
    return ref if claims_to_be_image(key) else _look_into(ref)


def _absent(ref: ImageRef) -> ImageRef:
    if not is_image_name(ref.key):
        return ref.filtered(FilterReason.NOT_AN_IMAGE)
    return ref.quarantined(QuarantineReason.UNREADABLE, "the symbolic link points nowhere")


def _look_into(ref: ImageRef) -> ImageRef:
    """Checks the first bytes of a file whose name is not that of a readable image.

    A file that is not an image is filtered. An image of an unsupported kind is quarantined.
    """
    try:
        check_kind(storage.read_head(ref.uri, HEAD_BYTES) if ref.size else b"", ref.key)
    except NotACandidate as filtered:
        return ref.filtered(filtered.reason)
    except ImageFault as fault:
        return ref.quarantined(fault.reason, fault.message)
    except OSError:
        # Reading the image later reports whether the storage or the permission failed.
        return ref if is_image_name(ref.key) else ref.filtered(FilterReason.NOT_AN_IMAGE)
    return ref


def _list_remote(
    source: Input,
    depth: int,
    tree: FolderTree,
    items: Sequence[storage.StoredObject] | None,
    part: FolderPart,
) -> Iterator[ImageRef]:
    """Lists remote objects; reads the first bytes only of objects that are not named like images."""
    base = source.path.rstrip("/") + "/"
    streams: Sequence[Iterable[storage.StoredObject]]
    if items is not None:
        streams = [items]
    else:
        several = part == WHOLE and storage.has_folders(base)
        parts = [*_folders_in_bucket(base, tree)] if several else [part]
        streams = [
            storage.list_objects(base + inner.folder, inner.deep) for inner in parts
        ]  # read in parallel
    if tree.metadata:
        streams = [without_metadata(stream, _path_of) for stream in streams]
    to_look_into: list[ImageRef] = []
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as executor:
        for item in merge_streams(streams, _REQUESTS_AT_ONCE):
            ref = _remote_reference(item, base, source.prefix, tree, depth)
            if not ref.is_candidate or claims_to_be_image(ref.key):
                yield ref
                continue
            to_look_into.append(ref)
            if len(to_look_into) >= _LOOKS_TOGETHER:
                yield from executor.map(_look_into, to_look_into)
                to_look_into = []
        yield from executor.map(_look_into, to_look_into)


def _folders_in_bucket(base: str, tree: FolderTree) -> Iterator[FolderPart]:
    """Yields the parts of an input in a bucket; together they are all objects."""
    yield FolderPart(deep=False)
    for top in storage.list_folders(base):
        folder = f"{top}/"  # a name can be empty
        if top not in tree.splits:
            yield FolderPart(folder)
            continue
        yield FolderPart(folder, deep=False)
        for inner in storage.list_folders(base + folder):
            yield FolderPart(f"{folder}{inner}/")


def _remote_reference(
    item: storage.StoredObject, base: str, prefix: str, tree: FolderTree, depth: int
) -> ImageRef:
    key = key_from_bytes(item.path.removeprefix(base).encode("utf-8", "surrogateescape"))
    split, label = tree.place(key, depth)
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
    provides=frozenset({Needs.LABEL, Needs.IMAGE}),
    settings=frozenset({"label_depth", "folders"}),
    metadata_settings=frozenset({"label_column", "extra_columns", "label_separator"}),
    accepts=lambda probe, settings: not probe.is_file,
    describe=_describe,
    list_part=list_part,
    split=split,
    unique_keys=True,
    names_classes_by_folder=True,
    has_columns=True,
)
