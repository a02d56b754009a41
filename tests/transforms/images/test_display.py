"""The picture of 8 bits that stands for samples of any type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shardwright.transforms.images import deep_pixels
from shardwright.transforms.images.deep_pixels import displayed


def shown(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(displayed(pixels))


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (2, "L"), (3, "RGB"), (4, "RGB"), (16, "RGB")])
def test_the_first_channels_are_shown(channels: int, mode: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, channels), np.uint8)
    picture = displayed(pixels)
    assert (picture.mode, picture.size) == (mode, (5, 4))
    assert np.array_equal(np.asarray(picture).reshape(4, 5, -1), pixels[:, :, : len(mode)])


def test_uint16_is_scaled_and_rounded() -> None:
    every = np.arange(65536, dtype=np.uint16).reshape(256, 256, 1)
    assert np.array_equal(shown(every), np.rint(every[:, :, 0].astype(float) * 255 / 65535))


@settings(max_examples=examples(60), deadline=None)
@given(arrays.arrays(np.float32, arrays.array_shapes(min_dims=3, max_dims=3, max_side=5)), st.integers(1, 9))
def test_floats_are_stretched_between_their_extremes(pixels: np.ndarray[Any, Any], at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep_pixels, "_SAMPLES_AT_ONCE", at_once)
        found = shown(pixels)
    chosen = pixels[:, :, :3] if pixels.shape[2] >= 3 else pixels[:, :, 0]
    finite = np.isfinite(chosen)
    if not finite.any() or chosen[finite].min() == chosen[finite].max():
        assert not found.any()
        return
    assert found[chosen == chosen[finite].min()].max() == 0
    assert found[chosen == chosen[finite].max()].min() == 255
    assert not found[np.isnan(chosen) | (chosen == -np.inf)].any()
    assert (found[chosen == np.inf] == 255).all()
    order = np.argsort(chosen[finite], kind="stable")
    assert (np.diff(found[finite][order].astype(int)) >= 0).all()
