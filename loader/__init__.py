"""Reads datasets for training: with TensorFlow, or with NumPy and Pillow alone.

Each is imported on first use, so that one works where the other is not installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shardwright.schemas.missing_packages import needed_by

if TYPE_CHECKING:
    from shardwright.loader.records import Records
    from shardwright.loader.selection import Resplit, ShardSlice, open_dataset, pin, select
    from shardwright.loader.tf_dataset import load

__all__ = ["Records", "Resplit", "ShardSlice", "load", "open_dataset", "pin", "select"]

#: Name -> its module, if that is not `selection`.
_HOME = {"Records": "records", "load": "tf_dataset"}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needed_by(name, "or use Records, which does not"):
        return getattr(import_module(f"{__name__}.{_HOME.get(name, 'selection')}"), name)
