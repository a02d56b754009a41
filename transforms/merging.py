"""`MergeAll`: adds up the elements of a PCollection that can be merged with each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

import apache_beam as beam


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
