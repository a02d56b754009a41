"""Everything that a command changes in Beam and in Python while it runs, and undoes at its end.

Beam works without these changes and gives the same bytes. With them a small run takes less time, worker
processes print no tracebacks for errors that the command explains in one sentence, and the log lines of
rebuilds come through from worker processes.

Only commands apply the patches. A function that is called from a notebook leaves Beam as it was found, except
that it keeps Beam from importing its interactive runner while it builds a pipeline.

To support another version of Beam, run `tests/pipelines/test_beam_patches.py` with it. The test of a patch
fails if Beam has changed the code that the patch goes by. Read that code, adapt the patch if necessary, and
add the version and the new digest here.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import inspect
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from shardwright.pipelines.worker_processes import WORKER_MAIN, fork_worker

#: Seconds for which the end of a command waits for workers that are late.
LATE_WORKER_SECONDS = 6.0
#: What Beam calls the threads of its workers, and those that read what they receive.
_WORKER_THREADS = ("run_worker", "read_grpc_client_inputs", "read_state")
_PAUSE_SECONDS = 0.01
_MISSING = object()
#: Held while a pipeline is built, so that each build finds Beam as it was before the others.
_BUILDING = threading.RLock()


@dataclass(frozen=True)
class Patch:
    """A change of one attribute.

    Attributes:
      name: what the patch does.
      place: the attribute that is replaced, with its module.
      replace: takes the attribute's value and returns the new one.
      checked: the function of Beam that the patch goes by; usually the one that it replaces.
      beam_versions: the versions of Beam that the patch was checked against.
      sha256: digest of the source of `checked` in these versions.
    """

    name: str
    place: str
    replace: Callable[[Any], Any]
    checked: str
    beam_versions: tuple[str, ...]
    sha256: str


def _look_for_state_once(look: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Looks through the methods of each class of DoFn once for state and timers.

    Beam does that eight times for each step that it builds and four times for each step that it runs. That
    was a fifth of the whole run of a small dataset.
    """
    stateless: WeakSet[type] = WeakSet()

    def get_dofn_specs(dofn: Any) -> tuple[set[Any], set[Any]]:
        # A method that only this object has may be one with state.
        if type(dofn) in stateless and not any(isinstance(item, MethodType) for item in vars(dofn).values()):
            return set(), set()
        specs: tuple[set[Any], set[Any]] = look(dofn)
        if not any(specs):
            stateless.add(type(dofn))
        return specs

    return get_dofn_specs


def _look_at_arguments_once(look: Callable[[Any], tuple[list[str], list[Any]]]) -> Callable[[Any], Any]:
    """Looks at the arguments of each function once; Beam does so six times for each method of each step."""
    functions: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
    methods: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def get_function_args_defaults(function: Any) -> tuple[list[str], list[Any]]:
        bound = isinstance(function, MethodType)
        known, key = (methods, function.__func__) if bound else (functions, function)
        if not isinstance(key, FunctionType):
            return look(function)
        if key not in known:
            known[key] = look(function)
        names, defaults = known[key]
        return [*names], [*defaults]

    return get_function_args_defaults


def _read_source_of_generators(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Reads the source only of functions that yield, to see whether one also returns values.

    Beam reads the file of every function, to log a warning.
    """

    def _check_fn_use_yield_and_return(function: Any) -> bool:
        if is_beam_silent() and not inspect.isgeneratorfunction(function):
            return False
        return check(function)

    return _check_fn_use_yield_and_return


def _weigh_without_modules(weigh: Callable[..., int]) -> Callable[..., int]:
    """Weighs values for Beam's cache without first listing the variables of all imported modules.

    The list would keep these from being weighed, but Beam leaves out functions, through which alone a value
    could refer to them.
    """
    from apache_beam.runners.worker import statecache

    options = {
        "get_size_func": statecache._size_func,
        "get_referents_func": statecache._get_referents_func,
        "filter_func": statecache._filter_func,
        "exclude_modules_globals": False,
    }

    def get_deep_size(*values: Any) -> int:
        return int(statecache.objsize.get_deep_size(*values, **options))

    return get_deep_size if _takes(statecache.objsize.get_deep_size, options) else weigh


def _takes(function: Callable[..., Any], names: Iterable[str]) -> bool:
    """Returns whether a function has arguments of these names."""
    return set(names) <= inspect.signature(function).parameters.keys()


def _take_our_log_lines(log_all: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Shows the log lines of rebuilds that worker processes send; Beam logs all others as before."""
    from shardwright.transforms.rebuild import events

    def without_ours(messages: Iterable[Any]) -> Iterator[Any]:
        for message in messages:
            for entry in [
                entry for entry in message.log_entries if events.is_place_of_line(entry.log_location)
            ]:
                events.LOGGER.info("%s", entry.message)
                message.log_entries.remove(entry)
            yield message

    def log_others(self: Any, messages: Iterable[Any], context: Any = None) -> Iterator[Any]:
        return log_all(self, without_ours(messages), context)

    return log_others


def _print_no_traceback(_: Any) -> Callable[..., None]:
    """Keeps the tracebacks off the screen that Beam's worker prints, unless its log is wanted.

    Workers of the portable runners may be threads of this process.
    """

    def print_if_verbose(*values: Any, **options: Any) -> None:
        if not is_beam_silent():
            builtins.print(*values, **options)

    return print_if_verbose


class _Instructions:
    """The number of instructions that workers in threads of this process are executing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def __enter__(self) -> None:
        with self._lock:
            self.count += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self.count -= 1


_instructions = _Instructions()


def _count_instructions(execute: Callable[..., None]) -> Callable[..., None]:
    """Counts the instructions that are being executed. Those of a job that failed end after their worker."""

    def _execute(self: Any, *values: Any) -> None:
        with _instructions:
            execute(self, *values)

    return _execute


def _hide_ends_of_workers(show: Callable[[Any], None]) -> Callable[[Any], None]:
    """Keeps the exceptions off the screen that end the threads of Beam, unless its log is wanted."""

    def show_others(raised: Any) -> None:
        if not (is_beam_silent() and _is_of_beam(raised)):
            show(raised)

    return show_others


def _import_less_in_workers(init: Callable[..., None]) -> Callable[..., None]:
    """Starts worker processes that import less of Beam, which saves each a second of processor time."""
    own = f"-m shardwright.pipelines.beam_worker {WORKER_MAIN}".encode()

    def __init__(self: Any, worker_command_line: bytes, *values: Any, **named: Any) -> None:  # noqa: N807
        init(self, worker_command_line.replace(f"-m {WORKER_MAIN}".encode(), own), *values, **named)

    return __init__


class _Subprocess:
    """Python's module `subprocess`, but worker processes are forked if that is prepared."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def Popen(self, command: Any, **named: Any) -> Any:  # noqa: N802  as in the module
        """Starts a process, as `subprocess.Popen` does."""
        return fork_worker(command, named.get("env")) or self._module.Popen(command, **named)


def _import_no_ipython(look: Callable[[], bool]) -> Callable[[], bool]:
    """Has Beam look for a notebook without importing IPython, which a notebook has imported."""

    def is_in_ipython() -> bool:
        return "IPython" in sys.modules and look()

    return is_in_ipython


def _time_no_steps(start: Callable[[Any], None]) -> Callable[[Any], None]:
    """Has Beam not measure how long each step of a bundle takes, which no command shows.

    A thread samples that. It sleeps longer the longer the bundle takes, up to 0.2 seconds. At the end Beam
    waits until it wakes up: on average a twelfth of the bundle's duration. That was a tenth of a rebuild.
    """
    from apache_beam.runners.worker.statesampler import set_current_tracker

    def start_without_thread(self: Any) -> None:
        def stop() -> None:
            set_current_tracker(None)
            self.finished = True

        self.tracked_thread = threading.current_thread()
        set_current_tracker(self)
        self.stop = stop  # also if the command has ended meanwhile
        self.started = True

    return start_without_thread


def is_beam_silent() -> bool:
    """Returns whether Beam's log is hidden."""
    return logging.getLogger("apache_beam").level >= logging.CRITICAL


def _is_of_beam(raised: Any) -> bool:
    """Returns whether an exception passed through Beam's code."""
    traceback = raised.exc_traceback
    while traceback is not None:
        if str(traceback.tb_frame.f_globals.get("__name__", "")).startswith("apache_beam."):
            return True
        traceback = traceback.tb_next
    return False


_PORTABILITY = "apache_beam.runners.portability"
_UNTIL_2_73 = ("2.70.0", "2.71.0", "2.72.0", "2.73.0")
_SINCE_2_74 = ("2.74.0", "2.75.0", "2.76.0", "2.77.0")
#: The versions of Beam that were checked.
BEAM_VERSIONS = _UNTIL_2_73 + _SINCE_2_74
#: All patches.
PATCHES = (
    Patch(
        "look for state once",
        "apache_beam.transforms.userstate.get_dofn_specs",
        _look_for_state_once,
        "apache_beam.transforms.userstate.get_dofn_specs",
        BEAM_VERSIONS,
        "eeb36145d3115aa02ec8d05667f4190084047c5229734d49250d6a950db0e923",
    ),
    Patch(
        "look at arguments once",
        "apache_beam.transforms.core.get_function_args_defaults",
        _look_at_arguments_once,
        "apache_beam.transforms.core.get_function_args_defaults",
        BEAM_VERSIONS,
        "5e41a60ff81fe8ca96ab6ec705dcd571f5c2f574a43a9e8db00010e19976191b",
    ),
    Patch(
        "read the source of generators",
        "apache_beam.transforms.core._check_fn_use_yield_and_return",
        _read_source_of_generators,
        "apache_beam.transforms.core._check_fn_use_yield_and_return",
        _UNTIL_2_73[1:] + _SINCE_2_74,
        "0564abdb440c676dcb3f027f8fbfa8d0e8f7e11455be5f316112c73ef1836c3c",
    ),
    Patch(  # does not tell `return` from `return value`
        "read the source of generators",
        "apache_beam.transforms.core._check_fn_use_yield_and_return",
        _read_source_of_generators,
        "apache_beam.transforms.core._check_fn_use_yield_and_return",
        _UNTIL_2_73[:1],
        "8be5f5cfdabeb133ba6d68c5469f54ed265962070bf0bb44ebe71c3af55a31c3",
    ),
    Patch(
        "weigh without modules",
        "apache_beam.runners.worker.statecache.get_deep_size",
        _weigh_without_modules,
        "apache_beam.runners.worker.statecache.get_deep_size",
        BEAM_VERSIONS,
        "da557bd7faffc13fd3f5bc1d000a43d0fdf4af29dacaab59cd3a9687daab62f9",
    ),
    Patch(
        "show log lines of worker processes, in-process runner",
        f"{_PORTABILITY}.fn_api_runner.worker_handlers.BasicLoggingService.Logging",
        _take_our_log_lines,
        f"{_PORTABILITY}.fn_api_runner.worker_handlers.BasicLoggingService.Logging",
        BEAM_VERSIONS,
        "3913588419391506328f4ef4a588435944bb1223c020c35c050981f94e236372",
    ),
    Patch(
        "show log lines of worker processes, local job service",
        f"{_PORTABILITY}.local_job_service.BeamFnLoggingServicer.Logging",
        _take_our_log_lines,
        f"{_PORTABILITY}.local_job_service.BeamFnLoggingServicer.Logging",
        BEAM_VERSIONS,
        "4dc6f52a8de3bc6cf17860c5adcc9724b062bf0f7037caf286f1aca39198a5cb",
    ),
    Patch(
        "print no traceback",
        "apache_beam.runners.worker.sdk_worker.print",
        _print_no_traceback,
        "apache_beam.runners.worker.sdk_worker.SdkHarness._execute",
        BEAM_VERSIONS,
        "2a62fda30490e8cb64f602f57604d6cc70c3538d1ee3ffb78b66a85386baf3c3",
    ),
    Patch(
        "count instructions",
        "apache_beam.runners.worker.sdk_worker.SdkHarness._execute",
        _count_instructions,
        "apache_beam.runners.worker.sdk_worker.SdkHarness._execute",
        BEAM_VERSIONS,
        "2a62fda30490e8cb64f602f57604d6cc70c3538d1ee3ffb78b66a85386baf3c3",
    ),
    Patch(
        "hide the ends of workers",
        "threading.excepthook",
        _hide_ends_of_workers,
        f"{_PORTABILITY}.local_job_service.SubprocessSdkWorker.run",
        BEAM_VERSIONS,
        "e6aa3e5430e191ab290e42adc5ffc7fdfc1e0a77bf1b94daacad97b19a06b94e",
    ),
    Patch(
        "import less of Beam in worker processes",
        f"{_PORTABILITY}.local_job_service.SubprocessSdkWorker.__init__",
        _import_less_in_workers,
        f"{_PORTABILITY}.local_job_service.SubprocessSdkWorker.__init__",
        BEAM_VERSIONS,
        "07531c4c96136f85e1b9ba81312b7e9220081d796eccadeaab3042605c3785e6",
    ),
    Patch(
        "fork worker processes",
        f"{_PORTABILITY}.local_job_service.subprocess",
        _Subprocess,
        f"{_PORTABILITY}.local_job_service.SubprocessSdkWorker.run",
        BEAM_VERSIONS,
        "e6aa3e5430e191ab290e42adc5ffc7fdfc1e0a77bf1b94daacad97b19a06b94e",
    ),
    Patch(
        "import no IPython",
        "apache_beam.pipeline.is_in_ipython",
        _import_no_ipython,
        "apache_beam.utils.interactive_utils.is_in_ipython",
        BEAM_VERSIONS,
        "caf08d14497267f62f9c7a16babb806e82a0e733276d0b181915caad77da503f",
    ),
    Patch(
        "time no steps",
        "apache_beam.runners.worker.statesampler.StateSampler.start",
        _time_no_steps,
        "apache_beam.runners.worker.statesampler.StateSampler.start",
        BEAM_VERSIONS,
        "23b371cd22f18d5787ce5a8f0ca2d34a68b6abd23acea40c869e4d9c126a4d5c",
    ),
)


def found(path: str) -> Any:
    """Returns the object at a dotted path, whose module is imported.

    Raises:
      AttributeError: if its module has no such object.
    """
    words = path.split(".")
    for end in range(len(words), 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            value = import_module(".".join(words[:end]))
            for word in words[end:]:
                value = getattr(value, word)
            return value
    raise AttributeError(f"there is no {path}")


def source_digest(path: str) -> str:
    """Returns the sha256 of the source of a function, given by its dotted path."""
    return hashlib.sha256(inspect.getsource(found(path)).encode()).hexdigest()


def fits(patch: Patch) -> bool:
    """Whether a patch was checked against the installed Beam, or against one with the same source."""
    from apache_beam import __version__

    if __version__ in patch.beam_versions:
        return True
    try:
        return source_digest(patch.checked) == patch.sha256
    except (AttributeError, OSError, TypeError):  # it does not exist any more, or it has no source
        return False


@contextlib.contextmanager
def _applied(patch: Patch) -> Iterator[None]:
    owner_path, _, name = patch.place.rpartition(".")
    owner = found(owner_path)
    before = getattr(owner, name, _MISSING)
    after = patch.replace(before)
    setattr(owner, name, after)
    try:
        yield
    finally:
        if getattr(owner, name, _MISSING) is after:  # else somebody else has replaced it since
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


#: What undoes the patches of the commands that run, the innermost last.
_commands: list[ExitStack] = []
_applied_names: set[str] = set()


@contextlib.contextmanager
def patching() -> Iterator[None]:
    """Lets `apply_patches` change Beam while the block runs, and undoes all changes at its end."""
    with ExitStack() as stack:
        _commands.append(stack)
        try:
            yield
            wait_for_late_workers()
        finally:
            _commands.remove(stack)


def is_patching() -> bool:
    """Returns whether a command runs, so that `apply_patches` changes Beam."""
    return bool(_commands)


def apply_patches() -> None:
    """Applies the patches that are not applied yet, if a command runs; does nothing in a library call."""
    if not _commands:
        return
    for patch in PATCHES:
        if patch.name not in _applied_names and fits(patch):
            _commands[-1].enter_context(_applied(patch))
            _applied_names.add(patch.name)
            _commands[-1].callback(_applied_names.discard, patch.name)


def wait_for_late_workers() -> None:
    """Gives workers in threads of this process, which learn late that their job has ended, time to end."""
    deadline = time.monotonic() + LATE_WORKER_SECONDS
    while time.monotonic() < deadline and (
        _instructions.count
        or any(thread.name.startswith(_WORKER_THREADS) for thread in threading.enumerate())
    ):
        time.sleep(_PAUSE_SECONDS)


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


@contextlib.contextmanager
def noted_thread_errors(note: Callable[[BaseException | None], None]) -> Iterator[None]:
    """Has a function see each exception that ends a thread while the block runs, in library calls too.

    Beam says in no other way that a worker process was killed.

    Args:
      note: takes the exception.
    """
    before = threading.excepthook

    def hook(raised: Any) -> None:
        note(raised.exc_value)
        before(raised)

    threading.excepthook = hook
    try:
        yield
    finally:
        if threading.excepthook is hook:
            threading.excepthook = before
