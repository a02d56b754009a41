"""AVIF: Pillow opens, checks and decodes it."""

from __future__ import annotations

from shardwright.core.images.formats.opened_image import OpenedImage


class AvifImage(OpenedImage):
    """An AVIF."""

    kind = "avif"
    _plugin = "AVIF"
    #: Planes of up to 16 bits, the decoder's image, and Pillow's image.
    _bytes_per_pixel = 14
