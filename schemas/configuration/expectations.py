"""The requirements of a dataset, which are gates, and messages about those that are not met."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, WithJsonSchema

from shardwright.schemas.codes import QUALITY, FindingCode, Severity
from shardwright.schemas.configuration.typed_yaml import FileModel, write, wrong
from shardwright.schemas.errors import nearest
from shardwright.schemas.findings import Violation
from shardwright.schemas.units import beside_limit, counted, is_or_are, percent_beside_limit
from shardwright.schemas.values import quoted_value

_SHOWN = 5


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
        if not isinstance(value, list | tuple) or not value or any(name not in known for name in value):
            raise wrong(f"choose {what} from {', '.join(known)}, not {quoted_value(value)}")
        return value

    return Annotated[tuple[choice, ...], Field(min_length=1), BeforeValidator(check)]


Name = Annotated[str, Field(strict=True, min_length=1), write("a name, in quotes if needed")]
Count = Annotated[int, Field(strict=True, ge=0), write("a whole number from 0 on")]
Growth = Annotated[
    float, Field(strict=True, ge=0, le=1e300), BeforeValidator(_number), write("a number such as 0.05")
]
Share = Annotated[
    float,
    Field(strict=True, ge=0, le=1),
    BeforeValidator(_part),
    BeforeValidator(_number),
    write("a share from 0 to 1, such as 0.05"),
]
Code = Annotated[
    str, BeforeValidator(_code), WithJsonSchema({"type": "string", "enum": list(FindingCode.__members__)})
]
Codes = Annotated[
    tuple[Code, ...], BeforeValidator(_codes), write("a list of findings, such as [SPLIT_LEAKAGE]")
]
_Formats: Any = _list_of("formats", Literal["jpeg", "png", "webp", "raw"])
_Dtypes: Any = _list_of("types", Literal["uint8", "uint16", "float32"])
_Names = Annotated[tuple[Name, ...], Field(min_length=1), write("a list of names, such as [cat, dog]")]
_Ratio = Annotated[
    float,
    Field(strict=True, ge=1, allow_inf_nan=False),
    BeforeValidator(_number),
    write("a number from 1 on"),
]


class Limits(FileModel):
    """A group of gates. The docstrings of the attributes describe them."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the gates that differ from their defaults."""
        default = type(self)()
        return tuple(
            name for name in type(self).model_fields if getattr(self, name) != getattr(default, name)
        )


class Expectations(Limits):
    """Limits that a dataset must keep. Limits that are None or empty are not checked."""

    min_images: Count | None = None
    """Records in all splits together."""
    max_images: Count | None = None
    """Records in all splits together."""
    min_images_per_split: Annotated[
        dict[Annotated[str, BeforeValidator(str)], Count],
        Field(min_length=1),
        write("a number for each split, such as {train: 1000}"),
    ] = Field(default_factory=dict)
    """Records of a split: {train: 1000}."""
    min_images_per_class: Count | None = None
    """Records of each class, over all splits."""
    max_images_per_class: Count | None = None
    """Records of each class, over all splits."""
    min_classes: Count | None = None
    """Classes that have records."""
    max_classes: Count | None = None
    """Classes that have records."""
    required_classes: _Names = ()
    """Classes that must have records."""
    allowed_classes: _Names = ()
    """The only classes that may have records."""
    allowed_formats: _Formats = ()
    """Formats of the stored images."""
    allowed_dtypes: _Dtypes = ()
    """Types of the samples of the stored images."""
    min_width: Count | None = None
    """Width of the stored images, in pixels."""
    max_width: Count | None = None
    """Width of the stored images, in pixels."""
    min_height: Count | None = None
    """Height of the stored images, in pixels."""
    max_height: Count | None = None
    """Height of the stored images, in pixels."""
    max_aspect_ratio: _Ratio | None = None
    """Longer side / shorter side."""
    max_bad_fraction: Share | None = None
    """Quarantined / (written + quarantined)."""
    max_fraction: Annotated[
        dict[Code, Share], Field(min_length=1), write("a share for each finding, such as {DARK: 0.05}")
    ] = Field(default_factory=dict)
    """Findings per record: {DARK: 0.05}."""

    def names_read_from_shards(self) -> tuple[str, ...]:
        """Returns the names of the expectations that `dataset.json` cannot answer."""
        return tuple(name for name in self.names if name in (*_OF_PICTURES, "max_fraction"))

    def measured_names(self, counted: bool = True) -> tuple[str, ...]:
        """Returns the names of the expectations that need every image decoded.

        Args:
          counted: Whether `dataset.json` counts the images of each class and format.
        """
        by_quality = any(FindingCode(code) in QUALITY for code in self.max_fraction)
        asking = {*_OF_PICTURES, *(() if counted else _OF_CLASSES), *(["max_fraction"] if by_quality else [])}
        return tuple(name for name in self.names if name in asking)


@dataclass(frozen=True)
class DatasetFacts:
    """Facts about a dataset that are known after reading it.

    Attributes:
      records: Split -> records.
      classes: Class name -> records in all splits.
      formats: Format -> records in all splits, as `--image_format` spells them.
      dtypes: Type of samples -> records in all splits.
      bad_fraction: Quarantined / (written + quarantined); None if it is not known.
      widths: Smallest and largest width; None if they were not measured.
      heights: Smallest and largest height; None if they were not measured.
      aspect_ratio: Largest ratio of longer side / shorter side.
      findings: Finding code -> number of findings.
    """

    records: Mapping[str, int]
    classes: Mapping[str, int]
    formats: Mapping[str, int]
    dtypes: Mapping[str, int]
    bad_fraction: float | None
    findings: Mapping[str, int]
    widths: tuple[int, int] | None = None
    heights: tuple[int, int] | None = None
    aspect_ratio: float | None = None


_OF_PICTURES = ("min_width", "max_width", "min_height", "max_height", "max_aspect_ratio")
_OF_CLASSES = (
    "min_images_per_class", "max_images_per_class", "min_classes", "max_classes",
    "required_classes", "allowed_classes", "allowed_formats", "allowed_dtypes",
)  # fmt: skip


def unmet(expected: Expectations, facts: DatasetFacts) -> Iterator[Violation]:
    """Yields each expectation that a dataset does not meet. The message names the actual value."""
    for name, sentence in _unmet(expected, facts):
        yield Violation("expectations", name, Severity.ERROR, f"{name}: {sentence}")


def _unmet(expected: Expectations, facts: DatasetFacts) -> Iterator[tuple[str, str]]:
    total = sum(facts.records.values())
    yield from _between(expected, "images", total, f"it has {counted(total, 'image')}")
    for split, least in expected.min_images_per_split.items():
        count = facts.records.get(split, 0)
        if count < least:
            yield (
                "min_images_per_split",
                f"split {split!r} has {counted(count, 'image')}, less than {least:,}",
            )
    yield from _classes(expected, facts)
    classes = len(_present(facts))
    have = "has" if classes == 1 else "have"
    yield from _between(expected, "classes", classes, f"{counted(classes, 'class')} {have} images")
    if expected.allowed_formats:
        for name, count in sorted(facts.formats.items()):
            if count and name not in expected.allowed_formats:
                yield "allowed_formats", f"{counted(count, 'image')} {is_or_are(count)} stored as {name}"
    if expected.allowed_dtypes:
        for name, count in sorted(facts.dtypes.items()):
            if count and name not in expected.allowed_dtypes:
                have = "has" if count == 1 else "have"
                yield "allowed_dtypes", f"{counted(count, 'image')} {have} samples of type {name}"
    for side, found in (("width", facts.widths), ("height", facts.heights)):
        if found is not None:
            yield from _between(expected, side, found[0], f"the smallest {side} is {{}}", above=False)
            yield from _between(expected, side, found[1], f"the largest {side} is {{}}", below=False)
    most = expected.max_aspect_ratio
    if most is not None and facts.aspect_ratio is not None and facts.aspect_ratio > most:
        value, limit = beside_limit(facts.aspect_ratio, most)
        yield "max_aspect_ratio", f"the largest aspect ratio is {value} (limit {limit})"
    most = expected.max_bad_fraction
    if most is not None and facts.bad_fraction is not None and facts.bad_fraction > most:
        value, limit = percent_beside_limit(facts.bad_fraction, most)
        yield "max_bad_fraction", f"{value} of the images are quarantined (limit {limit})"
    for code, share in expected.max_fraction.items():
        count = facts.findings.get(code, 0)
        if count > share * total:
            value, limit = percent_beside_limit(count / total if total else 0.0, share)
            yield (
                "max_fraction",
                f"{value} of the records are {code} ({count:,} of {total:,}; limit {limit})",
            )


def _present(facts: DatasetFacts) -> dict[str, int]:
    return {name: count for name, count in facts.classes.items() if count}


def _between(
    expected: Expectations, what: str, value: int, text: str, *, below: bool = True, above: bool = True
) -> Iterator[tuple[str, str]]:
    least, most = getattr(expected, f"min_{what}"), getattr(expected, f"max_{what}")
    if below and least is not None and value < least:
        yield f"min_{what}", f"{text.format(value)}, less than {least}"
    if above and most is not None and value > most:
        yield f"max_{what}", f"{text.format(value)}, more than {most}"


def _classes(expected: Expectations, facts: DatasetFacts) -> Iterator[tuple[str, str]]:
    present = _present(facts)
    least, most = expected.min_images_per_class, expected.max_images_per_class
    if least is not None:
        poor = {name: count for name, count in facts.classes.items() if count < least}
        if poor:
            yield "min_images_per_class", f"{_counted(poor)} less than {counted(least, 'image')}"
    if most is not None:
        rich = {name: count for name, count in present.items() if count > most}
        if rich:
            yield "max_images_per_class", f"{_counted(rich)} more than {counted(most, 'image')}"
    missing = [name for name in expected.required_classes if name not in present]
    if missing:
        yield "required_classes", f"{_listed(missing)} without images"
    if expected.allowed_classes:
        others = sorted(set(present) - set(expected.allowed_classes))
        if others:
            yield "allowed_classes", f"{_listed(others)} not among those that are allowed"


def _counted(counts: Mapping[str, int]) -> str:
    shown = sorted(counts.items(), key=lambda item: (item[1], item[0]))
    names = ", ".join(f"{name!r} ({count})" for name, count in shown[:_SHOWN])
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return f"class {names} has" if len(shown) == 1 else f"classes {names}{more} have"


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"class {shown} is" if len(names) == 1 else f"classes {shown}{more} are"
