"""Finds the speed of an earlier run of the same dataset, and how much it left to convert."""

from __future__ import annotations

import calendar
import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shardwright.pipelines.prepare import ConversionRequest
from shardwright.pipelines.workers import LastRun
from shardwright.schemas.conversion_speed import ConversionSpeed
from shardwright.schemas.dataset import DATASET_JSON, RUN_JSON
from shardwright.schemas.errors import ShardwrightError
from shardwright.schemas.version import version_path
from shardwright.transforms import storage
from shardwright.transforms.dataset_files import UTC_FORMAT

if TYPE_CHECKING:
    from shardwright.transforms.rebuild.task import RebuildTask


def read_run(directory: str) -> Mapping[str, Any]:
    """Returns the `run.json` of a dataset; empty if there is none, or if it cannot be read."""
    try:
        run = json.loads(storage.read_bytes(storage.join(directory, RUN_JSON)))
    except (OSError, ValueError, RecursionError, ShardwrightError):
        return {}
    return run if isinstance(run, Mapping) else {}


def before_conversion(request: ConversionRequest) -> LastRun:
    """Returns what is known before a conversion.

    Args:
      request: The checked request. It may replace a dataset, or reuse the plan of one.
    """
    settings, carried = request.settings, request.carried
    directory = ""
    if settings.overwrite or settings.resume:
        directory = settings.output
    elif settings.plan_from:
        is_file = os.path.basename(settings.plan_from) == DATASET_JSON
        directory = os.path.dirname(settings.plan_from) if is_file else settings.plan_from
    return LastRun(
        ConversionSpeed.from_json(read_run(directory).get("speed")) if directory else None,
        {} if carried is None or request.explicit_shards else carried.shards,
    )


def before_rebuild(task: RebuildTask) -> LastRun:
    """Returns what is known before a rebuild, from the latest version.

    Args:
      task: The rebuild. With another request than the last time, all images are converted again.
    """
    from shardwright.transforms.rebuild.begin import read_input

    try:
        state = read_input(task.output)
    except ShardwrightError:  # the rebuild finds this again and reports it
        return LastRun()
    if state is None:
        return LastRun()
    directory = version_path(task.output, state.version)
    run = read_run(directory)
    same = bool(task.request) and state.request == task.request
    since = _started(run) if same else None
    return LastRun(ConversionSpeed.from_json(run.get("speed")), state.shards, since, directory)


def _started(run: Mapping[str, Any]) -> float | None:
    """Returns the time at which a run started, in seconds since the epoch; None if it does not say."""
    try:
        return float(calendar.timegm(time.strptime(str(run["started"]), UTC_FORMAT)))
    except (KeyError, ValueError):
        return None
