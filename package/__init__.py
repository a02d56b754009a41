"""Turns collections of images into verified, sharded TFRecord datasets, and reads them.

    import shardwright

    shardwright.convert(input="photos", output="out", resize="224")
    for record in shardwright.Records("out", split="train"):
        ...

Everything is imported on first use: reading needs no Apache Beam, and converting no TensorFlow.

All errors are a `ShardwrightError`; `schemas/errors.py` draws their tree.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from shardwright.schemas import __version__
from shardwright.schemas.missing_packages import needed_by

if TYPE_CHECKING:
    from shardwright.loader import Records, load, open_dataset, pin, select
    from shardwright.pipelines.convert import convert
    from shardwright.pipelines.diff import diff
    from shardwright.pipelines.inspect import inspect
    from shardwright.pipelines.plan import plan
    from shardwright.pipelines.rebuild import rebuild
    from shardwright.pipelines.salvage import salvage
    from shardwright.pipelines.validate import validate
    from shardwright.schemas.errors import (
        DataRefused,
        EngineError,
        NotRun,
        ShardwrightError,
        UnexpectedError,
        UsageError,
    )
    from shardwright.schemas.missing_packages import MissingPackage

_HOME = {
    "DataRefused": "schemas.errors",
    "EngineError": "schemas.errors",
    "MissingPackage": "schemas.missing_packages",
    "NotRun": "schemas.errors",
    "Records": "loader",
    "ShardwrightError": "schemas.errors",
    "UnexpectedError": "schemas.errors",
    "UsageError": "schemas.errors",
    "convert": "pipelines.convert",
    "diff": "pipelines.diff",
    "inspect": "pipelines.inspect",
    "load": "loader",
    "open_dataset": "loader",
    "pin": "loader",
    "plan": "pipelines.plan",
    "rebuild": "pipelines.rebuild",
    "salvage": "pipelines.salvage",
    "select": "loader",
    "validate": "pipelines.validate",
}

#: Functions that build a graph. They import Beam when they are called, which is too late for a clear message.
_NEED_BEAM = frozenset(("convert", "plan", "rebuild", "salvage", "validate"))

__all__ = [
    "DataRefused",
    "EngineError",
    "MissingPackage",
    "NotRun",
    "Records",
    "ShardwrightError",
    "UnexpectedError",
    "UsageError",
    "__version__",
    "convert",
    "diff",
    "inspect",
    "load",
    "open_dataset",
    "pin",
    "plan",
    "rebuild",
    "salvage",
    "select",
    "validate",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needed_by(name):
        if name in _NEED_BEAM and find_spec("apache_beam") is None:
            raise ModuleNotFoundError(name="apache_beam")
        found = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    if _HOME[name].startswith("pipelines."):
        from shardwright.pipelines.python_calls import called_from_python

        found = called_from_python(found)
    globals()[name] = found
    return found
