"""Encodes values as the bytes of a feature and decodes them: base64 and serialized tensors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

from shardwright.schemas.codes import FindingCode
from shardwright.schemas.errors import words_of
from shardwright.schemas.example import Feature, FeatureType, parse_tensor, serialize_tensor
from shardwright.schemas.layouts import Encoding, FeatureSpec

_TYPES = {"float32": FeatureType.FLOAT, "float64": FeatureType.FLOAT, "object": FeatureType.BYTES}


class WrongEncoding(ValueError):
    """A feature whose bytes do not follow its encoding.

    Attributes:
      code: Code of the finding.
    """

    def __init__(self, code: FindingCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def encoded_values(spec: FeatureSpec, values: Sequence[Any], picture: tuple[int, int, int]) -> Sequence[Any]:
    """Returns values as the record stores them.

    Args:
      spec: Specification of the feature, which has an encoding other than plain.
      values: Values of the feature.
      picture: Height, width and channels of the stored picture.
    """
    if spec.encoding is Encoding.BASE64:
        return [base64.urlsafe_b64encode(value) for value in values]
    if spec.holds_pixels:
        return [serialize_tensor(values[0], spec.dtype, picture)]
    known_size = prod(side for side in spec.tensor_shape if side is not None)
    shape = [len(values) // known_size if side is None else side for side in spec.tensor_shape]
    return [serialize_tensor(values, spec.dtype, shape)]


@lru_cache(maxsize=1024)
def plain_spec(spec: FeatureSpec) -> FeatureSpec:
    """Returns the specification of a feature without its encoding."""
    if spec.encoding is not Encoding.TENSOR:
        return replace(spec, encoding=Encoding.PLAIN)
    shape = () if spec.holds_pixels else spec.tensor_shape
    type_ = FeatureType.BYTES if spec.holds_pixels else _TYPES.get(spec.dtype, FeatureType.INT64)
    return replace(spec, type=type_, shape=shape, encoding=Encoding.PLAIN, dtype="", tensor_shape=())


def plain_feature(spec: FeatureSpec, feature: Feature) -> Feature:
    """Decodes the values of a feature.

    Raises:
      WrongEncoding: If the encoding, type or shape is wrong.
    """
    if spec.encoding is Encoding.BASE64:
        try:
            # Python accepts them, but TensorFlow does not.
            if any(b"+" in value or b"/" in value for value in feature.values):
                raise binascii.Error("+ and / are not URL-safe")
            return Feature(
                spec.type, [base64.b64decode(value, b"-_", validate=True) for value in feature.values]
            )
        except (binascii.Error, TypeError) as error:
            raise WrongEncoding(
                FindingCode.UNDECODABLE, f"feature {spec.name!r} is not URL-safe base64: {words_of(error)}"
            ) from None
    if spec.encoding is not Encoding.TENSOR or not feature.values:
        return feature
    try:
        tensor = parse_tensor(feature.values[0])
    except (ValueError, TypeError) as error:
        raise WrongEncoding(
            FindingCode.UNDECODABLE, f"feature {spec.name!r} is not a serialized tensor: {words_of(error)}"
        ) from None
    if tensor.dtype != spec.dtype:
        raise WrongEncoding(
            FindingCode.WRONG_TYPE, f"the tensor in {spec.name!r} is {tensor.dtype}, not {spec.dtype}"
        )
    sides = spec.tensor_shape
    if len(sides) != len(tensor.shape) or any(a not in (None, b) for a, b in zip(sides, tensor.shape)):
        expected = tuple("any" if side is None else side for side in sides)
        raise WrongEncoding(
            FindingCode.WRONG_SHAPE, f"the tensor in {spec.name!r} has shape {tensor.shape}, not {expected}"
        )
    plain = plain_spec(spec)
    return Feature(plain.type, [tensor.content] if spec.holds_pixels else tensor.values)
