"""Beam's options, and those that this package adds to them. Imports Beam."""

from __future__ import annotations

import argparse

from apache_beam.options.pipeline_options import PipelineOptions

from shardwright.core.concurrency.workers import POOLS

__all__ = ["PipelineOptions", "WorkerOptions"]


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
