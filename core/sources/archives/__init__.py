"""Archives: zip and tar files, plain or compressed. Class folders inside mean the same as on a disk."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import takewhile

from shardwright.core.images.read import read_head
from shardwright.core.images.signatures import HEAD_BYTES, claims_to_be_image, extension_of, is_image_name
from shardwright.core.sources.annotation_files import side_by_side
from shardwright.core.sources.archives import files
from shardwright.core.sources.archives.members import is_left_out
from shardwright.core.sources.class_folders import NO_FOLDER, find_tree, list_labelled, with_kind
from shardwright.core.sources.file_states import name_hash
from shardwright.core.sources.files_beside import add_metadata, check_columns, is_metadata_name, stem_of
from shardwright.core.sources.folder_tree import IGNORE, FolderTree, decide, split_of_folder
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.rules import take_apart
from shardwright.core.sources.source import Context, InputPart, Source
from shardwright.core.storage.ranges import open_ranges
from shardwright.schemas.codes import FilterReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import NO_SPLIT, ImageRef, is_image
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs

#: Extensions of zip files that are not archives of images.
_NOT_FOR_US = frozenset(("npz", "docx", "xlsx", "pptx", "odt", "jar", "apk", "whl", "pt", "pth", "keras"))


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    if not probe.is_file:
        return bool(files.first_archive(probe))
    if files.extension_kind(probe.name):
        return True
    if extension_of(probe.name) in _NOT_FOR_US or is_image_name(probe.name):
        return False
    may_be = files.is_archive_head(probe.head)
    return may_be and bool(files.kind_of_archive(open_ranges(probe.path), probe.name))


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    kind = files.checked_kind(probe)
    if not kind:
        return f"a folder of archives{files.describe_splits(probe, settings)}"
    return f"a tar archive compressed with {kind}" if kind in files.COMPRESSED else f"a {kind} archive"


def list_part(part: InputPart, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for each member of an archive, or for each file beside archives."""
    regex = context.settings.label_regex
    if regex:  # the names of files give the classes, so the folders have no meaning
        context = replace(context, settings=replace(context.settings, folders=IGNORE))
    pattern, archive = re.compile(regex), part.detail.key if part.detail else ""
    if part.detail:
        listed = _list_archive(part, context)
    else:
        tree = find_tree(InputProbe(part.item.path, is_file=False), context.settings)
        listed = list_labelled(part.item, context.settings, tree)
    for ref in listed:
        if isinstance(ref, ClassId):
            yield ref
        elif not part.detail and files.is_listed_archive(ref.key.removeprefix(part.item.prefix), ref.size):
            continue
        elif regex and ref.split != NO_SPLIT:
            yield take_apart(ref, pattern, part.item.prefix, archive)
        else:
            lacks_class = ref.is_candidate and not ref.label and not ref.message
            yield ref._replace(message=NO_FOLDER) if lacks_class else ref


def _list_archive(part: InputPart, context: Context) -> Iterator[ImageRef | ClassId]:
    settings = context.settings
    with files.open_archive(part, context) as opened:
        metadata, folders = _look_at_members(opened)
        if metadata is None and opened.count:
            check_columns(part.path, "archives", settings)
        tree, wrappers = _meaning_of_folders(opened, folders, settings, metadata is not None)
        refs = _references(opened, settings, tree, wrappers, metadata or {})
        refs = side_by_side(_look_into, refs, opened.file or part.path)
        if metadata is None:
            yield from refs
            return

        def read(ref: ImageRef, name: str) -> bytes | None:
            _, _, path = ref.key.rpartition(f"{opened.archive.key}!")
            member = metadata.get(f"{stem_of(path)}.{name}")
            return opened.read_metadata(member, name) if member else None

        yield from add_metadata(refs, opened.file or part.path, settings, tree.names_classes, read)


def _look_at_members(opened: files.OpenArchive) -> tuple[dict[str, ImageRef] | None, set[str]]:
    """Looks at all members that are sound and not hidden.

    Returns:
      Path -> member of the metadata of images, or None unless each image has some beside it; and the folders
      that hold images, also images that only their bytes identify.
    """
    stems: set[int] = set()
    beside: dict[str, ImageRef] = {}
    folders: set[str] = set()
    for ref in opened.members():
        if not ref.is_candidate or is_left_out(ref.key):
            continue
        ref = ref._replace(uri=opened.part.path)
        folder, _, name = ref.key.rpartition("/")
        if folder not in folders and not files.why_filtered(name) and is_image(_look_into(ref)):
            folders.add(folder)
        if is_image_name(ref.key):
            stems.add(name_hash(stem_of(ref.key)))
        elif is_metadata_name(ref.key) and (opened.last_counts or ref.key not in beside):
            beside[ref.key] = ref
    metadata = {path: ref for path, ref in beside.items() if name_hash(stem_of(path)) in stems}
    return metadata if stems and len({*map(stem_of, metadata)}) == len(stems) else None, folders


def _meaning_of_folders(
    opened: files.OpenArchive, folders: Iterable[str], settings: ConvertSettings, metadata: bool
) -> tuple[FolderTree, int]:
    """Decides what the folders of an archive mean, by the rules for folders on a disk.

    The folders below the input that contain the archive come before those in it.

    Args:
      opened: The archive.
      folders: Folders in it that hold images.
      settings: Checked settings.
      metadata: Whether each image has a metadata file beside it.

    Returns:
      The meaning, and the number of folders around all images of the archive, which have none.

    Raises:
      UsageError: If the folders are ambiguous.
    """
    paths = [tuple(folder.split("/")) if folder else () for folder in folders]
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
    tree = decide(tops, settings, opened.part.item.path, named, metadata)
    # Keep enough folders for a class name, if any image is in that many.
    inner_depth = settings.folders_of_label - len(above) + (1 if above and tree.splits else 0)
    if inner_depth > 1 and (above or not tree.splits):
        wrappers = min(wrappers, max(max(map(len, paths), default=-1) - inner_depth, 0))
    return tree, wrappers


def _references(
    opened: files.OpenArchive,
    settings: ConvertSettings,
    tree: FolderTree,
    wrappers: int,
    metadata: Collection[str],
) -> Iterator[ImageRef]:
    """Yields a reference for each member, filtered by its name and folders."""
    above = opened.archive.key.split("/")[:-1]
    for path, ref in opened.entries():
        if ref.split == NO_SPLIT:
            yield ref
            continue
        if ref.is_candidate and path in metadata:
            continue
        parts = path.split("/")
        inside = "/".join([*above, *parts[min(wrappers, len(parts) - 1) :]])
        split, label = tree.place(inside, settings.folders_of_label)
        ref = ref._replace(split=split or ref.split, label=label)
        reason = files.why_filtered(path) or (FilterReason.OUTSIDE_SPLITS if tree.leaves_out(inside) else "")
        yield ref.filtered(reason) if ref.is_candidate and reason else ref


def _look_into(ref: ImageRef) -> ImageRef:
    """Returns a reference, after checking the first bytes of a member whose name does not say what it is."""
    if not ref.is_candidate or claims_to_be_image(ref.key):
        return ref
    try:
        head = read_head(ref, HEAD_BYTES)
    except ImageFault:
        return ref if is_image_name(ref.key) else ref.filtered(FilterReason.NOT_AN_IMAGE)
    return ref.filtered(FilterReason.NESTED_ARCHIVE) if files.is_archive_head(head) else with_kind(ref, head)


SOURCE = Source(
    name="archives",
    provides=frozenset({Needs.LABEL, Needs.IMAGE}),
    settings=frozenset(
        {"label_column", "extra_columns", "label_separator", "label_regex", "label_depth", "folders"}
    ),
    accepts=_accepts,
    describe=_describe,
    list_part=list_part,
    parts=files.archive_parts,
)
