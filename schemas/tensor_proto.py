"""Reads and writes `TensorProto` messages, as `tf.io.parse_tensor` and `tf.io.serialize_tensor` do.

The message is `{ DataType dtype = 1, TensorShapeProto tensor_shape = 2, bytes tensor_content = 4,
repeated bytes string_val = 8 }` and the shape `{ repeated Dim { int64 size = 1 } dim = 2 }`
(tensorflow/core/framework/tensor.proto, tensor_shape.proto, types.proto).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from shardwright.schemas.example import PARSING, parse_message, write_varint

#: NumPy's name of a type -> (TensorFlow's number for it, letter for `struct`).
_TYPES: Mapping[str, tuple[int, str]] = {
    "float32": (1, "f"),
    "float64": (2, "d"),
    "int32": (3, "i"),
    "uint8": (4, "B"),
    "object": (7, ""),
    "int64": (9, "q"),
    "bool": (10, "?"),
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
    """Reads the result of `serialize_tensor`.

    Raises:
      ValueError: If it is not such a tensor.
    """
    number, sides, content, texts = tensor_parts(data)
    if number not in _BY_NUMBER:
        raise ValueError(f"type {number} of TensorFlow is not among those that are read")
    dtype, letter = _BY_NUMBER[number]
    count = prod(sides)
    there = len(texts) if dtype == "object" else len(content)
    if there != count * (1 if dtype == "object" else struct.calcsize(f"<{letter}")):
        raise ValueError(f"its content does not fill its shape {sides}")
    return Tensor(dtype, sides, texts if dtype == "object" else content)


def tensor_parts(data: bytes) -> tuple[int, tuple[int, ...], bytes, list[bytes]]:
    """Returns TensorFlow's number for the type of a serialized tensor, its shape, its numbers and its texts.

    Raises:
      ValueError: If it is malformed; nothing checks that the parts belong together.
    """
    with PARSING:
        tensor = parse_message("TensorProto", data)
        sides = tuple(dim.size for dim in tensor.tensor_shape.dim)
        return tensor.dtype, sides, tensor.tensor_content, list(tensor.string_val)


def _field(number: int, content: bytes) -> bytes:
    return b"".join((write_varint(number << 3 | 2), write_varint(len(content)), content))
