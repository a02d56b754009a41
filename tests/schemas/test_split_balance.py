"""Finds classes that are spread unevenly over the splits, or missing from one."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.split_balance import compare_splits


def balance_of(**splits: dict[str, int]):  # type: ignore[no-untyped-def]
    return compare_splits(splits, {name: sum(counts.values()) for name, counts in splits.items()})


def test_an_uneven_class_is_named_with_its_numbers() -> None:
    found = balance_of(
        train={"shoes": 182, "hats": 1_400, "bags": 1_418},
        test={"shoes": 61, "hats": 120, "bags": 124},
    )
    assert [item.name for item in found.uneven] == ["shoes"]
    assert found.sentences == [
        "1 of 3 classes differs between splits: 'shoes' is 20% of test (61 of 305) but 6.1% of train "
        "(182 of 3,000)."
    ]


def test_small_counts_do_not_warn_by_chance() -> None:
    # The same shares, but of 25 images: five of them may be shoes by chance.
    found = balance_of(train={"shoes": 15, "hats": 235}, test={"shoes": 5, "hats": 20})
    assert not found.uneven and not found.sentences


def test_small_differences_do_not_warn_however_many_images_there_are() -> None:
    assert not balance_of(train={"a": 300_000, "b": 700_000}, test={"a": 55_000, "b": 45_000}).uneven


def test_missing_classes_are_named_by_split_with_the_largest_first() -> None:
    found = balance_of(
        train={"a": 50, "b": 40, "c": 3, "e": 7}, validation={"a": 9, "d": 1}, test={"b": 5, "a": 5}
    )
    assert {item.split: item.names for item in found.missing} == {
        "train": ("d",), "validation": ("b", "e", "c"), "test": ("e", "c", "d"),
    }  # fmt: skip
    assert found.sentences[0] == "Split train has no image of 1 of 5 classes: 'd'."


def test_empty_splits_and_splits_without_labels_are_left_alone() -> None:
    counts = {"train": {"a": 5, "b": 5, "gone": 0}, "test": {}, "validation": {"a": 0}}
    found = compare_splits(counts, {"train": 10, "test": 1_000, "validation": 0})
    assert found == (((), (), 2))


def test_one_split_is_never_uneven() -> None:
    assert balance_of(train={"a": 1, "b": 1_000}).sentences == []


def test_thousands_of_classes_give_few_short_lines() -> None:
    train = {f"class {i}": 100 for i in range(5_000)}
    test = {f"class {i}": 100 if i < 500 else 1 for i in range(4_000)}
    lines = balance_of(train=train, test=test).sentences
    assert len(lines) == 2 and max(map(len, lines)) < 400
    assert "of 5,000 classes differ between splits, the worst first: 'class " in lines[0]
    assert lines[1].startswith("Split test has no image of 1,000 of 5,000 classes: such as 'class ")


def test_many_splits_give_few_lines() -> None:
    splits = {f"s{i}": {f"c{i}": 10} for i in range(50)}
    assert len(balance_of(**splits).sentences) == 7
    assert balance_of(**splits).sentences[-1] == "44 more splits lack classes."


def test_the_worst_pair_of_a_class_is_shown() -> None:
    found = balance_of(
        train={"a": 100, "b": 9_900}, validation={"a": 100, "b": 900}, test={"a": 500, "b": 500}
    )
    first = next(item for item in found.uneven if item.name == "a")
    assert (first.more.split, first.less.split) == ("test", "train")


def test_random_splits_do_not_warn() -> None:
    # 200 datasets with long-tailed classes: the rule allows two warnings, but the bound is far stricter.
    warned = 0
    for seed in range(200):
        draw = random.Random(seed)
        counts: dict[str, Counter[str]] = {"train": Counter(), "test": Counter(), "validation": Counter()}
        for _ in range(1_000):
            name = f"c{int(draw.paretovariate(0.5)) % 50}"
            counts[draw.choices(list(counts), (8, 1, 1))[0]][name] += 1
        warned += bool(balance_of(**counts).uneven)
    assert warned <= 2


_COUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10**6), max_size=6)


@given(st.dictionaries(st.sampled_from(["train", "test", "validation"]), _COUNTS))
def test_any_counts_give_sentences(splits: dict[str, dict[str, int]]) -> None:
    found = balance_of(**splits)
    for item in found.uneven:
        assert item.more.share >= 2 * item.less.share > 0
    assert len(found.sentences) <= 4


def test_any_name_stays_on_one_line() -> None:
    found = balance_of(train={"a\n\x1b[31m" + "x" * 500: 5, "b": 5}, test={"b": 5})
    assert "\n" not in found.sentences[0] and len(found.sentences[0]) < 200
