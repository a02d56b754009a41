"""Differences from the previous dataset, as the page shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardwright.transforms.report.measures import Document, as_mapping


class DriftRow(NamedTuple):
    """A number in the previous and in this dataset."""

    name: str
    old: str
    new: str


@dataclass(frozen=True)
class DriftView:
    """Differences from the previous dataset, as tables.

    Attributes:
      old: Name of the previous dataset.
      identical: Whether nothing differs.
      kinds: Mapping of kind of change to number of images.
      records: Records of each split before and now.
      classes: Shares of the classes that changed most, before and now.
      distances: Jensen-Shannon distance and largest difference of a share, for each split.
      new: New classes.
      vanished: Classes that vanished.
      moves: Rows with old split, new split and number of images.
      relabels: Rows with old classes, new classes and number of images.
      quality: Findings per record before and now, for each code that differs.
      measures: Means over all images before and now, where they differ.
      made: Settings, versions and features that differ.
      refusals: Limits that were exceeded.
    """

    old: str
    identical: bool
    kinds: tuple[tuple[str, int], ...]
    records: tuple[DriftRow, ...]
    classes: tuple[DriftRow, ...]
    distances: tuple[DriftRow, ...]
    new: tuple[str, ...]
    vanished: tuple[str, ...]
    moves: tuple[DriftRow, ...]
    relabels: tuple[DriftRow, ...]
    quality: tuple[DriftRow, ...]
    measures: tuple[DriftRow, ...]
    made: tuple[DriftRow, ...]
    refusals: tuple[str, ...]


_KINDS = {
    "unchanged": "unchanged", "added": "added", "removed": "removed", "renamed": "under a different key",
    "changed": "with different source bytes", "re_encoded": "stored differently",
    "relabelled": "of a different class", "moved": "in a different split",
}  # fmt: skip
_MAX_DRIFT = 20
#: Numbers of `statistics.json` that are shown, by the beginning and the end of their names.
_OF_ALL = "total.all."
_SHOWN_ENDS = (".mean", ".std", "mean.0", "mean.1", "mean.2", "std.0", "std.1", "std.2")


def drift_view(drift: Document | None) -> DriftView | None:
    """Returns the differences that `diff` found, as tables; None without a previous dataset.

    A report of another version may lack some numbers; then there are fewer tables.
    """
    if drift is None:
        return None
    images, classes = as_mapping(drift.get("images")), as_mapping(drift.get("classes"))
    distance = as_mapping(classes.get("distance"))
    distances = {"all": distance.get("all"), **as_mapping(distance.get("splits"))}
    return DriftView(
        old=str(as_mapping(drift.get("datasets")).get("old", "")),
        identical=bool(drift.get("identical")),
        kinds=tuple((text, int(images.get(kind) or 0)) for kind, text in _KINDS.items()),
        records=_pairs({"all": as_mapping(drift.get("records")).get("all"),
                        **as_mapping(as_mapping(drift.get("records")).get("splits"))}, _count),
        classes=tuple(
            DriftRow(str(item.get("name", "")), _share(item.get("old")), _share(item.get("new")))
            for item in _list(classes.get("shifts"))
        ),
        distances=tuple(
            DriftRow(str(name), f"{float(as_mapping(found).get('jensen_shannon') or 0):.4f}",
                     f"{float(as_mapping(found).get('l_infinity') or 0):.4f}")
            for name, found in list(distances.items())[:_MAX_DRIFT]
        ),
        new=tuple(map(str, _list(classes.get("new"), False))),
        vanished=tuple(map(str, _list(classes.get("vanished"), False))),
        moves=tuple(_move(item) for item in _list(images.get("split_moves"))),
        relabels=tuple(
            _move(item) for item in _list(as_mapping(images.get("label_changes")).get("most_frequent"))
        ),
        quality=_pairs(_differing(drift.get("quality")), lambda rate: f"{rate:.2%}"),
        measures=_measures(as_mapping(drift.get("statistics"))),
        made=tuple(
            row._replace(name=f"{what}: {row.name}" if what != row.name else what)
            for what, pairs in as_mapping(drift.get("made")).items()
            for row in _pairs(as_mapping(pairs), str)
        )[:_MAX_DRIFT],
        refusals=tuple(
            str(item.get("message") or item.get("limit") or item) for item in _list(drift.get("refusals"))
        ),
    )  # fmt: skip


def _differing(pairs: Any) -> Document:
    """Returns the pairs of two numbers that differ, those that rose most first."""
    found = {
        name: pair
        for name, pair in as_mapping(pairs).items()
        if isinstance(pair, Mapping)
        and all(isinstance(pair.get(side), int | float) for side in ("old", "new"))
        and pair["old"] != pair["new"]
    }
    return dict(sorted(found.items(), key=lambda item: (item[1]["old"] - item[1]["new"], item[0])))


def _measures(statistics: Document) -> tuple[DriftRow, ...]:
    """Returns the means over all pictures that differ, in the order of their names."""
    pairs = _differing(
        {
            name.removeprefix(_OF_ALL): pair
            for name, pair in statistics.items()
            if name.startswith(_OF_ALL) and name.endswith(_SHOWN_ENDS) and ".per_image." not in name
        }
    )
    return _pairs(dict(sorted(pairs.items())), lambda value: f"{value:.6g}")


def _pairs(pairs: Document, text: Any) -> tuple[DriftRow, ...]:
    def side(value: Any) -> str:
        return "–" if value is None else str(text(value))

    return tuple(
        DriftRow(str(name), side(pair.get("old")), side(pair.get("new")))
        for name, pair in list(pairs.items())[:_MAX_DRIFT]
        if isinstance(pair, Mapping)
    )


def _move(item: Document) -> DriftRow:
    names = [item.get(name) for name in ("from", "to")]
    old, new = (", ".join(map(str, name)) if isinstance(name, list) else str(name or "") for name in names)
    return DriftRow(_count(item.get("images") or 0), old or "no class", new or "no class")


def _list(value: Any, mappings: bool = True) -> list[Any]:
    items = value if isinstance(value, list) else []
    return [item for item in items if not mappings or isinstance(item, Mapping)][:_MAX_DRIFT]


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _share(value: Any) -> str:
    return f"{value:.2%}" if isinstance(value, int | float) else "–"
