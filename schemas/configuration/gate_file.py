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

import contextlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model

from shardwright.schemas.codes import FindingCode
from shardwright.schemas.configuration.expectations import Expectations, GateValue
from shardwright.schemas.configuration.job import JobGates
from shardwright.schemas.configuration.setting import attribute_docstrings
from shardwright.schemas.configuration.thresholds import Policy, Thresholds
from shardwright.schemas.configuration.typed_yaml import FileModel, read_model, write, wrong
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.findings import Gates
from shardwright.schemas.plain_yaml import NotPlain, WrongValue, load_plain_yaml, places_of_keys
from shardwright.schemas.values import quoted_value


def _number(value: Any) -> Any:
    """Converts a text such as 1e-3, which YAML reads as a text, to a number."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return float(value)
    return value


def _part(value: Any) -> Any:
    """Refuses percentages, because shares are numbers from 0 to 1."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 < value <= 1e300:
        percent = value if value <= 100 else 5
        raise wrong(
            f"a limit of {value:g} is above 1 and never refuses anything; write a share "
            f"from 0 to 1, such as {percent / 100:g} for {percent:g}%"
        )
    return value


def _code(value: Any) -> str:
    name = value.strip().upper() if isinstance(value, str) else value
    if name not in FindingCode.__members__:
        hint = nearest(str(name), list(FindingCode.__members__)) or "; see shardwright validate --help"
        raise wrong(f"there is no finding {quoted_value(value)}{hint}")
    return str(name)


def _codes(value: Any) -> Any:
    """Splits a text that lists several codes."""
    return [code for code in value.split(",") if code.strip()] if isinstance(value, str) else value


def _list_of(what: str, choice: Any) -> Any:
    """Returns the type of a list of choices."""
    known = get_args(choice)

    def check(value: Any) -> Any:
        if not isinstance(value, list) or not value or any(name not in known for name in value):
            raise wrong(f"choose {what} from {', '.join(known)}, not {quoted_value(value)}")
        return value

    return Annotated[list[choice], Field(min_length=1), BeforeValidator(check)]


_Name = Annotated[str, Field(strict=True, min_length=1), write("a name, in quotes if needed")]
_Count = Annotated[int, Field(strict=True, ge=0), write("a whole number from 0 on")]
_Growth = Annotated[
    float, Field(strict=True, ge=0, le=1e300), BeforeValidator(_number), write("a number such as 0.05")
]
_Share = Annotated[
    float,
    Field(strict=True, ge=0, le=1),
    BeforeValidator(_part),
    BeforeValidator(_number),
    write("a share from 0 to 1, such as 0.05"),
]
_Code = Annotated[
    str, BeforeValidator(_code), WithJsonSchema({"type": "string", "enum": list(FindingCode.__members__)})
]
_Codes = Annotated[list[_Code], BeforeValidator(_codes), write("a list of findings, such as [SPLIT_LEAKAGE]")]
_Format = Literal["jpeg", "png", "webp", "raw"]
_Dtype = Literal["uint8", "uint16", "float32"]
#: Types of the values in a gate file.
_TYPES: Mapping[GateValue, Any] = {
    GateValue.COUNT: _Count,
    GateValue.COUNT_PER_SPLIT: Annotated[
        dict[Annotated[str, BeforeValidator(str)], _Count],
        Field(min_length=1),
        write("a number for each split, such as {train: 1000}"),
    ],
    GateValue.RATIO: Annotated[
        float,
        Field(strict=True, ge=1, allow_inf_nan=False),
        BeforeValidator(_number),
        write("a number from 1 on"),
    ],
    GateValue.SHARE: _Share,
    GateValue.SHARE_PER_CODE: Annotated[
        dict[_Code, _Share], Field(min_length=1), write("a share for each finding, such as {DARK: 0.05}")
    ],
    GateValue.GROWTH: _Growth,
    GateValue.GROWTH_PER_CODE: Annotated[
        dict[_Code, _Growth], write("a limit for each name, such as {DARK: 0.01}")
    ],
    GateValue.GROWTH_PER_NUMBER: Annotated[
        dict[_Name, _Growth], write("a limit for each name, such as {brightness.mean: 0.1}")
    ],
    GateValue.NAMES: Annotated[
        list[_Name], Field(min_length=1), write("a list of names, such as [cat, dog]")
    ],
    GateValue.FORMATS: _list_of("formats", _Format),
    GateValue.DTYPES: _list_of("types", _Dtype),
    GateValue.POLICY: Annotated[Policy, write("refuse, warn or allow")],
}


def _describe_gates(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Describes the keys of a gate file with the docstrings of the gates."""
    for name, docstring in [
        *attribute_docstrings(FindingGates).items(),
        *attribute_docstrings(Expectations).items(),
        *attribute_docstrings(Thresholds).items(),
    ]:
        schema["properties"][name]["description"] = docstring


class FindingGates(FileModel):
    """The gates on findings."""

    model_config = ConfigDict(json_schema_extra=_describe_gates)

    fail_on: _Codes | None = None
    """Findings that are errors."""
    warn_on: _Codes | None = None
    """Findings that are warnings."""


_LIMITS: dict[str, Any] = {
    item.name: (_TYPES[item.metadata["value"]] | None, None)
    for item in (*fields(Expectations), *fields(Thresholds))
}
#: All keys of a gate file.
GateFile = create_model("GateFile", __base__=FindingGates, __doc__="All keys of a gate file.", **_LIMITS)


_EXAMPLE = "min_images: 1000"
_PAIRS = ("images", "images_per_class", "classes", "width", "height")


def gate_names() -> tuple[str, ...]:
    """Returns every key of a gate file."""
    return tuple(GateFile.model_fields)


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
    codes = {name: tuple(given.get(name) or ()) for name in ("fail_on", "warn_on")}
    for code in codes["fail_on"]:
        if code in codes["warn_on"]:
            raise WrongValue(f"{code} is in both fail_on and warn_on; choose one", "fail_on")
    limits = Thresholds(**_chosen(given, Thresholds))
    expectations = Expectations(**_chosen({**given, "max_bad_fraction": None}, Expectations))
    return JobGates(Gates(**codes), expectations, limits)


def _chosen(given: Mapping[str, Any], cls: type) -> dict[str, Any]:
    """Returns the values for the fields of a dataclass, with lists as tuples."""
    names = {item.name for item in fields(cls)}
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
        if name in names and value is not None
    }


def _check_pairs(given: Mapping[str, Any]) -> None:
    for what in _PAIRS:
        low, high = given.get(f"min_{what}"), given.get(f"max_{what}")
        if low is not None and high is not None and low > high:
            raise WrongValue(f"min_{what} {low} is above max_{what} {high}", f"min_{what}")
