"""`inspect` draws the masks of a record on its picture."""

from __future__ import annotations

import numpy as np
from PIL import Image

from shardwright.transforms.images.contact_sheet import with_masks
from shardwright.transforms.images.masks import encode_mask, narrow


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
