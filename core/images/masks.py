"""Reads masks with a class or a segment for every pixel, and maps them to the stored picture.

Outlines of objects (COCO's polygons and run lengths) are drawn as COCO's own tools draw them.
"""

from __future__ import annotations

import contextlib
import io
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from shardwright.core.images import decode
from shardwright.core.images.boxes import BadObject, Box, bad_annotation, is_upright
from shardwright.core.images.formats.opened_image import OpenedImage
from shardwright.core.images.geometry import Frame, resize_and_pad
from shardwright.core.images.read import read_image
from shardwright.schemas.annotations import Segmentation
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.plain_text import printable

#: Formats that may be lossy, and of which no folder of masks consists.
_MAYBE_LOSSY = ("avif", "heif", "jpeg2000", "jpeg_xl")
#: Largest id of an 8-bit and of a 16-bit mask. It marks padding, like DeepLab's "ignore" label.
HIGHEST = (0xFF, 0xFFFF)
#: TIFF tag BitsPerSample (TIFF 6.0, tag 258).
_TIFF_BITS = 258
#: Least number of coordinates in a polygon: two points have no area.
_MIN_NUMBERS = 6
#: A corner may lie outside the picture by this many times its side, because drawing takes time per pixel.
_MAX_SIDES = 4
#: Coordinates of a corner are below this.
_NO_CORNER = 1e300
#: Limit for the total length of an outline's sides, in pixels; ten million take half a second.
_MAX_LENGTH = 10**7


def read_class_ids(data: bytes, frame: Frame, settings: ConvertSettings) -> Image.Image:
    """Reads a mask of class ids: mode L, or I if an id is above 255.

    In a palette, the ids are the indices, never the colors. In gray masks of any bit depth, the ids are
    the values in the file.

    Args:
      data: Bytes of the mask file.
      frame: Sizes and orientation of the picture.
      settings: Checked settings.

    Raises:
      ImageFault: If the file is not such a mask.
    """
    opened, image = _open(data, frame, settings)
    values = np.asarray(image)
    depth = opened.depth
    if opened.kind == "tiff":
        depth = getattr(image, "tag_v2", {}).get(_TIFF_BITS, (8,))[0]
    if image.mode in ("RGB", "RGBA", "LA"):
        values = _equal_channels(values, image.mode, depth)
    elif image.mode == "1":
        values = values.astype(np.uint8)
    elif image.mode == "L" and depth in (2, 4):
        values = values // (255 // ((1 << depth) - 1))  # the decoder scales them to 8 bits
    elif image.mode not in ("L", "P") and not image.mode.startswith("I"):
        raise bad_annotation(f"it holds pixels of mode {image.mode}, not class ids")
    if values.dtype == np.uint8:
        return Image.fromarray(values)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > HIGHEST[1]:
        raise bad_annotation(f"its ids run from {low} to {high}; they must be between 0 and 65535")
    return narrow(values)


def read_segments(data: bytes, frame: Frame, settings: ConvertSettings) -> Image.Image:
    """Reads the segment ids of a panoptic mask, R + 256 G + 65536 B, as a picture in mode I.

    Args:
      data: Bytes of the mask file.
      frame: Sizes and orientation of the picture.
      settings: Checked settings.

    Raises:
      ImageFault: If the file is not such a mask.
    """
    opened, image = _open(data, frame, settings)
    if opened.depth == 16:
        raise bad_annotation("it has 16 bits per channel; segment ids need a PNG with 8 bits per channel")
    if image.mode == "L":  # if all ids are below 256, two channels are empty, and some tools omit them
        return image.convert("I")
    if image.mode not in ("RGB", "RGBA"):
        raise bad_annotation(f"it holds pixels of mode {image.mode}, not segment ids in red, green and blue")
    red, green, blue = (np.asarray(channel, np.int32) for channel in image.split()[:3])
    return Image.fromarray(red | green << 8 | blue << 16)


def mask_bytes(uri: str, place: str, settings: ConvertSettings, size: int = -1, version: str = "") -> bytes:
    """Reads a mask's file.

    Args:
      uri: Path or URL of the file.
      place: The part of the file that holds the mask; empty for the whole file.
      settings: Checked settings.
      size: Size of the file in bytes when it was listed; -1 if unknown.
      version: The storage's version of the file when it was listed; empty if unknown.

    Raises:
      ImageFault: If the file is missing, forbidden or too large.
      EngineError: If the file changed since it was listed, or the storage failed.
    """
    ref = ImageRef(key=uri, uri=uri, place=place, size=-1 if place else size, version=version)
    return read_image(ref, settings.max_source_bytes)


@contextlib.contextmanager
def faults_of_mask(uri: str) -> Iterator[None]:
    """Turns the faults of a mask's file into faults of its image."""
    try:
        yield
    except ImageFault as fault:
        raise bad_annotation(f"its mask {printable(uri.rpartition('/')[2])}: {fault.message}") from None


def place_mask(mask: Image.Image, frame: Frame, fill: int = 0, upright: bool | None = None) -> Image.Image:
    """Applies the picture's steps to a mask: rotates, crops, resamples (nearest) and pads it.

    Args:
      mask: Mask in any mode.
      frame: The steps from the source image to the stored image.
      fill: Value of padded pixels.
      upright: Whether the mask is for the upright picture; None to decide by its size.

    Raises:
      ImageFault: If the mask and the picture differ in size.
    """
    return resize_and_pad(turned(mask, frame, upright), frame.geometry, frame.geometry.box, "nearest", fill)


def turned(mask: Image.Image, frame: Frame, upright: bool | None = None) -> Image.Image:
    """Rotates a mask upright, unless it is upright already.

    Raises:
      ImageFault: If the mask and the picture differ in size.
    """
    if upright is None:
        upright = is_upright(mask.size, frame, "it has")
    return mask if upright else decode.upright(mask, frame.orientation)


def narrow(values: np.ndarray) -> Image.Image:
    """Returns ids as a picture: mode L, or I if an id is above 255.

    Raises:
      ImageFault: If an id does not fit into 16 bits.
    """
    high = int(values.max())
    if high > HIGHEST[1]:
        raise bad_annotation(f"the id {high} is above 65535 and does not fit into a mask of 16 bits")
    return Image.fromarray(values.astype(np.uint8 if high <= HIGHEST[0] else np.int32))


def encode_mask(mask: Image.Image) -> bytes:
    """Encodes a mask as a gray PNG: 8 bits for mode L, 16 bits for mode I."""
    if mask.mode == "I":
        mask = Image.fromarray(np.asarray(mask).astype(np.uint16))
    out = io.BytesIO()
    # Masks consist of runs: this strategy takes half the time and gives no larger files.
    mask.save(out, "PNG", compress_type=zlib.Z_RLE)
    return out.getvalue()


def encode_object_mask(mask: Image.Image) -> bytes:
    """Encodes the mask of an object (mode L) as a gray 8-bit PNG.

    An image may have many, and Pillow holds the interpreter lock while it encodes a PNG. A PNG consists of a
    header, deflated rows that each begin with a filter number (none), and an end.
    """
    rows = np.zeros((mask.height, mask.width + 1), np.uint8)
    rows[:, 1:] = np.asarray(mask)
    deflate = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, strategy=zlib.Z_RLE)
    head = struct.pack(">IIBBBBB", mask.width, mask.height, 8, 0, 0, 0, 0)  # 8 bits, gray
    chunks = ((b"IHDR", head), (b"IDAT", deflate.compress(rows.data) + deflate.flush()), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


def _open(data: bytes, frame: Frame, settings: ConvertSettings) -> tuple[OpenedImage, Image.Image]:
    """Reads a mask file, and rejects a file that cannot be a mask of the picture by its header."""
    opened = decode.open_image(data, "mask.png", settings.max_pixels, settings.parsed_bounds)
    if opened.is_lossy():
        raise bad_annotation(f"it is lossy {opened.kind}, which changes values; save masks as PNG")
    if opened.kind in _MAYBE_LOSSY:
        raise bad_annotation(f"it is {opened.kind}, which may change values; save masks as PNG")
    is_upright(opened.image.size, frame, "it has")
    return opened, decode.load_checked(opened, settings.max_pixels).image


def _equal_channels(values: np.ndarray, mode: str, depth: int) -> np.ndarray:
    """Returns the single channel of a gray picture that is stored with equal color channels."""
    if depth == 16:
        raise bad_annotation("it has several channels of 16 bits; save ids as a gray PNG")
    colors = values if mode == "RGB" else values[..., :-1]
    first = np.ascontiguousarray(colors[..., 0])
    if mode != "RGB" and not (values[..., -1] == 255).all():
        raise bad_annotation("it is transparent in parts; save ids as a gray or palette PNG without alpha")
    if not (colors == first[..., None]).all():
        raise bad_annotation(
            "it holds colors, not class ids; save it as a gray or palette PNG with the ids as values"
        )
    return first


def outline_box(segmentation: Segmentation, size: tuple[int, int]) -> Box | None:
    """Returns the box around an outline: xmin, ymin, xmax, ymax; None if it encloses nothing.

    Args:
      segmentation: Outline in pixels.
      size: Width and height of the picture that the outline is for.

    Raises:
      BadObject: If the outline is damaged.
    """
    if isinstance(segmentation, Mapping):
        mask = _decode_runs(segmentation, size)
        columns, rows = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
        if not columns.size:
            return None
        return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)
    polygons = _polygons(segmentation, size)
    if not polygons:
        return None
    corners = np.concatenate(polygons).reshape(-1, 2)
    (left, upper), (right, lower) = corners.min(axis=0).tolist(), corners.max(axis=0).tolist()
    return left, upper, right, lower


def scaled_outline(segmentation: Segmentation, size: tuple[int, int]) -> Segmentation:
    """Converts an outline from shares of width and height to pixels; run lengths already are in pixels.

    Raises:
      BadObject: If the outline is damaged.
    """
    if isinstance(segmentation, Mapping):
        return segmentation
    polygons = [_numbers(polygon) for polygon in _list(segmentation)]
    return [(numbers * np.resize(size, len(numbers))).tolist() for numbers in polygons]


def draw_outline(segmentation: Segmentation, size: tuple[int, int]) -> Image.Image:
    """Draws an outline: mode L, 1 inside and 0 outside.

    Args:
      segmentation: Outline in pixels.
      size: Width and height of the picture that the outline is for.

    Raises:
      BadObject: If the outline is damaged.
    """
    width, height = size
    if isinstance(segmentation, Mapping):
        return Image.fromarray(_decode_runs(segmentation, size))
    polygons = _polygons(segmentation, size)
    if not polygons:
        return Image.new("L", size)
    from pycocotools import mask as coco  # type: ignore[import-untyped,unused-ignore]

    runs = coco.merge(coco.frPyObjects([polygon.tolist() for polygon in polygons], height, width))
    return Image.fromarray(np.ascontiguousarray(coco.decode(runs)))


def _polygons(segmentation: Any, size: tuple[int, int]) -> list[np.ndarray]:
    """Returns the polygons that enclose an area."""
    farthest = _MAX_SIDES * max(size)
    polygons = []
    for polygon in _list(segmentation):
        numbers = _numbers(polygon)
        if len(numbers) % 2:
            raise BadObject(f"its outline has {len(numbers)} numbers, an odd count, where pairs are needed")
        if (np.abs(numbers) > farthest).any():
            raise BadObject("its outline is far outside the image")
        if len(numbers) >= _MIN_NUMBERS:
            polygons.append(numbers)
    length = 0.0
    for polygon in polygons:
        corners = polygon.reshape(-1, 2)
        length += float(np.abs(corners - np.roll(corners, 1, axis=0)).max(axis=1).sum())
    if length > _MAX_LENGTH:
        raise BadObject("its outline is too long to be drawn")
    return polygons


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise BadObject("its outline is not a list of polygons")
    return value


def _numbers(polygon: Any) -> np.ndarray:
    listed = _list(polygon)
    try:
        numbers = np.array(listed, np.float64) if {int, float}.issuperset(map(type, listed)) else None
    except OverflowError:
        numbers = None
    if numbers is None or not (np.abs(numbers) < _NO_CORNER).all():
        raise BadObject("its outline contains something that is not a number")
    return numbers


def _decode_runs(value: Mapping[str, Any], size: tuple[int, int]) -> np.ndarray:
    """Decodes run lengths to rows of 0 and 1; runs go down the columns (COCO's maskApi)."""
    width, height = size
    stated_size = value.get("size")
    if not isinstance(stated_size, Sequence) or list(stated_size) != [height, width]:
        raise BadObject(
            f"its mask is for {stated_size} (height, width), but the image has [{height}, {width}]"
        )
    counts = value.get("counts")
    runs = _unpack(counts) if isinstance(counts, (str, bytes)) else _list(counts)
    if not all(isinstance(run, int) and 0 <= run <= width * height for run in runs):
        raise BadObject("its run lengths are damaged")
    if sum(runs) != width * height:
        raise BadObject(f"its run lengths make {sum(runs)} pixels instead of {width * height}")
    ones = np.arange(len(runs), dtype=np.int64) % 2
    return np.ascontiguousarray(np.repeat(ones.astype(np.uint8), runs).reshape(width, height).T)


def _unpack(text: str | bytes) -> list[int]:
    """Unpacks run lengths that COCO stores as text: five bits per character, low bits first.

    From the fourth on, each is stored as its difference from the one before last (cocoapi, maskApi.c,
    rleFrString).
    """
    codes = text if isinstance(text, bytes) else text.encode("ascii", "replace")
    runs: list[int] = []
    position = 0
    while position < len(codes):
        value = shift = 0
        more = True
        while more:
            if position == len(codes) or not 48 <= codes[position] < 112 or shift > 60:
                raise BadObject("its run lengths are damaged")
            code = codes[position] - 48
            value |= (code & 0x1F) << shift
            more = bool(code & 0x20)
            position += 1
            shift += 5
            if not more and code & 0x10:
                value |= -1 << shift
        runs.append(value + runs[-2] if len(runs) > 2 else value)
    return runs
