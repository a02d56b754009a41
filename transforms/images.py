"""`ReadImages` and `DecodeAndResize`: single steps for custom pipelines."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam

from shardwright.core.images.convert import ConvertedImage, convert_image
from shardwright.core.images.read import read_image
from shardwright.core.layout_files import read_layout
from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.configuration.settings_values import settings_from
from shardwright.schemas.errors import ImageFault, NotACandidate, UsageError
from shardwright.schemas.image_ref import ImageRef, key_from_bytes


class ImageElement(NamedTuple):
    """An image on its way through `ReadImages | DecodeAndResize | BuildExamples`.

    Attributes:
      ref: Reference of the image.
      data: Bytes of the source, from reading until decoding.
      sha256: Hex digest of the source bytes, after reading.
      image: The image as a record stores it, after decoding.
      fault: What is wrong with the image; each step passes on faulty elements unchanged.
    """

    ref: ImageRef
    data: bytes = b""
    sha256: str = ""
    image: ConvertedImage | None = None
    fault: ImageFault | None = None


def ref_of_path(path: str) -> ImageRef:
    """Returns the reference of a path, with the path as its key and the folder's name as its label."""
    key = key_from_bytes(os.fsencode(path))
    return ImageRef(key=key, uri=path, label=key.split("/")[-2] if "/" in key else "")


def attempt(element: ImageElement, step: Callable[[ImageElement], ImageElement]) -> ImageElement:
    """Applies a step to an element; stores a fault of the image in the element."""
    if element.fault is not None:
        return element
    try:
        return step(element)
    except ImageFault as fault:
        return element._replace(data=b"", fault=fault)
    except NotACandidate as error:
        no_image = ImageFault(QuarantineReason.NOT_AN_IMAGE, Stage.DECODE, error.reason)
        return element._replace(data=b"", fault=no_image)


def step_settings(values: dict[str, Any]) -> ConvertSettings:
    """Returns checked settings for a single step, which needs no input or output."""
    if "layout" in values:
        values = {**values, "layout": read_layout(str(values["layout"]))}
    settings = settings_from({"input": "-", **values})
    settings.check()
    return settings


class ReadImages(beam.PTransform):
    """Reads images. `PCollection[ImageRef | str] -> PCollection[ImageElement]`.

    Args:
      **settings: `max_bytes`, as in `shardwright convert`.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._max_bytes = step_settings(settings).max_source_bytes

    def expand(self, refs: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        return (
            refs
            | "AsRef" >> beam.Map(lambda ref: ref_of_path(ref) if isinstance(ref, str) else ref)  # ImageRef
            | "ReadImage"
            >> beam.Map(read_element, self._max_bytes).with_output_types(ImageElement)  # ImageElement
        )


def read_element(ref: ImageRef, max_bytes: int) -> ImageElement:
    """Reads one image."""

    def read(element: ImageElement) -> ImageElement:
        data = read_image(ref, max_bytes)
        return element._replace(data=data, sha256=hashlib.sha256(data).hexdigest())

    return attempt(ImageElement(ref), read)


class DecodeAndResize(beam.PTransform):
    """Decodes, resizes and encodes. `PCollection[ImageElement] -> PCollection[ImageElement]`.

    Args:
      **settings: Settings of `shardwright convert` for one image: `resize`, `fit`,
        `resample`, `image_format`, `quality`, `color`, `background`, `max_pixels`, ...
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._settings = step_settings(settings)
        if self._settings.map:
            raise UsageError("map: DecodeAndResize makes one image of each; use shardwright convert --map.")

    def expand(self, images: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        return images | "DecodeImage" >> beam.ParDo(_DecodeImage(self._settings)).with_output_types(
            ImageElement
        )  # ImageElement


class _DecodeImage(beam.DoFn):
    def __init__(self, settings: ConvertSettings) -> None:
        self._settings = settings

    def process(self, element: ImageElement) -> Iterator[ImageElement]:
        def decode(element: ImageElement) -> ImageElement:
            image = convert_image(element.data, element.ref.key, self._settings)
            return element._replace(data=b"", image=image)

        yield attempt(element, decode)
