"""Building blocks of the transforms: composites of functions, and sums of PCollections and of bundles."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
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


Sum = TypeVar("Sum", bound=_Mergeable)


class MergeAll(beam.CombineFn, Generic[Sum]):
    """Merges all elements into one sum, with the method `merge` of the sum.

    Args:
      empty: Returns an empty sum.
      add: Adds an element to a sum. None to merge it, because elements are sums themselves.
      finish: Returns the result of a sum. None for the sum itself.
    """

    def __init__(
        self,
        empty: Callable[[], Sum],
        add: Callable[[Sum, Any], object] | None = None,
        finish: Callable[[Sum], Any] | None = None,
    ) -> None:
        self._empty = empty
        self._add = add
        self._finish = finish

    def create_accumulator(self) -> Sum:
        """Returns an empty sum."""
        return self._empty()

    def add_input(self, accumulator: Sum, element: Any) -> Sum:
        """Adds an element."""
        if self._add is None:
            accumulator.merge(element)
        else:
            self._add(accumulator, element)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Sum]) -> Sum:
        """Merges sums; none of them changes."""
        merged = self._empty()
        for accumulator in accumulators:
            merged.merge(accumulator)
        return merged

    def extract_output(self, accumulator: Sum) -> Any:
        """Returns the result."""
        return accumulator if self._finish is None else self._finish(accumulator)


def in_global_window(value: object) -> WindowedValue:
    """Returns a value in the form that `finish_bundle` must yield."""
    window = GlobalWindow()
    return WindowedValue(value, window.max_timestamp(), (window,))


class SumOfBundle(beam.DoFn, Generic[Sum]):
    """Adds up the elements of each bundle, and yields one sum for each. `element -> Sum`.

    A combiner can do this only without side inputs, and takes seven more steps and a stage.

    Args:
      empty: Returns an empty sum.
      add: Adds an element to a sum, given the side input of the step, or None.
      trim: Drops what a whole sum does not need. None to keep everything.
    """

    def __init__(
        self,
        empty: Callable[[], Sum],
        add: Callable[[Sum, Any, Any], object],
        trim: Callable[[Sum], object] | None = None,
    ) -> None:
        self._empty = empty
        self._add = add
        self._trim = trim

    def start_bundle(self) -> None:
        """Starts an empty sum."""
        self._sum = self._empty()

    def process(self, element: Any, side: Any = None) -> Iterator[Any]:
        """Adds an element."""
        self._add(self._sum, element, side)
        yield from ()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Yields the sum of the bundle."""
        if self._trim is not None:
            self._trim(self._sum)
        yield in_global_window(self._sum)


def added_findings(*parts: Iterable[FindingSummary]) -> FindingSummary:
    """Returns the sum of findings: the number of each code, and the first ones.

    The last step of a graph gets them as side inputs, and reads one at a time. A combiner would add seven
    steps and a stage for a few small elements.

    Args:
      *parts: Summaries of findings, which stay as they are.
    """
    added = FindingSummary()
    for summary in chain.from_iterable(parts):
        added.merge(summary)
    return added


def added_statistics(statistics: beam.PCollection | None) -> beam.pvalue.AsSingleton | None:
    """Returns a side input of the sum of statistics.

    Args:
      statistics: PCollection of the Statistics of the shards. None if no image was decoded.

    Returns:
      Side input of the one Statistics. None if no image was decoded.
    """
    if statistics is None:
        return None
    add_up = beam.CombineGlobally(MergeAll(Statistics)).with_output_types(Statistics)
    return statistics | "AddUpStatistics" >> add_up.as_singleton_view()  # Statistics
