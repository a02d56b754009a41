"""The last line of `report.html`: the digest of everything before it."""

from __future__ import annotations

import hashlib
import re

_LINE = re.compile(rb"<!-- sha256 of the lines above: ([0-9a-f]{64}) -->\n?\Z")
_BEGIN = b"<!-- sha256 of the lines above: "


def with_page_digest(page: str) -> str:
    """Returns a page with its digest as the last line. The line is a comment in HTML."""
    page = page if page.endswith("\n") else page + "\n"
    return f"{page}{_BEGIN.decode()}{hashlib.sha256(page.encode()).hexdigest()} -->\n"


def states_page_digest(data: bytes) -> bool:
    """Returns whether a page states a digest."""
    return _BEGIN in data


def has_page_digest(data: bytes) -> bool:
    """Returns whether a page has its own digest as the last line."""
    match = _LINE.search(data)
    if match is None:
        return False
    return hashlib.sha256(data[: match.start()]).hexdigest().encode() == match[1]
