"""Leaves out the drawings of charts, which take a tenth of the suite's time.

Titles, sentences and tables of charts stay as they are. Modules that look at pages or drawings ask for the
fixture `drawn_charts`. The commands that tests start as processes draw all charts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shardwright.transforms.report import charts

_draw = charts._draw
_SKETCH = '<svg aria-hidden="true" focusable="false" class="chart" viewBox="0 0 340 230"></svg>'


def _sketch(*_: Any) -> str:
    return _SKETCH


def sketch_charts() -> None:
    """Has the reports of all tests show empty drawings."""
    charts._draw = _sketch


@contextmanager
def drawing() -> Iterator[None]:
    """Has the charts drawn within its context."""
    charts._draw = _draw
    try:
        yield
    finally:
        charts._draw = _sketch
