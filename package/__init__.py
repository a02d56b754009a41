"""Turns collections of images into verified, sharded TFRecord datasets, and reads them.

    import shardwright

    shardwright.convert(input="photos", output="out", resize=224)
    for record in shardwright.Records("out", split="train"):
        ...

Everything is imported on first use: reading needs no Apache Beam, and converting no TensorFlow.

All errors are a `ShardwrightError`; `schemas/errors.py` draws their tree.
`__init__.pyi` declares the names for editors and type checkers.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from shardwright.schemas import __version__ as __version__
from shardwright.schemas.missing_packages import needed_by

#: Public name -> the module that has it, which is imported on first use.
HOMES = {
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

__all__ = sorted([*HOMES, "__version__"])


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needed_by(name):
        if name in _NEED_BEAM and find_spec("apache_beam") is None:
            raise ModuleNotFoundError(name="apache_beam")
        value = getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
    if HOMES[name].startswith("pipelines."):
        from shardwright.pipelines.python_calls import called_from_python

        value = called_from_python(value)
    globals()[name] = value
    return value
