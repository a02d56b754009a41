"""Draws the page: a pure function from the gathered data to one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from shardwright.core.report.charts import draw_flow, flow_nodes
from shardwright.core.report.data import Checked, ReportData
from shardwright.core.report.findings import MEANINGS
from shardwright.core.report.measures import (
    best_channels,
    channel_rows,
    compared_sizes,
    objects_view,
    quality_charts,
    size_charts,
    spreads,
    stored_samples,
)
from shardwright.core.report.pages import draw_page, first_small_page
from shardwright.core.report.samples import class_totals, ranked
from shardwright.core.report.version_view import version_view
from shardwright.core.report.view import (
    AMOUNTS,
    Amount,
    class_tables,
    percent,
    reduced,
    settings_in_effect,
    split_text,
)
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
    if checked.sound is False:
        return Verdict("✗ Not sound", "bad")
    if checked.warnings:
        return Verdict("! Warnings to look at", "warning")
    if checked.sound is None:
        return Verdict("? Not verified", "unknown")
    return Verdict("✓ Sound", "good")


def render(data: ReportData) -> str:
    """Draws the page of a dataset, with fewer images and rows if it would be too large."""
    return first_small_page(with_page_digest(_render(reduced(data, amount), amount)) for amount in AMOUNTS)


def _render(data: ReportData, amount: Amount) -> str:
    checked, version, balance = data.checked, data.of_version, data.balance
    nodes = flow_nodes(data.ledger, list(data.splits))
    reasons = data.ledger.get("reasons", {}).get("quarantined", {})
    formats = class_totals(data.formats)
    compared, spread, sizes = compared_sizes(data), spreads(data), size_charts(data)
    channels, samples, quality = channel_rows(data.statistics), stored_samples(data), quality_charts(data)
    objects = objects_view(data)
    sections = (
        ("findings", "Findings", True),
        ("flow", "Outcomes", nodes),
        ("classes", "Classes", data.fingerprint),
        ("objects", "Objects", objects),
        ("images", "Images", data.sheets),
        ("duplicates", "Duplicates", checked and any(group.pairs for group in checked.groups)),
        ("quality", "Quality", checked and any(group.images for group in checked.groups)),
        ("quarantine", "Left out", data.ledger.get("quarantined")),
        ("sizes", "Sizes", compared or spread or sizes),
        ("channels", "Colors", channels or samples or quality),
        ("drift", "Drift", data.drift is not None),
        ("made", "Made", data.settings),
    )
    context = {
        "data": data,
        "checked": checked,
        "depth": _DEPTHS.get(checked.mode, "") if checked else "",
        "verdict": verdict_of(checked) if checked else None,
        "word": shell_word(data.place or "DIR"),
        "meanings": MEANINGS,
        "nodes": nodes,
        "listed": sum(node.files for node in nodes),
        "bands": draw_flow(nodes),
        "splits": list(data.splits.items())[:_MAX_SPLITS],
        "classes": class_tables(data, amount),
        "objects": objects,
        "balance": balance,
        "uneven": balance.uneven[: amount.classes // 10],
        "lacking": [item for item in balance.missing if len(item.names) > _NAMED][:_MAX_SPLITS],
        "split_text": split_text(data),
        "most_inputs": _MAX_INPUTS,
        "all_classes": len({sheet.label for sheet in data.sheets}) >= len(data.labels),
        "quarantine_reasons": [(reason, reasons[reason]) for reason in ranked(reasons)[:_MAX_SPLITS]],
        "quarantine_pictures": [item for item in data.quarantine if item.picture],
        "compared": compared,
        "spreads": spread,
        "size_charts": sizes,
        "channels": channels,
        "best": best_channels(channels),
        "samples": samples,
        "quality_charts": quality,
        "drift": None if data.drift is None else _drift(data.drift),
        "version": version and version_view(data.place, version.name, version.record),
        "settings": [
            (name, ", ".join(map(str, value)) if isinstance(value, list | tuple) else value)
            for name, value in settings_in_effect(data).items()
            if value not in _NOTHING
        ],
        "formats": [(name, formats[name]) for name in ranked(formats)],
        "sections": {id_: title for id_, title, content in sections if content},
        "percent": percent,
        "fewer": amount != AMOUNTS[0],
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
