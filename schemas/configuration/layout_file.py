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
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from shardwright.schemas.configuration.typed_yaml import (
    FileModel,
    check_choice,
    first_error,
    one_of,
    write,
    wrong,
)
from shardwright.schemas.errors import UsageError, as_sentence
from shardwright.schemas.example import FeatureType
from shardwright.schemas.feature_roles import CLASS_ROLES, FeatureRole, Needs
from shardwright.schemas.layouts import LAYOUTS, Encoding, FeatureSpec, Layout, with_several_classes
from shardwright.schemas.plain_yaml import load_plain_yaml
from shardwright.schemas.sample_types import SAMPLE_TYPES
from shardwright.schemas.values import TYPE_NAMES, ValueType, coerce, feature_type, short_repr, value_type

#: Type of a value -> type of the numbers in its serialized tensor, if it has another name.
_DTYPES = {
    ValueType.ENUM: "int64",
    ValueType.FLOAT: "float32",
    ValueType.DOUBLE: "float64",
    ValueType.STRING: "object",
    ValueType.BYTES: "object",
}
_ROLES = tuple(role.value for role in FeatureRole if role not in (FeatureRole.EXTRA, FeatureRole.CONSTANT))
_MAX_NAME_LENGTH = 200
_MAX_VALUES = 1_000_000
#: Value of a key that the file does not have. No other key can be null.
_ABSENT: Any = None


def _check_name(value: Any) -> str:
    if not isinstance(value, str):
        raise wrong(f"{short_repr(value)} is not a name; write text, in quotes if needed")
    if not 0 < len(value) <= _MAX_NAME_LENGTH or not value.isprintable():
        raise wrong(
            f"{short_repr(value)} is not a name; write 1 to {_MAX_NAME_LENGTH} characters that can be printed"
        )
    return value


def _check_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := _twice(names):
        raise wrong(f"{twice!r} occurs twice; write it once")
    return names


def _twice(names: Sequence[str]) -> str:
    return next((name for i, name in enumerate(names) if name in names[:i]), "")


def _check_shape(value: Any) -> Sequence[int | None]:
    sides = value if isinstance(value, list) else [value]
    sizes = [side for side in sides if side is not None or value is None]
    if any(type(side) is not int or side < 1 for side in sizes):
        raise wrong(f"{short_repr(value)} is not a shape; write [4], [2, 3] or [null] for any number")
    if len(sides) - len(sizes) > 1:
        raise wrong("only one side of a shape can be null")
    if math.prod(sizes) > _MAX_VALUES:
        raise wrong(f"{short_repr(value)} has more than {_MAX_VALUES:,} values; make it smaller")
    return sides


_Name = Annotated[str, BeforeValidator(_check_name)]
_Names = Annotated[
    tuple[_Name, ...], AfterValidator(_check_once), write("a list of names, such as [one, two]")
]
_Flag = Annotated[bool, Field(strict=True), write("true or false")]
_Side = Annotated[int, Field(ge=1)]
_Sides = Annotated[
    tuple[_Side | None, ...],
    BeforeValidator(_check_shape, json_schema_input_type=_Side | list[_Side | None]),
]
_Format: Any = one_of("jpg", "png", "webp", "raw")
_lines = write("`key: value` lines below it")


class FeatureBlock(FileModel):
    """A feature: its content (one of fill, column and constant), and how it is stored."""

    fill: one_of(*_ROLES) = _ABSENT  # type: ignore[valid-type]
    """Role that fills the feature."""
    column: _Name = _ABSENT
    """Column of the source that fills the feature."""
    constant: Any = None
    """The value that it has in every record."""
    type: one_of(*TYPE_NAMES) = _ABSENT  # type: ignore[valid-type]
    """Type of the values of a column or a constant."""
    shape: _Sides = ()
    """Number of values per dimension: [4], [2, 3], or [null] for any number."""
    values: _Names = ()
    """Names of an enum."""
    optional: _Flag = False
    """Whether a record may lack it."""
    tensor: _Flag = False
    """Store it as a serialized tensor."""
    base64: _Flag = False
    """Store it as base64."""
    dtype: one_of(*SAMPLE_TYPES) = _ABSENT  # type: ignore[valid-type]
    """Type of the samples of bare pixels, the same in every record."""


class LayoutFile(FileModel):
    """A custom record layout."""

    name: _Name = _ABSENT
    """Name of the layout; by default the name of the file."""
    extends: one_of(*LAYOUTS) = _ABSENT  # type: ignore[valid-type]
    """The built-in layout to begin with."""
    first_label: Annotated[
        int, Field(strict=True, ge=0, le=_MAX_VALUES), write("a number such as 0 or 1")
    ] = _ABSENT
    """Id of the first class."""
    needs: one_of(*Needs) = _ABSENT  # type: ignore[valid-type]
    """Kind of annotations that every image must have."""
    pixels: _Flag = _ABSENT
    """Store raw pixels instead of image files."""
    format_names: Annotated[dict[_Format, _Name], _lines] = _ABSENT
    """Names that records use for image formats."""
    drop: _Names = ()
    """Features of the built-in layout to leave out."""
    rename: Annotated[dict[str, _Name], _lines] = Field(default_factory=dict)
    """New names for features of the built-in layout."""
    features: Annotated[dict[_Name, FeatureBlock], _lines] = Field(default_factory=dict)
    """Additional features."""


def parse_layout_file(text: str, path: str) -> Layout:
    """Reads a custom layout.

    Args:
      text: YAML.
      path: Path of the file; its stem is the layout's name unless the file gives another name.

    Raises:
      UsageError: If it is wrong; the message says what may be written instead.
    """
    try:
        layout = _layout(LayoutFile.model_validate(load_plain_yaml(text)), PurePosixPath(path).stem)
        _check(layout)
    except ValidationError as error:
        keys, why = first_error(error)
        keys = keys[:-2] if keys[-1:] == ("[key]",) else keys  # the message names the wrong key
        where = ": ".join(key for key in keys if isinstance(key, str)) or "the file"
        raise UsageError(as_sentence(f"--layout {path}: {where}: {why}")) from None
    except ValueError as error:
        raise UsageError(as_sentence(f"--layout {path}: {error}")) from None
    _ = layout.columns  # raises if two features disagree on a column
    return layout


def _layout(file: LayoutFile, stem: str) -> Layout:
    base = LAYOUTS.get(file.extends, Layout("", ()))
    values = file.model_dump(include={"first_label", "needs", "format_names", "pixels"}, exclude_unset=True)
    name = stem if file.name is None else file.name
    base = replace(base, **values, name=name, summary=Layout.summary)
    if base.name in LAYOUTS:
        raise wrong(
            f"{base.name} is the name of a built-in layout; write another one, such as name: my_{base.name}"
        )
    features = {spec.name: spec for spec in _inherited(base.features, file)}
    for name, block in file.features.items():
        try:
            features[name] = _feature(name, block, base.pixels)
        except ValueError as error:
            raise wrong(f"features: {name}: {error}") from None
    layout = replace(base, needs=Needs(base.needs), features=tuple(features.values()))
    # The classes of an image with annotations are those of its objects, of which there may be any number.
    return with_several_classes(layout) if layout.stores_annotations else layout


def _inherited(features: Sequence[FeatureSpec], file: LayoutFile) -> list[FeatureSpec]:
    """Returns the features of the layout named by `extends`, without dropped ones and with new names."""
    if not features and (file.drop or file.rename):
        raise wrong("drop and rename are for the features of a built-in layout; name it with extends")
    kept = [spec for spec in features if spec.name not in file.drop]
    for key, old_names, choices in (("drop", file.drop, features), ("rename", file.rename, kept)):
        for old in old_names:
            check_choice(old, [spec.name for spec in choices], f"{key}: ")
    renamed = [replace(spec, name=file.rename.get(spec.name, spec.name)) for spec in kept]
    if twice := _twice([spec.name for spec in renamed]):
        raise wrong(f"rename: two features are called {twice!r} then; give one of them another name")
    return renamed


def _feature(name: str, block: FeatureBlock, pixels: bool) -> FeatureSpec:
    fields_set = block.model_fields_set
    if len(fields_set & {"fill", "column", "constant"}) != 1:
        raise wrong("write one of fill, column and constant, which say what fills it")
    if block.tensor and block.base64:
        raise wrong("write tensor or base64, not both")
    spec = replace(_filled(name, block), optional=block.optional)
    if "dtype" in fields_set:
        if spec.fill is not FeatureRole.ENCODED or not pixels:
            raise wrong(
                "dtype is the type of bare pixels; write it beside fill: encoded in a layout with "
                "pixels: true"
            )
        if block.tensor:
            raise wrong("tensors of pixels are always uint8; leave tensor or dtype out")
        spec = replace(spec, dtype=block.dtype)
    role = spec.fill  # images may lack columns, classes, and annotations that a role needs
    if block.optional and role and role not in (FeatureRole.EXTRA, *CLASS_ROLES) and role.needs is None:
        raise wrong("every image has it; leave optional out")
    if block.base64:
        if spec.type is not FeatureType.BYTES:
            raise wrong("base64 is for texts and bytes; leave it out")
        return replace(spec, encoding=Encoding.BASE64)
    if not block.tensor:
        return spec
    tensor = replace(spec, type=FeatureType.BYTES, shape=(), encoding=Encoding.TENSOR)
    if spec.fill is FeatureRole.ENCODED and pixels:
        return replace(tensor, dtype="uint8", tensor_shape=(None, None, None))
    type_ = ValueType(spec.value_type or spec.type)
    return replace(tensor, dtype=_DTYPES.get(type_, type_.value), tensor_shape=spec.shape)


def _filled(name: str, block: FeatureBlock) -> FeatureSpec:
    """Returns a feature without its encoding."""
    fields_set = block.model_fields_set
    if "fill" in fields_set:
        role = FeatureRole(block.fill)
        if fields_set & {"type", "values", "shape"}:
            raise wrong(f"{role} has its own type and shape; leave type, values and shape out")
        return FeatureSpec(name, role.type, role.shape, role)
    if "type" not in fields_set:
        raise wrong(f"write its type, one of {', '.join(TYPE_NAMES)}")
    type_ = value_type(block.type)
    if block.values and type_ is not ValueType.ENUM:
        raise wrong("values are the names of an enum; write type: enum")
    spec = FeatureSpec(name, feature_type(type_), block.shape, value_type=type_)
    if "constant" in fields_set:
        return _with_constant(spec, block)
    column = block.column if block.column != name else ""
    return replace(spec, fill=FeatureRole.EXTRA, value=block.values, column=column)


def _with_constant(spec: FeatureSpec, block: FeatureBlock) -> FeatureSpec:
    type_, (sides, constants) = ValueType(spec.value_type), _unnested(block.constant)
    stored = [coerce(value, type_, block.values, wide=block.tensor) for value in constants]
    try:
        values = tuple(value.decode() if isinstance(value, bytes) else value for value in stored)
    except UnicodeDecodeError:
        raise wrong("its bytes are not UTF-8, so dataset.json cannot store them; write text") from None
    if not all(math.isfinite(value) for value in values if isinstance(value, float)):
        raise wrong("dataset.json holds no infinite numbers; write a finite one")
    if spec.shape and (
        len(spec.shape) != len(sides) or any(a not in (None, b) for a, b in zip(spec.shape, sides))
    ):
        raise wrong(f"its constant has the shape {list(sides)}; write that or leave shape out")
    return replace(spec, shape=sides, fill=FeatureRole.CONSTANT, value=values)


def _check(layout: Layout) -> None:
    """Checks that the features fit together."""
    roles = layout.by_role
    if FeatureRole.ENCODED not in roles:
        raise wrong("no feature holds the image; add one with fill: encoded")
    for spec in layout.features:
        needs = spec.fill.needs if spec.fill else None
        if needs is not None and needs is not layout.needs and not spec.optional:
            raise wrong(
                f"features: {spec.name}: only a layout with needs: {needs} always has {spec.fill}; write "
                "that, or optional: true"
            )
        if layout.needs is Needs.IMAGE and spec.fill in CLASS_ROLES:
            raise wrong(
                f"features: {spec.name}: a layout with needs: image has no classes; drop the feature, or "
                "write needs: label"
            )
    if len({spec.pixel_type for spec in layout.features if spec.fill is FeatureRole.ENCODED}) > 1:
        raise wrong("the features with fill: encoded state different types; give all of them the same dtype")
    if layout.needs is Needs.LABEL and roles.keys().isdisjoint(CLASS_ROLES):
        raise wrong(
            "no feature holds the class; add one with fill: label, or write needs: image for images without "
            "classes (or say what else it needs)"
        )


def _unnested(value: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Returns the shape of nested lists, and the values in them row by row."""
    if not isinstance(value, list):
        return (), [value]
    if not value:
        raise wrong("its constant holds nothing; write a value or leave the feature out")
    rows = [_unnested(item) for item in value]
    sides = rows[0][0]
    if any(other != sides for other, _ in rows):
        raise wrong("its constant's rows have different lengths; make them equal")
    return (len(value), *sides), [item for _, items in rows for item in items]
