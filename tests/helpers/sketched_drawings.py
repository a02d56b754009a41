"""Leaves out the samples of dataset cards, because drawing them takes much of the time of the suite.

Modules that look at the samples ask for the fixture `drawn`. The commands that tests start as processes draw
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from PIL import Image

from helpers.pictures import file_of
from shardwright.core import commit
from shardwright.core.preview import draw_card_samples
from shardwright.core.salvage import commit as salvage_commit
from shardwright.schemas.dataset import Dataset

_SAMPLES = file_of(Image.new("RGB", (8, 8)), "JPEG")


def _sketch_samples(directory: str, dataset: Dataset) -> bytes:
    return _SAMPLES if dataset.all_records else b""


def _use(samples: Any) -> None:
    for module in (commit, salvage_commit):
        module.draw_card_samples = samples


def sketch_drawings() -> None:
    """Has all tests write empty samples."""
    _use(_sketch_samples)


@contextmanager
def drawing() -> Iterator[None]:
    """Has samples drawn within its context."""
    before = commit.draw_card_samples
    _use(draw_card_samples)
    try:
        yield
    finally:
        _use(before)
