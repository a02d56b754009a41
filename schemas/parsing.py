"""How a reader parses the features of a layout: the class and arguments in `tf.io` for each feature.

The loader, the generated `parse.py` and the command `layouts` all use this table. It is data, so creating and
printing it does not need TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import prod

from shardwright.schemas.example import FeatureType, serialize_tensor
from shardwright.schemas.layouts import Encoding, FeatureSpec

#: One value of a feature.
Value = int | float | bytes


class ParsingKind(StrEnum):
    """The class of `tf.io` that describes a feature."""

    FIXED = "FixedLenFeature"  # the same number of values in each record, in the given shape
    SEQUENCE = "FixedLenSequenceFeature"  # any number of elements of the given shape; none if absent


@dataclass(frozen=True)
class Parsing:
    """The arguments for `tf.io.parse_single_example` about one feature.

    Attributes:
      kind: Class in `tf.io`.
      shape: Shape of the value, or of one element of a sequence; () for scalars.
      dtype: TensorFlow's name of the stored type: int64, float32 or string.
      default: Value if the feature is absent: one value, or one per element of the shape. None if the feature
        is required, and for sequences, which are empty then.
    """

    kind: ParsingKind
    shape: tuple[int, ...]
    dtype: str
    default: Value | tuple[Value, ...] | None = None


#: Kind of list -> TensorFlow's name of the type of its values.
DTYPES = {FeatureType.INT64: "int64", FeatureType.FLOAT: "float32", FeatureType.BYTES: "string"}
#: Value of an optional single feature if it is absent: -1, as for images without a class.
_ABSENT: dict[FeatureType, Value] = {FeatureType.INT64: -1, FeatureType.FLOAT: -1.0, FeatureType.BYTES: b""}


def parsing_of(spec: FeatureSpec) -> Parsing:
    """Returns how a feature is parsed.

    A feature of fixed shape must be in every record unless it is optional. One with any number of values may
    be absent, empty or full. If another size than the first varies, the record does not say where a row ends,
    so the values come in one flat list.
    """
    dtype = DTYPES[spec.type]
    if spec.encoding is Encoding.TENSOR:  # the bytes contain its shape
        return Parsing(ParsingKind.FIXED, (), dtype, _absent_tensor(spec) if spec.optional else None)
    sizes = tuple(size for size in spec.shape if size is not None)
    if sizes != spec.shape:
        return Parsing(ParsingKind.SEQUENCE, () if None in spec.shape[1:] else sizes, dtype)
    absent = _ABSENT[spec.type]
    default = (absent if sizes == () else (absent,) * prod(sizes)) if spec.optional else None
    return Parsing(ParsingKind.FIXED, sizes, dtype, default)


def _absent_tensor(spec: FeatureSpec) -> bytes:
    """Returns a serialized tensor for an absent value, because `tf.io.parse_tensor` refuses an empty text.

    It has the declared shape, where sizes that vary are 0, and each value is -1, 0 or an empty text.
    """
    shape = tuple(size or 0 for size in spec.tensor_shape)
    absent: Value = b"" if spec.dtype == "object" else 0 if spec.dtype.startswith(("bool", "uint")) else -1
    return serialize_tensor([absent] * prod(shape), spec.dtype, shape)


def parsing_source(parsing: Parsing) -> str:
    """Returns a Python expression for the arguments, such as `tf.io.FixedLenFeature([], tf.int64)`."""
    arguments = [str(list(parsing.shape)), f"tf.{parsing.dtype}"]
    if parsing.kind is ParsingKind.SEQUENCE:
        arguments.append("allow_missing=True")
    if isinstance(parsing.default, tuple):
        arguments.append(f"default_value=[{', '.join(map(_literal, parsing.default))}]")
    elif parsing.default is not None:
        arguments.append(f"default_value={_literal(parsing.default)}")
    return f"tf.io.{parsing.kind.value}({', '.join(arguments)})"


def spec_source(features: Iterable[FeatureSpec]) -> str:
    """Returns a Python statement that describes all features, for people to copy."""
    lines = (f"    {quoted(spec.name)}: {parsing_source(parsing_of(spec))},\n" for spec in features)
    return f"features = {{\n{''.join(lines)}}}\n"


def _literal(value: Value) -> str:
    if isinstance(value, bytes):
        return repr(value) if b'"' in value else f'b"{repr(value)[2:-1]}"'
    return repr(value)


def quoted(text: str) -> str:
    """Returns a text as a Python literal, in double quotes if that needs no escapes."""
    return repr(text) if '"' in text else f'"{repr(text)[1:-1]}"'
