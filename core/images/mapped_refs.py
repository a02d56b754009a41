"""Tells a hook about an image, and makes a reference for each picture that it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from PIL import Image

from shardwright.core.images.boxes import are_upright, turn, upright_size
from shardwright.core.images.convert import Frame
from shardwright.core.images.map_hook import DecodedImage, MappedImage, failed
from shardwright.schemas.annotations import Annotations, ObjectAnnotation, decode_annotations
from shardwright.schemas.columns import column_values, decode_extra, encode_extra
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef, one_label

#: Stands between the key of a source image and the suffix of a picture that was made of it.
SUFFIX_SEPARATOR = "#"


def decoded_image(ref: ImageRef, picture: Image.Image, frame: Frame) -> DecodedImage:
    """Returns what a hook receives.

    Args:
      ref: Reference of the image.
      picture: Its upright picture.
      frame: Size of the source image and its orientation.

    Raises:
      ImageFault: If the annotations are for an image of another size.
    """
    annotations = decode_annotations(ref.annotations) if ref.annotations else Annotations()
    objects = None if annotations.objects is None else tuple(_in_picture(annotations, frame))
    return DecodedImage(picture, ref.key, ref.labels, ref.split, decode_extra(ref.extra), objects)


def _in_picture(annotations: Annotations, frame: Frame) -> list[ObjectAnnotation]:
    """Returns objects with boxes, polygons and key points in pixels of the upright picture."""
    upright = are_upright(annotations, frame)
    size = upright_size(frame) if upright else frame.size
    scale = size if annotations.relative else (1, 1)
    orientation = 1 if upright else frame.orientation

    def placed(left: float, upper: float, right: float, lower: float) -> tuple[float, float, float, float]:
        box = (left * scale[0], upper * scale[1], right * scale[0], lower * scale[1])
        return turn(box, size, orientation)

    def outline(item: ObjectAnnotation) -> Sequence[Sequence[float]] | None:
        if not isinstance(item.segmentation, list | tuple):
            return None  # run lengths belong to the image as stored
        return [
            [side for x, y in zip(polygon[::2], polygon[1::2]) for side in placed(x, y, x, y)[:2]]
            for polygon in item.segmentation
        ]

    def points(item: ObjectAnnotation) -> Sequence[float] | None:
        if item.keypoints is None:
            return None
        triples = zip(item.keypoints[::3], item.keypoints[1::3], item.keypoints[2::3])
        return [value for x, y, visibility in triples for value in (*placed(x, y, x, y)[:2], visibility)]

    return [
        replace(
            item,
            box=None if item.box is None else placed(*item.box),
            segmentation=outline(item),
            mask_place="",
            keypoints=points(item),
        )
        for item in annotations.objects or ()
    ]


def mapped_ref(ref: ImageRef, mapped: MappedImage, fits: bool, settings: ConvertSettings) -> ImageRef:
    """Returns the reference of a picture that a hook returned, as if a source had listed it.

    Args:
      ref: Reference of the source image.
      mapped: The picture.
      fits: Whether the source's annotations fit the picture.
      settings: Checked settings.

    Raises:
      ImageFault: If the hook returned values that cannot be stored.
    """
    key = f"{ref.key}{SUFFIX_SEPARATOR}{mapped.suffix}" if mapped.suffix else ref.key
    annotations = None if fits else _annotations(ref, mapped, settings)
    return (ref if annotations is None else ref.annotated(annotations))._replace(
        key=key,
        label=_label(ref, mapped),
        extra=_extra(ref, mapped, settings),
        file_name="" if mapped.suffix else ref.file_name,
        source_id="" if mapped.suffix else ref.source_id,
    )


def _label(ref: ImageRef, mapped: MappedImage) -> str:
    if mapped.labels is None:
        return ref.label
    if isinstance(mapped.labels, str) or not all(isinstance(name, str) for name in mapped.labels):
        raise failed(f"labels is {mapped.labels!r}, not a list of class names")
    return LABEL_SEPARATOR.join(map(one_label, mapped.labels))


def _extra(ref: ImageRef, mapped: MappedImage, settings: ConvertSettings) -> str:
    if not mapped.columns:
        return ref.extra
    columns = {column.name: column for column in settings.parsed_extra_columns}
    values = decode_extra(ref.extra)
    for name, value in mapped.columns.items():
        if name not in columns:
            raise failed(f"it returned the column {name!r}, which --extra_columns does not name")
        try:
            values[name] = column_values(columns[name], value, "")
        except ValueError as error:
            raise failed(f"it returned a wrong value: {error}") from None
    return encode_extra(values)


def _annotations(ref: ImageRef, mapped: MappedImage, settings: ConvertSettings) -> Annotations | None:
    """Returns the annotations of a picture that the source's do not fit; None if the layout stores none."""
    if not settings.record_layout.stores_annotations:
        return None
    annotations = decode_annotations(ref.annotations) if ref.annotations else Annotations()
    if annotations.has_mask_parts or annotations.semantic_mask or annotations.panoptic_mask:
        raise failed("the image has a mask, which cannot follow other objects or another size")
    if mapped.objects is None:
        if not annotations.objects:
            return None
        raise failed("it changed the size of an image with objects; return them as MappedImage.objects")
    objects = tuple(mapped.objects)
    if not all(isinstance(item, ObjectAnnotation) for item in objects):
        raise failed("its objects are not of the class ObjectAnnotation")
    return replace(annotations, objects=objects, relative=False, size=None, upright=True)
