"""Odd sizes and gray pictures among others, compared with numpy's percentiles."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.codes import FindingCode
from shardwright.transforms.merging import MergeAll
from shardwright.transforms.validation.outliers import SizeRow, Sizes, add_shard, find_outliers


def rows(sizes: list[tuple[int, int]], gray: int = 0) -> list[SizeRow]:
    return [SizeRow(i, i * 10, f"k{i}", *size, gray=i < gray) for i, size in enumerate(sizes)]


def odd(sizes: list[tuple[int, int]]) -> set[int | None]:
    """Returns the numbers of the pictures with odd sizes."""
    items = rows(sizes)
    found = find_outliers(("s", items), Sizes().add(items))
    return {finding.record for finding in found if finding.code is FindingCode.ODD_SIZE}


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 100)), min_size=1, max_size=40))
def test_odd_sizes_match_the_definition(sizes: list[tuple[int, int]]) -> None:
    sides = np.array([math.sqrt(width * height) for width, height in sizes])
    first, third = np.percentile(sides, [25, 75])
    margin = 3 * (third - first)
    certain = set(np.nonzero((sides < first - margin - 1e-6) | (sides > third + margin + 1e-6))[0])
    near = set(np.nonzero((sides < first - margin + 1e-6) | (sides > third + margin - 1e-6))[0])
    assert certain <= odd(sizes) <= near


def test_among_equal_sizes_every_other_is_odd() -> None:
    assert odd([(224, 224)] * 9 + [(225, 224)]) == {9}
    assert odd([(4000, 3000)] * 9 + [(4010, 3000)]) == {9}
    assert odd([(224, 224)] * 9) == set()


def test_the_oddest_size_has_the_lowest_score() -> None:
    items = rows([(100, 100)] * 9 + [(200, 200), (10, 10), (400, 400), (101, 100)])
    found = find_outliers(("s", items), Sizes().add(items))
    scores = {finding.record: finding.score or 0.0 for finding in found}
    assert sorted(scores, key=lambda record: scores[record]) == [10, 11, 9, 12]
    assert min(scores.values()) > 0 and 0.99 < max(scores.values()) <= 1


def test_huge_sizes_are_counted_within_bounds() -> None:
    sizes = Sizes().add(rows([(20_000 + i, 20_000) for i in range(2000)]))
    assert sizes.areas.total() == 2000 and len(sizes.areas) < 1500


def test_gray_pictures_are_odd_unless_most_are_gray() -> None:
    for gray, found in ((0, 0), (1, 1), (5, 5), (6, 0), (10, 0)):
        items = rows([(10, 10)] * 10, gray)
        assert len(list(find_outliers(("s", items), Sizes().add(items)))) == found


def test_no_pictures_have_no_odd_sizes() -> None:
    assert list(find_outliers(("s", []), Sizes())) == []


def test_counts_can_be_merged_in_any_order() -> None:
    parts = [("s", rows([(i + 1, 7)] * (i + 1), gray=1)) for i in range(6)]
    combine = MergeAll(Sizes, add_shard)
    together = combine.create_accumulator()
    for part in parts:
        together = combine.add_input(together, part)
    apart = combine.merge_accumulators(
        combine.add_input(combine.create_accumulator(), part) for part in reversed(parts)
    )
    assert combine.extract_output(together) == combine.extract_output(apart)
    assert together.areas.total() == 21 and together.gray == 6
