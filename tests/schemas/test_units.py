"""Values in the form in which users write them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas import units


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("128MB", 128 * 10**6),
        ("64MiB", 2**26),
        ("1000", 1000),
        (" 1.5 kb ", 1500),
        ("0.5GiB", 2**29),
        ("2TB", 2 * 10**12),
        ("1b", 1),
    ],
)
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1.5.1MB", "12 parsecs", "0", "0.1", "1e9", "1_000", "nan"])
def test_other_texts_are_not_sizes(text: str) -> None:
    with pytest.raises(ValueError):
        units.parse_size(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1.0 kB"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (1.23e9, "1.2 GB"),
        (4.5e12, "4500.0 GB"),
    ],
)
def test_sizes_are_printed_for_people(value: float, text: str) -> None:
    assert units.format_size(value) == text


def test_resize_boxes_are_parsed() -> None:
    assert units.parse_resize("224") == (224, 224)
    assert units.parse_resize(" 320x240 ") == units.parse_resize("320X240") == (320, 240)
    for text in ("", "0", "224x", "x224", "0x5", "-5", "1x2x3", "224.0", "123456", "224 x 224"):
        with pytest.raises(ValueError):
            units.parse_resize(text)


def test_shares_are_exact_and_keep_their_order() -> None:
    splits = units.parse_splits("train=0.7, validation=0.2,test=0.1")
    assert list(splits.items()) == [
        ("train", Fraction(7, 10)),
        ("validation", Fraction(1, 5)),
        ("test", Fraction(1, 10)),
    ]
    assert units.parse_splits("a=1/3,b=2/3")["a"] == Fraction(1, 3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "train",
        "train=",
        "=1",
        "train=0.5",
        "a=0.5,a=0.5",
        "a=1,b=0",
        "a=1.5,b=-0.5",
        "a b=1",
        "a=nan",
        "a=inf",
        "a=1/0",
        "../x=1",
        "a=1,",
    ],
)
def test_other_texts_are_not_shares(text: str) -> None:
    with pytest.raises(ValueError):
        units.parse_splits(text)


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z0-9_]+", fullmatch=True), st.integers(1, 999), min_size=1, max_size=6
    )
)
def test_any_shares_that_add_up_are_accepted(weights: dict[str, int]) -> None:
    total = sum(weights.values())
    text = ",".join(f"{name}={Fraction(weight, total)}" for name, weight in weights.items())
    assert units.parse_splits(text) == {n: Fraction(w, total) for n, w in weights.items()}


def test_numbers_of_shards_are_parsed() -> None:
    assert units.parse_shards("8") == 8
    assert units.parse_shards("train=8, test=1") == {"train": 8, "test": 1}
    for text in ("", "0", "-1", "100000", "8.0", "train=0", "train=8,train=9", "train=", "=3", "a=1,"):
        with pytest.raises(ValueError):
            units.parse_shards(text)


def test_colors_are_parsed() -> None:
    assert units.parse_color("white") == units.parse_color("#fff") == (255, 255, 255)
    assert units.parse_color("#0a141e") == units.parse_color("rgb(10, 20, 30)") == (10, 20, 30)
    for text in ("", "whitish", "#12", "255,255,255", "rgb(1,2)"):
        with pytest.raises(ValueError):
            units.parse_color(text)


def test_fractions_and_whole_numbers_are_parsed() -> None:
    assert units.parse_fraction("0.01") == 0.01
    for text in ("", "nan", "inf", "-0.1", "1.1", "1%"):
        with pytest.raises(ValueError):
            units.parse_fraction(text)
    assert units.parse_int("+7", 0, 9) == 7
    assert units.parse_int(str(2**63 - 1), 0, 2**63 - 1) == 2**63 - 1
    for text in ("", "10", "-1", "7.0", "1e1", "seven", "9" * 30):
        with pytest.raises(ValueError):
            units.parse_int(text, 0, 9)
