"""Beam's form of the values that a DoFn yields when a bundle ends."""

from __future__ import annotations

from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue


def in_global_window(value: object) -> WindowedValue:
    """Returns a value in the form that `finish_bundle` must yield."""
    window = GlobalWindow()
    return WindowedValue(value, window.max_timestamp(), (window,))
