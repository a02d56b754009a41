"""Cityscapes: images in `leftImg8bit/SPLIT/CITY`, polygons and masks in `gtFine/SPLIT/CITY`."""

from __future__ import annotations

from shardwright.core.sources.annotation_files import AnnotationFault, faults_in, parse_json
from shardwright.core.sources.image_files import class_name, join
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.pairs import PairedFolders, PairFormat
from shardwright.core.sources.shapes import corners_of, polygon, size_of
from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.layouts import Needs

_IMAGES = "leftImg8bit"
#: Folders of annotations, in order of preference.
_ANNOTATIONS = ("gtFine", "gtCoarse")
_POLYGONS, _CLASS_IDS = "polygons.json", "labelIds.png"
#: The classes of `labelIds.png` in the order of their ids.
CLASSES = (
    "unlabeled", "ego vehicle", "rectification border", "out of roi", "static", "dynamic", "ground",
    "road", "sidewalk", "parking", "rail track", "building", "wall", "fence", "guard rail", "bridge",
    "tunnel", "pole", "polegroup", "traffic light", "traffic sign", "vegetation", "terrain", "sky",
    "person", "rider", "car", "truck", "bus", "caravan", "trailer", "train", "motorcycle", "bicycle",
)  # fmt: skip
#: Classes with separate objects; all other polygons are scenery.
THINGS = frozenset(CLASSES[CLASSES.index("person") :])
_GROUP = "group"


def parse_polygons(data: bytes) -> Annotations:
    """Returns the objects in a file of polygons; scenery such as the sky is left out.

    Raises:
      AnnotationFault: If the file cannot be used.
    """
    document = parse_json(data)
    if not isinstance(document, dict) or not isinstance(document.get("objects"), list):
        raise AnnotationFault("it has no list of objects")
    size = size_of(document, ("imgWidth", "imgHeight"))
    objects = []
    for place, item in enumerate(document["objects"]):
        label = class_name(item.get("label")) if isinstance(item, dict) else ""
        if not label:
            raise AnnotationFault(f"object {place} has no label")
        single = label.removesuffix(_GROUP)
        if item.get("deleted") or single not in THINGS:
            continue
        with faults_in(f"object {place}"):
            box, outline = polygon(corners_of(item.get("polygon")))
        if size is not None:  # outlines may exceed the picture by a few pixels
            box = (max(box[0], 0), max(box[1], 0), min(box[2], size[0]), min(box[3], size[1]))
        objects.append(ObjectAnnotation(single, box, crowd=single != label, segmentation=outline))
    return Annotations(objects=tuple(objects), size=size)


def _find(probe: InputProbe, settings: ConvertSettings) -> list[PairedFolders]:
    """Returns the images and annotations of each split, also of splits without annotations."""
    if _IMAGES not in probe.folders:
        return []
    kinds = {name: {*probe.inside(name).folders} for name in _ANNOTATIONS if name in probe.folders}
    has_masks = settings.record_layout.needs is Needs.SEMANTIC
    folder_pairs = []
    for split in probe.inside(_IMAGES).folders:
        kind = next((kind for kind, splits in kinds.items() if split in splits), "")
        folder_pairs.append(
            PairedFolders(
                images=join(join(probe.root, _IMAGES), split),
                annotations=join(join(probe.root, kind), split) if kind else "",
                suffixes=(f"_{kind}_{_CLASS_IDS if has_masks else _POLYGONS}",),
                image_suffix=f"_{_IMAGES}",
                split=split.lower(),
                has_masks=has_masks,
                classes=tuple(enumerate(CLASSES)) if has_masks else (),
            )
        )
    return folder_pairs


SOURCE = PairFormat(
    name="cityscapes",
    title="Cityscapes",
    expected=f"name the folder with {_IMAGES}/ and {'/ or '.join(_ANNOTATIONS)}/, which contain the splits",
    find=_find,
    parse=lambda data, folders: parse_polygons(data),
    provides=frozenset({Needs.OBJECTS, Needs.SEMANTIC}),
    summarize=lambda probe, settings: (
        ", class masks" if settings.record_layout.needs is Needs.SEMANTIC else ", polygons of things"
    ),
).source()
