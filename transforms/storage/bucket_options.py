"""The option of this package that travels to workers with Beam's own options. Imports Beam."""

from __future__ import annotations

import argparse

from apache_beam.options.pipeline_options import PipelineOptions


class BucketOptions(PipelineOptions):
    """The options for access to buckets that Beam lacks."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--gcs_user_project",
            default=None,
            help="project that pays for requests to gs:// buckets whose requesters pay",
        )
