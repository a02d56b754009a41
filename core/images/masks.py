"""Reads masks with a class or a segment for every pixel, and maps them to the stored picture."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib
from collections.abc import Iterator

import numpy as np
from PIL import Image

from shardwright.core.images import decode
from shardwright.core.images.boxes import bad_annotation, is_upright
from shardwright.core.images.formats.opened_image import OpenedImage
from shardwright.core.images.geometry import Frame, place
from shardwright.core.images.read import read_image
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import ImageRef, printable

#: Largest id of an 8-bit and of a 16-bit mask. It marks padding, like DeepLab's "ignore" label.
_HIGHEST = (0xFF, 0xFFFF)
#: TIFF tag BitsPerSample (TIFF 6.0, tag 258).
_TIFF_BITS = 258


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
    opened = _open(data, frame, settings)
    image = decode.load(opened, settings.max_pixels)
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
    if low < 0 or high > _HIGHEST[1]:
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
    opened = _open(data, frame, settings)
    image = decode.load(opened, settings.max_pixels)
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
      ImageFault: If the size of the mask differs from that of the picture.
    """
    return place(turned(mask, frame, upright), frame.geometry, frame.geometry.box, "nearest", fill)


def turned(mask: Image.Image, frame: Frame, upright: bool | None = None) -> Image.Image:
    """Rotates a mask upright, unless it is upright already.

    Raises:
      ImageFault: If the size of the mask differs from that of the picture.
    """
    if upright is None:
        upright = is_upright(mask.size, frame, "it has")
    return mask if upright else decode.upright(mask, frame.orientation)


def place_class_ids(mask: Image.Image, frame: Frame) -> Image.Image:
    """Applies `place_mask` to class ids; padding gets the highest id that the mask's bits can hold."""
    return place_mask(mask, frame, _HIGHEST[mask.mode != "L"])


def narrow(values: np.ndarray) -> Image.Image:
    """Returns ids as a picture: mode L, or I if an id is above 255.

    Raises:
      ImageFault: If an id does not fit into 16 bits.
    """
    high = int(values.max())
    if high > _HIGHEST[1]:
        raise bad_annotation(f"the id {high} is above 65535 and does not fit into a mask of 16 bits")
    return Image.fromarray(values.astype(np.uint8 if high <= _HIGHEST[0] else np.int32))


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


def _open(data: bytes, frame: Frame, settings: ConvertSettings) -> OpenedImage:
    """Reads the header of a mask file, and rejects a file that cannot be a mask of the picture."""
    opened = decode.open_image(data, "mask.png", settings.max_pixels, settings.parsed_bounds)
    if opened.kind == "jpeg":
        raise bad_annotation(f"it is {opened.kind}, which changes values; save masks as PNG")
    is_upright(opened.image.size, frame, "it has")
    return opened


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
