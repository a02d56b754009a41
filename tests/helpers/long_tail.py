"""Tables of parameters: the usual run tries each value, `make test-all` tries every combination."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from typing import Any

import pytest


def one_of_each(**tables: Collection[Any]) -> tuple[list[str], list[Any]]:
    """Returns arguments for `pytest.mark.parametrize`: all combinations, most of them marked `slow`.

    The combinations without the mark contain each value at least once: all values of the longest table, and
    those of the other tables in turn.
    """
    names = list(tables)
    values = {name: list(table) for name, table in tables.items()}
    longest = max(names, key=lambda name: len(values[name]))
    strides, stride = {}, 1
    for name in names:
        strides[name] = 1 if name == longest else stride
        stride *= 1 if name == longest else len(values[name])
    usual = {
        tuple(row // strides[name] % len(values[name]) for name in names)
        for row in range(len(values[longest]))
    }
    combinations = itertools.product(*(range(len(values[name])) for name in names))
    return names, [
        pytest.param(
            *(values[name][index] for name, index in zip(names, combination, strict=True)),
            id="-".join(str(values[name][index]) for name, index in zip(names, combination, strict=True)),
            marks=[] if combination in usual else pytest.mark.slow,
        )
        for combination in combinations
    ]


def slow(values: Iterable[Any]) -> list[Any]:
    """Returns parameters marked `slow`. Use it if another test without the mark covers the same code."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
        for value in values
    ]
