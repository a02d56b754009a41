"""Parses records as `schemas/parsing.py` says, and decodes images and masks, with TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from shardwright.loader.selection import stored_types
from shardwright.schemas.dataset import Dataset, picture_shape, stored_formats
from shardwright.schemas.errors import UsageError
from shardwright.schemas.feature_roles import PICTURE_SIDES, PIXEL_MASKS, FeatureRole
from shardwright.schemas.labels import UNLABELLED
from shardwright.schemas.layouts import Encoding, FeatureSpec
from shardwright.schemas.parsing import Parsing, ParsingKind, parsing_of
from shardwright.schemas.sample_types import HIGHEST, UINT16_OF_UINT8, widest

Size = tuple[int, int]
Features = dict[str, tf.Tensor]
#: Number of images whose sizes are compared when a dataset is opened.
_FIRST = 16
_DIFFERENT = (
    "The images have different sizes, so they cannot be batched; set image_size=(height, width), or "
    "batch_size=None for single examples"
)
#: Offset of the byte with a PNG's bits per sample.
_PNG_DEPTH = 24


class Picture:
    """Decodes the images and the masks of a dataset.

    Attributes:
      needed: The features that decoding reads.
      feature: The feature with the image itself.
      dtype: The sample type of decoded images. It is the widest of the dataset's types: 8 bits become 16
        where some images have 16, and floats from 0 to 1 where some are floats.
    """

    def __init__(self, dataset: Dataset, size: Size | None) -> None:
        """Finds out how the images are stored.

        Args:
          dataset: The dataset.
          size: Height and width to resize images to; None to leave them as they are.

        Raises:
          UsageError: If the records have no image.
        """
        encoded = dataset.spec(FeatureRole.ENCODED)
        if encoded is None:
            raise UsageError(
                "The dataset's records contain no image; read them with tf.data.TFRecordDataset."
            )
        self.feature = encoded
        self._formats = stored_formats(dataset)
        self._types = stored_types(dataset)
        self.dtype = widest(self._types)
        height, width, channels = picture_shape(dataset.plan.settings)
        self._channels = channels or 3  # if the number of channels varies, all are read in color
        self._stored = (height, width, channels)
        #: Transparent pixels of kept originals become white.
        self._translucent = channels is None and dataset.plan.settings["image_format"] == "keep"
        self._damaged_too = dataset.plan.settings.get("damaged") == "keep"
        self._keeps_unlabelled = dataset.keeps_unlabelled
        self._is_tensor = encoded.holds_pixels
        #: Size to resize images to; None if that is never needed.
        self._target = size if self._stored[:2] != size else None
        self._size = size
        #: Size of all images, if `assume_one_size` found it.
        self._common: Size | None = None
        self._shape = dataset.spec(FeatureRole.SHAPE)
        self._sides = list(map(dataset.spec, PICTURE_SIDES))
        self._type_feature = dataset.spec(FeatureRole.DTYPE) if len(self._types) > 1 else None
        self.needed: tuple[FeatureSpec, ...] = (encoded,)
        if "raw" in self._formats and not self._is_tensor and None in self._stored:
            self.needed += tuple(spec for spec in (self._shape, *self._sides) if spec is not None)
        if self._type_feature is not None:
            self.needed += (self._type_feature,)

    @property
    def shape(self) -> tuple[int | None, int | None, int]:
        """Height, width and channels of a decoded image; None for those that vary."""
        height, width = self._size or self._common or self._stored[:2]
        return height, width, self._channels

    def assume_one_size(self, records: tf.data.Dataset) -> None:
        """Takes the size of the first images for the size of all, so that they can be batched.

        From then on, `decode` fails for an image of another size.

        Args:
          records: The serialized records.

        Raises:
          UsageError: If the first images have different sizes.
        """
        parse = parser(self.needed)
        sizes = records.take(_FIRST).map(lambda record: tf.shape(self.decode(parse(record)))[:2])
        distinct = {(int(height), int(width)) for height, width in sizes.as_numpy_iterator()}
        if len(distinct) != 1:
            raise UsageError(f"{_DIFFERENT}.")
        self._common = distinct.pop()

    def decode(self, features: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns a record's image with samples of the type `dtype`."""
        value = features[self.feature.name]
        if self._is_tensor:
            image = self._in_color(converted(value, self.dtype))
        elif self._type_feature is None:
            image = self._of_type(self._types[0], tf.reshape(value, []), features)
        else:
            dtype = tf.reshape(features[self._type_feature.name], [])
            value = tf.reshape(value, [])
            image = tf.case(
                [(dtype == name, partial(self._of_type, name, value, features)) for name in self._types[1:]],
                partial(self._of_type, self._types[0], value, features),
            )
        if self._target is not None:
            image = _resized(image, self._target)
        elif self._common is not None:
            same = tf.debugging.assert_equal(tf.shape(image)[:2], self._common, message=_DIFFERENT)
            with tf.control_dependencies([] if same is None else [same]):  # None if it ran at once
                image = tf.identity(image)
        image.set_shape(self.shape)
        return image

    def decode_mask(self, spec: FeatureSpec, value: tf.Tensor) -> tf.Tensor:
        """Decodes the value of a feature if it is a mask; returns other values unchanged.

        Masks become int32 of shape (height, width, 1), where height and width are those of the image if they
        are known. A missing mask, which is optional or of an image without a class, has no pixels.
        """
        if spec.fill not in PIXEL_MASKS:
            return value
        value = tf.reshape(value, [])
        deep = tf.strings.substr(tf.strings.join([value, " " * (_PNG_DEPTH + 1)]), _PNG_DEPTH, 1) == b"\x10"
        mask = tf.case(
            [
                (tf.strings.length(value) == 0, lambda: tf.zeros([0, 0, 1], tf.int32)),
                (deep, lambda: tf.cast(tf.io.decode_png(value, 1, tf.uint16), tf.int32)),
            ],
            lambda: tf.cast(tf.io.decode_png(value, 1), tf.int32),
        )
        if self._size is not None:
            resize = partial(tf.image.resize, mask, self._size, method="nearest")
            mask = tf.cond(tf.size(mask) > 0, resize, lambda: mask)
        may_be_absent = spec.optional or self._keeps_unlabelled
        mask.set_shape([None, None, 1] if may_be_absent else [*self.shape[:2], 1])
        return mask

    def _of_type(self, stored: str, value: tf.Tensor, features: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the image of a record whose samples are stored with a type."""
        if self._formats == ("raw",) or stored not in HIGHEST:  # floats are always bare
            pixels = tf.reshape(tf.io.decode_raw(value, stored), self._bare_shape(features))
            return converted(self._in_color(pixels), self.dtype)
        image = self._from_file(value) if stored == "uint8" else self._png(value, tf.uint16)
        return converted(image, self.dtype)

    def _from_file(self, value: tf.Tensor) -> tf.Tensor:
        """Decodes an image file in one of the dataset's formats."""
        decoders = {
            "jpeg": (tf.io.is_jpeg, self._jpeg),
            "png": (lambda data: tf.strings.substr(data, 1, 3) == b"PNG", self._png),
            "webp": (lambda data: tf.strings.substr(data, 8, 4) == b"WEBP", self._webp),
        }
        *others, (_, decode) = (decoders[name] for name in self._formats if name in decoders)
        if not others:
            return decode(value)
        return tf.case([(is_of(value), partial(of, value)) for is_of, of in others], partial(decode, value))

    def _png(self, value: tf.Tensor, dtype: tf.DType = tf.uint8) -> tf.Tensor:
        if not self._translucent:
            return tf.io.decode_png(value, self._channels, dtype)
        image = tf.io.decode_png(value, 4, dtype)
        if dtype == tf.uint16:
            return on_white(image)
        # For fewer than 8 bits, TensorFlow gives opaque pixels the alpha 1, 3 or 15.
        depth = tf.io.decode_raw(tf.strings.substr(value, _PNG_DEPTH, 1), tf.uint8)[0]
        opaque = tf.bitwise.left_shift(tf.constant(1, tf.uint8), depth) - 1
        is_opaque = tf.logical_and(depth < 8, tf.reduce_all(image[:, :, 3] == opaque))
        return tf.cond(is_opaque, lambda: image[:, :, :3], lambda: on_white(image))

    def _webp(self, value: tf.Tensor) -> tf.Tensor:
        if not self._translucent:
            return tf.io.decode_webp(value, self._channels)[0]
        image = tf.io.decode_webp(value)[0]
        return tf.cond(tf.shape(image)[2] == 4, lambda: on_white(image), lambda: image)

    def _jpeg(self, value: tf.Tensor) -> tf.Tensor:
        """Returns a JPEG's pixels, decoded at 1/8, 1/4 or 1/2 if that is still four times the target size.

        This halves the time for a large photo. Its pixels stay the same to 44 dB or more.
        """
        if self._target is None:
            return self._jpeg_at(value, 1)
        times = tf.reduce_min(tf.io.extract_jpeg_shape(value)[:2] // self._target)
        smaller = [(times >= 4 * ratio, partial(self._jpeg_at, value, ratio)) for ratio in (8, 4, 2)]
        return tf.case(smaller, partial(self._jpeg_at, value, 1))

    def _jpeg_at(self, value: tf.Tensor, ratio: int) -> tf.Tensor:
        """Returns a JPEG's pixels, decoded at 1/ratio.

        At 1, the pixels are those of `Records`, `parse.py` and Pillow, except for those that a truncated JPEG
        lacks. TensorFlow's default differs by up to 17 levels, and is not faster.
        """
        return tf.io.decode_jpeg(
            value,
            self._channels,
            ratio,
            try_recover_truncated=self._damaged_too,
            dct_method="INTEGER_ACCURATE",
        )

    def _bare_shape(self, features: Mapping[str, tf.Tensor]) -> list[int] | tf.Tensor:
        """Returns the stored shape of bare pixels."""
        if None not in self._stored:
            return list(self._stored)
        if self._shape is not None:
            return features[self._shape.name]
        sides: list[Any] = []
        for side, spec in zip(self._stored, self._sides):
            sides.append(features[spec.name] if side is None and spec is not None else side)
        return tf.stack([tf.reshape(tf.cast(side, tf.int64), []) for side in sides])

    def _in_color(self, image: tf.Tensor) -> tf.Tensor:
        """Returns pixels, which may be gray or have alpha, with the dataset's number of channels."""
        if self._stored[2] is not None:
            return image
        gray = tf.shape(image)[2] < 3
        return tf.cond(gray, lambda: tf.tile(image[:, :, :1], [1, 1, 3]), lambda: image[:, :, :3])


def converted(image: tf.Tensor, dtype: str) -> tf.Tensor:
    """Returns images with samples of another type, as `shardwright.loader.decode.converted` does."""
    stored = image.dtype.name
    if stored == dtype:
        return image
    if stored not in HIGHEST:
        return tf.cast(image, dtype)
    if dtype == "uint16":
        return tf.cast(image, tf.uint16) * UINT16_OF_UINT8
    if dtype == "uint8":
        return tf.cast((tf.cast(image, tf.int32) + UINT16_OF_UINT8 // 2) // UINT16_OF_UINT8, tf.uint8)
    if stored == "uint8":
        return tf.image.convert_image_dtype(image, dtype)
    return tf.cast(tf.cast(image, tf.float32) / HIGHEST[stored], dtype)


def on_white(image: tf.Tensor) -> tf.Tensor:
    """Returns the colors of pixels with alpha on a white background, rounded; 8 bits as in Pillow."""
    pixels = tf.cast(image, tf.int32 if image.dtype == tf.uint8 else tf.int64)
    white = image.dtype.max
    blended = pixels[:, :, :3] * pixels[:, :, 3:] + white * (white - pixels[:, :, 3:])
    return tf.cast((blended + white // 2) // white, image.dtype)


def _resized(image: tf.Tensor, size: Size) -> tf.Tensor:
    """Returns a resized image, with antialiasing; unchanged if it has the size already."""

    def resize() -> tf.Tensor:
        small = tf.image.resize(image, size, antialias=True)
        return small if image.dtype.is_floating else tf.saturate_cast(tf.round(small), image.dtype)

    return tf.cond(tf.reduce_all(tf.shape(image)[:2] == size), lambda: image, resize)


def parser(features: Sequence[FeatureSpec]) -> Callable[[tf.Tensor], Features]:
    """Returns a function from a serialized example to its features, with base64 and tensors decoded."""
    description = {spec.name: _described(parsing_of(spec)) for spec in features}

    def parse(record: tf.Tensor) -> Features:
        values = tf.io.parse_single_example(record, description)
        return {spec.name: _unpacked(spec, values[spec.name]) for spec in features}

    return parse


def _described(parsing: Parsing) -> tf.io.FixedLenFeature | tf.io.FixedLenSequenceFeature:
    dtype = tf.as_dtype(parsing.dtype)
    if parsing.kind is ParsingKind.SEQUENCE:
        return tf.io.FixedLenSequenceFeature(parsing.shape, dtype, allow_missing=True)
    return tf.io.FixedLenFeature(parsing.shape, dtype, parsing.default)


def _unpacked(spec: FeatureSpec, value: tf.Tensor) -> tf.Tensor:
    if spec.encoding is Encoding.BASE64:
        value = tf.io.decode_base64(value)
    if spec.encoding is Encoding.TENSOR:
        dtype = tf.string if spec.dtype == "object" else tf.as_dtype(spec.dtype)
        value = tf.io.parse_tensor(value, dtype)
        value.set_shape(spec.tensor_shape)
    if None in spec.shape[1:]:
        value = tf.reshape(value, [-1 if side is None else side for side in spec.shape])
    return value


def class_index(dataset: Dataset, spec: FeatureSpec) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a function from the value of the class feature to the index of the class in `dataset.labels`.

    The index counts from 0, even if the layout's ids do not; -1 means no class. Several classes
    become a vector with a 1.0 for each of them.
    """
    count = len(dataset.labels)
    several = spec.value_shape != ()
    if several and not count:
        raise UsageError("The dataset has no classes; load it with as_dict=True.")
    names = None
    if spec.fill is not FeatureRole.LABEL:
        names = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant([name.encode() for name in dataset.labels], tf.string),
                tf.range(count, dtype=tf.int64),
            ),
            UNLABELLED,
        )

    def index(value: tf.Tensor) -> tf.Tensor:
        if names is not None:
            places = names.lookup(value)
        else:
            ids = tf.cast(value, tf.int64)
            places = tf.where(
                ids < dataset.first_label, tf.constant(UNLABELLED, tf.int64), ids - dataset.first_label
            )
        if not several:
            return tf.reshape(places, [])
        return tf.reduce_max(tf.one_hot(tf.concat([[UNLABELLED], places], 0), count), 0)

    return index
