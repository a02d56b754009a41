"""Finds the image in a record: an image file, or raw pixels in one of the common forms."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from math import prod

import numpy as np

from shardwright.core.images.byte_ranges import are_planar, bare_pixels
from shardwright.core.images.signatures import HEAD_BYTES, kind_of
from shardwright.core.records.record import KnownRecords, SourceRecord
from shardwright.schemas.byte_range import BASE64, BASE64_PIXELS, PIXELS, STORED, VARINT_PIXELS, ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.example import FeatureType, parse_tensor
from shardwright.schemas.feature_roles import PICTURE_SIDES
from shardwright.schemas.image_formats import SUPPORTED_KINDS
from shardwright.schemas.layouts import FeatureRole
from shardwright.schemas.sample_types import HIGHEST
from shardwright.schemas.units import parse_pixel_shape

#: Largest number of features with unknown names to read.
_MAX_OTHERS = 64
#: Allowed numbers of channels of raw pixels.
_CHANNELS = (1, 3, 4)
_MAX_SIDE = 1 << 20
_BASE64 = re.compile(rb"[A-Za-z0-9_+/-]{1,}={0,2}\Z")


class NoImage(ValueError):
    """Raised if a record has no readable image.

    Attributes:
      reason: Quarantine reason.
    """

    def __init__(self, message: str, reason: QuarantineReason = QuarantineReason.BAD_ROW) -> None:
        super().__init__(message)
        self.reason = reason


def image_of(record: SourceRecord, known: KnownRecords, settings: ConvertSettings) -> ByteRange:
    """Returns where the image is in a record, and how it is stored (`find_image`).

    Raises:
      NoImage: If the record has no image.
      ValueError: If the record is malformed.
    """
    shape = parse_pixel_shape(settings.pixel_shape) if settings.pixel_shape else None
    return own_image(record, known, shape) if known.feature_names else find_image(record, shape)


def find_image(record: SourceRecord, pixel_shape: tuple[int, ...] | None) -> ByteRange:
    """Returns where the image is in a record, and how it is stored.

    Image files take precedence over raw pixels, and features with known names over others. If the record does
    not tell whether raw pixels are stored channel by channel, `planar` is None.

    Args:
      record: Record to search.
      pixel_shape: Shape of raw pixels if the record has none.

    Raises:
      NoImage: If the record has no image.
      ValueError: If the record is malformed.
    """
    names = record.names
    parts = [(name, part) for name in names.images if (part := record.only_part(name))]
    for name, part in parts:
        if _is_file(record, part):
            is_pixels = _is_rather_pixels(record, part, pixel_shape)
            return _pixels(record, name, part, pixel_shape) if is_pixels else part
    for other in map(record.only_part, names.others[:_MAX_OTHERS]):
        if other and _is_file(record, other):
            return other
    for name in names.images:
        if record.list_in(name)[0] in (FeatureType.FLOAT, FeatureType.INT64):
            return _numbers(record, name, pixel_shape)
    if not parts:
        features = ", ".join(sorted(record.features)[:12]) or "none"
        if names.images and record.parts_of(names.images[0]):
            raise NoImage(f"its feature {names.images[0]!r} has several values instead of one image")
        raise NoImage(f"it holds no image, which convert needs (features: {features})")
    name, part = parts[0]
    _check_not_empty(name, part)
    image = _serialized_tensor(record, part) or _base64_file(record, part)
    if image:
        return image
    if kind_of(_head(record, part)) and not _is_rather_pixels(record, part, pixel_shape):
        return part  # the decoder reports that the kind is not supported
    return _pixels(record, name, part, pixel_shape)


def _head(record: SourceRecord, part: ByteRange) -> bytes:
    return record.stored(part._replace(length=min(part.length, HEAD_BYTES)))


def _check_not_empty(name: str, part: ByteRange) -> None:
    if not part.length:
        raise NoImage(f"its feature {name!r} is empty", QuarantineReason.EMPTY_FILE)


def own_image(record: SourceRecord, own: KnownRecords, pixel_shape: tuple[int, ...] | None) -> ByteRange:
    """Returns where the image is in a record of Shardwright, as its dataset describes it.

    Args:
      record: Record to search.
      own: Description of the records from their dataset.
      pixel_shape: Shape of raw pixels if neither the record nor the dataset has one.

    Raises:
      NoImage: If the record has no image, or states a type that its dataset does not have.
      ValueError: If the record is malformed.
    """
    name = record.name(FeatureRole.ENCODED)
    part = record.only_part(name)
    if part is None:
        raise NoImage(f"its feature {name!r} does not hold one image")
    _check_not_empty(name, part)
    stated = record.text(FeatureRole.DTYPE) if len(own.dtypes) > 1 else own.dtypes[0]
    if stated not in own.dtypes:
        what = f"{record.name(FeatureRole.DTYPE)!r} is {stated!r}, not one of {', '.join(own.dtypes)}"
        raise NoImage(f"its feature {what}", QuarantineReason.CORRUPT)
    size, dtype = record.size_of(part), np.dtype(stated)
    if not own.raw and dtype.name in HIGHEST:  # floats are always raw pixels
        return part
    if name in record.names.encoded and part.method == STORED:
        tensor = _serialized_tensor(record, part)
        if tensor is None:
            raise NoImage(f"its feature {name!r} is not a tensor of pixels", QuarantineReason.CORRUPT)
        return tensor
    shape, _ = _shape(record, size // dtype.itemsize, pixel_shape, own)
    if prod(shape) * dtype.itemsize != size:
        raise _not_pixels(f"{size:,} bytes", name, shape, "" if dtype.itemsize == 1 else f" of {dtype.name}")
    pixels = BASE64_PIXELS if part.method == BASE64 else PIXELS
    return part._replace(method=pixels, shape=shape, dtype=dtype.newbyteorder("<").str)


def _not_pixels(content: str, name: str, shape: tuple[int, ...], kind: str = "") -> NoImage:
    sides = " x ".join(map(str, shape))
    return NoImage(
        f"the {content} of its feature {name!r} are not {sides} pixels{kind}", QuarantineReason.CORRUPT
    )


def pixel_values(record: SourceRecord, image: ByteRange) -> np.ndarray:
    """Returns the values of raw pixels as a flat array.

    Raises:
      ImageFault: If the pixels are damaged.
      ValueError: If their number does not match their shape.
    """
    return np.frombuffer(bare_pixels(record.stored(image), image), image.dtype).reshape(prod(image.shape))


def pixels_are_planar(records: Iterable[bytes], settings: ConvertSettings) -> bool:
    """Returns whether raw pixels are stored channel by channel, judged by some records."""

    def pictures() -> Iterator[tuple[np.ndarray, tuple[int, ...]]]:
        for data in records:
            # Faults are reported when the record is listed or converted.
            with contextlib.suppress(ValueError, ImageFault):
                record = SourceRecord(data)
                image = image_of(record, KnownRecords(), settings)
                if image.planar is None:
                    yield pixel_values(record, image), image.shape

    return are_planar(pictures())


def _base64_file(record: SourceRecord, part: ByteRange) -> ByteRange | None:
    """Returns an image file that is stored as base64; None if the bytes are something else."""
    head = record.stored(part._replace(length=min(part.length, HEAD_BYTES // 3 * 4)))
    if part.length % 4 or not _BASE64.match(head):
        return None
    url_safe = head.replace(b"+", b"-").replace(b"/", b"_")
    if kind_of(base64.urlsafe_b64decode(url_safe)) not in SUPPORTED_KINDS:
        return None
    return part._replace(method=BASE64)


def _is_file(record: SourceRecord, part: ByteRange) -> bool:
    head = _head(record, part)
    # Raw pixels may begin like a JPEG XL without boxes, whose signature has only two bytes.
    return kind_of(head) in SUPPORTED_KINDS and not head.startswith(b"\xff\x0a")


def _is_rather_pixels(record: SourceRecord, part: ByteRange, pixel_shape: tuple[int, ...] | None) -> bool:
    """Returns whether bytes that begin like an image file are raw pixels, judged by their number.

    Dark pixels may begin with the few bytes of a signature by chance. The eight bytes of PNG, or the end
    marker of JPEG, are not a coincidence.
    """
    value = record.stored(part)
    if value.startswith(b"\x89PNG\r\n\x1a\n") or value.endswith(b"\xff\xd9"):
        return False
    with contextlib.suppress(NoImage):
        return prod(_shape(record, part.length, pixel_shape)[0]) == part.length
    return False


def _orient(sides: Sequence[int]) -> tuple[int, int, int, bool]:
    height, width, channels = (*sides, 1)[:3]
    if height in _CHANNELS and channels not in _CHANNELS:
        return width, channels, height, True
    return height, width, channels, False


def _shape(
    record: SourceRecord, count: int, pixel_shape: tuple[int, ...] | None, own: KnownRecords | None = None
) -> tuple[tuple[int, ...], bool | None]:
    """Returns the shape of raw pixels and whether they are planar; None if the record does not tell.

    Args:
      record: Record with the pixels.
      count: Number of values, from which the number of channels follows if only height and width are known.
      pixel_shape: Shape to use if the record has none.
      own: Description of the records, if they belong to a dataset of Shardwright.

    Raises:
      NoImage: If the shape is unknown.
    """

    def sides_in(role: FeatureRole) -> list[int]:
        sides = record.feature(record.name(role)).values
        return [side if isinstance(side, int) and 0 < side <= _MAX_SIDE else 0 for side in sides]

    planar: bool | None = None
    sides = sides_in(FeatureRole.SHAPE)
    if len(sides) in (2, 3) and all(sides):
        *sides, planar = _orient(sides)
    else:
        each = map(sides_in, PICTURE_SIDES)
        sides = [side[0] if len(side) == 1 else 0 for side in each]
    promised = own.picture if own else (None, None, None)
    height, width, channels = (side or promise or 0 for side, promise in zip(sides, promised, strict=True))
    if height and width:
        shape = (height, width, channels or count // (height * width))
        return shape if own else _check_shape(shape), planar
    if pixel_shape:
        return pixel_shape, None
    raise NoImage(
        f"its {count:,} values are raw pixels of unknown shape; set --pixel_shape, such as 28x28 or 32x32x3"
    )


def _check_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    if shape[2] not in _CHANNELS:
        raise NoImage(f"its pixels have {shape[2]} channels, not 1, 3 or 4")
    return shape


def _pixels(
    record: SourceRecord, name: str, part: ByteRange, pixel_shape: tuple[int, ...] | None
) -> ByteRange:
    """Returns bytes as raw pixels.

    Raises:
      NoImage: If the bytes are not pixels.
    """
    size = part.length
    shape, planar = _shape(record, size, pixel_shape)
    count = prod(shape)
    if size == count:
        return part._replace(method=PIXELS, shape=shape, planar=planar)
    if size in (-(-count // 3) * 4, -(-count * 4 // 3)) and _BASE64.match(_head(record, part)):
        return part._replace(method=BASE64_PIXELS, shape=shape, planar=planar)
    raise _not_pixels(f"{size:,} bytes", name, shape, ", and no image file")


def _numbers(record: SourceRecord, name: str, pixel_shape: tuple[int, ...] | None) -> ByteRange:
    """Returns a list of numbers as raw pixels.

    Raises:
      NoImage: If the numbers are not pixels.
    """
    part = record.packed(name)
    if part is None:
        raise NoImage(f"its feature {name!r} has no values in one piece")
    method, dtype, count = PIXELS, "<f4", part.length // 4
    if record.list_in(name)[0] is FeatureType.INT64:  # each ends with a byte whose highest bit is not set
        packed = np.frombuffer(record.data, np.uint8, part.length, part.offset)
        method, dtype, count = VARINT_PIXELS, "<i4", int(np.count_nonzero(packed < 0x80))
    shape, planar = _shape(record, count, pixel_shape)
    if count != prod(shape):
        raise _not_pixels(f"{count:,} numbers", name, shape)
    return part._replace(method=method, shape=shape, planar=planar, dtype=dtype)


def _serialized_tensor(record: SourceRecord, part: ByteRange) -> ByteRange | None:
    """Returns the image in a TensorProto, as `tf.io.serialize_tensor` writes it; None if there is none."""
    value = record.stored(part)
    if value[0] != 0x08:  # its first field, the type
        return None
    try:
        tensor = parse_tensor(value)
    except ValueError:
        return None
    if isinstance(tensor.content, list):
        file = record.inside(part, tensor.content[0]) if len(tensor.content) == 1 else None
        return file if file and _is_file(record, file) else None
    if len(tensor.shape) not in (2, 3) or min(tensor.shape) < 1:
        return None
    *shape, planar = _orient(tensor.shape)
    dtype = np.dtype(tensor.dtype).newbyteorder("<").str
    pixels = record.inside(part, tensor.content)
    return pixels._replace(method=PIXELS, shape=_check_shape(tuple(shape)), planar=planar, dtype=dtype)
