"""Converts the bytes of an image file to the bytes that a record stores."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from PIL import Image

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.transforms.images import color, decode
from shardwright.transforms.images.encode import FORMAT_NAMES, encode_image
from shardwright.transforms.images.geometry import Geometry, plan_geometry
from shardwright.transforms.images.metadata import strip_metadata
from shardwright.transforms.images.resize import resize, resize_steps

#: A function that reserves working memory, in bytes, while a picture is decoded.
Reserve = Callable[[int], AbstractContextManager[None]]

_KEEPABLE = frozenset(("jpeg", "png", "webp"))
#: Bytes per pixel while a picture is decoded, rotated and converted to its color.
BYTES_PER_PIXEL = 8
#: The same for a picture that is flattened onto a background or scaled from 16 bits, with all steps.
_FLATTENED_BYTES = 12
#: Bytes per pixel of the resized picture: the pixel, and the rows between the two passes of resampling. Then
#: #: bytes per pixel of the stored picture: a padded copy, or the encoded result.
_RESIZED_BYTES, _STORED_BYTES = 8, 4
#: Replaces a picture that is no longer needed.
_NO_PICTURE = Image.new("L", (1, 1))


@dataclass(frozen=True, slots=True)
class Frame:
    """The steps from the source image to the stored image, which boxes and masks follow too.

    Attributes:
      size: width and height of the source image in its file, before its EXIF orientation is applied.
      orientation: EXIF orientation, 1 to 8.
      geometry: mapping of the upright picture to the result.
    """

    size: tuple[int, int]
    orientation: int
    geometry: Geometry


@dataclass(frozen=True, slots=True)
class ConvertedImage:
    """An image as a record stores it.

    Attributes:
      encoded: the stored bytes.
      format: jpg, png, webp or raw.
      height: height in pixels.
      width: width in pixels.
      channels: 1 or 3 (for kept bytes, what a decoder returns: up to 4).
      kept: whether the bytes are unchanged from the source.
      animated: whether the source has more frames than the one that is stored.
      frame: the steps from the source image to the stored image.
      decode_seconds: seconds that decoding the pixels took.
      warning: the decoder's warning about the file; empty without one.
      damaged: whether a part of the pixels is missing in the file; only with `--damaged keep`.
      on_background: whether a part of the picture shows the background color.
    """

    encoded: bytes
    format: str
    height: int
    width: int
    channels: int
    kept: bool
    animated: bool
    frame: Frame
    decode_seconds: float = 0.0
    warning: str = ""
    damaged: bool = False
    on_background: bool = False


def convert_image(
    data: bytes, name: str, settings: ConvertSettings, reserve: Reserve | None = None
) -> ConvertedImage:
    """Decodes, rotates, converts, resizes and encodes one image, or keeps its bytes.

    Args:
      data: the source file's bytes.
      name: its key; only the extension is used.
      settings: checked settings.
      reserve: function that reserves working memory for decoding; takes a number of bytes.

    Raises:
      ImageFault: if the image is faulty.
      NotACandidate: if the file is not an image by content or by name.
    """
    opened = decode.open_image(data, name, settings.max_pixels, settings.parsed_bounds)
    try:
        return _convert(data, opened, settings, reserve or reserve_nothing)
    except (ImageFault, MemoryError):
        raise
    except Exception as error:
        raise ImageFault(QuarantineReason.CORRUPT, Stage.TRANSFORM, f"{opened.kind}: {error}") from error


def _convert(
    data: bytes, opened: decode.OpenedImage, settings: ConvertSettings, reserve: Reserve
) -> ConvertedImage:
    upright_size = opened.size
    geometry = plan_geometry(*upright_size, settings.target, settings.fit)
    frame = Frame(opened.image.size, opened.orientation, geometry)
    keep = settings.stored_format == "keep" and _bytes_can_stay(opened, geometry, settings)
    # Kept bytes are decoded only to check them; at a scale of 1/8 the decoder still reads the whole file.
    factor = decode.reduce_jpeg(opened, 8 if keep else geometry.reduction())
    width, height = opened.image.size
    working = max(width * height * BYTES_PER_PIXEL, decode.decoder_bytes(opened))
    if not keep:
        if color.is_translucent(opened.image) or opened.image.mode[0] in "IF":
            working = max(working, width * height * _FLATTENED_BYTES)
        working += math.prod(geometry.size) * _RESIZED_BYTES + math.prod(geometry.canvas) * _STORED_BYTES
    with reserve(working):
        begun = time.perf_counter()
        loaded = decode.load_checked(opened, settings.max_pixels, settings.damaged == "keep")
        decode_seconds = time.perf_counter() - begun
        if keep:
            return _keep(data, opened, loaded, frame, settings, decode_seconds)
        damage, note = loaded.damage, loaded.note
        image = decode.upright(loaded.image, opened.orientation)
        # The source of a large picture is released as early as possible.
        del loaded
        opened.image = _NO_PICTURE
        on_background = color.is_see_through(image) or geometry.canvas != geometry.size
        image = color.to_color(image, settings.color, settings.background_rgb)
        box = decode.reduced_box(geometry.box, upright_size, image.size, factor, opened.orientation)
        for size, part in resize_steps(image.size, geometry.size, settings.resample, box):
            image = resize(image, size, settings.resample, part)
        if geometry.canvas != geometry.size:
            image = _pad(image, geometry.canvas, geometry.offset, settings.background_rgb)
        stored = settings.stored_format
        if stored == "keep":
            stored = "jpeg" if opened.kind == "jpeg" else "png"
        encoded = encode_image(image, stored, settings.quality)
        width, height = image.size
        channels = 3 if stored == "webp" else len(image.getbands())  # WebP has no gray
        del image  # free the source before other threads use its reservation
    return ConvertedImage(
        encoded=encoded,
        format=FORMAT_NAMES[stored],
        height=height,
        width=width,
        channels=channels,
        kept=False,
        animated=opened.animated,
        frame=frame,
        decode_seconds=decode_seconds,
        warning=damage or note,
        damaged=bool(damage),
        on_background=on_background,
    )


def reserve_nothing(_: int) -> AbstractContextManager[None]:
    """Does nothing; used if there is no budget."""
    return nullcontext()


def _bytes_can_stay(opened: decode.OpenedImage, geometry: Geometry, settings: ConvertSettings) -> bool:
    """Returns whether an image needs no change, judging by its header."""
    image = opened.image
    if opened.kind not in _KEEPABLE or opened.orientation != 1 or opened.animated:
        return False
    if geometry.canvas != image.size or geometry.size != image.size:
        return False
    if opened.depth == 16:
        return False
    if not color.is_plain(image):
        # With --color keep, alpha stays if the stored format can hold it.
        alpha = image.mode in ("RGBA", "LA") and not color.has_profile(image)
        return alpha and settings.color == "keep"
    if settings.color == "keep":
        return True
    return color.is_grey(image) == (settings.color == "gray")


def _keep(
    data: bytes,
    opened: decode.OpenedImage,
    loaded: decode.LoadedImage,
    frame: Frame,
    settings: ConvertSettings,
    decode_seconds: float,
) -> ConvertedImage:
    stored = strip_metadata(data, opened.kind) if settings.strip_metadata else data
    return ConvertedImage(
        encoded=stored,
        format=FORMAT_NAMES[opened.kind],
        height=frame.size[1],
        width=frame.size[0],
        channels=channels_of(loaded.image),
        kept=True,
        animated=False,
        frame=frame,
        decode_seconds=decode_seconds,
        warning=loaded.damage or loaded.note,
        damaged=bool(loaded.damage),
    )


def channels_of(image: Image.Image) -> int:
    """Returns the number of channels that a reader gets; a palette counts as its colors."""
    if image.mode in ("P", "PA"):
        return 4 if color.is_translucent(image) else 3
    return len(image.getbands())


def _pad(
    image: Image.Image,
    canvas: tuple[int, int],
    offset: tuple[int, int],
    background: tuple[int, int, int],
) -> Image.Image:
    red, green, blue = background
    # ITU-R 601-2 luma, as in Pillow's convert("L")
    fill = background if image.mode == "RGB" else (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16
    padded = Image.new(image.mode, canvas, fill)
    padded.paste(image, offset)
    return padded
