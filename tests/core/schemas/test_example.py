"""`tf.train.Example` messages and tensors, and how features are parsed, compared with TensorFlow."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from helpers.examples import examples
from helpers.fewer_imports import late
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shardwright.schemas.example import (
    Feature,
    FeatureType,
    Tensor,
    encode_example,
    parse_example,
    parse_tensor,
    serialize_tensor,
)
from shardwright.schemas.layouts import LAYOUTS, Encoding, FeatureSpec
from shardwright.schemas.parsing import Parsing, ParsingKind, parsing_of, quoted, spec_source

tf = late("tensorflow")


BYTES, FLOAT, INT64 = FeatureType.BYTES, FeatureType.FLOAT, FeatureType.INT64
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_FEATURES = st.one_of(
    st.lists(st.binary(max_size=300), max_size=4).map(lambda v: Feature(BYTES, v)),
    st.lists(st.floats(width=32, allow_nan=False), max_size=40).map(lambda v: Feature(FLOAT, v)),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40).map(lambda v: Feature(INT64, v)),
    st.just(Feature(None, [])),
)
_EXAMPLES = st.dictionaries(_NAMES, _FEATURES, max_size=6)


def _message(features: dict[str, Feature]) -> tf.train.Example:
    message = tf.train.Example()
    message.features.SetInParent()
    for name, feature in features.items():
        entry = message.features.feature[name]
        if feature.type is not None:
            content = getattr(entry, f"{feature.type}_list")
            content.SetInParent()
            content.value.extend(feature.values)
    return message


def _of_message(message: tf.train.Example) -> dict[str, Feature]:
    features = {}
    for name, entry in message.features.feature.items():
        kind = entry.WhichOneof("kind")
        values = list(getattr(entry, kind).value) if kind else []
        features[name] = Feature(FeatureType(kind.removesuffix("_list")) if kind else None, values)
    return features


def _plain(features: dict[str, Feature]) -> dict[str, str]:
    """Returns a form that can be compared: NaN equals NaN."""
    return {name: repr(feature) for name, feature in features.items()}


@given(_EXAMPLES)
@example({"a": Feature(BYTES, [b"x" * 20_000]), "b": Feature(INT64, [-1, 0, 2**63 - 1, -(2**63)])})
@example(
    {
        "é": Feature(INT64, [1]),
        "z": Feature(INT64, [1]),
        "\U0001f600": Feature(None, []),
        "\uffff": Feature(FLOAT, []),
    }
)
@settings(max_examples=examples(150), deadline=None)
def test_bytes_equal_tensorflows_deterministic_serialization(features: dict[str, Feature]) -> None:
    encoded = encode_example(features)
    assert parse_example(encoded) == features
    assert tf.train.Example.FromString(encoded) == _message(features)
    if not any(a != b and b.startswith(a) for a in features for b in features):
        assert encoded == _message(features).SerializeToString(deterministic=True)


def test_features_are_sorted_by_the_bytes_of_their_names() -> None:
    # If one name is a prefix of another, Python's protobuf writes the longer one first, C++ the shorter one.
    names = ["z", "a", "ab", "", "é", "\U0001f600", "\uffff", "B"]
    encoded = encode_example({name: Feature(INT64, [1]) for name in names})
    assert list(parse_example(encoded)) == sorted(names, key=str.encode)


def test_numpy_values_are_written_as_plain_numbers() -> None:
    features = {"i": Feature(INT64, np.array([3, -4])), "f": Feature(FLOAT, np.float32([0.1, 2]))}
    plain = {"i": Feature(INT64, [3, -4]), "f": Feature(FLOAT, [np.float32(0.1), 2.0])}
    assert encode_example(features) == encode_example(plain)


def _field(number: int, wire: int, content: bytes) -> bytes:
    """Returns a field of a small message, with lengths below 128."""
    length = bytes((len(content),)) if wire == 2 else b""
    return bytes((number << 3 | wire,)) + length + content


def _example_of(feature: bytes) -> bytes:
    return _field(1, 2, _field(1, 2, _field(1, 2, b"k") + _field(2, 2, feature)))


_WIRES = {
    "merged lists": _example_of(_field(3, 2, _field(1, 0, b"\1")) + _field(3, 2, _field(1, 0, b"\2"))),
    "last kind wins": _example_of(_field(3, 2, _field(1, 0, b"\1")) + _field(1, 2, _field(1, 2, b"x"))),
    "features twice": b"".join(_example_of(_field(3, 2, _field(1, 0, value))) for value in (b"\1", b"\2")),
    "key after value": _field(1, 2, _field(1, 2, _field(2, 2, _field(3, 2, b"")) + _field(1, 2, b"k"))),
    "value twice": _field(
        1, 2, _field(1, 2, _field(2, 2, _field(3, 2, b"\x08\1")) + _field(2, 2, _field(3, 2, b"\x08\2")))
    ),
    "entry of no bytes": _field(1, 2, b"\x0a\0"),
    "entry reaching beyond the map": b"\x0a\x0c\x0a\x7f" + b"\x0a\1k\x12\5\x1a\3\x0a\1\5",
    "no key": _field(1, 2, _field(1, 2, _field(2, 2, _field(3, 2, b"")))),
    "no value": _field(1, 2, _field(1, 2, _field(1, 2, b"k"))),
    "features of another wire type": _field(1, 0, b"\5"),
    "entry of another wire type": _field(1, 2, _field(1, 0, b"\5")),
    "name in two pieces": _field(1, 2, _field(1, 2, _field(1, 2, b"a") + _field(1, 2, b"b"))),
    "entry with a group": _field(1, 2, _field(1, 2, _field(1, 2, b"k") + b"\x4b\x4c")),
    "nothing": b"",
    "key not utf-8": _field(1, 2, _field(1, 2, _field(1, 2, b"\xff"))),
    "key a surrogate": _field(1, 2, _field(1, 2, _field(1, 2, b"\xed\xa0\x80"))),
}  # fmt: skip


@pytest.mark.parametrize("data", _WIRES.values(), ids=_WIRES)
def test_every_variant_of_the_wire_format_is_read_like_protobuf(data: bytes) -> None:
    """Both give the same result, or none."""
    try:
        message = tf.train.Example.FromString(data)
        expected = _plain(_of_message(message))
    except DecodeError:
        expected = message = None
    try:
        parsed = _plain(parse_example(data))
    except ValueError:
        parsed = None
    if message and parsed and len(UnknownFieldSet(message.features)):
        # Python's protobuf drops the whole entry of a feature with an unknown field.
        assert all(parsed.get(name) == feature for name, feature in expected.items()), data
    else:
        assert parsed == expected, data


def test_the_context_of_a_sequence_example_is_read() -> None:
    message = tf.train.SequenceExample()
    message.context.feature["a"].int64_list.value.extend([1, 300])
    message.feature_lists.feature_list["b"].feature.add().bytes_list.value.append(b"x")
    data = message.SerializeToString()
    context, _ = tf.io.parse_single_sequence_example(data, {"a": tf.io.FixedLenFeature([2], tf.int64)})
    assert parse_example(data) == {"a": Feature(INT64, context["a"].numpy().tolist())}


NUMBERS = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64",
)  # fmt: skip
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


#: Everything that a layout can store in a serialized tensor.
DTYPES = ("bool", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64", "object")


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
