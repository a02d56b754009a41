"""Reports the inputs and the output of a job, once each, as Beam's lineage metrics."""

from __future__ import annotations

import contextlib

from apache_beam.io.filesystems import FileSystems

from shardwright.schemas.image_ref import printable


def report_source(path: str) -> None:
    """Reports a file or folder that the job reads. Does nothing outside a worker."""
    with contextlib.suppress(ValueError):  # Beam has no file system for it, such as `az://`
        FileSystems.report_source_lineage(printable(path))


def report_sink(path: str) -> None:
    """Reports a folder that the job writes. Does nothing outside a worker."""
    with contextlib.suppress(ValueError):
        FileSystems.report_sink_lineage(printable(path))
