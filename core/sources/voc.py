"""Pascal VOC: XML files and images in two folders, or side by side in one folder."""

from __future__ import annotations

import math

from shardwright.core import storage
from shardwright.core.sources.annotation_files import XmlElement, read_xml
from shardwright.core.sources.image_files import class_name, file_name, is_text, join, number_in, split_token
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.pairs import FILES_TRIED, MASK_SUFFIXES, PairedFolders, PairFormat, holds_below
from shardwright.core.sources.shapes import size_of
from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.layouts import Needs

_ROOT, _ANNOTATIONS, _MASKS, _LISTS = "annotation", "annotations", "SegmentationClass", "ImageSets"
#: Names of image folders in lower case, the most common first.
_IMAGES = ("jpegimages", "images")
_XML_HEAD_BYTES = 4096
_NAMES, _SIDES = ("filename", "path"), ("xmin", "ymin", "xmax", "ymax")
_FLAGS = {"0": False, "1": True, "false": False, "true": True}


def parse_voc(data: bytes) -> Annotations:
    """Returns the annotations in an XML file.

    Raises:
      AnnotationFault: If the XML is broken; the message names the line.
    """
    items = read_xml(data, _ROOT)
    sides = {side.name: side.text.strip() for item in items if item.name == "size" for side in item.children}
    objects = tuple(_object(item) for item in items if item.name == "object")
    return Annotations(objects=objects, size=size_of(sides, parse=number_in))


def named_images(data: bytes) -> list[str]:
    """Returns the file names of the image in an XML file, the likeliest first."""
    texts = {item.name: item.text.strip() for item in reversed(read_xml(data, _ROOT))}
    names = (file_name(texts.get(name, "")) for name in _NAMES)
    return [name for name in dict.fromkeys(names) if name]


def _object(element: XmlElement) -> ObjectAnnotation:
    """Returns an object.

    Its box is kept as written, as in most tools, although VOC's own coordinates count from 1.
    """
    sides = (number_in(element.text_of("bndbox", side)) for side in _SIDES)
    xmin, ymin, xmax, ymax = (math.nan if side is None else side for side in sides)
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
    """Returns the folders of an input, which may hold several datasets, such as VOC2007 and VOC2012.

    Without folders of the usual names, images and XML files may be anywhere. Class folders with XML files
    beside the images stay class folders, unless the layout stores objects.
    """
    root = probe.root
    names = {name.lower(): name for name in probe.folders}
    if _ANNOTATIONS in names:
        if not holds_below(probe.inside(names[_ANNOTATIONS]), ".xml", _is_voc, settings):
            return []
        images = next((join(root, names[name]) for name in _IMAGES if name in names), root)
        return [_folder_pair(root, images, join(root, names[_ANNOTATIONS]), settings)]
    years = [probe.inside(name) for name in probe.folders if name.startswith("VOC")]
    if folder_pairs := [folders for year in years for folders in _find(year, settings)]:
        return folder_pairs
    if any(map(split_token, names)) and not probe.files_with(".xml", FILES_TRIED, _is_voc):
        return []
    return [_folder_pair(root, root, root, settings)] if holds_below(probe, ".xml", _is_voc, settings) else []


def _is_voc(path: str) -> bool:
    return b"<annotation" in storage.read_head(path, _XML_HEAD_BYTES)


def _folder_pair(root: str, images: str, annotations: str, settings: ConvertSettings) -> PairedFolders:
    """Returns the folders of a dataset in a folder, which also has its masks and lists."""
    images = settings.image_root.rstrip("/") or images
    lists = join(root, _LISTS)
    if settings.record_layout.needs is Needs.SEMANTIC:
        masks = settings.mask_dir.rstrip("/") or join(root, _MASKS)
        lists = join(lists, "Segmentation")
        return PairedFolders(images, masks, MASK_SUFFIXES, lists=lists, only_annotated=True, has_masks=True)
    return PairedFolders(images, annotations, (".xml",), lists=join(lists, "Main"))


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
    named_images=named_images,
).source()
