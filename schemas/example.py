"""Reads and writes serialized `tf.train.Example` and `TensorProto` messages without TensorFlow.

The message is `Example { Features features = 1 }`, `Features { map<string, Feature> feature = 1 }`
and `Feature { oneof { BytesList = 1, FloatList = 2, Int64List = 3 } }`, where each list holds `repeated value
= 1`, with numbers packed (tensorflow/core/example/feature.proto). Features are written in the order of their
names' UTF-8 bytes, as TensorFlow's deterministic serialization does. If one name is a prefix of another, the
shorter name comes first, as in C++; Python's protobuf writes it last.

A tensor is `{ DataType dtype = 1, TensorShapeProto tensor_shape = 2, bytes tensor_content = 4,
repeated bytes string_val = 8 }` and its shape `{ repeated Dim { int64 size = 1 } dim = 2 }`
(tensorflow/core/framework/tensor.proto, tensor_shape.proto, types.proto), as `tf.io.parse_tensor` and
`tf.io.serialize_tensor` read and write them.

Protobuf's C parser reads the messages. The descriptor is built here, because the generated one
is a part of TensorFlow. It declares the map as what it is on the wire, a list of entries, which keeps the
order and is faster to read.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from math import prod
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

#: Wire types.
VARINT, LENGTH = 0, 2
#: Wire type of numbers with 64 or 32 bits -> bytes.
_FIXED_LENGTHS = {1: 8, 5: 4}
_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def write_varint(value: int) -> bytes:
    """Returns a number below 2^64 in the encoding of protobuf."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns (number, position after it); raises ValueError or IndexError if it is malformed."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
        if shift > 63:
            raise ValueError("a varint has more than ten bytes")


def fields_in(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields (field number, wire type, begin, end) for each field of a message, also for those in groups.

    Only protobuf's parser tells whether the message is sound.

    Raises:
      ValueError: Or IndexError, if it is malformed.
    """
    while position < end:
        tag, begin = read_varint(data, position)
        wire = tag & 7
        length = _FIXED_LENGTHS.get(wire, 0)
        if wire == LENGTH:
            length, begin = read_varint(data, begin)
        elif wire == VARINT:
            length = read_varint(data, begin)[1] - begin
        position = begin + length
        yield tag >> 3, wire, begin, position


class FeatureType(StrEnum):
    """The three kinds of list that a feature can hold."""

    BYTES = "bytes"
    FLOAT = "float"
    INT64 = "int64"


class Feature(NamedTuple):
    """A feature's kind and its values, in order; `type` is None if the feature has no kind."""

    type: FeatureType | None
    values: Sequence[Any]


_FIELD_OF = {FeatureType.BYTES: 1, FeatureType.FLOAT: 2, FeatureType.INT64: 3}
_KIND_OF = {f"{kind}_list": kind for kind in FeatureType}
#: Package of the descriptor, in a pool of its own, so that it never meets the package of TensorFlow.
_PROTO_PACKAGE = "shardwright"


def _feature_parts(feature: Feature) -> list[bytes]:
    """Returns a Feature message in pieces, so that a large image is copied only once."""
    if feature.type is None:
        return []
    parts: list[bytes] = []
    if feature.type is FeatureType.BYTES:
        for value in feature.values:
            parts += (b"\x0a", write_varint(len(value)), value)
    elif len(feature.values):
        if feature.type is FeatureType.FLOAT:
            packed = struct.pack(f"<{len(feature.values)}f", *feature.values)
        else:
            packed = b"".join(write_varint(int(value) & 0xFFFFFFFFFFFFFFFF) for value in feature.values)
        parts = [b"\x0a", write_varint(len(packed)), packed]
    length = sum(map(len, parts))
    return [write_varint(_FIELD_OF[feature.type] << 3 | LENGTH), write_varint(length), *parts]


def encode_example(features: Mapping[str, Feature]) -> bytes:
    """Serializes features as `tf.train.Example`, equal to TensorFlow's deterministic bytes."""
    entries: list[bytes] = []
    for name in sorted(features, key=str.encode):
        feature = _feature_parts(features[name])
        length = sum(map(len, feature))
        head = b"".join((_field(1, name.encode()), b"\x12", write_varint(length)))
        entries += (b"\x0a", write_varint(len(head) + length), head, *feature)
    return b"".join((b"\x0a", write_varint(sum(map(len, entries))), *entries))


#: Held while messages are parsed and read: protobuf's parser has crashed while several threads used it at
#: once. It holds Python's lock anyway, so this costs no time.
PARSING = threading.RLock()


@cache
def _messages() -> Mapping[str, type[Any]]:
    """Returns the message classes `Example` and `TensorProto`."""
    # The command `layouts` starts without it.
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package=_PROTO_PACKAGE, syntax="proto3")
    one, many = kind.LABEL_OPTIONAL, kind.LABEL_REPEATED

    def add(message: str, **fields: tuple[int, int, int | str]) -> Any:
        declared = file.message_type.add(name=message)
        for name, (number, label, type_) in fields.items():
            field = declared.field.add(name=name, number=number, label=label)
            if isinstance(type_, str):
                field.type, field.type_name = kind.TYPE_MESSAGE, f".{_PROTO_PACKAGE}.{type_}"
            else:
                field.type = type_
        return declared

    add("BytesList", value=(1, many, kind.TYPE_BYTES))
    add("FloatList", value=(1, many, kind.TYPE_FLOAT))
    add("Int64List", value=(1, many, kind.TYPE_INT64))
    feature = add(
        "Feature",
        bytes_list=(1, one, "BytesList"),
        float_list=(2, one, "FloatList"),
        int64_list=(3, one, "Int64List"),
    )
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    add("Entry", key=(1, one, kind.TYPE_STRING), value=(2, one, "Feature"))
    add("Features", feature=(1, many, "Entry"))
    add("Example", features=(1, one, "Features"))
    add("Dim", size=(1, one, kind.TYPE_UINT64))
    add("TensorShapeProto", dim=(2, many, "Dim"))
    add(
        "TensorProto",
        dtype=(1, one, kind.TYPE_UINT64),
        tensor_shape=(2, one, "TensorShapeProto"),
        tensor_content=(4, one, kind.TYPE_BYTES),
        string_val=(8, many, kind.TYPE_BYTES),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PROTO_PACKAGE}.{name}"))
        for name in ("Example", "TensorProto")
    }


def parse_message(name: str, data: bytes) -> Any:
    """Returns an `Example` or a `TensorProto`, which owns the memory of the messages in it.

    Raises:
      ValueError: If it is malformed.
    """
    try:
        with PARSING:
            return _messages()[name].FromString(data)
    except DecodeError:
        raise ValueError("its bytes are not a sound message, perhaps because some are missing") from None


def parse_example(data: bytes) -> dict[str, Feature]:
    """Parses a serialized `tf.train.Example`.

    Raises:
      ValueError: If the bytes are not such a message.
    """
    with PARSING:
        message = parse_message("Example", data)
        # If a name occurs twice, the last wins.
        return {entry.key: _feature(entry.value) for entry in message.features.feature}


def _feature(message: Any) -> Feature:
    """Returns the content of a `Feature` message."""
    kind = message.WhichOneof("kind")
    return Feature(_KIND_OF[kind], getattr(message, kind).value[:]) if kind else Feature(None, [])


class ParsedExample:
    """The features of a record. Values are copied only when they are asked for.

    Args:
      data: The serialized `tf.train.Example`.

    Attributes:
      features: Name -> `Feature` message.

    Raises:
      ValueError: If the bytes are not such a message.
    """

    __slots__ = ("_message", "features")

    def __init__(self, data: bytes) -> None:
        with PARSING:
            self._message = parse_message("Example", data)
            # If a name occurs twice, the last wins.
            self.features = {entry.key: entry.value for entry in self._message.features.feature}

    def list_in(self, name: str) -> tuple[FeatureType | None, Any]:
        """Returns the kind of a feature and its list; None if it is absent or has no kind."""
        message = self.features.get(name)
        with PARSING:
            kind = None if message is None else message.WhichOneof("kind")
            return (_KIND_OF[kind], getattr(message, kind)) if kind else (None, None)

    def feature(self, name: str) -> Feature:
        """Returns a feature with its values."""
        message = self.features.get(name)
        with PARSING:
            return Feature(None, []) if message is None else _feature(message)


#: NumPy's name of a type -> (TensorFlow's number for it, letter for `struct`).
_TYPES: Mapping[str, tuple[int, str]] = {
    "float32": (1, "f"),
    "float64": (2, "d"),
    "int32": (3, "i"),
    "uint8": (4, "B"),
    "int16": (5, "h"),
    "int8": (6, "b"),
    "object": (7, ""),
    "int64": (9, "q"),
    "bool": (10, "?"),
    "uint16": (17, "H"),
    "float16": (19, "e"),
    "uint32": (22, "I"),
    "uint64": (23, "Q"),
}
_BY_NUMBER = {number: (dtype, letter) for dtype, (number, letter) in _TYPES.items()}


class Tensor(NamedTuple):
    """A tensor: NumPy's name of its type, its shape, and its content.

    The content is the numbers in row order, little endian, or a list of bytes for texts (`object`).
    """

    dtype: str
    shape: tuple[int, ...]
    content: bytes | list[bytes]

    @property
    def values(self) -> Sequence[Any]:
        """The values in row order."""
        if isinstance(self.content, list):
            return self.content
        _, letter = _TYPES[self.dtype]
        return struct.unpack(f"<{prod(self.shape)}{letter}", self.content)


def serialize_tensor(values: Sequence[Any] | bytes, dtype: str, shape: Sequence[int]) -> bytes:
    """Returns the bytes that TensorFlow would write for a tensor.

    Args:
      values: Values in row order; bytes for uint8, or a sequence of bytes for `object`.
      dtype: NumPy's name of their type, `object` for texts.
      shape: Size of each dimension.

    Raises:
      ValueError: If the number of values does not match the shape.
    """
    count = prod(shape)
    if len(values) != count:
        raise ValueError(f"{len(values)} values do not fill a tensor of shape {tuple(shape)}")
    number, letter = _TYPES[dtype]
    dims = b"".join(_field(2, b"\x08" + write_varint(side) if side else b"") for side in shape)
    head = b"\x08" + write_varint(number) + _field(2, dims)
    if dtype == "object":
        return head + b"".join(_field(8, bytes(value)) for value in values)
    content = values if isinstance(values, bytes) else struct.pack(f"<{count}{letter}", *values)
    return head + _field(4, content) if content else head


def parse_tensor(data: bytes) -> Tensor:
    """Reads the result of `serialize_tensor`, or of TensorFlow's function of that name.

    Raises:
      ValueError: If it is not such a tensor.
    """
    with PARSING:
        tensor = parse_message("TensorProto", data)
        number, content, texts = tensor.dtype, tensor.tensor_content, list(tensor.string_val)
        sides = tuple(dim.size for dim in tensor.tensor_shape.dim)
    if number not in _BY_NUMBER:
        raise ValueError(f"type {number} of TensorFlow is not among those that are read")
    dtype, letter = _BY_NUMBER[number]
    values, size = (texts, 1) if dtype == "object" else (content, struct.calcsize(f"<{letter}"))
    if len(values) != prod(sides) * size:
        raise ValueError(f"its content does not fill its shape {sides}")
    return Tensor(dtype, sides, values)


def _field(number: int, content: bytes) -> bytes:
    return b"".join((write_varint(number << 3 | 2), write_varint(len(content)), content))
