"""Bounds of parts as `dataset.json` stores them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shardwright.schemas.part_bounds import BUCKETS, PartBounds

BOUNDS = PartBounds({"": {"cat": (1, 2**63, 2**64), "\u732b": ()}}, {"train": "01z" + "0" * (BUCKETS - 3)})


def test_bounds_come_back_from_json() -> None:
    assert PartBounds.from_json(json.loads(json.dumps(BOUNDS.as_json()))) == BOUNDS
    assert BOUNDS.as_json()["bounds"][""]["cat"] == ["1", "8000000000000000", "10000000000000000"]
    assert PartBounds().as_json() == {}
    assert PartBounds.from_json({}) == PartBounds()


@pytest.mark.parametrize(
    "value",
    [
        {"bounds": {"": {"cat": ["2", "1"]}}},
        {"bounds": {"": {"cat": ["-1"]}}},
        {"bounds": {"": {"cat": ["10000000000000001"]}}},
        {"bounds": {"": {"cat": [1]}}},
        {"bounds": {"": ["1"]}},
        {"bounds": {"": {"cat": ["x"]}}},
        {"buckets": {"": "01"}},
        {"buckets": {"": "A" * BUCKETS}},
    ],
)
def test_damaged_bounds_are_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)):
        PartBounds.from_json(value)
