"""Image formats: one module for each, with a subclass of `OpenedImage`."""

from __future__ import annotations

from collections.abc import Mapping

from shardwright.core.images.formats.bmp import BmpImage
from shardwright.core.images.formats.gif import GifImage
from shardwright.core.images.formats.heif import AvifImage, HeifImage
from shardwright.core.images.formats.jpeg import JpegImage
from shardwright.core.images.formats.jpeg2000 import Jpeg2000Image
from shardwright.core.images.formats.jpeg_xl import JpegXlImage
from shardwright.core.images.formats.opened_image import OpenedImage
from shardwright.core.images.formats.png import PngImage
from shardwright.core.images.formats.pnm import PnmImage
from shardwright.core.images.formats.tiff import TiffImage
from shardwright.core.images.formats.webp import WebpImage

#: Format -> its class. `PluginImage` opens those that other packages add.
FORMATS: Mapping[str, type[OpenedImage]] = {
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
