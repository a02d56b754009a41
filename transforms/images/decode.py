"""Opens and decodes one image from its bytes; every failure is an `ImageFault` with its reason."""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.Image import DecompressionBombError, DecompressionBombWarning, Transpose
from PIL.TiffImagePlugin import TiffImageFile

from shardwright.schemas.bounds import DEFAULT_BOUNDS, Bounds
from shardwright.schemas.codes import FilterReason, QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault, NotACandidate, words_of
from shardwright.schemas.image_formats import SUPPORTED_KINDS, WITHOUT_SIGNATURE
from shardwright.transforms.images import (
    deep_pixels,
    gif,
    heif,
    jpeg,
    jpeg2000,
    jpeg_xl,
    memory,
    png,
    pnm,
    tiff,
    webp,
)
from shardwright.transforms.images.bounds import check_exif, check_structure, check_work
from shardwright.transforms.images.deep_header import (
    FLOAT32,
    UINT8,
    UINT16,
    DeepHeader,
    png_header,
    tiff_header,
)
from shardwright.transforms.images.pillow_settings import pillow_settings
from shardwright.transforms.images.plugin_decoders import open_with_plugin, plugin_kind
from shardwright.transforms.images.signatures import (
    HEAD_BYTES,
    claims_to_be_image,
    is_image_name,
    kind_of,
    unsupported_kind_by_name,
)

#: Format -> the name of the plugin of Pillow that may open it.
_PLUGINS = {
    "jpeg": "JPEG",
    "png": "PNG",
    "webp": "WEBP",
    "gif": "GIF",
    "bmp": "BMP",
    "tiff": "TIFF",
    "avif": "AVIF",
    "ppm": "PPM",
    "jpeg2000": "JPEG2000",
}
#: EXIF orientation (TIFF 6.0, tag 274) -> operation that makes the stored pixels upright.
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
_ORIENTATION_TAG = 274
#: Position of the bits per channel in a PNG (PNG specification, 11.2.1).
_PNG_BIT_DEPTH = 24
#: Bytes of a PNG up to the end of its header's fields.
_PNG_HEADER_BYTES = 29
#: For sides below this number of pixels, two scales of libjpeg can give pictures of the same size.
_SMALLEST_SCALED_SIDE = 8
#: The number of pixels in Pillow's message about a picture that is too large.
_PIXELS_IN_MESSAGE = re.compile(r"\((\d+) pixels\)")
_SIGNS_OF_TRUNCATION = ("truncated", "unexpected end", "buffer is not large enough")


@dataclass
class OpenedImage:
    """An image whose header was read, and whose pixels are not decoded yet.

    Attributes:
      image: Pillow's lazy image.
      kind: format of the image, detected from its bytes.
      orientation: EXIF orientation, 1 to 8.
      animated: whether the file has more than one frame.
      data: the whole file.
      depth: bits per channel in the file if known (PNG, JPEG 2000), else 8.
      png_pixels: the compressed pixels of a PNG.
      factor: factor by which `reduce_jpeg` will reduce each side.
      bounds: limits on the parts of the file.
      coefficient_bytes: number of bytes that libjpeg keeps until it has read all scans.
      jxl: header of a JPEG XL.
      unpacked: whether it is the JPEG inside of a JPEG XL; `data` is that JPEG.
      deep: the samples of a picture that is decoded by `load_samples`; None for one that Pillow holds.
      scaled: 16-bit samples that `load_checked` scales to 8 bits, because their white is stated; else None.
    """

    image: Image.Image
    kind: str
    orientation: int
    animated: bool
    data: bytes
    depth: int = 8
    png_pixels: Sequence[memoryview] = ()
    factor: int = 1
    bounds: Bounds = DEFAULT_BOUNDS
    coefficient_bytes: int = 0
    jxl: jpeg_xl.Header | None = None
    unpacked: bool = False
    deep: DeepHeader | None = None
    scaled: DeepHeader | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the upright picture, in pixels, before any reduction."""
        width, height = self.image.size
        return (height, width) if self.orientation in _SWAPS_SIDES else (width, height)


@contextlib.contextmanager
def _faults_of(kind: str, max_pixels: int) -> Iterator[None]:
    """Sets Pillow's size limit, and turns any exception of a decoder into an `ImageFault`."""
    try:
        with pillow_settings(max_pixels):
            yield
    except (ImageFault, MemoryError):
        raise
    except (DecompressionBombError, DecompressionBombWarning) as error:
        pixels = _PIXELS_IN_MESSAGE.search(str(error))
        raise _too_many_pixels(pixels[1] if pixels else "its", max_pixels) from None
    except UnidentifiedImageError:
        raise ImageFault(
            QuarantineReason.CORRUPT, Stage.DECODE, f"begins like {kind} but its header is damaged"
        ) from None
    except Exception as error:
        text = words_of(error)
        truncated = isinstance(error, EOFError) or any(sign in text.lower() for sign in _SIGNS_OF_TRUNCATION)
        reason = QuarantineReason.TRUNCATED if truncated else QuarantineReason.CORRUPT
        raise ImageFault(reason, Stage.DECODE, f"{kind}: {text}") from error


def _too_many_pixels(pixels: int | str, max_pixels: int) -> ImageFault:
    message = f"{pixels} pixels are more than {max_pixels}; raise --max_pixels to accept it"
    return ImageFault(QuarantineReason.TOO_MANY_PIXELS, Stage.DECODE, message)


def check_kind(head: bytes, name: str, skipped: Collection[str] = ()) -> str:
    """Returns the format of an image file, detected from its content.

    Args:
      head: the first `HEAD_BYTES` bytes of the file, or all if it is shorter.
      name: its name; only the extension is used.
      skipped: formats that a user leaves out.

    Raises:
      ImageFault: if it is an image by content or by name, but cannot be decoded.
      NotACandidate: if it is not an image by content or by name, or its format is skipped.
    """
    kind = kind_of(head)
    named = unsupported_kind_by_name(name)
    if kind == "tiff" and named == "camera_raw":
        kind = named  # a TIFF decoder would find only a small preview
    by_name = named if named in WITHOUT_SIGNATURE and head else None
    if (kind or by_name) in skipped:
        raise NotACandidate(FilterReason.SKIPPED_FORMAT)
    if kind in SUPPORTED_KINDS:
        return kind
    if head and (added := plugin_kind(head)) is not None:
        return added
    if kind:
        advice = "whatever its name says; " if claims_to_be_image(name) else "a format that is not read; "
        raise ImageFault(
            QuarantineReason.UNSUPPORTED_FORMAT,
            Stage.DECODE,
            f"it is {_usual_name(kind)}, {advice}convert it to JPEG or PNG",
        )
    if not is_image_name(name):
        raise NotACandidate(FilterReason.NOT_AN_IMAGE)
    if by_name:
        raise ImageFault(
            QuarantineReason.UNSUPPORTED_FORMAT,
            Stage.DECODE,
            f"its name says {_usual_name(by_name)}, a format that is not read; convert it to JPEG or PNG",
        )
    raise no_image(head)


def _usual_name(kind: str) -> str:
    """Returns the usual name of an image format."""
    return "HEIC (HEIF)" if kind == "heif" else kind.replace("_", " ")


def no_image(data: bytes) -> ImageFault:
    """Returns the fault of a file that is named like an image and is not one."""
    if not data:
        return ImageFault(QuarantineReason.EMPTY_FILE, Stage.READ, "the file has no bytes")
    message = "its bytes are not in a known image format"
    return ImageFault(QuarantineReason.NOT_AN_IMAGE, Stage.DECODE, message)


def open_image(
    data: bytes,
    name: str,
    max_pixels: int,
    bounds: Bounds = DEFAULT_BOUNDS,
    skipped: Collection[str] = (),
    keep_depth: bool = False,
    all_channels: bool = False,
    white: int = 0,
) -> OpenedImage:
    """Reads an image's header.

    Args:
      data: the whole file.
      name: its name or key.
      max_pixels: largest width x height that is accepted.
      bounds: limits on the parts of the file.
      skipped: formats that a user leaves out.
      keep_depth: whether to read more than 8 bits per channel with `load_samples`.
      all_channels: whether to read all channels with `load_samples`.
      white: 16-bit sample that becomes white in 8 bits; 0 if it is not stated.

    Raises:
      ImageFault: if the image cannot be opened, is too large or has too many parts.
      NotACandidate: if the file is not an image by content or by name, or its format is skipped.
    """
    kind = check_kind(data[:HEAD_BYTES], name, skipped)
    if kind == "tiff" and (keep_depth or all_channels):
        header = _tiff_header(data, max_pixels, bounds).with_white(white)
        if all_channels or header.dtype != UINT8:
            return _opened_tiff(data, header, bounds)
    try:
        opened = _open_image(data, kind, max_pixels, bounds)
    except ImageFault as fault:
        if kind == "tiff" and fault.reason is QuarantineReason.CORRUPT:
            unidentified = isinstance(fault.__context__, UnidentifiedImageError)
            _refuse_other_samples(data, max_pixels, bounds, unidentified)
        raise
    if isinstance(opened.image, TiffImageFile) and tiff.hides_channels(opened.image):
        _refuse_other_samples(data, max_pixels, bounds, unidentified=True)
    if keep_depth or all_channels or white:
        deep = _deep_header(opened)
        if keep_depth or all_channels:
            opened.deep = deep.with_white(white) if deep is not None else None
        elif kind == "tiff":
            return _with_white(opened, white, max_pixels)
        elif deep is not None and deep.has_whole_range:
            opened.scaled = deep.with_white(white)
    if all_channels and opened.deep is None:
        # A palette has one channel: its numbers are not colors.
        channels = len(opened.image.getbands())
        opened.deep = DeepHeader(UINT8, channels, opened.image.size, highest=255)
    return opened


def _deep_header(opened: OpenedImage) -> DeepHeader | None:
    """Returns the samples of a picture that Pillow opened, if they have more than 8 bits and can be kept."""
    image, data = opened.image, opened.data
    if opened.kind == "png":
        return png_header(data, image.size, "transparency" in image.info)
    bands = image.getbands()
    if opened.kind == "jpeg2000" and opened.depth > 8:
        alpha = "straight" if bands[-1] == "A" else ""
        return DeepHeader(UINT16, len(bands), image.size, (1 << opened.depth) - 1, alpha)
    if opened.kind == "ppm" and (highest := pnm.highest_value(data)) > 255:
        return DeepHeader(UINT16, len(bands), image.size, highest)
    return None


def _with_white(opened: OpenedImage, white: int, max_pixels: int) -> OpenedImage:
    """Returns a TIFF that Pillow opened, with its own samples if they have 16 bits.

    Raises:
      ImageFault: if its channels are neither gray nor RGB.
    """
    try:
        header = _tiff_header(opened.data, max_pixels, opened.bounds)
    except ImageFault:
        return opened  # samples of a type that only Pillow reads
    if not header.has_whole_range:
        return opened
    if header.problem:
        raise ImageFault(QuarantineReason.UNSUPPORTED_FORMAT, Stage.DECODE, header.problem)
    own = _opened_tiff(opened.data, header, opened.bounds)
    return replace(own, deep=None, scaled=header.with_white(white))


def _tiff_header(data: bytes, max_pixels: int, bounds: Bounds) -> DeepHeader:
    with _faults_of("tiff", max_pixels):
        check_structure(data, "tiff", bounds)
        header = tiff_header(data)
        width, height = header.size
        if width * height > max_pixels:
            raise _too_many_pixels(width * height, max_pixels)
        if width < 1 or height < 1:
            raise ImageFault(QuarantineReason.CORRUPT, Stage.DECODE, f"{width} x {height} pixels")
        return header


def _refuse_other_samples(data: bytes, max_pixels: int, bounds: Bounds, unidentified: bool) -> None:
    """Raises the fault of a sound TIFF whose samples have a type or meaning that Pillow does not read.

    Args:
      data: the whole file.
      max_pixels: largest width x height that is accepted.
      bounds: limits on the parts of the file.
      unidentified: whether Pillow knows no mode for the samples.
    """
    try:
        header = _tiff_header(data, max_pixels, bounds)
    except ImageFault as fault:
        if fault.reason is QuarantineReason.UNSUPPORTED_FORMAT:
            raise
        return  # it is damaged, as Pillow says
    problem = header.problem
    if not problem and unidentified and (header.dtype != UINT8 or header.channels not in (1, 3)):
        option = "--depth keep" if header.dtype != UINT8 else f"--channels {header.channels}"
        problem = f"tiff: pixels of {header.channels} x {header.sample_type} are only read with {option}"
    if problem:
        raise ImageFault(QuarantineReason.UNSUPPORTED_FORMAT, Stage.DECODE, problem) from None


def _opened_tiff(data: bytes, header: DeepHeader, bounds: Bounds) -> OpenedImage:
    """Returns a TIFF whose samples Pillow does not hold: its picture has a size, but no pixels."""
    image = Image.Image()
    image._size, image._mode = header.size, "F"
    assert header.tags is not None
    return OpenedImage(image, "tiff", 1, header.tags.next > 0, data, bounds=bounds, deep=header)


def _open_image(data: bytes, kind: str, max_pixels: int, bounds: Bounds) -> OpenedImage:
    """Reads the header of an image that Pillow or a plugin decodes."""
    if kind == "jpeg_xl":
        return _open_jpeg_xl(data, max_pixels, bounds)
    with _faults_of(kind, max_pixels):
        check_structure(data, kind, bounds)
        image, depth = _open(data, kind, max_pixels, bounds)
        width, height = image.size
        if width * height > max_pixels:
            raise _too_many_pixels(width * height, max_pixels)
        if width < 1 or height < 1:
            raise ImageFault(QuarantineReason.CORRUPT, Stage.DECODE, f"{width} x {height} pixels")
        check_work(data, kind, (width, height), bounds)
        pixels: Sequence[memoryview] = ()
        if kind == "png":
            chunks = png.read_chunks(data)
            pixels = chunks.pixels
            for field, content in chunks.late_metadata.items():
                image.info.setdefault(field, content)
        orientation, animated = _orientation(image, kind, bounds), _is_animated(image, kind)
        coefficients = memory.coefficient_bytes(data) if kind == "jpeg" else 0
        return OpenedImage(
            image, kind, orientation, animated, data, depth, pixels,
            bounds=bounds, coefficient_bytes=coefficients,
        )  # fmt: skip


def _open(data: bytes, kind: str, max_pixels: int, bounds: Bounds) -> tuple[Image.Image, int]:
    """Returns an image that is not decoded, and its bits per channel if they are known, else 8."""
    if kind == "heif":
        return heif.open_heif(data, max_pixels, bounds), 8
    if kind not in SUPPORTED_KINDS:
        return open_with_plugin(data, kind), 8
    depth, profile = 8, b""
    if kind == "jpeg2000":
        (width, height), depth, profile = jpeg2000.read_header(data, max_pixels, bounds)
        if width * height > max_pixels:
            raise _too_many_pixels(width * height, max_pixels)
    image = Image.open(io.BytesIO(data), formats=(_PLUGINS[kind],))
    if kind == "png":
        depth = data[_PNG_BIT_DEPTH]
    if profile:
        image.info["icc_profile"] = profile
    return image, depth


def _open_jpeg_xl(data: bytes, max_pixels: int, bounds: Bounds) -> OpenedImage:
    """Reads the header of a JPEG XL. One that was made from a JPEG is decoded as that JPEG."""
    with _faults_of("jpeg_xl", max_pixels):
        header = jpeg_xl.read_header(data, bounds)
        width, height = header.size
        if width * height > max_pixels:
            raise _too_many_pixels(width * height, max_pixels)
        original = jpeg_xl.original_jpeg(data) if header.is_jpeg else b""
    if original:
        return replace(open_image(original, "", max_pixels, bounds), unpacked=True)
    # Pillow has no plugin: this picture has a size and a mode, but no pixels.
    image = Image.Image()
    image._size, image._mode = header.size, header.mode
    return OpenedImage(image, "jpeg_xl", 1, header.is_animated, data, bounds=bounds, jxl=header)


def _orientation(image: Image.Image, kind: str, bounds: Bounds) -> int:
    """Returns the EXIF orientation; 1 if there is none or it cannot be read."""
    if kind in ("heif", "jpeg2000"):
        return 1  # libheif rotates itself, and JPEG 2000 has no orientation
    if kind == "tiff" or (kind == "jpeg" and "exif" not in image.info and "xmp" not in image.info):
        return 1  # Pillow rotates TIFFs itself
    check_exif(image.info, bounds)
    try:
        # The PNG plugin's own method would decode the picture to read the chunks after it.
        value = Image.Image.getexif(image).get(_ORIENTATION_TAG, 1)
    except MemoryError:
        raise
    except Exception:  # the pixels may be sound despite broken metadata
        return 1
    return value if value in _UPRIGHT else 1


def _is_animated(image: Image.Image, kind: str) -> bool:
    """Returns whether there is a second frame, without decoding it."""
    if kind == "jpeg":
        return False  # a multi-picture JPEG holds one photograph and its previews
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
    except Exception:  # only the first frame is used
        return False


def reduce_jpeg(opened: OpenedImage, factor: int) -> int:
    """Requests DCT-scaled decoding by 1/`factor`; returns the factor that will be used."""
    width, height = opened.image.size
    if factor == 1 or opened.kind != "jpeg" or min(width, height) < factor:
        return 1
    if max(width, height) < _SMALLEST_SCALED_SIDE:
        return 1
    reduced = (math.ceil(width / factor), math.ceil(height / factor))
    if opened.image.draft(None, (width // factor, height // factor)) is None:
        return 1
    opened.factor = factor if opened.image.size == reduced else 1
    return opened.factor


@dataclass(frozen=True, slots=True)
class LoadedImage:
    """Decoded pixels and the decoder's warnings about them.

    Attributes:
      image: the pixels of the first frame, as stored.
      note: a harmless irregularity of the file; empty for none.
      damage: why a part of the pixels is missing; empty unless damaged images are kept.
    """

    image: Image.Image
    note: str = ""
    damage: str = ""


def decoder_bytes(opened: OpenedImage) -> int:
    """Returns the largest number of bytes that decoding an image can take, after `reduce_jpeg`."""
    deep = opened.deep or opened.scaled
    if deep is not None and deep.tags is not None:
        return deep.decoded_bytes
    if opened.jxl is not None:
        return memory.jpeg_xl_bytes(*opened.jxl.size, opened.jxl.channels)
    needed = memory.decoder_bytes(
        opened.image, opened.kind, opened.data, opened.animated, opened.coefficient_bytes
    )
    return max(needed, deep.decoded_bytes) if deep is not None else needed


def load(opened: OpenedImage, max_pixels: int) -> Image.Image:
    """Decodes the pixels of the first frame, as stored.

    Raises:
      ImageFault: if the pixels cannot be decoded or some are missing.
    """
    return load_checked(opened, max_pixels).image


def load_checked(opened: OpenedImage, max_pixels: int, keep_damaged: bool = False) -> LoadedImage:
    """Decodes the pixels of the first frame with decoders that report damage.

    Args:
      opened: an image that is not decoded yet.
      max_pixels: the limit, for the message about a picture that is too large after all.
      keep_damaged: whether to return a damaged picture, as lenient decoders do, instead of refusing it.

    Raises:
      ImageFault: if the pixels cannot be decoded or, unless `keep_damaged`, some are missing.
    """
    if opened.scaled is not None:
        picture = deep_pixels.picture_in_8_bits(
            _load_samples(opened, opened.scaled, max_pixels), opened.scaled
        )
        profile = opened.scaled.profile or opened.image.info.get("icc_profile")
        picture.info = {"icc_profile": profile} if profile else {}
        return LoadedImage(picture)
    with _faults_of(opened.kind, max_pixels):
        memory.check_memory(decoder_bytes(opened), max_pixels, len(opened.data))
        loaded = _decode(opened, keep_damaged)
        _scale_transparency(loaded.image, opened.depth)
        return loaded


def load_samples(opened: OpenedImage, max_pixels: int) -> np.ndarray:
    """Decodes the samples of a picture with `deep` pixels, as they are in the file.

    Returns:
      Samples of type uint8, uint16 or float32, with shape (height, width, channels). A TIFF is upright.

    Raises:
      ImageFault: if the pixels cannot be decoded or some are missing.
    """
    assert opened.deep is not None
    return _load_samples(opened, opened.deep, max_pixels)


def _load_samples(opened: OpenedImage, header: DeepHeader, max_pixels: int) -> np.ndarray:
    with _faults_of(opened.kind, max_pixels):
        memory.check_memory(decoder_bytes(opened), max_pixels, len(opened.data))
        if header.tags is not None:
            samples = _tiff_samples(header, opened)
        elif header.dtype == UINT16:
            samples = _deep_samples(opened, header)
        else:
            samples = np.asarray(_decode(opened, keep_damaged=False).image)
        samples = samples.reshape(*samples.shape[:2], -1)
        width, height = header.size
        if samples.shape != (height, width, header.channels) or samples.dtype != header.dtype:
            raise ImageFault(
                QuarantineReason.CORRUPT,
                Stage.DECODE,
                f"{opened.kind}: its decoder returned pixels of shape {samples.shape} and type "
                f"{samples.dtype}",
            )
        return samples


def _tiff_samples(header: DeepHeader, opened: OpenedImage) -> np.ndarray:
    assert header.tags is not None
    samples = tiff.read_samples(header.tags, header.compression, opened.data, opened.bounds)
    samples = samples.view(header.source_dtype)
    if header.dtype == FLOAT32:
        with np.errstate(over="ignore", invalid="ignore"):  # 64-bit numbers beyond the range become infinite
            samples = samples.astype(np.float32, copy=False)
    return deep_pixels.upright(samples, header.orientation)


def _deep_samples(opened: OpenedImage, header: DeepHeader) -> np.ndarray:
    """Decodes a picture of 9 to 16 bits; Pillow would return 8 bits."""
    if opened.kind == "jpeg2000":
        return jpeg2000.read_samples(opened.data, opened.image)
    if opened.kind == "ppm":
        return pnm.read_samples(opened.image, opened.data, pnm.highest_value(opened.data))
    import imagecodecs

    _check_completeness(opened)
    try:
        return np.asarray(imagecodecs.png_decode(opened.data))
    except imagecodecs.PngError as error:
        raise ImageFault(QuarantineReason.CORRUPT, Stage.DECODE, f"png: {words_of(error)}") from error


def _decode(opened: OpenedImage, keep_damaged: bool) -> LoadedImage:
    image = opened.image
    if opened.kind == "jpeg":
        return _decode_jpeg(opened, keep_damaged)
    if isinstance(image, TiffImageFile):
        tiff.load_tiff(image, opened.data, opened.bounds)
        return LoadedImage(image)
    if opened.jxl is not None:
        return LoadedImage(jpeg_xl.decode_jpeg_xl(opened.data, opened.jxl))
    if opened.kind == "heif":
        heif.decode_heif(image)
        return LoadedImage(image)
    if opened.kind == "jpeg2000" and opened.depth != 8 and image.mode not in jpeg2000.DECODED_BY_PILLOW:
        return LoadedImage(jpeg2000.decode_other_depth(opened.data, image, opened.depth))
    if opened.kind == "ppm":
        pnm.load_pnm(image, opened.data)
        return LoadedImage(image)
    damage = ""
    try:
        _check_completeness(opened)
    except ImageFault as fault:
        if not keep_damaged:
            raise
        damage = fault.message
    if opened.kind == "webp" and not damage and not opened.animated:
        return LoadedImage(webp.decode_webp(image, opened.data))
    image.load()
    return LoadedImage(image, damage=damage)


def _decode_jpeg(opened: OpenedImage, keep_damaged: bool) -> LoadedImage:
    image = opened.image
    inverted = "adobe_transform" in image.info
    try:
        decoded = jpeg.decode_jpeg(opened.data, image.mode, image.size, opened.factor, inverted, keep_damaged)
    except jpeg.CannotReport:
        image.load()
        return LoadedImage(image)
    decoded.image.info = image.info
    return LoadedImage(decoded.image, decoded.note, decoded.damage)


def _check_completeness(opened: OpenedImage) -> None:
    """Rejects an image if its decoder would fill in missing pixels."""
    if opened.kind == "png":
        png.check_pixels(opened.png_pixels, png.pixel_bytes(opened.data[:_PNG_HEADER_BYTES]))
    elif opened.kind == "gif":
        gif.check_first_frame(opened.data)
    elif opened.kind == "webp":
        _check_webp(opened.data)


def _check_webp(data: bytes) -> None:
    """Compares the length of a WebP with the length in its header (RFC 9649, 2.4)."""
    wanted = 8 + int.from_bytes(data[4:8], "little")
    if len(data) < wanted:
        message = f"webp: it ends after {len(data)} of {wanted} bytes"
        raise ImageFault(QuarantineReason.TRUNCATED, Stage.DECODE, message)


def _scale_transparency(image: Image.Image, depth: int) -> None:
    """Scales the transparent color of a PNG to the depth of its decoded pixels.

    Pillow leaves it in the depth of the file. Pillow decodes only the upper bytes of 16-bit RGB, so all
    colors with the same upper bytes become transparent too.
    """
    key = image.info.get("transparency")
    if isinstance(key, str):  # a text chunk of the same name
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
    """Maps a box in the upright picture to its DCT-scaled version.

    A scaled JPEG has ceil(side / factor) pixels per side, and the last may be covered in part. After a
    mirroring orientation, that pixel is on the left or upper side.
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
