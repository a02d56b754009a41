"""Decodes the images of records with Pillow into NumPy arrays."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from shardwright.loader.values import FeatureReader
from shardwright.schemas.bounds import NO_BOUNDS
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.dataset import Dataset, picture_shape, stored_format
from shardwright.schemas.errors import ImageFault, NotACandidate, UsageError
from shardwright.schemas.example import ExampleSpans
from shardwright.schemas.layouts import FeatureRole
from shardwright.transforms.images.color import to_color
from shardwright.transforms.images.decode import load_checked, open_image, upright
from shardwright.transforms.images.pillow_settings import limit_of_process

Pixels = npt.NDArray[np.uint8]

#: Pillow modes that need no conversion.
_READY = frozenset(("RGB", "L"))
_FORMATS = ("JPEG", "PNG", "WEBP")
#: High, because the writer of the dataset has already applied the user's limit.
_MAX_PIXELS = 2**31 - 1
#: Pillow refuses images with more pixels than its limit times this number.
_TIMES_LIMIT = 2
_WHITE = (255, 255, 255)
_SIDES = (FeatureRole.HEIGHT, FeatureRole.WIDTH, FeatureRole.CHANNELS)


class PictureReader:
    """Decodes the images of a dataset's records in any layout.

    Args:
      dataset: The content of its `dataset.json`.
      readers: Readers of its features.
    """

    def __init__(self, dataset: Dataset, readers: Mapping[FeatureRole, FeatureReader]) -> None:
        self._layout = dataset.layout
        self._readers = readers
        self._encoded = readers.get(FeatureRole.ENCODED)
        self._raw = stored_format(dataset) == "raw"
        self._shape = picture_shape(dataset)
        #: If only some images are gray, all are returned in color.
        self._channels = 1 if self._shape[2] == 1 else 3

    def pixels(self, spans: ExampleSpans) -> Pixels:
        """Returns a record's image: height x width x channels, with 1 channel if all images are gray, else 3.

        Raises:
          UsageError: if the layout stores no image.
          ValueError: if it cannot be decoded.
        """
        found = self._stored(spans)
        if isinstance(found, Image.Image):
            pixels = np.array(self._in_colour(found))  # a copy, because Pillow's own buffer is read-only
            return pixels if pixels.ndim == 3 else pixels[:, :, None]
        if found.shape[2] < self._channels:
            return np.repeat(found[:, :, :1], self._channels, axis=2)
        return found[:, :, : self._channels]

    def picture(self, spans: ExampleSpans) -> Image.Image:
        """Returns a record's image as a Pillow image: mode L if all images are gray, else RGB.

        Raises:
          UsageError: if the layout stores no image.
          ValueError: if it cannot be decoded.
        """
        found = self._stored(spans)
        if isinstance(found, Image.Image):
            return self._in_colour(found)
        found = self.pixels(spans)
        return Image.fromarray(found[:, :, 0] if found.shape[2] == 1 else found)

    def _in_colour(self, image: Image.Image) -> Image.Image:
        mode = "L" if self._channels == 1 else "RGB"
        return image if image.mode == mode else image.convert(mode)

    def _stored(self, spans: ExampleSpans) -> Image.Image | Pixels:
        if self._encoded is None:
            raise UsageError(f"The records of layout {self._layout} have no image; choose another layout.")
        value = self._encoded.read(spans)
        if isinstance(value, np.ndarray):
            return _checked(value)
        if self._raw:
            return self._bare(value, spans)
        return decode_picture(value)

    def _bare(self, data: bytes, spans: ExampleSpans) -> Pixels:
        """Returns bare pixels in the shape that the record stores, or in the common shape of all records."""
        sides: list[Any] = list(self._shape)
        if FeatureRole.SHAPE in self._readers:
            sides = list(self._readers[FeatureRole.SHAPE].read(spans))
        for place, role in enumerate(_SIDES):
            if role in self._readers:
                sides[place] = self._readers[role].read(spans)
        if sides[0] is None or sides[1] is None:
            raise ValueError("the height and width of its bare pixels are unknown")
        if sides[2] is None:
            sides[2] = len(data) // max(sides[0] * sides[1], 1)
        height, width, channels = (int(side) for side in sides)
        if min(height, width, channels) < 1 or len(data) != height * width * channels:
            raise ValueError(f"{len(data)} bare bytes are not {height} x {width} x {channels} pixels")
        return np.frombuffer(data, np.uint8).reshape(height, width, channels).copy()


def _checked(array: npt.NDArray[Any]) -> Pixels:
    """Returns the pixels of a tensor."""
    if array.ndim != 3 or array.dtype == object:
        raise ValueError(f"its tensor is {array.dtype} of shape {array.shape}, which is not an image")
    return array if array.dtype == np.uint8 else np.clip(array, 0, 255).astype(np.uint8)


def decode_picture(data: bytes) -> Image.Image:
    """Decodes an image file's bytes to mode RGB or L.

    Raises:
      ValueError: if it cannot be decoded.
      UsageError: if it has more pixels than Pillow opens.
    """
    try:
        image: Image.Image = Image.open(io.BytesIO(data), formats=_FORMATS)
        if image.mode in _READY and not image.info.keys() & {"transparency", "icc_profile", "exif", "xmp"}:
            image.load()
            return image
    except Exception:  # the code below reports the error or the other format
        pass
    try:
        limit = limit_of_process()
        most = _MAX_PIXELS if limit is None else _TIMES_LIMIT * limit  # below this limit, Pillow only warns
        opened = open_image(data, "picture.jpg", most, NO_BOUNDS)
        return to_color(
            upright(load_checked(opened, _MAX_PIXELS, keep_damaged=True).image, opened.orientation),
            "keep",
            _WHITE,
        )
    except ImageFault as fault:
        if fault.reason is QuarantineReason.TOO_MANY_PIXELS:
            raise UsageError(
                "An image has more pixels than Pillow opens by default; set PIL.Image.MAX_IMAGE_PIXELS = "
                "None."
            ) from None
        raise ValueError(f"its image cannot be decoded: {fault.message}") from None
    except NotACandidate:
        raise ValueError("the format of its image cannot be decoded") from None
