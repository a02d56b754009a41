"""The documents list the features of every layout."""

from __future__ import annotations

import re

import pytest
from helpers.repository import ROOT

from shardwright.schemas.layouts import LAYOUTS, Layout

SECTION = (ROOT / "docs" / "layouts.md").read_text().partition("## Feature names")[2].partition("\n## ")[0]


def row(layout: Layout) -> str:
    """Returns the line of the table in docs/layouts.md that lists a layout's features."""
    required, optional = (
        ", ".join(f"`{spec.name}`" for spec in layout.features if spec.optional is is_optional)
        for is_optional in (False, True)
    )
    return f"| `{layout.name}` | {required} | {optional} |"


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_features_of_a_layout_are_listed(name: str) -> None:
    assert row(LAYOUTS[name]) in SECTION.splitlines()


def test_no_other_layout_is_listed() -> None:
    assert re.findall(r"^\| `(\w+)`", SECTION, re.MULTILINE) == [*LAYOUTS]
