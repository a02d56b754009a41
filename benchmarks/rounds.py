"""Runs the ways to do something in turn, and summarizes what each round measured."""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from results import Result, result_of

#: What one way measured in one round: measure -> value.
Turn = Mapping[str, float]
#: What each way measured: way -> one entry for each round.
Rounds = dict[str, list[Turn]]


def take_turns(
    ways: Mapping[str, Callable[[], Turn]], rounds: int, warm_up: bool = False, shuffled: bool = False
) -> Rounds:
    """Runs all ways once in each round, so that other work on the machine affects all of them equally.

    Args:
      ways: Way -> function that runs it and returns what it measured.
      rounds: Number of rounds.
      warm_up: Whether to run each way once before the first round.
      shuffled: Whether each round has another order.

    Returns:
      What each way measured.
    """
    found: Rounds = {name: [] for name in ways}
    for number in range(0 if warm_up else 1, rounds + 1):
        order = random.sample(list(ways), len(ways)) if shuffled else list(ways)
        for name in order:
            turn = ways[name]()
            if number:
                found[name].append(turn)
                text = ", ".join(f"{measure} {value:.4g}" for measure, value in turn.items())
                print(f"round {number}: {name}: {text}", file=sys.stderr, flush=True)
    return found


#: Measures of `timed`.
SPEED, SPEED_BY_PROCESSOR = "speed", "by processor time"


def timed(run: Callable[[], int]) -> Turn:
    """Runs a function that returns how many items it processed.

    Returns:
      The items per second, and per second of processor time of this process.
    """
    began, used = time.perf_counter(), time.process_time()
    count = run()
    seconds, processor = time.perf_counter() - began, time.process_time() - used
    return {SPEED: count / seconds, SPEED_BY_PROCESSOR: count / max(processor, 1e-9)}


def summarize(
    rounds: Rounds,
    units: Mapping[str, str],
    ratios: Mapping[str, str] | None = None,
    only: Sequence[str] = (),
) -> list[Result]:
    """Turns what was measured into results.

    Args:
      rounds: What each way measured.
      units: Measure -> unit, of the measures to keep, in the order of the columns.
      ratios: Way -> the way that it is compared with, round by round.
      only: Measures that are compared; empty for all.

    Returns:
      One result for each way and measure.
    """
    results = []
    for name, turns in rounds.items():
        for measure, unit in units.items():
            values = [turn[measure] for turn in turns if measure in turn]
            if not values:
                continue
            base = (ratios or {}).get(name, "")
            others = rounds.get(base, [])
            paired = [
                mine[measure] / other[measure]
                for mine, other in zip(turns, others)
                if measure in mine and other.get(measure)
            ]
            compared = bool(paired) and (not only or measure in only)
            ratio = statistics.median(paired) if compared else None
            results.append(result_of(name, measure, unit, values, ratio, base if compared else ""))
    return results
