"""Stored findings without the times at which they were found, by which equal checks differ."""

from __future__ import annotations

import json
from typing import Any


def without_times(data: str | bytes) -> dict[str, Any]:
    """Returns what a `findings.json` says but for its times; what is no such document is returned as text."""
    try:
        document = json.loads(data)
    except ValueError:
        return {"text": data}
    for item in (document, *document.get("checks", ()), *document.get("findings", ())):
        item.pop("time", None)
    document.pop("digest", None)  # of all of it, times included
    return dict(document)
