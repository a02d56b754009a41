"""A number printed beside its limit has enough digits to show which one is larger."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.units import beside_limit, decimals_apart, percent_beside_limit

NUMBERS = st.floats(-1e9, 1e9, allow_nan=False).filter(lambda value: value == 0 or abs(value) > 1e-9)


@pytest.mark.parametrize(
    ("value", "limit", "texts"),
    [
        (0.508197, 0.2, ("0.508", "0.2")),
        (0.010001, 0.01, ("0.010001", "0.01")),
        (0.01, 0.01, ("0.01", "0.01")),
        (0.0099, 0.01, ("0.0099", "0.01")),
        (0.28996, 0.29, ("0.28996", "0.29")),
        (12_345.0, 4.0, ("12300", "4")),
        (1.0, 0.0, ("1", "0")),
        (3.5, 3.4, ("3.5", "3.4")),
    ],
)
def test_numbers_get_enough_digits(value: float, limit: float, texts: tuple[str, str]) -> None:
    assert beside_limit(value, limit) == texts


@pytest.mark.parametrize(
    ("value", "limit", "texts"),
    [
        (31 / 61, 0.2, ("51%", "20%")),
        (0.07, 0.06, ("7%", "6%")),
        (1.2, 0.5, ("120%", "50%")),
        (0.0100004, 0.01, ("1.00004%", "1%")),
        (2.0, 1.999, ("200%", "199.9%")),
    ],
)
def test_shares_get_enough_digits(value: float, limit: float, texts: tuple[str, str]) -> None:
    assert percent_beside_limit(value, limit) == texts


@given(NUMBERS, NUMBERS)
def test_printed_numbers_compare_like_the_numbers(value: float, limit: float) -> None:
    text, bound = beside_limit(value, limit)
    if abs(value - limit) > 1e-9 * max(abs(value), abs(limit)):
        assert (float(text) > float(bound), float(text) < float(bound)) == (value > limit, value < limit)


def test_enough_decimals_tell_numbers_apart() -> None:
    assert [decimals_apart(40.2, limit) for limit in (39.0, 40.0, 40.19, 40.2)][:3] == [0, 1, 2]
