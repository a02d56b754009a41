"""Image formats: one module for each, with a subclass of `OpenedImage`."""

from __future__ import annotations

from collections.abc import Mapping

from shardwright.transforms.images.formats.avif import AvifImage
from shardwright.transforms.images.formats.bmp import BmpImage
from shardwright.transforms.images.formats.gif import GifImage
from shardwright.transforms.images.formats.heif import HeifImage
from shardwright.transforms.images.formats.jpeg import JpegImage
from shardwright.transforms.images.formats.jpeg2000 import Jpeg2000Image
from shardwright.transforms.images.formats.jpeg_xl import JpegXlImage
from shardwright.transforms.images.formats.opened_image import OpenedImage
from shardwright.transforms.images.formats.plugin import PluginImage
from shardwright.transforms.images.formats.png import PngImage
from shardwright.transforms.images.formats.pnm import PnmImage
from shardwright.transforms.images.formats.tiff import TiffImage
from shardwright.transforms.images.formats.webp import WebpImage

_FORMATS: Mapping[str, type[OpenedImage]] = {
    image_format.kind: image_format
    for image_format in (
        AvifImage,
        BmpImage,
        GifImage,
        HeifImage,
        JpegImage,
        Jpeg2000Image,
        JpegXlImage,
        PngImage,
        PnmImage,
        TiffImage,
        WebpImage,
    )
}


def format_of(kind: str) -> type[OpenedImage]:
    """Returns the class of a format: one of `SUPPORTED_KINDS`, or one that another package adds."""
    return _FORMATS.get(kind, PluginImage)
