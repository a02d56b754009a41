"""Masks of objects as PNGs: every reader gets the encoded values."""

from __future__ import annotations

import io

import numpy as np
import pytest
from helpers.fewer_imports import late
from PIL import Image

from shardwright.transforms.images.masks import encode_object_mask

tf = late("tensorflow")


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (7, 1), (513, 129), (640, 480)])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_readers_get_the_encoded_values(size: tuple[int, int], share: float) -> None:
    width, height = size
    pixels = (np.random.default_rng(3).random((height, width)) < share).astype(np.uint8)
    data = encode_object_mask(Image.fromarray(pixels))
    with Image.open(io.BytesIO(data)) as opened:
        assert opened.mode == "L" and opened.size == size
        opened.verify()
    assert (tf.io.decode_png(data).numpy()[..., 0] == pixels).all()
