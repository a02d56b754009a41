"""Pascal VOC: XML files and images in two folders, or side by side in one folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.layouts import Needs
from shardwright.transforms import storage
from shardwright.transforms.images.signatures import claims_to_be_image, is_image_name
from shardwright.transforms.sources.annotation_files import AnnotationFault, read_annotation_file
from shardwright.transforms.sources.files_beside import stem_of
from shardwright.transforms.sources.image_files import (
    class_name,
    files_below,
    is_file,
    is_hidden,
    is_text,
    join,
    split_token,
)
from shardwright.transforms.sources.input_probe import InputProbe
from shardwright.transforms.sources.moved_files import file_name
from shardwright.transforms.sources.pair_matching import match_by_names
from shardwright.transforms.sources.pairs import MASK_SUFFIXES, Matches, PairedFolders, PairFormat
from shardwright.transforms.sources.xml_items import XmlElement, read_xml

_ROOT, _ANNOTATIONS, _MASKS, _LISTS = "annotation", "annotations", "SegmentationClass", "ImageSets"
#: Names of image folders in lower case, the most common first.
_IMAGES = ("jpegimages", "images")
#: Extensions to try if a folder has too many files to read all names.
_EXTENSIONS = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")
#: Number of folders to search for XML files if no folder has a usual name, and of files to try in each.
_MAX_FOLDERS, _FILES_TRIED = 12, 3
_XML_HEAD_BYTES = 4096
_NAMES, _SIDES = ("filename", "path"), ("xmin", "ymin", "xmax", "ymax")
_FLAGS = {"0": False, "1": True, "false": False, "true": True}


def parse_voc(data: bytes) -> Annotations:
    """Returns the annotations in an XML file.

    Raises:
      AnnotationFault: If the XML is broken; the message names the line.
    """
    items = [*read_xml(data, _ROOT)]
    size = next((item for item in items if item.name == "size"), None)
    objects = tuple(_object(item) for item in items if item.name == "object")
    return Annotations(objects=objects, size=_size(size) if size else None)


def named_images(data: bytes) -> list[str]:
    """Returns the file names of the image in an XML file, the likeliest first; none if the XML is broken."""
    try:
        items = [*read_xml(data, _ROOT)]
    except AnnotationFault:
        return []
    texts = {item.name: item.text.strip() for item in reversed(items)}
    names = (file_name(texts.get(name, "")) for name in _NAMES)
    return [name for name in dict.fromkeys(names) if name]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _size(element: XmlElement) -> tuple[int, int] | None:
    """Returns width and height; None if they are missing, or 0 as some tools write."""
    sides = []
    for name in ("width", "height"):
        text = element.text_of(name)
        side = _number(text) if text else 0.0
        if not math.isfinite(side) or side != int(side):
            raise AnnotationFault(f"its {name} is {text!r}")
        sides.append(int(side))
    return (sides[0], sides[1]) if min(sides) > 0 else None


def _object(element: XmlElement) -> ObjectAnnotation:
    """Returns an object.

    Its box is kept as written, as in most tools, although VOC's own coordinates count from 1.
    """
    xmin, ymin, xmax, ymax = (_number(element.text_of("bndbox", side)) for side in _SIDES)
    pose = element.text_of("pose")
    return ObjectAnnotation(
        label=class_name(element.text_of("name")),
        box=(xmin, ymin, xmax, ymax),
        difficult=_FLAGS.get(element.text_of("difficult").lower()),
        truncated=_FLAGS.get(element.text_of("truncated").lower()),
        occluded=_FLAGS.get((element.text_of("occluded") or element.text_of("occlusion")).lower()),
        view=pose if is_text(pose) else None,
    )


def _find(probe: InputProbe, settings: ConvertSettings) -> list[PairedFolders]:
    """Returns the folders of an input, which may hold several datasets, such as VOC2007 and VOC2012."""
    if probe.is_file:
        return []
    named = next((name for name in probe.folders if name.lower() == _ANNOTATIONS), "")
    if named:
        return [_two_folders(probe, named, settings)] if _has_xml_below(probe.inside(named)) else []
    if _has_xml(probe):
        return [_beside(probe, settings)]
    years = [probe.inside(name) for name in probe.folders if name.startswith("VOC")]
    found = [folders for year in years for folders in _find(year, settings)]
    found = found or _find_splits(probe, settings) or _find_any_names(probe, settings)
    # Class folders with XML files beside the images stay class folders, unless the layout stores objects.
    if not found and settings.record_layout.needs is Needs.OBJECTS and _has_xml_below(probe):
        found = [_beside(probe, settings)]
    return found


def _find_splits(probe: InputProbe, settings: ConvertSettings) -> list[PairedFolders]:
    """Returns what is in the folders with names of splits."""
    found = []
    for name in filter(split_token, probe.folders):
        inner = probe.inside(name)
        if _has_xml(inner):
            folders = [_beside(inner, settings)]
        elif any(folder.lower() == _ANNOTATIONS for folder in inner.folders):
            folders = _find(inner, settings)
        else:
            folders = _find_any_names(inner, settings)
        found += [replace(item, split=split_token(name)) for item in folders]
    several = len({item.split for item in found}) > 1
    return found if several else [replace(item, split="") for item in found]


def _find_any_names(probe: InputProbe, settings: ConvertSettings) -> list[PairedFolders]:
    """Returns the two folders, with any names, of XML files and images."""
    folders = [name for name in probe.folders if not name.startswith(".")]
    if not 0 < len(folders) <= _MAX_FOLDERS:
        return []
    inner = zip(folders, probe.folders_inside(folders, at_once=True), strict=True)
    with_xml = [name for name, folder in inner if _has_xml_below(folder)]
    if len(with_xml) != 1:
        return []
    found = _two_folders(probe, with_xml[0], settings)
    return [found] if settings.image_root or found.images != (probe.path.rstrip("/") or "/") else []


def _two_folders(probe: InputProbe, annotations: str, settings: ConvertSettings) -> PairedFolders:
    root = probe.path.rstrip("/") or "/"
    images = settings.image_root.rstrip("/")
    if not images:
        usual = {name.lower(): name for name in probe.folders}
        name = next((usual[name] for name in _IMAGES if name in usual), "") or _images_of(probe, annotations)
        images = join(root, name) if name else root
    return _paired(root, images, join(root, annotations), settings)


def _beside(probe: InputProbe, settings: ConvertSettings) -> PairedFolders:
    root = probe.path.rstrip("/") or "/"
    images = join(root, "images") if "images" in probe.folders else root
    return _paired(root, settings.image_root.rstrip("/") or images, root, settings)


def _paired(root: str, images: str, annotations: str, settings: ConvertSettings) -> PairedFolders:
    lists = join(root, _LISTS)
    if settings.record_layout.needs is not Needs.SEMANTIC:
        return PairedFolders(images, annotations, (".xml",), lists=join(lists, "Main"))
    masks = settings.mask_dir.rstrip("/") or join(root, _MASKS)
    lists = join(lists, "Segmentation")
    return PairedFolders(images, masks, MASK_SUFFIXES, lists=lists, only_annotated=True, has_masks=True)


def _images_of(probe: InputProbe, annotations: str) -> str:
    """Returns the folder with the images of XML files; empty if no folder has one of them."""
    others = [name for name in probe.folders if name != annotations and not name.startswith(".")]
    xml = probe.inside(annotations)
    names = [name for name in xml.files if name.lower().endswith(".xml")]
    stems = {stem_of(name) for name in names}
    named = [image for name in names[:_FILES_TRIED] for image in _named_in(storage.join(xml.path, name))]
    tried = [stem + suffix for stem in sorted(stems)[:_FILES_TRIED] for suffix in _EXTENSIONS] + named
    for name in others[:_MAX_FOLDERS] if names else ():
        inner = probe.inside(name)
        if any(
            file in named or (claims_to_be_image(file) and stem_of(file) in stems) for file in inner.files
        ):
            return name
        if any(is_file(join(inner.path, file)) for file in tried):
            return name
    return ""


def _named_in(path: str) -> list[str]:
    try:
        return named_images(read_annotation_file(path) or b"")
    except AnnotationFault:
        return []


def _has_xml(probe: InputProbe) -> bool:
    """Returns whether a folder contains XML files of Pascal VOC."""
    names = [name for name in probe.files if name.lower().endswith(".xml")][:_FILES_TRIED]
    heads = (storage.read_head(storage.join(probe.path, name), _XML_HEAD_BYTES) for name in names)
    return any(b"<annotation" in head for head in heads)


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


def _match(folders: PairedFolders, files: Mapping[str, storage.StoredObject], prefix: str) -> Matches:
    if folders.has_masks:
        return Matches()
    images = [path for path, _ in files_below(folders.images) if is_image_name(path) and not is_hidden(path)]
    return match_by_names(images, files, folders.annotations, named_images, prefix, "XML file")


SOURCE = PairFormat(
    name="voc",
    title="Pascal VOC",
    expected=(
        "name the folder with Annotations/ and JPEGImages/ (or two folders of other names, one with XML "
        "files and one with their images), or one with XML files beside the images"
    ),
    find=_find,
    parse=lambda data, folders: parse_voc(data),
    noun="XML file",
    provides=frozenset({Needs.OBJECTS, Needs.SEMANTIC}),
    settings=frozenset({"image_root", "mask_dir", "missing_annotations"}),
    match=_match,
).source()
