"""The gate file: requirements for a dataset, and limits on how it may differ from the previous dataset.

`validate --expect`, `diff --thresholds` and the `gates` of a job file use the same language:

fail_on: [SPLIT_LEAKAGE]
min_images: 1000
min_images_per_class: 50
max_fraction: {NEAR_DUPLICATE: 0.02}
max_removed_fraction: 0.05
vanished_classes: refuse
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardwright.schemas.configuration.expectations import Codes, Expectations, Limits
from shardwright.schemas.configuration.job import JobGates
from shardwright.schemas.configuration.thresholds import Thresholds
from shardwright.schemas.configuration.typed_yaml import FileModel, read_model
from shardwright.schemas.errors import UsageError
from shardwright.schemas.findings import Gates
from shardwright.schemas.plain_yaml import NotPlain, WrongValue, load_plain_yaml, places_of_keys


class _FindingGates(FileModel):
    """The gates on findings."""

    fail_on: Codes = ()
    """Findings that are errors."""
    warn_on: Codes = ()
    """Findings that are warnings."""


class GateFile(Thresholds, Expectations, _FindingGates):
    """All keys of a gate file."""


_EXAMPLE = "min_images: 1000"
_PAIRS = ("images", "images_per_class", "classes", "width", "height")


def parse_gates(text: str, option: str, path: str) -> JobGates:
    """Reads a gate file.

    Args:
      text: YAML.
      option: Option that names the file, for messages.
      path: Path of the file, for messages.

    Raises:
      UsageError: If it is wrong; the message names the line and what to write instead.
    """
    try:
        return gates_from(load_plain_yaml(text))
    except NotPlain as error:
        raise UsageError(f"{option} {path}: {error}.") from None
    except WrongValue as error:
        places, below = places_of_keys(text), error.path
        while below and below not in places:
            below = below[:-1]
        line, column = places.get(below, (1, 1))
        end = "" if str(error).endswith("?") else "."
        raise UsageError(f"{option} {path}, line {line}, column {column}: {error}{end}") from None


def gates_from(value: Any) -> JobGates:
    """Returns the gates in a file or a mapping.

    Args:
      value: Content of the YAML; None for an empty file.

    Raises:
      WrongValue: If a value is wrong; it has the keys of the first one, and says what to write instead.
    """
    model = read_model(GateFile, {} if value is None else value, "gate", _EXAMPLE)
    given = {name: getattr(model, name) for name in model.model_fields_set}
    _check_pairs(given)
    for code in model.fail_on:
        if code in model.warn_on:
            raise WrongValue(f"{code} is in both fail_on and warn_on; choose one", "fail_on")
    limits = Thresholds(**_of(Thresholds, given))
    expectations = Expectations(**_of(Expectations, {**given, "max_bad_fraction": None}))
    return JobGates(Gates(model.fail_on, model.warn_on), expectations, limits)


def _of(model: type[Limits], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the gates of a group."""
    return {name: value for name, value in given.items() if name in model.model_fields}


def _check_pairs(given: Mapping[str, Any]) -> None:
    for what in _PAIRS:
        low, high = given.get(f"min_{what}"), given.get(f"max_{what}")
        if low is not None and high is not None and low > high:
            raise WrongValue(f"min_{what} {low} is above max_{what} {high}", f"min_{what}")
