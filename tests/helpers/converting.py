"""Makes the commands of tests cheaper, because most of them convert a few images."""

from __future__ import annotations

import os
from typing import Any

from apache_beam.transforms import userstate

from shardwright.pipelines import workers
from shardwright.transforms.concurrency.workers import PROCESSES

_read_specs = userstate.get_dofn_specs
_specs: dict[type, Any] = {}


def _specs_of(dofn: object) -> Any:
    """Returns the declared state of a DoFn, for which Beam reads all its methods, eight times a step."""
    if type(dofn) not in _specs:
        _specs[type(dofn)] = _read_specs(dofn)
    return _specs[type(dofn)]


def lighten_commands() -> None:
    """Has threads convert in this process, unless a test gives `--pool processes`, and saves other work."""
    workers.uses_processes = lambda pool: pool == PROCESSES  # as on a machine with one processor
    os.fsync = lambda descriptor: None  # tests kill processes, but not the machine
    userstate.get_dofn_specs = _specs_of
