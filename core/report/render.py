"""Draws the page of a dataset: a pure function from the gathered data to one self-contained HTML file."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

from shardwright.core.report.gather import Checked, ReportData, with_some_samples
from shardwright.core.report.index_page import version_view
from shardwright.core.report.measures import SAMPLE_HEADS, SPREAD_HEADS, class_rows, ranked
from shardwright.core.report.pages import LETTERS, draw_page, first_small_page, with_page_digest
from shardwright.core.sources.unused_settings import ConversionFacts, has_effect
from shardwright.schemas.codes import MEANINGS, time_in_words
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS, settings_from
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.drift import drift_tables
from shardwright.schemas.errors import UsageError
from shardwright.schemas.findings import FindingsOfCode, ValidationReport
from shardwright.schemas.plain_text import shell_word
from shardwright.schemas.plan import SplitsFrom, settings_json
from shardwright.schemas.splits import by_split, in_split_order, totals_of
from shardwright.schemas.units import parse_splits, percent

_MAX_SPLITS = 40
#: Largest number of findings that are listed, per code and together.
_MAX_ROWS_PER_CODE, _MAX_ROWS = 60, 600
#: Largest number of inputs that are named, and of classes in the sentences about the splits.
_MAX_INPUTS, _NAMED = 12, 3
#: Settings that are not shown, because they give no information.
_NOTHING: tuple[object, ...] = ("", None, (), [], {})
_DEPTHS = {
    "frames": ", checksums only",
    "fast": " without decoding images",
    "full": ", every image decoded",
    "quality": ", every image measured",
}


class Verdict(NamedTuple):
    """Verdict on a validated dataset in the head of a page.

    Attributes:
      text: A few words after a sign.
      tone: Color of the verdict: good, warning, unknown or bad.
    """

    text: str
    tone: str


def verdict_of(report: ValidationReport) -> Verdict:
    """Returns the verdict of a validation. A dataset is sound if it has no finding worse than a note."""
    if report.sound is False:
        return Verdict("✗ Not sound", "bad")
    if report.warnings:
        return Verdict("! Warnings to look at", "warning")
    if report.sound is None:
        return Verdict("? Not verified", "unknown")
    return Verdict("✓ Sound", "good")


def render(data: ReportData) -> str:
    """Draws the page of a dataset.

    If it would be larger than `MAX_PAGE_BYTES`, it is drawn again with fewer images and rows.
    """
    return first_small_page(with_page_digest(_render(reduced(data, amount), amount)) for amount in AMOUNTS)


def _render(data: ReportData, amount: Amount) -> str:
    groups = code_groups(data.checked, amount.rows)
    checked, version, drift = data.checked, data.of_version, data.drift
    about_dataset = {} if data.dataset is None else _about_dataset(data, data.dataset, amount)
    context = {
        **dict.fromkeys(("dataset", "nodes", "classes", "balance", "split_text")),
        "data": data,
        "measures": data.measures,
        "checked": checked,
        "report": checked.report if checked else None,
        "depth": _DEPTHS.get(checked.report.mode, "") if checked else "",
        "verdict": verdict_of(checked.report) if checked else None,
        "word": shell_word(data.place or "DIR"),
        "groups": groups,
        "meanings": defaultdict(str, MEANINGS),
        "most_inputs": _MAX_INPUTS,
        "pair_groups": [
            (code, list(findings))
            for code, findings in groupby(checked.pairs if checked else (), key=lambda one: one.code)
        ],
        "quarantine_pictures": [item for item in data.quarantine if item.picture],
        "spread_heads": SPREAD_HEADS,
        "sample_heads": SAMPLE_HEADS,
        "drift_tables": [] if drift is None else drift_tables(drift),
        "version": version_view(data.place, version) if version else None,
        "sections": _sections(data, about_dataset),
        "percent": percent,
        "time_in_words": time_in_words,
        "fewer": amount != AMOUNTS[0],
        "most_letters": amount.letters,
    }
    return draw_page("report.html", {**context, **about_dataset})


def _about_dataset(data: ReportData, dataset: Dataset, amount: Amount) -> dict[str, Any]:
    """Returns what the page says about the contents of `dataset.json`."""
    nodes = flow_nodes(dataset.ledger)
    formats = totals_of(dataset.formats)
    reasons = dataset.ledger["reasons"].get("quarantined", {})
    balance, splits = dataset.balance, split_text(dataset, data.run.splits_from)
    classes = class_tables(dataset, amount)
    return {
        "dataset": dataset,
        "nodes": nodes,
        "listed": sum(node.files for node in nodes),
        "splits": [
            (split, dataset.records(split), dataset.size(split), len(shards))
            for split, shards in list(dataset.splits.items())[:_MAX_SPLITS]
        ],
        "classes": classes,
        "balance": balance,
        "uneven": balance.uneven[: amount.classes // 10],
        "lacking": [item for item in balance.missing if len(item.names) > _NAMED][:_MAX_SPLITS],
        "split_text": splits,
        "all_classes": classes is not None and len(data.sheets) >= classes["number"] - classes["empty"],
        "quarantine_reasons": sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:_MAX_SPLITS],
        "settings": [
            (name, ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
            for name, value in settings_in_effect(dataset, splits).items()
            if value not in _NOTHING
        ],
        "formats": [(name, formats[name]) for name in ranked(formats)],
    }


def _sections(data: ReportData, about_dataset: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns the ids and titles of the sections that have any content."""
    checked, measures, dataset = data.checked, data.measures, data.dataset
    there = (
        ("findings", "Findings", True),
        ("flow", "Outcomes", about_dataset.get("nodes")),
        ("classes", "Classes", dataset),
        ("objects", "Objects", measures.counts or measures.object_charts or measures.object_classes),
        ("images", "Images", data.sheets),
        ("duplicates", "Duplicates", checked and checked.pairs),
        ("quality", "Quality", checked and checked.image_findings),
        ("quarantine", "Left out", dataset and dataset.ledger["quarantined"]),
        ("sizes", "Sizes", measures.compared or measures.spreads or measures.size_charts),
        ("channels", "Colors", measures.channels or measures.samples or measures.quality_charts),
        ("drift", "Drift", data.drift),
        ("made", "Made", dataset and dataset.plan.settings),
    )
    return {id_: title for id_, title, content in there if content}


#: Up to this many classes, all have bars. Else only this many largest and smallest classes have bars.
_ALL_CLASSES, _SOME_CLASSES = 60, 30
#: Largest number of classes in the table of all classes.
_LISTED_CLASSES = 1_000
#: Largest number of splits with their own column and color.
_MAX_COLUMNS = 6
#: From this many classes on, a sentence says how different they are.
_EXTREMES_FROM = 12
#: Largest number of rows of one outcome. The smallest are combined into one.
_MAX_REASONS = 7


class Amount(NamedTuple):
    """How much of the page is drawn. Smaller amounts are used if the page would be too large."""

    pictures: float = 1.0
    rows: int = _MAX_ROWS
    classes: int = _LISTED_CLASSES
    letters: int = LETTERS


#: Amounts that are tried in turn until the page is small enough.
AMOUNTS = (
    Amount(),
    Amount(0.5, 400, 500),
    Amount(0.2, 200, 200),
    Amount(0.0, 100, 60, 60),
)


def class_tables(dataset: Dataset, amount: Amount) -> dict[str, Any] | None:
    """Returns the tables of classes; None if there are no classes.

    Returns:
      `splits` have a column each. If there are too many, the last column combines the others. Of `number`
      classes, `empty` ones have no records. The `largest` and `smallest` rows have bars. There are no
      `smallest` rows if the `largest` contain all classes. `every` has rows without bars, at most a few
      hundred. `extremes` are the records of the largest class, of the one in the middle and of the smallest
      one with records.
    """
    class_counts = dataset.class_counts
    totals = totals_of(class_counts)
    for name in dataset.classes.values():
        totals.setdefault(name, 0)
    if not totals:
        return None
    splits = in_split_order(class_counts)
    if len(splits) > _MAX_COLUMNS:
        largest = sorted(splits, key=lambda split: -sum(class_counts[split].values()))[: _MAX_COLUMNS - 1]
        splits = [split for split in splits if split in largest]
    columns = {split: class_counts[split] for split in splits}
    if len(splits) < len(class_counts):
        others = {split: counts for split, counts in class_counts.items() if split not in columns}
        columns["all others"] = totals_of(others)
    names = ranked(totals)
    filled = [name for name in names if totals[name]]
    rows = class_rows(names, columns)
    few = len(rows) <= _ALL_CLASSES
    sizes = [totals[name] for name in filled]
    differ = len(sizes) >= _EXTREMES_FROM and sizes[0] != sizes[-1]
    return {
        "splits": tuple(columns),
        "number": len(names),
        "empty": len(names) - len(filled),
        "largest": rows if few else rows[:_SOME_CLASSES],
        "smallest": () if few else rows[-_SOME_CLASSES:],
        "every": () if len(names) <= _ALL_CLASSES else class_rows(names[: amount.classes], columns, False),
        "extremes": (sizes[0], sizes[len(sizes) // 2], sizes[-1]) if differ else None,
    }


def code_groups(checked: Checked | None, rows: int) -> list[FindingsOfCode]:
    """Returns the findings by code, the most severe first.

    Args:
      checked: Results of a validation. None if there are none.
      rows: Largest number of findings that are listed.
    """
    if checked is None:
        return []
    groups = checked.report.by_severity()
    share = max(1, min(_MAX_ROWS_PER_CODE, rows // max(1, len(groups))))
    return [replace(group, findings=group.findings[:share]) for group in groups]


class Node(NamedTuple):
    """An outcome of some of the listed files.

    Attributes:
      name: Name of the split or reason.
      outcome: Written, quarantined, filtered or deduplicated.
      files: Number of files.
    """

    name: str
    outcome: str
    files: int


def flow_nodes(ledger: Mapping[str, Any]) -> list[Node]:
    """Returns the outcomes in the ledger of `dataset.json`: written per split, then left out per reason."""
    groups = {
        "written": {name: counts["written"] for name, counts in by_split(ledger["splits"]).items()},
        **{name: ledger["reasons"].get(name, {}) for name in ("quarantined", "filtered")},
        "deduplicated": {"copies of another": ledger["deduplicated"]},
    }
    nodes = []
    for outcome, counts in groups.items():
        group_nodes = [Node(name, outcome, count) for name, count in counts.items() if count]
        if outcome != "written":
            group_nodes.sort(key=lambda node: (-node.files, node.name))
        if len(group_nodes) > _MAX_REASONS:
            rest = group_nodes[_MAX_REASONS - 1 :]
            others = Node(f"{len(rest)} others", outcome, sum(node.files for node in rest))
            group_nodes = [*group_nodes[: _MAX_REASONS - 1], others]
        nodes += group_nodes
    return nodes


def reduced(data: ReportData, amount: Amount) -> ReportData:
    """Returns the data with fewer images and rows."""
    if amount == AMOUNTS[0]:
        return data

    def some(items: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(items[: -(-int(len(items) * amount.pictures * 10) // 10)]) if amount.pictures else ()

    checked = data.checked
    if checked is not None:
        checked = replace(checked.with_some_images(some), pairs=some(checked.pairs))
    quarantine = [item if amount.pictures else item._replace(picture=None) for item in data.quarantine]
    return replace(
        data,
        checked=checked,
        sheets=with_some_samples(data.sheets, some),
        quarantine=tuple(quarantine[: max(20, int(len(quarantine) * amount.pictures))]),
    )


def split_text(dataset: Dataset, splits_from: SplitsFrom | None) -> str:
    """Returns what decided the splits: the source, or the settings; empty if there are no splits.

    Args:
      dataset: The dataset.
      splits_from: What decided the splits. None if it is not known.
    """
    settings, own = dataset.plan.settings, ", ".join(dataset.splits)
    split_setting = str(settings.get("splits") or "")
    if not own:
        return ""
    pattern, seed = settings.get("split_by"), settings.get("seed", 0)
    drawn = (
        f"{_shares(split_setting)}, by a hash of "
        f"{f'the part of the key that {pattern} matches' if pattern else 'the key'} (seed {seed})"
    )
    with contextlib.suppress(LookupError, ValueError):  # the settings may be damaged
        if dataset.split_shares is not None:
            drawn += f"; {dataset.split_shares.sentence}"
    if splits_from is SplitsFrom.HASH:
        return drawn
    if splits_from is SplitsFrom.BOTH:
        return f"{own}: named by the source for some images; for all others {drawn}"
    split_names = {part.partition("=")[0].strip() for part in split_setting.split(",")}
    # Without run.json, a split that the settings do not name comes from the source.
    if splits_from is SplitsFrom.SOURCE or not dataset.splits.keys() <= split_names:
        return f"{own}, as the source names them"
    return drawn


def _shares(splits: str) -> str:
    """Returns the split shares in `dataset.json` (`train=3/5,test=2/5`) for people: `train 60%, test 40%`."""
    try:
        return ", ".join(f"{name} {float(100 * share):.4g}%" for name, share in parse_splits(splits).items())
    except ValueError:
        return splits


def settings_in_effect(dataset: Dataset, splits: str) -> dict[str, Any]:
    """Returns the settings without those that the source or another setting overrides.

    Args:
      dataset: The dataset.
      splits: Result of `split_text` for it.
    """
    settings = settings_json(dataset.plan.settings)
    of_source = splits.endswith("as the source names them")
    judged = settings.keys() & CONVERT_SETTINGS.keys()  # a later version may have other settings
    idle: list[str] = []
    with contextlib.suppress(UsageError, LookupError, ValueError):  # the settings may be damaged
        facts = ConversionFacts(
            settings_from({}, {name: settings[name] for name in judged}),
            None,
            SplitsFrom.SOURCE if of_source else SplitsFrom.HASH,
        )
        idle = [name for name in judged if not has_effect(name, facts)]
    for name in idle:
        del settings[name]
    if settings.get("splits"):
        settings["splits"] = _shares(str(settings["splits"]))
    if settings.get("shards"):
        settings.pop("shard_size", None)
    return settings
