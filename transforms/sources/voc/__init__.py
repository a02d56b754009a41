"""Pascal VOC: XML files and images in two folders, or side by side in one folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from shardwright.schemas.annotations import Annotations
from shardwright.schemas.codes import FilterReason, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, decode_refs, encode_refs, is_image, printable
from shardwright.schemas.layouts import Needs
from shardwright.transforms import storage
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.images.signatures import claims_to_be_image, is_image_name
from shardwright.transforms.sources.annotation_files import (
    AnnotationFault,
    read_annotation_file,
    read_list_file,
    side_by_side,
)
from shardwright.transforms.sources.class_folders import list_class_folders
from shardwright.transforms.sources.image_files import (
    MISSING,
    annotated,
    bad_entry,
    below,
    check_folder,
    files_below,
    is_file,
    is_folder,
    join,
    key_of,
    split_token,
)
from shardwright.transforms.sources.input_probe import InputProbe, look_at
from shardwright.transforms.sources.moved_files import file_name
from shardwright.transforms.sources.semantic_masks import NO_MASK, find_masks, stem_of
from shardwright.transforms.sources.source import Context, Input, InputSplit, Source
from shardwright.transforms.sources.voc.xml_files import named_images, parse_voc

_ANNOTATIONS, _MASKS, _SETS = "annotations", "SegmentationClass", "ImageSets"
#: Names of image folders in lower case, the most common first.
_IMAGES = ("jpegimages", "images")
#: Extensions to try if a folder has too many files to read all names.
_SUFFIXES = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")
#: Number of folders to search for XML files if no folder has a usual name.
_MAX_FOLDERS = 12
_SPLITS = ("train", "val", "test")
_BOTH = "trainval"
#: Number of images in one split.
_PART_FILES = 2000
_XML_HEAD_BYTES = 4096
_XML_TRIED = 3
#: Number of images of one stem from which their XML file is unclear.
_MIN_CLASH = 2


class VocPlace(NamedTuple):
    """Folders of a set of images and their XML files.

    Attributes:
      root: Folder with the lists of splits and the masks.
      annotations: Folder of the XML files.
      images: Folder of the images; may be the same as `annotations`.
      split: Split that the folder name gives; empty if lists give it, or it is unknown.
    """

    root: str
    annotations: str
    images: str
    split: str = ""


@dataclass
class _Lists:
    """Lists of splits: mapping of stem to split, and messages for stems that are in two lists."""

    splits: dict[str, str] = field(default_factory=dict)
    twice: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.splits)


def _find_places(probe: InputProbe, settings: ConvertSettings) -> list[VocPlace]:
    """Returns the sets in a folder; none if it is not a Pascal VOC dataset."""
    if probe.is_file:
        return []
    named = next((name for name in probe.folders if name.lower() == _ANNOTATIONS), "")
    if named:
        return [_voc(probe, named, settings)] if _has_xml_below(probe.inside(named)) else []
    if _has_xml(probe):
        return [_beside(probe, "", settings)]
    inner = [probe.inside(name) for name in probe.folders if name.startswith("VOC")]
    found = [place for look in inner for place in _find_places(look, settings)]
    return (
        found or _find_splits(probe, settings) or _find_pair(probe, settings) or _find_nested(probe, settings)
    )


def _find_splits(probe: InputProbe, settings: ConvertSettings) -> list[VocPlace]:
    """Returns the sets in folders with names of splits."""
    named = {name: split_token(name) for name in probe.folders}
    places = []
    for name, token in named.items():
        inner = probe.inside(name) if token else None
        if inner is None:
            continue
        if _has_xml(inner):
            places.append((_beside(inner, "", settings), token))
        elif any(folder.lower() == _ANNOTATIONS for folder in inner.folders):
            places += [(place, token) for place in _find_places(inner, settings)]
        else:
            places += [(place, token) for place in _find_pair(inner, settings)]
    several = len({token for _, token in places}) > 1
    return [place._replace(split=token if several else "") for place, token in places]


def _find_pair(probe: InputProbe, settings: ConvertSettings) -> list[VocPlace]:
    """Returns the set in a folder that has two folders, with any names, for XML files and images."""
    folders = [name for name in probe.folders if not name.startswith(".")]
    if not 0 < len(folders) <= _MAX_FOLDERS:
        return []
    inner = zip(folders, probe.folders_inside(folders, at_once=True), strict=True)
    with_xml = [name for name, folder in inner if _has_xml_below(folder)]
    if len(with_xml) != 1:
        return []
    place = _voc(probe, with_xml[0], settings)
    return [place] if place.images != place.root or settings.image_root else []


def _find_nested(probe: InputProbe, settings: ConvertSettings) -> list[VocPlace]:
    """Returns the set in a folder whose subfolders hold XML files and images in any arrangement.

    Class folders with XML files beside the images stay class folders, unless the layout stores objects.
    """
    if settings.record_layout.needs is not Needs.OBJECTS or not _has_xml_below(probe):
        return []
    return [_beside(probe, "", settings)]


def _images_of(probe: InputProbe, annotations: str) -> str:
    """Returns the folder with the images of XML files; empty if no folder has one of them."""
    others = [name for name in probe.folders if name != annotations and not name.startswith(".")]
    if not others:
        return ""
    xml = probe.inside(annotations)
    names = [name for name in xml.files if name.lower().endswith(".xml")]
    stems = {stem_of(name) for name in names}
    named = [image for name in names[:_XML_TRIED] for image in _named_in(storage.join(xml.path, name))]
    tried = [stem + suffix for stem in sorted(stems)[:_XML_TRIED] for suffix in _SUFFIXES] + named
    for name in others[:_MAX_FOLDERS]:
        inner = probe.inside(name)
        if any(claims_to_be_image(file) and stem_of(file) in stems for file in inner.files):
            return name
        if any(file in named for file in inner.files) or any(
            is_file(join(inner.path, file)) for file in tried
        ):
            return name
    return ""


def _named_in(path: str) -> list[str]:
    """Returns the file names of the image in an XML file."""
    try:
        return named_images(read_annotation_file(path) or b"")
    except AnnotationFault:
        return []


def _has_xml(probe: InputProbe) -> bool:
    """Returns whether a folder contains XML files of Pascal VOC."""
    names = [name for name in probe.files if name.lower().endswith(".xml")][:_XML_TRIED]
    return any(
        b"<annotation" in storage.read_head(storage.join(probe.path, name), _XML_HEAD_BYTES) for name in names
    )


def _has_xml_below(probe: InputProbe) -> bool:
    """Returns whether a folder, or one of the first folders inside, contains XML files of Pascal VOC."""
    waiting, looked = [probe], 0
    while waiting and looked < _MAX_FOLDERS:
        inner = waiting.pop(0)
        looked += 1
        if _has_xml(inner):
            return True
        names = [name for name in inner.folders if not name.startswith(".")]
        names = names[: _MAX_FOLDERS - looked - len(waiting)]
        waiting += inner.folders_inside(names, at_once=True)
    return False


def _voc(probe: InputProbe, annotations: str, settings: ConvertSettings) -> VocPlace:
    root = probe.path.rstrip("/") or "/"
    folders = {name.lower(): name for name in probe.folders}
    images = settings.image_root.rstrip("/")
    if not images:
        named = next((folders[name] for name in _IMAGES if name in folders), "")
        named = named or _images_of(probe, annotations)
        images = join(root, named) if named else root
    return VocPlace(root, join(root, annotations), images)


def _beside(probe: InputProbe, split: str, settings: ConvertSettings) -> VocPlace:
    folder = probe.path.rstrip("/") or "/"
    images = join(folder, "images") if "images" in probe.folders else folder
    return VocPlace(folder, folder, settings.image_root.rstrip("/") or images, split)


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    if settings.image_root:
        check_folder("--image_root", settings.image_root)
    places = _find_places(probe, settings)
    if not places:
        raise UsageError(
            f"--input {printable(probe.path)} is not a Pascal VOC dataset: name the folder with "
            "Annotations/ and JPEGImages/ (or two folders of other names, one with XML files and one with "
            "their images), or one with XML files beside the images."
        )
    if settings.record_layout.needs is Needs.SEMANTIC:
        for place in places:
            if not is_folder(_mask_folder(place, settings)):
                raise UsageError(
                    f"--layout {settings.record_layout.name}: {printable(place.root)} has no folder "
                    f"{_MASKS}; name the folder of its masks with --mask_dir."
                )
    shown = (printable(place.images) + (f", split {place.split}" if place.split else "") for place in places)
    return f"Pascal VOC (images in {'; '.join(shown)})"


def _mask_folder(place: VocPlace, settings: ConvertSettings) -> str:
    return settings.mask_dir.rstrip("/") or join(place.root, _MASKS)


def split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields splits of a few thousand images each, without reading their XML files."""
    settings = context.settings
    for place in _find_places(look_at(item.path), settings):
        found = _list_place(place, item, settings)
        while batch := list(islice(found, _PART_FILES)):
            files = {ref.key: xml for ref, xml in batch if xml}
            refs = encode_refs([ref for ref, _ in batch]).decode("latin-1")
            yield InputSplit(item, place.annotations, detail=json.dumps([place, refs, files]))


def _list_place(place: VocPlace, item: Input, settings: ConvertSettings) -> Iterator[tuple[ImageRef, str]]:
    """Yields the images of a set, and bad entries for XML files and masks without an image.

    Each comes with the path of its XML file if the XML file has a different name than the image.
    """
    semantic = settings.record_layout.needs is Needs.SEMANTIC
    lists = _read_lists(place.root, "Segmentation" if semantic else "Main")
    masks = find_masks(_mask_folder(place, settings)) if semantic else {}
    if semantic:
        sides = {stem: mask.state.path for stem, mask in masks.items()}
        wanted = lists.splits.keys() or sides.keys()
    else:
        sides = _xml_files(place)
        wanted = lists.splits.keys()
    prefix = item.prefix + key_of(_inner(place.images, item.path))
    clashes = _clashes(place, sides, semantic)
    seen = set()
    alone = {}
    for ref in _images(place, prefix):
        stem = stem_of(ref.key.removeprefix(prefix))
        ref = ref._replace(label="", split=place.split or lists.splits.get(stem, ""))
        if not is_image(ref):
            yield ref, ""
            continue
        seen.add(stem)
        if wanted and stem not in wanted:
            yield ref.filtered(FilterReason.NOT_LISTED), ""
        elif not ref.is_candidate:
            yield ref, ""
        elif stem in lists.twice:
            yield ref.quarantined(QuarantineReason.BAD_ANNOTATION, lists.twice[stem]), ""
        elif why := clashes.get(ref.key.removeprefix(prefix)):
            yield ref.quarantined(QuarantineReason.BAD_ANNOTATION, why), ""
        elif stem in sides:
            odd = not semantic and not sides[stem].endswith(".xml")
            yield ref.annotated(masks[stem].annotations) if semantic else ref, sides[stem] * odd
        elif semantic:
            yield ref.quarantined(QuarantineReason.BAD_ANNOTATION, NO_MASK), ""
        else:
            alone[ref.key] = ref
    unused = {} if semantic else {stem: sides[stem] for stem in sorted(sides.keys() - seen)}
    found, unclear = _other_names(alone, unused)
    for key, ref in alone.items():
        if key in unclear:
            ref = ref.quarantined(QuarantineReason.BAD_ANNOTATION, unclear[key])
        yield ref, found.get(key, "")
    taken = set(found.values())
    left = {stem: path for stem, path in sides.items() if path not in taken}
    for ref in _without_image(place, item, left, lists, seen | (sides.keys() - left.keys()), unclear):
        yield ref, ""


def _clashes(place: VocPlace, sides: Mapping[str, str], semantic: bool) -> dict[str, str]:
    """Returns image -> fault, for images in one folder that differ only in their extension.

    If their XML file names one of them, it belongs to that image, and the others have none.

    Args:
      place: Folders of the set.
      sides: Stem -> path of the XML file or mask.
      semantic: Whether `sides` are masks.
    """
    names: dict[str, list[str]] = {}
    for path, _ in files_below(place.images):
        key = key_of(path)
        if is_image_name(path) and stem_of(key) in sides and sides[stem_of(key)] != join(place.images, path):
            names.setdefault(stem_of(key), []).append(key)
    faults = {}
    for stem, images in names.items():
        if len(images) < _MIN_CLASH:
            continue
        in_xml = [] if semantic else [key_of(name) for name in _named_in(sides[stem])]
        named = [image for image in images if file_name(image) in in_xml]
        own = printable(file_name(sides[stem]))
        for image in images:
            if len(named) != 1:
                faults[image] = f"{own} could belong to {' and '.join(map(printable, sorted(images)[:3]))}"
            elif image != named[0]:
                faults[image] = f"{own} belongs to {printable(named[0])}, so there is no XML file for it"
    return faults


def _other_names(images: Collection[str], sides: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns image key -> XML file for pairs with different names or folders, and key -> why none fits.

    An image and an XML file are a pair if their file names agree, or if the XML file names the image, in this
    order; extensions and the case of letters may differ. The match must be the only one for both. The second
    result maps the keys of images, and paths of XML files, with several matches to a message.

    Args:
      images: Keys of images without an XML file.
      sides: Mapping of key, without extension, to XML file, for XML files without an image.
    """
    if not images or not sides:
        return {}, {}
    found: dict[str, str] = {}
    unclear: dict[str, str] = {}
    own = {path: [file_name(stem)] for stem, path in sides.items()}

    def pair(names_of: Callable[[str], Sequence[str]], files: Mapping[str, Sequence[str]]) -> None:
        taken = {*found.values()}
        rest = {path: names for path, names in files.items() if path not in taken}
        pairs, several = _paired({key: names_of(key) for key in images if key not in found}, rest)
        found.update(pairs)
        for one, message in several.items():
            unclear.setdefault(one, message)

    pair(_own_stem, own)
    files = [path for path in sides.values() if path not in {*found.values()}]
    if files and len(found) < len(images):
        names_in_files = side_by_side(lambda path: (path, _named_in(path)), files, files[0])
        named = {path: [key_of(name) for name in names] for path, names in names_in_files}
        pair(lambda key: [file_name(key), *_own_stem(key)], named)
        stems = {path: [*map(stem_of, names)] for path, names in named.items()}
        pair(_own_stem, stems)
        folded = {path: [name.casefold() for name in (*own[path], *names)] for path, names in stems.items()}
        pair(lambda key: [name.casefold() for name in _own_stem(key)], folded)
    done = {*found, *found.values()}
    return found, {one: message for one, message in unclear.items() if one not in done}


def _own_stem(key: str) -> list[str]:
    return [stem_of(file_name(key))]


def _paired(
    images: Mapping[str, Sequence[str]], files: Mapping[str, Sequence[str]]
) -> tuple[dict[str, str], dict[str, str]]:
    """Returns image -> file for pairs with a common name that no other image or file has.

    The second result maps the images and files that share a name with several others to a message.
    """
    by_name: dict[str, tuple[set[str], set[str]]] = {}
    for side, items in enumerate((images, files)):
        for item, names in items.items():
            for name in names:
                by_name.setdefault(name, (set(), set()))[side].add(item)
    matches: dict[str, set[str]] = {}
    for some, others in by_name.values():
        for image in some if others else ():
            matches.setdefault(image, set()).update(others)
        for file in others if some else ():
            matches.setdefault(file, set()).update(some)
    pairs, unclear = {}, {}
    for image in images:
        found = sorted(matches.get(image, ()))
        if len(found) == 1 and len(matches[found[0]]) == 1:
            pairs[image] = found[0]
        elif found:
            several = found if len(found) > 1 else sorted(matches[found[0]])
            shown = " and ".join(printable(file_name(one) if one in files else one) for one in several[:3])
            what = "XML files that could be its own" if len(found) > 1 else "images that its XML file fits"
            unclear[image] = f"there are several {what}: {shown}"
    for file in files:
        several = sorted(matches.get(file, ()))
        if len(several) > 1:
            unclear[file] = f"it fits several images: {' and '.join(map(printable, several[:3]))}"
    return pairs, unclear


def _inner(folder: str, input_path: str) -> str:
    """Returns a folder's path relative to the input, a prefix of keys; empty if it is elsewhere."""
    return below(f"{folder}/", input_path.rstrip("/")) or ""


def _images(place: VocPlace, prefix: str) -> Iterator[ImageRef]:
    for ref in list_class_folders(Input(place.images, prefix)):
        if place.images != place.annotations or not ref.uri.lower().endswith(".xml"):
            yield ref


def _xml_files(place: VocPlace) -> dict[str, str]:
    """Returns the paths of all XML files by key without extension."""
    found = {}
    for path, _ in files_below(place.annotations):
        if path.lower().endswith(".xml") and not any(part.startswith(".") for part in path.split("/")):
            found[stem_of(key_of(path))] = join(place.annotations, path)
    return found


def _without_image(
    place: VocPlace,
    item: Input,
    sides: Mapping[str, str],
    lists: _Lists,
    seen: set[str],
    unclear: Mapping[str, str],
) -> Iterator[ImageRef]:
    for stem in sorted(sides.keys() - seen):
        path = sides[stem]
        inner = below(path, item.path.rstrip("/"))
        why = unclear.get(path, MISSING)
        yield bad_entry(item.prefix + key_of(inner or path.rpartition("/")[2]), path, why)
    prefix = _inner(place.images, item.path)
    for stem in sorted(lists.splits.keys() - seen - sides.keys()):
        ref = bad_entry(item.prefix + prefix + stem, join(place.images, stem), f"it is listed, but {MISSING}")
        yield ref._replace(split=lists.splits[stem])


def _read_lists(root: str, kind: str) -> _Lists:
    """Reads the lists of the splits; the lists of single classes are not read."""
    folder = join(join(root, _SETS), kind)
    if not is_folder(folder):
        return _Lists()
    texts = {name: read_list_file(join(folder, f"{name}.txt")) for name in (*_SPLITS, _BOTH)}
    if texts["train"] is not None and texts["val"] is not None:
        texts[_BOTH] = None
    lists = _Lists()
    for name, text in texts.items():
        for stem in _stems(text or b""):
            first = lists.splits.setdefault(stem, name)
            if first != name and name != _BOTH:
                lists.twice[stem] = f"{_SETS}/{kind} lists it both in {first} and in {name}"
    if sum(text is not None for text in texts.values()) == 1:
        lists.splits = dict.fromkeys(lists.splits, "")
    return lists


def _stems(text: bytes) -> Iterable[str]:
    for line in text.decode("utf-8", "surrogateescape").splitlines():
        if line.strip():
            yield key_of(line.split()[0])


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef]:
    """Yields the references of a split with the annotations in their XML files."""
    values, packed, files = json.loads(part.detail)
    place = VocPlace(*values)
    refs = decode_refs(packed.encode("latin-1"))
    if context.settings.record_layout.needs is Needs.SEMANTIC:
        yield from refs
        return

    def read(ref: ImageRef) -> ImageRef:
        if not ref.is_candidate:
            return ref
        path = below(ref.uri, place.images) or ref.uri.rpartition("/")[2]
        try:
            file = files.get(ref.key) or join(place.annotations, stem_of(path) + ".xml")
            data = read_annotation_file(file)
            if data is None and context.settings.missing_annotations == "empty":
                return annotated(ref, Annotations(objects=()))
            if data is None:
                raise AnnotationFault(
                    "there is no XML file for it (--missing_annotations empty stores it without objects)"
                )
            with UNDERWAY.working_on(file, "parse"):
                return annotated(ref, parse_voc(data))
        except AnnotationFault as fault:
            return ref.quarantined(QuarantineReason.BAD_ANNOTATION, str(fault))

    yield from side_by_side(read, refs, place.annotations)


SOURCE = Source(
    name="voc",
    provides=frozenset({Needs.OBJECTS, Needs.SEMANTIC}),
    settings=frozenset({"image_root", "mask_dir", "missing_annotations"}),
    accepts=lambda probe, settings: bool(_find_places(probe, settings)),
    describe=_describe,
    list_part=list_part,
    split=split,
)
