"""The gates: requirements of a dataset, and limits on how it may differ from the previous dataset.

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
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema

from shardwright.schemas.codes import QUALITY, FindingCode, Severity
from shardwright.schemas.configuration.typed_yaml import FileModel, first_error, one_of, write, wrong
from shardwright.schemas.drift import Drift, Kind, Pair
from shardwright.schemas.errors import UsageError, as_sentence, nearest
from shardwright.schemas.findings import Gates, Violation
from shardwright.schemas.plain_yaml import NotPlain, WrongValue, load_plain_yaml, places_of_keys
from shardwright.schemas.sample_types import SAMPLE_TYPES
from shardwright.schemas.units import beside_limit, counted, listed, percent_beside_limit
from shardwright.schemas.values import quoted_value

#: Maximum number of classes that a message lists.
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
    name = str(value).strip().upper()
    if name not in FindingCode.__members__:
        hint = nearest(name, list(FindingCode.__members__)) or "; see shardwright validate --help"
        raise wrong(f"there is no finding {quoted_value(value)}{hint}")
    return name


def _codes(value: Any) -> Any:
    """Splits a text that lists several codes."""
    return [code for code in value.split(",") if code.strip()] if isinstance(value, str) else value


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
    tuple[Code, ...],
    BeforeValidator(_codes, json_schema_input_type=str | tuple[Code, ...]),
    write("a list of findings, such as [SPLIT_LEAKAGE]"),
]
_Format: Any = one_of("jpeg", "png", "webp", "raw")
_Formats = Annotated[
    tuple[_Format, ...], Field(min_length=1), write("a list of formats, such as [jpeg, png]")
]
_Dtype: Any = one_of(*SAMPLE_TYPES)
_Dtypes = Annotated[tuple[_Dtype, ...], Field(min_length=1), write("a list of types, such as [uint8]")]
_Names = Annotated[tuple[Name, ...], Field(min_length=1), write("a list of names, such as [cat, dog]")]
_Ratio = Annotated[
    float,
    Field(strict=True, ge=1, allow_inf_nan=False),
    BeforeValidator(_number),
    write("a number from 1 on"),
]


class Expectations(FileModel):
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
_OF_STORED = ("allowed_formats", "allowed_dtypes")
#: Expectations that only `dataset.json` can answer.
OF_DATASET = (
    "min_images_per_split", "min_images_per_class", "max_images_per_class", "min_classes", "max_classes",
    "required_classes", "allowed_classes", "max_bad_fraction",
)  # fmt: skip


def unmet(expected: GateFile, facts: DatasetFacts) -> Iterator[Violation]:
    """Yields each expectation that a dataset does not meet. The message names the actual value."""
    for name, sentence in _unmet(expected, facts):
        yield Violation("expectations", name, Severity.ERROR, f"{name}: {sentence}")


def _unmet(expected: GateFile, facts: DatasetFacts) -> Iterator[tuple[str, str]]:
    total = sum(facts.records.values())
    yield from _between(expected, "images", total, f"it has {counted(total, 'image')}")
    for split, least in expected.min_images_per_split.items():
        count = facts.records.get(split, 0)
        if count < least:
            images = counted(count, "image")
            yield "min_images_per_split", f"split {split!r} has {images}, less than {least:,}"
    yield from _classes(expected, facts)
    classes = sum(count > 0 for count in facts.classes.values())
    with_images = counted(classes, "class has images", "classes have images")
    yield from _between(expected, "classes", classes, with_images)
    for name, count in sorted(facts.formats.items()):
        if expected.allowed_formats and count and name not in expected.allowed_formats:
            yield "allowed_formats", f"{counted(count, 'image is', 'images are')} stored as {name}"
    for name, count in sorted(facts.dtypes.items()):
        if expected.allowed_dtypes and count and name not in expected.allowed_dtypes:
            yield "allowed_dtypes", f"{counted(count, 'image has', 'images have')} samples of type {name}"
    for side, values in (("width", facts.widths), ("height", facts.heights)):
        if values is not None:
            yield from _between(expected, side, values[0], f"the smallest {side} is {values[0]}", above=False)
            yield from _between(expected, side, values[1], f"the largest {side} is {values[1]}", below=False)
    most = expected.max_aspect_ratio
    if most is not None and facts.aspect_ratio is not None and _exceeds(facts.aspect_ratio, most):
        value, limit = beside_limit(facts.aspect_ratio, most)
        yield "max_aspect_ratio", f"the largest aspect ratio is {value} (limit {limit})"
    most = expected.max_bad_fraction
    if most is not None and facts.bad_fraction is not None and facts.bad_fraction > most:
        value, limit = percent_beside_limit(facts.bad_fraction, most)
        yield "max_bad_fraction", f"{value} of the images are quarantined (limit {limit})"
    for code, share in expected.max_fraction.items():
        count = facts.findings.get(code, 0)
        if _exceeds(count, share * total):
            value, limit = percent_beside_limit(count / total if total else 0.0, share)
            numbers = f"{count:,} of {total:,}"
            yield "max_fraction", f"{value} of the records are {code} ({numbers}; limit {limit})"


def _exceeds(value: float, limit: float) -> bool:
    """Returns whether a computed value is above its limit not only by rounding (1 - 95 / 100 is 0.05)."""
    return value > limit and not math.isclose(value, limit)


def _between(
    expected: GateFile, what: str, value: int, text: str, *, below: bool = True, above: bool = True
) -> Iterator[tuple[str, str]]:
    least, most = getattr(expected, f"min_{what}"), getattr(expected, f"max_{what}")
    if below and least is not None and value < least:
        yield f"min_{what}", f"{text}, less than {least}"
    if above and most is not None and value > most:
        yield f"max_{what}", f"{text}, more than {most}"


def _classes(expected: GateFile, facts: DatasetFacts) -> Iterator[tuple[str, str]]:
    present = {name: count for name, count in facts.classes.items() if count}
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
    others = sorted(set(present) - set(expected.allowed_classes))
    if expected.allowed_classes and others:
        yield "allowed_classes", f"{_listed(others)} not among those that are allowed"


def _counted(counts: Mapping[str, int]) -> str:
    pairs = sorted(counts.items(), key=lambda item: (item[1], item[0]))
    names = listed((f"{name!r} ({count})" for name, count in pairs), _SHOWN)
    return f"class {names} has" if len(pairs) == 1 else f"classes {names} have"


def _listed(names: list[str]) -> str:
    text = listed(map(repr, names), _SHOWN)
    return f"class {text} is" if len(names) == 1 else f"classes {text} are"


_DRIFT = "drift"
#: Maximum number of names that a message lists.
_SHOWN_NAMES = 3


class Policy(StrEnum):
    """What to do about a difference that has no number."""

    ALLOW = "allow"
    WARN = "warn"
    REFUSE = "refuse"


_Policy = Annotated[Policy, write("refuse, warn or allow")]


class Thresholds(FileModel):
    """Limits on differences. Only given limits are checked, except that ids of classes must always stay.

    Fractions of images are per record of the old dataset. Limits on records and classes apply to the whole
    dataset and to each of its splits; a split that is gone has lost all its records.
    """

    max_count_drop: Share | None = None
    """Share of its records that the dataset, or a split of it, may lose."""
    max_count_jump: Growth | None = None
    """Share by which its records, or those of a split, may grow."""
    max_added_fraction: Growth | None = None
    """Added images, per record of the dataset before."""
    max_removed_fraction: Share | None = None
    """Removed images, per record of the dataset before."""
    max_renamed_fraction: Share | None = None
    """Images with another key, per record of the dataset before."""
    max_changed_fraction: Share | None = None
    """Images with another source, per record of the dataset before."""
    max_re_encoded_fraction: Share | None = None
    """Images stored in another way, per record of the dataset before."""
    max_label_change_fraction: Share | None = None
    """Images with other classes, per record of the dataset before."""
    max_split_move_fraction: Share | None = None
    """Images in another split, per record of the dataset before."""
    max_class_l_infinity: Share | None = None
    """Largest difference between the shares of a class."""
    max_class_jensen_shannon: Share | None = None
    """Jensen-Shannon distance of the distributions over classes."""
    max_bad_fraction: Share | None = None
    """Quarantined / (written + quarantined)."""
    max_rise: Annotated[dict[Code, Growth], write("a limit for each name, such as {DARK: 0.01}")] = Field(
        default_factory=dict
    )
    """Rise of the findings per record: {DARK: 0.01}."""
    max_statistics_change: Annotated[
        dict[Name, Growth], write("a limit for each name, such as {brightness.mean: 0.1}")
    ] = Field(default_factory=dict)
    """Share by which a number of statistics.json may change: {width.mean: 0.2}."""
    new_classes: _Policy = Policy.ALLOW
    """Classes that had no records."""
    vanished_classes: _Policy = Policy.ALLOW
    """Classes that have no records any more."""
    renumbered_classes: _Policy = Policy.REFUSE
    """Classes with another id; refused by default."""
    changed_features: _Policy = Policy.ALLOW
    """Another layout or features."""
    changed_settings: _Policy = Policy.ALLOW
    """Other settings."""
    changed_versions: _Policy = Policy.ALLOW
    """Other software."""


#: Limit on changed images -> kind of change, and what a message says about one such image and about several.
IMAGE_LIMITS = {
    "max_added_fraction": (Kind.ADDED, "is new", "are new"),
    "max_removed_fraction": (Kind.REMOVED, "is gone", "are gone"),
    "max_renamed_fraction": (Kind.RENAMED, "has a different key", "have a different key"),
    "max_changed_fraction": (Kind.CHANGED, "has a different source", "have a different source"),
    "max_re_encoded_fraction": (Kind.RE_ENCODED, "is stored differently", "are stored differently"),
    "max_label_change_fraction": (Kind.RELABELLED, "has different classes", "have different classes"),
    "max_split_move_fraction": (Kind.MOVED, "is in a different split", "are in a different split"),
}


def check(drift: Drift, thresholds: GateFile) -> list[Violation]:
    """Returns a violation for each limit that is exceeded, or that cannot be checked."""
    return [
        *_check_records(drift, thresholds),
        *_check_images(drift, thresholds),
        *_check_classes(drift, thresholds),
        # Of identical datasets nothing else was read, and nothing else is needed.
        *([] if drift.identical else _check_quality(drift, thresholds)),
        *([] if drift.identical else _check_statistics(drift, thresholds)),
        *_check_policies(drift, thresholds),
    ]


def _error(name: str, message: str, value: float | None, limit: float) -> Violation:
    return Violation(_DRIFT, name, Severity.ERROR, f"{name}: {message}", value, limit)


def _check_records(drift: Drift, thresholds: GateFile) -> Iterator[Violation]:
    for what, (old, new) in drift.records.by_name.items():
        if not old:
            continue
        growth = (new or 0) / old - 1
        for name, verb, change in (("max_count_drop", "fell", -growth), ("max_count_jump", "grew", growth)):
            limit = getattr(thresholds, name)
            if limit is not None and _exceeds(change, limit):
                value, most = percent_beside_limit(change, limit)
                counts = f"{old:,} to {counted(new or 0, 'record')}"
                yield _error(name, f"{what} {verb} {value} ({counts}; limit {most})", change, limit)


def _check_images(drift: Drift, thresholds: GateFile) -> Iterator[Violation]:
    records = f"{counted(drift.records.all.old, 'record')} of the old dataset"
    for name, (kind, one, several) in IMAGE_LIMITS.items():
        share, limit = drift.fraction(kind), getattr(thresholds, name)
        if limit is not None and share > limit:
            value, most = percent_beside_limit(share, limit)
            text = counted(drift.changes.total(kind), f"image {one}", f"images {several}")
            yield _error(name, f"{text}, {value} of the {records} (limit {most})", share, limit)
    bad, limit = drift.bad_fraction.new, thresholds.max_bad_fraction
    if limit is not None and bad > limit:
        value, most = percent_beside_limit(bad, limit)
        text = f"{value} of the images of the new dataset are bad (limit {most})"
        yield _error("max_bad_fraction", text, bad, limit)


def _check_classes(drift: Drift, thresholds: GateFile) -> Iterator[Violation]:
    for where, one in drift.classes.distance.by_name.items():
        limit = thresholds.max_class_l_infinity
        if limit is not None and _exceeds(one.l_infinity, limit):
            value, most = beside_limit(one.l_infinity, limit, scale=100, digits=2)
            name = f"class {quoted_value(one.name)}" if one.name else "a class"
            text = f"the share of {name} in {where} changed by {value} percentage points (limit {most})"
            yield _error("max_class_l_infinity", text, one.l_infinity, limit)
        limit = thresholds.max_class_jensen_shannon
        if limit is not None and one.jensen_shannon > limit:
            value, most = beside_limit(one.jensen_shannon, limit)
            text = (
                f"the class distributions of {where} differ by a Jensen-Shannon distance of {value} "
                f"(limit {most})"
            )
            yield _error("max_class_jensen_shannon", text, one.jensen_shannon, limit)


def _check_quality(drift: Drift, thresholds: GateFile) -> Iterator[Violation]:
    for code, limit in thresholds.max_rise.items():
        rates = drift.quality.get(code, Pair(None, None))
        if None in rates:
            where = " and ".join(name for name, rate in rates._asdict().items() if rate is None)
            advice = f"the {where} dataset was not validated for it; run shardwright validate --quality first"
            yield _unknown("max_rise", code, limit, advice)
        elif _exceeds(rates.new - rates.old, limit):
            rise = rates.new - rates.old
            value, most = beside_limit(rise, limit, scale=100, digits=2)
            old, new = (f"{rate * 100:.3g}% of the records" for rate in rates)
            text = f"{code} rose by {value} percentage points ({old} to {new}; limit {most})"
            yield _error("max_rise", text, rise, limit)


def _check_statistics(drift: Drift, thresholds: GateFile) -> Iterator[Violation]:
    name_of_limit = "max_statistics_change"
    in_both = {name: pair for name, pair in drift.statistics.items() if None not in pair}
    for ending, limit in thresholds.max_statistics_change.items():
        pairs = {name: pair for name, pair in in_both.items() if f".{name}".endswith(f".{ending}")}
        if not pairs:
            advice = (
                "no number of this name is in both statistics.json files; run shardwright validate "
                "--quality on both"
            )
            yield _unknown(name_of_limit, ending, limit, advice)
        for name, (old, new) in pairs.items():
            if not old and new:
                text = (
                    f"{quoted_value(name)} was 0 and is {new:.6g}, which cannot be expressed as a share "
                    f"(limit {percent_beside_limit(limit, limit)[1]})"
                )
                yield _error(name_of_limit, text, None, limit)
            change = abs(new - old) / abs(old) if old else 0.0
            if _exceeds(change, limit):
                value, most = percent_beside_limit(change, limit)
                verb = "fell" if new < old else "grew"
                text = f"{quoted_value(name)} {verb} {value} ({old:.6g} to {new:.6g}; limit {most})"
                yield _error(name_of_limit, text, change, limit)


def _unknown(name: str, what: str, limit: float, advice: str) -> Violation:
    return _error(name, f"{quoted_value(what)} cannot be checked, because {advice}", None, limit)


def _check_policies(drift: Drift, thresholds: GateFile) -> Iterator[Violation]:
    vanished, renumbered, made = drift.classes.vanished, drift.classes.renumbered, drift.made
    features = (*made.get("layout", ()), *made.get("features", ()))
    settings, versions = made.get("settings", ()), made.get("versions", ())
    differences = (
        ("new_classes", drift.classes.new, "new class", "new classes"),
        ("vanished_classes", vanished, "class no longer has records", "classes no longer have records"),
        ("renumbered_classes", renumbered, "class has a different id", "classes have different ids"),
        ("changed_features", features, "feature differs", "features differ"),
        ("changed_settings", settings, "setting differs", "settings differ"),
        ("changed_versions", versions, "software version differs", "software versions differ"),
    )
    for name, names, one, several in differences:
        policy = getattr(thresholds, name)
        if names and policy is not Policy.ALLOW:
            severity = Severity.WARNING if policy is Policy.WARN else Severity.ERROR
            amount = counted(len(names), one, several)
            some = listed(map(quoted_value, names), _SHOWN_NAMES)
            message = f"{name}: {amount} ({some}; the gate says {policy.value})"
            yield Violation(_DRIFT, name, severity, message, len(names), policy.value)


class _FindingGates(FileModel):
    """The gates on findings."""

    fail_on: Codes = ()
    """Findings that are errors."""
    warn_on: Codes = ()
    """Findings that are warnings."""


class GateFile(Thresholds, Expectations, _FindingGates):
    """All keys of a gate file."""

    @property
    def findings(self) -> Gates:
        """Which findings of the validation are errors."""
        return Gates(self.fail_on, self.warn_on)

    def named(self, group: type[FileModel]) -> tuple[str, ...]:
        """Returns the names of the gates of a group (`Expectations`) that differ from their defaults."""
        return tuple(name for name in self.model_dump(exclude_defaults=True) if name in group.model_fields)

    def names_read_from_shards(self) -> tuple[str, ...]:
        """Returns the names of the expectations that `dataset.json` cannot answer."""
        return tuple(name for name in self.named(Expectations) if name in (*_OF_PICTURES, "max_fraction"))

    def measured_names(self, counted: bool = True) -> tuple[str, ...]:
        """Returns the names of the expectations that need every image decoded.

        Args:
          counted: Whether `dataset.json` counts the images of each format.
        """
        by_quality = any(FindingCode(code) in QUALITY for code in self.max_fraction)
        asking = {*_OF_PICTURES, *(() if counted else _OF_STORED), *(["max_fraction"] if by_quality else [])}
        return tuple(name for name in self.named(Expectations) if name in asking)

    def as_json(self) -> dict[str, Any]:
        """Returns the limits that are set."""
        limits = self.model_dump(exclude=set(_FindingGates.model_fields))
        return {name: value for name, value in limits.items() if value not in (None, {}, ())}


_PAIRS = ("images", "images_per_class", "classes", "width", "height")


def parse_gates(text: str, option: str, path: str) -> GateFile:
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
        raise UsageError(as_sentence(f"{option} {path}, line {line}, column {column}: {error}")) from None


def gates_from(value: Any) -> GateFile:
    """Returns the gates in a file or a mapping.

    Args:
      value: Content of the YAML; None for an empty file.

    Raises:
      WrongValue: If a value is wrong; it has the keys of the first one, and says what to write instead.
    """
    value = {} if value is None else value
    if not isinstance(value, Mapping):
        raise WrongValue("write one `gate: value` on each line, such as min_images: 1000")
    fields_of_file = list(GateFile.model_fields)
    for name in value:
        if name not in fields_of_file:
            hint = nearest(str(name), fields_of_file) or f"; choose from {', '.join(fields_of_file)}"
            raise WrongValue(f"there is no gate {quoted_value(name)}{hint}", name)
        if value[name] is None:
            raise WrongValue(f"{name} has no value; write one or take it out", name)
    try:
        model = GateFile.model_validate(dict(value))
    except ValidationError as error:
        where, message = first_error(error, list(value))
        path = [part for part in where if part != "[key]"]
        raise WrongValue(f"{path[0]}: {message}", *path) from None
    for what in _PAIRS:
        low, high = getattr(model, f"min_{what}"), getattr(model, f"max_{what}")
        if low is not None and high is not None and low > high:
            raise WrongValue(f"min_{what} {low} is above max_{what} {high}", f"min_{what}")
    for code in model.fail_on:
        if code in model.warn_on:
            raise WrongValue(f"fail_on: {code} is also in warn_on; choose one", "fail_on")
    return model
