"""Collects facts about a run: versions of the software, options, inputs and the machine."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from typing import Any

from shardwright.core.images.encode import codec_versions, decoder_versions, installed_version
from shardwright.core.images.map_hook import hook_versions
from shardwright.core.plan.request import ConversionRequest
from shardwright.pipelines.against import unstored_settings
from shardwright.pipelines.workers import Workers
from shardwright.schemas import __version__
from shardwright.schemas.image_ref import printable

#: Packages of this project whose code decides what is made, and packages that read sources.
_PACKAGES = ("schemas", "core", "transforms", "pipelines")
_LISTING_PACKAGES = ("numpy", "pyarrow")


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


def listing_software(versions: Mapping[str, str]) -> dict[str, str]:
    """Returns the versions of all software that decides how an input is listed and planned.

    Args:
      versions: The result of `software_versions`.
    """
    found = {**versions, "python": platform.python_version(), "code": _code_state()}
    for package in _LISTING_PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = installed_version(package)
    return found


@cache
def _code_state() -> str:
    """Returns a digest of the names, sizes and times of this project's own source files.

    The version of the project does not change with each edit or development version. An edit does not change
    what this process has imported.
    """
    states = []
    for name in _PACKAGES:
        for root in import_module(f"shardwright.{name}").__path__:
            for folder, _, files in os.walk(root):
                for file in files:
                    if file.endswith(".py"):
                        path = os.path.join(folder, file)
                        state = os.stat(path)
                        place = f"{name}/{os.path.relpath(path, root)}"
                        states.append(f"{place} {state.st_size} {state.st_mtime_ns}")
    return hashlib.sha256("\n".join(sorted(states)).encode("utf-8", "surrogateescape")).hexdigest()


def run_facts(request: ConversionRequest, beam_options: Any, workers: Workers) -> dict[str, Any]:
    """Returns the contents of `run.json` that are known before the run begins.

    Args:
      request: The checked request.
      beam_options: Beam's options.
      workers: The processes and threads of the run.
    """
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
