"""The XML of "CVAT for images 1.1": one file with the shapes and tags of all images."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.core.sources import shapes
from shardwright.core.sources.annotation_files import AnnotationFault, XmlElement, XmlItems, faults_in
from shardwright.core.sources.documents import Document, DocumentFormat, ImagePaths
from shardwright.core.sources.image_files import (
    annotated,
    class_name,
    inner_path,
    labelled,
    number_in,
    split_in,
    with_slashes,
)
from shardwright.schemas.annotations import Annotations, ObjectAnnotation, Segmentation
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.layouts import Needs

_ROOT, _IMAGE, _TAG = "annotations", "image", "tag"
_REFUSED = {"track": "it is an export of 'CVAT for video'; export the task as 'CVAT for images 1.1'"}
_SHAPES = ("box", "polygon", "polyline", "points", "ellipse", "cuboid", "mask", "skeleton")
_FLAGS = {"0": False, "1": True}
#: CVAT's name for images without a subset.
_DEFAULT = "default"


def objects_of(image: XmlElement) -> Annotations:
    """Returns the objects of an image from its shapes.

    Raises:
      AnnotationFault: If a shape cannot be used; the message names its line.
    """
    size = shapes.size_of(image.attributes, parse=number_in)
    objects = []
    for shape in [child for child in image.children if child.name in _SHAPES]:
        with faults_in(f"the {shape.name} in line {shape.line}"):
            box, outline = _box_and_outline(shape, size)
        label = class_name(shape.attributes.get("label", ""))
        occluded = _FLAGS.get(shape.attributes.get("occluded", ""))
        objects.append(ObjectAnnotation(label, box, occluded=occluded, segmentation=outline))
    return Annotations(objects=tuple(objects), size=size, upright=True)


def _box_and_outline(
    shape: XmlElement, size: tuple[int, int] | None
) -> tuple[shapes.Box | None, Segmentation | None]:
    """Returns the box and the outline of a shape; both are None if it encloses nothing.

    Raises:
      ValueError: If the shape is invalid.
    """
    attributes = shape.attributes

    def numbers(*names: str) -> list[float]:
        return shapes.numbers_of(attributes, names, number_in)

    (degrees,) = numbers("rotation") if "rotation" in attributes else (0.0,)
    if shape.name == "box":
        left, top, right, lower = numbers("xtl", "ytl", "xbr", "ybr")
        return shapes.rectangle((left, top, right, lower), degrees)
    if shape.name == "polygon":
        pairs = [pair.split(",") for pair in attributes.get("points", "").split(";") if pair]
        return shapes.polygon(shapes.corners_of(pairs, number_in))
    if shape.name == "ellipse":
        x, y, x_radius, y_radius = numbers("cx", "cy", "rx", "ry")
        return shapes.ellipse(x, y, x_radius, y_radius, degrees)
    if shape.name == "mask":
        left, top, width, height = map(int, numbers("left", "top", "width", "height"))
        if size is None:
            raise ValueError("its image has no width and height")
        runs = [int(run) for run in attributes.get("rle", "").split(",")]
        mask = shapes.mask_of_runs(runs, width, height)
        return (left, top, left + width, top + height), shapes.mask_outline(mask, left, top, size)
    if shape.name == "cuboid":
        names = [f"{axis}{side}{face}" for face in "12" for side in ("tl", "bl", "tr", "br") for axis in "xy"]
        return shapes.hull(numbers(*names)), None
    return None, None


def _is_cvat(head: bytes, *_: object) -> bool:
    """Returns whether a file begins like CVAT's XML."""
    begin = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    has_root = begin.startswith(b"<") and b"<annotations" in head[:4096]
    return has_root and (b"<image" in head or b"<meta" in head)


def _image_of(image: XmlElement, settings: ConvertSettings) -> ImagePaths:
    """Returns the names of an image; some exports have images in folders named like their subsets."""
    written = image.attributes.get("name", "")
    name, subset = inner_path(with_slashes(written)), inner_path(image.attributes.get("subset", ""))
    if not name:
        raise AnnotationFault(f"the name {written!r} is not the name of a file")
    return ImagePaths(name, (name, f"{subset}/{name}") if subset else (name,))


def _annotate(ref: ImageRef, image: XmlElement, settings: ConvertSettings) -> ImageRef:
    if subset := split_in(image.attributes.get("subset", "")):
        ref = ref._replace(split="" if subset == _DEFAULT else subset)
    if settings.record_layout.needs is Needs.LABEL:
        tags = (class_name(tag.attributes.get("label", "")) for tag in image.children if tag.name == _TAG)
        return labelled(ref, [*dict.fromkeys(filter(None, tags))], "tags", settings)
    return annotated(ref, objects_of(image))


def _summarize(document: Document, images: Sequence[XmlElement], settings: ConvertSettings) -> str:
    """Returns what is read from a file.

    Raises:
      UsageError: If it has no tags but the layout stores classes.
    """
    if settings.record_layout.needs is not Needs.LABEL:
        return ", shapes"
    if images and not any(child.name == _TAG for image in images for child in image.children):
        raise UsageError(
            f"--layout {settings.record_layout.name}: the first images of "
            f"{document.path} have no tags to use as classes; choose --layout detection."
        )
    return ", tags"


SOURCE = DocumentFormat(
    name="cvat",
    title="CVAT",
    noun="CVAT XML",
    rule="export the task as 'CVAT for images 1.1' and name annotations.xml or its folder.",
    entry="line",
    suffixes=(".xml",),
    recognizes=_is_cvat,
    open=lambda file, *_: XmlItems(file, _ROOT, _IMAGE, _REFUSED),
    image_of=_image_of,
    annotate=_annotate,
    summarize=_summarize,
    provides=frozenset({Needs.OBJECTS, Needs.LABEL}),
    settings=frozenset({"image_root", "label_separator"}),
).source()
