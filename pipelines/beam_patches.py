"""Spares Beam work that it does again for each of the hundreds of steps of a graph. Imports Beam."""

from __future__ import annotations

from types import MethodType
from typing import Any
from weakref import WeakSet

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import userstate


class LeanOptions(PipelineOptions):  # type: ignore[misc]
    """Beam's options, which parse the command line once for each view instead of whenever it is asked."""

    def view_as(self, cls: type[Any]) -> Any:
        """Returns the view of a kind; all views share their values."""
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def look_for_state_once() -> None:
    """Has Beam look through the methods of each class of DoFn once for state and timers; again is the same.

    It does that eight times for each step that is built and four times for each that runs, which was a fifth
    of the whole run of a small dataset.
    """
    look = getattr(userstate, "get_dofn_specs", None)
    if look is None or hasattr(look, "stateless"):
        return
    stateless: WeakSet[type] = WeakSet()

    def get_dofn_specs(dofn: Any) -> tuple[set[Any], set[Any]]:
        # A method that only this object has may be one with state.
        if type(dofn) in stateless and not any(isinstance(item, MethodType) for item in vars(dofn).values()):
            return set(), set()
        found: tuple[set[Any], set[Any]] = look(dofn)
        if not any(found):
            stateless.add(type(dofn))
        return found

    vars(get_dofn_specs)["stateless"] = stateless
    userstate.get_dofn_specs = get_dofn_specs
