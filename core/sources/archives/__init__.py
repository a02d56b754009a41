"""Archives: zip and tar files, plain or compressed. Class folders inside mean the same as on a disk."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile

from shardwright.core.images.read import read_head
from shardwright.core.images.signatures import (
    HEAD_BYTES,
    claims_to_be_image,
    extension_of,
    is_image_name,
    kind_of,
)
from shardwright.core.sources.annotation_files import side_by_side
from shardwright.core.sources.archives.files import (
    ArchiveFile,
    OpenArchive,
    checked_kind,
    extension_kind,
    first_archive,
    is_archive_head,
    is_listed_archive,
    kind_of_archive,
    open_archive,
    split_archives,
    why_filtered,
)
from shardwright.core.sources.archives.members import is_left_out
from shardwright.core.sources.archives.tars import COMPRESSED
from shardwright.core.sources.class_folders import NO_FOLDER, find_tree, list_labelled, with_kind
from shardwright.core.sources.files_beside import (
    MetadataReader,
    check_columns,
    is_metadata_name,
    stem_of,
)
from shardwright.core.sources.folder_tree import IGNORE, FolderTree, decide, split_of_folder
from shardwright.core.sources.hashing import name_hash
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.label_rules import take_apart
from shardwright.core.sources.source import Context, InputSplit, Source
from shardwright.core.storage.ranges import open_ranges
from shardwright.schemas.codes import FilterReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import NO_SPLIT, ImageRef
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs

#: Extensions of zip files that are not archives of images.
_NOT_FOR_US = frozenset(("npz", "docx", "xlsx", "pptx", "odt", "jar", "apk", "whl", "pt", "pth", "keras"))


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    if not probe.is_file:
        return bool(first_archive(probe))
    if extension_kind(probe.name):
        return True
    if (
        extension_of(probe.name) in _NOT_FOR_US
        or is_image_name(probe.name)
        or not is_archive_head(probe.head)
    ):
        return False
    with open_ranges(probe.path) as reader:
        return bool(kind_of_archive(reader, probe.name))


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    kind = checked_kind(probe)
    if not kind:
        return "a folder of archives"
    return f"a tar archive compressed with {kind}" if kind in COMPRESSED else f"a {kind} archive"


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for each member of an archive, or for each file beside archives."""
    regex = context.settings.label_regex
    # The names of files give the classes, so those of folders have no meaning.
    folders = IGNORE if regex else context.settings.folders
    pattern = re.compile(regex) if regex else None
    if part.detail:
        listed = _list_archive(part, context, folders)
    else:
        settings = replace(context.settings, folders=folders)
        tree = find_tree(InputProbe(part.path, is_file=False), settings)
        listed = list_labelled(part.item, settings, tree)
    for ref in listed:
        if isinstance(ref, ClassId):
            yield ref
            continue
        if not part.detail and is_listed_archive(ref.key.removeprefix(part.item.prefix), ref.size):
            continue
        if pattern and ref.split != NO_SPLIT:
            ref = take_apart(ref, pattern, part.item.prefix)
        elif ref.is_candidate and not ref.label and not ref.message:
            ref = ref._replace(message=NO_FOLDER)
        yield ref


def _list_archive(part: InputSplit, context: Context, folders: str) -> Iterator[ImageRef | ClassId]:
    archive, settings = ArchiveFile(*json.loads(part.detail)), context.settings
    with open_archive(part, archive, context) as opened:
        metadata = _metadata_of(opened)
        if metadata is None and opened.members:
            check_columns(part.path, "archives", settings)
        meaning = _meaning_of_folders(opened, context.settings, folders, metadata is not None)
        refs = _references(opened, meaning, metadata or {})
        refs = side_by_side(_look_into, refs, opened.file or part.path)
        if metadata is None:
            yield from refs
            return

        def read(ref: ImageRef, name: str) -> bytes | None:
            _, _, path = ref.key.rpartition(f"{archive.key}!")
            member = metadata.get(f"{stem_of(path)}.{name}")
            return opened.read_metadata(member, name) if member else None

        reader = MetadataReader(settings, meaning.tree.names_classes, read)
        yield from reader.add_all(refs, opened.file or part.path)


def _usable(opened: OpenArchive) -> Iterator[ImageRef]:
    """Yields the members without a fault that are not hidden."""
    return (ref for ref in opened.members if ref.is_candidate and not is_left_out(ref.key))


def _metadata_of(opened: OpenArchive) -> dict[str, ImageRef] | None:
    """Returns path -> member of the metadata of images; None unless each image has some beside it."""
    images: set[int] = set()
    beside: dict[str, ImageRef] = {}
    for ref in _usable(opened):
        if is_image_name(ref.key):
            images.add(name_hash(stem_of(ref.key)))
        elif is_metadata_name(ref.key):
            beside[ref.key] = ref
    stems = {path: name_hash(stem_of(path)) for path in beside}
    if not images or not images.issubset(stems.values()):
        return None
    return {path: member for path, member in beside.items() if stems[path] in images}


def _image_folders(opened: OpenArchive) -> set[str]:
    """Returns the folders that hold images, also images that only their bytes identify."""
    folders: set[str] = set()
    for ref in _usable(opened):
        folder, _, name = ref.key.rpartition("/")
        if folder not in folders and (
            is_image_name(name) or (not why_filtered(ref.key) and _has_image_head(opened, ref))
        ):
            folders.add(folder)
    return folders


def _has_image_head(opened: OpenArchive, member: ImageRef) -> bool:
    try:
        return kind_of(read_head(member._replace(uri=opened.part.path), HEAD_BYTES)) is not None
    except ImageFault:
        return False


@dataclass(frozen=True)
class _MemberFolders:
    """Meaning of the folders of an archive.

    Attributes:
      tree: Meaning of the folders around the archive and of those in it.
      above: Folders below the input that contain the archive.
      wrappers: Number of folders in the archive that have no meaning, because they are around all images.
      depth: Number of folders that make a class name (see `FolderTree.place`).
    """

    tree: FolderTree
    above: tuple[str, ...]
    wrappers: int
    depth: int

    def inside(self, path: str) -> str:
        """Returns the path of a member as `tree` takes it: below the input, and without the wrappers."""
        parts = path.split("/")
        inside = parts[self.wrappers :] if len(parts) > self.wrappers else parts[-1:]
        return "/".join((*self.above, *inside))


def _meaning_of_folders(
    opened: OpenArchive, settings: ConvertSettings, choice: str, metadata: bool
) -> _MemberFolders:
    """Decides what the folders of an archive mean, by the rules for folders on a disk.

    Args:
      opened: The archive.
      settings: Checked settings.
      choice: The setting `--folders`, or that folders have no meaning.
      metadata: Whether each image has a metadata file beside it.

    Raises:
      UsageError: If the folders are ambiguous.
    """
    paths = [tuple(folder.split("/")) if folder else () for folder in _image_folders(opened)]
    # Skip a folder that contains everything, as long as all images are in folders inside it.
    levels = zip(*(path[:-1] for path in paths))
    shared = takewhile(lambda names: len(set(names)) == 1 and not split_of_folder(names[0]), levels)
    wrappers = len(list(shared))
    above = tuple(opened.archive.key.split("/")[:-1])
    named = (*opened.archive.tops, above[0]) if above else ()
    tops: dict[str, bool] = {}
    for path in ((*above, *path[wrappers:]) for path in paths):
        if path:
            tops[path[0]] = tops.get(path[0], False) or len(path) > 1
    if tops and above:  # the other archives are taken to be like this one
        tops = dict.fromkeys(named, tops[above[0]])
    classless = settings.record_layout.needs is Needs.IMAGE
    tree = decide(tops, choice, opened.part.item.path, named, metadata, classless)
    # Keep enough folders for a class name, if any image is in that many.
    depth = settings.folders_of_label
    kept = depth - len(above) + (1 if above and tree.splits else 0)
    if kept > 1 and (above or not tree.splits):
        wrappers = min(wrappers, max(max(map(len, paths), default=-1) - kept, 0))
    return _MemberFolders(tree, above, wrappers, depth)


def _references(
    opened: OpenArchive, meaning: _MemberFolders, metadata: Mapping[str, ImageRef]
) -> Iterator[ImageRef]:
    """Yields a reference for each member, filtered by its name and folders."""
    for path, ref in opened.entries():
        if ref.split == NO_SPLIT:
            yield ref
            continue
        if ref.is_candidate and path in metadata:
            continue
        inside = meaning.inside(path)
        split, label = meaning.tree.place(inside, meaning.depth)
        ref = ref._replace(split=split, label=label)
        reason = why_filtered(path)
        if not reason and meaning.tree.leaves_out(inside):
            reason = FilterReason.OUTSIDE_SPLITS
        yield ref.filtered(reason) if ref.is_candidate and reason else ref


def _look_into(ref: ImageRef) -> ImageRef:
    """Returns a reference, after checking the first bytes of a member whose name does not say what it is."""
    if not ref.is_candidate or claims_to_be_image(ref.key):
        return ref
    try:
        head = read_head(ref, HEAD_BYTES)
    except ImageFault:
        return ref if is_image_name(ref.key) else ref.filtered(FilterReason.NOT_AN_IMAGE)
    return ref.filtered(FilterReason.NESTED_ARCHIVE) if is_archive_head(head) else with_kind(ref, head)


SOURCE = Source(
    name="archives",
    provides=frozenset({Needs.LABEL, Needs.IMAGE}),
    settings=frozenset(
        {"label_column", "extra_columns", "label_separator", "label_regex", "label_depth", "folders"}
    ),
    accepts=_accepts,
    describe=_describe,
    list_part=list_part,
    split=split_archives,
)
