"""The tests of reports look at charts."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _with_charts(drawn_charts: None) -> None:
    """Draws the charts."""
