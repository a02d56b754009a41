"""Class ids over many builds: no id ever changes, whatever classes come and go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.schemas.errors import UsageError
from shardwright.schemas.labels import check_carried, moved_label, order_labels

#: Few names, so that they repeat; some are numbers, like the names of unused ids.
NAMES = ["cat", "dog", "eel", "Fox", "é", "animals/cat", "\U0001f600", "0", "1", "2", "3", "7"]
SEEN = st.sets(st.sampled_from(NAMES), min_size=1, max_size=6)
OWN_IDS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 8), min_size=1, max_size=8).map(
    lambda ids: {name: number for number, name in {number: name for name, number in ids.items()}.items()}
)
BUILD = st.tuples(SEEN, st.none() | OWN_IDS)
FIRST = st.integers(0, 1)


def check_step(before: Sequence[str], after: Sequence[str], seen: set[str], first_label: int) -> None:
    """Checks the invariants between a build and the next one."""
    assert set(after) >= seen and len(set(after)) == len(after) >= len(before)
    for place, name in enumerate(before):
        if after[place] != name:  # an unused id got a name
            assert name == str(first_label + place) and name not in after


@given(st.lists(BUILD, min_size=2, max_size=8), FIRST)
@example([({"0", "1"}, None), ({"1", "cat"}, {"1": 0, "cat": 1})], 0)
@example([({"cat", "dog"}, {"cat": 0, "dog": 2}), ({"cat", "eel", "dog"}, {"cat": 0, "eel": 1, "dog": 2})], 0)
@example([({"cat"}, {"cat": 1}), ({"cat", "dog"}, {"cat": 1, "dog": 0})], 1)
def test_no_id_ever_moves(builds: list[tuple[set[str], Mapping[str, int] | None]], first_label: int) -> None:
    labels: tuple[str, ...] = ()
    for seen, own_ids in builds:
        after = order_labels(seen, labels, own_ids, first_label)
        check_step(labels, after, seen, first_label)
        assert order_labels(seen, after, own_ids, first_label) == after  # the same data again
        labels = after


@given(st.lists(SEEN, min_size=1, max_size=8))
def test_names_without_own_ids_are_only_appended(builds: list[set[str]]) -> None:
    labels: tuple[str, ...] = ()
    for seen in builds:
        after = order_labels(seen, labels)
        assert after[: len(labels)] == labels
        assert list(after[len(labels) :]) == sorted(seen - set(labels), key=str.encode)
        labels = after


@given(st.lists(st.sampled_from(NAMES), unique=True), st.lists(st.sampled_from(NAMES), unique=True), FIRST)
def test_class_names_that_would_move_an_id_are_refused(
    names: list[str], carried: list[str], first_label: int
) -> None:
    place = moved_label(names, carried, first_label)
    if place is None:
        check_carried(names, carried, first_label, "names.txt", "old")
        assert len(names) >= len([name for name in carried if name in names])
        for number, name in enumerate(carried):
            assert names[number] == name or (name not in names and name == str(first_label + number))
    else:
        assert names[place : place + 1] != [carried[place]]
        with pytest.raises(UsageError) as caught:
            check_carried(names, carried, first_label, "names.txt", "old")
        message = caught.value.message
        assert "--class_names names.txt" in message and "--plan_from old" in message
        assert f"{carried[place]!r}" in message and f"id {first_label + place} in" in message


@given(st.lists(st.sampled_from(NAMES), unique=True), st.lists(st.sampled_from(NAMES), unique=True))
def test_class_names_may_extend_the_plan(carried: list[str], more: list[str]) -> None:
    names = [*carried, *(name for name in more if name not in carried)]
    assert moved_label(names, carried) is None
