"""Reads split names from sources."""

from __future__ import annotations

import re

from shardwright.schemas.image_ref import NO_SPLIT

_SPLIT_NAME = re.compile(r"[a-z0-9_]{1,64}\Z")


def split_name(text: str) -> str:
    """Returns a split name in lower case; empty for no split and for AutoML's UNASSIGNED.

    Raises:
      ValueError: If the text cannot be the name of a split.
    """
    name = text.strip().lower()
    if name in ("", "unassigned"):
        return ""
    if not _SPLIT_NAME.match(name) or name == NO_SPLIT:
        raise ValueError(f"{text!r} cannot be a split's name; use letters, digits and _")
    return name
