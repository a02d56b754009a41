"""Tiny classes, and unbalanced classes."""

from __future__ import annotations

from collections import Counter

from shardwright.schemas.pictures import Picture
from shardwright.transforms.validation.balance import ClassCounts, check_balance

BASE = Picture("s", 0, 0, None, "train", (), 1, "jpg", 1, 1, 3)


def found(splits: dict[str, dict[str, int]], labels: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    counts = ClassCounts({split: Counter(classes) for split, classes in splits.items()})
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
        {"train": {"a": 10, "b": 9, "it's": 1}, "test": {"a": 1, "it's": 1}, "empty": {}}, ("a", "z")
    )
    tiny = {message for code, message in messages if code == "TINY_CLASS"}
    assert tiny == {
        "class 'a' has 10 images in split 'train', and none in 'empty', where others have some",
        "class 'b' has 9 images in split 'train' (fewer than 10), and none in 'empty' and 'test', "
        "where others have some",
        "class \"it's\" has 1 image in split 'train' (fewer than 10), and none in 'empty', "
        "where others have some",
        "class 'z' has no images in split 'train' (fewer than 10), and none in 'empty' and 'test', "
        "where others have some",
    }


def test_without_a_train_split_the_largest_split_is_used() -> None:
    assert found({"fit": {"a": 20, "b": 20}, "hold": {"a": 2, "b": 1}}) == []
    assert [code for code, _ in found({"": {"a": 20, "b": 5}})] == ["TINY_CLASS"]


def test_only_pictures_with_classes_are_counted() -> None:
    pictures = [BASE, BASE._replace(labels=("a", "b")), BASE._replace(labels=("a", "a"), split="test")]
    counts = ClassCounts().add(pictures).merge(ClassCounts().add(pictures))
    assert counts.splits == {"train": Counter(a=2, b=2), "test": Counter(a=2)}
