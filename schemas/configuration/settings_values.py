"""Builds settings from given values: of command lines, job files, notebooks and carried plans."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.layouts import layout_by_name


def setting_fields() -> dict[str, Any]:
    """Returns the dataclass fields of the settings by name."""
    return {item.name: item for item in fields(ConvertSettings)}


def not_for_rebuilds() -> dict[str, str]:
    """Returns the settings that a rebuild does not accept, with the reasons."""
    reasons = {name: item.metadata["not_for_rebuilds"] for name, item in setting_fields().items()}
    return {name: why for name, why in reasons.items() if why}


def settings_from(values: Mapping[str, Any], carried: Mapping[str, Any] | None = None) -> ConvertSettings:
    """Builds settings from given values; a carried plan and the defaults supply the others.

    Args:
      values: given settings, by name; YAML's own types are accepted.
      carried: `settings` of the `dataset.json` named by `plan_from`.

    Raises:
      UsageError: if a name is unknown or a value has the wrong type.
    """
    known = setting_fields()
    merged: dict[str, Any] = {}
    for origin in (dict(carried or {}), dict(values)):
        for name, value in origin.items():
            if name not in known:
                where = "--plan_from: " if name in (carried or {}) and name not in values else ""
                raise UsageError(f"{where}unknown setting {name!r}{nearest(name, list(known)) or '.'}")
            merged[name] = _coerce(name, value, known[name])
    if "shards" in values and "shard_size" in values and values["shards"] and values["shard_size"]:
        raise UsageError("--shards and --shard_size both choose the number of shards: leave one out.")
    if carried and "resize" in values and "image_format" not in values:
        merged.pop("image_format", None)  # its default follows --resize
    if carried and "layout" in values and "image_format" not in values and _stores_pixels(carried):
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


def _stores_pixels(carried: Mapping[str, Any]) -> bool:
    return layout_by_name(str(carried.get("layout", ConvertSettings.layout))).pixels


def _coerce(name: str, value: Any, setting: Any) -> Any:
    """Converts a value of a job file, a notebook or a plan to the form of its setting."""
    default, between = setting.default, setting.metadata["between"]
    if name == "input":
        return _coerce_input(value)
    if isinstance(default, bool):
        if isinstance(value, bool):
            return value
        if str(value).lower() in ("true", "false", "yes", "no"):
            return str(value).lower() in ("true", "yes")
        raise UsageError(f"--{name} {value}: write true or false.")
    if value is None:
        return default
    if isinstance(value, Mapping) and between:
        value = ",".join(f"{key}{between}{item}" for key, item in value.items())
    if isinstance(value, list | tuple) and name == "resize":
        value = "x".join(str(item) for item in value)
    if isinstance(value, Mapping | list | tuple | set):
        raise UsageError(f"--{name} takes one value, not several: {value!r}.")
    if isinstance(default, int | float) and not isinstance(value, bool):
        try:
            number = type(default)(value)
        except (TypeError, ValueError, OverflowError):
            raise UsageError(f"--{name} {value}: {value!r} is not a number{_as_share(value)}.") from None
        if isinstance(value, float) and number != value and value == value:
            raise UsageError(f"--{name} {value}: {value!r} is not a whole number.")
        return number
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _as_share(value: Any) -> str:
    """Returns the advice to write a percentage as a share; empty for any other value."""
    percentage = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", str(value))
    return f"; write {float(percentage[1]) / 100:g}" if percentage else ""


def _coerce_input(value: Any) -> tuple[str, ...]:
    """Converts a path, several paths, or names with paths to the form of `input`."""
    if isinstance(value, Mapping):
        value = [f"{key}={item}" for key, item in value.items()]
    if isinstance(value, str | os.PathLike):
        value = [value]
    if not isinstance(value, list | tuple) or not all(isinstance(v, str | os.PathLike) for v in value):
        raise UsageError(f"--input {value!r}: write one path or a list of paths.")
    return tuple(os.fspath(item) for item in value)
