"""Beam's options without the work that Beam repeats, and the options that this package adds. Imports Beam."""

from __future__ import annotations

import argparse
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from shardwright.core.concurrency.workers import POOLS


class WorkerOptions(PipelineOptions):  # type: ignore[misc]
    """Options of this package that every engine passes to its workers, because Beam knows them."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--pool", default="", choices=("", *POOLS), help="threads or processes")
        parser.add_argument(
            "--gcs_user_project",
            default=None,
            help="project that pays for requests to gs:// buckets whose requesters pay",
        )


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
