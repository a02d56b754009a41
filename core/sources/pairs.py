"""Sources with an annotation file for each image: what all such formats have in common.

A format says where its images and annotation files are (`find`) and what is in an annotation file (`parse`).
This module lists both, pairs them by their paths, reports what has no partner, and divides the work into
parts. `kitti.py` is a short example.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.images.signatures import is_image_name
from shardwright.core.sources import annotation_files
from shardwright.core.sources.class_folders import list_class_folders
from shardwright.core.sources.file_states import list_images
from shardwright.core.sources.files_beside import stem_of
from shardwright.core.sources.folder_tree import FolderTree, beside_splits, split_folders
from shardwright.core.sources.image_files import (
    MISSING,
    annotated,
    bad_entry,
    below,
    file_name,
    files_below,
    folder_of,
    is_folder,
    is_hidden,
    join,
    key_of,
    key_prefix,
    split_token,
)
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.source import Context, Input, InputPart, Source
from shardwright.schemas.annotations import Annotations
from shardwright.schemas.codes import FilterReason, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, decode_refs, encode_refs, is_image
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import listed

#: Number of images in one part.
_PART_IMAGES = 2000
#: File formats of masks, the most common first. JPEG is not among them because it changes the ids.
MASK_SUFFIXES = (".png", ".tif", ".tiff", ".bmp", ".webp", ".gif")
_SPLITS, _TEST, _BOTH = ("train", "val", "test"), "test", "trainval"
#: Lines of such lists: a name in quotes, and a name with a flag.
_QUOTED, _FLAGGED = re.compile(r'"([^"]+)"'), re.compile(r"(\S+)\s+-?[01]")
#: CVAT's name for the folder of images without a split.
_DEFAULT = "default"
#: Number of files to try in each folder that is searched for files of a format.
FILES_TRIED = 3


@dataclass(frozen=True)
class PairedFolders:
    """A folder of images, and the folder with their annotation files.

    With the suffixes `_photo` and `_label.txt`, `images/a/1_photo.png` and `annotations/a/1_label.txt` are a
    pair.

    Attributes:
      images: Folder of the images.
      annotations: Folder of the annotation files; it may be the same. Empty if there is none and the images
        are left out.
      suffixes: Ends of the names of annotation files in upper or lower case, the preferred one first.
      image_suffix: End of the names of images, before the extension.
      split: Split of the images; empty if it is not known here.
      split_by_folder: Whether folders inside that are named like splits give the splits.
      lists: Folder with `train.txt` and so on, which list the images of splits; empty if there is none.
      tests_apart: Whether `test.txt` lists images of another folder if it has names of other lists.
      only_annotated: Whether images without an annotation file are left out if there are no lists.
      has_masks: Whether the annotation files are masks, which are read together with their images.
      image_list: File that lists the images, one on each line; empty if all files in the folder are meant.
      root: Folder to which keys are relative if the images are not below the input.
      classes: Id and name of each class, if the annotation files have ids.
      is_pose: Whether lines of YOLO's label files have key points after the box.
    """

    images: str
    annotations: str
    suffixes: tuple[str, ...]
    image_suffix: str = ""
    split: str = ""
    split_by_folder: bool = False
    lists: str = ""
    tests_apart: bool = False
    only_annotated: bool = False
    has_masks: bool = False
    image_list: str = ""
    root: str = ""
    classes: tuple[tuple[int, str], ...] = ()
    is_pose: bool = False

    def describe(self) -> str:
        """Returns a description of the images for messages."""
        splits = [self.split] if self.split else [*self.tree.splits.values()]
        split = f", {'split' if len(splits) == 1 else 'splits'} {listed(splits)}" if splits else ""
        left_out = "" if self.annotations else ", left out because they have no annotations"
        return f"images in {printable(self.image_list or self.images)}{split}{left_out}"

    @cached_property
    def tree(self) -> FolderTree:
        """Meaning of the folders of the images: splits, unless a folder of another name has images too."""
        probe = InputProbe(self.images, is_file=False)
        if not self.split_by_folder or not (splits := split_folders(probe.folders)):
            return FolderTree()
        others = probe.folders_inside(name for name in probe.folders if name not in splits)
        mixed = any(one.has_images for one in others if below(self.annotations, one.path) is None)
        return FolderTree({} if mixed else splits)


#: A reference, and the annotation file to read for it; empty if the reference is complete. If both are the
#: same file, it has no image.
_Pair = tuple[ImageRef, str]
#: Image -> its annotation file, and image or annotation file -> why it has no partner.
_Matches = tuple[Mapping[str, str], Mapping[str, str]]
#: Returns the names by which an image or a file may be found.
_NamesOf = Callable[[str], Iterable[str]]


@dataclass(frozen=True)
class PairFormat:
    """A format with an annotation file for each image.

    Attributes:
      name: Name of the source.
      title: Name of the format for messages.
      expected: What an input has to be; the end of the message if it is not.
      find: Returns the folders of an input; none if it is not of this format. If it finds none in a folder,
        the folders inside that are named like splits are tried.
      parse: Returns what is in an annotation file. Raises AnnotationFault if it cannot be used.
      noun: Word for an annotation file.
      provides: Kinds of annotations that it provides.
      settings: Settings that it uses. Without `missing_annotations`, an image without an annotation file has
        no objects.
      summarize: Returns what a description says about an input besides its folders.
      named_images: Returns the file names that an annotation file gives its image, the likeliest first; None
        if the paths alone decide which files are pairs.
      files_of: Returns the paths that an image's annotation file may have, the likeliest first; None if
        folders and suffixes tell.
      alone: Returns what an annotation file without an image is, from the reference of the file, whose
        message says what is wrong, and its content: the image inside it, a bad entry, or another file. None
        if all are bad entries.
      max_bytes: Size from which an annotation file is too large.
    """

    name: str
    title: str
    expected: str
    find: Callable[[InputProbe, ConvertSettings], Sequence[PairedFolders]]
    parse: Callable[[bytes, PairedFolders], Annotations]
    noun: str = "annotation file"
    provides: frozenset[Needs] = frozenset({Needs.OBJECTS})
    settings: frozenset[str] = frozenset({"missing_annotations"})
    summarize: Callable[[InputProbe, ConvertSettings], str] = lambda probe, settings: ""
    named_images: Callable[[bytes], list[str]] | None = None
    files_of: Callable[[str], Sequence[str]] | None = None
    alone: Callable[[ImageRef, bytes], ImageRef] | None = None
    max_bytes: int = annotation_files.MAX_BYTES

    def source(self) -> Source:
        """Returns the source that reads this format."""
        return Source(
            name=self.name,
            provides=self.provides,
            settings=self.settings,
            accepts=lambda probe, settings: bool(self._folders(probe, settings)),
            describe=self.describe,
            list_part=self.list_part,
            parts=self.parts,
        )

    def _folders(self, probe: InputProbe, settings: ConvertSettings) -> Sequence[PairedFolders]:
        """Returns the folders of an input, at least one with annotations, or none."""
        folder_pairs = self.find(probe, settings) or self._in_splits(probe, settings)
        labelled = [folders for folders in folder_pairs if folders.annotations]
        if len({folders.classes for folders in labelled}) > 1:
            raise UsageError(f"{probe.where}: its folders name different classes; export it again.")
        if len({folders.split for folders in labelled}) == 1:
            folder_pairs = [
                replace(folders, split="" if folders.annotations else folders.split)
                for folders in folder_pairs
            ]
        return folder_pairs if labelled else []

    def _in_splits(self, probe: InputProbe, settings: ConvertSettings) -> list[PairedFolders]:
        """Returns the folders in those that are named like splits, and other folders with images."""
        names = [name for name in probe.folders if split_token(name) or name.lower() == _DEFAULT]
        folder_pairs = [
            replace(folders, split=split_token(name) or _DEFAULT)
            for name in names
            for folders in self.find(probe.inside(name), settings)
        ]
        for name in probe.folders if folder_pairs else ():
            if name in names or not (folder := probe.inside(name)).has_images:
                continue
            if self.find(folder, settings):
                raise beside_splits(probe.where, names, name, self.title)
            folder_pairs.append(PairedFolders(folder.path, "", folder_pairs[0].suffixes))
        return folder_pairs

    def describe(self, probe: InputProbe, settings: ConvertSettings) -> str:
        """Returns a description of an input.

        Raises:
          UsageError: If it is not of this format, or a folder that it needs is missing.
        """
        folder_pairs = self._folders(probe, settings)
        if not folder_pairs:
            raise UsageError(f"{probe.where} is not a {self.title} dataset: {self.expected}.")
        for folders in folder_pairs:
            if folders.has_masks and folders.annotations and not is_folder(folders.annotations):
                raise UsageError(
                    f"--layout {settings.record_layout.name}: {folders.annotations} is not a "
                    "folder; name the folder of the masks with --mask_dir."
                )
        places = "; ".join(folders.describe() for folders in folder_pairs)
        return f"{self.title}{self.summarize(probe, settings)} ({places})"

    def parts(self, item: Input, context: Context) -> Iterator[InputPart]:
        """Yields parts of a few thousand images each, without reading their annotations."""
        named = context.settings.image_root if "image_root" in self.settings else ""
        folder_pairs = []
        for folders in self._folders(InputProbe(item.path, item.is_file), context.settings):
            name = folders.split or folders.images.rpartition("/")[2]
            prefix = item.prefix + key_prefix(folders.images, (_root_of(item, folders), named), name)
            folder_pairs.append((folders, prefix))
        lists = {folders.lists: _read_lists(folders) for folders, _ in folder_pairs}
        absent = {name: {*stems} for name, stems in lists.items()}
        for folders, prefix in folder_pairs:
            pairs = self._pairs(item, folders, prefix, lists[folders.lists], absent[folders.lists])
            yield from _parts(item, folders, pairs)
        for folders, prefix in folder_pairs:
            missing = (
                bad_entry(prefix + stem, join(folders.images, stem), f"it is listed, but {MISSING}")._replace(
                    split=lists[folders.lists][stem][0]
                )
                for stem in sorted(absent.pop(folders.lists, ()))
            )
            yield from _parts(item, folders, ((ref, "") for ref in missing))

    def _pairs(
        self,
        item: Input,
        folders: PairedFolders,
        prefix: str,
        lists: Mapping[str, Sequence[str]],
        absent: set[str],
    ) -> Iterator[_Pair]:
        """Yields the references of a folder, and of its annotation files without an image.

        If the annotation file of an image was not listed, its usual path is read, so that a file that cannot
        be read is a fault.

        Args:
          item: The input.
          folders: The folder of images and the folder of their annotation files.
          prefix: Beginning of the keys of the images.
          lists: Path of an image without extension -> the splits that list it.
          absent: Listed paths; the paths of existing images and annotation files are removed.
        """
        files = _annotation_files(folders)
        matches, faults = self._match_by_names(folders, files)
        by_stem = _by_stem(files, folders.suffixes)
        used: set[str] = set()
        tree = folders.tree
        absent.difference_update(by_stem)
        if folders.image_list:
            images = list_images(folders.image_list, folders.images, prefix)
        else:
            images = list_class_folders(Input(folders.images, prefix))
        for ref in images:
            # Masks are images, too.
            if (folders.has_masks or not is_image(ref)) and below(ref.uri, folders.annotations) in files:
                continue
            key = ref.key.removeprefix(prefix)
            stem = stem_of(key).removesuffix(folders.image_suffix)
            splits = lists.get(stem, ())
            ref = ref._replace(label="", split=folders.split or "".join(splits[:1]) or tree.place(key)[0])
            if not is_image(ref):
                yield ref, ""
                continue
            absent.discard(stem)
            path = below(ref.uri, folders.images) or ref.uri
            usual = stem_of(path).removesuffix(folders.image_suffix) + folders.suffixes[0]
            file = matches.get(path) or by_stem.get(stem) or usual
            places = self.files_of(ref.uri) if self.files_of else [join(folders.annotations, file)]
            place = next((path for path in places if below(path, folders.annotations) in files), places[0])
            used.add(below(place, folders.annotations) or "")
            mask = files.get(file) if folders.has_masks else None
            why = faults.get(path)
            if len(splits) > 1:
                why = f"it is listed both in {splits[0]} and in {splits[1]}"
            elif folders.has_masks and mask is None:
                why = "there is no mask for it"
            is_listed = splits if lists else file in files or not folders.only_annotated
            if not is_listed or not folders.annotations:
                ref = ref.filtered(FilterReason.NOT_LISTED)
            elif why and ref.is_candidate:
                ref = ref.quarantined(QuarantineReason.BAD_ANNOTATION, why)
            elif mask and ref.is_candidate:
                ref = ref.annotated(
                    Annotations(semantic_mask=mask.path, mask_size=mask.size, mask_version=mask.version)
                )
            yield ref, place if ref.is_candidate and not folders.has_masks else ""
        for file in sorted({*by_stem.values()} - used | (faults.keys() & files.keys())):
            path, state = join(folders.annotations, file), files[file]
            inner = below(path, _root_of(item, folders)) or f"{folders.annotations.rpartition('/')[2]}/{file}"
            key = item.prefix + key_of(inner)
            if file in faults or not self.alone:
                yield bad_entry(key, path, faults.get(file, MISSING)), ""
            else:
                split = folders.split or tree.place(file)[0]
                ref = ImageRef(key, path, "", split, "", state.size, state.version, message=MISSING)
                yield ref, path

    def _match_by_names(self, folders: PairedFolders, files: Collection[str]) -> _Matches:
        """Pairs the images and annotation files of a folder by their names and what the files say.

        An image and a file are a pair by the first rule for which both have exactly one partner: the same
        path without extension; the same name without extension; the file names the image; the same without
        extension; the same without regard to case. A reason is stated only if there could be several
        partners.

        Args:
          folders: The folder of images and the folder of their annotation files.
          files: Paths of the annotation files in their folder.

        Returns:
          Image -> its annotation file, and image or annotation file without a partner -> the reason.
        """
        if not self.named_images or folders.has_masks:
            return {}, {}
        images = (path for path, _ in files_below(folders.images) if is_image_name(path))
        matcher = _Matcher({path for path in images if not is_hidden(path)}, {*files}, self.noun)
        matcher.pair(lambda path: [stem_of(key_of(path))], lambda path: [stem_of(key_of(path))])
        matcher.pair(_stem, _stem)
        if matcher.images and matcher.files:
            names_in = partial(self._names_in, folders.annotations)
            stated = annotation_files.side_by_side(names_in, matcher.files, folders.annotations)
            named = {file: [*map(key_of, names)] for file, names in zip(matcher.files, stated)}
            matcher.pair(lambda image: [file_name(key_of(image)), *_stem(image)], lambda file: named[file])
            matcher.pair(_stem, lambda file: map(stem_of, named[file]))
            matcher.pair(
                lambda image: map(str.casefold, _stem(image)),
                lambda file: map(str.casefold, [*_stem(file), *map(stem_of, named[file])]),
            )
        left = matcher.images | matcher.files
        return matcher.pairs, {one: why for one, why in matcher.unclear.items() if one in left}

    def _names_in(self, folder: str, file: str) -> list[str]:
        """Returns the names that an annotation file gives its image; none if it cannot be read."""
        assert self.named_images
        try:
            data = annotation_files.read_annotation_file(join(folder, file), self.max_bytes)
            return self.named_images(data or b"")
        except annotation_files.AnnotationFault:
            return []

    def list_part(self, part: InputPart, context: Context) -> Iterator[ImageRef | ClassId]:
        """Yields the references of a part with their annotations, and the ids of the classes."""
        folders, refs, files = part.detail
        yield from (ClassId(name, class_id) for class_id, name in folders.classes if name)
        read = partial(self._read, folders, context.settings)
        yield from annotation_files.side_by_side(read, zip(decode_refs(refs), files), folders.annotations)

    def _read(self, folders: PairedFolders, settings: ConvertSettings, pair: _Pair) -> ImageRef:
        ref, file = pair
        if not file:
            return ref
        # The folders of the images in a list are not searched for annotation files.
        places = self.files_of(ref.uri) if self.files_of and folders.image_list else [file]
        try:
            for file in places:
                if (data := annotation_files.read_annotation_file(file, self.max_bytes)) is not None:
                    break
            if data is None:
                if settings.missing_annotations == "empty" or "missing_annotations" not in self.settings:
                    return annotated(ref, Annotations(objects=()))
                why = (
                    f"there is no {self.noun} for it (--missing_annotations empty stores it without objects)"
                )
                return ref.quarantined(QuarantineReason.BAD_ANNOTATION, why)
            with UNDERWAY.working_on(file, "parse"):
                if file == ref.uri and self.alone:
                    return self.alone(ref, data)
                return annotated(ref, self.parse(data, folders))
        except annotation_files.AnnotationFault as fault:
            message = f"{printable(below(file, folders.annotations) or file)}: {fault}"
            if file == ref.uri:
                return bad_entry(ref.key, ref.uri, message)
            return ref.quarantined(QuarantineReason.BAD_ANNOTATION, message)


def holds_below(
    probe: InputProbe, suffix: str, is_one: Callable[[str], bool], settings: ConvertSettings
) -> bool:
    """Returns whether a folder, or one of the first folders inside, has a file of a format among its first.

    Unless the layout stores objects, a folder inside that has images too is a class folder.

    Args:
      probe: The folder.
      suffix: Suffix of the names of such files, in lower case.
      is_one: Returns whether the file with this path is of the format.
      settings: Settings with the layout.
    """
    has_objects = settings.record_layout.needs is Needs.OBJECTS
    return any(
        inner.files_with(suffix, FILES_TRIED, is_one)
        for inner in probe.folders_near()
        if inner is probe or has_objects or not any(map(is_image_name, inner.files))
    )


def _annotation_files(folders: PairedFolders) -> dict[str, storage.StoredObject]:
    """Returns path below its folder -> state of all files that may be annotation files."""
    if not folders.annotations or folders.image_list:
        return {}
    suffixes = tuple(suffix.lower() for suffix in folders.suffixes)
    return {
        path: state
        for path, state in files_below(folders.annotations)
        if path.lower().endswith(suffixes) and not is_hidden(path)
    }


def _by_stem(files: Collection[str], suffixes: Sequence[str]) -> dict[str, str]:
    """Returns key without suffix -> path of the annotation file with the preferred suffix."""
    return {
        key_of(path)[: -len(suffix)]: path
        for suffix in reversed(suffixes)
        for path in sorted(files, reverse=True)
        if path.lower().endswith(suffix.lower())
    }


def _root_of(item: Input, folders: PairedFolders) -> str:
    """Returns the folder to which keys are relative."""
    here = folder_of(item.path) if item.is_file else item.path.rstrip("/") or "/"
    return folders.root if folders.root and below(folders.images, here) is None else here


def _read_lists(folders: PairedFolders) -> dict[str, list[str]]:
    """Returns path of an image without extension -> the splits whose lists name it; none without a folder.

    `trainval` counts only if `train` or `val` is missing. A single list gives no split.
    """
    names = (*_SPLITS, _BOTH) if folders.lists else ()
    files = {name: annotation_files.read_list_file(join(folders.lists, f"{name}.txt")) for name in names}
    stems_of = {name: _stems_in(data) for name, data in files.items() if data is not None}
    if {"train", "val"} <= stems_of.keys():
        stems_of.pop(_BOTH, None)
    others = {stem for name, stems in stems_of.items() if name != _TEST for stem in stems}
    if folders.tests_apart and not others.isdisjoint(stems_of.get(_TEST, ())):
        stems_of.pop(_TEST)
    splits: dict[str, list[str]] = {}
    for name, stems in stems_of.items():
        for stem in stems:
            listing = splits.setdefault(stem, [])
            if name != _BOTH or not listing:
                listing.append(name)
    return splits if len(stems_of) > 1 else {stem: [""] for stem in splits}


def _stems_in(data: bytes) -> dict[str, None]:
    """Returns the paths without extension in a list, each once.

    CVAT puts names with blanks into quotes. In the lists of one class, a flag follows each name.
    """
    lines = [line.strip() for line in data.decode("utf-8-sig", "surrogateescape").splitlines()]
    quoted = [(line, _QUOTED.match(line)) for line in lines if line]
    stems = [match[1] if match else line for line, match in quoted]
    flagged = [match[1] for match in map(_FLAGGED.fullmatch, stems) if match]
    return dict.fromkeys(map(key_of, flagged if len(flagged) == len(stems) else stems))


def _parts(item: Input, folders: PairedFolders, pairs: Iterator[_Pair]) -> Iterator[InputPart]:
    """Yields the pairs of a folder in parts."""
    while batch := list(islice(pairs, _PART_IMAGES)):
        refs, files = zip(*batch)
        yield InputPart(item, folders.annotations, detail=(folders, encode_refs(refs), files))


# Pairs whose paths differ


def _stem(path: str) -> list[str]:
    return [stem_of(file_name(key_of(path)))]


@dataclass
class _Matcher:
    """Pairs images and annotation files that have a name which no other image or file has.

    Attributes:
      images: Images without a file.
      files: Files without an image.
      noun: Word for an annotation file.
      pairs: Image -> its annotation file.
      unclear: Image or file -> why it got no partner by the first rule for which it could have several.
    """

    images: set[str]
    files: set[str]
    noun: str
    pairs: dict[str, str] = field(default_factory=dict)
    unclear: dict[str, str] = field(default_factory=dict)

    def pair(self, names_of_image: _NamesOf, names_of_file: _NamesOf) -> None:
        """Pairs what is left and has a common name."""
        by_name: defaultdict[str, set[str]] = defaultdict(set)
        files_of: defaultdict[str, set[str]] = defaultdict(set)
        images_of: defaultdict[str, set[str]] = defaultdict(set)
        for file in self.files:
            for name in names_of_file(file):
                by_name[name].add(file)
        for image in self.images:
            for file in {file for name in names_of_image(image) for file in by_name.get(name, ())}:
                files_of[image].add(file)
                images_of[file].add(image)
        for image, files in files_of.items():
            file = min(files)
            if len(files) > 1:
                self._note(image, f"there are several {self.noun}s that could be its own", files)
            elif len(images_of[file]) > 1:
                self._note(image, f"there are several images that its {self.noun} fits", images_of[file])
            else:
                self.pairs[image] = file
        for file, images in images_of.items():
            if len(images) > 1:
                self._note(file, "it fits several images", images)
        self.images -= self.pairs.keys()
        self.files.difference_update(self.pairs.values())

    def _note(self, one: str, message: str, several: Iterable[str]) -> None:
        self.unclear.setdefault(one, f"{message}: {' and '.join(map(printable, sorted(several)[:3]))}")
