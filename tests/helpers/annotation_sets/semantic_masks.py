"""Images with masks of the same names in a separate folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from helpers.listing import put_photos


def put_set(images: Path, masks: Path, names: tuple[str, ...] = ("eagle", "apple", "house")) -> None:
    """Writes photos and masks. A mask is the photo's place in the list, and 255 in the middle."""
    masks.mkdir(parents=True, exist_ok=True)
    for number, photo in enumerate(put_photos(images, names)):
        ids = np.full(photo.size[::-1], number, np.uint8)
        ids[100:120, 100:120] = 255
        Image.fromarray(ids).save((masks / photo.name).with_suffix(".png"))
