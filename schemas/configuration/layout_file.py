"""Custom layouts: a YAML file that changes a built-in layout (drop, rename, add), or defines all features.

extends: classification
drop: [image/key/sha256]
rename: {image/encoded: picture}
features:
  picture_id: {fill: key}
  price: {column: price, type: float}
  embedding: {column: embedding, type: float, shape: [128]}
  tags: {column: tags, type: string, shape: [null]}
  version: {constant: 3, type: int64}
  corners: {fill: boxes, tensor: true}
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.example import FeatureType
from shardwright.schemas.feature_roles import FeatureRole, Needs
from shardwright.schemas.layouts import LAYOUTS, Encoding, FeatureSpec, Layout, inline_layout
from shardwright.schemas.plain_yaml import load_plain_yaml
from shardwright.schemas.sample_types import SAMPLE_TYPES
from shardwright.schemas.values import TYPE_NAMES, ValueType, coerce, feature_type, short_repr, value_type

_KEYS = ("name", "extends", "first_label", "needs", "pixels", "format_names", "drop", "rename", "features")
_FILLED_BY = ("fill", "column", "constant")
_FEATURE_KEYS = (*_FILLED_BY, "type", "shape", "values", "optional", "tensor", "base64", "dtype")
_CLASSES = (FeatureRole.LABEL, FeatureRole.LABEL_TEXT, FeatureRole.SYNSET)
#: Type of a value -> type of the numbers in its serialized tensor.
_DTYPES = {
    ValueType.BOOL: "bool",
    ValueType.ENUM: "int64",
    ValueType.INT32: "int32",
    ValueType.UINT32: "uint32",
    ValueType.INT64: "int64",
    ValueType.UINT64: "uint64",
    ValueType.FLOAT: "float32",
    ValueType.DOUBLE: "float64",
    ValueType.STRING: "object",
    ValueType.BYTES: "object",
}
_OWN_DTYPES = {FeatureType.INT64: "int64", FeatureType.FLOAT: "float32", FeatureType.BYTES: "object"}
_ROLES = tuple(role for role in FeatureRole if role not in (FeatureRole.EXTRA, FeatureRole.CONSTANT))
_MAX_NAME_LENGTH = 200
_MAX_VALUES = 1_000_000


class _Wrong(ValueError):
    """An error in a layout file. The message says what to write instead."""


def parse_layout_file(text: str, path: str) -> Layout:
    """Reads a custom layout.

    Args:
      text: YAML.
      path: Path of the file; its stem is the layout's name unless the file gives another name.

    Raises:
      UsageError: If it is wrong; the message says what may be written instead.
    """
    try:
        layout = _layout(_mapping(load_plain_yaml(text), "the file"), PurePosixPath(path).stem)
        _check(layout)
    except ValueError as error:
        why = str(error)
        raise UsageError(f"--layout {path}: {why}{'' if why.endswith('?') else '.'}") from None
    _ = layout.columns  # raises if two features disagree on a column
    return layout


def _layout(values: Mapping[str, Any], stem: str) -> Layout:
    _known_keys(values, _KEYS, "the file")
    base = Layout("", ())
    if "extends" in values:
        base = LAYOUTS[_choice(values["extends"], tuple(LAYOUTS), "extends")]
    pixels = _flag(values.get("pixels", base.pixels), "pixels")
    features = {spec.name: spec for spec in _inherited(base, values)}
    for name, how in _mapping(values.get("features", {}), "features").items():
        where = f"features: {_name(name, 'features')}"
        features[name] = _feature(name, _mapping(how, where), pixels, where)
    return replace(
        base,
        name=_own_name(values.get("name", stem)),
        features=tuple(features.values()),
        first_label=_small_number(values.get("first_label", base.first_label), "first_label"),
        needs=Needs(_choice(values.get("needs", base.needs), tuple(Needs), "needs")),
        format_names=_format_names(values.get("format_names", base.format_names)),
        pixels=pixels,
        summary="a layout of your own",
    )


def _inherited(base: Layout, values: Mapping[str, Any]) -> list[FeatureSpec]:
    """Returns the features of the layout named by `extends`, without dropped ones and with new names."""
    dropped = _names(values.get("drop", []), "drop")
    renamed = _mapping(values.get("rename", {}), "rename")
    if not base.features and (dropped or renamed):
        raise _Wrong("drop and rename are for the features of a built-in layout; name it with extends")
    for old in dropped:
        _choice(old, [spec.name for spec in base.features], "drop")
    kept = [spec for spec in base.features if spec.name not in dropped]
    for old, new in renamed.items():
        _choice(old, [spec.name for spec in kept], "rename")
        _name(new, f"rename: {old}")
    features = [replace(spec, name=renamed.get(spec.name, spec.name)) for spec in kept]
    twice = _twice([spec.name for spec in features])
    if twice is not None:
        raise _Wrong(f"rename: two features are called {twice!r} then; give one of them another name")
    return features


def _feature(name: str, values: Mapping[str, Any], pixels: bool, where: str) -> FeatureSpec:
    _known_keys(values, _FEATURE_KEYS, where)
    if len([key for key in _FILLED_BY if key in values]) != 1:
        raise _Wrong(f"{where}: write one of fill, column and constant, which say what fills it")
    tensor, base64, optional = (
        _flag(values.get(key, False), where) for key in ("tensor", "base64", "optional")
    )
    if tensor and base64:
        raise _Wrong(f"{where}: write tensor or base64, not both")
    spec = replace(_filled(name, values, tensor, where), optional=optional)
    if "dtype" in values:
        spec = replace(spec, dtype=_pixel_type(values["dtype"], spec, pixels, tensor, where))
    if optional and not _can_be_absent(spec):
        raise _Wrong(f"{where}: every image has it; leave optional out")
    if base64:
        if spec.type is not FeatureType.BYTES:
            raise _Wrong(f"{where}: base64 is for texts and bytes; leave it out")
        return replace(spec, encoding=Encoding.BASE64)
    return _as_tensor(spec, pixels) if tensor else spec


def _filled(name: str, values: Mapping[str, Any], tensor: bool, where: str) -> FeatureSpec:
    """Returns a feature without its encoding."""
    if "fill" in values:
        role = FeatureRole(_choice(values["fill"], _ROLES, f"{where}: fill"))
        if {"type", "values", "shape"} & values.keys():
            raise _Wrong(f"{where}: {role} has its own type and shape; leave type, values and shape out")
        return FeatureSpec(name, role.type, role.shape, role)
    if values.get("type") not in TYPE_NAMES:
        raise _Wrong(
            f"{where}: write its type, one of {', '.join(TYPE_NAMES)}"
            f"{_nearest(values.get('type', ''), TYPE_NAMES)}"
        )
    type_ = value_type(values["type"])
    names = _names(values.get("values", []), f"{where}: values")
    if names and type_ is not ValueType.ENUM:
        raise _Wrong(f"{where}: values are the names of an enum; write type: enum")
    shape = _shape(values["shape"], where) if "shape" in values else ()
    spec = FeatureSpec(name, feature_type(type_), shape, value_type=type_)
    if "constant" in values:
        return _with_constant(spec, values["constant"], names, tensor, where)
    column = _name(values["column"], f"{where}: column")
    return replace(spec, fill=FeatureRole.EXTRA, value=names, column=column if column != name else "")


def _pixel_type(value: Any, spec: FeatureSpec, pixels: bool, tensor: bool, where: str) -> str:
    """Returns the type of the samples of bare pixels."""
    if spec.fill is not FeatureRole.ENCODED or not pixels:
        raise _Wrong(
            f"{where}: dtype is the type of bare pixels; write it beside fill: encoded in a layout with "
            "pixels: true"
        )
    if tensor:
        raise _Wrong(f"{where}: tensors of pixels are always uint8; leave tensor or dtype out")
    return _choice(value, SAMPLE_TYPES, f"{where}: dtype")


def _with_constant(
    spec: FeatureSpec, constant: Any, names: Sequence[str], tensor: bool, where: str
) -> FeatureSpec:
    try:
        values = tuple(
            coerce(value, ValueType(spec.value_type), names, wide=tensor) for value in _flat(constant)
        )
    except ValueError as error:
        raise _Wrong(f"{where}: {error}") from None
    if not all(math.isfinite(value) for value in values if isinstance(value, float)):
        raise _Wrong(f"{where}: dataset.json holds no infinite numbers; write a finite one")
    sides = _sides_of(constant, where)
    if spec.shape and (
        len(spec.shape) != len(sides) or any(a not in (None, b) for a, b in zip(spec.shape, sides))
    ):
        raise _Wrong(f"{where}: its constant has the shape {sides}; write that or leave shape out")
    return replace(spec, shape=tuple(sides), fill=FeatureRole.CONSTANT, value=values)


def _can_be_absent(spec: FeatureSpec) -> bool:
    if spec.fill is None or spec.fill in (FeatureRole.EXTRA, *_CLASSES):
        return True
    return spec.fill.needs is not None


def _as_tensor(spec: FeatureSpec, pixels: bool) -> FeatureSpec:
    """Returns a feature that stores its value as a serialized tensor."""
    tensor = replace(spec, type=FeatureType.BYTES, shape=(), encoding=Encoding.TENSOR)
    if spec.fill is FeatureRole.ENCODED and pixels:
        return replace(tensor, dtype="uint8", tensor_shape=(None, None, None))
    dtype = _DTYPES[ValueType(spec.value_type)] if spec.value_type else _OWN_DTYPES[spec.type]
    return replace(tensor, dtype=dtype, tensor_shape=spec.shape)


def _check(layout: Layout) -> None:
    """Checks that the features fit together."""
    roles = layout.by_role()
    if FeatureRole.ENCODED not in roles:
        raise _Wrong("no feature holds the image; add one with fill: encoded")
    for spec in layout.features:
        needs = spec.fill.needs if spec.fill else None
        if needs is not None and needs is not layout.needs and not spec.optional:
            raise _Wrong(
                f"features: {spec.name}: only a layout with needs: {needs} always has {spec.fill}; write "
                "that, or optional: true"
            )
    if len({spec.pixel_type for spec in layout.features if spec.fill is FeatureRole.ENCODED}) > 1:
        raise _Wrong("the features with fill: encoded state different types; give all of them the same dtype")
    if layout.needs is Needs.LABEL and roles.keys().isdisjoint(_CLASSES):
        raise _Wrong(
            "no feature holds the class; add one with fill: label, or write needs: image for images without "
            "classes (or say what else it needs)"
        )
    if layout.needs is Needs.IMAGE:
        for spec in layout.features:
            if spec.fill in _CLASSES:
                raise _Wrong(
                    f"features: {spec.name}: a layout with needs: image has no classes; drop the feature, or "
                    "write needs: label"
                )
    try:
        inline_layout(layout).encode()
    except UnicodeError:
        raise _Wrong("its bytes are not UTF-8, so dataset.json cannot store them; write text") from None


def _shape(value: Any, where: str) -> tuple[int | None, ...]:
    sides = tuple(value) if isinstance(value, list) else (value,)
    known = [side for side in sides if side is not None or value is None]
    if any(type(side) is not int or side < 1 for side in known):
        raise _Wrong(
            f"{where}: shape {short_repr(value)} is not a shape; write [4], [2, 3] or [null] for any number"
        )
    if len(sides) - len(known) > 1:
        raise _Wrong(f"{where}: only one side of a shape can be null")
    if math.prod(known) > _MAX_VALUES:
        raise _Wrong(
            f"{where}: shape {short_repr(value)} has more than {_MAX_VALUES:,} values; make it smaller"
        )
    return sides


def _flat(value: Any) -> Iterator[Any]:
    if not isinstance(value, list):
        yield value
        return
    for item in value:
        yield from _flat(item)


def _sides_of(value: Any, where: str) -> list[int]:
    if not isinstance(value, list):
        return []
    if not value:
        raise _Wrong(f"{where}: its constant holds nothing; write a value or leave the feature out")
    inner = [_sides_of(item, where) for item in value]
    if any(sides != inner[0] for sides in inner):
        raise _Wrong(f"{where}: its constant's rows have different lengths; make them equal")
    return [len(value), *inner[0]]


def _mapping(value: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise _Wrong(f"{where} holds no `key: value` lines; see docs/layouts.md")
    return value


def _known_keys(values: Mapping[Any, Any], known: Sequence[str], where: str) -> None:
    for key in values:
        if key not in known:
            raise _Wrong(
                f"{where}: {short_repr(key)} is not a key here; write "
                f"{', '.join(known)}{_nearest(key, known)}"
            )


def _choice(value: Any, choices: Sequence[str], where: str) -> str:
    if value not in choices:
        raise _Wrong(
            f"{where}: {short_repr(value)} is not one of {', '.join(choices)}{_nearest(value, choices)}"
        )
    return str(value)


def _nearest(value: Any, choices: Sequence[str]) -> str:
    return nearest(short_repr(value).strip("'"), choices)


def _name(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _Wrong(f"{where}: {short_repr(value)} is not a name; write text, in quotes if needed")
    if not 0 < len(value) <= _MAX_NAME_LENGTH or not value.isprintable():
        raise _Wrong(
            f"{where}: {short_repr(value)} is not a name; write 1 to {_MAX_NAME_LENGTH} characters that can "
            "be printed"
        )
    return value


def _own_name(value: Any) -> str:
    if isinstance(value, str) and value in LAYOUTS:
        raise _Wrong(f"{value} is the name of a built-in layout; write another one, such as name: my_{value}")
    return _name(value, "name")


def _names(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _Wrong(f"{where}: write a list of names, such as [one, two]")
    names = tuple(_name(item, where) for item in value)
    twice = _twice(names)
    if twice is not None:
        raise _Wrong(f"{where}: {twice!r} occurs twice; write it once")
    return names


def _twice(names: Sequence[str]) -> str | None:
    return next((name for i, name in enumerate(names) if name in names[:i]), None)


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise _Wrong(f"{where}: write true or false instead of {short_repr(value)}")
    return value


def _small_number(value: Any, where: str) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_VALUES:
        raise _Wrong(f"{where}: write a number such as 0 or 1 instead of {short_repr(value)}")
    return value


def _format_names(value: Any) -> dict[str, str]:
    names = _mapping(value, "format_names")
    for key in names:
        _choice(key, ("jpg", "png", "webp", "raw"), "format_names")
    return {key: _name(name, f"format_names: {key}") for key, name in names.items()}
