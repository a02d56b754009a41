"""How features are parsed: TensorFlow reads Examples with the arguments of the table."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.fewer_imports import late
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.example import Feature, FeatureType, encode_example
from shardwright.schemas.layouts import LAYOUTS, Encoding, FeatureSpec
from shardwright.schemas.parsing import Parsing, ParsingKind, parsing_of, quoted, spec_source

tf = late("tensorflow")

#: Everything that a layout can store in a serialized tensor.
DTYPES = ("bool", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64", "object")
INT64, FLOAT, BYTES = FeatureType.INT64, FeatureType.FLOAT, FeatureType.BYTES


def as_tensorflow(parsing: Parsing) -> Any:
    """Returns TensorFlow's description of a feature, as a loader builds it."""
    more: dict[str, Any] = {"allow_missing": True} if parsing.kind is ParsingKind.SEQUENCE else {}
    default = list(parsing.default) if isinstance(parsing.default, tuple) else parsing.default
    kind = getattr(tf.io, parsing.kind.value)
    return kind(list(parsing.shape), getattr(tf, parsing.dtype), default_value=default, **more)


def values_for(type_: FeatureType, count: int) -> list[Any]:
    if type_ is INT64:
        return list(range(7, 7 + count))
    return [i / 4 for i in range(count)] if type_ is FLOAT else [b"%d" % i for i in range(count)]


def parse(spec: FeatureSpec, found: list[Any] | None) -> tf.Tensor:
    """Returns one feature of one record, parsed by TensorFlow."""
    record = encode_example({} if found is None else {spec.name: Feature(spec.type, found)})
    parsed = tf.io.parse_single_example(record, {spec.name: as_tensorflow(parsing_of(spec))})
    return parsed[spec.name]


@pytest.mark.parametrize("type_", FeatureType)
@pytest.mark.parametrize(
    ("shape", "count", "parsed"),
    [
        ((), 1, ()),
        ((1,), 1, (1,)),
        ((3,), 3, (3,)),
        ((2, 3), 6, (2, 3)),
        ((None,), 0, (0,)),
        ((None,), 5, (5,)),
        ((None, 4), 0, (0, 4)),
        ((None, 4), 8, (2, 4)),
        ((None, 2, 3), 12, (2, 2, 3)),
        ((2, None), 6, (6,)),  # only the reader's reshape knows where a row ends
    ],
)
def test_values_have_the_declared_shape(
    type_: FeatureType, shape: tuple[int | None, ...], count: int, parsed: tuple[int, ...]
) -> None:
    found = values_for(type_, count)
    for optional in (False, True):
        read = parse(FeatureSpec("a", type_, shape, optional=optional), found)
        assert read.shape == parsed
        assert np.ravel(read.numpy()).tolist() == found


@pytest.mark.parametrize(
    ("type_", "shape", "absent"),
    [
        (INT64, (), -1),
        (FLOAT, (), -1.0),
        (BYTES, (), b""),
        (INT64, (3,), [-1, -1, -1]),
        (FLOAT, (2, 2), [[-1.0, -1.0], [-1.0, -1.0]]),
        (BYTES, (2,), [b"", b""]),
        (INT64, (None,), []),
        (FLOAT, (None, 4), np.zeros((0, 4)).tolist()),
        (BYTES, (2, None), []),
    ],
)
def test_an_optional_feature_may_be_absent(type_: FeatureType, shape: Any, absent: Any) -> None:
    read = parse(FeatureSpec("a", type_, shape, optional=True), None).numpy()
    assert (read if isinstance(read, bytes) else read.tolist()) == absent


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_a_required_feature_of_fixed_shape_may_not_be_absent(shape: Any) -> None:
    spec = FeatureSpec("needed", INT64, shape)
    with pytest.raises(tf.errors.InvalidArgumentError, match="needed"):
        parse(spec, None)
    with pytest.raises(tf.errors.InvalidArgumentError, match="needed"):
        parse(spec, values_for(INT64, 5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (None,), (None, 4), (2, None)])
def test_a_serialized_tensor_has_the_declared_shape_even_if_absent(
    dtype: str, shape: tuple[int | None, ...]
) -> None:
    spec = FeatureSpec("a", BYTES, optional=True, encoding=Encoding.TENSOR, dtype=dtype, tensor_shape=shape)
    tf_dtype = tf.string if dtype == "object" else tf.as_dtype(dtype)
    written = tf.zeros([2, 4], tf_dtype) if dtype != "object" else tf.constant([["a", "b"]])
    read = parse(spec, [tf.io.serialize_tensor(written).numpy()])
    assert tf.io.parse_tensor(read, tf_dtype).numpy().tolist() == written.numpy().tolist()
    absent = tf.io.parse_tensor(parse(spec, None), tf_dtype)
    assert absent.dtype == tf_dtype
    if dtype == "object":
        single: Any = b""
    else:
        single = 0 if tf_dtype.is_bool or tf_dtype.is_unsigned else -1
    expected = [] if None in shape else [single] * math.prod(shape)
    assert np.ravel(tf.ensure_shape(absent, shape).numpy()).tolist() == expected
    assert parsing_of(replace(spec, optional=False)) == Parsing(ParsingKind.FIXED, (), "string")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_source_for_copying_gives_the_same_table(layout: str) -> None:
    features = (
        *LAYOUTS[layout].features,
        FeatureSpec("quo\"te's\n", FLOAT, (2,), optional=True),
        # a shape whose bytes are letters, quotes and backslashes
        FeatureSpec("x", BYTES, (), None, True, Encoding.TENSOR, "float32", (None, 233, 34, 39, 92)),
        FeatureSpec("y", BYTES, (), None, True, Encoding.TENSOR, "float32", (None, 39)),
    )
    scope: dict[str, Any] = {"tf": tf}
    exec(spec_source(features), scope)
    table = {spec.name: as_tensorflow(parsing_of(spec)) for spec in features}
    assert scope["features"] == table


@given(st.text())
def test_a_quoted_text_evaluates_to_itself_on_one_line(text: str) -> None:
    source = quoted(text)
    assert ast.literal_eval(source) == text
    assert len(source.splitlines()) == 1
    source.encode()
