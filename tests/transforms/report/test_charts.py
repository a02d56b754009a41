"""Charts: the shapes agree with the numbers, and every label has room inside the chart."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from shardwright.transforms.report.charts import (
    Chart,
    TimePoint,
    class_curve,
    histogram,
    records_over_time,
    size_scatter,
)
from shardwright.transforms.report.pages import environment

_DAY = 86_400.0
#: Width of a digit and height of a line of the widest font that pages use, in units of the chart.
_DIGIT, _LINE = 7.0, 11.0
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


def _svg(chart: Chart) -> ET.Element:
    """Returns a chart as pages draw it."""
    return ET.fromstring(environment().get_template("macros.html").module.plot(chart))


@pytest.mark.parametrize("name", CHARTS)
def test_labels_have_room(name: str) -> None:
    svg = _svg(CHARTS[name]())
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    texts = svg.findall("text")
    assert len(texts) >= 4
    for element in texts:
        text, upright = element.text or "", "transform" in element.attrib
        if upright:
            x, y = map(float, element.attrib["transform"].split("(")[1].split(")")[0].split())
            assert x >= _LINE and y <= height, text
            continue
        x, y = float(element.attrib["x"]), float(element.attrib["y"])
        length = _DIGIT * len(text)
        left = x - _SHARE_BEFORE[element.attrib["text-anchor"]] * length
        assert left >= 0, text
        assert left + length <= width + _DIGIT, text
        assert _LINE / 2 <= y <= height, text


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_says_what_it_shows(name: str) -> None:
    chart = CHARTS[name]()
    svg = _svg(chart)
    assert svg.attrib["role"] == "img"
    named = {element.attrib.get("id"): element.text for element in svg}
    assert [named[i] for i in svg.attrib["aria-labelledby"].split()] == [chart.title, chart.summary]


def test_bars_are_as_high_as_their_counts() -> None:
    chart = histogram("h", "Width", "pixels", [0, 10, 20, 40], [10, 0, 40])
    low, high = _svg(chart).findall("rect")
    assert float(high.attrib["height"]) == pytest.approx(4 * float(low.attrib["height"]), abs=0.1)
    for bar in (low, high):
        assert float(bar.attrib["y"]) + float(bar.attrib["height"]) == pytest.approx(
            chart.plot.bottom, abs=0.1
        )
    assert [bar.findtext("title") for bar in (low, high)] == ["0 to 10: 10", "20 to 40: 40"]
    by_text = {tick.text: tick.at for tick in chart.plot.y_ticks}
    assert float(high.attrib["y"]) == pytest.approx(by_text["40"], abs=0.1)
    assert chart.summary == "Of 50 images, 40 have 20 to 40; no other bin has more."


def test_a_bin_of_one_number_has_that_number_as_its_label() -> None:
    chart = histogram("h", "Objects", "objects", range(4), [5, 1, 2], whole=True)
    assert [row[0] for row in chart.rows] == [tick.text for tick in chart.plot.x_ticks] == ["0", "1", "2"]
    wider = histogram("h", "Objects", "objects", [0, 2, 4], [5, 1], whole=True)
    assert [row[0] for row in wider.rows] == ["0 to 1", "2 to 3"]


def test_large_and_small_classes_share_a_logarithmic_axis() -> None:
    plot = class_curve([1_000_000, 1000, 1]).plot
    assert plot.y_label == "records (log)"
    assert [tick.text for tick in plot.y_ticks] == ["1", "10", "100", "1k", "10k", "100k", "1M"]
    steps = {round(a.at - b.at, 1) for a, b in zip(plot.y_ticks, plot.y_ticks[1:])}
    assert len(steps) == 1


def test_marks_tell_how_a_version_ended() -> None:
    kinds = ("published", "refused", "withdrawn", "published")
    points = [TimePoint(1.7e9 + i * _DAY, 1000 + i, kind) for i, kind in enumerate(kinds)]
    chart = records_over_time(points, wide=True)
    assert sorted(dot.kind for dot in chart.plot.dots) == sorted(kinds)
    assert len(chart.plot.line) == 3, "the line leaves out refused versions"
    assert [tick.text for tick in chart.plot.x_ticks] == [
        "2023-11-14",
        "2023-11-15",
        "2023-11-16",
        "2023-11-17",
    ]
