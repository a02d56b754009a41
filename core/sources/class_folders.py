"""Reads class folders, `CLASS/...` or `SPLIT/CLASS/...`; lists every file in them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import NamedTuple

from shardwright.core import storage
from shardwright.core.concurrency.thread_pool import merge_streams
from shardwright.core.images import signatures
from shardwright.core.images.decode import check_kind
from shardwright.core.sources import files_beside
from shardwright.core.sources.annotation_files import side_by_side
from shardwright.core.sources.folder_tree import AUTO, FolderTree, decide, is_shard_number, split_folders
from shardwright.core.sources.image_files import files_below, is_hidden, key_of, walk
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.source import Context, Input, InputPart, Source
from shardwright.schemas.codes import FilterReason, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault, NotACandidate, UsageError
from shardwright.schemas.image_ref import ImageRef, is_image
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs

#: Folders of object storage that are listed at once.
_REQUESTS_AT_ONCE = 16
#: Files in one batch whose first bytes are read, at once if they are remote.
_LOOKS_TOGETHER = 256
#: Message for an image without a class.
NO_FOLDER = "it is not in a class folder"
#: Meaning of folders that give neither class nor split.
NO_MEANING = FolderTree(names_classes=False)


class FolderPart(NamedTuple):
    """A part of an input that is a folder in a bucket.

    Attributes:
      folder: Path below the input with a slash at its end; empty for the input itself.
      deep: Whether the folders inside belong to the part too.
    """

    folder: str = ""
    deep: bool = True


#: The whole input.
WHOLE = FolderPart()


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    if probe.is_file:
        raise UsageError(f"{probe.where} is not a folder; name the folder that holds the images.")
    tree = find_tree(probe, settings)
    if not tree.metadata:
        files_beside.check_columns(probe.path, SOURCE.name, settings)
    return tree.text


def folder_parts(item: Input, tree: FolderTree, context: Context) -> Iterator[InputPart]:
    """Yields a part for each class folder in a bucket, and one for the files directly in each folder above.

    The folder stays whole on a disk, if one worker lists it, or if metadata files are beside the images.

    Args:
      item: The folder.
      tree: Meaning of the folders inside.
      context: Context of the listing.

    Raises:
      EngineError: If a folder cannot be listed.
    """
    meaning = replace(tree, empty=())
    is_whole = context.one_worker or tree.metadata or not storage.is_remote(item.path)
    for part in [WHOLE] if is_whole else _parts_of(item.path, tree):
        path = storage.join(item.path, part.folder).rstrip("/")
        yield InputPart(item, path, detail=(meaning, part))


def _parts_of(path: str, tree: FolderTree) -> Iterator[FolderPart]:
    """Yields the parts of an input in a bucket; together they are the whole."""
    yield FolderPart(deep=False)
    base = f"{path.rstrip('/')}/"
    for top in storage.list_folders(base):
        in_split = top in tree.splits
        yield FolderPart(f"{top}/", deep=not in_split)
        for inner in storage.list_folders(f"{base}{top}/") if in_split else ():
            yield FolderPart(f"{top}/{inner}/")


def list_labelled(
    source: Input, settings: ConvertSettings, tree: FolderTree, part: FolderPart = WHOLE
) -> Iterator[ImageRef | ClassId]:
    """Returns a reference for each file of a part, with labels from folders and metadata files."""
    listed = list_class_folders(source, settings.folders_of_label, tree, part)
    refs = map(partial(_placed, tree, source.prefix), listed)
    if not tree.metadata:
        return refs
    return files_beside.add_metadata(refs, source.path, settings, tree.names_classes)


def _placed(tree: FolderTree, prefix: str, ref: ImageRef) -> ImageRef:
    if is_image(ref) and tree.leaves_out(ref.key.removeprefix(prefix)):
        return ref._replace(message="").filtered(FilterReason.OUTSIDE_SPLITS)
    lacks_class = not ref.label and ref.is_candidate and not tree.classless
    return ref._replace(message=NO_FOLDER) if lacks_class else ref


def find_tree(probe: InputProbe, settings: ConvertSettings) -> FolderTree:
    """Finds the meaning of an input's folders, and whether metadata is beside the images.

    It examines only the names at the top and the first images, unless a folder is named like a split or
    a shard. Then it searches each folder at the top for its first image. A folder without images is
    searched completely, because its first thousand names prove nothing.

    Raises:
      UsageError: If the folders are ambiguous.
      EngineError: If a folder cannot be listed.
    """
    path = probe.path
    metadata = files_beside.every_image_has_metadata(inner for inner, _ in files_below(path))
    named = probe.folders
    tops, empty = _look_at_tops(path, named) if settings.folders == AUTO else ({}, [])
    return replace(decide(tops, settings, path, named, metadata), empty=tuple(empty))


def _look_at_tops(path: str, names: Sequence[str]) -> tuple[dict[str, bool], list[str]]:
    """Searches the top folders until their meaning is clear.

    Returns:
      Folder -> whether some of its images are in subfolders; and the folders without images.
    """
    tops: dict[str, bool] = {}
    empty: list[str] = []
    splits = split_folders(names)
    others = sorted((name for name in names if name not in splits), key=is_shard_number)
    if not splits and not any(map(is_shard_number, others)):
        return tops, empty
    for name in others:
        nested = next(_images_in(storage.join(path, name)), None)
        if nested is not None:
            tops[name] = nested
            break  # one such folder decides against splits, or makes the numbers ambiguous
        empty.append(name)
    has_other = bool(tops)
    for name in splits:
        for nested in _images_in(storage.join(path, name)):
            tops[name] = tops.get(name, False) or nested
            if nested or has_other:
                return tops, empty
    return tops, empty


def _images_in(folder: str) -> Iterator[bool]:
    """Yields whether each image of a folder is in a subfolder; of all images that are not, only the first."""
    flat = False
    for path, state in files_below(folder):
        nested = "/" in path
        if is_hidden(path) or (flat and not nested):
            continue
        name = path.rpartition("/")[2]
        may_be = state.size > 0 and signatures.could_be_image(name)
        if signatures.is_image_name(name) or (may_be and is_image(_look_into(ImageRef(name, state.path)))):
            flat = flat or not nested
            yield nested


def list_class_folders(
    source: Input, depth: int = 1, tree: FolderTree = NO_MEANING, part: FolderPart = WHOLE
) -> Iterator[ImageRef]:
    """Yields a reference for each file below a folder; follows symbolic links.

    Args:
      source: The folder.
      depth: Number of folders that make a class name (see `FolderTree.place`).
      tree: Meaning of the folders; by default none. If there is metadata, its files are left out.
      part: Part of the folder to list, in a bucket.

    Raises:
      EngineError: If a folder cannot be listed.
    """
    unclear: list[ImageRef] = []
    for relative, state in _files(source.path, tree, part):
        key = key_of(relative)
        split, label = tree.place(key, depth)
        key_in_dataset = source.prefix + key
        if is_hidden(key):
            yield ImageRef(key_in_dataset, state.path, label, split).filtered(FilterReason.DOTFILE)
            continue
        ref = ImageRef(
            key_in_dataset, state.path, label, split, "", state.size, state.version, crc32c=state.crc32c
        )
        if state.size < 0:
            ref = _without_file(ref)
        if not ref.is_candidate or signatures.claims_to_be_image(ref.key):
            yield ref
            continue
        unclear.append(ref)
        if len(unclear) == _LOOKS_TOGETHER:
            yield from side_by_side(_look_into, unclear, source.path)
            unclear = []
    yield from side_by_side(_look_into, unclear, source.path)


def _look_into(ref: ImageRef) -> ImageRef:
    """Checks the first bytes of a file that is no readable image by its name."""
    try:
        head = storage.read_head(ref.uri, signatures.HEAD_BYTES) if ref.size else b""
    except OSError:
        # Reading the image later reports whether the storage or the permission failed.
        return ref if signatures.is_image_name(ref.key) else ref.filtered(FilterReason.NOT_AN_IMAGE)
    return with_kind(ref, head)


def with_kind(ref: ImageRef, head: bytes) -> ImageRef:
    """Returns a reference, filtered or quarantined if its first bytes are not an image that can be read."""
    try:
        check_kind(head, ref.key)
    except NotACandidate as filtered:
        return ref.filtered(filtered.reason)
    except ImageFault as fault:
        return ref.quarantined(fault.reason, fault.message)
    return ref


def _without_file(ref: ImageRef) -> ImageRef:
    """Returns a reference to something on a disk that is not a regular file, filtered or quarantined."""
    try:
        is_folder = stat.S_ISDIR(os.stat(ref.uri).st_mode)
    except OSError:  # a broken link, or deleted since the folder was listed
        if not signatures.is_image_name(ref.key):
            return ref.filtered(FilterReason.NOT_AN_IMAGE)
        return ref.quarantined(QuarantineReason.UNREADABLE, "the symbolic link points nowhere")
    return ref.filtered(FilterReason.SYMLINK_LOOP if is_folder else FilterReason.SPECIAL_FILE)


def _files(path: str, tree: FolderTree, part: FolderPart) -> Iterator[tuple[str, storage.StoredObject]]:
    """Yields (path below the input, state) of the files in a part of the input, without metadata files."""
    streams: list[Iterable[tuple[str, storage.StoredObject]]] = [walk(path)]
    if storage.is_remote(path):
        base = f"{path.rstrip('/')}/"
        parts = _parts_of(path, tree) if part == WHOLE else [part]
        listed = (storage.list_objects(base + inner.folder, inner.deep) for inner in parts)
        streams = [((item.path.removeprefix(base), item) for item in items) for items in listed]
    if tree.metadata:
        streams = [files_beside.without_metadata(stream, itemgetter(0)) for stream in streams]
    return iter(streams[0]) if len(streams) == 1 else merge_streams(streams, _REQUESTS_AT_ONCE)


SOURCE = Source(
    name="class_folders",
    provides=frozenset({Needs.LABEL, Needs.IMAGE}),
    settings=frozenset({"label_depth", "folders"}),
    metadata_settings=frozenset({"label_column", "extra_columns", "label_separator"}),
    accepts=lambda probe, settings: not probe.is_file,
    describe=_describe,
    list_part=lambda part, context: list_labelled(part.item, context.settings, *part.detail),
    parts=lambda item, context: folder_parts(
        item, find_tree(InputProbe(item.path, is_file=False), context.settings), context
    ),
    unique_keys=True,
)
