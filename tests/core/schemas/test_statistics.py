"""`statistics.json` and its parts: exact sums, accurate quantiles, and merging in any order."""

from __future__ import annotations

import copy
import json
import math
import pickle
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shardwright.core.images.quality_metrics import sum_samples
from shardwright.schemas import sketches, statistics
from shardwright.schemas.example import Feature, FeatureType
from shardwright.schemas.layouts import DETECTION
from shardwright.schemas.pictures import ImageQuality, Picture
from shardwright.schemas.statistics import (
    RecordStatistics,
    Statistics,
    first_of,
    keep_first,
    statistics_text,
)

_NAMES = ["birds", 'a "quote"\nand <script>', "日本", ""]
_SPECS = {spec.name: spec for spec in DETECTION.features}

_FEW = settings(max_examples=examples(50), deadline=None)


def _looks(pixels: np.ndarray, scores: tuple[float, ...] = ()) -> ImageQuality:
    flat = pixels.reshape(-1, pixels.shape[-1]).astype(int)
    sums, squares = flat.sum(0), (flat**2).sum(0)
    return ImageQuality(tuple(sums.tolist()), tuple(squares.tolist()), len(flat), b"", b"", b"", (), scores)


def _picture(split: str = "train", labels: tuple[str, ...] = ("birds",), looks: ImageQuality | None = None,
             boxes: Sequence[tuple[float, float]] = (), size: tuple[int, int] = (4, 2),
             data: int = 100) -> Picture:  # fmt: skip
    return Picture("shard", 0, 0, None, split, labels, data, "jpg", *size, boxes=tuple(boxes), quality=looks)


_TYPES = st.sampled_from(["uint8", "uint16", "float32"])
_PICTURES = _TYPES.flatmap(lambda dtype: arrays.arrays(dtype, st.sampled_from([(1, 2, 1), (2, 1, 3)])))
_CHANNEL = st.tuples(st.integers(0, 255 * 8), st.integers(0, 255**2 * 8))
_BOX = st.tuples(st.floats(-1, 2) | st.just(math.nan), st.floats(0, 1))


@st.composite
def _pictures(draw: st.DrawFn) -> Picture:
    channels = draw(st.lists(_CHANNEL, max_size=4))
    scores = draw(st.lists(st.floats(), max_size=2))
    samples = draw(st.none() | _PICTURES.map(sum_samples))
    looks = ImageQuality(
        tuple(total for total, _ in channels), tuple(square for _, square in channels),
        8 if channels else 0, b"", b"", b"", (), tuple(scores), samples=samples,
    )  # fmt: skip
    return _picture(
        draw(st.sampled_from(["train", "test", ""])),
        tuple(draw(st.lists(st.sampled_from(_NAMES), max_size=3))),
        draw(st.none() | st.just(looks)),
        draw(st.lists(_BOX, max_size=3)),
        draw(st.tuples(st.integers(1, 5000), st.integers(1, 5000))),
        draw(st.integers(0, 10**9)),
    )


_INT64 = st.integers(-(2**63), 2**63 - 1)
_FEATURES = st.dictionaries(
    st.sampled_from(["image/encoded", "image/object/class/text", "x", "y"]),
    st.one_of(
        st.builds(Feature, st.just(FeatureType.BYTES), st.lists(st.binary(max_size=4), max_size=3)),
        st.builds(Feature, st.just(FeatureType.FLOAT), st.lists(st.floats(width=32), max_size=3)),
        st.builds(Feature, st.just(FeatureType.INT64), st.lists(_INT64, max_size=3)),
        st.just(Feature(None, ())),
    ),
    max_size=3,
)  # fmt: skip


def _of(*pictures: Picture) -> Statistics:
    sums = Statistics()
    for one in pictures:
        sums.merge(Statistics.of_shard(one.split, [one]))
    return sums


def _statistics(pictures: Sequence[Picture], features: Sequence[dict[str, Feature]]) -> Statistics:
    statistics = _of(*pictures)
    records = RecordStatistics()
    for feature in features:
        records.add(feature, _SPECS)
    return statistics.merge(Statistics.of_shard("train", [], records))


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(_pictures(), _FEATURES, st.integers(0, 3)), max_size=12), st.permutations(range(4)))
def test_the_document_does_not_depend_on_parts_or_order(
    rows: list[tuple[Picture, dict[str, Feature], int]], order: list[int]
) -> None:
    parts = [
        _statistics([p for p, _, n in rows if n == i], [f for _, f, n in rows if n == i]) for i in range(4)
    ]
    whole = _statistics([p for p, _, _ in rows], [f for _, f, _ in rows])
    merged = Statistics()
    for number in order:
        merged.merge(pickle.loads(pickle.dumps(parts[number])))
    assert merged == whole
    for split, sums in whole.splits.items():
        stored = json.loads(json.dumps(merged.splits[split].records.as_json()))
        assert RecordStatistics.from_json(stored) == sums.records
    document = statistics_text(merged.as_json())
    assert document == statistics_text(whole.as_json())
    assert json.loads(document) == whole.as_json()
    # NaN and infinity are not valid JSON either.
    assert "NaN" not in document and "Infinity" not in document


def test_merging_does_not_change_the_other() -> None:
    one, other = (
        _statistics([_picture()], []),
        _statistics([_picture(split="test")], [{"x": Feature(FeatureType.INT64, (1,))}]),
    )
    before = copy.deepcopy(other)
    one.merge(other).merge(other)
    assert other == before


def test_gray_counts_as_color_in_mixed_datasets_and_alpha_is_ignored() -> None:
    gray, color, clear = (np.full((1, 2, n), value, np.uint8) for n, value in ((1, 51), (3, 102), (4, 153)))
    pictures = [_picture(looks=_looks(pixels)) for pixels in (gray, color, clear)]
    mixed = _of(*pictures).as_json()["splits"]["train"]["all"]
    assert mixed["pixels"]["mean"] == [0.4, 0.4, 0.4]
    assert mixed["channels"] == {"1": 1, "3": 1, "4": 1}
    only_gray = _of(*pictures[:1]).as_json()["normalize"]["train"]
    assert only_gray == {"mean": [0.2], "std": [0.0]}


def test_a_picture_counts_for_each_of_its_classes_or_as_unlabelled() -> None:
    sums = _of(*[_picture(labels=("a", "b", "a")), _picture(labels=())]).as_json()["splits"]["train"]
    assert {name: value["records"] for name, value in sums["classes"].items()} == {"a": 1, "b": 1}
    assert sums["all"]["records"] == 2
    assert sums["all"]["unlabelled"] == 1
    assert sums["classes"]["a"]["bytes"]["sum"] == 100


def test_all_classes_are_counted_and_the_largest_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_DESCRIBED_CLASSES", 4)
    many = 9
    pictures = [_picture(labels=(f"c{number:05d}",)) for number in range(many)]
    pictures += [_picture(labels=(f"c{many - 1:05d}",))]
    sums = _of(*pictures).as_json()["splits"]["train"]
    assert sums["number_of_classes"] == len(sums["classes"]) == many
    assert sum(value["records"] for value in sums["classes"].values()) == many + 1
    described = [name for name, value in sums["classes"].items() if "bytes" in value]
    assert len(described) == 4
    assert f"c{many - 1:05d}" in described
    assert sums["classes"][f"c{many - 2:05d}"] == {"records": 1}


def test_boxes_are_measured_except_wrong_ones() -> None:
    boxes = [(0.5, 0.5), (1.0, 0.25), (math.nan, 0.1), (-0.2, 0.1), (math.inf, 0.5)]
    found = _of(*[_picture(boxes=boxes), _picture()]).as_json()["splits"]["train"]["all"]["boxes"]
    assert found["count"] == 5
    assert found["area"] | {"histogram": 0, "quantiles": 0} == {
        "count": 2, "min": 0.25, "max": 0.25, "mean": 0.25, "median": 0.25, "std": 0.0,
        "histogram": 0, "quantiles": 0,
    }  # fmt: skip
    assert (found["per_image"]["min"], found["per_image"]["max"]) == (0, 5)


def test_objects_are_counted_by_class() -> None:
    records = RecordStatistics()
    records.add({"image/object/class/text": Feature(FeatureType.BYTES, [b"cat", b"cat"])}, _SPECS)
    records.add({"image/object/class/text": Feature(FeatureType.BYTES, [b"dog"])}, _SPECS)
    document = Statistics.of_shard("train", [], records).as_json()
    assert document["splits"]["train"]["objects"]["classes"] == {"cat": 2, "dog": 1}


def test_scores_that_are_finite_have_names() -> None:
    looks = _looks(np.zeros((1, 1, 3), np.uint8), (0.25, math.nan, 0.5))
    scores = _of(*[_picture(looks=looks)]).as_json()["total"]["all"]["scores"]
    means = {name: value["mean"] for name, value in scores.items()}
    assert means == {"brightness": 0.25, "brightness_99": 0.5}


def test_an_empty_shard_leaves_an_empty_split() -> None:
    document = Statistics.of_shard("test", []).as_json()
    assert document["splits"]["test"]["all"]["records"] == 0
    assert document["splits"]["test"]["all"]["width"] == {"count": 0}
    assert document["normalize"] == {}
    assert Statistics().as_json()["splits"] == {}


@_FEW
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2))), st.permutations(range(3)))
def test_too_many_features_keep_the_first_names_with_complete_sums(
    rows: list[tuple[int, int]], order: list[int]
) -> None:
    parts: list[dict[int, int]] = [{}, {}, {}]
    for name, number in rows:
        parts[number][name] = parts[number].get(name, 0) + 1
        keep_first(parts[number], 3)
    merged: dict[int, int] = {}
    for number in order:
        for name, count in parts[number].items():
            merged[name] = merged.get(name, 0) + count
        keep_first(merged, 3)
    names = [name for name, _ in rows]
    assert first_of(merged, 3) == {name: names.count(name) for name in sorted(set(names))[:3]}


Array = np.ndarray[Any, Any]


def all_of(*pictures: Array) -> dict[str, Any]:
    looks = (ImageQuality((), (), 1, b"", b"", b"", samples=sum_samples(pixels)) for pixels in pictures)
    document = _of(*(_picture(looks=one) for one in looks)).as_json()
    found: dict[str, Any] = json.loads(statistics_text(document))["splits"]["train"]["all"]
    return found


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
    means = np.array([pixels.mean(0) for pixels in flat]).mean(0)
    squares = np.array([(pixels**2).mean(0) for pixels in flat]).mean(0)
    assert np.allclose(found["per_image"]["mean"], means, rtol=6e-6, atol=1e-9)
    deviations = np.sqrt(np.maximum(squares - means**2, 0))
    assert np.allclose(found["per_image"]["std"], deviations, rtol=6e-6, atol=1e-6)


@pytest.mark.parametrize(("shapes", "number"), [([8, 8], 8), ([1, 3], 3), ([2], 2), ([4], 4), ([1, 1], 1)])
def test_channels_count_together_if_all_pictures_have_them(shapes: list[int], number: int) -> None:
    pictures = [np.full((2, 2, channels), 51, np.uint8) for channels in shapes]
    found = all_of(*pictures)
    assert found["pixels"]["mean"] == [0.2] * number
    assert found["channels"] == {str(channels): shapes.count(channels) for channels in shapes}


#: Maximum relative error of a quantile: half a bin.
_RELATIVE_ERROR = 1 / 256
_SHARES = [0, 0.01, 0.25, 0.5, 0.9, 0.99, 1]
_FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def _spread(values: list[Any], bits: int = 0) -> sketches.Histogram:
    spread = sketches.Histogram(bits)
    for value in values:
        spread.add(value)
    return spread


@_FEW
@given(st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False))
def test_a_number_lies_between_the_edges_of_its_bin(value: float) -> None:
    low, high = sketches.bin_edges(sketches.bin_of(value))
    if value > 0:
        assert low <= value and (value < high or high == sys.float_info.max)
    elif value < 0:
        assert value <= high and (low < value or low == -sys.float_info.max)
    else:
        assert low == high == 0
    if value:
        assert (high - low) / 2 <= abs(value) * _RELATIVE_ERROR


@_FEW
@given(st.lists(_INT64, min_size=1))
def test_sums_of_whole_numbers_are_exact(values: list[int]) -> None:
    spread = _spread(values)
    mean = Fraction(sum(values), len(values))
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    assert spread.sum == sum(values)
    assert (spread.low, spread.high) == (min(values), max(values))
    assert spread.mean == float(mean)
    assert math.isclose(spread.deviation, math.sqrt(variance), rel_tol=1e-12)


@_FEW
@given(st.lists(_FLOAT32, min_size=1))
def test_sums_of_floats_of_32_bits_are_exact(values: list[float]) -> None:
    spread = _spread(values, sketches.FLOAT32_BITS)
    assert spread.mean == float(sum(map(Fraction, values)) / len(values))
    assert spread.zeros == values.count(0)


@pytest.mark.parametrize(
    ("bits", "values"), [(0, st.integers(0, 10**7)), (sketches.FRACTION_BITS, st.floats(1e-6, 1e6))]
)
@_FEW
@given(st.data())
def test_quantiles_match_numpy_within_the_stated_error(bits: int, values: Any, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(values, min_size=1))
    for found, true in zip(_spread(drawn, bits).quantiles(_SHARES), np.quantile(drawn, _SHARES)):
        assert abs(found - true) <= _RELATIVE_ERROR * 1.0001 * true + (0 if bits else 1e-6)


@_FEW
@given(st.lists(st.integers(0, 255), min_size=1))
def test_quantiles_of_small_whole_numbers_are_exact(values: list[int]) -> None:
    assert np.allclose(_spread(values).quantiles(_SHARES), np.quantile(values, _SHARES), rtol=1e-12)


@_FEW
@given(st.lists(_INT64))
def test_a_histogram_counts_every_number_once(values: list[int]) -> None:
    edges, counts = _spread(values).buckets()
    assert sum(counts) == len(values)
    assert len(edges) == len(counts) + 1 if values else edges == counts == []
    assert edges == sorted(edges)
    assert len(counts) <= 33 or max(values) > 2**31


@_FEW
@given(st.lists(st.integers(1, 5000), min_size=1))
def test_a_histogram_equals_numpys_with_the_same_edges(values: list[int]) -> None:
    edges, counts = _spread(values).buckets()
    if len(set(values)) > 1:
        assert np.histogram(values, edges)[0].tolist() == counts


@_FEW
@given(st.lists(st.floats(0, 1), min_size=1))
def test_shares_have_twenty_equal_buckets(values: list[float]) -> None:
    histogram = _spread(values, sketches.FRACTION_BITS).summary(shares=True)["histogram"]
    assert np.allclose(histogram["edges"], np.linspace(0, 1, 21))
    assert sum(histogram["counts"]) == len(values)


def test_moments_equal_those_of_a_histogram() -> None:
    extent, spread = sketches.Moments(), _spread([1, 2, 300])
    for value in (1, 2, 300):
        extent.add(value)
    assert extent.summary().items() <= spread.summary().items()
    assert sketches.Moments.from_json(extent.as_json()) == extent
    assert sketches.Moments().summary() == {"count": 0}


_VALUES = st.one_of(st.binary(max_size=3), st.binary(min_size=60, max_size=200))


@_FEW
@given(
    st.lists(st.tuples(_VALUES, st.integers(0, 3))), st.permutations(range(4)), st.sampled_from([1, 4, 1000])
)
def test_merged_value_counts_do_not_depend_on_parts_or_order(
    values: list[tuple[bytes, int]], order: list[int], most: int
) -> None:
    parts = [sketches.ValueCounts(most) for _ in range(4)]
    whole = sketches.ValueCounts(most)
    for value, number in values:
        parts[number].add(value)
        whole.add(value)
    merged = sketches.ValueCounts(most)
    for number in order:
        merged.merge(sketches.ValueCounts.from_json(json.loads(json.dumps(parts[number].as_json()))))
    assert merged == whole
    # Exact, because there are fewer values than hashes.
    assert merged.unique == len({value for value, _ in values})
    if merged.counts is not None:
        counted = {value: [v for v, _ in values].count(value) for value, _ in values}
        assert merged.counts == counted
        assert list(merged.most_common()) == sorted(counted.items(), key=lambda item: (-item[1], item[0]))


def test_many_values_are_estimated_and_the_parts_do_not_matter() -> None:
    tallies = [sketches.ValueCounts(1000) for _ in range(5)]
    for i in range(50_000):
        tallies[i % 5].add(f"key {i}".encode())
        tallies[(i + 1) % 5].add(f"key {i}".encode())
    forwards, backwards = sketches.ValueCounts(1000), sketches.ValueCounts(1000)
    for i in range(5):
        forwards.merge(tallies[i])
        backwards.merge(tallies[4 - i])
    assert forwards == backwards
    assert forwards.unique == pytest.approx(50_000, rel=0.1)
    assert list(forwards.most_common()) == []
    assert len(json.dumps(forwards.as_json())) < 12_000
