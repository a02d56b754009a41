"""Runs a pipeline or a command, and turns any error into one sentence and an exit code.

It keeps Beam from printing what a command explains in one sentence, and from looking into notebooks.
A run on this machine decodes and encodes images in worker processes, or in threads (`Workers`).
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from shardwright.core.concurrency.resources import PROCESSES, usable_cpus, worker_threads
from shardwright.core.concurrency.worker_pool import worker_pool
from shardwright.pipelines import log
from shardwright.pipelines.options import runner_of
from shardwright.pipelines.process import WATCHDOG, Ending, graceful_shutdown, own_temporary_folder
from shardwright.schemas.codes import METRICS_NAMESPACE, ExitCode
from shardwright.schemas.errors import (
    EngineError,
    NotRun,
    ShardwrightError,
    UnexpectedError,
    UsageError,
    lacks_memory,
)
from shardwright.schemas.units import counted

#: Text that Beam adds to the message of a worker's exception.
_BEAM_STEP = re.compile(r" \[while running '[^']*'\]")
#: Text of a job server about Beam's boot program, which starts the worker on its machine.
_BOOT_ENDED = re.compile(r"Process died with exit code \d+")
#: Text of a job server before the error message.
_JOB_STATE = re.compile(r"Pipeline \S+ failed in state FAILED: ")
#: What Beam reports if a worker process has died.
_CLOSED = "Channel closed prematurely"
#: Module that worker processes import when they start. This process needs it later.
_CONVERSION = "shardwright.core.conversion"
#: Runners that work in this process.
_RUNNERS_HERE = ("fnapi", "direct")
_STDERR = 2
#: Beam's logger names of the servers of portable runners, and of the code that starts and ends them.
_ENGINE_LOGGERS = (
    "PrismJobServer", "FlinkJarJobServer", "SparkJarJobServer", "apache_beam.utils.subprocess_server",
)  # fmt: skip
#: The logger with which Beam logs the exceptions of steps.
_STEPS_LOGGER = "apache_beam.runners.common"
#: The logger to which Beam passes what worker processes on this machine log, and its message.
_WORKERS_LOGGER = "apache_beam.runners.portability.local_job_service"
_WORKERS_MESSAGE = "Worker: %s"
#: Held while a pipeline is built, so that each build finds Beam as it was before the others.
_BUILDING = threading.RLock()


@dataclass(frozen=True)
class Workers:
    """What decodes and encodes in a run.

    Attributes:
      processes: Number of worker processes of the pool; 0 if threads do the work.
      threads: Number of threads that decode and encode at once in each process of the engine; 0 if the engine
        decides.
      cpus: Number of processors of this machine.
    """

    processes: int
    threads: int
    cpus: int

    def __str__(self) -> str:
        """Returns the text for the summary."""
        on = f", on {counted(self.cpus, 'processor')}"
        if self.processes:
            return counted(self.processes, "worker process") + on
        return counted(self.threads, "thread") + on if self.threads else "workers as the engine has them"


def converting(tokens: Sequence[str] | None) -> AbstractContextManager[Any]:
    """Returns a block in which worker processes already start, while this process imports Beam.

    Args:
      tokens: Beam's options, each with its value in one token; None if they came as an object.
    """
    values = dict(token.removeprefix("--").replace("-", "_").partition("=")[::2] for token in tokens or ())
    in_doubt = tokens is None or "runner" in values or "direct_running_mode" in values
    if in_doubt or not uses_processes(values.get("pool", "")):
        return contextlib.nullcontext()
    return worker_pool(in_processes=True, preload=_CONVERSION)


def uses_processes(pool: str) -> bool:
    """Returns whether a run in this process converts in worker processes.

    Args:
      pool: The value of `--pool`; empty if it is not given.
    """
    # A program that embeds Python may not know an interpreter to start.
    return bool(sys.executable) and (pool == PROCESSES or (not pool and usable_cpus() > 1))


def workers_of(options: Any) -> Workers:
    """Returns what decodes and encodes in a run with Beam's options."""
    from apache_beam.options.pipeline_options import DirectOptions

    from shardwright.transforms.runner_features import WorkerOptions

    cpus = usable_cpus()
    if runner_of(options) not in _RUNNERS_HERE:
        return Workers(0, 0, cpus)
    in_memory = options.view_as(DirectOptions).direct_running_mode == "in_memory"
    if in_memory and uses_processes(options.view_as(WorkerOptions).pool):
        return Workers(cpus, 1, cpus)
    return Workers(0, worker_threads(), cpus)


def run_pipeline(build: Callable[[Any], None], options: Any) -> Any:
    """Builds a pipeline with `build`, runs it and waits for it.

    Returns:
      Beam's result.

    Raises:
      NotRun: If the options only describe the job.
      ShardwrightError: If a worker raised it; any other failure becomes an `EngineError`.
    """
    import apache_beam as beam
    from apache_beam.options.pipeline_options import TestOptions

    with own_temporary_folder(), worker_pool(workers_of(options).processes > 0):
        try:
            try:
                pipeline = beam.Pipeline(runner=_runner(options), options=options)
            except (ValueError, ImportError) as error:
                detail = " ".join(str(error).split()).rstrip(".")
                raise UsageError(f"Beam rejects its options: {detail}.") from error
            with no_interactive_runner():
                build(pipeline)
            described = description_of(options)
            if options.view_as(TestOptions).dry_run and not is_dataflow(options):
                raise NotRun(described)  # other runners ignore the option and would run the job
            if is_beam_silent():
                hide_tracebacks()
            logging.getLogger(_STEPS_LOGGER).addFilter(_is_unknown)
            with quiet_worker_processes() if _has_processes(options) else contextlib.nullcontext():
                result = pipeline.run()
                if described:
                    raise NotRun(described)
                state = _wait(result, options)
                if state is not None and str(state) not in ("DONE", "UPDATED"):
                    raise EngineError(f"The runner reports the state {state}; see its log.")
            return result
        except Exception as error:
            # Beam wraps Ctrl-C like any exception of a worker.
            if any(
                isinstance(item, KeyboardInterrupt) or re.match(r"KeyboardInterrupt\b", str(item))
                for item in _chain(error)
            ):
                raise KeyboardInterrupt from error
            raise as_shardwright_error(error) from error


def _runner(options: Any) -> Any:
    """Returns the runner that the options name.

    If Beam creates its in-process runner from the name, worker processes do not get the options.
    """
    from apache_beam.options.pipeline_options import StandardOptions
    from apache_beam.portability.api import beam_provision_api_pb2
    from apache_beam.runners.portability.fn_api_runner import fn_runner
    from apache_beam.runners.portability.portable_runner import JobServiceHandle

    if runner_of(options) != "fnapi" or not _has_processes(options):
        return options.view_as(StandardOptions).runner
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    provision = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    return fn_runner.FnApiRunner(provision_info=fn_runner.ExtendedProvisionInfo(provision))


def _wait(result: Any, options: Any) -> Any:
    """Waits for a job; prints where to watch a job on Dataflow, and how to stop it after an interrupt."""
    from apache_beam.options.pipeline_options import GoogleCloudOptions

    if not hasattr(result, "job_id"):
        return result.wait_until_finish()
    cloud, job = options.view_as(GoogleCloudOptions), result.job_id()
    console = f"https://console.cloud.google.com/dataflow/jobs/{cloud.region}/{job}?project={cloud.project}"
    log.info(f"the job runs as {job}: {console}", job=job, console=console)
    try:
        return result.wait_until_finish()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "the job itself goes on; stop it with "
            f"`gcloud dataflow jobs cancel {job} --region={cloud.region} --project={cloud.project}`."
        ) from None


def is_dataflow(options: Any) -> bool:
    """Returns whether Beam's options choose Dataflow."""
    return "dataflow" in runner_of(options)


def description_of(options: Any) -> str:
    """Returns a message about a job that Beam's options only describe; empty if the job runs."""
    from apache_beam.options import pipeline_options as beam

    template = options.view_as(beam.GoogleCloudOptions).template_location
    jar = options.view_as(beam.PortableOptions).output_executable_path
    if options.view_as(beam.TestOptions).dry_run:
        return "--dry_run described the job; nothing was converted. Leave it out to run the job."
    if template and is_dataflow(options):
        return f"The job was written to the template {template}; nothing runs until it is launched."
    if jar and runner_of(options) != "fnapi":
        return f"The job was written to {jar}; nothing runs until it is submitted."
    return ""


def metrics_of(result: Any) -> dict[str, Any]:
    """Returns this project's Beam metrics that the runner reports.

    Returns:
      Name -> value of a counter, or {count, sum, min, max, mean} of a distribution.
    """
    from apache_beam.metrics import MetricsFilter

    try:
        query = result.metrics().query(MetricsFilter().with_namespace(METRICS_NAMESPACE))
    except Exception:  # some runners have none, and report that in many ways
        return {}
    metrics: dict[str, Any] = {}
    for item in query["counters"]:
        # Prism leaves out the attempted value of a counter whose committed value is 0; `result` is None then.
        metrics[item.key.metric.name] = metrics.get(item.key.metric.name, 0) + (item.result or 0)
    for item in query["distributions"]:
        if item.result is not None:
            figures = ("count", "sum", "min", "max", "mean")
            metrics[item.key.metric.name] = {name: getattr(item.result, name) for name in figures}
    return dict(sorted(metrics.items()))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _has_processes(options: Any) -> bool:
    """Returns whether the workers are processes that this one starts."""
    from apache_beam.options.pipeline_options import DirectOptions

    return bool(options.view_as(DirectOptions).direct_running_mode == "multi_processing")


def as_shardwright_error(error: BaseException) -> ShardwrightError:
    """Returns the error that an exception of the engine contains or means."""
    for item in _chain(error):
        own_error = ShardwrightError.from_text(_BEAM_STEP.sub("", str(item)))
        if own_error:
            return own_error
        if isinstance(item, ShardwrightError):
            return type(item)(item.message)
    lines = [line.strip() for line in _BEAM_STEP.sub("", str(error)).splitlines() if line.strip()]
    text = _JOB_STATE.sub("", lines[-1] if lines else "").rstrip(".")[:300]
    if _CLOSED in text:
        return EngineError(
            "A worker process ended unexpectedly, often because the machine ran out of memory; use fewer "
            "workers (--direct_num_workers) or a larger machine and run again with --resume."
        )
    if lacks_memory(error):
        threads = ", or of the threads that `ulimit -u` or a container allows" if "new thread" in text else ""
        return EngineError(
            f"The machine ran out of memory{threads}; use a larger one and run again with --resume."
        )
    if _BOOT_ENDED.search(text):
        return EngineError(
            "A worker did not start, because the program of --environment_type=PROCESS ended; give the first "
            "`python` in the PATH of each task manager pip and shardwright (its log has the reason), and run "
            "again with --resume."
        )
    return UnexpectedError(
        f"The engine failed with {type(error).__name__}: {text or 'no message'}; "
        "see the full log with --verbose, fix that and run again with --resume."
    )


def exit_code_of(
    command: Callable[[], int],
    verbose: bool = False,
    resumable: bool = False,
) -> int:
    """Runs a command, prints an error as one sentence and returns the exit code.

    Args:
      command: Function to run.
      verbose: Whether to show tracebacks.
      resumable: Whether the command has --resume.
    """
    code: int | None = None
    try:
        with graceful_shutdown() as ending:
            ending.last_words = without_resume("interrupted; run again with --resume to go on.", resumable)
            if hasattr(sys.stdout, "reconfigure"):  # a name that the terminal cannot show is no error
                sys.stdout.reconfigure(errors="backslashreplace")
            with WATCHDOG.watching():
                try:
                    with own_temporary_folder():
                        code = command()
                    return code
                except KeyboardInterrupt as interrupt:
                    message, code = _interrupted(str(interrupt), ending), int(ExitCode.INTERRUPTED)
                except Exception as error:
                    if verbose:
                        log.traceback(traceback.format_exc())
                    cause = _as_known(error)
                    message, code = cause.message, int(cause.exit_code)
                    if ending.received and code == ExitCode.ENGINE:  # a result of ending the workers
                        message, code = _interrupted("", ending), int(ExitCode.INTERRUPTED)
                log.end(without_resume(message, resumable), code)
    except KeyboardInterrupt:  # while the blocks begin, or when the command has ended and they clean up
        if code is None:
            code = int(ExitCode.INTERRUPTED)
            log.end("interrupted before anything began.", code)
    return code


def _interrupted(message: str, ending: Ending) -> str:
    """Returns the message of an interrupted run."""
    what = _BEAM_STEP.sub("", message) or "run again with --resume to go on."
    return f"interrupted; {ending.reason}{what}"


def _as_known(error: Exception) -> ShardwrightError:
    if isinstance(error, ShardwrightError):
        return error
    if sys.flags.optimize > 1 and "apache_beam" not in sys.modules:  # a failed import is not listed there
        return UsageError(
            "Beam does not start without docstrings; run python without -OO, and without PYTHONOPTIMIZE=2 in "
            "the environment."
        )
    if isinstance(error, OSError):
        where = f" ({os.fsdecode(error.filename)})" if isinstance(error.filename, str | bytes) else ""
        return EngineError(f"{error.strerror or error}{where}; fix that and run again with --resume.")
    return as_shardwright_error(error)


def without_resume(message: str, resumable: bool = False) -> str:
    """Returns a message without the advice to resume, unless the command can resume."""
    return message if resumable else re.sub("run again with --resume( to go on)?", "run again", message)


def _is_unknown(record: logging.LogRecord) -> bool:
    """Returns whether Beam logs anything but an error that the caller gets; a log of level INFO shows all."""
    is_asked = logging.getLogger(record.name).isEnabledFor(logging.INFO)
    return is_asked or ShardwrightError.from_text(record.getMessage()) is None


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
    modules = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(raised.exc_traceback))
    return any(str(name).startswith("apache_beam.") for name in modules)


@contextlib.contextmanager
def quiet_worker_processes() -> Iterator[None]:
    """Hides what worker processes print and log, except the lines of rebuilds, unless Beam's log is shown."""
    from apache_beam.portability.api import beam_fn_api_pb2
    from google.protobuf import text_format

    from shardwright.core.rebuild.task import LOGGER, THIS_FILE

    silent = is_beam_silent()

    def is_shown_by_beam(record: logging.LogRecord) -> bool:
        if record.msg == _WORKERS_MESSAGE:
            entry = text_format.Parse(record.getMessage()[len("Worker: ") :], beam_fn_api_pb2.LogEntry())
            if THIS_FILE in entry.log_location:
                LOGGER.info("%s", entry.message)
                return False
        return not silent

    logger = logging.getLogger(_WORKERS_LOGGER)
    level = logger.level
    logger.addFilter(is_shown_by_beam)
    logger.setLevel(logging.INFO)
    try:
        with _stderr_discarded() if silent else contextlib.nullcontext():
            yield
    finally:
        logger.setLevel(level)
        logger.removeFilter(is_shown_by_beam)


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
        try:
            with contextlib.redirect_stderr(screen if ours else stderr):
                yield
        finally:
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
