"""Reads the features of records as Python and NumPy objects, and decodes their images, without TensorFlow.

Images are decoded with Pillow, or with imagecodecs if Pillow loses bits.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from shardwright.core.images import deep_pixels
from shardwright.core.images.color import to_color
from shardwright.core.images.decode import load_checked, load_samples, open_image, upright
from shardwright.core.images.faults import limit_of_process
from shardwright.core.records.encodings import plain_feature
from shardwright.loader.selection import stored_types
from shardwright.schemas.bounds import NO_BOUNDS
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.dataset import Dataset, picture_shape, stored_format
from shardwright.schemas.errors import ImageFault, NotACandidate, UsageError, words_of
from shardwright.schemas.example import Feature, FeatureType, ParsedExample, parse_tensor
from shardwright.schemas.feature_roles import PICTURE_SIDES
from shardwright.schemas.layouts import Encoding, FeatureRole, FeatureSpec
from shardwright.schemas.missing_packages import needed_by
from shardwright.schemas.parsing import parsing_of
from shardwright.schemas.sample_types import HIGHEST, SAMPLE_TYPES, UINT16_OF_UINT8, widest
from shardwright.schemas.units import counted

Pixels = npt.NDArray[Any]
#: A single value of a record, or an array of several.
Value = Any

#: Pillow modes that need no conversion.
_READY = frozenset(("RGB", "L"))
_FORMATS = ("JPEG", "PNG", "WEBP")
#: High, because the writer of the dataset has already applied the user's limit.
_MAX_PIXELS = 2**31 - 1
#: Pillow refuses images with more pixels than its limit times this number.
_TIMES_LIMIT = 2
_WHITE = (255, 255, 255)


class FeatureReader:
    """Reads one feature of records.

    Args:
      spec: The feature.
    """

    def __init__(self, spec: FeatureSpec) -> None:
        self.spec = spec
        parsing = parsing_of(spec)
        self._default = parsing.default
        self._single = spec.shape == ()
        self._shape = tuple(-1 if side is None else side for side in spec.shape)
        self._dtype = np.dtype(object if spec.type is FeatureType.BYTES else parsing.dtype)

    def read(self, example: ParsedExample) -> Value:
        """Returns the feature's value: bytes, int or float, or an array of its shape.

        Base64 is decoded, and serialized tensors become arrays. A missing optional feature is an empty list,
        or -1 or b"" for a single value.

        Raises:
          ValueError: If the record's value does not match the layout.
        """
        spec = self.spec
        feature = example.feature(spec.name)
        values = self._checked(feature)
        if spec.encoding is Encoding.TENSOR:
            return read_tensor(values[0])
        if spec.encoding is Encoding.BASE64:
            values = plain_feature(spec, feature).values or values  # a missing feature has a default
        if self._single:
            return values[0]
        array = np.empty(len(values), self._dtype)
        array[:] = values
        return array.reshape(self._shape)

    def _checked(self, feature: Feature) -> Sequence[Any]:
        """Returns values after checking their type and number."""
        spec, values = self.spec, feature.values
        if feature.type is None:
            if -1 in self._shape:
                return ()
            if self._default is None:
                raise ValueError(f"feature {spec.name!r} is missing")
            return self._default if isinstance(self._default, tuple) else (self._default,)
        if feature.type is not spec.type:
            raise ValueError(f"feature {spec.name!r} is {feature.type.value}, not {spec.type.value}")
        size = prod(side for side in self._shape if side != -1)
        fits = len(values) % size == 0 if -1 in self._shape else len(values) == size
        if not fits:
            raise ValueError(f"feature {spec.name!r} has {counted(len(values), 'value')}, not {size}")
        return values


def read_tensor(data: bytes) -> Value:
    """Returns the array in a serialized `TensorProto`; without dimensions, its only number or its bytes.

    Raises:
      ValueError: If it is not a `TensorProto`, or has a type that layouts do not support.
    """
    tensor = parse_tensor(data)
    if isinstance(tensor.content, list):
        if not tensor.shape:
            return tensor.content[0]
        array = np.empty(len(tensor.content), object)
        array[:] = tensor.content
        return array.reshape(tensor.shape)
    dtype = np.dtype(tensor.dtype).newbyteorder("<")
    array = np.frombuffer(tensor.content, dtype).astype(tensor.dtype).reshape(tensor.shape)
    return array[()]  # one value is a number, not an array without dimensions


class PictureReader:
    """Decodes the images of a dataset's records in any layout.

    Args:
      dataset: The content of its `dataset.json`.
      readers: Readers of its features.
      dtype: Type to convert samples to; None for the type of each record.
    """

    def __init__(
        self, dataset: Dataset, readers: Mapping[FeatureRole, FeatureReader], dtype: str | None = None
    ) -> None:
        self._layout = dataset.layout
        self._readers = readers
        self._encoded = readers.get(FeatureRole.ENCODED)
        self._types = stored_types(dataset)
        self._dtype = dtype
        self._raw = stored_format(dataset) == "raw"
        self._shape = picture_shape(dataset.plan.settings)
        #: If the number of channels varies, all images are returned in color.
        self._channels = self._shape[2] or 3

    def pixels(self, example: ParsedExample) -> Pixels:
        """Returns a record's image: height x width x channels.

        There are 3 channels unless the dataset's settings say another number.

        Raises:
          UsageError: If the layout stores no image.
          ValueError: If it cannot be decoded.
        """
        stored = self._stored(example)
        if isinstance(stored, Image.Image):
            pixels = np.array(self._in_color(stored))  # a copy, because Pillow's own buffer is read-only
            pixels = pixels if pixels.ndim == 3 else pixels[:, :, None]
        else:
            pixels = self._with_channels(stored)
        if self._dtype is None:
            return pixels
        return converted(converted(pixels, widest(self._types)), self._dtype)  # in two steps, as `load` does

    def picture(self, example: ParsedExample) -> Image.Image:
        """Returns a record's image as a Pillow image with 8 bits: mode L if it has 1 or 2 channels, else RGB.

        Raises:
          UsageError: If the layout stores no image.
          ValueError: If it cannot be decoded.
        """
        stored = self._stored(example)
        if isinstance(stored, Image.Image):
            return self._in_color(stored)
        return deep_pixels.displayed(self._with_channels(stored))

    def _with_channels(self, pixels: Pixels) -> Pixels:
        """Returns pixels, which may be gray or have alpha, with the dataset's number of channels."""
        if pixels.shape[2] < self._channels:
            return np.repeat(pixels[:, :, :1], self._channels, axis=2)
        return pixels[:, :, : self._channels]

    def _in_color(self, image: Image.Image) -> Image.Image:
        mode = "L" if self._channels == 1 else "RGB"
        return image if image.mode == mode else image.convert(mode)

    def _stored(self, example: ParsedExample) -> Image.Image | Pixels:
        if self._encoded is None:
            raise UsageError(f"The records of layout {self._layout} have no image; choose another layout.")
        value = self._encoded.read(example)
        if isinstance(value, np.ndarray):
            return _checked(value)
        dtype = self._type_of(example)
        if self._raw or dtype not in HIGHEST:  # floats are always bare
            return self._bare(value, example, np.dtype(dtype))
        return decode_picture(value) if dtype == "uint8" else decode_deep_png(value)

    def _type_of(self, example: ParsedExample) -> str:
        """Returns the sample type of a record."""
        if len(self._types) == 1:
            return self._types[0]
        dtype = self._readers[FeatureRole.DTYPE].read(example).decode("utf-8", "replace")
        if dtype not in self._types:
            raise ValueError(f"its sample type {dtype!r} is not one of the dataset: {', '.join(self._types)}")
        return str(dtype)

    def _bare(self, data: bytes, example: ParsedExample, dtype: np.dtype[Any]) -> Pixels:
        """Returns bare pixels in the shape that the record stores, or in the common shape of all records."""
        sides: list[Any] = list(self._shape)
        if FeatureRole.SHAPE in self._readers:
            sides = list(self._readers[FeatureRole.SHAPE].read(example))
        for place, role in enumerate(PICTURE_SIDES):
            if role in self._readers:
                sides[place] = self._readers[role].read(example)
        if sides[0] is None or sides[1] is None:
            raise ValueError("the height and width of its bare pixels are unknown")
        if sides[2] is None:
            sides[2] = len(data) // max(sides[0] * sides[1] * dtype.itemsize, 1)
        height, width, channels = (int(side) for side in sides)
        if min(height, width, channels) < 1 or len(data) != height * width * channels * dtype.itemsize:
            what = "pixels" if dtype == np.uint8 else f"pixels of {dtype.name}"
            raise ValueError(f"{len(data)} bare bytes are not {height} x {width} x {channels} {what}")
        stored = np.frombuffer(data, dtype.newbyteorder("<"))
        return stored.reshape(height, width, channels).astype(dtype)  # a copy that can be changed


def _checked(array: Pixels) -> Pixels:
    """Returns the pixels of a tensor."""
    if array.ndim != 3 or array.dtype == object:
        raise ValueError(f"its tensor is {array.dtype} of shape {array.shape}, which is not an image")
    return array if array.dtype.name in SAMPLE_TYPES else np.clip(array, 0, 255).astype(np.uint8)


def decode_deep_png(data: bytes) -> Pixels:
    """Decodes a PNG with 16 bits a sample: height x width x channels, uint16, 1 or 3 channels.

    Transparent pixels become white.

    Raises:
      ValueError: If it cannot be decoded, or is something else.
      MissingPackage: If it has colors or alpha, and imagecodecs is not installed.
    """
    try:
        image = Image.open(io.BytesIO(data), formats=("PNG",))
        if image.mode == "I;16" and "transparency" not in image.info:
            return np.array(image)[:, :, None]
    except Exception as error:
        raise ValueError(f"its image cannot be decoded as a PNG: {words_of(error)}") from None
    with needed_by("A PNG with 16 bits a sample in color"):  # Pillow would decode 8 of them
        import imagecodecs  # noqa: F401
    try:
        opened = open_image(data, "picture.png", _MAX_PIXELS, NO_BOUNDS, keep_depth=True)
        if opened.deep is None:
            raise ValueError("its image is a PNG with 8 bits a sample, not with 16")
        samples = load_samples(opened, _MAX_PIXELS)
    except ImageFault as fault:
        raise ValueError(f"its image cannot be decoded as a PNG: {fault.message}") from None
    return deep_pixels.to_color(samples, opened.deep, b"", "keep", _WHITE)


def decode_picture(data: bytes) -> Image.Image:
    """Decodes an image file's bytes to mode RGB or L.

    Raises:
      ValueError: If it cannot be decoded.
      UsageError: If it has more pixels than Pillow opens.
      MissingPackage: If its format needs imagecodecs, which is not installed.
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
        with needed_by(f"An image of the format {opened.kind}"):
            loaded = load_checked(opened, _MAX_PIXELS, keep_damaged=True)
        return to_color(upright(loaded.image, opened.orientation), "keep", _WHITE)
    except ImageFault as fault:
        if fault.reason is QuarantineReason.TOO_MANY_PIXELS:
            raise UsageError(
                "An image has more pixels than Pillow opens by default; set PIL.Image.MAX_IMAGE_PIXELS = "
                "None."
            ) from None
        raise ValueError(f"its image cannot be decoded: {fault.message}") from None
    except NotACandidate:
        raise ValueError("the format of its image cannot be decoded") from None


def converted(pixels: Pixels, dtype: str) -> Pixels:
    """Returns pixels with samples of another type; `tf_images` does the same with TensorFlow.

    Integers are scaled: 255 becomes 65535, or 1.0 for floats. To uint8, uint16 is rounded. Floats stay as
    they are.

    Args:
      pixels: Height x width x channels; uint8, uint16 or float32.
      dtype: uint8, uint16, float32 or float16; an integer type only for pixels of an integer type.
    """
    stored = pixels.dtype.name
    if stored == dtype:
        return pixels
    if stored not in HIGHEST:
        return pixels.astype(dtype)
    if dtype == "uint16":
        return pixels.astype(np.uint16) * np.uint16(UINT16_OF_UINT8)
    if dtype == "uint8":
        return ((pixels.astype(np.uint32) + UINT16_OF_UINT8 // 2) // UINT16_OF_UINT8).astype(np.uint8)
    if stored == "uint8":  # a product, as in TensorFlow
        product: Pixels = pixels.astype(dtype) * np.dtype(dtype).type(1 / HIGHEST[stored])
        return product
    shares: Pixels = pixels.astype(np.float32) / np.float32(HIGHEST[stored])
    return shares.astype(dtype, copy=False)
