"""Beam's options without the work that Beam repeats. Imports Beam."""

from __future__ import annotations

from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from shardwright.transforms.concurrency.pool_options import PoolOptions

__all__ = ["OptionsParsedOnce", "PoolOptions"]  # Beam knows the options of imported classes


class OptionsParsedOnce(PipelineOptions):  # type: ignore[misc]
    """Beam's options, which parse the command line once for each view instead of on every use."""

    def view_as(self, cls: type[Any]) -> Any:
        """Returns the view of a kind; all views share their values."""
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]

    def __getstate__(self) -> dict[str, Any]:
        """Returns what a copy needs; it makes its own views."""
        state = dict(super().__getstate__())
        state.pop("_views", None)
        return state
