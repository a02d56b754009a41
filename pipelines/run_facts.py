"""Collects facts about a run: versions of the software, options, inputs and the machine."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict
from typing import Any

from shardwright.pipelines.against import unstored_settings
from shardwright.pipelines.prepare import ConversionRequest
from shardwright.pipelines.workers import Workers
from shardwright.schemas import __version__
from shardwright.schemas.image_ref import printable
from shardwright.transforms.images.encode import codec_versions, decoder_versions, installed_version
from shardwright.transforms.images.hook import hook_versions


def software_versions(hook: str = "") -> dict[str, str]:
    """Returns the versions that `dataset.json` records.

    Args:
      hook: the user's function (`--map`); empty if there is none.

    Raises:
      UsageError: if the hook cannot be imported.
    """
    return {
        "shardwright": __version__,
        "beam": installed_version("apache-beam"),
        **codec_versions(),
        **decoder_versions(),
        **hook_versions(hook),
    }


def run_facts(request: ConversionRequest, beam_options: Any, workers: Workers) -> dict[str, Any]:
    """Returns the contents of `run.json` that are known before the run begins."""
    from apache_beam.options.pipeline_options import StandardOptions

    return {
        "command": [printable(argument) for argument in sys.argv],
        "runner": beam_options.view_as(StandardOptions).runner,
        "workers": {**asdict(workers), "text": str(workers)},
        "input": [printable(item) for item in request.settings.input],
        "detected_as": [item.detected_as for item in request.inputs],
        "listing": unstored_settings(request.settings, request.rules),
        **({"lists": dict(request.selection.files)} if request.selection.files else {}),
        "launcher": platform.node(),
    }
