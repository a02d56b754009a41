"""Features in base64 or serialized tensors are read as their content, whatever it is."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shardwright.core.records.encodings import encoded_values, plain_spec
from shardwright.core.sources.tfrecord.record import SourceRecord
from shardwright.schemas.byte_range import BASE64, STORED
from shardwright.schemas.example import Feature, FeatureType, encode_example
from shardwright.schemas.layouts import Encoding, FeatureRole, FeatureSpec

_TEXTS = FeatureSpec(
    "x",
    FeatureType.BYTES,
    (),
    FeatureRole.CAPTION,
    encoding=Encoding.TENSOR,
    dtype="object",
    tensor_shape=(None,),
)
_NUMBERS = FeatureSpec(
    "x",
    FeatureType.BYTES,
    (),
    FeatureRole.BOXES,
    encoding=Encoding.TENSOR,
    dtype="float32",
    tensor_shape=(None, 4),
)
_BASE64 = FeatureSpec("x", FeatureType.BYTES, (None,), FeatureRole.CAPTION, encoding=Encoding.BASE64)
_FLOATS = st.floats(width=32, allow_nan=False)


def record_of(spec: FeatureSpec, values: list[Any]) -> SourceRecord:
    """Returns a record with an encoded feature between others."""
    stored = Feature(spec.type, encoded_values(spec, values, (1, 1, 1)))
    filler = Feature(FeatureType.BYTES, [b"filler"])
    return SourceRecord(encode_example({"a": filler, spec.name: stored, "z": filler}), {spec.name: spec})


@given(st.sampled_from([_TEXTS, _BASE64]), st.lists(st.binary(max_size=40), max_size=5))
def test_bytes_are_found_at_their_place(spec: FeatureSpec, values: list[bytes]) -> None:
    record = record_of(spec, values)
    spans = record.bytes_of("x") or []
    assert [record.value_of("x", span) for span in spans] == values == list(record.feature("x").values)
    assert [record.size_of("x", span) for span in spans] == [len(value) for value in values]
    assert record.method_of("x") == (BASE64 if spec is _BASE64 else STORED)
    assert record.method_of("a") == STORED and list(record.feature("a").values) == [b"filler"]


@given(st.lists(st.tuples(_FLOATS, _FLOATS, _FLOATS, _FLOATS), max_size=4))
def test_numbers_of_a_tensor_are_read(rows: list[tuple[float, ...]]) -> None:
    numbers = [number for row in rows for number in row]
    feature = record_of(_NUMBERS, numbers).feature("x")
    assert (feature.type, list(feature.values)) == (plain_spec(_NUMBERS).type, numbers)


@given(st.sampled_from([_TEXTS, _NUMBERS, _BASE64]), st.lists(st.binary(max_size=30), max_size=2))
def test_a_wrong_encoding_is_a_fault_of_its_record(spec: FeatureSpec, values: list[bytes]) -> None:
    """Any other exception would end the job."""
    stored = Feature(FeatureType.BYTES, values)
    record = SourceRecord(encode_example({"x": stored}), {"x": spec})
    try:
        record.feature("x")
        for span in record.bytes_of("x") or ():
            record.value_of("x", span)
    except ValueError:
        return
    if spec is _BASE64:
        found = record.feature("x").values
        assert all(4 * len(value) <= 3 * len(text) for value, text in zip(found, values, strict=True))
