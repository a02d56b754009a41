"""The values of a record by role, and checks of a single feature: presence, type, shape and values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from shardwright.core.records.encodings import WrongEncoding, plain_feature
from shardwright.core.records.record_schema import Problem
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.example import Feature, FeatureType, parse_tensor
from shardwright.schemas.feature_roles import IMAGE_ROLES, POSITION_ROLES, FeatureRole
from shardwright.schemas.layouts import Encoding, FeatureSpec
from shardwright.schemas.sample_types import SAMPLE_TYPES
from shardwright.schemas.units import counted
from shardwright.schemas.values import ValueType, allowed_numbers

_SAMPLE_TYPES = frozenset(name.encode() for name in SAMPLE_TYPES)
_SHA256 = re.compile(rb"[0-9a-f]{64}\Z")
_SHOWN_BYTES = 60
_SHOWN_VALUES = 3


#: Mapping of role to the values of its feature, for the features that exist and have the right type.
ValuesByRole = Mapping[FeatureRole, Sequence[Any]]
#: Function of a feature's values that returns the problem with them; None without one.
ValueCheck = Callable[[Sequence[Any]], Problem | None]


def decoded_features(
    features: Mapping[str, Feature], specs: Iterable[FeatureSpec]
) -> tuple[dict[str, Feature], list[Problem], list[Sequence[int]]]:
    """Returns the features with decoded values, without those that cannot be decoded.

    It also returns the problems of the latter, and the shapes of tensors of pixels.
    """
    plain, problems, shapes = dict(features), list[Problem](), list[Sequence[int]]()
    for spec in specs:
        feature = features.get(spec.name)
        if feature is None or spec.encoding is Encoding.PLAIN:
            continue
        del plain[spec.name]
        if feature.type is not spec.type or spec.length not in (None, len(feature.values)):
            continue  # `presence_problem` reports it
        try:
            plain[spec.name] = plain_feature(spec, feature)
            if spec.holds_pixels:
                shapes.append(parse_tensor(feature.values[0]).shape)
        except WrongEncoding as wrong:
            problems.append((wrong.code, str(wrong)))
    return plain, problems, shapes


def specs_with_roles(specs: Iterable[FeatureSpec]) -> tuple[FeatureSpec, ...]:
    """Returns the features that have a role; of several with one role, the first."""
    first: dict[FeatureRole, FeatureSpec] = {}
    for spec in specs:
        if spec.fill is not None:
            first.setdefault(spec.fill, spec)
    return tuple(first.values())


def values_by_role(features: Mapping[str, Feature], specs: Iterable[FeatureSpec]) -> ValuesByRole:
    """Returns the values of the features with a role.

    Args:
      features: Features of a record, decoded.
      specs: Expected features, decoded, as `specs_with_roles` returns them.
    """
    return {
        spec.fill: feature.values
        for spec in specs
        if (feature := features.get(spec.name)) is not None
        and (feature.type is spec.type or feature.type is None)
        and spec.fill is not None
    }


def some_values(values: ValuesByRole, roles: Collection[FeatureRole]) -> ValuesByRole:
    """Returns the values with certain roles, in the order of the features."""
    return {role: role_values for role, role_values in values.items() if role in roles}


def only_bytes(values: ValuesByRole, role: FeatureRole) -> bytes | None:
    """Returns the one value of a feature of bytes; None if it does not have exactly one value."""
    feature_values = values.get(role, ())
    return feature_values[0] if len(feature_values) == 1 and isinstance(feature_values[0], bytes) else None


def only_text(values: ValuesByRole, role: FeatureRole) -> str | None:
    """Returns the one value of a feature of text; None if it does not have exactly one value."""
    value = only_bytes(values, role)
    return None if value is None else value.decode("utf-8", "replace")


def integers(values: ValuesByRole, role: FeatureRole) -> Sequence[int]:
    """Returns the values of a feature of integers; none if it holds other values."""
    feature_values = values.get(role, ())
    return feature_values if feature_values and isinstance(feature_values[0], int) else ()


def presence_problem(feature: Feature | None, spec: FeatureSpec) -> Problem | None:
    """Returns the problem with a feature's presence, type or number of values; None without one."""
    if feature is None and spec.optional:
        return None
    if feature is None or (feature.type is None and spec.length):
        return FindingCode.MISSING_FEATURE, f"feature {spec.name!r} is missing"
    if feature.type is not None and feature.type is not spec.type:
        message = f"feature {spec.name!r} is {feature.type.value}, not {spec.type.value}"
        return FindingCode.WRONG_TYPE, message
    count = len(feature.values)
    if spec.length is not None:
        if count == spec.length:
            return None
        message = f"feature {spec.name!r} has {counted(count, 'value')}, not {spec.length}"
        return FindingCode.WRONG_SHAPE, message
    row = math.prod(side for side in spec.shape if side is not None) or 1
    if spec.fill is not FeatureRole.BOXES and count % row:
        message = f"feature {spec.name!r} has {counted(count, 'value')}, which do not fill rows of {row}"
        return FindingCode.WRONG_SHAPE, message
    return None


def value_check(spec: FeatureSpec, own: bool, split: str = "") -> ValueCheck | None:
    """Returns a check of the values of a feature that has the right type and shape.

    Args:
      spec: The expected feature, decoded.
      own: Whether this project wrote the records, so that the whole spec applies.
      split: Split of the records. Empty if unknown.

    Returns:
      A function that returns the problem with decoded values, or None without one. None if any values are
      sound.
    """
    is_text = spec.type is FeatureType.BYTES and _is_text(spec)
    is_finite = spec.type is FeatureType.FLOAT and spec.fill not in POSITION_ROLES
    special = _special_check(spec, split) if own else None
    if not (is_text or is_finite or special):
        return None

    def check(values: Sequence[Any]) -> Problem | None:
        if is_text:
            for value in values:
                try:
                    value.decode("utf-8")
                except UnicodeDecodeError:
                    message = f"feature {spec.name!r} holds {_shortened(value)}, which is not UTF-8"
                    return FindingCode.NOT_UTF8, message
        if is_finite:
            wrong = [value for value in values if not math.isfinite(value)]
            if wrong:
                return FindingCode.NOT_FINITE, f"feature {spec.name!r} holds {first_of(wrong)}"
        problem = special(values) if special is not None else ""
        return (FindingCode.WRONG_VALUE, f"feature {spec.name!r} {problem}") if problem else None

    return check


def _is_text(spec: FeatureSpec) -> bool:
    """Returns whether a feature of bytes contains text."""
    if spec.fill is FeatureRole.EXTRA or spec.fill is FeatureRole.CONSTANT:
        return spec.value_type == ValueType.STRING
    return spec.fill is not None and spec.fill not in IMAGE_ROLES


def first_of(items: Sequence[Any], noun: str = "") -> str:
    """Returns the first of some items for a message, and the number of the others, with a noun if given."""
    more = len(items) - 1
    return f"{items[0]} (and {counted(more, noun) if noun else f'{more} more'})" if more else str(items[0])


def _shortened(value: Any) -> str:
    """Returns a value for a message, shortened if it is long."""
    if isinstance(value, bytes):
        text = ascii(value[:_SHOWN_BYTES])[1:]
        return text + "..." if len(value) > _SHOWN_BYTES else text
    return repr(value)


def _list(values: Sequence[Any]) -> str:
    """Returns values for a message; of many, only the first few."""
    few = ", ".join(map(_shortened, values[:_SHOWN_VALUES]))
    more = ", ..." if len(values) > _SHOWN_VALUES else ""
    return few if len(values) == 1 else f"[{few}{more}]"


def _special_check(spec: FeatureSpec, split: str) -> Callable[[Sequence[Any]], str] | None:
    """Returns a function that says what is wrong with the values of a feature with a special role.

    It returns an empty text for sound values. None for a feature whose values need no such check.
    """
    is_bytes = spec.type is FeatureType.BYTES
    if spec.fill is FeatureRole.CONSTANT:
        return lambda values: (
            ""
            if tuple(values) == spec.constant
            else f"is {_list(values)}, but should be {_list(spec.constant)}"
        )
    if spec.fill is FeatureRole.SPLIT and is_bytes and split:
        return _first_check(lambda value: value == split.encode(), f"but the shard's split is {split!r}")
    if spec.fill is FeatureRole.DTYPE:
        return _first_check(_SAMPLE_TYPES.__contains__, f"not one of {', '.join(SAMPLE_TYPES)}")
    if spec.fill is FeatureRole.SOURCE_SHA256 and is_bytes:
        return _first_check(_SHA256.match, "which is not a sha256 in hex")
    if spec.fill is FeatureRole.EXTRA and spec.type is FeatureType.INT64 and spec.value_type:
        allowed = allowed_numbers(ValueType(spec.value_type), spec.value, wide=True)
        limits = f"outside the range of {spec.value_type} ({allowed[0]} to {allowed[-1]})"

        def check(values: Sequence[Any]) -> str:
            wrong = [value for value in values if value not in allowed]
            return f"holds {first_of(wrong)}, {limits}" if wrong else ""

        return check
    return None


def _first_check(is_sound: Callable[[Any], Any], why: str) -> Callable[[Sequence[Any]], str]:
    """Returns a function that says what is wrong with the first of some values, if there is one."""
    return lambda values: f"is {_shortened(values[0])}, {why}" if values and not is_sound(values[0]) else ""
