"""Converts the bytes of an image file to the bytes that a record stores."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from PIL import Image

from shardwright.core.concurrency.thread_pool import reserve_working_bytes
from shardwright.core.images import color, decode, deep_pixels
from shardwright.core.images.deep_pixels import FLOAT32, UINT8, UINT16, DeepHeader
from shardwright.core.images.encode import encode_image
from shardwright.core.images.faults import NO_LIMIT, unsupported
from shardwright.core.images.formats.opened_image import OpenedImage
from shardwright.core.images.geometry import Frame, Geometry, plan_geometry, resize_and_pad
from shardwright.core.images.map_hook import Hook, MappedImage, call_hook, decoded_image
from shardwright.schemas.codes import FilterReason, QuarantineReason, Stage
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault, LeftOut, words_of
from shardwright.schemas.image_formats import FORMAT_NAMES
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.units import counted

#: Bytes per pixel while a picture is decoded, rotated and converted to its color.
BYTES_PER_PIXEL = 8
#: Bytes per pixel of a picture that is flattened onto a background or scaled from 16 bits, with all steps.
_FLATTENED_BYTES = 12
#: Bytes per pixel of the resized picture: the pixel, and the rows between the two passes of resampling.
_RESIZED_BYTES = 8
#: Bytes per pixel of the stored picture: a padded copy, or the encoded result.
_STORED_BYTES = 4
#: Bytes per sample of a picture whose samples become uint16: the array and the stored bytes.
_WIDENED_BYTES = 4
#: Replaces a picture that is no longer needed.
_NO_PICTURE = Image.new("L", (1, 1))


class Decoding(NamedTuple):
    """How a picture was decoded.

    Attributes:
      seconds: Seconds that decoding the pixels took.
      warning: The decoder's warning about the file; empty without one.
      damaged: Whether a part of the pixels is missing in the file; only with `--damaged keep`.
    """

    seconds: float = 0.0
    warning: str = ""
    damaged: bool = False


class ConvertedImage(NamedTuple):
    """An image as a record stores it.

    Attributes:
      encoded: The stored bytes.
      format: jpg, png, webp or raw.
      height: Height in pixels.
      width: Width in pixels.
      channels: 1 or 3 (for kept bytes, what a decoder returns: up to 4), or the number of `--channels`.
      frame: The steps from the source image to the stored image.
      kept: Whether the bytes are unchanged from the source.
      animated: Whether the source has more frames than the one that is stored.
      decoding: How the source was decoded.
      on_background: Whether a part of the picture shows the background color.
      dtype: Type of its samples: uint8, uint16 or float32.
    """

    encoded: bytes
    format: str
    height: int
    width: int
    channels: int
    frame: Frame
    kept: bool = False
    animated: bool = False
    decoding: Decoding = Decoding()
    on_background: bool = False
    dtype: str = "uint8"


class Brightness(NamedTuple):
    """How bright an image of 16 bits is.

    Attributes:
      highest: Its highest sample.
      white: The value of white in its type.
    """

    highest: int
    white: int


def convert_image(data: bytes, name: str, settings: ConvertSettings) -> ConvertedImage:
    """Decodes, rotates, converts, resizes and encodes one image, or keeps its bytes.

    Args:
      data: The source file's bytes.
      name: Its key; only the extension is used.
      settings: Checked settings.

    Raises:
      ImageFault: If the image is faulty.
      LeftOut: If its format or its sides are not as the settings want them; its pixels are not decoded then.
      NotACandidate: If the file is not an image by content or by name.
    """
    opened = open_chosen(data, name, settings)
    with transform_faults(opened.kind):
        if opened.deep is None:
            image = _transform_picture(opened, settings)
        else:
            image = _transform_samples(opened, opened.deep, settings)
        if settings.record_layout.pixel_type not in ("", image.dtype):
            with reserve_working_bytes(len(image.encoded) * _WIDENED_BYTES):
                encoded = deep_pixels.widened(image.encoded)
                return image._replace(encoded=encoded, dtype=settings.record_layout.pixel_type)
        return image


@contextlib.contextmanager
def transform_faults(kind: str, stage: Stage = Stage.TRANSFORM) -> Iterator[None]:
    """Turns any exception while a picture is transformed into an `ImageFault` of the stage."""
    try:
        yield
    except (ImageFault, LeftOut, MemoryError):
        raise
    except Exception as error:
        raise ImageFault(QuarantineReason.CORRUPT, stage, f"{kind}: {words_of(error)}") from error


def open_chosen(data: bytes, name: str, settings: ConvertSettings) -> OpenedImage:
    """Reads an image's header, and checks that its sides are as the settings want them.

    Args:
      data: The source file's bytes.
      name: Its key; only the extension is used.
      settings: Checked settings.

    Raises:
      ImageFault: If the image cannot be opened, is too large or has too many parts.
      LeftOut: If its format or its sides are not as the settings want them.
      NotACandidate: If the file is not an image by content or by name.
    """
    opened = decode.open_image(
        data,
        name,
        settings.max_pixels,
        settings.parsed_bounds,
        settings.skipped_formats,
        settings.depth == "keep",
        settings.channels > 0,
        settings.white,
    )
    if opened.deep is not None or settings.record_layout.pixel_type:
        _check_samples(opened.deep, settings)
    reason = side_reason(*opened.size, settings)
    if reason is not None:
        message = "it has {} x {} pixels".format(*opened.size)
        raise LeftOut(reason, Stage.DECODE, message, opened.size)
    return opened


def _check_samples(header: DeepHeader | None, settings: ConvertSettings) -> None:
    """Checks that a picture has the channels and the type of samples that the settings ask for.

    Args:
      header: The picture's samples; None for one with 8 bits per channel.
      settings: Checked settings.

    Raises:
      ImageFault: If it has other channels, or without `--channels` neither gray nor RGB. Or if the type that
        the layout states would lose information, or if integers would become floating-point numbers, for
        which nothing says which value is white.
    """
    if header is not None and settings.channels not in (0, header.channels):
        raise ImageFault(
            QuarantineReason.WRONG_CHANNELS,
            Stage.DECODE,
            f"it has {counted(header.channels, 'channel')}, not {settings.channels}",
        )
    if header is not None and not settings.channels and header.problem:
        raise unsupported(header.problem)
    stored_type = settings.record_layout.pixel_type
    dtype = header.dtype if header is not None and settings.depth == "keep" else UINT8
    if stored_type not in ("", dtype) and (dtype, stored_type) != (UINT8, UINT16):
        raise ImageFault(
            QuarantineReason.WRONG_DTYPE,
            Stage.DECODE,
            f"its samples are {dtype}, and the layout stores {stored_type}; choose a layout with "
            f"dtype: {dtype}, or without dtype",
        )


def side_reason(width: int, height: int, settings: ConvertSettings) -> FilterReason | None:
    """Returns why an image is left out for its sides; None if it is not.

    Args:
      width: Width of the upright picture in pixels.
      height: Its height in pixels.
      settings: Checked settings.
    """
    short, long = sorted((width, height))
    if short < settings.min_side:
        return FilterReason.MIN_SIDE
    if settings.max_aspect and long > settings.max_aspect * short:
        return FilterReason.MAX_ASPECT
    return None


def brightness(data: bytes, name: str, settings: ConvertSettings) -> Brightness | None:
    """Returns the highest sample of an image of 16 bits; None for other images.

    Args:
      data: The source file's bytes.
      name: Its key; only the extension is used.
      settings: Checked settings.

    Raises:
      ImageFault: If the image is faulty.
      NotACandidate: If the file is not an image by content or by name.
    """
    opened = decode.open_image(data, name, settings.max_pixels, settings.parsed_bounds, keep_depth=True)
    header = opened.deep
    if header is None or not header.has_whole_range:
        return None
    with reserve_working_bytes(opened.decoder_bytes()):
        pixels = decode.load_samples(opened, settings.max_pixels)
        colors = pixels[..., :-1] if header.alpha and not settings.channels else pixels
        return Brightness(int(colors.max()), header.highest)


def picture_of(image: ConvertedImage, settings: ConvertSettings) -> Image.Image:
    """Decodes the stored bytes of a converted image, for measuring and drawing: with 8 bits per channel."""
    if image.format == "raw":
        shape = (image.height, image.width, image.channels)
        return deep_pixels.displayed(deep_pixels.decode_raw(image.encoded, image.dtype, shape))
    is_deep = image.dtype != UINT8
    opened = decode.open_image(image.encoded, "image", NO_LIMIT, settings.parsed_bounds, keep_depth=is_deep)
    if is_deep:
        return deep_pixels.displayed(decode.load_samples(opened, NO_LIMIT))
    return decode.load_checked(opened, NO_LIMIT, image.decoding.damaged).image


def decode_upright(opened: OpenedImage, settings: ConvertSettings) -> tuple[Image.Image, Decoding]:
    """Decodes a picture, and turns it upright; `opened` lets go of it.

    Raises:
      ImageFault: If the pixels cannot be decoded or, unless damaged pictures are kept, some are missing.
    """
    started = time.perf_counter()
    loaded = decode.load_checked(opened, settings.max_pixels, settings.damaged == "keep")
    decoding = Decoding(time.perf_counter() - started, loaded.damage or loaded.note, bool(loaded.damage))
    # The source of a large picture is released as early as possible.
    opened.image = _NO_PICTURE
    return decode.upright(loaded.image, opened.orientation), decoding


def _plan_geometry(size: tuple[int, int], settings: ConvertSettings) -> Geometry:
    """Plans the stored picture.

    Args:
      size: Width and height of the upright picture.
      settings: Checked settings.

    Raises:
      ImageFault: If it would have too many pixels. A line of one pixel that covers a box has millions.
    """
    geometry = plan_geometry(*size, settings.target, settings.fit)
    if settings.target and math.prod(geometry.canvas) > max(settings.max_pixels, math.prod(settings.target)):
        raise ImageFault(
            QuarantineReason.TOO_MANY_PIXELS,
            Stage.TRANSFORM,
            "{} x {} pixels would become {} x {}; ".format(*size, *geometry.canvas)
            + "raise --max_pixels to accept it, or choose another --fit",
        )
    return geometry


def _transform_picture(opened: OpenedImage, settings: ConvertSettings) -> ConvertedImage:
    """Converts a picture that has 8 bits per channel when it is decoded."""
    upright_size, geometry = opened.size, _plan_geometry(opened.size, settings)
    frame = Frame(opened.image.size, opened.orientation, geometry)
    keep = _bytes_can_stay(opened, geometry, settings)
    # Kept bytes are decoded only to check them; at a scale of 1/8 the decoder still reads the whole file.
    factor = opened.reduce(8 if keep else geometry.reduction())
    pixels = math.prod(opened.image.size)
    working = max(pixels * BYTES_PER_PIXEL, opened.decoder_bytes())
    if not keep:
        if color.is_translucent(opened.image) or opened.image.mode[0] in "IF":
            working = max(working, pixels * _FLATTENED_BYTES)
        working += math.prod(geometry.size) * _RESIZED_BYTES + math.prod(geometry.canvas) * _STORED_BYTES
    with reserve_working_bytes(working):
        picture, decoding = decode_upright(opened, settings)
        if keep:
            return _keep(opened, channels_of(picture), frame, decoding, settings)
        on_background = color.is_see_through(picture) or geometry.canvas != geometry.size
        picture = color.to_color(picture, settings.color, settings.background_rgb)
        box = decode.reduced_box(geometry.box, upright_size, picture.size, factor, opened.orientation)
        picture = resize_and_pad(picture, geometry, box, settings.resample, settings.background)
        image = _encode(picture, opened, frame, decoding, on_background, settings)
        del picture  # before other threads use its reservation
        return image


def _transform_samples(opened: OpenedImage, header: DeepHeader, settings: ConvertSettings) -> ConvertedImage:
    """Converts a picture with more than 8 bits per channel, or one whose channels are stored as they are."""
    geometry = _plan_geometry(opened.size, settings)
    frame = Frame(opened.image.size, opened.orientation, geometry)
    keep = _bytes_can_stay(opened, geometry, settings)
    pixel_bytes = max(header.channels, 3) * header.sample_bytes
    # A copy in another orientation or color, two planes for resampling, the result, and its encoded bytes.
    working = math.prod(opened.size) * (pixel_bytes + 8) + math.prod(geometry.canvas) * (2 * pixel_bytes + 8)
    with reserve_working_bytes(opened.decoder_bytes() + working):
        started = time.perf_counter()
        pixels = decode.load_samples(opened, settings.max_pixels)
        decoding = Decoding(time.perf_counter() - started)
        if keep:
            return _keep(opened, header.channels, frame, decoding, settings)._replace(dtype=header.dtype)
        on_background = deep_pixels.is_see_through(pixels, header) or geometry.canvas != geometry.size
        pixels = _upright_colors(pixels, opened, header, settings)
        fill = 0 if settings.channels else deep_pixels.background_of(pixels, settings.background_rgb)
        pixels = deep_pixels.resize_and_pad(pixels, geometry, settings.resample, fill)
        (height, width, channels), dtype = pixels.shape, pixels.dtype.name
        image_format = "raw" if settings.stored_format == "raw" or dtype == FLOAT32 else "png"
        return ConvertedImage(
            encoded=deep_pixels.encode(pixels, image_format),
            format=FORMAT_NAMES[image_format],
            height=height,
            width=width,
            channels=channels,
            animated=opened.animated,
            frame=frame,
            decoding=decoding,
            on_background=on_background and not settings.channels,
            dtype=dtype,
        )


def _upright_colors(
    pixels: np.ndarray, opened: OpenedImage, header: DeepHeader, settings: ConvertSettings
) -> np.ndarray:
    """Returns samples with the orientation applied, in the wanted color or with all channels."""
    pixels = deep_pixels.upright(pixels, opened.orientation)
    if settings.depth == "8":
        pixels = deep_pixels.eight_bits(pixels, header.highest)
    if settings.channels:
        return pixels
    profile = header.profile or color.profile_of(opened.image) or b""
    return deep_pixels.to_color(pixels, header, profile, settings.color, settings.background_rgb)


def decode_deep(opened: OpenedImage, settings: ConvertSettings) -> np.ndarray:
    """Decodes a picture with `deep` samples to the upright picture that is resized and stored.

    Raises:
      ImageFault: If the pixels cannot be decoded or some are missing.
    """
    assert opened.deep is not None
    pixels = decode.load_samples(opened, settings.max_pixels)
    return _upright_colors(pixels, opened, opened.deep, settings)


def _samples_can_stay(opened: OpenedImage, header: DeepHeader, settings: ConvertSettings) -> bool:
    """Returns whether the samples of an upright picture with `deep` ones need no change."""
    if opened.kind != "png":
        return False
    gray = header.channels < 3
    profile = color.profile_of(opened.image)
    if profile and color.srgb_transform(profile, "L" if gray else "RGB"):
        return False
    if settings.color == "keep":
        return "transparency" not in opened.image.info
    return not header.alpha and gray == (settings.color == "gray")


def map_image(
    data: bytes, ref: ImageRef, hook: Hook, settings: ConvertSettings
) -> Iterator[tuple[MappedImage, ConvertedImage, bool]]:
    """Decodes one image as `convert_image` does, and converts each picture that a hook makes of it.

    The hook gets the whole picture, so a JPEG is never decoded at a smaller scale. If the hook leaves the
    pixels as they are and nothing else has to change, the original bytes are kept.

    Args:
      data: The source file's bytes.
      ref: Its reference.
      hook: The user's function (`--map`).
      settings: Checked settings.

    Yields:
      Each picture as the hook returned it and as a record stores it, and whether the annotations of the
      source fit it.

    Raises:
      ImageFault: If the image is faulty or the hook fails.
      LeftOut: If the hook leaves the image out, or its format or sides are not as the settings want them.
      NotACandidate: If the file is not an image by content or by name.
    """
    opened = open_chosen(data, ref.key, settings)
    size = opened.size
    frame = Frame(opened.image.size, opened.orientation, plan_geometry(*size, settings.target, settings.fit))
    can_stay = _bytes_can_stay(opened, frame.geometry, settings)
    # Twice the size of the flattened picture, because the hook needs memory, too.
    working = max(math.prod(size) * _FLATTENED_BYTES * 2, opened.decoder_bytes())
    with transform_faults(opened.kind), reserve_working_bytes(working):
        image, decoding = decode_upright(opened, settings)
        on_background, stored_channels = color.is_see_through(image), channels_of(image)
        image = color.to_color(image, settings.color, settings.background_rgb)
        image.info = {}  # a color profile is applied only once
        before = _pixels_digest(image) if can_stay else b""
        for mapped in call_hook(hook, decoded_image(ref, image, frame), settings.max_pixels):
            fits = mapped.image.size == size and mapped.objects is None
            if can_stay and not mapped.suffix and _pixels_digest(mapped.image) == before:
                yield mapped, _keep(opened, stored_channels, frame, decoding, settings), fits
                continue
            picture = color.to_color(mapped.image, settings.color, settings.background_rgb)
            geometry = _plan_geometry(picture.size, settings)
            picture = resize_and_pad(picture, geometry, geometry.box, settings.resample, settings.background)
            own_frame = Frame(
                frame.size if fits else mapped.image.size, frame.orientation if fits else 1, geometry
            )
            padded = on_background or geometry.canvas != geometry.size
            yield mapped, _encode(picture, opened, own_frame, decoding, padded, settings), fits


def _pixels_digest(image: Image.Image) -> bytes:
    return hashlib.sha256(f"{image.mode} {image.size} ".encode() + image.tobytes()).digest()


def _encode(
    picture: Image.Image,
    opened: OpenedImage,
    frame: Frame,
    decoding: Decoding,
    on_background: bool,
    settings: ConvertSettings,
) -> ConvertedImage:
    """Encodes a picture in mode RGB or L."""
    stored = settings.stored_format
    if stored == "keep":
        is_jpeg = opened.kind == "jpeg" and opened.storable and settings.depth == "8"
        stored = "jpeg" if is_jpeg else "png"
    return ConvertedImage(
        encoded=encode_image(picture, stored, settings.quality),
        format=FORMAT_NAMES[stored],
        height=picture.height,
        width=picture.width,
        channels=3 if stored == "webp" else len(picture.getbands()),  # WebP has no gray
        animated=opened.animated,
        frame=frame,
        decoding=decoding,
        on_background=on_background,
    )


def _bytes_can_stay(opened: OpenedImage, geometry: Geometry, settings: ConvertSettings) -> bool:
    """Returns whether the bytes of an image are stored, which needs no change, judging by its header."""
    image = opened.image
    if settings.stored_format != "keep" or not opened.storable or opened.orientation != 1 or opened.animated:
        return False
    if geometry.canvas != image.size or geometry.size != image.size:
        return False
    if opened.deep is not None:
        return _samples_can_stay(opened, opened.deep, settings)
    if opened.depth == 16 or color.has_profile(image):
        return False
    if image.mode in ("RGBA", "LA"):  # the stored formats can hold alpha
        return settings.color == "keep"
    if image.mode not in ("RGB", "L", "P", "1") or color.is_translucent(image):
        return False
    if settings.color == "keep":
        return True
    return color.is_gray(image) == (settings.color == "gray")


def _keep(
    opened: OpenedImage, channels: int, frame: Frame, decoding: Decoding, settings: ConvertSettings
) -> ConvertedImage:
    """Keeps the bytes of an image."""
    return ConvertedImage(
        encoded=opened.without_metadata(opened.data) if settings.strip_metadata else opened.data,
        format=FORMAT_NAMES[opened.kind],
        height=frame.size[1],
        width=frame.size[0],
        channels=channels,
        kept=True,
        frame=frame,
        decoding=decoding,
    )


def channels_of(image: Image.Image) -> int:
    """Returns the number of channels that a reader gets; a palette counts as its colors."""
    if image.mode in ("P", "PA"):
        return 4 if color.is_translucent(image) else 3
    return len(image.getbands())
