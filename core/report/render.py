"""Draws the page: a pure function from the gathered data to one self-contained HTML file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import groupby
from typing import Any, NamedTuple

from shardwright.core.report.data import MAX_PAGE_BYTES, Checked, ReportData
from shardwright.core.report.index_page import version_view
from shardwright.core.report.measures import SPREAD_HEADS, ranked, totals_of
from shardwright.core.report.pages import draw_page
from shardwright.core.report.view import (
    AMOUNTS,
    Amount,
    class_tables,
    code_groups,
    flow_nodes,
    percent,
    reduced,
    settings_in_effect,
    split_text,
)
from shardwright.schemas.check_depths import time_in_words
from shardwright.schemas.codes import MEANINGS
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.drift import drift_tables
from shardwright.schemas.plain_text import shell_word
from shardwright.schemas.side_files import with_page_digest

_MAX_SPLITS = 40
#: Largest number of inputs that are named, and of classes in the sentences about the splits.
_MAX_INPUTS, _NAMED = 12, 3
#: Settings that are not shown, because they give no information.
_NOTHING: tuple[object, ...] = ("", None, (), [], {})
_DEPTHS = {
    "frames": " without reading records",
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


def verdict_of(checked: Checked) -> Verdict:
    """Returns the verdict of a validation. A dataset is sound if it has no finding worse than a note."""
    if checked.report.sound is False:
        return Verdict("✗ Not sound", "bad")
    if checked.report.warnings:
        return Verdict("! Warnings to look at", "warning")
    if checked.report.sound is None:
        return Verdict("? Not verified", "unknown")
    return Verdict("✓ Sound", "good")


def render(data: ReportData) -> str:
    """Draws the page of a dataset.

    If it would be larger than `MAX_PAGE_BYTES`, it is drawn again with fewer images and rows.
    """
    page = ""
    for amount in AMOUNTS:
        page = with_page_digest(_render(reduced(data, amount), amount))
        if len(page.encode()) <= MAX_PAGE_BYTES:
            break
    return page


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
        "depth": _DEPTHS.get(checked.report.depth, "") if checked else "",
        "verdict": verdict_of(checked) if checked else None,
        "word": shell_word(data.place or "DIR"),
        "groups": groups,
        "meanings": defaultdict(str, MEANINGS),
        "most_inputs": _MAX_INPUTS,
        "pair_groups": [
            (code, list(found))
            for code, found in groupby(checked.pairs if checked else (), key=lambda one: one.code.value)
        ],
        "quarantine_pictures": [item for item in data.quarantine if item.picture],
        "spread_heads": SPREAD_HEADS,
        "drift_tables": [] if drift is None else drift_tables(drift),
        "version": version_view(data.place, version) if version else None,
        "sections": _sections(data, about_dataset),
        "percent": percent,
        "time_in_words": time_in_words,
        "fewer": amount != AMOUNTS[0],
        "limit": MAX_PAGE_BYTES,
        "most_letters": amount.letters,
    }
    return draw_page("report.html", {**context, **about_dataset})


def _about_dataset(data: ReportData, dataset: Dataset, amount: Amount) -> dict[str, Any]:
    """Returns what the page says about the contents of `dataset.json`."""
    nodes = flow_nodes(dataset.ledger, list(dataset.splits))
    formats = totals_of(dataset.formats)
    reasons = dataset.ledger.get("reasons", {}).get("quarantined", {})
    balance, splits = dataset.balance, split_text(dataset, data.run.splits_from)
    return {
        "dataset": dataset,
        "nodes": nodes,
        "listed": sum(node.files for node in nodes),
        "splits": [
            (split, dataset.records(split), sum(shard.bytes for shard in shards), len(shards))
            for split, shards in list(dataset.splits.items())[:_MAX_SPLITS]
        ],
        "classes": class_tables(dataset, amount),
        "balance": balance,
        "uneven": balance.uneven[: amount.classes // 10],
        "lacking": [item for item in balance.missing if len(item.names) > _NAMED][:_MAX_SPLITS],
        "split_text": splits,
        "all_classes": len({sheet.label for sheet in data.sheets}) >= len(dataset.classes),
        "quarantine_reasons": sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:_MAX_SPLITS],
        "settings": [
            (name, _setting(value))
            for name, value in settings_in_effect(dataset, splits).items()
            if value not in _NOTHING
        ],
        "formats": [(name, formats[name]) for name in ranked(formats)],
    }


def _setting(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


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
