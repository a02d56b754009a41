"""Draws the page: a pure function from the gathered data to one self-contained HTML file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import groupby
from typing import Any, NamedTuple

from shardwright.core.report.data import MAX_PAGE_BYTES, Checked, ReportData
from shardwright.core.report.index_page import version_view
from shardwright.core.report.meanings import MEANINGS
from shardwright.core.report.measures import (
    SPREAD_HEADS,
    all_pictures,
    best_channels,
    channel_rows,
    compared_sizes,
    measured_originals,
    objects_view,
    quality_charts,
    sample_rows,
    size_charts,
    spread_rows,
)
from shardwright.core.report.pages import draw_page
from shardwright.core.report.samples import ranked, totals_of
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
from shardwright.schemas.drift_tables import as_mapping, drift_tables
from shardwright.schemas.plain_text import shell_word
from shardwright.schemas.side_files import with_page_digest

_MAX_SPLITS = 40
#: Largest number of limits of a comparison that are listed.
_MAX_REFUSALS = 20
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
    nodes = flow_nodes(data.ledger, list(data.splits))
    listed = sum(node.files for node in nodes)
    groups = code_groups(data.checked, amount.rows)
    drift = None if data.drift is None else _drift(data.drift)
    checked = data.checked
    formats = totals_of(data.formats)
    reasons = data.ledger.get("reasons", {}).get("quarantined", {})
    context = {
        "data": data,
        "checked": checked,
        "report": checked.report if checked else None,
        "depth": _DEPTHS.get(checked.report.depth, "") if checked else "",
        "verdict": verdict_of(checked) if checked else None,
        "word": shell_word(data.place or "DIR"),
        "groups": groups,
        "meanings": defaultdict(str, MEANINGS),
        "nodes": nodes,
        "listed": listed,
        "splits": list(data.splits.items())[:_MAX_SPLITS],
        "classes": class_tables(data, amount),
        "objects": (objects := objects_view(data)),
        "balance": (balance := data.balance),
        "uneven": balance.uneven[: amount.classes // 10],
        "lacking": [item for item in balance.missing if len(item.names) > _NAMED][:_MAX_SPLITS],
        "split_text": split_text(data),
        "most_inputs": _MAX_INPUTS,
        "all_classes": len({sheet.label for sheet in data.sheets}) >= len(data.labels),
        "pair_groups": [
            (code, list(found))
            for code, found in groupby(
                checked.pairs if checked else (), key=lambda one: one.finding.code.value
            )
        ],
        "quarantine_reasons": sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:_MAX_SPLITS],
        "quarantine_pictures": [item for item in data.quarantine if item.picture],
        "measured": bool(all_pictures(data.statistics)),
        "compared": (compared := compared_sizes(data)),
        "originals": measured_originals(data),
        "spreads": (spreads := spread_rows(data)),
        "spread_heads": SPREAD_HEADS,
        "size_charts": (sizes := size_charts(data)),
        "channels": (channels := channel_rows(data.statistics)),
        "best": best_channels(channels),
        "samples": (samples := sample_rows(data.statistics)),
        "quality_charts": (quality := quality_charts(data)),
        "drift": drift,
        "version": version_view(data.place, data.of_version) if data.of_version else None,
        "settings": [
            (name, _setting(value))
            for name, value in settings_in_effect(data).items()
            if value not in _NOTHING
        ],
        "formats": [(name, formats[name]) for name in ranked(formats)],
        "sections": _sections(
            data,
            flow=bool(nodes),
            objects=objects is not None,
            sizes=bool(compared or spreads or sizes),
            channels=bool(channels or samples or quality),
            drift=drift is not None,
        ),
        "percent": percent,
        "time_in_words": time_in_words,
        "fewer": amount != AMOUNTS[0],
        "limit": MAX_PAGE_BYTES,
        "most_letters": amount.letters,
    }
    return draw_page("report.html", context)


def _drift(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the differences from the previous dataset for the page."""
    refusals = document.get("refusals")
    return {
        "old": str(as_mapping(document.get("datasets")).get("old", "")),
        "identical": bool(document.get("identical")),
        "refusals": [
            str(item.get("message") or item.get("limit") or item)
            for item in (refusals if isinstance(refusals, list) else ())
            if isinstance(item, Mapping)
        ][:_MAX_REFUSALS],
        "tables": drift_tables(document),
    }


def _setting(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _sections(
    data: ReportData, *, flow: bool, objects: bool, sizes: bool, channels: bool, drift: bool
) -> Mapping[str, str]:
    """Returns the ids and titles of the sections that have any content."""
    checked = data.checked
    there = (
        ("findings", "Findings", True),
        ("flow", "Outcomes", flow),
        ("classes", "Classes", bool(data.fingerprint)),
        ("objects", "Objects", objects),
        ("images", "Images", bool(data.sheets)),
        ("duplicates", "Duplicates", bool(checked and checked.pairs)),
        ("quality", "Quality", bool(checked and checked.image_findings)),
        ("quarantine", "Left out", bool(data.ledger and data.ledger["quarantined"])),
        ("sizes", "Sizes", sizes),
        ("channels", "Colors", channels),
        ("drift", "Drift", drift),
        ("made", "Made", bool(data.settings)),
    )
    return {id_: title for id_, title, shown_ in there if shown_}
