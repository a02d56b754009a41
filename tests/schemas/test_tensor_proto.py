"""Serialized tensors: they are TensorFlow's bytes and can be read back; no input causes a crash."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.examples import examples
from helpers.fewer_imports import late
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shardwright.schemas.tensor_proto import Tensor, parse_tensor, serialize_tensor

tf = late("tensorflow")

NUMBERS = ("bool", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64")
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


@st.composite
def tensors(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Returns an array of numbers of any type and shape."""
    return draw(arrays.arrays(draw(st.sampled_from(NUMBERS)), draw(SHAPES)))


@given(tensors())
def test_numbers_give_tensorflows_bytes(array: np.ndarray[Any, Any]) -> None:
    expected = tf.io.serialize_tensor(tf.constant(array)).numpy()
    written = serialize_tensor(array.ravel().tolist(), array.dtype.name, array.shape)
    if np.isnan(array.astype(np.float64)).any():  # Python does not keep every bit of a NaN
        np.testing.assert_array_equal(tf.io.parse_tensor(written, array.dtype.name).numpy(), array)
    else:
        assert written == expected
    parsed = parse_tensor(expected)
    assert (parsed.dtype, parsed.shape) == (array.dtype.name, array.shape)
    assert parsed.content == array.tobytes()
    np.testing.assert_array_equal(np.array(parsed.values, array.dtype).reshape(array.shape), array)


@given(st.data(), SHAPES)
def test_texts_give_tensorflows_bytes(data: st.DataObject, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    texts = data.draw(st.lists(st.binary(max_size=200), min_size=count, max_size=count))
    array = np.empty(count, object)
    array[:] = texts
    expected = tf.io.serialize_tensor(tf.constant(array.reshape(shape), tf.string)).numpy()
    assert serialize_tensor(texts, "object", shape) == expected
    assert parse_tensor(expected) == Tensor("object", shape, texts)
    assert list(parse_tensor(expected).values) == texts


@given(arrays.arrays("uint8", arrays.array_shapes(min_dims=3, max_dims=3, max_side=20)))
def test_pixels_may_be_bytes(array: np.ndarray[Any, Any]) -> None:
    expected = tf.io.serialize_tensor(tf.constant(array)).numpy()
    assert serialize_tensor(array.tobytes(), "uint8", array.shape) == expected


def test_the_number_of_values_must_match_the_shape() -> None:
    with pytest.raises(ValueError, match=r"3 values do not fill a tensor of shape \(2, 2\)"):
        serialize_tensor([1, 2, 3], "int64", (2, 2))


@settings(max_examples=examples(500))
@given(st.binary(max_size=60))
def test_garbage_is_a_tensor_or_refused(data: bytes) -> None:
    try:
        parsed = parse_tensor(data)
    except ValueError:
        return
    assert len(parsed.values) == int(np.prod(parsed.shape, dtype=object))


@settings(max_examples=examples(300))
@given(tensors(), st.data())
def test_damaged_bytes_are_refused_or_another_tensor(
    array: np.ndarray[Any, Any], data: st.DataObject
) -> None:
    """Damaged bytes that TensorFlow can read give the same tensor here."""
    sound = bytearray(tf.io.serialize_tensor(tf.constant(array)).numpy())
    place = data.draw(st.integers(0, len(sound) - 1))
    if data.draw(st.booleans()):
        sound[place] = data.draw(st.integers(0, 255))
    else:
        del sound[place:]
    damaged = bytes(sound)
    try:
        parsed = parse_tensor(damaged)
    except ValueError:
        return
    try:
        known = tf.string if parsed.dtype == "object" else parsed.dtype
        expected = tf.io.parse_tensor(damaged, known).numpy()
    except tf.errors.InvalidArgumentError:
        return
    assume(parsed.content)
    assert parsed.shape == expected.shape
    assert parsed.content == expected.tobytes()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "type 0"),
        (b"\x08\x07", "content does not fill"),
        (b"\x08\x04\x12\x04\x12\x02\x08\x03\x22\x02ab", "content does not fill"),
        (b"\x08\x0e\x12\x00\x22\x02ab", "type 14"),
        (b"\x08\x04\x12\x0c\x12\x0a\x08" + b"\xff" * 8 + b"\x01", "."),
    ],
)
def test_other_bytes_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_tensor(data)
