"""Draws the page: a pure function from what was gathered to one file of HTML that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any

from shardwright.schemas.image_ref import LABEL_SEPARATOR, printable
from shardwright.schemas.units import format_size
from shardwright.transforms.report.data import MAX_PAGE_BYTES, ReportData, Thumbnail
from shardwright.transforms.report.drift_view import drift_view
from shardwright.transforms.report.flow import draw_flow, flow_nodes
from shardwright.transforms.report.meanings import MEANINGS
from shardwright.transforms.report.measures import (
    all_pictures,
    best_channels,
    channel_rows,
    look_charts,
    size_charts,
    spread_rows,
)
from shardwright.transforms.report.view import (
    AMOUNTS,
    Amount,
    class_tables,
    code_groups,
    percent,
    reduced,
)

if TYPE_CHECKING:
    from jinja2 import Environment

_WIDE, _NARROW = 900, 330
_MAX_SPLITS = 40
#: Settings that are not shown, for they say nothing.
_NOTHING: tuple[object, ...] = ("", None, (), [], {})
_DEPTHS = {
    "fast": " without decoding a picture",
    "full": ", every picture decoded",
    "quality": ", every picture looked at",
}


def render(data: ReportData) -> str:
    """Draws the page of a dataset.

    Where it would be larger than `MAX_PAGE_BYTES` it is drawn again with fewer pictures and rows.
    """
    page = ""
    for amount in AMOUNTS:
        page = _render(reduced(data, amount), amount)
        if len(page.encode()) <= MAX_PAGE_BYTES:
            break
    return page


def _render(data: ReportData, amount: Amount) -> str:
    environment = _environment()
    nodes = flow_nodes(data.ledger, list(data.splits))
    listed = sum(node.files for node in nodes)
    groups = code_groups(data)
    drift = drift_view(data.drift)
    checked = data.checked
    reasons = data.ledger.get("reasons", {}).get("quarantined", {})
    script, style = _resource("script.js"), _resource("style.css")
    context = {
        "data": data,
        "checked": checked,
        "depth": _DEPTHS.get(checked.mode, "") if checked else "",
        "advice": _advice(data, environment),
        "groups": groups,
        "meanings": _Meanings(MEANINGS),
        "nodes": nodes,
        "listed": listed,
        "wide": draw_flow(nodes, _WIDE),
        "narrow": draw_flow(nodes, _NARROW),
        "splits": list(data.splits.items())[:_MAX_SPLITS],
        "classes": class_tables(data, amount),
        "all_classes": len({sheet.label for sheet in data.sheets}) >= len(data.labels),
        "pair_groups": [
            (code, list(found))
            for code, found in groupby(checked.pairs if checked else (), key=lambda finding: finding.code)
        ],
        "quarantine_reasons": sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:_MAX_SPLITS],
        "quarantine_pictures": [item for item in data.quarantine if item.picture],
        "measured": bool(all_pictures(data.statistics)),
        "spreads": spread_rows(data),
        "size_charts": size_charts(data),
        "channels": (channels := channel_rows(data.statistics)),
        "best": best_channels(channels),
        "look_charts": look_charts(data),
        "drift": drift,
        "settings": [
            (name, _setting(value)) for name, value in data.settings.items() if value not in _NOTHING
        ],
        "formats": _formats(data),
        "sections": _sections(data, drift is not None, bool(nodes)),
        "percent": percent,
        "policy": _policy(script),
        "style": environment.filters["drawing"](style),
        "script": environment.filters["drawing"](script),
        "fewer": amount != AMOUNTS[0],
        "limit": MAX_PAGE_BYTES,
        "most_letters": amount.letters,
    }
    return environment.get_template("report.html").render(context)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FunctionLoader(_resource),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "shown": shown,
        "base": _base,
        "number": lambda value: f"{value:,}",
        "counted": lambda value, noun: f"{value:,} {noun}{'' if value == 1 else 's'}",
        "size": format_size,
        "data_uri": _data_uri,
        "decimals": lambda values: ", ".join(f"{value:.4f}" for value in values),
        # For what this package itself has drawn or brings along, never for anything from the data.
        "drawing": Markup,
    }
    return environment


@cache
def _resource(name: str) -> str:
    return files("shardwright.transforms.report").joinpath("page", name).read_text("utf-8")


def _policy(script: str) -> str:
    """Returns the page's Content-Security-Policy: nothing from outside, no script but its own."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def shown(text: object, letters: int | None = None) -> str:
    """Returns a text from the data as the page shows it: not too long, nothing invisible in it.

    Signs that cannot be seen, or that would turn the direction of what follows, stand as Python writes them.
    """
    whole = printable(str(text)).replace(LABEL_SEPARATOR, ", ")
    limit = letters or AMOUNTS[0].letters
    cut = whole if len(whole) <= limit else f"{whole[: max(1, limit - 1)]}…"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in cut)


def _base(key: str) -> str:
    """Returns the last part of a key, for places where there is no room for more."""
    return key.rstrip("/").rpartition("/")[2] or key


def _data_uri(picture: Thumbnail) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(picture.jpeg).decode()


class _Meanings(dict[str, str]):
    def __missing__(self, code: str) -> str:
        return ""


def _advice(data: ReportData, environment: Environment) -> Mapping[str, Any]:
    """Returns which command adds what is missing."""
    line = environment.from_string(
        "{{ before }} <code>shardwright validate --dataset <bdi>{{ place | shown(200) }}</bdi>"
        "{{ option }}</code> {{ after }}"
    )

    def command(before: str, option: str, after: str) -> Any:
        return environment.filters["drawing"](
            line.render(before=before, place=data.place or "DIR", option=option, after=after)
        )

    return {
        "validate": command("Run", "", "to read it back and see whether it is sound."),
        "full": command("Pictures were not decoded:", "", "decodes every one."),
        "quality": command("Duplicates, dark and blurred pictures are looked for by", " --quality", "."),
        "statistics": command("Run", " --quality", "to measure all of them."),
    }


def _setting(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _formats(data: ReportData) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for of_split in data.formats.values():
        for name, count in of_split.items():
            counts[name] = counts.get(name, 0) + count
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _sections(data: ReportData, drift: bool, flow: bool) -> Iterable[tuple[str, str]]:
    checked = data.checked
    there = (
        ("findings", "Findings", True),
        ("flow", "Images", flow),
        ("classes", "Classes", bool(data.fingerprint)),
        ("pictures", "Pictures", bool(data.sheets)),
        ("duplicates", "Duplicates", bool(checked and checked.pairs)),
        ("quality", "Quality", bool(checked and checked.looks)),
        ("quarantine", "Left out", bool(data.ledger and data.ledger["quarantined"])),
        ("sizes", "Sizes", True),
        ("channels", "Colours", True),
        ("drift", "Drift", drift),
        ("made", "Made", bool(data.settings)),
    )
    return [(id_, title) for id_, title, shown_ in there if shown_]
