"""Beam transforms, and the plain functions below them that do the work.

The transforms are imported on first use, so that the plain functions need no Beam.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shardwright.schemas.missing_packages import needed_by

if TYPE_CHECKING:
    from shardwright.transforms.images.map_hook import DecodedImage, DroppedImage, MappedImage
    from shardwright.transforms.images.transforms import DecodeAndResize, ReadImages
    from shardwright.transforms.plan.transforms import AssignShards, ForecastDataset
    from shardwright.transforms.records.transforms import BuildExamples
    from shardwright.transforms.shards.write import WritePlannedShards
    from shardwright.transforms.sources.transforms import ListSources
    from shardwright.transforms.validation.validate import ValidateShards

_HOME = {
    "AssignShards": "plan.transforms",
    "BuildExamples": "records.transforms",
    "DecodeAndResize": "images.transforms",
    "DecodedImage": "images.map_hook",
    "DroppedImage": "images.map_hook",
    "ForecastDataset": "plan.transforms",
    "ListSources": "sources.transforms",
    "MappedImage": "images.map_hook",
    "ReadImages": "images.transforms",
    "ValidateShards": "validation.validate",
    "WritePlannedShards": "shards.write",
}

__all__ = [
    "AssignShards",
    "BuildExamples",
    "DecodeAndResize",
    "DecodedImage",
    "DroppedImage",
    "ForecastDataset",
    "ListSources",
    "MappedImage",
    "ReadImages",
    "ValidateShards",
    "WritePlannedShards",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needed_by(name):
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
