"""Statistics of samples of several types: exact, mergeable, and on the scale on which they are trained."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shardwright.schemas.pictures import ImageQuality, Picture
from shardwright.schemas.statistics.dataset_statistics import Statistics, statistics_text
from shardwright.schemas.statistics.picture_statistics import PictureStatistics
from shardwright.transforms.images.sample_sums import sum_samples

Array = np.ndarray[Any, Any]


def picture(pixels: Array, label: str = "a") -> Picture:
    looks = ImageQuality((), (), 1, b"", b"", b"", samples=sum_samples(pixels))
    height, width, channels = pixels.shape
    return Picture("s", 0, 0, None, "train", (label,), 9, "png", width, height, channels, quality=looks)


def all_of(*pictures: Array) -> dict[str, Any]:
    document = Statistics().add(map(picture, pictures)).as_json()
    found: dict[str, Any] = json.loads(statistics_text(document))["splits"]["train"]["all"]
    return found


def test_each_type_is_measured_in_its_own_units() -> None:
    rng = np.random.default_rng(3)
    deep = [rng.integers(0, 65536, (3, 4, 3), np.uint16) for _ in range(3)]
    eight = rng.integers(0, 256, (5, 2, 3), np.uint8)
    found = all_of(*deep, eight)["samples"]
    every = np.concatenate([pixels.reshape(-1, 3) for pixels in deep]).astype(float)
    assert found["uint16"]["3"]["images"] == 3
    assert np.allclose(found["uint16"]["3"]["mean"], every.mean(0), rtol=6e-6)
    assert np.allclose(found["uint16"]["3"]["std"], every.std(0), rtol=6e-6)
    assert found["uint16"]["3"]["min"] == every.min(0).tolist()
    assert found["uint8"]["3"]["max"] == eight.max((0, 1)).tolist()
    assert "nan" not in found["uint16"]["3"]


def test_numbers_that_are_not_finite_are_counted_and_left_out() -> None:
    pixels = np.array([[[1.5, np.nan], [-2.5, np.nan], [np.inf, np.nan]]], np.float32)
    found = all_of(pixels)
    assert found["samples"]["float32"]["2"] == {
        "images": 1, "mean": [-0.5, None], "std": [2.0, None], "min": [-2.5, None], "max": [1.5, None],
        "nan": [0, 3], "infinite": [1, 0],
    }  # fmt: skip
    assert found["pixels"]["pixels"] == 3
    assert found["pixels"]["mean"] == [-0.5, None]
    assert found["pixels"]["per_image"]["std"] == [2.0, None]


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(
        st.one_of(
            arrays.arrays(dtype, st.tuples(st.integers(1, 3), st.integers(1, 3), st.just(3)), elements=values)
            for dtype, values in (
                ("uint8", None), ("uint16", None), ("float32", st.floats(-4, 4, width=32)),
            )
        ),
        min_size=1,
    )
)  # fmt: skip
def test_types_are_trained_on_one_scale(pictures: list[Array]) -> None:
    scale = {"uint8": 255, "uint16": 65535, "float32": 1}
    flat = [pixels.reshape(-1, 3) / np.float64(scale[pixels.dtype.name]) for pixels in pictures]
    found = all_of(*pictures)["pixels"]
    every = np.concatenate(flat)
    assert found["pixels"] == len(every)
    assert np.allclose(found["mean"], every.mean(0), rtol=6e-6, atol=1e-12)
    assert np.allclose(found["std"], every.std(0), rtol=6e-6, atol=1e-7)
    means = np.array([pixels.mean(0) for pixels in flat])
    assert np.allclose(found["per_image"]["mean"], means.mean(0), rtol=6e-6, atol=1e-9)


def test_uint8_has_the_statistics_that_datasets_without_types_have() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (7, 9, 3), np.uint8)
    flat = pixels.reshape(-1, 3).astype(int)
    looks = ImageQuality(
        tuple(flat.sum(0).tolist()), tuple((flat**2).sum(0).tolist()), len(flat), b"", b"", b""
    )
    plain = PictureStatistics()
    plain.add(picture(pixels)._replace(quality=looks))
    assert all_of(pixels)["pixels"] == plain.as_json()["pixels"]
    assert "samples" not in plain.as_json() and "samples" not in plain.state()


@pytest.mark.parametrize(("shapes", "number"), [([8, 8], 8), ([1, 3], 3), ([2], 2), ([4], 4), ([1, 1], 1)])
def test_channels_count_together_if_all_pictures_have_them(shapes: list[int], number: int) -> None:
    pictures = [np.full((2, 2, channels), 51, np.uint8) for channels in shapes]
    found = all_of(*pictures)
    assert found["pixels"]["mean"] == [0.2] * number
    assert found["channels"] == {str(channels): shapes.count(channels) for channels in shapes}


_TYPES = st.sampled_from(["uint8", "uint16", "float32"])
_PICTURES = _TYPES.flatmap(lambda dtype: arrays.arrays(dtype, st.sampled_from([(1, 2, 1), (2, 1, 3)])))


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(_PICTURES, st.integers(0, 2))), st.permutations(range(3)))
def test_the_document_does_not_depend_on_parts_or_order(
    rows: list[tuple[Array, int]], order: list[int]
) -> None:
    parts = [Statistics().add(picture(pixels) for pixels, part in rows if part == i) for i in range(3)]
    whole = Statistics().add(picture(pixels) for pixels, _ in rows)
    merged = Statistics()
    for number in order:
        sent = pickle.loads(pickle.dumps(parts[number]))
        merged.merge(Statistics.from_state(json.loads(json.dumps(sent.state()))))
    document = statistics_text(merged.as_json())
    assert document == statistics_text(whole.as_json())
    assert "NaN" not in document and "Infinity" not in document
    if rows:
        assert json.dumps(merged.state()) == json.dumps(whole.state())
