"""Declares gates: fields of dataclasses, with the kind of value that a gate file holds for each."""

from __future__ import annotations

from dataclasses import field
from enum import Enum, auto
from typing import Any


class GateValue(Enum):
    """The kinds of values of gates; `gate_file.py` has their types and messages."""

    COUNT = auto()
    COUNT_PER_SPLIT = auto()
    #: A number from 1 on.
    RATIO = auto()
    #: A number from 0 to 1.
    SHARE = auto()
    SHARE_PER_CODE = auto()
    #: A number from 0 on.
    GROWTH = auto()
    GROWTH_PER_CODE = auto()
    GROWTH_PER_NUMBER = auto()
    NAMES = auto()
    FORMATS = auto()
    DTYPES = auto()
    POLICY = auto()


def gate(value: GateValue, default: Any = None) -> Any:
    """Declares a field of a dataclass as a gate; the docstring below it is the description."""
    if default == {}:
        return field(default_factory=dict, metadata={"value": value})
    return field(default=default, metadata={"value": value})
