"""What a team expects of a dataset: a YAML file of limits, and what is said when one is not met.

min_images: 10000
min_images_per_class: 50
min_images_per_split: {train: 8000, test: 500}
allowed_formats: [jpeg, png]
min_width: 64
max_aspect_ratio: 4
max_bad_fraction: 0.01
max_fraction: {EXACT_DUPLICATE: 0, NEAR_DUPLICATE: 0.02, DARK: 0.05}
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from shardwright.schemas.codes import QUALITY, FindingCode
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.plain_yaml import WrongValue, lines_of_keys, load_plain_yaml
from shardwright.schemas.units import beside_limit, counted, is_or_are, percent_beside_limit

_FORMATS = ("jpeg", "png", "webp", "raw")
_SHOWN = 5


@dataclass(frozen=True)
class Expectations:
    """Limits that a dataset shall keep; those that are None or empty are not looked at.

    Attributes:
      min_images: records in all splits together.
      max_images: the same.
      min_images_per_split: split -> records.
      min_images_per_class: records of each class, over all splits.
      max_images_per_class: the same.
      min_classes: classes that have records.
      max_classes: the same.
      required_classes: classes that must have records.
      allowed_classes: the only ones that may have.
      allowed_formats: of stored pictures: jpeg, png, webp, raw.
      min_width: of the stored pictures, in pixels.
      max_width: the same.
      min_height: the same.
      max_height: the same.
      max_aspect_ratio: longer side / shorter side.
      max_bad_fraction: quarantined / (written + quarantined).
      max_fraction: finding code -> findings / records.
    """

    min_images: int | None = None
    max_images: int | None = None
    min_images_per_split: Mapping[str, int] = field(default_factory=dict)
    min_images_per_class: int | None = None
    max_images_per_class: int | None = None
    min_classes: int | None = None
    max_classes: int | None = None
    required_classes: tuple[str, ...] = ()
    allowed_classes: tuple[str, ...] = ()
    allowed_formats: tuple[str, ...] = ()
    min_width: int | None = None
    max_width: int | None = None
    min_height: int | None = None
    max_height: int | None = None
    max_aspect_ratio: float | None = None
    max_bad_fraction: float | None = None
    max_fraction: Mapping[str, float] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The expectations that there are."""
        return tuple(item.name for item in fields(self) if getattr(self, item.name) not in (None, (), {}))

    def names_of_looks(self, counted: bool = True) -> tuple[str, ...]:
        """Returns those for which every picture has to be looked at.

        Args:
          counted: whether a `dataset.json` says how many images of each class and format there are.
        """
        by_looks = any(FindingCode(code) in QUALITY for code in self.max_fraction)
        asking = {*_OF_PICTURES, *(() if counted else _OF_CLASSES), *(["max_fraction"] if by_looks else [])}
        return tuple(name for name in self.names if name in asking)


@dataclass(frozen=True)
class DatasetFacts:
    """What is known of a dataset once it has been read.

    Attributes:
      records: split -> records.
      classes: class name -> records in all splits.
      formats: format -> records in all splits, as `--image_format` spells them.
      bad_fraction: quarantined / (written + quarantined); None where nobody kept count.
      widths: smallest and largest; None where nobody looked.
      heights: the same.
      aspect_ratio: the largest, of longer side / shorter side.
      findings: finding code -> number.
    """

    records: Mapping[str, int]
    classes: Mapping[str, int]
    formats: Mapping[str, int]
    bad_fraction: float | None
    findings: Mapping[str, int]
    widths: tuple[int, int] | None = None
    heights: tuple[int, int] | None = None
    aspect_ratio: float | None = None


def parse_expectations(text: str, path: str) -> Expectations:
    """Reads a file of expectations.

    Args:
      text: YAML.
      path: of the file, for messages.

    Raises:
      UsageError: naming the line, what is wrong and what may be written.
    """
    try:
        said = load_plain_yaml(text)
    except ValueError as error:
        raise UsageError(f"--expect {path}: {error}.") from None
    try:
        return expectations_from(said)
    except WrongValue as wrong:
        line = lines_of_keys(text).get(wrong.path, 1) if wrong.path else 0
        why = str(wrong)
        place = f"{path}, line {line}" if line else path
        raise UsageError(f"--expect {place}: {why}{'' if why.endswith('?') else '.'}") from None


def expectations_from(said: Any) -> Expectations:
    """Returns expectations from what a file says.

    Raises:
      WrongValue: if it says anything else; the message ends without a full stop.
    """
    if not isinstance(said, Mapping) or not said:
        raise WrongValue("write one `expectation: value` on each line, such as min_images: 1000")
    known = [item.name for item in fields(Expectations)]
    values: dict[str, Any] = {}
    for key, value in said.items():
        if key not in known:
            raise WrongValue(f"there is no expectation {str(key)!r}{nearest(str(key), known)}", key)
        try:
            values[key] = _READERS[key](value)
        except ValueError as error:
            raise WrongValue(f"{key} is {_short(value)}; write {error}", key) from None
    for low, high in _PAIRS:
        if values.get(low) is not None and values.get(high) is not None and values[low] > values[high]:
            raise WrongValue(f"{low} {values[low]} is above {high} {values[high]}")
    return Expectations(**values)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a whole number from 0 on")
    return value


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError("a number between 0 and 1")
    return float(value)


def _ratio(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < float("inf"):
        raise ValueError("a number from 1 on")
    return float(value)


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name for name in value):
        raise ValueError("a list of names, such as [cat, dog]")
    return tuple(value)


def _formats(value: Any) -> tuple[str, ...]:
    names = _names(value)
    for name in names:
        if name not in _FORMATS:
            raise ValueError(f"formats out of {', '.join(_FORMATS)}")
    return names


def _per_split(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError("a number for each split, such as {train: 1000}")
    return {str(split): _number(count) for split, count in value.items()}


def _per_code(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError("a share for each finding, such as {DARK: 0.05}")
    for code in value:
        if code not in FindingCode.__members__:
            near = difflib.get_close_matches(str(code).upper(), FindingCode.__members__, n=1)
            raise ValueError(f"{near[0] if near else 'the code of a finding'} in place of {code!r}")
    return {code: _share(share) for code, share in value.items()}


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "min_images": _number,
    "max_images": _number,
    "min_images_per_split": _per_split,
    "min_images_per_class": _number,
    "max_images_per_class": _number,
    "min_classes": _number,
    "max_classes": _number,
    "required_classes": _names,
    "allowed_classes": _names,
    "allowed_formats": _formats,
    "min_width": _number,
    "max_width": _number,
    "min_height": _number,
    "max_height": _number,
    "max_aspect_ratio": _ratio,
    "max_bad_fraction": _share,
    "max_fraction": _per_code,
}
_OF_PICTURES = ("min_width", "max_width", "min_height", "max_height", "max_aspect_ratio")
_OF_CLASSES = (
    "min_images_per_class", "max_images_per_class", "min_classes", "max_classes",
    "required_classes", "allowed_classes", "allowed_formats",
)  # fmt: skip
_PAIRS = tuple(
    (f"min_{what}", f"max_{what}") for what in ("images", "images_per_class", "classes", "width", "height")
)


def unmet(expected: Expectations, facts: DatasetFacts) -> Iterator[tuple[str, str]]:
    """Yields each expectation that a dataset does not meet, and one sentence of what is there instead."""
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
    expected: Expectations, what: str, value: int, says: str, *, below: bool = True, above: bool = True
) -> Iterator[tuple[str, str]]:
    least, most = getattr(expected, f"min_{what}"), getattr(expected, f"max_{what}")
    if below and least is not None and value < least:
        yield f"min_{what}", f"{says.format(value)}, less than {least}"
    if above and most is not None and value > most:
        yield f"max_{what}", f"{says.format(value)}, more than {most}"


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
