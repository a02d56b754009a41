"""What the options of a pipeline say about the runner and its workers."""

from __future__ import annotations

from apache_beam.options.pipeline_options import (
    DirectOptions,
    GoogleCloudOptions,
    PipelineOptions,
    StandardOptions,
)


def has_one_worker(options: PipelineOptions) -> bool:
    """Returns whether a pipeline runs in this process, on one thread of Beam."""
    direct = options.view_as(DirectOptions)
    if options.view_as(StandardOptions).runner != "FnApiRunner":
        return False
    return bool(direct.direct_running_mode == "in_memory" and direct.direct_num_workers == 1)


def uses_resource_hints(options: PipelineOptions) -> bool:
    """Returns whether the runner chooses machines by resource hints, as Dataflow Prime does.

    Others ignore what a hint says. Yet a step with a hint has an environment of its own, for which they would
    start more workers.
    """
    services = options.view_as(GoogleCloudOptions).dataflow_service_options or ()
    runner = options.view_as(StandardOptions).runner or ""
    return "dataflow" in runner.lower() and "enable_prime" in services
