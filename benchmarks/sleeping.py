"""A hook of `--map` that takes the time of a slow image without a processor."""

import time

from PIL import Image

from shardwright.transforms import DecodedImage

SECONDS = 0.04


def sleep(image: DecodedImage) -> Image.Image:
    """Returns the image unchanged after `SECONDS`."""
    time.sleep(SECONDS)
    return image.image
