"""Opens and decodes one image from its bytes; every failure is an `ImageFault` with its reason."""

from __future__ import annotations

import contextlib
import io
import math
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from PIL import Image, UnidentifiedImageError
from PIL.Image import DecompressionBombError, DecompressionBombWarning, Transpose

from shardwright.schemas.codes import FilterReason, QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault, NotACandidate
from shardwright.transforms.images.signatures import (
    HEAD_BYTES,
    SUPPORTED_KINDS,
    WITHOUT_SIGNATURE,
    claims_to_be_image,
    is_image_name,
    kind_of,
    unsupported_kind_by_name,
)

#: EXIF orientation (TIFF 6.0, tag 274) -> what brings the stored pixels upright.
_UPRIGHT = {
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}
_SWAPS_SIDES = frozenset((5, 6, 7, 8))
#: Orientations after which the stored right (or lower) edge lies on the left (or upper) side.
_MIRRORS_X = frozenset((2, 3, 6, 7))
_MIRRORS_Y = frozenset((3, 4, 7, 8))
_PLANAR_CONFIGURATION = 284
_ORIENTATION_TAG = 274
#: Where a PNG says how many bits a channel has (PNG specification, 11.2.1).
_PNG_BIT_DEPTH = 24
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
#: Length, type and checksum of a PNG chunk.
_PNG_CHUNK_BYTES = 12
#: How uncompressed XMP begins (XMP specification part 3, 1.1.5).
_PNG_XMP = b"XML:com.adobe.xmp\0\0\0"
_SIGNS_OF_TRUNCATION = ("truncated", "unexpected end", "buffer is not large enough")


@dataclass
class OpenedImage:
    """An image whose header was read; its pixels are not decoded yet.

    Attributes:
      image: Pillow's lazy image.
      kind: the format told from the bytes.
      orientation: EXIF orientation, 1 to 8.
      animated: whether there are more frames than the first.
      depth: bits of a channel in the file, as far as it is known (PNG), else 8.
    """

    image: Image.Image
    kind: str
    orientation: int
    animated: bool
    depth: int = 8

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the upright picture, in pixels, before any reduction."""
        width, height = self.image.size
        return (height, width) if self.orientation in _SWAPS_SIDES else (width, height)


def limit_pixels(max_pixels: int) -> None:
    """Makes Pillow refuse pictures above `max_pixels` in this process, warning or not.

    What it has to say about broken metadata stays off the screen.
    """
    Image.MAX_IMAGE_PIXELS = max_pixels
    warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
    warnings.simplefilter("error", DecompressionBombWarning)


@contextlib.contextmanager
def _faults_of(kind: str, max_pixels: int) -> Iterator[None]:
    """Turns whatever a decoder raises into the `ImageFault` that names the reason."""
    try:
        yield
    except (ImageFault, MemoryError):
        raise
    except (DecompressionBombError, DecompressionBombWarning):
        raise ImageFault(
            QuarantineReason.TOO_MANY_PIXELS, Stage.DECODE, f"more than {max_pixels} pixels"
        ) from None
    except UnidentifiedImageError:
        raise ImageFault(
            QuarantineReason.CORRUPT, Stage.DECODE, f"begins like {kind} but its header is damaged"
        ) from None
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        truncated = isinstance(error, EOFError) or any(sign in text.lower() for sign in _SIGNS_OF_TRUNCATION)
        reason = QuarantineReason.TRUNCATED if truncated else QuarantineReason.CORRUPT
        raise ImageFault(reason, Stage.DECODE, f"{kind}: {text[:200]}") from error


def check_kind(head: bytes, name: str) -> str:
    """Returns the kind of image that a file is by content.

    Args:
      head: the file's first bytes, `HEAD_BYTES` of them or all there are.
      name: its name, for what it claims to be.

    Raises:
      ImageFault: if it is an image by content or by name, and cannot be decoded.
      NotACandidate: if it is neither.
    """
    kind = kind_of(head)
    named = unsupported_kind_by_name(name)
    if kind == "tiff" and named == "camera_raw":
        kind = named  # what a TIFF decoder finds there is a small preview
    if kind in SUPPORTED_KINDS:
        return kind
    if kind:
        advice = "whatever its name says; " if claims_to_be_image(name) else "a format that is not read; "
        raise ImageFault(
            QuarantineReason.UNSUPPORTED_FORMAT,
            Stage.DECODE,
            f"it is {kind}, {advice}convert it to JPEG or PNG",
        )
    if not is_image_name(name):
        raise NotACandidate(FilterReason.NOT_AN_IMAGE)
    if head and named in WITHOUT_SIGNATURE:
        raise ImageFault(
            QuarantineReason.UNSUPPORTED_FORMAT,
            Stage.DECODE,
            f"its name says {named}, a format that is not read; convert it to JPEG or PNG",
        )
    raise no_image(head)


def no_image(data: bytes) -> ImageFault:
    """Returns the fault of bytes that are called an image and are not one."""
    if not data:
        return ImageFault(QuarantineReason.EMPTY_FILE, Stage.READ, "the file has no bytes")
    message = "its bytes are those of no known image format"
    return ImageFault(QuarantineReason.NOT_AN_IMAGE, Stage.DECODE, message)


def open_image(data: bytes, name: str, max_pixels: int) -> OpenedImage:
    """Reads an image's header.

    Args:
      data: the whole file.
      name: its name or key.
      max_pixels: width x height above which it is refused.

    Raises:
      ImageFault: if it cannot be opened or is too large.
      NotACandidate: if it is no image and does not claim to be one.
    """
    kind = check_kind(data[:HEAD_BYTES], name)
    with _faults_of(kind, max_pixels):
        image = Image.open(io.BytesIO(data), formats=(SUPPORTED_KINDS[kind],))
        width, height = image.size
        if width * height > max_pixels:
            raise ImageFault(
                QuarantineReason.TOO_MANY_PIXELS,
                Stage.DECODE,
                f"{width} x {height} pixels are more than {max_pixels}; raise --max_pixels to take it",
            )
        if width < 1 or height < 1:
            raise ImageFault(QuarantineReason.CORRUPT, Stage.DECODE, f"{width} x {height} pixels")
        if kind == "png":
            for field, content in _check_png(data).items():
                image.info.setdefault(field, content)
        if kind == "tiff":
            _check_tiff(image)
        depth = data[_PNG_BIT_DEPTH] if kind == "png" else 8
        return OpenedImage(image, kind, _orientation(image, kind), _is_animated(image, kind), depth)


def _check_png(data: bytes) -> dict[str, bytes]:
    """Compares the checksums of a PNG's picture data, which Pillow does not.

    A damaged byte often decodes to other pixels of the same number; readers built on libpng refuse
    such a file.

    Returns:
      The `exif` and `xmp` that stand behind the picture data, where Pillow has not read yet.
    """
    view = memoryview(data)
    position = len(_PNG_SIGNATURE)
    seen_picture = False
    late: dict[str, bytes] = {}
    while position + _PNG_CHUNK_BYTES <= len(data):
        size = int.from_bytes(view[position : position + 4], "big")
        end = position + _PNG_CHUNK_BYTES + size
        if end > len(data):
            break  # cut off: the decoder says so
        kind = bytes(view[position + 4 : position + 8])
        if kind == b"IEND":
            break
        if seen_picture and kind == b"eXIf":
            late["exif"] = b"Exif\0\0" + bytes(view[position + 8 : end - 4])
        elif seen_picture and kind == b"iTXt":
            content = bytes(view[position + 8 : end - 4])
            if content.startswith(_PNG_XMP):
                late["xmp"] = content[len(_PNG_XMP) :].rpartition(b"\0")[2]
        if kind == b"IDAT":
            seen_picture = True
            stored = int.from_bytes(view[end - 4 : end], "big")
            if zlib.crc32(view[position + 4 : end - 4]) != stored:
                raise ImageFault(
                    QuarantineReason.CORRUPT,
                    Stage.DECODE,
                    f"png: the checksum of the picture data at byte {position} is wrong",
                )
        position = end
    return late


def _check_tiff(image: Image.Image) -> None:
    """Refuses a JPEG in a TIFF of which Pillow and libtiff do not agree how its pixels lie.

    Pillow takes a value of another type than the format has for "in planes", libtiff for none: the pixels
    would come from memory that nobody wrote, others each time.
    """
    planes = getattr(image, "tag_v2", {}).get(_PLANAR_CONFIGURATION, 1)
    if planes not in (1, 2) and image.info.get("compression") == "jpeg":
        message = f"tiff: its planar configuration is {planes!r}, neither 1 nor 2"
        raise ImageFault(QuarantineReason.CORRUPT, Stage.DECODE, message)


def _orientation(image: Image.Image, kind: str) -> int:
    """Returns the EXIF orientation, 1 where there is none or it cannot be read."""
    if kind == "tiff" or (kind == "jpeg" and "exif" not in image.info and "xmp" not in image.info):
        return 1  # Pillow turns TIFF upright itself
    try:
        # Not the PNG plugin's own method, which would decode the picture to look behind it.
        value = Image.Image.getexif(image).get(_ORIENTATION_TAG, 1)
    except MemoryError:
        raise
    except Exception:  # broken metadata says nothing about the pixels
        return 1
    return value if value in _UPRIGHT else 1


def _is_animated(image: Image.Image, kind: str) -> bool:
    """Whether there is a second frame; it is not decoded."""
    if kind == "jpeg":
        return False  # a multi-picture JPEG is one photograph and its previews
    try:
        if kind == "tiff":
            try:
                image.seek(1)
            except EOFError:
                return False
            finally:
                image.seek(0)
            return True
        return bool(getattr(image, "is_animated", False))
    except MemoryError:
        raise
    except Exception:  # what follows the first frame is not used
        return False


def reduce_jpeg(opened: OpenedImage, factor: int) -> int:
    """Asks for DCT-scaled decoding by 1/`factor`; returns the factor that will be used."""
    width, height = opened.image.size
    if factor == 1 or opened.kind != "jpeg" or min(width, height) < factor:
        return 1
    if opened.image.draft(None, (width // factor, height // factor)) is None:
        return 1
    reduced = (math.ceil(width / factor), math.ceil(height / factor))
    return factor if opened.image.size == reduced else 1


def load(opened: OpenedImage, max_pixels: int) -> Image.Image:
    """Decodes the pixels of the first frame, as stored.

    Raises:
      ImageFault: if they cannot be decoded.
    """
    with _faults_of(opened.kind, max_pixels):
        opened.image.load()
        _scale_transparency(opened.image, opened.depth)
        return opened.image


def _scale_transparency(image: Image.Image, depth: int) -> None:
    """Brings the transparent colour that a PNG names to the scale of its decoded pixels.

    Pillow leaves it in the file's own depth. Of 16-bit RGB only the upper bytes are decoded, so
    neighbours of the colour within one level of 8 bits go with it.
    """
    key = image.info.get("transparency")
    if isinstance(key, str):  # a text chunk of that name
        del image.info["transparency"]
    elif isinstance(key, int) and image.mode == "L" and depth < 8:
        image.info["transparency"] = (key & (1 << depth) - 1) * (255 // ((1 << depth) - 1))
    elif isinstance(key, tuple) and depth == 16:
        image.info["transparency"] = tuple(value >> 8 for value in key)


def upright(image: Image.Image, orientation: int) -> Image.Image:
    """Returns the picture with its EXIF orientation applied to the pixels."""
    method = _UPRIGHT.get(orientation)
    return image if method is None else image.transpose(method)


def reduced_box(
    box: tuple[float, float, float, float],
    upright_size: tuple[int, int],
    reduced_size: tuple[int, int],
    factor: int,
    orientation: int,
) -> tuple[float, float, float, float]:
    """Maps a box of the upright picture into its DCT-scaled version.

    A scaled JPEG has ceil(side / factor) pixels, of which the last may be covered in part; after
    a mirroring orientation that part lies on the left or upper side.
    """
    if factor == 1:
        return box
    pad_x = reduced_size[0] - upright_size[0] / factor if orientation in _MIRRORS_X else 0.0
    pad_y = reduced_size[1] - upright_size[1] / factor if orientation in _MIRRORS_Y else 0.0
    left, upper, right, lower = (side / factor for side in box)
    return (
        left + pad_x,
        upper + pad_y,
        min(right + pad_x, reduced_size[0]),
        min(lower + pad_y, reduced_size[1]),
    )
