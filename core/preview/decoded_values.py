"""Decodes the base64 values and serialized tensors of a record. Needs neither NumPy nor Pillow."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from shardwright.core.records.encodings import WrongEncoding, plain_feature
from shardwright.core.records.record_schema import RecordSchema
from shardwright.schemas.example import Feature
from shardwright.schemas.layouts import Encoding, FeatureRole


def without_encodings(example: Mapping[str, Feature], schema: RecordSchema) -> dict[str, Feature]:
    """Returns the features with base64 values and serialized tensors decoded; other values stay unchanged."""
    plain = dict(example)
    for spec in schema.features:
        if spec.encoding is not Encoding.PLAIN and spec.name in example:
            with contextlib.suppress(WrongEncoding):
                plain[spec.name] = plain_feature(spec, example[spec.name])
    return plain


def is_bare_pixels(example: Mapping[str, Feature], schema: RecordSchema) -> bool:
    """Returns whether a record's image is raw pixels, according to its format or to the schema."""
    stored = schema.spec(FeatureRole.FORMAT)
    if stored is not None and stored.name in example:
        return list(example[stored.name].values) == [b"raw"]
    return schema.pixels is not None or sample_type(example, schema) == "float32"


def sample_type(example: Mapping[str, Feature], schema: RecordSchema) -> str:
    """Returns the type of the samples that the layout or a record states; empty if they state none."""
    encoded = schema.spec(FeatureRole.ENCODED)
    if encoded is not None and encoded.pixel_type:
        return encoded.pixel_type
    dtype_spec = schema.spec(FeatureRole.DTYPE)
    feature = example.get(dtype_spec.name) if dtype_spec is not None else None
    value = feature.values[0] if feature is not None and len(feature.values) == 1 else b""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
