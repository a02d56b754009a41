"""Finds the image in a record: an image file, or raw pixels in one of the common forms."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterable, Iterator
from math import prod
from typing import NamedTuple

import numpy as np

from shardwright.schemas.byte_range import BASE64, BASE64_PIXELS, PIXELS, STORED, VARINT_PIXELS, ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.example import FeatureType, Span
from shardwright.schemas.image_formats import SUPPORTED_KINDS
from shardwright.schemas.layouts import FeatureRole
from shardwright.schemas.sample_types import HIGHEST
from shardwright.schemas.tensor_proto import tensor_sides
from shardwright.schemas.units import counted, parse_pixel_shape
from shardwright.schemas.wire_format import fields_in, read_varint
from shardwright.transforms.images.byte_ranges import bare_pixels
from shardwright.transforms.images.pixel_order import are_planar
from shardwright.transforms.images.signatures import HEAD_BYTES, kind_of
from shardwright.transforms.sources.tfrecord.layouts import FeatureNames
from shardwright.transforms.sources.tfrecord.own import OwnRecords, parse_record
from shardwright.transforms.sources.tfrecord.record import SourceRecord

#: Largest number of features with unknown names to read.
_MAX_OTHERS = 64
#: Allowed numbers of channels of raw pixels.
_CHANNELS = (1, 3, 4)
_MAX_SIDE = 1 << 20
_BASE64 = re.compile(rb"[A-Za-z0-9_+/-]{1,}={0,2}\Z")
#: TensorFlow's type numbers (tensorflow/core/framework/types.proto) and NumPy's names of the types.
_TENSOR_TYPES = {
    1: "<f4", 2: "<f8", 3: "<i4", 4: "|u1", 5: "<i2", 6: "|i1", 9: "<i8", 10: "|b1", 17: "<u2",
    19: "<f2", 22: "<u4", 23: "<u8",
}  # fmt: skip
_TENSOR_OF_STRINGS = 7


class FoundImage(NamedTuple):
    """Position and encoding of the image in a record.

    Attributes:
      span: Byte range of the image in the record.
      method: Method of `ByteRange`: stored, base64, or a method for raw pixels.
      shape: Height, width and channels of raw pixels.
      planar: Whether raw pixels are stored channel by channel; None if the record does not tell.
      dtype: NumPy name of the pixel type.
      size: Number of bytes in an image file that is stored as base64; else -1.
    """

    span: Span
    method: str = STORED
    shape: tuple[int, ...] = ()
    planar: bool | None = False
    dtype: str = "|u1"
    size: int = -1


class NoImage(ValueError):
    """Raised if a record has no readable image.

    Attributes:
      reason: Quarantine reason.
    """

    def __init__(self, message: str, reason: QuarantineReason) -> None:
        super().__init__(message)
        self.reason = reason


def image_of(
    record: SourceRecord, names: FeatureNames, own: OwnRecords | None, settings: ConvertSettings
) -> FoundImage:
    """Returns the position of the image in a record.

    Raises:
      NoImage: If the record has no image.
      ValueError: If the record is malformed.
    """
    shape = parse_pixel_shape(settings.pixel_shape) if settings.pixel_shape else None
    return own_image(record, own, shape) if own else find_image(record, names, shape)


def find_image(record: SourceRecord, names: FeatureNames, pixel_shape: tuple[int, ...] | None) -> FoundImage:
    """Returns the position of the image in a record.

    Image files take precedence over raw pixels, and features with known names over others.

    Args:
      record: Record to search.
      names: Roles of its features.
      pixel_shape: Shape of raw pixels if the record has none.

    Raises:
      NoImage: If the record has no image.
      ValueError: If the record is malformed.
    """
    values: list[tuple[str, Span]] = []
    for name in names.images:
        span = record.only_bytes(name)
        if span and _is_file(record.data, span):
            if _is_rather_pixels(record, names, span, pixel_shape):
                return _pixels(record, names, name, span, pixel_shape)
            return FoundImage(span)
        if span:
            values.append((name, span))
    for name in names.others[:_MAX_OTHERS]:
        span = record.only_bytes(name)
        if span and _is_file(record.data, span):
            return FoundImage(span)
    for name in names.images:
        if record.kind_of(name) in (FeatureType.FLOAT, FeatureType.INT64):
            return _numbers(record, names, name, pixel_shape)
    if not values:
        raise _no_image(record, names)
    name, span = values[0]
    if span.begin == span.end:
        raise NoImage(f"its feature {name!r} is empty", QuarantineReason.EMPTY_FILE)
    found = _serialized_tensor(record.data, span) or _base64_file(record.data, span)
    if found:
        return found
    kind = kind_of(record.data[span.begin : min(span.end, span.begin + HEAD_BYTES)])
    if kind and not _is_rather_pixels(record, names, span, pixel_shape):
        return FoundImage(span)  # the decoder reports that the kind is not supported
    return _pixels(record, names, name, span, pixel_shape)


def own_image(record: SourceRecord, own: OwnRecords, pixel_shape: tuple[int, ...] | None) -> FoundImage:
    """Returns the position of the image in a record of Shardwright, as its dataset describes it.

    Args:
      record: Record to search.
      own: Description of the records from their dataset.
      pixel_shape: Shape of raw pixels if neither the record nor the dataset has one.

    Raises:
      NoImage: If the record has no image.
      ValueError: If the record is malformed.
    """
    (name,) = own.feature_names.images
    spans = record.bytes_of(name)
    if not spans or len(spans) != 1:
        raise NoImage(
            f"its feature {name!r} holds {counted(len(spans or ()), 'image')}", QuarantineReason.BAD_ROW
        )
    span = spans[0]
    if span.begin == span.end:
        raise NoImage(f"its feature {name!r} is empty", QuarantineReason.EMPTY_FILE)
    method = record.method_of(name)
    dtype = _own_type(record, own)
    if not own.raw and dtype.name in HIGHEST:  # floats are always raw pixels
        return FoundImage(span, method, size=record.size_of(name, span))
    if name in record.encoded and method == STORED:
        tensor = _serialized_tensor(record.data, span)
        if tensor is None:
            raise NoImage(f"its feature {name!r} is not a tensor of pixels", QuarantineReason.CORRUPT)
        return tensor
    size = record.size_of(name, span)
    sides = _own_shape(record, own.feature_names)[:3]
    height, width, channels = (
        side or promised or 0 for side, promised in zip(sides, own.picture, strict=True)
    )
    each = dtype.itemsize
    if height and width and not channels:
        channels = size // (height * width * each)
    if not (height and width and channels):
        height, width, channels = _shape(record, own.feature_names, size // each, pixel_shape)[0]
    if height * width * channels * each != size:
        what = "pixels" if each == 1 else f"pixels of {dtype.name}"
        raise NoImage(
            f"the {size:,} bytes of its feature {name!r} are not {height} x {width} x {channels} {what}",
            QuarantineReason.CORRUPT,
        )
    pixels = BASE64_PIXELS if method == BASE64 else PIXELS
    return FoundImage(span, pixels, (height, width, channels), dtype=dtype.newbyteorder("<").str)


def _own_type(record: SourceRecord, own: OwnRecords) -> np.dtype:
    """Returns the type of the samples of a record's image.

    Raises:
      NoImage: If the record states a type that its dataset does not have.
    """
    if len(own.dtypes) == 1:
        return np.dtype(own.dtypes[0])
    name = own.feature_names.name(FeatureRole.DTYPE)
    values = record.feature(name).values if name else ()
    dtype = values[0].decode("utf-8", "replace") if len(values) == 1 and isinstance(values[0], bytes) else ""
    if dtype not in own.dtypes:
        raise NoImage(
            f"its feature {name!r} is {dtype!r}, not one of {', '.join(own.dtypes)}",
            QuarantineReason.CORRUPT,
        )
    return np.dtype(dtype)


def pixel_values(record: SourceRecord, image: FoundImage) -> np.ndarray:
    """Returns the values of raw pixels as a flat array.

    Raises:
      ImageFault: If the pixels are damaged.
      ValueError: If their number does not match their shape.
    """
    data = record.data[image.span.begin : image.span.end]
    place = ByteRange("", 0, len(data), image.method, dtype=image.dtype)
    return np.frombuffer(bare_pixels(data, place), image.dtype).reshape(prod(image.shape))


def pixels_are_planar(records: Iterable[bytes], settings: ConvertSettings) -> bool:
    """Returns whether raw pixels are stored channel by channel, judged by some records."""

    def pictures() -> Iterator[tuple[np.ndarray, tuple[int, ...]]]:
        for data in records:
            # Faults are reported when the record is listed or converted.
            with contextlib.suppress(ValueError, ImageFault):
                record, names = parse_record(data, None)
                image = image_of(record, names, None, settings)
                if image.planar is None:
                    yield pixel_values(record, image), image.shape

    return are_planar(pictures())


def _base64_file(data: bytes, span: Span) -> FoundImage | None:
    """Returns an image file that is stored as base64; None if the bytes are something else."""
    head = data[span.begin : min(span.end, span.begin + HEAD_BYTES // 3 * 4)]
    size = span.end - span.begin
    if size % 4 or not _BASE64.match(head):
        return None
    url_safe = head.replace(b"+", b"-").replace(b"/", b"_")
    if kind_of(base64.urlsafe_b64decode(url_safe)) not in SUPPORTED_KINDS:
        return None
    padding = data.count(b"=", span.end - 2, span.end)
    return FoundImage(span, BASE64, size=size // 4 * 3 - padding)


def _is_file(data: bytes, span: Span) -> bool:
    head = data[span.begin : min(span.end, span.begin + HEAD_BYTES)]
    # Raw pixels may begin like a JPEG XL without boxes, whose signature has only two bytes.
    return kind_of(head) in SUPPORTED_KINDS and not head.startswith(b"\xff\x0a")


def _is_rather_pixels(
    record: SourceRecord, names: FeatureNames, span: Span, pixel_shape: tuple[int, ...] | None
) -> bool:
    """Returns whether bytes that begin like an image file are raw pixels, judged by their number.

    Dark pixels may begin with the few bytes of a signature by chance. The eight bytes of PNG, or the end
    marker of JPEG, are not a coincidence.
    """
    data = record.data
    if data.startswith(b"\x89PNG\r\n\x1a\n", span.begin) or data.endswith(b"\xff\xd9", span.begin, span.end):
        return False
    size = span.end - span.begin
    height, width, channels, _ = _own_shape(record, names)
    if not (height and width):
        return pixel_shape is not None and prod(pixel_shape) == size
    return size in [height * width * number for number in ((channels,) if channels else _CHANNELS)]


def _no_image(record: SourceRecord, names: FeatureNames) -> NoImage:
    features = ", ".join(sorted(record.features)[:12]) or "none"
    if names.images and record.bytes_of(names.images[0]):
        return NoImage(
            f"its feature {names.images[0]!r} has several values instead of one image",
            QuarantineReason.BAD_ROW,
        )
    return NoImage(f"it holds no image, which convert needs (features: {features})", QuarantineReason.BAD_ROW)


def _side(record: SourceRecord, name: str) -> int:
    """Returns the only number of a feature; 0 if it has none, or one that cannot be an image side."""
    values = record.feature(name).values
    number = values[0] if len(values) == 1 and isinstance(values[0], int) else 0
    return number if 0 < number <= _MAX_SIDE else 0


def _own_shape(record: SourceRecord, names: FeatureNames) -> tuple[int, int, int, bool | None]:
    """Returns height, width, channels and whether pixels are planar; 0 and None for unknown values."""
    if shape := names.name(FeatureRole.SHAPE):
        feature = record.feature(shape)
        sides = [v for v in feature.values if isinstance(v, int)]
        if feature.type is FeatureType.BYTES and len(feature.values) == 1:
            kinds = {8: "<i4", 12: "<i4", 16: "<i8", 24: "<i8"}
            blob = feature.values[0]
            sides = np.frombuffer(blob, kinds[len(blob)]).tolist() if len(blob) in kinds else []
        if len(sides) in (2, 3) and all(0 < side <= _MAX_SIDE for side in sides):
            return _oriented(sides)
    height, width, channels = (
        _side(record, names.name(role))
        for role in (FeatureRole.HEIGHT, FeatureRole.WIDTH, FeatureRole.CHANNELS)
    )
    return height, width, channels, None


def _oriented(sides: list[int]) -> tuple[int, int, int, bool]:
    if len(sides) == 2:
        return sides[0], sides[1], 1, False
    if sides[0] in _CHANNELS and sides[2] not in _CHANNELS:
        return sides[1], sides[2], sides[0], True
    return sides[0], sides[1], sides[2], False


def _shape(
    record: SourceRecord, names: FeatureNames, count: int, pixel_shape: tuple[int, ...] | None
) -> tuple[tuple[int, int, int], bool | None]:
    """Returns the shape of raw pixels and whether they are planar; None if the record does not tell.

    Args:
      record: Record with the pixels.
      names: Roles of its features.
      count: Number of values, from which the number of channels follows if only height and width are known.
      pixel_shape: Shape to use if the record has none.

    Raises:
      NoImage: If the shape is unknown.
    """
    height, width, channels, planar = _own_shape(record, names)
    if height and width and not channels:
        channels = next((n for n in _CHANNELS if height * width * n == count), 0)
    if not (height and width and channels):
        if pixel_shape is None:
            raise NoImage(
                f"its {count:,} values are raw pixels of unknown shape; set "
                "--pixel_shape, such as 28x28 or 32x32x3",
                QuarantineReason.BAD_ROW,
            )
        height, width, channels = pixel_shape
        planar = None
    if channels not in _CHANNELS:
        raise NoImage(f"its pixels have {channels} channels, not 1, 3 or 4", QuarantineReason.BAD_ROW)
    return (height, width, channels), planar


def _pixels(
    record: SourceRecord, names: FeatureNames, name: str, span: Span, pixel_shape: tuple[int, ...] | None
) -> FoundImage:
    """Returns bytes as raw pixels.

    Raises:
      NoImage: If the bytes are not pixels.
    """
    size = span.end - span.begin
    shape, planar = _shape(record, names, size, pixel_shape)
    count = prod(shape)
    if size == count:
        return FoundImage(span, PIXELS, shape, planar)
    if size in (-(-count // 3) * 4, -(-count * 4 // 3)) and _BASE64.match(
        record.data[span.begin : min(span.begin + 4096, span.end)]
    ):
        return FoundImage(span, BASE64_PIXELS, shape, planar)
    width = size // count if size % count == 0 else 0
    dtype = _wide_type(record.data, span, width)
    if not dtype:
        raise NoImage(
            f"the {size:,} bytes of its feature {name!r} are neither an image file nor "
            f"{shape[0]} x {shape[1]} x {shape[2]} pixels"
            + (f" of {width} bytes, whole from 0 to 255 or of 0 to 1" if width in (4, 8) else ""),
            QuarantineReason.CORRUPT,
        )
    return FoundImage(span, PIXELS, shape, planar, dtype)


def _wide_type(data: bytes, span: Span, width: int) -> str:
    """Returns the type of pixels with several bytes each; empty if it cannot be determined.

    Integers from 0 to 255 would be extremely small as floating-point numbers, and floating-point numbers
    from 0 to 1 would be huge as integers.
    """
    if width == 2:
        return "<u2"
    if width not in (4, 8):
        return ""
    count = (span.end - span.begin) // width
    whole = np.frombuffer(data, f"<i{width}", count, span.begin)
    if whole.min() >= 0 and whole.max() <= 0xFF:
        return f"<i{width}"
    real = np.frombuffer(data, f"<f{width}", count, span.begin)
    with np.errstate(invalid="ignore"):
        return f"<f{width}" if real.min() >= 0 and real.max() <= 1 else ""


def _numbers(
    record: SourceRecord, names: FeatureNames, name: str, pixel_shape: tuple[int, ...] | None
) -> FoundImage:
    """Returns a list of numbers as raw pixels.

    Raises:
      NoImage: If the numbers are not pixels.
    """
    span = record.packed(name)
    if span is None:
        raise NoImage(f"its feature {name!r} has no values in one piece", QuarantineReason.BAD_ROW)
    floats = record.kind_of(name) is FeatureType.FLOAT
    if floats:
        count = (span.end - span.begin) // 4
    else:  # every number ends with a byte whose highest bit is not set
        packed = np.frombuffer(record.data, np.uint8, span.end - span.begin, span.begin)
        count = int(np.count_nonzero(packed < 0x80))
    shape, planar = _shape(record, names, count, pixel_shape)
    if count != prod(shape):
        raise NoImage(
            f"the {count:,} numbers of its feature {name!r} are not {shape[0]} x {shape[1]} x "
            f"{shape[2]} pixels",
            QuarantineReason.CORRUPT,
        )
    return FoundImage(span, PIXELS if floats else VARINT_PIXELS, shape, planar, "<f4" if floats else "<i4")


def _serialized_tensor(data: bytes, span: Span) -> FoundImage | None:
    """Returns the image in a TensorProto, as `tf.io.serialize_tensor` writes it; None if there is none."""
    if data[span.begin] != 0x08:  # its first field, the type
        return None
    kind, sides, content, strings = 0, list[int](), None, list[Span]()
    try:
        for field, wire, begin, end in fields_in(data, *span):
            if (field, wire) == (1, 0):
                kind = read_varint(data, begin)[0]
            elif (field, wire) == (2, 2):
                sides += tensor_sides(data, begin, end)
            elif (field, wire) == (4, 2):
                content = Span(begin, end)
            elif (field, wire) == (8, 2):
                strings.append(Span(begin, end))
    except ValueError:
        return None
    if kind == _TENSOR_OF_STRINGS and len(strings) == 1 and _is_file(data, strings[0]):
        return FoundImage(strings[0])
    dtype = _TENSOR_TYPES.get(kind)
    while len(sides) > 3 and sides[0] == 1:  # a batch of one
        sides = sides[1:]
    if content is None or dtype is None or len(sides) not in (2, 3) or min(sides) < 1:
        return None
    height, width, channels, planar = _oriented(sides)
    if height * width * channels * np.dtype(dtype).itemsize != content.end - content.begin:
        return None
    if channels not in _CHANNELS:
        raise NoImage(f"its pixels have {channels} channels, not 1, 3 or 4", QuarantineReason.BAD_ROW)
    return FoundImage(content, PIXELS, (height, width, channels), planar, dtype)
