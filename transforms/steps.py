"""`ReadImages`, `DecodeAndResize` and `BuildExamples`: single steps for custom pipelines.

All three take the settings of `shardwright convert`, and each uses those that concern it. Give them the same
ones: what a record states about its picture also depends on how the picture was made.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam

from shardwright.core.conversion import check_quality, decided_entry, entry_of_problem
from shardwright.core.images.annotate import annotate, read_mask
from shardwright.core.images.convert import ConvertedImage, convert_image
from shardwright.core.images.decode import no_image
from shardwright.core.images.read import check_sha256, read_image
from shardwright.core.plan.request import checked_settings
from shardwright.core.records.build import build_example, check_labels, label_ids
from shardwright.schemas.errors import ImageFault, LeftOut, NotACandidate, UsageError
from shardwright.schemas.image_ref import ImageRef, key_from_bytes
from shardwright.schemas.ledger import Entry
from shardwright.transforms.building_blocks import composite

_QUARANTINED = "quarantined"
#: What `checked_settings` asks for; a step gets its images from the step before.
_NO_INPUT = {"input": "-"}


class ImageElement(NamedTuple):
    """An image on its way through `ReadImages | DecodeAndResize | BuildExamples`.

    Attributes:
      ref: Reference of the image.
      data: Bytes of the source, from reading until decoding.
      sha256: Hex digest of the source bytes, after reading.
      image: The image as a record stores it, after decoding.
      fault: What is wrong with the image, or which setting leaves it out; each step passes on such elements
        unchanged.
    """

    ref: ImageRef
    data: bytes = b""
    sha256: str = ""
    image: ConvertedImage | None = None
    fault: ImageFault | LeftOut | None = None


def ref_of_path(path: str) -> ImageRef:
    """Returns the reference of a path, with the path as its key and the folder's name as its label."""
    key = key_from_bytes(os.fsencode(path))
    return ImageRef(key=key, uri=path, label=key.split("/")[-2] if "/" in key else "")


def attempt(element: ImageElement, step: Callable[[ImageElement], ImageElement]) -> ImageElement:
    """Applies a step to an element; stores in the element why the image is left out, if it is."""
    if element.fault is not None or not element.ref.is_candidate:
        return element
    try:
        return step(element)
    except (ImageFault, LeftOut) as problem:
        return element._replace(data=b"", fault=problem)
    except NotACandidate:
        return element._replace(data=b"", fault=no_image(element.data))


@composite
def ReadImages(refs: beam.PCollection[ImageRef | str], /, **settings: Any) -> beam.PCollection[ImageElement]:
    """Reads images. `PCollection[ImageRef | str] -> PCollection[ImageElement]`.

    Args:
      refs: References or paths of images.
      **settings: The settings of all three steps; this one uses `max_bytes`.
    """
    max_bytes = checked_settings({**_NO_INPUT, **settings}).max_source_bytes

    def read(element: ImageElement) -> ImageElement:
        data = read_image(element.ref, max_bytes)
        sha256 = hashlib.sha256(data).hexdigest()
        check_sha256(element.ref, sha256)
        return element._replace(data=data, sha256=sha256)

    return (
        refs
        | "AsElement" >> beam.Map(lambda ref: ImageElement(ref_of_path(ref) if isinstance(ref, str) else ref))
        # ImageElement
        | "ReadImage" >> beam.Map(attempt, read).with_output_types(ImageElement)  # ImageElement
    )


@composite
def DecodeAndResize(
    images: beam.PCollection[ImageElement], /, **settings: Any
) -> beam.PCollection[ImageElement]:
    """Decodes, resizes and encodes. `PCollection[ImageElement] -> PCollection[ImageElement]`.

    Args:
      images: Images that were read.
      **settings: The settings of all three steps; this one uses `resize`, `fit`, `resample`, `image_format`,
        `quality`, `color`, `background`, `max_pixels`, ...
    """
    checked = checked_settings({**_NO_INPUT, **settings})
    if checked.map:
        raise UsageError("map: DecodeAndResize makes one image of each; use shardwright convert --map.")

    def decode(element: ImageElement) -> ImageElement:
        image = convert_image(element.data, element.ref.key, checked)
        if checked.drop:
            check_quality(image, checked)
        return element._replace(data=b"", image=image)

    return images | "DecodeImage" >> beam.Map(attempt, decode).with_output_types(ImageElement)  # ImageElement


@composite
def BuildExamples(
    images: beam.PCollection[ImageElement],
    /,
    labels: Sequence[str],
    layout: str = "classification",
    as_proto: bool = False,
    **settings: Any,
) -> tuple[beam.PCollection[Any], beam.PCollection[Entry]]:
    """Builds records. `PCollection[ImageElement] -> (PCollection[bytes], PCollection[Entry])`.

    The second result holds the images that were left out, each with source, stage and reason. The custom
    pipeline decides what to do with them.

    Args:
      images: Images that were decoded.
      labels: Class names in id order.
      layout: Name of the record layout.
      as_proto: Whether to yield `tf.train.Example` messages (needs TensorFlow) instead of their bytes.
      **settings: The settings of all three steps; this one uses `bad_boxes`, `extra_columns`,
        `label_separator`, `unlabelled` and those that decide the sides and the samples of pictures.
    """
    checked = checked_settings({**_NO_INPUT, **settings, "layout": layout})
    ids = label_ids(labels, checked.record_layout.first_label)

    def build(element: ImageElement) -> Iterator[Any]:
        problem = element.fault
        if not element.ref.is_candidate:
            yield beam.pvalue.TaggedOutput(_QUARANTINED, decided_entry(element.ref))
            return
        if problem is None:
            assert element.image is not None, "BuildExamples follows DecodeAndResize"
            try:
                check_labels(element.ref, checked, ids)
                mask = read_mask(element.ref, checked)
                annotated = annotate(element.ref, element.image, checked, ids, mask)
                example = build_example(
                    checked.record_layout, ids, element.ref, element.image, element.sha256, annotated.values
                )
                if as_proto:
                    import tensorflow as tf

                    example = tf.train.Example.FromString(example)
                yield example
                return
            except ImageFault as fault:
                problem = fault
        entry = entry_of_problem(element.ref, problem, element.sha256)
        yield beam.pvalue.TaggedOutput(_QUARANTINED, entry)

    built = images | "BuildExample" >> beam.FlatMap(build).with_outputs(_QUARANTINED, main="examples")
    # bytes or tf.train.Example; Entry
    return built.examples, built[_QUARANTINED]
