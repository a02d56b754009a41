"""The Beam transforms: each wires functions of `shardwright.core`.

They are imported on first use: the classes that hooks return need no Beam.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shardwright.schemas.missing_packages import needed_by

if TYPE_CHECKING:
    from shardwright.core.images.map_hook import DecodedImage as DecodedImage
    from shardwright.core.images.map_hook import DroppedImage as DroppedImage
    from shardwright.core.images.map_hook import MappedImage as MappedImage
    from shardwright.transforms.plan import AssignShards as AssignShards
    from shardwright.transforms.plan import ForecastDataset as ForecastDataset
    from shardwright.transforms.plan import ListSources as ListSources
    from shardwright.transforms.steps import BuildExamples as BuildExamples
    from shardwright.transforms.steps import DecodeAndResize as DecodeAndResize
    from shardwright.transforms.steps import ReadImages as ReadImages
    from shardwright.transforms.validate import ValidateShards as ValidateShards
    from shardwright.transforms.write_shards import WritePlannedShards as WritePlannedShards

_HOME = {
    "AssignShards": "transforms.plan",
    "BuildExamples": "transforms.steps",
    "DecodeAndResize": "transforms.steps",
    "DecodedImage": "core.images.map_hook",
    "DroppedImage": "core.images.map_hook",
    "ForecastDataset": "transforms.plan",
    "ListSources": "transforms.plan",
    "MappedImage": "core.images.map_hook",
    "ReadImages": "transforms.steps",
    "ValidateShards": "transforms.validate",
    "WritePlannedShards": "transforms.write_shards",
}

__all__ = [*_HOME]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needed_by(name):
        return getattr(import_module(f"shardwright.{_HOME[name]}"), name)
