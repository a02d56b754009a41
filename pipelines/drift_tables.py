"""Prints the differences between two datasets as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.text import Text

from shardwright.pipelines.record_values import as_text
from shardwright.pipelines.tables import ERROR, console, one_line, print_table, warn
from shardwright.schemas.changes import Change, Kind, most_frequent
from shardwright.schemas.codes import Severity
from shardwright.schemas.distributions import Distance
from shardwright.schemas.drift import Drift, Pair
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.units import counted, format_size, is_or_are
from shardwright.schemas.violation import Violation

_NAMES_SHOWN = 3
_ROWS_SHOWN = 10
_NUMBERS_SHOWN = 30
#: Key of `statistics.json` with the numbers of all pictures.
_TOTAL = "total.all."
_WORDS = {
    Kind.ADDED: "added",
    Kind.REMOVED: "removed",
    Kind.RENAMED: "renamed (same source, different key)",
    Kind.CHANGED: "changed (different source)",
    Kind.RE_ENCODED: "re-encoded (same source, different record)",
    Kind.RELABELLED: "other classes",
    Kind.MOVED: "other split",
}


def print_drift(drift: Drift, refusals: Sequence[Violation] | None = None) -> None:
    """Prints the differences.

    Args:
      drift: The differences.
      refusals: Limits that are exceeded; None if there are no limits.
    """
    out = console()
    old, new = map(as_text, drift.datasets)
    if drift.identical:
        records = drift.all_records.new
        out.print(
            f"  {old} and {new} are identical: {counted(records, 'record')}, "
            f"fingerprint {drift.fingerprints.new}"
        )
    else:
        _print_sizes(out, drift)
        _print_images(out, drift)
        _print_classes(out, drift)
    _print_left_out(out, drift)
    _print_numbers(out, "findings per record", _differing(drift.quality), _rate)
    _print_numbers(out, "statistics", _differing(_means(drift.statistics)), _number)
    for what, pairs in drift.made.items():
        rows = [[as_text(name), _made(pair.old), _made(pair.new)] for name, pair in pairs.items()]
        if rows:
            print_table(out, (what, "old", "new"), rows)
    if refusals is not None:
        _print_refusals(out, refusals)


def _print_sizes(out: Any, drift: Drift) -> None:
    print_table(
        out,
        ("", "dataset", "fingerprint"),
        [[which, as_text(getattr(drift.datasets, which)), getattr(drift.fingerprints, which)]
         for which in ("old", "new")],
    )  # fmt: skip
    sizes = [(as_text(split), pair, drift.bytes[split]) for split, pair in drift.records.items()]
    sizes.append(("all", drift.all_records, drift.all_bytes))
    print_table(
        out,
        ("split", "old records", "new records", "change", "old bytes", "new bytes"),
        [
            [
                split,
                _count(records.old),
                _count(records.new),
                _growth(records),
                _size(size.old),
                _size(size.new),
            ]
            for split, records, size in sizes
        ],
    )


def _print_images(out: Any, drift: Drift) -> None:
    changes = drift.changes
    splits = [split for split in drift.records if any(changes.in_split(kind, split) for kind in Kind)]
    rows = []
    for kind in Kind:
        total = changes.total(kind)
        if total:
            found = changes.listed.get(kind.value, [])[:_NAMES_SHOWN]
            names = ", ".join(_change(kind, change) for change in found) + (
                ", ..." if total > len(found) else ""
            )
            rows.append([_WORDS[kind], total, *(changes.in_split(kind, split) for split in splits), names])
    unchanged = [["unchanged", changes.unchanged, *("" for _ in splits), ""]]
    print_table(out, ("images", "all", *map(as_text, splits), "such as"), [*unchanged, *rows])
    if changes.relabels:
        print_table(
            out,
            ("old classes", "new classes", "images"),
            [
                [_classes(old), _classes(new), count]
                for (old, new), count in most_frequent(changes.relabels)[:_ROWS_SHOWN]
            ],
        )
        _print_more(
            out,
            max(changes.pairs, len(changes.relabels)) - _ROWS_SHOWN,
            "pair of classes",
            "pairs of classes",
        )
    if changes.moves:
        moves = sorted(changes.moves.items(), key=lambda item: (-item[1], item[0]))
        print_table(
            out,
            ("old split", "new split", "images"),
            [[as_text(old), as_text(new), count] for (old, new), count in moves[:_ROWS_SHOWN]],
        )
        _print_more(out, len(moves) - _ROWS_SHOWN, "pair of splits", "pairs of splits")


def _print_classes(out: Any, drift: Drift) -> None:
    classes = drift.classes
    if not classes.shifts and not classes.renumbered and not classes.overall.l_infinity:
        return
    distances = (
        {**classes.splits, "all": classes.overall} if len(classes.splits) > 1 else {"all": classes.overall}
    )
    print_table(
        out,
        ("classes", "L-infinity", "of", "Jensen-Shannon"),
        [_distance(split, found) for split, found in distances.items()],
    )
    rows = [
        [as_text(name), f"{pair.old:.2%}", f"{pair.new:.2%}"]
        for name, pair in list(classes.shifts.items())[:_ROWS_SHOWN]
    ]
    if rows:
        print_table(out, ("class", "old share", "new share"), rows)
        more = len(classes.shifts) - _ROWS_SHOWN
        _print_more(out, more, "class with a different share", "classes with different shares", "at least ")
    for what, names in (("new", classes.new), ("vanished", classes.vanished)):
        if names:
            listed = ", ".join(map(as_text, names[:_ROWS_SHOWN])) + (
                ", ..." if len(names) > _ROWS_SHOWN else ""
            )
            out.print(f"  {counted(len(names), f'{what} class')}: {listed}")
    for name, pair in list(classes.renumbered.items())[:_ROWS_SHOWN]:
        out.print(f"  class {as_text(name)} had the id {pair.old} and has {pair.new}")
    _print_more(
        out, len(classes.renumbered) - _ROWS_SHOWN, "class with a different id", "classes with different ids"
    )


def _print_left_out(out: Any, drift: Drift) -> None:
    rows = [
        [f"{outcome}: {as_text(reason)}", pair.old, pair.new]
        for outcome, reasons in drift.left_out.items()
        for reason, pair in reasons.items()
        if pair.old != pair.new
    ]
    if rows:
        print_table(out, ("left out", "old", "new"), rows)


def _print_numbers(out: Any, what: str, pairs: Mapping[str, Pair], text: Any) -> None:
    rows = [
        [as_text(name), text(pair.old), text(pair.new)] for name, pair in list(pairs.items())[:_NUMBERS_SHOWN]
    ]
    if rows:
        print_table(out, (what, "old", "new"), rows)
        _print_more(out, len(pairs) - _NUMBERS_SHOWN, "number", "numbers")


def _print_refusals(out: Any, refusals: Iterable[Violation]) -> None:
    refusals = list(refusals)
    for refusal in refusals:
        if refusal.severity is Severity.ERROR:
            line = Text("  ").append("refused", ERROR).append(f": {one_line(refusal.message)}")
            out.print(line, soft_wrap=True)
        else:
            warn(out, refusal.message)
    errors = sum(refusal.severity is Severity.ERROR for refusal in refusals)
    exceeded = counted(errors, "limit") if errors else "no limit"
    out.print(f"  {exceeded} {is_or_are(errors or 1)} exceeded")


def _print_more(out: Any, count: int, one: str, several: str, least: str = "") -> None:
    if count > 0:
        out.print(f"  and {least}{counted(count, f'more {one}', f'more {several}')}")


def _change(kind: Kind, change: Change) -> str:
    if kind is Kind.RENAMED:
        return f"{as_text(change.old)} -> {as_text(change.new)}"
    if kind is Kind.RELABELLED:
        return f"{as_text(change.key)} ({_classes(change.old)} -> {_classes(change.new)})"
    if kind is Kind.MOVED:
        return f"{as_text(change.key)} ({change.old} -> {change.new})"
    why = change.old if kind is Kind.ADDED else change.new if kind is Kind.REMOVED else ""
    return as_text(change.key) + (f" ({as_text(why)})" if why else "")


def _classes(label: str) -> str:
    return ", ".join(map(as_text, label.split(LABEL_SEPARATOR))) if label else "none"


def _differing(pairs: Mapping[str, Pair]) -> dict[str, Pair]:
    """Returns the pairs whose values are known for both datasets and differ."""
    return {name: pair for name, pair in pairs.items() if pair.old != pair.new and None not in pair}


def _means(statistics: Mapping[str, Pair]) -> dict[str, Pair]:
    """Returns the means over all images by short names; the report has the other numbers too."""
    return {
        name.removeprefix(_TOTAL): pair
        for name, pair in statistics.items()
        if name.startswith(_TOTAL) and "mean" in name.split(".")
    }


def _distance(split: str, found: Distance) -> list[object]:
    return [as_text(split), f"{found.l_infinity:.4f}", as_text(found.name), f"{found.jensen_shannon:.4f}"]


def _growth(pair: Pair) -> str:
    return f"{((pair.new or 0) / pair.old - 1):+.1%}" if pair.old else ""


def _count(value: int | None) -> object:
    return "" if value is None else value


def _size(value: int | None) -> str:
    return "" if value is None else format_size(value)


def _rate(value: float) -> str:
    return f"{value:.4%}"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def _made(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {as_text(str(item))}" for name, item in value.items() if name != "name")
    return as_text(value)
