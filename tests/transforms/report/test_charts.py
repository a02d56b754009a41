"""Every label of a chart has room inside the chart."""

from __future__ import annotations

import re

import pytest

from shardwright.transforms.report.charts import (
    Chart,
    TimePoint,
    class_curve,
    histogram,
    records_over_time,
    size_scatter,
)

pytestmark = pytest.mark.usefixtures("drawn")

_DAY = 86_400.0
#: Width of a digit and height of a line of the widest font that pages use, in units of the chart.
_DIGIT, _LINE = 7.0, 11.0
_TEXT = re.compile(
    r'<text style="[^"]*text-anchor: (\w+)[^"]*" x="([\d.]+)" y="([\d.]+)"'
    r' transform="rotate\(-(\d+) [^>]*>([^<]*)<'
)
#: Share of a text that lies before its x.
_SHARE_BEFORE = {"start": 0.0, "middle": 0.5, "end": 1.0}


def _history(records: int, days: float, wide: bool = False) -> Chart:
    points = [TimePoint(1.7e9 + i * days * _DAY, records + i, "published") for i in range(5)]
    return records_over_time(points, wide=wide)


CHARTS = {
    "small numbers": lambda: class_curve([3, 2, 1]),
    "powers of ten": lambda: class_curve([9_999_999, 1200, 1]),
    "sizes": lambda: size_scatter([(65_000, 48_000), (1, 1)]),
    "bytes": lambda: histogram("h", "t", "bytes", [1e6 * i for i in range(17)], [9999] * 16, is_bytes=True),
    "a few records": lambda: _history(5, 1),
    "a million records less one": lambda: _history(999_990, 90),
    "many records": lambda: _history(123_456_789, 0.01),
    "a wide screen": lambda: _history(999_990, 30, wide=True),
}


@pytest.mark.parametrize("name", CHARTS)
def test_labels_have_room(name: str) -> None:
    svg = CHARTS[name]().svg
    view_box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert view_box is not None
    width, height = map(float, view_box.groups())
    texts = _TEXT.findall(svg)
    assert len(texts) == svg.count("<text ") >= 4
    for anchor, at_x, at_y, angle, text in texts:
        x, y, upright = float(at_x), float(at_y), angle == "90"
        length = 0.0 if upright else _DIGIT * len(text)
        left = x - _SHARE_BEFORE[anchor] * length
        assert left >= (_LINE if upright else 0.0), text
        assert left + length <= width + _DIGIT, text
        assert _LINE / 2 <= y <= height, text
