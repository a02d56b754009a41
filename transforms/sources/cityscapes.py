"""Reads Cityscapes: images in `leftImg8bit/SPLIT/CITY`, polygons and masks in `gtFine/SPLIT/CITY`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.transforms.sources.annotation_files import AnnotationFault
from shardwright.transforms.sources.image_files import class_name, join, number
from shardwright.transforms.sources.input_probe import InputProbe, look_at
from shardwright.transforms.sources.paired_files import Pairing, list_pairs, split_pairs
from shardwright.transforms.sources.source import Context, Input, InputSplit, Source

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
_MIN_CORNERS = 3


def parse_polygons(data: bytes) -> Annotations:
    """Returns the objects in a file of polygons; scenery such as the sky is left out.

    Raises:
      AnnotationFault: if the file cannot be used.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "it"
        raise AnnotationFault(f"{where} is not JSON") from None
    if not isinstance(document, dict) or not isinstance(document.get("objects"), list):
        raise AnnotationFault("it has no list of objects")
    size = _size(document)
    objects = []
    for place, item in enumerate(document["objects"]):
        label = class_name(item.get("label")) if isinstance(item, dict) else ""
        if not label:
            raise AnnotationFault(f"object {place} has no label")
        single = label.removesuffix(_GROUP)
        if item.get("deleted") or single not in THINGS:
            continue
        corners = _corners(item.get("polygon"), place)
        xs, ys = corners[::2], corners[1::2]
        box = (min(xs), min(ys), max(xs), max(ys))
        if size is not None:  # outlines may exceed the picture by a few pixels
            box = (max(box[0], 0), max(box[1], 0), min(box[2], size[0]), min(box[3], size[1]))
        objects.append(ObjectAnnotation(single, box, crowd=single != label, segmentation=[corners]))
    return Annotations(objects=tuple(objects), size=size)


def _size(values: Mapping[str, Any]) -> tuple[int, int] | None:
    width, height = (number(values.get(name)) or 0 for name in ("imgWidth", "imgHeight"))
    return (int(width), int(height)) if width > 0 and height > 0 else None


def _corners(polygon: Any, place: int) -> list[float]:
    corners = []
    for corner in polygon if isinstance(polygon, list) else []:
        sides = [number(side) for side in corner] if isinstance(corner, list) and len(corner) == 2 else [None]
        if None in sides:
            raise AnnotationFault(f"a corner of object {place} is {corner!r} instead of two numbers")
        corners += [float(side) for side in sides if side is not None]
    if len(corners) < 2 * _MIN_CORNERS:
        raise AnnotationFault(f"the polygon of object {place} has fewer than three corners")
    return corners


def _find_pairings(probe: InputProbe, settings: ConvertSettings) -> list[Pairing]:
    """Returns the images and annotations of each split, also of splits without annotations."""
    if probe.is_file or _IMAGES not in probe.folders:
        return []
    root = probe.path.rstrip("/") or "/"
    kinds = [name for name in _ANNOTATIONS if name in probe.folders]
    splits = [name for name in probe.inside(_IMAGES).folders if not name.startswith(".")]
    ending = _CLASS_IDS if settings.record_layout.needs is Needs.SEMANTIC else _POLYGONS
    inner = {kind: set(probe.inside(kind).folders) for kind in kinds}
    found = []
    for split in splits:
        images = join(join(root, _IMAGES), split)
        kind = next((kind for kind in kinds if split in inner[kind]), "")
        folder = join(join(root, kind), split) if kind else ""
        found.append(Pairing(images, folder, f"_{kind}_{ending}", f"_{_IMAGES}", split.lower()))
    labelled = [pairing for pairing in found if pairing.annotations]
    if len(labelled) == 1:
        found = [pairing._replace(split="") for pairing in found]
    return found if labelled else []


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    pairings = _find_pairings(probe, settings)
    if not pairings:
        raise UsageError(
            f"--input {printable(probe.path)} is not a Cityscapes dataset: name the folder with {_IMAGES}/ "
            f"and {' or '.join(f'{name}/' for name in _ANNOTATIONS)}, which contain the splits."
        )
    what = "class masks" if settings.record_layout.needs is Needs.SEMANTIC else "polygons of things"
    return f"Cityscapes, {what} ({'; '.join(pairing.describe() for pairing in pairings)})"


def split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields input splits of some thousand images each."""
    has_masks = context.settings.record_layout.needs is Needs.SEMANTIC
    pairings = _find_pairings(look_at(item.path), context.settings)
    yield from chain.from_iterable(split_pairs(item, pairing, has_masks=has_masks) for pairing in pairings)


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields the references of an input split with their annotations, and the class ids of masks."""
    has_masks = context.settings.record_layout.needs is Needs.SEMANTIC
    if has_masks:
        for place, name in enumerate(CLASSES):
            yield ClassId(name, place)
    missing = context.settings.missing_annotations
    yield from list_pairs(part, None if has_masks else parse_polygons, missing)


SOURCE = Source(
    name="cityscapes",
    provides=frozenset({Needs.OBJECTS, Needs.SEMANTIC}),
    settings=frozenset({"missing_annotations"}),
    accepts=lambda probe, settings: bool(_find_pairings(probe, settings)),
    describe=_describe,
    list_part=list_part,
    split=split,
)
