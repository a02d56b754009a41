"""Building blocks of the transforms: composites of functions, and sums of PCollections and of bundles."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from shardwright.schemas.findings import FindingSummary
from shardwright.schemas.statistics import Statistics

Arguments = ParamSpec("Arguments")


def composite(
    expand: Callable[Concatenate[Any, Arguments], Any],
) -> Callable[Arguments, beam.PTransform]:
    """Makes a composite transform of a function, as `beam.ptransform_fn` does.

    Type checkers know the arguments, and Beam does not show their values, which may contain secrets.

    Args:
      expand: Function that applies steps to its first argument, a PCollection. The transform takes the other
        arguments.
    """

    @functools.wraps(expand)
    def transform(*args: Arguments.args, **kwargs: Arguments.kwargs) -> beam.PTransform:
        applied = functools.wraps(expand)(lambda collection: expand(collection, *args, **kwargs))
        return beam.ptransform_fn(applied)()

    return transform


class _Mergeable(Protocol):
    def merge(self, other: Any, /) -> Any: ...


Mergeable = TypeVar("Mergeable", bound=_Mergeable)


def merge_all(empty: Callable[[], Mergeable]) -> Callable[[Iterable[Mergeable]], Mergeable]:
    """Returns a combiner that merges sums into a new one; none of them changes.

    Args:
      empty: Returns an empty sum.
    """

    def merged(sums: Iterable[Any]) -> Any:
        total = empty()
        for part in sums:
            total.merge(part)
        return total

    return merged


def tagged(tag: str, items: Iterable[Any]) -> Iterator[beam.pvalue.TaggedOutput]:
    """Returns items as outputs of a step under a tag."""
    return (beam.pvalue.TaggedOutput(tag, item) for item in items)


def in_global_window(value: object) -> WindowedValue | beam.pvalue.TaggedOutput:
    """Returns an output in the form that `finish_bundle` must yield."""
    if isinstance(value, beam.pvalue.TaggedOutput):
        return beam.pvalue.TaggedOutput(value.tag, in_global_window(value.value))
    return GlobalWindows.windowed_value_at_end_of_window(value)


@composite
def CallOnce(
    begin: beam.pvalue.PBegin, function: Callable[..., Any], *arguments: Any
) -> beam.PCollection[Any]:
    """Calls a function once. `pipeline -> PCollection of its result`.

    Args:
      begin: The pipeline.
      function: The function.
      *arguments: Its arguments: values and side inputs. A step that has only side inputs needs an element to
        run at all.
    """
    return (
        begin
        | "Once" >> beam.Impulse()  # bytes
        | "Call" >> beam.Map(lambda _, *values: function(*values), *arguments)  # what the function returns
    )


class InThreads(beam.DoFn):
    """Works on several elements at once, in threads of its own, and yields the outputs in order.

    `process` passes the work on an element to `submit`.
    """

    def start_threads(self, count: int) -> None:
        """Starts the threads; `setup` calls this."""
        self._threads = count
        self._executor = ThreadPoolExecutor(count, thread_name_prefix="shardwright-element")

    def teardown(self) -> None:
        """Ends the threads."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    def start_bundle(self) -> None:
        """Starts without work."""
        self._work: deque[Future[Any]] = deque()

    def submit(self, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        """Passes a function and its arguments to a thread; yields the outputs of an earlier element, if any.

        If all threads are busy, it waits for that element.
        """
        self._work.append(self._executor.submit(function, *args))
        if len(self._work) > self._threads:
            yield from self.outputs(self._work.popleft().result())

    def finish_bundle(self) -> Iterator[Any]:
        """Yields the outputs that are left."""
        while self._work:
            yield from map(in_global_window, self.outputs(self._work.popleft().result()))

    def outputs(self, result: Any) -> Iterable[Any]:
        """Returns the outputs for a result. The bundle's thread calls it, which alone may count metrics."""
        return result  # type: ignore[no-any-return]


class SumOfBundle(beam.DoFn, Generic[Mergeable]):
    """Adds up the elements of each bundle, and yields one sum for each. `element -> Sum`.

    A combiner can do this only without side inputs, and takes seven more steps and a stage.

    Args:
      empty: Returns an empty sum.
      add: Adds an element to a sum, given the side input of the step, or None.
    """

    def __init__(self, empty: Callable[[], Mergeable], add: Callable[[Mergeable, Any, Any], object]) -> None:
        self._empty = empty
        self._add = add

    def start_bundle(self) -> None:
        """Starts an empty sum."""
        self._sum = self._empty()

    def process(self, element: Any, side: Any = None) -> Iterator[Any]:
        """Adds an element."""
        self._add(self._sum, element, side)
        yield from ()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Yields the sum of the bundle; merging drops what no whole sum needs."""
        yield in_global_window(merge_all(self._empty)([self._sum]))


#: Returns the sum of findings: the number of each code, and the first ones. The last step of a graph gets
#: them as side inputs, and reads one at a time. A combiner would add seven steps and a stage for a few small
#: elements.
added_findings = merge_all(FindingSummary)


def added_statistics(statistics: beam.PCollection[Statistics] | None) -> beam.pvalue.AsSingleton | None:
    """Returns a side input of the sum of statistics.

    Args:
      statistics: PCollection of the Statistics of the shards. None if no image was decoded.

    Returns:
      Side input of the one Statistics. None if no image was decoded.
    """
    if statistics is None:
        return None
    add_up = beam.CombineGlobally(merge_all(Statistics)).with_output_types(Statistics)
    return statistics | "AddUpStatistics" >> add_up.as_singleton_view()  # Statistics
