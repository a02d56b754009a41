"""The differences between two datasets: their changed images, and the report of `diff` and its tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple

from shardwright.schemas.codes import OF_SOURCE, QUALITY, FindingCode, Outcome
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.findings import ValidationReport
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.json_values import fields_json, is_finite, to_json
from shardwright.schemas.plan import settings_json
from shardwright.schemas.splits import in_split_order, totals_of
from shardwright.schemas.units import format_size

#: Number of changes of each kind to list, those with the smallest keys; further changes are only counted.
MAX_LISTED = 1000
#: Number of pairs of old and new classes to list, the most frequent ones.
MAX_PAIRS = 1000


class Kind(StrEnum):
    """Kind of change of an image. A renamed image can also be changed, relabelled or moved."""

    ADDED = "added"
    REMOVED = "removed"
    RENAMED = "renamed"
    CHANGED = "changed"
    RE_ENCODED = "re_encoded"
    RELABELLED = "relabelled"
    MOVED = "moved"


class Change(NamedTuple):
    """A change of one image.

    Attributes:
      key: Key of the image in the new dataset, or in the old one if the image was removed.
      old: For an added image, why the old dataset left it out (empty if the image was not listed); for a
        removed image, its split; else the old value of what changed: key, source checksum, stored form,
        classes or split.
      new: For an added image, its split; for a removed image, why it was left out; else the new value.
    """

    key: str
    old: str
    new: str


@dataclass
class Changes:
    """Counts of changes; they can be merged.

    Attributes:
      unchanged: Number of images without a change.
      counts: (kind, split) -> images. The split is the new one; for removed images, the old one.
      listed: Kind -> changes; `settle` keeps those with the smallest keys.
      moves: (old split, new split) -> images.
      relabels: (old classes, new classes) -> images; several classes are joined by `LABEL_SEPARATOR`.
      pairs: Number of different `relabels`, if only the most frequent are kept.
    """

    unchanged: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    listed: dict[str, list[Change]] = field(default_factory=dict)
    moves: Counter[tuple[str, str]] = field(default_factory=Counter)
    relabels: Counter[tuple[str, str]] = field(default_factory=Counter)
    pairs: int = 0

    def note(self, kind: Kind, split: str, change: Change) -> None:
        """Adds one change."""
        self.counts[kind.value, split] += 1
        listed = self.listed.setdefault(kind.value, [])
        listed.append(change)
        if len(listed) > 2 * MAX_LISTED:
            self.settle()

    def settle(self) -> None:
        """Drops all changes except those to list."""
        self.listed = {kind: sorted(items)[:MAX_LISTED] for kind, items in self.listed.items()}

    def merge(self, other: Changes) -> None:
        """Adds the changes of other images."""
        self.unchanged += other.unchanged
        self.counts.update(other.counts)
        self.moves.update(other.moves)
        self.relabels.update(other.relabels)
        for kind, items in other.listed.items():
            self.listed.setdefault(kind, []).extend(items)
        self.settle()

    def total(self, kind: Kind) -> int:
        """Number of images with one kind of change in all splits."""
        return sum(count for (name, _), count in self.counts.items() if name == kind)

    def as_json(self) -> dict[str, Any]:
        """Returns the changes as a report stores them."""
        self.settle()
        splits = in_split_order({split for _, split in self.counts})
        # Equally frequent pairs of classes are sorted by name.
        relabels = sorted(self.relabels.items(), key=lambda item: (-item[1], item[0]))[:MAX_PAIRS]
        return {
            "unchanged": self.unchanged,
            **{kind.value: self.total(kind) for kind in Kind},
            "splits": {
                split: {kind.value: self.counts[kind.value, split] for kind in Kind} for split in splits
            },
            "split_moves": [
                {"from": old, "to": new, "images": count} for (old, new), count in sorted(self.moves.items())
            ],
            "label_changes": {
                "pairs": max(self.pairs, len(self.relabels)),
                "most_frequent": [
                    {"from": _names(old), "to": _names(new), "images": count}
                    for (old, new), count in relabels
                ],
            },
            "listed": {
                kind.value: [
                    {"key": key, "old": _names(old), "new": _names(new)}
                    if kind is Kind.RELABELLED
                    else {"key": key, "old": old, "new": new}
                    for key, old, new in self.listed.get(kind.value, ())
                ]
                for kind in Kind
            },
        }


def _names(label: str) -> list[str]:
    return label.split(LABEL_SEPARATOR) if label else []


FORMAT_VERSION = 1
#: Number of classes to list whose share changed, those that changed most.
_MAX_SHIFTS = 100
#: Maximum number of values to compare in a document; a damaged one may have any number.
_MAX_NUMBERS = 10_000
#: Maximum length of lists whose numbers are compared one by one, such as a mean for each channel.
_MAX_LISTED = 16
#: Numbers that are not about the pictures, that occur elsewhere too, or that are about single classes.
_NOT_COMPARED = frozenset({"format_version", "classes", "histogram", "normalize"})
#: Findings that need something to compare with; a report without them does not mean that there are none.
_ASKED_FOR = OF_SOURCE | {FindingCode.EXPECTATION}


class Pair(NamedTuple):
    """A value in the old and in the new dataset; None if it is unknown or missing."""

    old: Any
    new: Any


class OfSplits(NamedTuple):
    """A value of a dataset, and of each of its splits."""

    all: Any
    splits: Mapping[str, Any]

    @property
    def by_name(self) -> dict[str, Any]:
        """The values by what they are about, in words for a sentence."""
        return {"the dataset": self.all, **{f"split {name!r}": one for name, one in self.splits.items()}}


class Described(NamedTuple):
    """A dataset with its findings and statistics.

    Attributes:
      name: Path of the dataset, as the user wrote it.
      dataset: Its `dataset.json`.
      validation: The report in its `findings.json`, if that belongs to this dataset.
      statistics: Its `statistics.json`, if there is one.
    """

    name: str
    dataset: Dataset
    validation: ValidationReport | None = None
    statistics: Mapping[str, Any] | None = None


class Previous(NamedTuple):
    """The dataset before another one, and what became of its images.

    Attributes:
      described: The dataset.
      changes: Changes of its images.
    """

    described: Described
    changes: Changes


@dataclass(frozen=True)
class ClassDrift:
    """The differences between the classes. Classes are compared by name, never by id.

    Attributes:
      distance: Distance between the distributions over classes, also of each split that both datasets have.
      new: Classes that have records now and had none before.
      vanished: Classes that had records and have none now.
      renumbered: Class -> its old and its new id, if both datasets have the class and the ids differ.
      shifts: Class -> its share of the class labels in both datasets, those that changed most first.
    """

    distance: OfSplits
    new: tuple[str, ...]
    vanished: tuple[str, ...]
    renumbered: Mapping[str, Pair]
    shifts: Mapping[str, Pair]


@dataclass(frozen=True)
class Drift:
    """The differences between two datasets.

    Attributes:
      datasets: Names of both datasets.
      fingerprints: Their fingerprints; equal ones mean the same records.
      changes: Changes of the images.
      records: Records in both datasets; of a split None if a dataset has no such split.
      bytes: Bytes of the shards in both datasets.
      classes: Differences between the classes.
      left_out: Outcome -> reason -> images left out of each dataset.
      bad_fraction: Share of images with faults in each dataset.
      quality: Finding code -> findings per record of each dataset, None if no check looked for them.
      statistics: Number of `statistics.json` -> its value in each dataset, None if it is unknown.
      made: Layout, features, settings and versions: name -> value in each dataset, if they differ.
    """

    datasets: Pair
    fingerprints: Pair
    changes: Changes
    records: OfSplits
    bytes: OfSplits
    classes: ClassDrift
    left_out: Mapping[str, Mapping[str, Pair]]
    bad_fraction: Pair
    quality: Mapping[str, Pair] = field(default_factory=dict)
    statistics: Mapping[str, Pair] = field(default_factory=dict)
    made: Mapping[str, Mapping[str, Pair]] = field(default_factory=dict)

    @property
    def identical(self) -> bool:
        """Whether both have the same records, classes and features."""
        return bool(self.fingerprints.old == self.fingerprints.new)

    def fraction(self, kind: Kind) -> float:
        """Returns the number of images with one kind of change per record of the old dataset."""
        records: int = self.records.all.old
        return self.changes.total(kind) / max(1, records)

    def as_json(self) -> dict[str, Any]:
        """Returns the report as it is stored."""
        value = fields_json(self)
        shifts = value["classes"]["shifts"]
        value["classes"]["shifts"] = [{"name": name, **pair} for name, pair in shifts.items()]
        fractions = {kind.value: self.fraction(kind) for kind in Kind}
        images = {**value.pop("changes"), "fractions": fractions}
        return {"format_version": FORMAT_VERSION, "identical": self.identical, "images": images, **value}


def drift_between(old: Described, new: Described, changes: Changes) -> Drift:
    """Returns the differences between two datasets.

    Args:
      old: The old dataset.
      new: The new dataset.
      changes: Changes of the images.
    """
    both = Pair(old.dataset, new.dataset)
    rates = {code.value: Pair(*(_rate(one, code.value) for one in (old, new))) for code in FindingCode}
    return Drift(
        datasets=Pair(old.name, new.name),
        fingerprints=Pair(both.old.fingerprint, both.new.fingerprint),
        changes=changes,
        records=_of_splits(both, Dataset.records),
        bytes=_of_splits(both, Dataset.size),
        classes=_class_drift(*both),
        left_out=_left_out(*both),
        bad_fraction=Pair(*(one.bad_fraction for one in both)),
        quality={code: pair for code, pair in sorted(rates.items()) if pair != (None, None)},
        statistics=_pairs(*(numbers_in(one.statistics) for one in (old, new))),
        made={
            "layout": _differing({"layout": both.old.layout}, {"layout": both.new.layout}),
            "features": _differing(*({item["name"]: item for item in to_json(one.features)} for one in both)),
            "settings": _differing(*(settings_json(one.plan.settings) for one in both)),
            "versions": _differing(*(dict(one.versions) for one in both)),
        },
    )


def _of_splits(both: Pair, count: Callable[[Dataset, str], int]) -> OfSplits:
    """Returns a number of both datasets and of each split, None if a dataset has no such split."""
    return summed(
        {
            split: Pair(*(count(one, split) if split in one.splits else None for one in both))
            for split in in_split_order({*both.old.splits, *both.new.splits})
        }
    )


def summed(splits: Mapping[str, Pair]) -> OfSplits:
    """Returns numbers of splits with their sums."""
    pairs = splits.values()
    return OfSplits(Pair(sum(pair.old or 0 for pair in pairs), sum(pair.new or 0 for pair in pairs)), splits)


def _class_drift(old: Dataset, new: Dataset) -> ClassDrift:
    totals = Pair(*(totals_of(one.class_counts) for one in (old, new)))
    sums = Pair(*(max(1, counts.total()) for counts in totals))
    names = sorted(totals.old.keys() | totals.new.keys())
    shares = {name: Pair(totals.old[name] / sums.old, totals.new[name] / sums.new) for name in names}
    shifts = sorted(shares.items(), key=lambda item: (-abs(item[1].new - item[1].old), item[0]))
    ids = Pair(*({name: one.first_label + i for i, name in enumerate(one.labels)} for one in (old, new)))
    return ClassDrift(
        distance=OfSplits(
            distance(*totals),
            {
                split: distance(counts, new.class_counts[split])
                for split, counts in old.class_counts.items()
                if split in new.class_counts
            },
        ),
        new=tuple(name for name in names if totals.new[name] and not totals.old[name]),
        vanished=tuple(name for name in names if totals.old[name] and not totals.new[name]),
        renumbered={
            name: Pair(number, ids.new[name])
            for name, number in ids.old.items()
            if ids.new.get(name, number) != number
        },
        shifts={name: pair for name, pair in shifts[:_MAX_SHIFTS] if pair.old != pair.new},
    )


def _left_out(old: Dataset, new: Dataset) -> dict[str, dict[str, Pair]]:
    reasons = Pair(*(one.ledger["reasons"] for one in (old, new)))
    copies = Pair(*(int(one.ledger[Outcome.DEDUPLICATED.value]) for one in (old, new)))
    return {
        **{
            outcome.value: _pairs(reasons.old.get(outcome.value, {}), reasons.new.get(outcome.value, {}), 0)
            for outcome in (Outcome.QUARANTINED, Outcome.FILTERED)
        },
        Outcome.DEDUPLICATED.value: {"copy": copies} if any(copies) else {},
    }


def _rate(described: Described, code: str) -> float | None:
    """Returns the findings of a code per record, None if no check looked for it."""
    report = described.validation
    if report is None:
        return None
    count = report.counts.get(code, 0)
    depths = {run.depth for run in (report.run, *report.previous)}
    sought = "quality" in depths or ("full" in depths and code not in QUALITY)
    if not count and (not sought or code in _ASKED_FOR):
        return None
    return count / max(1, described.dataset.all_records)


def numbers_in(document: Any) -> dict[str, float]:
    """Returns the numbers of a JSON document; their names are the keys that lead to them, joined by dots.

    Omits numbers of single classes and of long lists.
    """
    return dict(islice(_leaves(document, ""), _MAX_NUMBERS))


def _leaves(value: Any, name: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        # The numbers of all splits together come first, so that those of many splits leave them in.
        for key in sorted(value.keys() - _NOT_COMPARED, key=lambda key: (key != "total", key)):
            yield from _leaves(value[key], f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and len(value) <= _MAX_LISTED:
        if not any(isinstance(item, list | Mapping) for item in value):
            for i, item in enumerate(value):
                yield from _leaves(item, f"{name}.{i}")
    elif isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value):
        yield name, value


def _pairs(old: Mapping[str, Any], new: Mapping[str, Any], missing: Any = None) -> dict[str, Pair]:
    return {
        name: Pair(old.get(name, missing), new.get(name, missing)) for name in sorted(old.keys() | new.keys())
    }


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Pair]:
    return {name: pair for name, pair in _pairs(old, new).items() if pair.old != pair.new}


class Distance(NamedTuple):
    """The distance of two distributions.

    Attributes:
      l_infinity: Largest difference of a name's shares, 0 to 1. TensorFlow Data Validation's drift comparator
        for strings computes the same (`infinity_norm`).
      name: The name with this difference, the first if there are several; empty if there is none.
      jensen_shannon: The Jensen-Shannon distance with logarithms of base 2, 0 to 1: the square root of
        (D(P||M) + D(Q||M)) / 2, where M = (P + Q) / 2 and D is the Kullback-Leibler divergence
        (Endres and Schindelin 2003). It is `scipy.spatial.distance.jensenshannon(p, q, base=2)`; TensorFlow
        Data Validation's `jensen_shannon_divergence` is its square.
    """

    l_infinity: float
    name: str
    jensen_shannon: float


def distance(old: Mapping[str, int], new: Mapping[str, int]) -> Distance:
    """Returns the distance of two distributions; the largest possible one if only one of them is empty."""
    totals = sum(old.values()), sum(new.values())
    if not any(totals):
        return Distance(0.0, "", 0.0)
    if not all(totals):
        return Distance(1.0, "", 1.0)
    largest, widest, terms = 0.0, "", []
    for name in sorted(old.keys() | new.keys()):
        p, q = old.get(name, 0) / totals[0], new.get(name, 0) / totals[1]
        if abs(p - q) > largest:
            largest, widest = abs(p - q), name
        middle = (p + q) / 2
        terms += [share * math.log2(share / middle) / 2 for share in (p, q) if share]
    divergence = min(max(math.fsum(terms), 0.0), 1.0)
    return Distance(largest, widest, math.sqrt(divergence))


#: Maximum number of rows of a table, and of names in a row.
_MAX_ROWS, _MAX_NAMES = 20, 3
#: Kind of change -> its words.
_KINDS = {
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
    """A table of differences, for the terminal and for the page.

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


def drift_tables(report: Mapping[str, Any]) -> list[DriftTable]:
    """Returns the tables that have rows.

    Args:
      report: The differences as a report stores them (`Drift.as_json`).

    Raises:
      LookupError, TypeError, ValueError or AttributeError: if the report is damaged.
    """
    images, classes = report["images"], report["classes"]
    relabels, distances = images["label_changes"], classes["distance"]
    findings = _unequal(report["quality"]).items()
    tables = [
        *(() if report["identical"] else (_sizes(report), _images(images))),
        DriftTable(
            "Images with other classes",
            ("classes before", "classes now", "images"),
            _ways(relabels["most_frequent"]),
            relabels["pairs"] - len(relabels["most_frequent"]),
        ),
        DriftTable(
            "Images in another split",
            ("split before", "split now", "images"),
            _ways(sorted(images["split_moves"], key=lambda move: -move["images"])),
        ),
        DriftTable(
            "Distance of the class distributions, 0 to 1",
            ("split", "Jensen-Shannon", "largest difference of a share", "of class"),
            [
                (split, f"{far['jensen_shannon']:.4f}", f"{far['l_infinity']:.4f}", far["name"])
                for split, far in {**distances["splits"], "all": distances["all"]}.items()
            ],
        ),
        _compared(
            "Classes with another share",
            "class",
            {shift["name"]: shift for shift in classes["shifts"]},
            "{:.2%}".format,
        ),
        DriftTable("New classes", ("class",), [(name,) for name in classes["new"]]),
        DriftTable("Vanished classes", ("class",), [(name,) for name in classes["vanished"]]),
        _compared("Classes with another id", "class", classes["renumbered"], str),
        _compared(
            "Images left out",
            "why",
            {
                f"{outcome}: {reason}": pair
                for outcome, reasons in report["left_out"].items()
                for reason, pair in _unequal(reasons).items()
            },
            int,
        ),
        _compared(
            "Findings per record",
            "finding",
            dict(sorted(findings, key=lambda item: item[1]["old"] - item[1]["new"])),
            "{:.4%}".format,
        ),
        _compared("Measured on all images", "mean", _means(report["statistics"]), "{:,.6g}".format),
        *(_compared(f"Other {what}", what, pairs, _made) for what, pairs in report["made"].items()),
    ]
    return [
        table._replace(rows=table.rows[:_MAX_ROWS], more=table.more + max(0, len(table.rows) - _MAX_ROWS))
        for table in tables
        if table.rows
    ]


def _sizes(report: Mapping[str, Any]) -> DriftTable:
    """Returns the records of the splits, and the bytes of their shards."""
    rows: list[tuple[object, ...]] = []
    sizes = {**report["bytes"]["splits"], "all": report["bytes"]["all"]}
    for split, pair in {**report["records"]["splits"], "all": report["records"]["all"]}.items():
        old, new = _both(pair)
        growth = f"{(new or 0) / old - 1:+.1%}" if old else ""
        numbers = ("" if number is None else number for number in (old, new))
        size_texts = ("" if size is None else format_size(size) for size in _both(sizes[split]))
        rows.append((split, *numbers, growth, *size_texts))
    return DriftTable(
        "Records of each split",
        ("split", "records before", "records now", "change", "bytes before", "bytes now"),
        rows,
    )


def _images(images: Mapping[str, Any]) -> DriftTable:
    """Returns how many images changed in each way, in each split, with some of their keys."""
    splits = images["splits"]
    rows: list[tuple[object, ...]] = [("unchanged", images["unchanged"], *("" for _ in splits), "")]
    for kind, words in _KINDS.items():
        if total := images[kind]:
            listed = images["listed"][kind][:_MAX_NAMES]
            names = [_change(kind, change) for change in listed] + ["..."] * (0 < len(listed) < total)
            rows.append((words, total, *(counts[kind] for counts in splits.values()), ", ".join(names)))
    return DriftTable("Images", ("images", "all", *splits, "such as"), rows)


def _change(kind: Kind, change: Mapping[str, Any]) -> str:
    key, (old, new) = change["key"], _both(change)
    if kind is Kind.RENAMED:
        return f"{old} -> {new}"
    if kind in (Kind.RELABELLED, Kind.MOVED):
        return f"{key} ({_listed(old)} -> {_listed(new)})"
    why = {Kind.ADDED: old, Kind.REMOVED: new}.get(kind)
    return f"{key} ({why})" if why else key


def _ways(counts: Sequence[Mapping[str, Any]]) -> list[tuple[object, ...]]:
    """Returns a row for each way from some classes or a split to others, with the number of images."""
    return [(_listed(item["from"]), _listed(item["to"]), item["images"]) for item in counts]


def _listed(names: str | Sequence[str]) -> str:
    return (names if isinstance(names, str) else ", ".join(names)) or "none"


def _means(statistics: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the means over all pictures that differ, by short names."""
    return {
        name.removeprefix(_TOTAL): pair
        for name, pair in sorted(_unequal(statistics).items())
        if name.startswith(_TOTAL) and "mean" in name.split(".") and ".pixels.per_image." not in name
    }


def _both(pair: Mapping[str, Any]) -> tuple[Any, Any]:
    return pair["old"], pair["new"]


def _unequal(pairs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the pairs of two known values that differ."""
    return {
        name: pair for name, pair in pairs.items() if None not in _both(pair) and pair["old"] != pair["new"]
    }


def _compared(title: str, what: str, pairs: Mapping[str, Any], cell: Callable[[Any], object]) -> DriftTable:
    """Returns a table with a row for each pair: its name, and what `cell` returns for both values."""
    rows: list[tuple[object, ...]] = [
        (name, *("none" if value is None else cell(value) for value in _both(pair)))
        for name, pair in pairs.items()
    ]
    return DriftTable(title, (what, "before", "now"), rows)


def _made(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_made(item)}" for name, item in value.items() if name != "name")
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
