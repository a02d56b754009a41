"""The differences between two datasets as tables of text, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from shardwright.schemas.changes import Kind
from shardwright.schemas.split_order import in_split_order
from shardwright.schemas.units import format_size

Document = Mapping[str, Any]

#: Largest number of rows of a table, and of names in a row.
_MAX_ROWS, _MAX_NAMES = 20, 3
#: Kind of change -> its words; `unchanged` is no change.
_KINDS = {
    "unchanged": "unchanged",
    Kind.ADDED: "added",
    Kind.REMOVED: "removed",
    Kind.RENAMED: "renamed (same source, different key)",
    Kind.CHANGED: "changed (different source)",
    Kind.RE_ENCODED: "re-encoded (same source, different record)",
    Kind.RELABELLED: "other classes",
    Kind.MOVED: "other split",
}
#: Beginning of the names of the numbers of `statistics.json` about all pictures.
_TOTAL = "total.all."


class DriftTable(NamedTuple):
    """A table of differences.

    Attributes:
      title: What it shows.
      heads: Heads of the columns.
      rows: The rows; numbers are right-aligned.
      more: Number of further rows.
    """

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[object, ...]]
    more: int = 0


def drift_tables(drift: Document) -> list[DriftTable]:
    """Returns the tables that have rows.

    Args:
      drift: Report of `diff`. One of another version may lack some numbers; then there are fewer tables.
    """
    images, classes = as_mapping(drift.get("images")), as_mapping(drift.get("classes"))
    relabels = as_mapping(images.get("label_changes"))
    distances = as_mapping(classes.get("distance"))
    before_and_now = ("before", "now")
    tables = [
        *(() if drift.get("identical") else (_sizes(drift), _images(images))),
        DriftTable(
            "Images with other classes",
            ("classes before", "classes now", "images"),
            list(_moves(relabels.get("most_frequent"))),
            _number(relabels.get("pairs")) - len(_items(relabels.get("most_frequent"))),
        ),
        DriftTable(
            "Images in another split",
            ("split before", "split now", "images"),
            sorted(_moves(images.get("split_moves")), key=lambda row: -_number(row[2])),
        ),
        DriftTable(
            "Distance of the class distributions, 0 to 1",
            ("split", "Jensen-Shannon", "largest difference of a share", "of class"),
            list(_distances({**as_mapping(distances.get("splits")), "all": distances.get("all")})),
        ),
        DriftTable(
            "Classes with another share",
            ("class", *before_and_now),
            [
                (_text(item.get("name")), _share(item.get("old")), _share(item.get("new")))
                for item in _items(classes.get("shifts"))
            ],
        ),
        *(
            DriftTable(title, ("class",), [(_text(name),) for name in _list(classes.get(which))])
            for title, which in (("New classes", "new"), ("Vanished classes", "vanished"))
        ),
        DriftTable(
            "Classes with another id", ("class", *before_and_now), _pairs(classes.get("renumbered"), _text)
        ),
        DriftTable(
            "Images left out",
            ("why", *before_and_now),
            [
                (f"{outcome}: {reason}", *numbers)
                for outcome, reasons in as_mapping(drift.get("left_out")).items()
                for reason, *numbers in _pairs(_differing(reasons), int)
            ],
        ),
        DriftTable(
            "Findings per record",
            ("finding", *before_and_now),
            _pairs(_rising(drift.get("quality")), lambda rate: f"{rate:.4%}"),
        ),
        DriftTable(
            "Measured on all images",
            ("mean", *before_and_now),
            _pairs(_means(as_mapping(drift.get("statistics"))), lambda value: f"{value:,.6g}"),
        ),
        *(
            DriftTable(f"Other {what}", (_text(what), *before_and_now), _pairs(pairs, _made))
            for what, pairs in as_mapping(drift.get("made")).items()
        ),
    ]
    return [_shortened(table) for table in tables if table.rows]


def as_mapping(value: Any) -> Document:
    """Returns a mapping from JSON; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def _shortened(table: DriftTable) -> DriftTable:
    more = max(table.more, 0) + len(table.rows) - _MAX_ROWS
    return table._replace(rows=table.rows[:_MAX_ROWS], more=max(more, 0))


def _sizes(drift: Document) -> DriftTable:
    """Returns the records of the splits, and the bytes of their shards."""
    rows: list[tuple[object, ...]] = []
    sizes = dict(_with_all(as_mapping(drift.get("bytes"))))
    for split, records in _with_all(as_mapping(drift.get("records"))):
        old, new, size = records.get("old"), records.get("new"), sizes.get(split, {})
        growth = f"{_number(new) / old - 1:+.1%}" if isinstance(old, int) and old else ""
        numbers = ("" if number is None else number for number in (old, new))
        rows.append((split, *numbers, growth, _size(size.get("old")), _size(size.get("new"))))
    return DriftTable(
        "Records of each split",
        ("split", "records before", "records now", "change", "bytes before", "bytes now"),
        rows,
    )


def _with_all(pairs: Document) -> Iterator[tuple[str, Document]]:
    """Yields the pairs of the splits, and that of all."""
    splits = as_mapping(pairs.get("splits"))
    yield from ((split, as_mapping(splits[split])) for split in in_split_order(splits))
    if pairs.get("all"):
        yield "all", as_mapping(pairs["all"])


def _images(images: Document) -> DriftTable:
    """Returns how many images changed in each way, in each split, with some of their keys."""
    of_splits = {split: as_mapping(counts) for split, counts in as_mapping(images.get("splits")).items()}
    listed = as_mapping(images.get("listed"))
    rows: list[tuple[object, ...]] = []
    for kind, words in _KINDS.items():
        total = _number(images.get(kind))
        if total or kind == "unchanged":
            changes = _items(listed.get(kind))[:_MAX_NAMES]
            names = [_change(kind, change) for change in changes] + ["..."] * (0 < len(changes) < total)
            counts = ("" if kind == "unchanged" else _number(of.get(kind)) for of in of_splits.values())
            rows.append((words, total, *counts, ", ".join(names)))
    return DriftTable("Images", ("images", "all", *of_splits, "such as"), rows if images else [])


def _change(kind: str, change: Document) -> str:
    key, old, new = (_text(change.get(name)) for name in ("key", "old", "new"))
    if kind == Kind.RENAMED:
        return f"{old} -> {new}"
    if kind in (Kind.RELABELLED, Kind.MOVED):
        return f"{key} ({old or 'none'} -> {new or 'none'})"
    why = {Kind.ADDED: old, Kind.REMOVED: new}.get(Kind(kind), "")
    return f"{key} ({why})" if why else key


def _moves(items: Any) -> Iterator[tuple[object, ...]]:
    for item in _items(items):
        yield _text(item.get("from")) or "none", _text(item.get("to")) or "none", _number(item.get("images"))


def _distances(distances: Document) -> Iterator[tuple[object, ...]]:
    for split, distance in distances.items():
        if isinstance(distance, Mapping):
            values = (float(distance.get(name) or 0) for name in ("jensen_shannon", "l_infinity"))
            yield split, *(f"{value:.4f}" for value in values), _text(distance.get("name"))


def _means(statistics: Document) -> Document:
    """Returns the means over all pictures that differ, by short names."""
    means = {
        name.removeprefix(_TOTAL): pair
        for name, pair in sorted(statistics.items())
        if name.startswith(_TOTAL) and "mean" in name.split(".") and ".per_image." not in name
    }
    return _differing(means)


def _rising(rates: Any) -> Document:
    """Returns the rates that differ, those that rose most first."""
    return dict(sorted(_differing(rates).items(), key=lambda item: item[1]["old"] - item[1]["new"]))


def _differing(pairs: Any) -> Document:
    """Returns the pairs of two numbers that differ."""
    return {
        name: pair
        for name, pair in as_mapping(pairs).items()
        if isinstance(pair, Mapping)
        and all(isinstance(pair.get(side), int | float) for side in ("old", "new"))
        and pair["old"] != pair["new"]
    }


def _pairs(pairs: Any, text: Callable[[Any], object]) -> list[tuple[object, ...]]:
    """Returns a row for each pair: its name and both values."""
    return [
        (name, *("none" if pair.get(side) is None else text(pair[side]) for side in ("old", "new")))
        for name, pair in as_mapping(pairs).items()
        if isinstance(pair, Mapping)
    ]


def _made(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items() if name != "name")
    return _text(value)


def _items(value: Any) -> list[Document]:
    return [item for item in _list(value) if isinstance(item, Mapping)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    """Returns a value as text, and several with commas."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _size(value: Any) -> str:
    return format_size(value) if isinstance(value, int) else ""


def _share(value: Any) -> str:
    return f"{value:.2%}" if isinstance(value, int | float) else "none"
