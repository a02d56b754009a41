"""Fingerprints of images that a conversion would write, by which near duplicates are found. Without Beam."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import NamedTuple

from shardwright.core.concurrency.pool import reserve_working_bytes
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.conversion.convert import ReadImage
from shardwright.core.conversion.selection import check_quality
from shardwright.core.images import color, deep_pixels
from shardwright.core.images.convert import (
    BYTES_PER_PIXEL,
    Reserve,
    convert_image,
    decode_deep,
    decode_upright,
    open_chosen,
    transform_faults,
)
from shardwright.core.images.quality_metrics import fingerprints_of
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault, LeftOut, NotACandidate

#: JPEGs are decoded at the smallest scale whose longer side has at least this many pixels: twice those of the
#: small copy that the fingerprints are computed from.
_MIN_SIDE = 128
_SCALES = (8, 4, 2)


class Fingerprint(NamedTuple):
    """The size of a picture, and the values by which it is compared with others.

    Attributes:
      pixels: Number of pixels of the source.
      hash: First result of `near_duplicates.hash_and_patch`.
      patch: Second result of it.
    """

    pixels: int
    hash: bytes
    patch: bytes


def fingerprint(
    data: bytes, name: str, settings: ConvertSettings, reserve: Reserve = nullcontext
) -> Fingerprint:
    """Decodes an image, reduced if possible, and computes its fingerprint.

    Args:
      data: The source file's bytes.
      name: Its key; only the extension is used.
      settings: Checked settings.
      reserve: Function that reserves working memory for decoding; takes a number of bytes.

    Raises:
      ImageFault: If the image is faulty.
      LeftOut: If its sides are not as the settings want them.
      NotACandidate: If the file is not an image by content or by name.
    """
    opened = open_chosen(data, name, settings)
    width, height = opened.size
    scale = next((scale for scale in _SCALES if max(width, height) >= scale * _MIN_SIDE), 1)
    opened.reduce(scale)
    working = max(math.prod(opened.image.size) * BYTES_PER_PIXEL, opened.decoder_bytes())
    with transform_faults(opened.kind), reserve(working):
        if opened.deep is not None:
            image = deep_pixels.displayed(decode_deep(opened, settings))
        else:
            image, _ = decode_upright(opened, settings)
            image = color.to_color(image, settings.color, settings.background_rgb)
        return Fingerprint(width * height, *fingerprints_of(image))


def fingerprint_read(settings: ConvertSettings, read: ReadImage) -> Fingerprint | None:
    """Returns the fingerprint of an image; None if the conversion will leave it out.

    Such an image must not be kept in favor of one that would become a record.

    Args:
      settings: Checked settings.
      read: The image, whose bytes are read.
    """
    if read.fault or read.left_out:
        return None
    data, key, reserve = read.data, read.ref.key, reserve_working_bytes
    try:
        with UNDERWAY.working_on(read.ref.location, "decode"):
            if settings.drop:  # only the stored image can show this
                check_quality(convert_image(data, key, settings, reserve), settings, reserve)
            return fingerprint(data, key, settings, reserve)
    except (ImageFault, LeftOut, NotACandidate):
        return None
