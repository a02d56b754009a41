"""Leaves out drawings, which take a tenth of the time of the suite: charts of reports, samples of cards.

Titles, sentences and tables of charts stay as they are. Modules that look at pages or drawings ask for the
fixture `drawn`. The commands that tests start as processes draw everything, and so do conversions to
buckets, because tests count their requests.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from PIL import Image

from shardwright.schemas.dataset import Dataset
from shardwright.transforms import commit
from shardwright.transforms.preview.card_samples import draw_card_samples
from shardwright.transforms.report import charts
from shardwright.transforms.salvage import commit as salvage_commit

_draw = charts._draw
_SKETCH = '<svg aria-hidden="true" focusable="false" class="chart" viewBox="0 0 340 230"></svg>'


def _sketch(*_: Any) -> str:
    return _SKETCH


def _small_jpeg() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "JPEG")
    return buffer.getvalue()


_SAMPLES = _small_jpeg()


def _sketch_samples(directory: str, dataset: Dataset) -> bytes:
    if "://" in directory:
        return draw_card_samples(directory, dataset)
    return _SAMPLES if dataset.all_records else b""


def _use(chart: Any, samples: Any) -> None:
    charts._draw = chart
    for module in (commit, salvage_commit):
        module.draw_card_samples = samples


def sketch_drawings() -> None:
    """Has all tests write empty drawings."""
    _use(_sketch, _sketch_samples)


@contextmanager
def drawing() -> Iterator[None]:
    """Has everything drawn within its context."""
    before = charts._draw, commit.draw_card_samples
    _use(_draw, draw_card_samples)
    try:
        yield
    finally:
        _use(*before)
