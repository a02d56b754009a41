"""The usual run takes a sample of the cases, and the long run all of them."""

from __future__ import annotations

from itertools import product

import pytest
from helpers.long_tail import covering, evenly, slow
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.sampled
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("kind", ["a", "b", "c"])
def test_these_twelve_cases_are_a_sample(
    request: pytest.FixtureRequest, kind: str, planar: bool, order: str
) -> None:
    others = [
        (item.callspec.params["kind"], item.callspec.params["planar"], item.callspec.params["order"])
        for item in request.session.items
        if item.name.startswith("test_these_twelve_") and not item.get_closest_marker("slow")
    ]
    if request.config.getoption("-m") and len(others) > 1:
        assert len(others) == 3
        assert [{*values} for values in zip(*others, strict=True)] == [{*"abc"}, {False, True}, {*"CF"}]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_each_value_is_in_a_case(lengths: list[int]) -> None:
    cases = [{str(name): index for name, index in enumerate(case)} for case in product(*map(range, lengths))]
    chosen = covering(cases)
    assert len(chosen) >= max(lengths)
    for name, length in enumerate(lengths):
        assert {cases[place][str(name)] for place in chosen} == {*range(length)}


def test_cases_are_spread_evenly() -> None:
    assert evenly(23, 4) == {0, 5, 11, 17}
    assert evenly(2, 5) == {0, 1}


def test_marked_parameters_keep_their_values() -> None:
    assert [item.values for item in slow(["a", ("b", 1)])] == [("a",), ("b", 1)]
    assert {item.marks[0].name for item in slow(["a", ("b", 1)])} == {"slow"}
