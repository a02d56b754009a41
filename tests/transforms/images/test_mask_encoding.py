"""Masks of objects: encoded as PNGs, and drawn on their picture."""

from __future__ import annotations

import io

import numpy as np
import pytest
from helpers.fewer_imports import late
from PIL import Image

from shardwright.transforms.images.contact_sheet import with_masks
from shardwright.transforms.images.masks import encode_mask, encode_object_mask, narrow

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


def _drawn(*masks: list[list[int]]) -> np.ndarray:
    white = Image.new("RGB", (4, 2), (255, 255, 255))
    return np.asarray(with_masks(white, [encode_mask(narrow(np.array(mask))) for mask in masks]))


def test_stuff_is_drawn_and_instances_of_a_class_differ() -> None:
    drawn = _drawn([[0, 5, 5, 7], [0, 5, 5, 7]], [[0, 1, 2, 0], [0, 1, 2, 0]])
    colors = [tuple(drawn[0, column]) for column in range(4)]
    assert len(set(colors)) == 4 and (drawn[0] == drawn[1]).all()
    assert colors[3] == tuple(_drawn([[7] * 4] * 2)[0, 0])  # for stuff, only the class decides


def test_ids_above_255_are_drawn() -> None:
    drawn = _drawn([[1, 257, 300, 0]] * 2)
    assert len({tuple(color) for color in drawn[0]}) == 4
