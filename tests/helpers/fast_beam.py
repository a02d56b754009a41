"""Saves work that Beam repeats in each of the suite's thousands of jobs; results do not depend on it.

`SHARDWRIGHT_PLAIN_BEAM=1` leaves Beam unchanged.
"""

from __future__ import annotations

import argparse
import bz2
import functools
import os
import sys
import threading
from collections.abc import Callable
from concurrent import futures
from types import FunctionType, SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

from apache_beam.internal import cloudpickle_pickler, pickler
from apache_beam.internal.cloudpickle import cloudpickle
from apache_beam.options import pipeline_options
from apache_beam.pipeline import Pipeline
from apache_beam.runners.worker import bundle_processor, statecache
from apache_beam.transforms import core, environments
from apache_beam.typehints import decorators

_WEIGHT = 1000
#: What functions begin with that stay in this process and are therefore not compressed.
_PLAIN = b"not compressed: "
#: Whether this thread describes a pipeline that runs in this process.
_place = threading.local()


def _once_per_function(compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns `compute` with a cache for functions, and for methods of all objects of a class."""
    functions: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
    methods: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def computed(function: Any) -> Any:
        known, key = functions, function
        if hasattr(function, "__func__"):
            known, key = methods, function.__func__
        if not hasattr(key, "__code__"):
            return compute(function)
        if key not in known:
            known[key] = compute(function)
        return known[key]

    return computed


@functools.lru_cache(maxsize=4096)
def _compressed(data: bytes) -> bytes:
    return bz2.compress(data, 1)


class _QuickBz2:
    """Compresses functions for other processes only: each once, with the smallest buffers, to save time."""

    @staticmethod
    def compress(data: bytes, compresslevel: int = 9) -> bytes:
        return _PLAIN + data if getattr(_place, "here", False) else _compressed(data)

    @staticmethod
    def decompress(data: bytes) -> bytes:
        return data.removeprefix(_PLAIN) if data.startswith(_PLAIN) else bz2.decompress(data)


def _notice_place(to_runner_api: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the method that describes a pipeline; it notes whether the pipeline runs in this process."""

    @functools.wraps(to_runner_api)
    def describe(self: Any, *arguments: Any, **named: Any) -> Any:
        environment = named.get("default_environment")
        _place.here = type(environment) is environments.EmbeddedPythonEnvironment
        try:
            return to_runner_api(self, *arguments, **named)
        finally:
            _place.here = False

    return describe


class _Kept:
    """Stands for the bytes of an object that the same bundle loads again."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _load_kept(loads: Callable[..., Any]) -> Callable[..., Any]:
    def load(encoded: Any, *arguments: Any, **named: Any) -> Any:
        return encoded.value if type(encoded) is _Kept else loads(encoded, *arguments, **named)

    return load


def _find_by_name(search: Callable[..., bool]) -> Callable[..., bool]:
    """Looks up a class or function under its name first; the search finds all others."""

    def should_pickle_by_reference(value: Any, *arguments: Any, **named: Any) -> bool:
        if isinstance(value, FunctionType | type) and not cloudpickle._PICKLE_BY_VALUE_MODULES:
            module = sys.modules.get(value.__module__)
            if (
                module is not None
                and value.__module__ != "__main__"
                and vars(module).get(value.__qualname__) is value
            ):
                return True
        return search(value, *arguments, **named)

    return should_pickle_by_reference


def _user_metrics(self: Any) -> list[Any]:
    """Returns the metrics of this project's steps, without Beam's own, which no test reads."""
    found = {}
    for transform, operation in self.ops.items():
        found.update(operation.user_monitoring_infos(transform))
    return list(found.values())


class _InThisThread(futures.Executor):
    """Stands for the thread in which Beam loads each bundle, to notice that it takes more than an hour."""

    def __init__(self, **_: Any) -> None:
        pass

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> futures.Future[Any]:
        future: futures.Future[Any] = futures.Future()
        try:
            future.set_result(function(*arguments, **named))
        except BaseException as error:
            future.set_exception(error)
        return future


def _formatter(self: argparse.ArgumentParser) -> argparse.HelpFormatter:
    """Returns the formatter of Beam's parser for checks of options, with a fixed width of the terminal."""
    return self.formatter_class(prog=self.prog, width=80)


def _keep_parsers(options: type[Any]) -> None:
    """Keeps the parser of each kind of option, and drops a search for warnings that no test reads."""
    parsers: dict[type[Any], argparse.ArgumentParser] = {}
    visible: dict[type[Any], list[str]] = {}
    get_all_options = options.get_all_options

    def initialize(self: Any, flags: Any = None, **overrides: Any) -> None:
        kind = type(self)
        if isinstance(flags, str):
            raise ValueError("Flags must be an iterable of of strings, not a single string.")
        if kind not in parsers:
            parsers[kind] = pipeline_options._BeamArgumentParser(allow_abbrev=False)
            for cls in kind.mro()[: kind.mro().index(options)]:
                if "_add_argparse_args" in vars(cls):
                    cls._add_argparse_args(parsers[kind])
        self._flags = flags
        self._visible_options, _ = parsers[kind].parse_known_args(flags)
        self._all_options = overrides
        for name in self._visible_option_list():
            overrides.setdefault(name, getattr(self._visible_options, name))

    def visible_option_list(self: Any) -> list[str]:
        kind = type(self)
        if kind not in visible:
            visible[kind] = sorted(name for name in vars(self._visible_options) if name[0] != "_")
        return visible[kind]

    def without_warnings(self: Any, *arguments: Any, display_warnings: bool = False, **named: Any) -> Any:
        # Only `Pipeline.run` asks for warnings, and drops the options.
        return {} if display_warnings else get_all_options(self, *arguments, **named)

    options.__init__ = initialize
    options._visible_option_list = visible_option_list
    options.get_all_options = without_warnings


def _roundtrip(value: Any) -> Any:
    """Pickles and loads the arguments of a step; Beam drops the copy of a function that it pickles again."""
    if isinstance(value, (core.DoFn, core.CombineFn)):
        return value
    if type(value) in (dict, list, tuple) and not value:
        return type(value)()
    return cloudpickle_pickler.roundtrip(value)


def speed_up() -> None:
    """Installs the faster versions, unless the environment asks for unchanged Beam."""
    if os.environ.get("SHARDWRIGHT_PLAIN_BEAM"):
        return
    defaults = _once_per_function(core.get_function_args_defaults)

    @functools.wraps(core.get_function_args_defaults)
    def get_function_args_defaults(function: Any) -> tuple[list[str], list[Any]]:
        names, values = defaults(function)
        return [*names], [*values]

    core.get_function_args_defaults = get_function_args_defaults
    mixes_yield_and_return = core._check_fn_use_yield_and_return
    known: dict[Any, bool] = {}

    @functools.wraps(mixes_yield_and_return)
    def check_fn_use_yield_and_return(function: Any) -> bool:
        code = getattr(function, "__code__", None)
        if code is None:
            return bool(mixes_yield_and_return(function))
        if code not in known:
            known[code] = mixes_yield_and_return(function)
        return known[code]

    core._check_fn_use_yield_and_return = check_fn_use_yield_and_return
    decorators.get_signature = _once_per_function(decorators.get_signature)
    hints = _once_per_function(decorators.IOTypeHints.from_callable)
    decorators.IOTypeHints.from_callable = classmethod(lambda _, function: hints(function))
    # The place where a type was declared; only messages about wrong types need it.
    decorators.IOTypeHints._make_origin = classmethod(lambda *_, **__: [])
    cloudpickle_pickler.bz2 = _QuickBz2
    # Both Beam's function that weighs values and the one of our patch of Beam call it.
    weigh = statecache.objsize.get_deep_size
    statecache.objsize = SimpleNamespace(get_deep_size=functools.wraps(weigh)(lambda *_, **__: _WEIGHT))
    bundle_processor.concurrent = SimpleNamespace(
        futures=SimpleNamespace(ThreadPoolExecutor=_InThisThread, TimeoutError=futures.TimeoutError)
    )
    pipeline_options._BeamArgumentParser._get_formatter = _formatter
    _keep_parsers(pipeline_options.PipelineOptions)
    pickler.roundtrip = _roundtrip
    pickler.loads = _load_kept(pickler.loads)
    bundle_processor.pickler = SimpleNamespace(loads=pickler.loads, dumps=_Kept)
    bundle_processor.BundleProcessor.monitoring_infos = _user_metrics
    cloudpickle._should_pickle_by_reference = _find_by_name(cloudpickle._should_pickle_by_reference)
    Pipeline.to_runner_api = _notice_place(Pipeline.to_runner_api)
