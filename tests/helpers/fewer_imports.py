"""Imports less when the suite begins: each of its processes imports all test modules."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from types import ModuleType
from typing import Any

import pytest

#: Packages that TensorFlow and Keras need only to convert and store models, and do without.
_OF_MODELS = ("jax", "h5py")


class _WithoutModels:
    """Finds no packages for models while TensorFlow or Keras is imported."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name in _OF_MODELS:
            for library in ("tensorflow", "keras"):
                spec = getattr(sys.modules.get(library), "__spec__", None)
                if isinstance(spec, importlib.machinery.ModuleSpec) and getattr(spec, "_initializing", False):
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class _Late(ModuleType):
    """Stands for a module until one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and name != "__version__":  # pytest looks for marks of its own
            raise AttributeError(name)
        return getattr(sys.modules.get(self.__name__) or pytest.importorskip(self.__name__), name)


def late(name: str) -> Any:
    """Returns a module that is imported when a test uses it; the test is skipped if it is not installed."""
    return _Late(name)


# Keeps TensorFlow from importing the whole of Keras. Tests that train a model import it themselves.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
sys.meta_path.insert(0, _WithoutModels())
