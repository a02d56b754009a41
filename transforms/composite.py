"""Makes composite transforms of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

import apache_beam as beam

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
