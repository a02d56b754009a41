"""`--pool`, an option of the pipeline, so that every engine passes it to its workers. Imports Beam."""

from __future__ import annotations

import argparse

from apache_beam.options.pipeline_options import PipelineOptions

from shardwright.transforms.concurrency.workers import POOLS


class PoolOptions(PipelineOptions):
    """Where a worker of the engine decodes and encodes images."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--pool", default="", choices=("", *POOLS), help="threads or processes")
