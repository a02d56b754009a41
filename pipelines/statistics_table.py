"""The summary of `statistics.json` that is printed after a validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: Headers of the columns of `statistics_table`.
STATISTICS_COLUMNS = ("split", "images", "width", "height", "channel means", "deviations")
_NOTHING = "-"
#: Number of channels in a cell; `statistics.json` has all of them.
_MAX_CHANNELS = 4


def statistics_table(document: Mapping[str, Any]) -> list[tuple[object, ...]]:
    """Returns a row for each split and, if there are several, a row for all splits.

    Args:
      document: content of `statistics.json`.
    """
    splits = document["splits"]
    rows = [_row(split or _NOTHING, sums["all"]) for split, sums in splits.items()]
    if len(splits) > 1:
        rows.append(_row("all", document["total"]["all"]))
    return rows


def _row(split: str, sums: Mapping[str, Any]) -> tuple[object, ...]:
    pixels = sums.get("pixels", {})
    return (
        split,
        sums["records"],
        _range(sums["width"]),
        _range(sums["height"]),
        _numbers(pixels.get("mean", ())),
        _numbers(pixels.get("std", ())),
    )


def _range(spread: Mapping[str, Any]) -> str:
    if not spread["count"]:
        return _NOTHING
    low, high = spread["min"], spread["max"]
    return f"{low}" if low == high else f"{low}-{high}"


def _numbers(values: Sequence[float | None]) -> str:
    """Returns the numbers of the first channels as text; None stands for a channel without finite samples."""
    shown = [_NOTHING if value is None else f"{value:.4f}" for value in values[:_MAX_CHANNELS]]
    return " ".join([*shown, "..."] if len(values) > _MAX_CHANNELS else shown) or _NOTHING
