"""Tests with many cases: `make test` takes a sample of those marked `sampled`, `make test-all` takes all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest


def covering(cases: Sequence[Mapping[str, int]]) -> set[int]:
    """Returns the places of a few cases that together contain each value of each parameter.

    Args:
      cases: for each case, a number for the value of each parameter.
    """
    chosen: set[int] = set()
    taken: Counter[tuple[str, int]] = Counter({pair: 0 for case in cases for pair in case.items()})

    def gain(place: int) -> tuple[int, int]:
        """Returns how many new values the case has, and how seldom its other values were taken."""
        counts = [taken[pair] for pair in cases[place].items()]
        return counts.count(0), -sum(counts)

    while not all(taken.values()):
        place = max(range(len(cases)), key=gain)
        chosen.add(place)
        taken.update(cases[place].items())
    return chosen


def evenly(total: int, count: int) -> set[int]:
    """Returns `count` places of `total`, evenly spread; the first is always among them."""
    count = min(total, count)
    return {number * total // count for number in range(count)}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the cases `slow` that the usual run leaves out."""
    groups: dict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") and not item.get_closest_marker("slow"):
            assert isinstance(item, pytest.Function)
            groups[item.nodeid.partition("[")[0]].append(item)
    for group in groups.values():
        marker = group[0].get_closest_marker("sampled")
        assert marker is not None
        if marker.args:
            usual = evenly(len(group), *marker.args)
        else:
            # The cases of a table share the objects that are its values.
            usual = covering(
                [{name: id(value) for name, value in item.callspec.params.items()} for item in group]
            )
        for place, item in enumerate(group):
            if place not in usual:
                item.add_marker(pytest.mark.slow)


def slow(values: Iterable[Any]) -> list[Any]:
    """Returns parameters marked `slow`. Use it if another test without the mark covers the same code."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
        for value in values
    ]
