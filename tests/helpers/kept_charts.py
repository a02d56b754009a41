"""Draws each chart of the reports once: a chart depends on its numbers alone, and many tests have the same.

Versions that a test makes within an hour have the chart of other versions with the same numbers of records,
although their times differ. The tests of `charts.py` itself call its functions and have every chart drawn.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from shardwright.transforms.report import index_page, measures, view
from shardwright.transforms.report.charts import Chart, TimePoint

#: The modules that draw charts, and the functions that they draw with.
_USERS = {
    measures: ("histogram", "size_scatter"),
    view: ("class_curve",),
    index_page: ("records_over_time",),
}

_HOUR = 3600


def _without_times(number: Any) -> Any:
    """Returns the points of a chart without their times, if they lie within an hour."""
    if not isinstance(number, list) or not all(isinstance(point, TimePoint) for point in number):
        return number
    times = [point.seconds for point in number]
    if not times or max(times) - min(times) > _HOUR:
        return number
    return [(point.records, point.kind) for point in number]


def _once_per_numbers(draw: Callable[..., Chart]) -> Callable[..., Chart]:
    """Returns a function that draws, and keeps the charts."""
    drawn: dict[str, Chart] = {}

    @functools.wraps(draw)
    def chart(*numbers: Any, **named: Any) -> Chart:
        key = repr(([_without_times(number) for number in numbers], named))
        if key not in drawn:
            drawn[key] = draw(*numbers, **named)
        return drawn[key]

    return chart


def keep_charts() -> None:
    """Has the pages of reports and versions keep the charts that they draw."""
    for module, names in _USERS.items():
        for name in names:
            draw = getattr(module, name)
            if not hasattr(
                draw, "__wrapped__"
            ):  # tests/conftest.py may be imported a second time as `conftest`
                setattr(module, name, _once_per_numbers(draw))
