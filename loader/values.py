"""Reads the values of a record's features as Python and NumPy objects, without TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from shardwright.core.records.encodings import plain_feature
from shardwright.schemas.example import Feature, FeatureType, ParsedExample
from shardwright.schemas.layouts import Encoding, FeatureSpec
from shardwright.schemas.parsing import ParsingKind, parsing_of
from shardwright.schemas.tensor_proto import parse_tensor
from shardwright.schemas.units import counted

#: A single value of a record, or an array of several.
Value = Any

_NUMPY_TYPES: Mapping[FeatureType, np.dtype[Any]] = {
    FeatureType.INT64: np.dtype(np.int64),
    FeatureType.FLOAT: np.dtype(np.float32),
    FeatureType.BYTES: np.dtype(object),
}


class FeatureReader:
    """Reads one feature of records.

    Args:
      spec: The feature.
    """

    def __init__(self, spec: FeatureSpec) -> None:
        self.spec = spec
        parsing = parsing_of(spec)
        self._default = parsing.default
        self._single = spec.shape == ()
        self._shape = (-1, *parsing.shape) if parsing.kind is ParsingKind.SEQUENCE else parsing.shape
        self._dtype = _NUMPY_TYPES[spec.type]
        self._plain = self._single and spec.encoding is Encoding.PLAIN

    def read(self, example: ParsedExample) -> Value:
        """Returns the feature's value: bytes, int or float, or an array of its shape.

        Base64 is decoded, and serialized tensors become arrays. A missing optional feature is an empty list,
        or -1 or b"" for a single value.

        Raises:
          ValueError: If the record's value does not match the layout.
        """
        spec = self.spec
        found = example.feature(spec.name)
        values = found.values
        if self._plain and len(values) == 1 and found.type is spec.type:
            return values[0]
        values = self._checked(found)
        if spec.encoding is Encoding.TENSOR:
            return read_tensor(values[0])
        if spec.encoding is Encoding.BASE64:
            values = plain_feature(spec, found).values or values  # a missing feature has a default
        if self._single:
            return values[0]
        array = np.empty(len(values), self._dtype)
        array[:] = values
        return array.reshape(self._shape)

    def _checked(self, found: Feature) -> Sequence[Any]:
        """Returns values after checking their type and number."""
        spec, values = self.spec, found.values
        if found.type is None:
            if self._shape[:1] == (-1,):
                return ()
            if self._default is None:
                raise ValueError(f"feature {spec.name!r} is missing")
            return self._default if isinstance(self._default, tuple) else (self._default,)
        if found.type is not spec.type:
            raise ValueError(f"feature {spec.name!r} is {found.type.value}, not {spec.type.value}")
        known = prod(side for side in self._shape if side != -1)
        fits = len(values) % known == 0 if self._shape[:1] == (-1,) and known else len(values) == known
        if not fits:
            raise ValueError(f"feature {spec.name!r} has {counted(len(values), 'value')}, not {known}")
        return values


def read_tensor(data: bytes) -> Value:
    """Returns the array in a serialized `TensorProto`; a text without dimensions is returned as bytes.

    Raises:
      ValueError: If it is not a `TensorProto`, or has a type that layouts do not support.
    """
    tensor = parse_tensor(data)
    if isinstance(tensor.content, list):
        if not tensor.shape:
            return tensor.content[0]
        array = np.empty(len(tensor.content), object)
        array[:] = tensor.content
        return array.reshape(tensor.shape)
    dtype = np.dtype(tensor.dtype).newbyteorder("<")
    return np.frombuffer(tensor.content, dtype).astype(tensor.dtype).reshape(tensor.shape)
