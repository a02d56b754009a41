"""Keeps Beam from printing what a command explains in one sentence, and from looking into notebooks."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator

_STDERR = 2
#: Beam's logger names of the servers of portable runners, and of the code that starts and ends them.
_ENGINE_LOGGERS = (
    "PrismJobServer", "FlinkJarJobServer", "SparkJarJobServer", "apache_beam.utils.subprocess_server",
)  # fmt: skip
#: The logger to which Beam passes what worker processes on this machine log, and its message.
_WORKERS_LOGGER = "apache_beam.runners.portability.local_job_service"
_WORKERS_MESSAGE = "Worker: %s"
#: Held while a pipeline is built, so that each build finds Beam as it was before the others.
_BUILDING = threading.RLock()


def is_beam_silent() -> bool:
    """Returns whether Beam's log is hidden."""
    return logging.getLogger("apache_beam").level >= logging.CRITICAL


@contextlib.contextmanager
def suppress_beam_logs(verbose: bool) -> Iterator[None]:
    """Hides Beam's log lines, unless the command is verbose."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    engines = [logging.getLogger(name) for name in _ENGINE_LOGGERS]
    names = ("apache_beam", "google", "urllib3", None)
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger, logger.level, logger.disabled) for logger in (*engines, *loggers)]
    for logger in loggers:
        logger.setLevel(logging.INFO if verbose else logging.CRITICAL)
    for logger in engines:  # these set their own levels
        logger.disabled = not verbose
        if not verbose:  # they log once more when the process exits
            atexit.register(setattr, logger, "disabled", True)
    try:
        yield
    finally:
        for logger, level, disabled in before:
            logger.setLevel(level)
            logger.disabled = disabled


def hide_tracebacks() -> None:
    """Hides the tracebacks of Beam's threads until the process ends.

    Workers of portable runners may be threads of this process, and end later than the command.
    """
    from apache_beam.runners.worker import sdk_worker

    if "print" in vars(sdk_worker):
        return
    vars(sdk_worker)["print"] = lambda *_, **__: None
    show = threading.excepthook
    threading.excepthook = lambda raised: None if _is_of_beam(raised) else show(raised)


def _is_of_beam(raised: threading.ExceptHookArgs) -> bool:
    """Returns whether an exception passed through Beam's code."""
    traceback = raised.exc_traceback
    while traceback is not None:
        if str(traceback.tb_frame.f_globals.get("__name__", "")).startswith("apache_beam."):
            return True
        traceback = traceback.tb_next
    return False


@contextlib.contextmanager
def quiet_worker_processes() -> Iterator[None]:
    """Hides what worker processes print and log, except the lines of rebuilds, unless Beam's log is shown."""
    logger = logging.getLogger(_WORKERS_LOGGER)
    level, lines = logger.level, _LinesOfRebuilds(is_beam_silent())
    logger.addFilter(lines)
    logger.setLevel(logging.INFO)
    try:
        with _stderr_discarded() if is_beam_silent() else contextlib.nullcontext():
            yield
    finally:
        logger.setLevel(level)
        logger.removeFilter(lines)


class _LinesOfRebuilds(logging.Filter):
    """Shows the lines of rebuilds that worker processes log.

    Args:
      only: Whether to drop all others.
    """

    def __init__(self, only: bool) -> None:
        super().__init__()
        self._only = only

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether Beam shows a record."""
        from apache_beam.portability.api import beam_fn_api_pb2
        from google.protobuf import text_format

        from shardwright.core.rebuild.task import LOGGER, THIS_FILE

        if record.msg == _WORKERS_MESSAGE:
            entry = text_format.Parse(record.getMessage()[len("Worker: ") :], beam_fn_api_pb2.LogEntry())
            if THIS_FILE in entry.log_location:
                LOGGER.info("%s", entry.message)
                return False
        return not self._only


@contextlib.contextmanager
def _stderr_discarded() -> Iterator[None]:
    """Discards what processes that start meanwhile print to stderr; this process goes on printing."""
    stderr = sys.stderr
    try:
        ours = stderr.fileno() == _STDERR
    except (OSError, ValueError):
        ours = False
    saved = os.dup(_STDERR)
    with open(saved, "w", encoding=stderr.encoding, errors="backslashreplace", buffering=1) as screen:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), _STDERR)
        sys.stderr = screen if ours else stderr
        try:
            yield
        finally:
            sys.stderr = stderr
            os.dup2(saved, _STDERR)


@contextlib.contextmanager
def no_interactive_runner() -> Iterator[None]:
    """Lets a pipeline be built in a notebook without Beam's interactive runner.

    In IPython, Beam imports that runner to number the steps of pipelines that the user's variables hold.
    Ours is not one of these, and the import fails where pandas is missing or newer than Beam supports.
    """
    from apache_beam.utils import interactive_utils

    with _BUILDING:
        is_in_ipython = interactive_utils.is_in_ipython
        interactive_utils.is_in_ipython = lambda: False
        try:
            yield
        finally:
            interactive_utils.is_in_ipython = is_in_ipython
