"""The description of a rebuild for its steps, its outcome, and its log lines.

Each run stores its outcome in its own file. Commands wait for it, and steps that run again read it.

Each stage of a rebuild logs a line, as text or as JSON. The text of the line is built where the stage ends,
because on a service's workers people see only the message in the log. `show_stages` shows the lines of this
process. Other machines have their own logs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shardwright.core import storage
from shardwright.core.dataset_files import stored_document, write_text
from shardwright.core.lease import HeldLease, Lease
from shardwright.schemas.configuration.gates import GateFile
from shardwright.schemas.configuration.job import Hook
from shardwright.schemas.configuration.settings import ConvertSettings, RebuildSettings
from shardwright.schemas.dataset import WORK_DIR, Document, pretty_json
from shardwright.schemas.log_lines import StderrHandler, json_line, one_line
from shardwright.schemas.version import version_path

OUTCOMES_DIR = f"{WORK_DIR}/outcomes"
#: Number of outcomes that are kept.
MAX_OUTCOMES = 30

D = TypeVar("D", bound=Document)


@dataclass(frozen=True)
class RebuildTask:
    """A rebuild. The description travels with the job.

    Attributes:
      output: Directory that contains the versions.
      lease: Lease of the run, with the version to build and the launcher's process.
      settings: Checked settings of the conversion.
      versions: Software versions that affect bytes.
      gates: Gates that the version has to pass.
      hooks: Mapping of event to its hooks.
      rules: The settings that only a rebuild has.
      wait_seconds: Seconds to wait for another rebuild to finish.
      run: Values for `run.json`.
      started: Start of the run, in seconds since the epoch.
      log_format: Format of the log lines of stages, text or json.
      request: Digest of everything besides the listing that decides what is made. Empty if the state of the
        input is not to be stored, because something else decides too.
    """

    output: str
    lease: Lease
    settings: ConvertSettings
    versions: Mapping[str, str]
    gates: GateFile = field(default_factory=GateFile)
    hooks: Mapping[str, tuple[Hook, ...]] = field(default_factory=dict)
    rules: RebuildSettings = field(default_factory=RebuildSettings)
    wait_seconds: float = 0.0
    run: Mapping[str, Any] = field(default_factory=dict)
    started: float = 0.0
    log_format: str = "text"
    request: str = ""

    @property
    def version(self) -> str:
        """Version to build."""
        return self.lease.version

    @property
    def holder(self) -> str:
        """Holder of the lease, an identifier that the launcher made up."""
        return self.lease.holder

    @property
    def hold(self) -> HeldLease:
        """The lease of the rebuild, to take and renew it."""
        return HeldLease(self.output, self.lease)

    @property
    def directory(self) -> str:
        """The dataset directory of the version."""
        return version_path(self.output, self.version)


def read_document(output: str, file: str, kind: type[D]) -> D | None:
    """Returns what an earlier run stored in a file of an output; None if it is missing or cannot be used.

    Raises:
      EngineError: If the storage failed.
    """
    data = storage.read_if_exists(storage.join(output, file))
    try:
        return kind.loads(data) if data is not None else None
    except ValueError:
        return None


def outcome_file(task: RebuildTask) -> str:
    """Returns the path of a run's outcome, relative to the output."""
    return f"{OUTCOMES_DIR}/{task.version}-{task.holder[:8]}.json"


def read_outcome(task: RebuildTask) -> dict[str, Any] | None:
    """Returns the outcome that the last step of a rebuild wrote, or None if there is none.

    Raises:
      EngineError: If the storage failed.
    """
    return stored_document(task.output, outcome_file(task)) or None


def write_outcome(task: RebuildTask, outcome: Mapping[str, Any]) -> None:
    """Writes the outcome of this run. The next run may start immediately, so each run has its own file.

    Raises:
      EngineError: If the storage failed.
    """
    with storage.translated_errors("write to", task.output):
        write_text(task.output, outcome_file(task), pretty_json(outcome))
        folder = storage.join(task.output, OUTCOMES_DIR)
        for file in storage.list_files(folder)[:-MAX_OUTCOMES]:
            storage.remove(storage.join(folder, file))


LOGGER = logging.getLogger("shardwright.rebuild")
#: Source file that every such log entry names as its place in a worker's log.
THIS_FILE = "rebuild/task.py:"


def show_stages(is_shown: bool = True) -> None:
    """Shows the log lines of rebuilds on stderr at any log level. A repeated call changes nothing.

    A command also shows the lines of worker processes on this machine (`pipelines/run.py`).

    Args:
      is_shown: False to stop showing them.
    """
    for handler in [*LOGGER.handlers]:
        if isinstance(handler, StderrHandler):
            LOGGER.removeHandler(handler)
    LOGGER.setLevel(logging.INFO if is_shown else logging.NOTSET)
    LOGGER.propagate = not is_shown  # otherwise the root logger's handler shows the line again
    if is_shown:
        LOGGER.addHandler(StderrHandler())


def stage(task: RebuildTask, name: str, /, message: str, **facts: Any) -> None:
    """Logs that a stage of a rebuild has ended.

    Args:
      task: The rebuild.
      name: Name of the stage, such as `compared`.
      message: Message for people.
      facts: Facts for programs.
    """
    seconds = round(max(time.time() - task.started, 0.0), 3)
    about = {"version": task.version, "output": task.output, "seconds": seconds}
    LOGGER.info("%s", line_of(task.log_format, name, message, facts, about))


def line_of(
    log_format: str, name: str, message: str, facts: Mapping[str, Any], about: Mapping[str, Any]
) -> str:
    """Returns a log line without a line end.

    Args:
      log_format: Text or json.
      name: Name of the stage.
      message: Message for people.
      facts: Facts of the stage. They never replace a field that all lines have.
      about: Fields of all lines of the run. The text form omits them.
    """
    if log_format != "json":
        return one_line(f"shardwright: {name}: {message}")
    first = {"stage": name, **about, "message": message}
    return json_line("INFO", {**first, **{key: value for key, value in facts.items() if key not in first}})
