"""Opens and decodes one image from its bytes; every failure is an `ImageFault` with its reason."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from PIL import Image
from PIL.Image import Transpose

from shardwright.core.images import deep_pixels, signatures
from shardwright.core.images.deep_pixels import UINT8, DeepHeader
from shardwright.core.images.faults import corrupt, pillow_settings, unsupported
from shardwright.core.images.formats import FORMATS, PluginImage, plugin_kind
from shardwright.core.images.formats.opened_image import LoadedImage, OpenedImage, OpenOptions
from shardwright.schemas.bounds import DEFAULT_BOUNDS, Bounds
from shardwright.schemas.codes import FilterReason, QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault, LeftOut, NotACandidate
from shardwright.schemas.image_formats import KIND_OF_EXTENSION, SUPPORTED_KINDS, WITHOUT_SIGNATURE

#: Bytes that a decoder may hold for each pixel that `--max_pixels` allows. A picture takes 4 per pixel. The
#: coefficients of a progressive JPEG take 3 (with chroma subsampling) or 6 (without).
MAX_BYTES_PER_PIXEL = 5
#: Bytes for each pixel of a large file. A file of a few bytes that needs gigabytes is not a picture. A file
#: that needs a few hundred times its size may be a photograph of 50 megapixels.
MAX_BYTES_PER_PIXEL_OF_LARGE_FILES = 20
_BYTES_PER_BYTE_OF_FILE = 256

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
#: Orientations after which the stored right (or lower) edge lies on the left (or upper) side.
_MIRRORS_X = frozenset((2, 3, 6, 7))
_MIRRORS_Y = frozenset((3, 4, 7, 8))


def check_kind(head: bytes, name: str, skipped: Collection[str] = ()) -> str:
    """Returns the format of an image file, detected from its content.

    Args:
      head: The first `HEAD_BYTES` bytes of the file, or all if it is shorter.
      name: Its name; only the extension is used.
      skipped: Formats that a user leaves out.

    Raises:
      ImageFault: If it is an image by content or by name, but cannot be decoded.
      LeftOut: If its format is skipped.
      NotACandidate: If it is not an image by content or by name.
    """
    kind = signatures.kind_of(head)
    kind_by_name = KIND_OF_EXTENSION.get(signatures.extension_of(name))
    if kind == "tiff" and kind_by_name == "camera_raw":
        kind = kind_by_name  # a TIFF decoder would find only a small preview
    by_name = kind_by_name if kind_by_name in WITHOUT_SIGNATURE and head else None
    if (kind or by_name) in skipped:
        raise LeftOut(FilterReason.SKIPPED_FORMAT, Stage.DECODE, "")
    if kind in SUPPORTED_KINDS:
        return kind
    if head and (added := plugin_kind(head)) is not None:
        return added
    if kind:
        advice = (
            "despite its name; " if signatures.claims_to_be_image(name) else "a format that is not read; "
        )
        raise unsupported(f"it is {kind.replace('_', ' ')}, {advice}convert it to JPEG or PNG")
    if not signatures.is_image_name(name):
        raise NotACandidate
    if by_name:
        usual_name = by_name.replace("_", " ")
        raise unsupported(f"its name says {usual_name}, a format that is not read; convert it to JPEG or PNG")
    raise no_image(head)


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
      data: The whole file.
      name: Its name or key.
      max_pixels: Largest width x height that is accepted.
      bounds: Limits on the parts of the file.
      skipped: Formats that a user leaves out.
      keep_depth: Whether to read more than 8 bits per channel with `load_samples`.
      all_channels: Whether to read all channels with `load_samples`.
      white: 16-bit sample that becomes white in 8 bits; 0 if it is not stated.

    Raises:
      ImageFault: If the image cannot be opened, is too large or has too many parts.
      LeftOut: If its format is skipped.
      NotACandidate: If the file is not an image by content or by name.
    """
    kind = check_kind(data[: signatures.HEAD_BYTES], name, skipped)
    options = OpenOptions(max_pixels, bounds, keep_depth, all_channels, white)
    with pillow_settings(max_pixels, kind):
        opened = FORMATS.get(kind, PluginImage).open(data, options)
        if not (keep_depth or all_channels or white) or opened.deep is not None or opened.scaled is not None:
            return opened  # with 8 bits, or with the samples that its format has chosen
        header = opened.deep_header()
        if keep_depth or all_channels:
            opened.deep = header.with_white(white) if header is not None else None
        elif header is not None and header.has_whole_range:
            opened.scaled = header.with_white(white)
        if all_channels and opened.deep is None:
            # A palette has one channel: its numbers are not colors.
            opened.deep = DeepHeader(UINT8, len(opened.image.getbands()), opened.image.size, highest=255)
        return opened


def load_checked(opened: OpenedImage, max_pixels: int, keep_damaged: bool = False) -> LoadedImage:
    """Decodes the pixels of the first frame with decoders that report damage.

    Args:
      opened: An image that is not decoded yet.
      max_pixels: The limit, for the message about a picture that is too large after all.
      keep_damaged: Whether to return a damaged picture, as lenient decoders do, instead of refusing it.

    Raises:
      ImageFault: If the pixels cannot be decoded or, unless `keep_damaged`, some are missing.
    """
    header = opened.scaled
    if header is not None:
        picture = deep_pixels.picture_in_8_bits(load_samples(opened, max_pixels), header)
        profile = header.profile or opened.image.info.get("icc_profile")
        picture.info = {"icc_profile": profile} if profile else {}
        return LoadedImage(picture)
    with pillow_settings(max_pixels, opened.kind):
        check_memory(opened.decoder_bytes(), max_pixels, len(opened.data))
        return opened.decode(keep_damaged)


def load_samples(opened: OpenedImage, max_pixels: int) -> np.ndarray:
    """Decodes the samples of a picture that has `deep` or `scaled` ones, as they are in the file.

    Returns:
      Samples of type uint8, uint16 or float32, with shape (height, width, channels). A TIFF is upright.

    Raises:
      ImageFault: If the pixels cannot be decoded or some are missing.
    """
    header = opened.deep or opened.scaled
    assert header is not None
    with pillow_settings(max_pixels, opened.kind):
        check_memory(opened.decoder_bytes(), max_pixels, len(opened.data))
        samples = opened.read_samples(header)
        samples = samples.reshape(*samples.shape[:2], -1)
        width, height = header.size
        if samples.shape != (height, width, header.channels) or samples.dtype != header.dtype:
            raise corrupt(
                f"{opened.kind}: its decoder returned pixels of shape {samples.shape} and type "
                f"{samples.dtype}",
            )
        return samples


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


def check_memory(needed: int, max_pixels: int, file_bytes: int) -> None:
    """Checks that a decoder does not need far more memory than the allowed pixels.

    Args:
      needed: Number of bytes, from `OpenedImage.decoder_bytes`.
      max_pixels: Number of pixels of the largest accepted picture.
      file_bytes: Size of the file in bytes.

    Raises:
      ImageFault: If it needs more.
    """
    of_file = min(file_bytes * _BYTES_PER_BYTE_OF_FILE, max_pixels * MAX_BYTES_PER_PIXEL_OF_LARGE_FILES)
    most = max(max_pixels * MAX_BYTES_PER_PIXEL, of_file)
    if needed > max(most, 1 << 24):
        raise ImageFault(
            QuarantineReason.TOO_MUCH_MEMORY,
            Stage.DECODE,
            f"decoding takes {needed // 10**6} MB, more than the {most // 10**6} MB that a file of its size "
            f"may take with --max_pixels {max_pixels}; raise --max_pixels to accept it",
        )
