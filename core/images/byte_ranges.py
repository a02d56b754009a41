"""Reads an image that is part of a file: a member of an archive, a range of bytes, raw pixels."""

from __future__ import annotations

import base64
import binascii
import bz2
import io
import lzma
import struct
import zlib
from collections.abc import Iterable
from itertools import islice

import numpy as np
from PIL import Image
from PIL.ExifTags import Base

from shardwright.core import storage
from shardwright.core.images.color import scaled_to_8_bits, within
from shardwright.core.images.faults import unread
from shardwright.schemas.byte_range import (
    BARE_PIXELS,
    BASE64,
    BASE64_PIXELS,
    BZIP2,
    DEFLATE,
    LZMA,
    STORED,
    VARINT_PIXELS,
    ByteRange,
)
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import ImageFault, words_of
from shardwright.schemas.units import format_size

#: A zip's local file header (APPNOTE.TXT 4.3.7), and the position of the lengths of name and extra field.
_HEADER = struct.Struct("<4s5H3L2H")
_SIGNATURE = b"PK\x03\x04"
#: Number of bytes of the extra field that are fetched with the header; few members have more.
_EXTRA_BYTES = 96
#: Largest ratio of unpacked to packed size, except for small members; deflate stays below it.
_MAX_RATIO, _SMALL_BYTES = 5000, 1 << 24
#: The first block of bzip2's data has fewer bytes: at most 900,000 unpacked, and a little more packed.
_BZIP2_BLOCK = 1 << 20
#: Types of raw pixels that a TIFF holds and that are stored as uint8, uint16 or float32.
_KEPT_TYPES = frozenset(np.dtype(name) for name in ("u2", "i2", "f2", "f4", "f8"))
#: Bytes of a TIFF before its directory, and the largest number of tags of `tiff_of`.
_TIFF_HEAD, _TIFF_TAGS = 8, 11
#: Letter of `struct` -> type of a tag.
_TIFF_TYPES = {"H": 3, "I": 4}
#: Limit for the memory of LZMA's dictionary.
_MAX_DICTIONARY = 256 << 20
#: Translates base64's alphabet for URLs to the standard one.
_STANDARD_ALPHABET = bytes.maketrans(b"-_", b"+/")
#: Number of pictures that are examined.
PICTURES = 16
#: Number of values of a picture that are examined, from its upper rows.
_VALUES = 1 << 18
#: Ratio of roughness between the two orders that decides; for photos of 32 x 32 pixels it is about 2.
_CLEARLY = 1.25


def read_part(uri: str, place: ByteRange, size: int, max_bytes: int) -> bytes:
    """Returns the bytes of an image that is part of a file.

    Args:
      uri: Path or URL of the file, unless `place` names another one.
      place: Position of the part, and how it is stored.
      size: Expected size of the image in bytes; -1 if unknown.
      max_bytes: Size at which unpacking stops.

    Raises:
      ImageFault: If the part is damaged or too large.
      EngineError: If the file changed since it was listed.
      OSError: If it cannot be read.
    """
    data = _stored_bytes(place.file or uri, place)
    if place.method in BARE_PIXELS:
        return as_image_file(data, place)
    if place.method == BASE64:
        data = as_image_file(data, place)
    elif place.method != STORED:
        data = _unpack(data, place.method, min(max_bytes, size if size >= 0 else max_bytes))
    if 0 <= size != len(data):
        raise _corrupt(f"it has {len(data)} bytes, its header says {size}")
    if place.crc32 >= 0 and zlib.crc32(data) != place.crc32:
        raise unread(QuarantineReason.CHECKSUM_MISMATCH, "its bytes do not agree with its CRC-32")
    return data


def read_part_head(uri: str, place: ByteRange, length: int) -> bytes:
    """Returns the first bytes of a part, unpacked.

    Raises:
      ImageFault: If the part is damaged.
      EngineError: If the file changed since it was listed.
      OSError: If it cannot be read.
    """
    # Data that cannot be compressed may grow by a few bytes, and bzip2 unpacks only whole blocks.
    needed = _BZIP2_BLOCK if place.method == BZIP2 else length + 64
    data = _stored_bytes(place.file or uri, place._replace(length=min(place.length, needed)))
    if place.method == STORED:
        return data[:length]
    return _unpack_some(data, place.method, length)[0]


def _corrupt(message: str) -> ImageFault:
    return unread(QuarantineReason.CORRUPT, message)


def _stored_bytes(path: str, place: ByteRange) -> bytes:
    def read(offset: int, length: int) -> bytes:
        return storage.read_range(path, offset, length, place.file_size, place.file_version)

    if place.name is None:
        data = read(place.offset, place.length)
        if len(data) < place.length:
            message = f"the file ends after {len(data)} of {place.length} bytes"
            raise unread(QuarantineReason.TRUNCATED, message)
        return data
    expected = place.name.encode("utf-8", "surrogateescape")
    head = read(place.offset, _HEADER.size + len(expected) + _EXTRA_BYTES + place.length)
    if len(head) < _HEADER.size or not head.startswith(_SIGNATURE):
        raise _corrupt(f"there is no member at byte {place.offset} of the archive")
    *_, name_length, extra_length = _HEADER.unpack_from(head)
    name = head[_HEADER.size : _HEADER.size + name_length]
    if name != expected:
        raise _corrupt(f"the archive has another name for it at byte {place.offset}")
    begin = _HEADER.size + name_length + extra_length
    data = head[begin : begin + place.length]
    if len(data) < place.length:
        data += read(place.offset + begin + len(data), place.length - len(data))
    if len(data) < place.length:
        raise unread(QuarantineReason.TRUNCATED, "the archive ends inside it")
    return data


def _unpack(data: bytes, method: str, limit: int) -> bytes:
    """Unpacks a member, and counts its bytes instead of trusting its header.

    Raises:
      ImageFault: If the member is damaged, or larger than the limit.
    """
    unpacked, finished = _unpack_some(data, method, min(limit, max(_SMALL_BYTES, _MAX_RATIO * len(data))) + 1)
    if len(unpacked) > limit:
        what = f"{format_size(limit)}, the most that its header or --max_bytes allows"
        raise unread(QuarantineReason.TOO_LARGE, f"it unpacks to more than {what}")
    if len(unpacked) > max(_SMALL_BYTES, _MAX_RATIO * len(data)):
        raise unread(QuarantineReason.TOO_LARGE, f"it unpacks to more than {_MAX_RATIO} times its bytes")
    if not finished:
        raise unread(QuarantineReason.TRUNCATED, "its compressed data ends early")
    return unpacked


def _unpack_some(data: bytes, method: str, most: int) -> tuple[bytes, bool]:
    """Unpacks a limited number of bytes; returns them, and whether the data was complete.

    Raises:
      ImageFault: If the data is damaged.
    """
    try:
        if method == DEFLATE:
            inflater = zlib.decompressobj(-zlib.MAX_WBITS)
            return inflater.decompress(data, most), inflater.eof
        if method == BZIP2:
            bunzipper = bz2.BZ2Decompressor()
            return bunzipper.decompress(data, most), bunzipper.eof
        if method == LZMA:
            return _unpack_lzma(data, most), True
    except (zlib.error, OSError, EOFError, ValueError, lzma.LZMAError, struct.error) as error:
        raise _corrupt(f"it cannot be unpacked: {words_of(error)}") from error
    raise _corrupt(f"compression method {method!r} is not supported")


def _unpack_lzma(data: bytes, most: int) -> bytes:
    """Unpacks a member's LZMA stream, which its properties precede (APPNOTE.TXT 5.8.8)."""
    begin = 4 + struct.unpack_from("<H", data, 2)[0]
    code, dictionary = struct.unpack("<BI", data[4:begin])
    if code >= 9 * 5 * 5 or dictionary > _MAX_DICTIONARY:
        raise ValueError("its LZMA properties are wrong")
    filters = {
        "id": lzma.FILTER_LZMA1,
        "dict_size": dictionary,
        "lc": code % 9,
        "lp": code // 9 % 5,
        "pb": code // 45,
    }
    return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[filters]).decompress(data[begin:], most)


def as_image_file(data: bytes, place: ByteRange) -> bytes:
    """Returns a part of a record as an image file, with its encoding removed.

    Raises:
      ImageFault: If the part is damaged.
    """
    if place.method == BASE64:
        return from_base64(data)
    return _pixels_as_file(bare_pixels(data, place), place) if place.method in BARE_PIXELS else data


def bare_pixels(data: bytes, place: ByteRange) -> bytes:
    """Returns raw pixels as they are in memory, with their encoding removed.

    Raises:
      ImageFault: If the data is damaged.
    """
    if place.method == BASE64_PIXELS:
        return from_base64(data)
    if place.method == VARINT_PIXELS:
        return _varints(data).astype(place.dtype).tobytes()
    return data


def from_base64(data: bytes) -> bytes:
    """Decodes base64 in its URL-safe or standard alphabet, also as JSON escapes it.

    Raises:
      ImageFault: If the data is not base64.
    """
    if b"\\" in data:
        for escaped, plain in ((b"\\/", b"/"), (b"\\n", b""), (b"\\r", b"")):
            data = data.replace(escaped, plain)
    data = data.translate(_STANDARD_ALPHABET)
    try:
        return base64.b64decode(data + b"=" * (-len(data) % 4), validate=True)
    except binascii.Error as error:
        raise _corrupt(f"its base64 cannot be read: {words_of(error)}") from error


def _varints(data: bytes) -> np.ndarray:
    """Decodes packed varints from 0 to 65535."""
    parts = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(parts < 0x80)
    starts = np.concatenate(([0], ends[:-1] + 1))
    if not len(ends) or ends[-1] != len(parts) - 1 or (ends - starts).max() > 2:
        raise _corrupt("its numbers are not pixels from 0 to 255")
    places = np.arange(len(parts)) - np.repeat(starts, ends - starts + 1)
    numbers: np.ndarray = np.add.reduceat((parts & 0x7F).astype(np.int64) << (7 * places), starts)
    return numbers


def _pixels_as_file(data: bytes, place: ByteRange) -> bytes:
    """Returns raw pixels as an image file with 8 bits (or 16 bits of gray), which is decoded like any other.

    False and true become 0 and 255. Integers with more than 16 bits, and signed ones, must be 0 to 255. If
    the pixels keep their type, the file is a TIFF.
    """
    height, width, channels = place.shape
    dtype = np.dtype(place.dtype)
    if len(data) != height * width * channels * dtype.itemsize:
        raise _corrupt(f"{len(data)} bytes are not {height} x {width} x {channels} pixels of {place.dtype}")
    pixels = np.frombuffer(data, np.uint8 if dtype.kind == "b" else dtype)
    if place.planar:
        pixels = np.moveaxis(pixels.reshape(channels, height, width), 0, -1)
    else:
        pixels = pixels.reshape(height, width, channels)
    has_kept_type = dtype.newbyteorder("=") in _KEPT_TYPES
    if place.keep and (has_kept_type or channels not in (1, 3, 4)):
        return tiff_of(pixels if has_kept_type else _eight_bits(pixels, dtype))
    is_deep = channels == 1 and dtype.kind == "u" and dtype.itemsize == 2
    stored = pixels.astype(">u2") if is_deep else _eight_bits(pixels, dtype)
    if channels == 4:
        out = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(stored)).save(out, "PNG", compress_level=0)
        return out.getvalue()
    header = (5 if channels == 1 else 6, width, height, 0xFFFF if is_deep else 0xFF)
    return b"P%d %d %d %d\n" % header + stored.tobytes()


def tiff_of(pixels: np.ndarray) -> bytes:
    """Returns pixels of shape (height, width, channels) as an uncompressed little-endian TIFF (TIFF 6.0).

    Three channels are RGB, and four are RGB and alpha.
    """
    height, width, channels = pixels.shape
    content = pixels.astype(pixels.dtype.newbyteorder("<"), copy=False).tobytes()
    colors = 3 if channels in (3, 4) else 1
    bits = [8 * pixels.dtype.itemsize] * channels
    extra = [2 if channels == 4 else 0] * (channels - colors)
    kinds = [{"u": 1, "i": 2, "f": 3}[pixels.dtype.kind]] * channels
    # Values of several numbers are behind the directory.
    behind = _TIFF_HEAD + 2 + 12 * _TIFF_TAGS + 4
    begin = behind + sum(2 * len(numbers) for numbers in (bits, extra, kinds) if len(numbers) > 2)
    tags = {
        Base.ImageWidth: ("I", [width]),
        Base.ImageLength: ("I", [height]),
        Base.BitsPerSample: ("H", bits),
        Base.Compression: ("H", [1]),
        Base.PhotometricInterpretation: ("H", [2 if colors == 3 else 1]),
        Base.StripOffsets: ("I", [begin]),
        Base.SamplesPerPixel: ("H", [channels]),
        Base.RowsPerStrip: ("I", [height]),
        Base.StripByteCounts: ("I", [len(content)]),
        Base.ExtraSamples: ("H", extra),
        Base.SampleFormat: ("H", kinds),
    }
    entries, values = [], b""
    for tag, (letter, numbers) in tags.items():
        packed = struct.pack(f"<{len(numbers)}{letter}", *numbers)
        if len(packed) > 4:
            packed, values = struct.pack("<I", behind + len(values)), values + packed
        if numbers:
            entries.append(struct.pack("<HHI4s", tag, _TIFF_TYPES[letter], len(numbers), packed))
    head = b"II*\0" + struct.pack("<IH", _TIFF_HEAD, len(entries)) + b"".join(entries) + bytes(4)
    return head.ljust(behind, b"\0") + values + content


def _eight_bits(pixels: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Scales pixels to 8 bits.

    Raises:
      ImageFault: If the values have no defined brightness.
    """
    if dtype.kind == "b":
        return np.where(pixels != 0, np.uint8(0xFF), np.uint8(0))
    if dtype == np.uint8:
        return pixels
    if dtype.kind == "f":
        if not within(pixels, 1):
            raise _corrupt("floating-point pixels must be between 0 and 1")
        return scaled_to_8_bits(pixels, 1)
    if dtype.kind == "u" and dtype.itemsize == 2:
        return scaled_to_8_bits(pixels, 0xFFFF)
    if dtype.kind not in "ui" or not within(pixels, 0xFF):
        raise _corrupt(f"pixels of type {dtype} must be between 0 and 255")
    return pixels.astype(np.uint8)


def are_planar(pictures: Iterable[tuple[np.ndarray, tuple[int, ...]]]) -> bool:
    """Returns whether pictures store one channel after another, as in CIFAR's rows.

    Neighbors in a picture are alike; in the wrong order they are not. If this cannot be decided, as with
    noise, the channels of each pixel are taken to be together.

    Args:
      pictures: For each picture, its values in one row and its (height, width, channels).
    """
    pixels = planes = 0.0
    for values, (height, width, channels) in islice(pictures, PICTURES):
        rows = max(2, _VALUES // (width * channels))
        pixels += _roughness(values.reshape(height, width, channels)[:rows])
        planes += _roughness(np.moveaxis(values.reshape(channels, height, width)[:, :rows], 0, -1))
    return pixels > planes * _CLEARLY  # NaN is not


def _roughness(picture: np.ndarray) -> float:
    """Returns the mean difference between neighbors, vertically and horizontally."""
    values = picture.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        return float(sum(np.abs(np.diff(values, axis=axis)).sum() for axis in (0, 1)))
