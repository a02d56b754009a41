"""Results of benchmarks: their summary, their form in the history, and the comparison with earlier runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from history import append_run, changes, compare, load_history, run_before
from hypothesis import given
from hypothesis import strategies as st
from results import Result, Run, result_of
from rounds import summarize, take_turns, timed

_MACHINE = {"CPU": "a processor", "cores": "2", "Python": "3.11.9", "load": "0.1"}


def run_of(*results: Result, when: str = "2026-11-21T08:00:00Z", **more: object) -> Run:
    given = {"benchmark": "rebuild", "size": "full", "input": "3 images", "machine": _MACHINE, **more}
    return Run(results=results, when=when, **given)  # type: ignore[arg-type]


def seconds(*values: float) -> Result:
    return result_of("convert", "time", "s", values)


_numbers = st.floats(1e-6, 1e9)
_values = st.lists(_numbers, min_size=1)
_results = st.builds(result_of, st.text(), st.text(), st.text(), _values, st.none() | _numbers, st.text())


@given(st.lists(_results), st.text(), st.dictionaries(st.text(), st.text()))
def test_a_run_survives_the_history(results: list[Result], text: str, facts: dict[str, str]) -> None:
    run = run_of(*results, input=text, machine=facts, versions=facts, minutes=1.5, commit=text)
    assert Run.from_dict(json.loads(json.dumps(run.as_dict()))) == run


@given(st.lists(_numbers, min_size=1))
def test_the_median_lies_within_the_range(values: list[float]) -> None:
    result = result_of("convert", "time", "s", values)
    assert result.least <= result.value <= result.most
    assert result.runs == len(values)


def test_the_history_is_read_in_the_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert load_history(path) == []
    late, early = run_of(seconds(2.0), when="2026-11-22T08:00:00Z"), run_of(seconds(1.0))
    append_run(late, path)
    append_run(early, path)
    assert load_history(path) == [early, late]


def test_a_broken_line_of_the_history_is_named(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    append_run(run_of(seconds(1.0)), path)
    with path.open("a") as file:
        file.write('{"benchmark": "rebuild"}\n')
    with pytest.raises(ValueError, match="line 2: not a run"):
        load_history(path)


@pytest.mark.parametrize(
    ("earlier", "now", "verdict"),
    [
        (seconds(1.0, 1.1, 1.2), seconds(1.3, 1.3, 1.4), "slower"),
        (seconds(1.3, 1.3, 1.4), seconds(1.0, 1.1, 1.2), "faster"),
        (seconds(1.0, 1.1, 1.4), seconds(1.3, 1.3, 1.4), ""),  # the ranges overlap
        (seconds(1.0, 1.0, 1.0), seconds(1.04, 1.04, 1.04), ""),  # too small to count
        (seconds(1.0), seconds(1.15), ""),  # single runs have no spread
        (seconds(1.0), seconds(1.25), "slower"),
        (result_of("a", "b", "images/s", [10.0]), result_of("a", "b", "images/s", [20.0]), "faster"),
        (result_of("a", "b", "images/s", [20.0]), result_of("a", "b", "images/s", [10.0]), "slower"),
        (result_of("a", "b", "MB", [10.0]), result_of("a", "b", "MB", [20.0]), "larger"),
        (result_of("a", "b", "dB", [10.0]), result_of("a", "b", "dB", [20.0]), ""),  # no better direction
    ],
)
def test_a_result_is_marked_if_it_leaves_the_spread(earlier: Result, now: Result, verdict: str) -> None:
    change = compare(now, earlier)
    assert change is not None
    assert change.verdict == verdict
    assert change.ratio == pytest.approx(now.value / earlier.value)


def test_nothing_is_compared_with_zero() -> None:
    assert compare(seconds(1.0), seconds(0.0)) is None


def test_only_runs_of_the_same_kind_are_compared() -> None:
    now = run_of(seconds(2.0), when="2026-11-23T08:00:00Z")
    same = run_of(seconds(1.0), when="2026-11-22T08:00:00Z", machine=_MACHINE | {"load": "9"})
    others = [
        run_of(seconds(3.0), when="2026-11-22T09:00:00Z", **{name: value})
        for name, value in {
            "benchmark": "archives",
            "size": "quick",
            "input": "4 images",
            "machine": {**_MACHINE, "cores": "16"},
        }.items()
    ]
    later = run_of(seconds(4.0), when="2026-11-24T08:00:00Z")
    history = [run_of(seconds(5.0)), same, *others, now, later]
    assert run_before(now, history) == same
    assert changes(now, history)["convert", "time"].ratio == 2.0
    assert changes(history[0], history) == {}


def test_ways_take_turns() -> None:
    order: list[str] = []

    def way(name: str, value: float) -> dict[str, float]:
        order.append(name)
        return {"time": value + len(order)}

    ways = {"a": lambda: way("a", 0.0), "b": lambda: way("b", 10.0)}
    found = take_turns(ways, 2, warm_up=True)
    assert order == ["a", "b"] * 3
    assert found == {"a": [{"time": 3.0}, {"time": 5.0}], "b": [{"time": 14.0}, {"time": 16.0}]}


def test_ratios_are_taken_in_each_round() -> None:
    rounds = {
        "folder": [{"time": 1.0, "peak": 5.0}, {"time": 10.0, "peak": 5.0}, {"time": 2.0, "peak": 5.0}],
        "tar": [{"time": 2.0, "peak": 9.0}, {"time": 20.0, "peak": 9.0}, {"time": 6.0, "peak": 9.0}],
    }
    units = {"time": "s", "peak": "MB", "absent": "s"}
    results = summarize(rounds, units, {"tar": "folder"}, only=("time",))
    assert results == [
        Result("folder", "time", "s", 2.0, 1.0, 10.0, 3),
        Result("folder", "peak", "MB", 5.0, 5.0, 5.0, 3),
        Result("tar", "time", "s", 6.0, 2.0, 20.0, 3, 2.0, "folder"),
        Result("tar", "peak", "MB", 9.0, 9.0, 9.0, 3),
    ]


def test_timed_counts_by_both_clocks() -> None:
    assert timed(lambda: sum(1 for _ in range(1000))).keys() == {"speed", "by processor time"}
