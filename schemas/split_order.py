"""The order in which splits are stored and shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from shardwright.schemas.image_ref import NO_SPLIT

Value = TypeVar("Value")

#: Usual names of splits, in the order in which they are used.
_RANKS = {
    name: rank
    for rank, names in enumerate(
        (
            ("train", "training"),
            ("validation", "val", "valid", "dev", "development", "eval", "evaluation"),
            ("test", "testing"),
        )
    )
    for name in names
}
_OTHERS, _LAST = len(_RANKS), len(_RANKS) + 1


def _rank(name: str) -> tuple[int, str]:
    if name == NO_SPLIT:
        return _LAST, name
    return _RANKS.get(name.lower(), _OTHERS), name


def in_split_order(names: Iterable[str]) -> list[str]:
    """Returns the names of splits in order: train, validation, test, others alphabetically, then `none`."""
    return sorted(names, key=_rank)


def by_split(values: Mapping[str, Value]) -> dict[str, Value]:
    """Returns a mapping of splits in the order of the splits."""
    return {name: values[name] for name in in_split_order(values)}
