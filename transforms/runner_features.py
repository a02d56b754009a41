"""What the runner of a job can do, what it passes to workers, and the lineage that it shows."""

from __future__ import annotations

import argparse
import contextlib

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    DirectOptions,
    GoogleCloudOptions,
    PipelineOptions,
    StandardOptions,
)

from shardwright.core.concurrency.resources import POOLS
from shardwright.schemas.plain_text import printable


class WorkerOptions(PipelineOptions):
    """Options of this package that every engine passes to its workers, because Beam knows them."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--pool", default="", choices=("", *POOLS), help="threads or processes")
        parser.add_argument(
            "--gcs_user_project", help="project that pays for requests to gs:// buckets whose requesters pay"
        )


def has_one_worker(options: PipelineOptions) -> bool:
    """Returns whether a pipeline runs in this process, on one thread of Beam."""
    direct, runner = options.view_as(DirectOptions), options.view_as(StandardOptions).runner
    is_here = runner == "FnApiRunner" and direct.direct_running_mode == "in_memory"
    return bool(is_here and direct.direct_num_workers == 1)


def uses_resource_hints(options: PipelineOptions) -> bool:
    """Returns whether the runner chooses machines by resource hints, as Dataflow Prime does.

    Others ignore what a hint says. Yet a step with a hint has an environment of its own, for which they would
    start more workers.
    """
    services = options.view_as(GoogleCloudOptions).dataflow_service_options or ()
    runner = options.view_as(StandardOptions).runner or ""
    return "dataflow" in runner.lower() and "enable_prime" in services


def report_source(path: str) -> None:
    """Reports a file or folder that the job reads as Beam's lineage. Does nothing outside a worker."""
    with contextlib.suppress(ValueError):  # Beam has no file system for it, such as `az://`
        FileSystems.report_source_lineage(_in_lineage(path))


def report_sink(path: str) -> None:
    """Reports a folder that the job writes as Beam's lineage. Does nothing outside a worker."""
    with contextlib.suppress(ValueError):
        FileSystems.report_sink_lineage(_in_lineage(path))


def _in_lineage(path: str) -> str:
    """Returns a path for lineage. Beam prints a traceback for a whole bucket without a slash at its end."""
    text = printable(path)
    return f"{text}/" if text.rpartition("/")[0].endswith(":/") else text
