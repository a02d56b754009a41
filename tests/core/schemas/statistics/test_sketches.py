"""Moments, histograms and value counts: exact sums, accurate quantiles, and merging in any order."""

from __future__ import annotations

import json
import math
import pickle
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.schemas.statistics.sketches import (
    FLOAT32_BITS,
    FRACTION_BITS,
    Histogram,
    Moments,
    ValueCounts,
    bin_edges,
    bin_of,
)

#: Maximum relative error of a quantile: half a bin.
_RELATIVE_ERROR = 1 / 256
_SHARES = [0, 0.01, 0.25, 0.5, 0.9, 0.99, 1]
_INT64 = st.integers(-(2**63), 2**63 - 1)
_FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)

_FEW = settings(max_examples=examples(50), deadline=None)


def _spread(values: list[Any], bits: int = 0) -> Histogram:
    spread = Histogram(bits)
    for value in values:
        spread.add(value)
    return spread


@_FEW
@given(st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False))
def test_a_number_lies_between_the_edges_of_its_bin(value: float) -> None:
    low, high = bin_edges(bin_of(value))
    if value > 0:
        assert low <= value and (value < high or high == sys.float_info.max)
    elif value < 0:
        assert value <= high and (low < value or low == -sys.float_info.max)
    else:
        assert low == high == 0
    if value:
        assert (high - low) / 2 <= abs(value) * _RELATIVE_ERROR


@_FEW
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2))
def test_bins_are_in_the_order_of_their_numbers(values: list[float]) -> None:
    bins = [bin_of(value) for value in sorted(values)]
    assert bins == sorted(bins)


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
    spread = _spread(values, FLOAT32_BITS)
    assert spread.mean == float(sum(map(Fraction, values)) / len(values))
    assert spread.zeros == values.count(0)


@pytest.mark.parametrize(
    ("bits", "values"), [(0, st.integers(0, 10**7)), (FRACTION_BITS, st.floats(1e-6, 1e6))]
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
    histogram = _spread(values, FRACTION_BITS).summary(shares=True)["histogram"]
    assert np.allclose(histogram["edges"], np.linspace(0, 1, 21))
    assert sum(histogram["counts"]) == len(values)


@pytest.mark.parametrize(("bits", "values"), [(0, _INT64), (FLOAT32_BITS, _FLOAT32)])
@_FEW
@given(st.data(), st.permutations(range(4)))
def test_merged_histograms_do_not_depend_on_parts_or_order(
    bits: int, values: Any, data: st.DataObject, order: list[int]
) -> None:
    drawn = data.draw(st.lists(st.tuples(values, st.integers(0, 3))))
    parts = [_spread([value for value, part in drawn if part == number], bits) for number in range(4)]
    merged = Histogram(bits)
    for number in order:
        sent = pickle.loads(pickle.dumps(parts[number]))
        merged.merge(Histogram.from_json(json.loads(json.dumps(sent.as_json()))))
    assert json.dumps(merged.as_json()) == json.dumps(_spread([value for value, _ in drawn], bits).as_json())


def test_moments_equal_those_of_a_histogram() -> None:
    extent, spread = Moments(), _spread([1, 2, 300])
    for value in (1, 2, 300):
        extent.add(value)
    assert extent.summary().items() <= spread.summary().items()
    assert Moments.from_json(extent.as_json()) == extent
    assert Moments().summary() == {"count": 0}


_VALUES = st.one_of(st.binary(max_size=3), st.binary(min_size=60, max_size=200))


@_FEW
@given(
    st.lists(st.tuples(_VALUES, st.integers(0, 3))), st.permutations(range(4)), st.sampled_from([1, 4, 1000])
)
def test_merged_value_counts_do_not_depend_on_parts_or_order(
    values: list[tuple[bytes, int]], order: list[int], most: int
) -> None:
    parts = [ValueCounts(most) for _ in range(4)]
    whole = ValueCounts(most)
    for value, number in values:
        parts[number].add(value)
        whole.add(value)
    merged = ValueCounts(most)
    for number in order:
        merged.merge(ValueCounts.from_json(json.loads(json.dumps(parts[number].as_json()))))
    assert merged == whole
    # Exact, because there are fewer values than hashes.
    assert merged.unique == len({value for value, _ in values})
    if merged.counts is not None:
        assert merged.counts == {value: [v for v, _ in values].count(value) for value, _ in values}


def test_many_values_are_estimated_and_the_parts_do_not_matter() -> None:
    tallies = [ValueCounts(1000) for _ in range(5)]
    for i in range(50_000):
        tallies[i % 5].add(f"key {i}".encode())
        tallies[(i + 1) % 5].add(f"key {i}".encode())
    forwards, backwards = ValueCounts(1000), ValueCounts(1000)
    for i in range(5):
        forwards.merge(tallies[i])
        backwards.merge(tallies[4 - i])
    assert forwards == backwards
    assert forwards.unique == pytest.approx(50_000, rel=0.1)
    assert list(forwards.most_common()) == []
    assert len(json.dumps(forwards.as_json())) < 12_000


def test_frequent_values_come_first() -> None:
    value_counts = ValueCounts(10)
    for value in (b"b", b"a", b"c", b"c"):
        value_counts.add(value)
    assert list(value_counts.most_common()) == [(b"c", 2), (b"a", 1), (b"b", 1)]
