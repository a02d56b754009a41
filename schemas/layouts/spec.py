"""The parts of a layout: named features, and the role that fills each of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from shardwright.schemas.columns import ExtraColumn
from shardwright.schemas.errors import UsageError
from shardwright.schemas.example import FeatureType
from shardwright.schemas.feature_roles import FEATURE_ROLES, FeatureRole, Needs
from shardwright.schemas.values import ValueType


class Encoding(StrEnum):
    """How a value becomes the bytes of a feature."""

    PLAIN = "plain"  # unchanged
    BASE64 = "base64"  # URL-safe base64 with padding, of bytes
    TENSOR = "tensor"  # tf.io.serialize_tensor's TensorProto, which tf.io.parse_tensor reads


@dataclass(frozen=True)
class FeatureSpec:
    """One feature of a layout.

    Attributes:
      name: Key in `tf.train.Example`.
      type: bytes, float or int64, as the record stores it.
      shape: Number of values per dimension. () is one value, (None,) any number, (None, 4) any number of
        groups of four in one flat list.
      fill: Role of its values; None for features inferred from records of unknown origin.
      optional: Whether records leave it out if the source has no value.
      encoding: How the value becomes bytes.
      dtype: NumPy's name of the type inside a serialized tensor (`object` for texts), or of the bare pixels
        of every record; else empty.
      tensor_shape: Shape of a serialized tensor, None for any number; () for a single value.
      value_type: Declared type (`ValueType`) of an extra column or a constant, else empty.
      value: Values of a constant; for a column of type enum, the names of its numbers.
      column: Name of an extra column in the source, if it differs from the feature's name.
    """

    name: str
    type: FeatureType
    shape: tuple[int | None, ...] = ()
    fill: FeatureRole | None = None
    optional: bool = False
    encoding: Encoding = Encoding.PLAIN
    dtype: str = ""
    tensor_shape: tuple[int | None, ...] = ()
    value_type: str = ""
    value: tuple[Any, ...] = ()
    column: str = ""

    @property
    def value_shape(self) -> tuple[int | None, ...]:
        """Shape of its values, also if they are in a serialized tensor."""
        return self.tensor_shape if self.encoding is Encoding.TENSOR else self.shape

    @property
    def holds_pixels(self) -> bool:
        """Whether it is a serialized tensor of a picture's pixels."""
        return self.fill is FeatureRole.ENCODED and self.encoding is Encoding.TENSOR and self.dtype == "uint8"

    @property
    def pixel_type(self) -> str:
        """Sample type of the bare pixels of every record; empty if the layout does not state one."""
        is_bare = self.fill is FeatureRole.ENCODED and self.encoding is not Encoding.TENSOR
        return self.dtype if is_bare else ""

    @property
    def length(self) -> int | None:
        """Number of values in a record; None if it varies."""
        product = 1
        for size in self.shape:
            if size is None:
                return None
            product *= size
        return product


@dataclass(frozen=True)
class Layout:
    """A named set of features.

    Attributes:
      name: Name for `--layout`.
      features: Features of each record.
      first_label: Id of the first class.
      needs: Kind of annotations that the source must have.
      format_names: Format -> the name that the layout's readers use, if it is not jpg, png, webp or raw.
      pixels: Whether it stores raw pixels instead of image files.
      summary: One sentence about the layout and its readers.
    """

    name: str
    features: tuple[FeatureSpec, ...]
    first_label: int = 0
    needs: Needs = Needs.LABEL
    format_names: Mapping[str, str] = field(default_factory=dict)
    pixels: bool = False
    summary: str = ""

    def by_role(self) -> Mapping[FeatureRole, FeatureSpec]:
        """Returns the features by role; if several have the same role, prefers one that every record has."""
        return self._by_role

    @cached_property
    def _by_role(self) -> Mapping[FeatureRole, FeatureSpec]:
        optional_first = sorted(self.features, key=lambda spec: not spec.optional)
        return {spec.fill: spec for spec in optional_first if spec.fill is not None}

    @property
    def columns(self) -> tuple[ExtraColumn, ...]:
        """The columns of the source that it stores, each once; required if any feature requires it.

        Raises:
          UsageError: If two features contradict each other about a column.
        """
        named: dict[str, tuple[ExtraColumn, str]] = {}
        for spec in self.features:
            if spec.fill is not FeatureRole.EXTRA:
                continue
            column = column_of(spec)
            known, first = named.get(column.name, (column, spec.name))
            if column._replace(optional=known.optional) != known:
                raise UsageError(
                    f"--layout {self.name}: features {first!r} and {spec.name!r} read the column "
                    f"{column.name!r} as different types; give them the same type, values and shape, "
                    "and doubles and uint64 the same tensor."
                )
            named[column.name] = column._replace(optional=known.optional and column.optional), first
        return tuple(column for column, _ in named.values())

    @property
    def stores_size(self) -> bool:
        """Whether records state the stored picture's height and width."""
        roles = self.by_role().keys()
        return self._has_shape or {FeatureRole.HEIGHT, FeatureRole.WIDTH} <= roles

    @property
    def stores_channels(self) -> bool:
        """Whether records state the stored picture's number of channels."""
        return self._has_shape or FeatureRole.CHANNELS in self.by_role()

    @cached_property
    def pixel_type(self) -> str:
        """Sample type of the bare pixels of every record; empty if it does not state one."""
        encoded = self.by_role().get(FeatureRole.ENCODED)
        return encoded.pixel_type if encoded is not None else ""

    @property
    def _has_shape(self) -> bool:
        """Whether a feature contains height, width and channels: as its value, or as a tensor's shape."""
        return any(spec.fill is FeatureRole.SHAPE or spec.holds_pixels for spec in self.features)


_EACH = (None,)


def column_of(spec: FeatureSpec) -> ExtraColumn:
    """Returns the source's column for a feature."""
    shape = spec.value_shape
    return ExtraColumn(
        name=spec.column or spec.name,
        value_type=ValueType(spec.value_type or spec.type),
        is_list=shape != (),
        names=spec.value,
        optional=spec.optional,
        wide=spec.dtype in ("float64", "uint64"),
        rows=shape if len(shape) > 1 else (),
    )


def extended(
    layout: Layout,
    columns: Sequence[ExtraColumn],
    several_labels: bool,
    folds: bool = False,
    dtype: bool = False,
    one_size: bool = False,
) -> Layout:
    """Returns a layout with further features.

    Args:
      layout: A layout.
      columns: Extra columns to store.
      several_labels: Whether an image may have several classes.
      folds: Whether records store their fold.
      dtype: Whether records store the type and the shape of their picture.
      one_size: Whether all pictures have the same height and width, so that they need not be stored.

    Raises:
      UsageError: If a column has the name of a feature of the layout, or another type there.
    """
    if dtype:
        layout = _with_dtype(layout, one_size)
    if folds and FeatureRole.FOLD not in layout.by_role():
        nested = any(spec.name.startswith("image/") for spec in layout.features)
        fold = FeatureSpec("image/fold" if nested else "fold", FeatureType.INT64, (), FeatureRole.FOLD)
        layout = replace(layout, features=(*layout.features, fold))
    taken = {spec.name for spec in layout.features}
    for column in columns:
        if column.name in taken:
            raise UsageError(
                f"--extra_columns {column.name}: layout {layout.name} has a feature of that name; "
                "rename the column."
            )
    extra = (
        FeatureSpec(
            column.name, column.type, _EACH if column.is_list else (), FeatureRole.EXTRA,
            value_type=column.value_type,
        )
        for column in columns
    )  # fmt: skip
    several = (FeatureRole.LABEL, FeatureRole.LABEL_TEXT, FeatureRole.SYNSET) if several_labels else ()
    features = (_several(spec) if spec.fill in several else spec for spec in layout.features)
    return replace(layout, features=(*features, *extra))


def _with_dtype(layout: Layout, one_size: bool) -> Layout:
    """Returns a layout that also stores the type of the samples, and the shape, unless they are known."""
    wanted = [] if layout.pixel_type else [FeatureRole.DTYPE]
    if not layout.stores_channels:
        wanted.append(FeatureRole.CHANNELS)
    if not layout.stores_size and not one_size:
        wanted += [FeatureRole.HEIGHT, FeatureRole.WIDTH]
    names = {spec.name for spec in layout.features}
    prefix = "image/" if any(name.startswith("image/") for name in names) else ""
    added = []
    for role in wanted:
        if role in layout.by_role():
            continue
        info, name = FEATURE_ROLES[role], f"{prefix}{role.value}"
        if name in names:
            raise UsageError(
                f"Layout {layout.name} has a feature {name!r} that is not the picture's {role.value}, which "
                "--depth keep and --channels store; rename the feature."
            )
        added.append(FeatureSpec(name, info.type, info.shape, role))
    return replace(layout, features=(*layout.features, *added))


def _several(spec: FeatureSpec) -> FeatureSpec:
    """Returns the feature with any number of values instead of one."""
    if spec.encoding is Encoding.TENSOR:
        return replace(spec, tensor_shape=_EACH)
    return replace(spec, shape=_EACH)


_ALWAYS_STORED = ("name", "type", "shape", "fill")


def features_json(features: Sequence[FeatureSpec]) -> list[dict[str, Any]]:
    """Returns the features as `dataset.json` stores them: without default values."""
    return [
        {
            item.name: _plain(getattr(spec, item.name))
            for item in fields(spec)
            if item.name in _ALWAYS_STORED or getattr(spec, item.name) != item.default
        }
        for spec in features
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return [item.decode() if isinstance(item, bytes) else item for item in value]
    return value


def features_from_json(value: Sequence[Mapping[str, Any]]) -> tuple[FeatureSpec, ...]:
    """Reads the result of `features_json`."""
    return tuple(_feature_from_json(item) for item in value)


def _feature_from_json(item: Mapping[str, Any]) -> FeatureSpec:
    fill = FeatureRole(item["fill"]) if item.get("fill") else None
    values = tuple(item.get("value", ()))
    if fill is FeatureRole.CONSTANT:  # for a column, these are the names of an enum
        values = tuple(value.encode() if isinstance(value, str) else value for value in values)
    return FeatureSpec(
        name=str(item["name"]),
        type=FeatureType(item["type"]),
        shape=tuple(item["shape"]),
        fill=fill,
        optional=bool(item.get("optional", False)),
        encoding=Encoding(item.get("encoding", Encoding.PLAIN)),
        dtype=str(item.get("dtype", "")),
        tensor_shape=tuple(item.get("tensor_shape", ())),
        value_type=str(item.get("value_type", "")),
        value=values,
        column=str(item.get("column", "")),
    )


def layout_json(layout: Layout) -> dict[str, Any]:
    """Returns a custom layout as the settings of a dataset store it."""
    return {
        "name": layout.name,
        "first_label": layout.first_label,
        "needs": layout.needs.value,
        "format_names": dict(layout.format_names),
        "pixels": layout.pixels,
        "features": features_json(layout.features),
    }


def layout_from_json(value: Mapping[str, Any]) -> Layout:
    """Reads the result of `layout_json`."""
    return Layout(
        name=str(value["name"]),
        features=features_from_json(value["features"]),
        first_label=int(value["first_label"]),
        needs=Needs(value["needs"]),
        format_names=dict(value["format_names"]),
        pixels=bool(value["pixels"]),
        summary="a layout of your own",
    )


def inline_layout(layout: Layout) -> str:
    """Returns a layout as a value of the setting `layout`, so that workers do not need its file."""
    return json.dumps(layout_json(layout), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
