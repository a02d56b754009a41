"""Create ML: one JSON array with an entry for each image, as Apple's tools and Roboflow write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardwright.core.sources.annotation_files import AnnotationFault, faults_in, first_item
from shardwright.core.sources.documents import DocumentFormat, ImagePaths
from shardwright.core.sources.image_files import annotated, class_name, is_text
from shardwright.core.sources.shapes import numbers_of
from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.configuration.settings import ConvertSettings

#: Names of the fields with the image and its objects: of Roboflow and older tools, and of Apple's guide.
_FIELDS = (("image", "annotations"), ("imagefilename", "annotation"))
_SIDES = ("x", "y", "width", "height")


def _is_create_ml(entry: Any) -> bool:
    """Returns whether an entry names an image, and objects with coordinates and labels."""
    return isinstance(entry, dict) and any(
        isinstance(entry.get(image), str)
        and isinstance(entry.get(objects), list)
        and all(isinstance(item, dict) and {"coordinates", "label"} <= item.keys() for item in entry[objects])
        for image, objects in _FIELDS
    )


def _image_of(entry: Mapping[str, Any], settings: ConvertSettings) -> ImagePaths:
    names = [entry[image] for image, _ in _FIELDS if isinstance(entry, dict) and is_text(entry.get(image))]
    if not names:
        raise AnnotationFault("it names no image")
    return ImagePaths(names[0], (names[0],))


def objects_of(entry: Mapping[str, Any]) -> Annotations:
    """Returns the objects of an entry, whose boxes are given by their centers, in pixels.

    Raises:
      AnnotationFault: If an object is wrong; the message names it.
    """
    items = next((entry[objects] for _, objects in _FIELDS if objects in entry), None)
    if not isinstance(items, list):
        raise AnnotationFault("it has no list of annotations")
    objects = []
    for place, item in enumerate(items):
        coordinates = item.get("coordinates") if isinstance(item, dict) else None
        with faults_in(f"the coordinates of annotation {place}"):
            x, y, width, height = numbers_of(coordinates, _SIDES)
        box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        objects.append(ObjectAnnotation(class_name(item.get("label")), box))
    return Annotations(objects=tuple(objects))


SOURCE = DocumentFormat(
    name="create_ml",
    title="Create ML",
    noun="Create ML JSON",
    entry="entry",
    recognizes=lambda head, *_: _is_create_ml(first_item(head)),
    image_of=_image_of,
    is_beside=True,
    annotate=lambda ref, entry, settings: annotated(ref, objects_of(entry)),
    summarize=lambda *_: ", boxes by their centers",
    settings=frozenset({"image_root"}),
).source()
