"""Builds settings from given values: of command lines, job files, notebooks and carried plans."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shardwright.schemas.configuration.setting import Setting
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS, ConvertSettings
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.layouts import layout_by_name


def settings_from(values: Mapping[str, Any], carried: Mapping[str, Any] | None = None) -> ConvertSettings:
    """Builds settings from given values; a carried plan and the defaults supply the others.

    Args:
      values: Given settings, by name; YAML's own types are accepted.
      carried: `settings` of the `dataset.json` named by `plan_from`.

    Raises:
      UsageError: If a name is unknown or a value has the wrong type.
    """
    merged: dict[str, Any] = {}
    for origin in (dict(carried or {}), dict(values)):
        for name, value in origin.items():
            if name not in CONVERT_SETTINGS:
                where = "--plan_from: " if name in (carried or {}) and name not in values else ""
                raise UsageError(
                    f"{where}unknown setting {name!r}{nearest(name, list(CONVERT_SETTINGS)) or '.'}"
                )
            merged[name] = stored_value(CONVERT_SETTINGS[name], value)
    if "shards" in values and "shard_size" in values and values["shards"] and values["shard_size"]:
        raise UsageError("--shards and --shard_size both choose the number of shards: leave one out.")
    if carried and "resize" in values and "image_format" not in values:
        merged.pop("image_format", None)  # its default follows --resize
    before = str((carried or {}).get("layout", ConvertSettings.layout))
    if carried and "layout" in values and "image_format" not in values and layout_by_name(before).pixels:
        merged.pop("image_format", None)  # the layout chose raw
    if "shard_size" in values and "shards" not in values:
        merged.pop("shards", None)
    return replace(ConvertSettings(), **merged)


def settings_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merges settings of two origins; if two exclude each other, those in `above` win."""
    below = dict(below)
    for name, other in (("shards", "shard_size"), ("overwrite", "resume")):
        if is_on(above.get(name)):
            below.pop(other, None)
        if is_on(above.get(other)):
            below.pop(name, None)
    return {**below, **above}


def is_on(value: Any) -> bool:
    """Returns whether a setting that may be empty or a switch is given and on."""
    return bool(value) and str(value).lower() not in ("false", "no")


def stored_value(item: Setting, value: Any) -> Any:
    """Returns a value of a command line, a job file, a notebook or a plan in the form of its setting.

    Raises:
      UsageError: If its type is wrong.
    """
    if isinstance(item.default, tuple):
        return _paths(item, value)
    if item.is_switch:
        if str(value).lower() not in ("true", "false", "yes", "no"):
            raise UsageError(f"--{item.name} {value}: write true or false.")
        return str(value).lower() in ("true", "yes")
    if value is None:
        return item.default
    if isinstance(value, Mapping) and item.kind.between:
        value = ",".join(f"{key}{item.kind.between}{one}" for key, one in value.items())
    if isinstance(value, list | tuple) and item.name == "resize":
        value = "x".join(str(side) for side in value)
    if isinstance(value, Mapping | list | tuple | set):
        raise UsageError(f"--{item.name} takes one value, not several: {value!r}.")
    if item.is_number:
        return _number(item, value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _number(item: Setting, value: Any) -> int | float:
    """Returns a number, which may be written as a fraction such as 1/30 unless it has to be whole."""
    kind: type[int | float] = type(item.default)
    over, _, under = str(value).partition("/") if kind is float else (value, "", "")
    noun = "number" if kind is float else "whole number"
    wrong = item.kind.advice or f"{value!r} is not a {noun}"
    percentage = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", str(value))
    if percentage and kind is float:
        wrong = f"{value!r} is not a number; write {float(percentage[1]) / 100:g}"
    try:
        number = kind(over) / float(under) if under else kind(over)
        if isinstance(value, float) and number != value and value == value:
            raise ValueError
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise UsageError(f"--{item.name} {value}: {wrong}.") from None
    return number


def _paths(item: Setting, value: Any) -> tuple[str, ...]:
    """Converts a path, several paths, or names with paths to several texts."""
    if isinstance(value, Mapping):
        value = [f"{key}={path}" for key, path in value.items()]
    if isinstance(value, str | os.PathLike):
        value = [value]
    if not isinstance(value, list | tuple) or not all(isinstance(v, str | os.PathLike) for v in value):
        raise UsageError(f"--{item.name} {value!r}: write one path or a list of paths.")
    return tuple(os.fspath(path) for path in value)
