"""Decodes still WebPs without the canvases that Pillow's decoder for animations keeps."""

from __future__ import annotations

from PIL import Image

from shardwright.transforms.images.jpeg import wrap_rgb


def decode_webp(image: Image.Image, data: bytes) -> Image.Image:
    """Decodes the pixels of a WebP with one frame.

    Args:
      image: image that Pillow has opened but not loaded.
      data: the whole file.

    Returns:
      The picture in RGB or RGBA, as Pillow chooses, with its metadata.

    Raises:
      RuntimeError: if it cannot be decoded.
    """
    import imagecodecs

    pixels = imagecodecs.webp_decode(data, hasalpha=True)
    if image.mode == "RGB":
        decoded = wrap_rgb(pixels)
    else:
        decoded = Image.frombuffer("RGBA", image.size, pixels, "raw", "RGBA", 0, 1)
    decoded.info = image.info
    return decoded
