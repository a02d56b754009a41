"""Findings across records: unbalanced classes, odd sizes, and gray pictures."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardwright.core.validation.outliers import (
    SizeRow,
    added_counts,
    check_balance,
    count_classes,
    count_sizes,
    find_outliers,
)
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.pictures import Picture

BASE = Picture("s", 0, 0, None, "train", (), 1, "jpg", 1, 1)


def found(splits: dict[str, dict[str, int]], labels: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    counts = Counter({(split, name): n for split, classes in splits.items() for name, n in classes.items()})
    return [(finding.code.value, finding.message) for finding in check_balance(counts, labels)]


def test_classes_of_equal_size_are_balanced() -> None:
    assert found({"train": {"a": 10, "b": 99, "c": 100}}) == []
    assert found({}) == [] == found({}, ("a",))


def test_a_small_and_a_huge_class_are_reported() -> None:
    messages = found({"train": {"a": 1000, "b": 1000, "c": 99, "d": 10_001}})
    assert messages == [
        ("CLASS_IMBALANCE",
         "class 'c' has 99 images in split 'train': less than a 10th of the 1,000 of the median class"),
        ("CLASS_IMBALANCE",
         "class 'd' has 10,001 images in split 'train': more than 10 times the 1,000 of the median class"),
    ]  # fmt: skip
    assert found({"train": {"a": 1000, "b": 100}}) == []  # the median of two is their mean, 550
    assert [code for code, _ in found({"train": {"a": 10_000, "b": 100}})] == ["CLASS_IMBALANCE"]


def test_tiny_classes_are_reported() -> None:
    messages = found(
        {"train": {"a": 10, "b": 9, "it's": 1}, "test": {"a": 1, "it's": 1}, "dev": {"c": 12}}, ("a", "z")
    )
    tiny = {message for code, message in messages if code == "TINY_CLASS"}
    assert tiny == {
        "class 'a' has 10 images in split 'train', and none in 'dev', where others have some",
        "class 'b' has 9 images in split 'train' (fewer than 10), and none in 'dev' and 'test', "
        "where others have some",
        "class \"it's\" has 1 image in split 'train' (fewer than 10), and none in 'dev', "
        "where others have some",
        "class 'c' has no images in split 'train' (fewer than 10), and none in 'test', "
        "where others have some",
        "class 'z' has no images in split 'train' (fewer than 10), and none in 'dev' and 'test', "
        "where others have some",
    }


def test_without_a_train_split_the_largest_split_is_used() -> None:
    assert found({"fit": {"a": 20, "b": 20}, "hold": {"a": 2, "b": 1}}) == []
    assert [code for code, _ in found({"": {"a": 20, "b": 5}})] == ["TINY_CLASS"]


def test_only_pictures_with_classes_are_counted() -> None:
    pictures = [BASE, BASE._replace(labels=("a", "b")), BASE._replace(labels=("a", "a"), split="test")]
    counts = added_counts([count_classes(pictures), count_classes(pictures)])
    assert counts == {("train", "a"): 2, ("train", "b"): 2, ("test", "a"): 2}


def rows(sizes: list[tuple[int, int]], gray: int = 0) -> list[SizeRow]:
    return [SizeRow(i, i * 10, f"k{i}", *size, gray=i < gray) for i, size in enumerate(sizes)]


def odd(sizes: list[tuple[int, int]]) -> set[int | None]:
    """Returns the numbers of the pictures with odd sizes."""
    items = rows(sizes)
    found = find_outliers(("s", items), count_sizes(("s", items)))
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
    assert odd([(224, 224)] * 9) == odd([]) == set()


def test_the_oddest_size_has_the_lowest_score() -> None:
    items = rows([(100, 100)] * 9 + [(200, 200), (10, 10), (400, 400), (101, 100)])
    found = find_outliers(("s", items), count_sizes(("s", items)))
    scores = {finding.record: finding.score or 0.0 for finding in found}
    assert sorted(scores, key=lambda record: scores[record]) == [10, 11, 9, 12]
    assert min(scores.values()) > 0 and 0.99 < max(scores.values()) <= 1


def test_huge_sizes_are_counted_within_bounds() -> None:
    sizes = count_sizes(("s", rows([(20_000 + i, 20_000) for i in range(2000)])))
    assert sizes.total() == 2000 and len(sizes) < 1500


def test_gray_pictures_are_odd_unless_most_are_gray() -> None:
    for gray, found in ((0, 0), (1, 1), (5, 5), (6, 0), (10, 0)):
        items = rows([(10, 10)] * 10, gray)
        assert len(list(find_outliers(("s", items), count_sizes(("s", items))))) == found
