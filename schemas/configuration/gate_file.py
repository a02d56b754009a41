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
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from shardwright.schemas.codes import FindingCode
from shardwright.schemas.configuration.expectations import Expectations
from shardwright.schemas.configuration.job import JobGates
from shardwright.schemas.configuration.thresholds import Policy, Thresholds
from shardwright.schemas.configuration.typed_yaml import FileModel, quoted_value, read_model, write, wrong
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.findings import Gates
from shardwright.schemas.plain_yaml import NotPlain, WrongValue, load_plain_yaml, places_of_keys
from shardwright.schemas.sample_types import SAMPLE_TYPES


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


_Count = Annotated[int, Field(strict=True, ge=0), write("a whole number from 0 on")]
_Ratio = Annotated[
    float,
    Field(strict=True, ge=1, allow_inf_nan=False),
    BeforeValidator(_number),
    write("a number from 1 on"),
]
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
_Name = Annotated[str, Field(strict=True, min_length=1), write("a name, in quotes if needed")]
_Names = Annotated[list[_Name], Field(min_length=1), write("a list of names, such as [cat, dog]")]
_Split = Annotated[str, BeforeValidator(str)]
_Code = Annotated[
    str, BeforeValidator(_code), WithJsonSchema({"type": "string", "enum": list(FindingCode.__members__)})
]
_Codes = Annotated[list[_Code], BeforeValidator(_codes), write("a list of findings, such as [SPLIT_LEAKAGE]")]
_Format = Literal["jpeg", "png", "webp", "raw"]
_Formats = Annotated[list[_Format], Field(min_length=1)]
_Dtype = Literal["uint8", "uint16", "float32"]
_Dtypes = Annotated[list[_Dtype], Field(min_length=1)]
_PerSplit = Annotated[
    dict[_Split, _Count], Field(min_length=1), write("a number for each split, such as {train: 1000}")
]
_SharePerCode = Annotated[
    dict[_Code, _Share], Field(min_length=1), write("a share for each finding, such as {DARK: 0.05}")
]
_GrowthPerCode = Annotated[dict[_Code, _Growth], write("a limit for each name, such as {DARK: 0.01}")]
_GrowthPerNumber = Annotated[
    dict[_Name, _Growth], write("a limit for each name, such as {brightness.mean: 0.1}")
]
_Policy = Annotated[Policy, write("refuse, warn or allow")]


def _known_formats(value: Any) -> Any:
    return _only_known("formats", ("jpeg", "png", "webp", "raw"), value)


def _known_dtypes(value: Any) -> Any:
    return _only_known("types", SAMPLE_TYPES, value)


def _only_known(what: str, known: Sequence[str], value: Any) -> Any:
    if not isinstance(value, list) or not value or any(name not in known for name in value):
        raise wrong(f"choose {what} from {', '.join(known)}, not {quoted_value(value)}")
    return value


class DatasetGates(FileModel):
    """The requirements for a dataset."""

    min_images: _Count | None = None
    """Records in all splits together."""
    max_images: _Count | None = None
    """Records in all splits together."""
    min_images_per_split: _PerSplit | None = None
    """Records of a split: {train: 1000}."""
    min_images_per_class: _Count | None = None
    """Records of each class, over all splits."""
    max_images_per_class: _Count | None = None
    """Records of each class, over all splits."""
    min_classes: _Count | None = None
    """Classes that have records."""
    max_classes: _Count | None = None
    """Classes that have records."""
    required_classes: _Names | None = None
    """Classes that must have records."""
    allowed_classes: _Names | None = None
    """The only classes that may have records."""
    allowed_formats: Annotated[_Formats, BeforeValidator(_known_formats)] | None = None
    """Formats of the stored images."""
    allowed_dtypes: Annotated[_Dtypes, BeforeValidator(_known_dtypes)] | None = None
    """Types of the samples of the stored images."""
    min_width: _Count | None = None
    """Width of the stored images, in pixels."""
    max_width: _Count | None = None
    """Width of the stored images, in pixels."""
    min_height: _Count | None = None
    """Height of the stored images, in pixels."""
    max_height: _Count | None = None
    """Height of the stored images, in pixels."""
    max_aspect_ratio: _Ratio | None = None
    """Longer side / shorter side."""
    max_bad_fraction: _Share | None = None
    """Quarantined / (written + quarantined)."""
    max_fraction: _SharePerCode | None = None
    """Findings per record: {DARK: 0.05}."""


class GateFile(DatasetGates):
    """All keys of a gate file."""

    fail_on: _Codes | None = None
    """Findings that are errors."""
    warn_on: _Codes | None = None
    """Findings that are warnings."""
    max_count_drop: _Share | None = None
    """Share of its records that the dataset, or a split of it, may lose."""
    max_count_jump: _Growth | None = None
    """Share by which its records, or those of a split, may grow."""
    max_added_fraction: _Growth | None = None
    """Added images, per record of the dataset before."""
    max_removed_fraction: _Share | None = None
    """Removed images, per record of the dataset before."""
    max_renamed_fraction: _Share | None = None
    """Images with another key, per record of the dataset before."""
    max_changed_fraction: _Share | None = None
    """Images with another source, per record of the dataset before."""
    max_re_encoded_fraction: _Share | None = None
    """Images stored in another way, per record of the dataset before."""
    max_label_change_fraction: _Share | None = None
    """Images with other classes, per record of the dataset before."""
    max_split_move_fraction: _Share | None = None
    """Images in another split, per record of the dataset before."""
    max_class_l_infinity: _Share | None = None
    """Largest difference between the shares of a class."""
    max_class_jensen_shannon: _Share | None = None
    """Jensen-Shannon distance of the distributions over classes."""
    max_rise: _GrowthPerCode | None = None
    """Rise of the findings per record: {DARK: 0.01}."""
    max_statistics_change: _GrowthPerNumber | None = None
    """Share by which a number of statistics.json may change: {width.mean: 0.2}."""
    new_classes: _Policy | None = None
    """Classes that had no records."""
    vanished_classes: _Policy | None = None
    """Classes that have no records any more."""
    renumbered_classes: _Policy | None = None
    """Classes with another id; refused by default."""
    changed_features: _Policy | None = None
    """Another layout or features."""
    changed_settings: _Policy | None = None
    """Other settings."""
    changed_versions: _Policy | None = None
    """Other software."""


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
      UsageError: if it is wrong; the message names the line and what to write instead.
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
      WrongValue: if a value is wrong; it has the keys of the first one, and says what to write instead.
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
