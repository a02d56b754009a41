"""The usual run tries each value of a table, and the long run every combination."""

from __future__ import annotations

from helpers.long_tail import one_of_each, slow


def _usual(parameters: list) -> set[tuple]:
    return {item.values for item in parameters if not item.marks}


def test_every_combination_exists_and_each_value_is_in_the_usual_run() -> None:
    names, parameters = one_of_each(kind="abcd", planar=[False, True], order="CF")
    assert names == ["kind", "planar", "order"]
    assert len({item.values for item in parameters}) == len(parameters) == 16
    assert _usual(parameters) == {("a", False, "C"), ("b", True, "C"), ("c", False, "F"), ("d", True, "F")}
    assert all(item.marks[0].name == "slow" for item in parameters if item.marks)


def test_tables_of_the_same_length_are_combined() -> None:
    _, parameters = one_of_each(state=[1, 2, 3], command=["x", "y", "z"])
    assert _usual(parameters) == {(1, "x"), (2, "y"), (3, "z")} and len(parameters) == 9
    assert [item.id for item in parameters][:2] == ["1-x", "1-y"]


def test_marked_parameters_keep_their_values() -> None:
    assert [item.values for item in slow(["a", ("b", 1)])] == [("a",), ("b", 1)]
    assert {item.marks[0].name for item in slow(["a", ("b", 1)])} == {"slow"}
