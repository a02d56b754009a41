"""Decompresses a TIFF's strips and tiles, so that every byte of the pixels was decoded from the file.

Pillow passes compressed TIFFs to libtiff. A codec that fills only a part of a strip leaves the rest as
`malloc` returned it, and Pillow returns that memory as pixels. Here, each strip or tile is decompressed by a
codec that reports how much it decoded, and missing data is a fault. Pillow then reads the result as an
uncompressed image, so Pillow still handles colors, palettes and orientation.

Sources: TIFF 6.0; its supplement for Deflate and predictors; Pillow's names of compressions
(`COMPRESSION_INFO`).
"""

from __future__ import annotations

import io
import lzma
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import simplejpeg
from PIL import Image, ImageFile, TiffImagePlugin
from PIL.ExifTags import Base

from shardwright.core.images.faults import corrupt, truncated, unsupported
from shardwright.core.images.formats.ccitt import BadFaxData, decode_fax
from shardwright.core.images.formats.jpeg import words_of_libjpeg
from shardwright.core.storage.ranges import RandomAccessFile
from shardwright.schemas.bounds import Bounds
from shardwright.schemas.errors import ImageFault, words_of

_YCBCR_SAMPLES = 3
_RGB, _YCBCR = 2, 6
_SEPARATE = 2
_HORIZONTAL, _FLOATING_POINT = 2, 3
#: A directory of a TIFF.
Tags = TiffImagePlugin.ImageFileDirectory_v2
_REVERSED_BITS = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))
#: Pixels by which a tile may exceed the image: the last tiles of a row and of a column are not full.
_SEGMENT_SLACK = 1 << 20
#: Compressions that may use a predictor (TIFF 6.0, section 14, and libtiff).
_PREDICTED = frozenset(("tiff_lzw", "tiff_adobe_deflate", "tiff_deflate", "zstd", "lzma"))


@dataclass(frozen=True)
class _Organization:
    """The layout of a TIFF's pixels in its file.

    Attributes:
      tags: The directory of the picture.
      compression: Pillow's name of the compression.
      size: Width and height of the image in the file.
      segment: Width and height of a strip or tile.
      samples: Number of values per pixel in one segment.
      planes: Number of planes: 1, or the number of samples if they are stored separately.
      bits: Number of bits per sample.
      predictor: TIFF's Predictor; 1 for none.
      photometric: TIFF's PhotometricInterpretation.
    """

    tags: Tags
    compression: str
    size: tuple[int, int]
    segment: tuple[int, int]
    samples: int
    planes: int
    bits: int
    predictor: int
    photometric: int

    def row_bytes(self, width: int) -> int:
        """Returns the number of bytes in a row of pixels, padded to whole bytes."""
        return -(-width * self.samples * self.bits // 8)


def load_tiff(image: TiffImagePlugin.TiffImageFile, data: bytes, bounds: Bounds) -> None:
    """Decodes the pixels of a TIFF's current frame.

    Args:
      image: Image that Pillow has opened but not loaded.
      data: Bytes of the whole file.
      bounds: Limits on strips and tiles.

    Raises:
      ImageFault: If data is damaged, missing or of an unsupported kind.
    """
    luma_chroma = (
        image.tag_v2.get(Base.PhotometricInterpretation) == _YCBCR and image.info.get("compression") != "jpeg"
    )
    is_raw = bool(image.tile) and image.tile[0].codec_name != "libtiff"
    if is_raw and not luma_chroma and not _has_planes(image.tag_v2):
        image.load()  # uncompressed: Pillow detects missing data itself
        return
    organization = _organization(image.tag_v2, str(image.info["compression"]))
    places = _segments(data, organization, bounds)
    planes = list(_planes(organization, data, places))
    if len(planes) == 1:
        pixels = planes[0].reshape(-1).data
    else:
        sample = _sample_type(organization)
        interleaved = np.stack([plane.view(sample) for plane in planes], axis=-1)
        pixels = interleaved.reshape(-1).view(np.uint8).data
    raw_mode = _native(_raw_mode(image, organization, len(places)))
    if luma_chroma and organization.samples * organization.planes == _YCBCR_SAMPLES:
        if all_numbers(image.tag_v2.get(Base.YCbCrSubSampling, (2, 2))) != (1, 1):
            raise _unsupported("subsampled YCbCr without JPEG compression")
        pixels = memoryview(
            Image.frombytes("YCbCr", organization.size, bytes(pixels)).convert("RGB").tobytes()
        )
        raw_mode = "RGB"
    # Now Pillow reads an uncompressed image. It is appended to the file, because Pillow still looks up tags
    # there.
    image.tile = [ImageFile._Tile("raw", (0, 0, *organization.size), len(data), (raw_mode, 0, 1))]
    image.use_load_libtiff = False
    image.fp = _joined(data, pixels)
    image.load()


def read_samples(tags: Tags, compression: str, data: bytes, bounds: Bounds) -> np.ndarray:
    """Decodes all samples of a TIFF, unchanged.

    Args:
      tags: The directory of the picture.
      compression: Pillow's name of the compression.
      data: Bytes of the whole file.
      bounds: Limits on strips and tiles.

    Returns:
      The samples in native byte order, as unsigned integers of 8, 16, 32 or 64 bits, with shape (height,
      width, samples per pixel). Floating-point numbers and signed integers are returned as their bits.

    Raises:
      ImageFault: If data is damaged, missing or of an unsupported kind.
    """
    organization = _organization(tags, compression, all_planes=True)
    if organization.photometric == _YCBCR and organization.compression != "jpeg":
        raise _unsupported("YCbCr without JPEG compression")
    segments = _segments(data, organization, bounds)
    planes = [_integers(rows, organization) for rows in _planes(organization, data, segments)]
    return planes[0] if len(planes) == 1 else np.concatenate(planes, axis=-1)


def _integers(rows: np.ndarray, organization: _Organization) -> np.ndarray:
    """Returns rows of bytes as integers, with shape (height, width, samples)."""
    width, samples = organization.size[0], organization.samples
    if organization.bits in (8, 16, 32, 64):
        values = rows.view(_sample_type(organization))
    elif 8 < organization.bits < 16:
        import imagecodecs

        values = imagecodecs.packints_decode(
            rows.tobytes(), np.uint16, organization.bits, runlen=width * samples
        )
    else:
        raise _unsupported(f"samples of {organization.bits} bits")
    return values.reshape(rows.shape[0], width, samples)


def _joined(first: bytes, second: bytes | memoryview) -> io.BufferedReader:
    """Returns a file made of two parts, without a copy."""
    parts = (memoryview(first), memoryview(second))

    def read_at(offset: int, length: int) -> memoryview:
        behind = offset - len(first)
        return parts[0][offset:][:length] if behind < 0 else parts[1][behind : behind + length]

    return io.BufferedReader(RandomAccessFile(read_at, sum(map(len, parts))))


def _unsupported(what: str) -> ImageFault:
    return unsupported(f"tiff: {what} cannot be decoded; convert it to PNG")


def _raw_mode(image: TiffImagePlugin.TiffImageFile, organization: _Organization, segments: int) -> str:
    """Returns Pillow's raw mode for whole pixels of a picture that is opened and has some strips or tiles."""
    modes = [tile.args[0] for tile in image.tile if isinstance(tile.args, tuple)]
    if image.tile[0].codec_name == "libtiff" or organization.planes == 1:
        return str(modes[0])
    # For uncompressed planes, Pillow has a mode of one letter each for any number of bits.
    letters = "".join(modes[: segments : segments // organization.planes])
    return f"{letters};16" if organization.bits == 16 else letters


def _native(raw_mode: str) -> str:
    """Returns the raw mode for samples in this machine's byte order, as `_planes` yields them."""
    kind, _, layout = raw_mode.partition(";")
    if layout[:2] not in ("16", "32"):
        return raw_mode
    return f"{kind};{layout[:2]}N{layout[2:].strip('BLN')}"  # S for signed, F for floating point


def _organization(tags: Tags, compression: str, all_planes: bool = False) -> _Organization:
    width, height = int(tags[Base.ImageWidth]), int(tags[Base.ImageLength])
    bits = set(all_numbers(tags.get(Base.BitsPerSample, (1,))))
    if len(bits) != 1:
        raise _unsupported(f"samples of {sorted(bits)} bits")
    samples = int(tags.get(Base.SamplesPerPixel, 1))
    separate = _has_planes(tags)
    extra = all_numbers(tags.get(Base.ExtraSamples, ()))
    if separate and extra and max(extra) == 0 and not all_planes:
        samples -= len(extra)  # planes that Pillow ignores
    if tags.get(Base.PlanarConfiguration, 1) not in (1, _SEPARATE):
        raise corrupt(
            f"tiff: its planar configuration is {tags.get(Base.PlanarConfiguration)!r}, neither 1 nor 2"
        )
    segment = (width, min(int(tags.get(Base.RowsPerStrip, height)) or height, height))
    if Base.TileOffsets in tags:
        segment = (int(tags[Base.TileWidth]), int(tags[Base.TileLength]))
    if min(segment) < 1:
        raise corrupt(f"tiff: its strips or tiles have {segment[0]} x {segment[1]} pixels")
    return _Organization(
        tags=tags,
        compression=compression,
        size=(width, height),
        segment=segment,
        samples=1 if separate else samples,
        planes=samples if separate else 1,
        bits=bits.pop(),
        predictor=int(tags.get(Base.Predictor, 1)) if compression in _PREDICTED else 1,
        photometric=int(tags.get(Base.PhotometricInterpretation, 0)),
    )


def _has_planes(tags: Tags) -> bool:
    """Returns whether a TIFF stores each channel for itself."""
    return tags.get(Base.PlanarConfiguration, 1) == _SEPARATE and int(tags.get(Base.SamplesPerPixel, 1)) > 1


def all_numbers(value: Any) -> tuple[int, ...]:
    """Returns the value of a tag as a tuple of numbers, even if there is only one."""
    return tuple(int(item) for item in value) if isinstance(value, (tuple, list)) else (int(value),)


def _segments(data: bytes, organization: _Organization, bounds: Bounds) -> list[tuple[int, int]]:
    """Returns the begin and end of each strip or tile, after checking that all are in the file."""
    tags = organization.tags
    tiled = Base.TileOffsets in tags
    offsets = all_numbers(tags[Base.TileOffsets if tiled else Base.StripOffsets])
    sizes = all_numbers(tags[Base.TileByteCounts if tiled else Base.StripByteCounts])
    width, height = organization.size
    columns, rows = math.ceil(width / organization.segment[0]), math.ceil(height / organization.segment[1])
    needed = columns * rows * organization.planes
    bounds.check("strips", needed, f"tiff: it has {needed} strips or tiles")
    if math.prod(organization.segment) > _SEGMENT_SLACK + 4 * width * height:
        raise corrupt("tiff: a tile of {} x {} pixels is larger than the image".format(*organization.segment))
    if len(offsets) < needed or len(sizes) < needed:
        raise truncated(f"tiff: it has {min(len(offsets), len(sizes))} of {needed} strips or tiles")
    shared = sum(sizes[:needed]) - len(data)
    bounds.check("shared_bytes", shared, f"tiff: its strips or tiles have {shared} bytes more than the file")
    for offset, size in zip(offsets[:needed], sizes):
        if offset < 0 or size < 1 or offset + size > len(data):
            raise truncated(f"tiff: the file ends before byte {offset + size}, where a strip or tile ends")
    return [(offset, offset + size) for offset, size in zip(offsets[:needed], sizes)]


def _planes(
    organization: _Organization, data: bytes, segments: Sequence[tuple[int, int]]
) -> Iterator[np.ndarray]:
    """Yields the rows of each plane as bytes in native byte order, with shape (height, bytes per row)."""
    per_plane = len(segments) // organization.planes
    for begin in range(0, len(segments), per_plane):
        yield _plane(organization, data, segments[begin : begin + per_plane])


def _plane(organization: _Organization, data: bytes, segments: Sequence[tuple[int, int]]) -> np.ndarray:
    """Returns the rows of a plane as bytes, with shape (height, bytes per row)."""
    width, height = organization.size
    segment_width, segment_height = organization.segment
    columns = math.ceil(width / segment_width)
    if columns > 1 and segment_width * organization.samples * organization.bits % 8:
        raise corrupt(
            f"tiff: its tiles are {segment_width} pixels wide, which is not a whole number of bytes"
        )
    canvas = np.empty((height, organization.row_bytes(width)), np.uint8)
    row_bytes = organization.row_bytes(segment_width)
    tiled = organization.segment[0] != width or len(segments) * segment_height - height >= segment_height
    for index, (begin, end) in enumerate(segments):
        row, column = index // columns * segment_height, index % columns
        rows = min(segment_height, height - row)
        stored_rows = segment_height if tiled else rows
        decoded = _decoded(data[begin:end], stored_rows, organization)
        left = column * row_bytes
        target = canvas[row : row + rows, left : left + row_bytes]
        target[:] = decoded[:rows, : target.shape[1]]
    return canvas


def _decoded(segment: bytes, rows: int, organization: _Organization) -> np.ndarray:
    """Decompresses a strip or tile with the given number of rows to shape (rows, bytes per row)."""
    width = organization.segment[0]
    size = rows * organization.row_bytes(width)
    if organization.tags.get(Base.FillOrder, 1) == 2 and organization.compression not in ("jpeg", "webp"):
        segment = segment.translate(_REVERSED_BITS)
    compression = organization.compression
    try:
        if compression in _CODECS:
            decoded = _CODECS[compression](segment, size)
        elif compression in _PICTURE_CODECS:
            decoded = _PICTURE_CODECS[compression](segment, rows, organization)
        else:
            raise _unsupported(f"{compression} compression")
    except BadFaxData as error:
        raise truncated(f"tiff: {compression}: {error}") from error
    except (zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError) as error:
        raise corrupt(f"tiff: {compression.removeprefix('tiff_')}: {words_of(error)}") from error
    if len(decoded) < size:
        raise truncated(f"tiff: a strip or tile has {len(decoded)} bytes instead of {size}")
    array = np.frombuffer(decoded, np.uint8, size)
    return _without_predictor(array, rows, organization)


def _without_predictor(array: np.ndarray, rows: int, organization: _Organization) -> np.ndarray:
    """Reverses TIFF's predictor and converts samples to native byte order."""
    width, samples = organization.segment[0], organization.samples
    if organization.predictor == _FLOATING_POINT:
        if organization.bits not in (16, 32, 64):
            raise _unsupported(f"a floating point predictor over samples of {organization.bits} bits")
        import imagecodecs

        floats = array.view(f"f{organization.bits // 8}").reshape(rows, width, samples)
        floats = np.ascontiguousarray(imagecodecs.floatpred_decode(floats, axis=1))
        return floats.reshape(rows, -1).view(np.uint8)
    if organization.predictor not in (1, _HORIZONTAL):
        raise _unsupported(f"predictor {organization.predictor}")
    if organization.bits not in (16, 32, 64) or organization.compression in ("jpeg", "webp"):
        if organization.predictor == _HORIZONTAL:
            if organization.bits != 8:
                raise _unsupported(f"a predictor over samples of {organization.bits} bits")
            array = np.cumsum(array.reshape(rows, width, samples), axis=1, dtype=np.uint8)
        return array.reshape(rows, -1)
    order = "<" if organization.tags.prefix == b"II" else ">"
    values = array.view(f"{order}u{organization.bits // 8}").astype(_sample_type(organization))
    if organization.predictor == _HORIZONTAL:
        values = np.cumsum(values.reshape(rows, width, samples), axis=1, dtype=values.dtype)
    return values.reshape(rows, -1).view(np.uint8)


def _sample_type(organization: _Organization) -> np.dtype:
    if organization.bits not in (8, 16, 32, 64):
        raise _unsupported(f"separate planes of {organization.bits} bits")
    return np.dtype(f"u{organization.bits // 8}")


def _inflate(segment: bytes, size: int) -> bytes:
    """Decompresses zlib data up to its checksum."""
    inflater = zlib.decompressobj()
    decoded = inflater.decompress(segment, size)
    while len(decoded) >= size and not inflater.eof and inflater.unconsumed_tail:
        inflater.decompress(inflater.unconsumed_tail, 1 << 16)
    if len(decoded) >= size and not inflater.eof:
        raise truncated("tiff: deflate: its data ends before its checksum")
    return decoded


def _decode_zstd(segment: bytes, size: int) -> bytes:
    import zstandard

    try:
        return zstandard.ZstdDecompressor().stream_reader(segment).read(size)
    except zstandard.ZstdError as error:
        raise corrupt(f"tiff: zstd: {words_of(error)}") from error


def _decode_lzw(segment: bytes, size: int) -> bytes:
    import imagecodecs

    return bytes(imagecodecs.lzw_decode(segment, out=size))


def _unpack_bits(segment: bytes, size: int) -> bytes:
    """Decompresses PackBits (TIFF 6.0, section 9)."""
    parts: list[bytes] = []
    position = length = 0
    while length < size and position < len(segment):
        count = segment[position]
        position += 1
        if count < 128:
            part = segment[position : position + count + 1]
            position += count + 1
        elif count > 128:
            part = segment[position : position + 1] * (257 - count)
            position += 1
        else:
            continue
        parts.append(part)
        length += len(part)
    return b"".join(parts)


#: Pillow's name of a compression -> function of (segment, number of bytes) that returns at most that many.
_CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "raw": lambda segment, size: segment[:size],
    "packbits": _unpack_bits,
    "tiff_lzw": _decode_lzw,
    "tiff_adobe_deflate": _inflate,
    "tiff_deflate": _inflate,
    "lzma": lambda segment, size: lzma.LZMADecompressor(memlimit=1 << 28).decompress(segment, size),
    "zstd": _decode_zstd,
}


def _decode_fax(segment: bytes, rows: int, organization: _Organization) -> bytes:
    options = int(organization.tags.get(Base.T4Options, 0))
    return decode_fax(segment, rows, organization.segment[0], organization.compression, options)


def _decode_jpeg(segment: bytes, rows: int, organization: _Organization) -> bytes:
    """Decodes a JPEG strip or tile (Adobe's TIFF Technical Note 2)."""
    import imagecodecs

    if organization.bits != 8:
        raise _unsupported(f"JPEG samples of {organization.bits} bits")
    whole = segment
    if tables := bytes(organization.tags.get(Base.JPEGTables, b"")):
        whole = tables.removesuffix(b"\xff\xd9") + segment.removeprefix(b"\xff\xd8")
    _refuse_damaged(whole)
    color = 2 if organization.photometric in (_RGB, _YCBCR) else None  # RGB in TIFF's tag
    stored = 2 if organization.photometric == _RGB else None
    if organization.samples == 1:
        color = stored = None
    array = imagecodecs.jpeg8_decode(whole, colorspace=stored, outcolorspace=color)
    return _exactly(array, rows, organization)


def _refuse_damaged(segment: bytes) -> None:
    """Rejects a JPEG with missing or wrong pixels, except for kinds that TurboJPEG does not support."""
    try:
        simplejpeg.decode_jpeg(segment, "GRAY", min_height=1, min_width=1, min_factor=8, strict=True)
    except ValueError as error:
        message = words_of_libjpeg(error)
        lowered = message.lower()
        if "premature end" in lowered:
            raise truncated(f"tiff: jpeg: {message}") from error
        if "corrupt jpeg data" in lowered and "extraneous" not in lowered:
            raise corrupt(f"tiff: jpeg: {message}") from error


def _decode_webp(segment: bytes, rows: int, organization: _Organization) -> bytes:
    import imagecodecs

    if organization.bits != 8 or organization.samples not in (3, 4):
        raise _unsupported(f"WebP with {organization.samples} samples of {organization.bits} bits")
    array = imagecodecs.webp_decode(segment, hasalpha=organization.samples == 4)
    return _exactly(array, rows, organization)


def _exactly(array: np.ndarray, rows: int, organization: _Organization) -> bytes:
    """Returns the bytes of a picture inside a strip or tile, after checking that it fills it."""
    wanted = (organization.segment[0], organization.samples)
    shape = array.reshape(*array.shape[:2], -1).shape
    if shape[1:] != wanted or shape[0] < rows:
        raise truncated(
            f"tiff: a strip or tile holds {shape[1]} x {shape[0]} pixels of {shape[2]} samples instead of "
            f"{wanted[0]} x {rows} of {wanted[1]}"
        )
    return array[:rows].tobytes()


#: Pillow's name of a compression of pictures -> function of (segment, number of rows, organization).
_PICTURE_CODECS: dict[str, Callable[[bytes, int, _Organization], bytes]] = {
    "tiff_ccitt": _decode_fax,
    "group3": _decode_fax,
    "group4": _decode_fax,
    "jpeg": _decode_jpeg,
    "webp": _decode_webp,
}
