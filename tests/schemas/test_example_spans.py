"""The ranges of an Example's values, compared with TensorFlow's parser; hostile messages need no memory."""

from __future__ import annotations

import contextlib
import random
import struct

import pytest
from helpers.examples import examples
from helpers.fewer_imports import late
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.schemas.example import (
    MAX_FEATURES,
    ExampleSpans,
    Feature,
    FeatureType,
    NotAnExample,
    encode_example,
    parse_example,
)

tf = late("tensorflow")


BYTES, FLOAT, INT64 = FeatureType.BYTES, FeatureType.FLOAT, FeatureType.INT64
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
_FEATURES = st.one_of(
    st.lists(st.binary(max_size=300), max_size=4).map(lambda v: Feature(BYTES, v)),
    st.lists(st.floats(width=32, allow_nan=False), max_size=40).map(lambda v: Feature(FLOAT, v)),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40).map(lambda v: Feature(INT64, v)),
    st.just(Feature(None, [])),
)


def _read_all(data: bytes) -> dict[str, Feature]:
    spans = ExampleSpans(data)
    found = {}
    for name in spans.features:
        found[name] = spans.feature(name)
        assert spans.kind_of(name) is found[name].type
        stretches = spans.bytes_of(name)
        assert (stretches is None) == (found[name].type is not BYTES)
        if stretches is not None:
            assert [data[span.begin : span.end] for span in stretches] == found[name].values
    return found


@given(st.dictionaries(_NAMES, _FEATURES, max_size=6))
@settings(max_examples=examples(150), deadline=None)
def test_messages_of_tensorflow_are_read(features: dict[str, Feature]) -> None:
    message = tf.train.Example()
    message.features.SetInParent()
    for name, feature in features.items():
        entry = message.features.feature[name]
        if feature.type:
            getattr(entry, f"{feature.type.value}_list").value.extend(feature.values)
            getattr(entry, f"{feature.type.value}_list").SetInParent()
    assert _read_all(message.SerializeToString()) == features
    assert _read_all(encode_example(features)) == features


def _field(number: int, wire: int, content: bytes) -> bytes:
    length = bytes((len(content),)) if wire == 2 else b""
    return bytes((number << 3 | wire,)) + length + content


def _example_of(feature: bytes) -> bytes:
    return _field(1, 2, _field(1, 2, _field(1, 2, b"k") + _field(2, 2, feature)))


_WIRES = {
    "unpacked ints": _example_of(_field(3, 2, _field(1, 0, b"\5") + _field(1, 0, b"\6"))),
    "packed and unpacked": _example_of(_field(3, 2, _field(1, 2, b"\1\2") + _field(1, 0, b"\3"))),
    "one packed, one not": _example_of(_field(3, 2, _field(1, 2, b"\1") + _field(1, 0, b"\3"))),
    "unpacked floats": _example_of(_field(2, 2, _field(1, 5, struct.pack("<f", 0.5)))),
    "merged lists": _example_of(_field(3, 2, _field(1, 0, b"\1")) + _field(3, 2, _field(1, 0, b"\2"))),
    "last kind wins": _example_of(_field(3, 2, _field(1, 0, b"\1")) + _field(1, 2, _field(1, 2, b"x"))),
    "features twice": _example_of(_field(3, 2, _field(1, 0, b"\1"))) * 2,
    "key after value": _field(1, 2, _field(1, 2, _field(2, 2, _field(3, 2, b"")) + _field(1, 2, b"k"))),
    "value twice": _field(
        1, 2, _field(1, 2, _field(2, 2, _field(1, 2, b"\x0a\1a")) + _field(2, 2, _field(1, 2, b"\x0a\1b")))
    ),
    "name in two pieces": _field(1, 2, _field(1, 2, _field(1, 2, b"a") + _field(1, 2, b"b"))),
    "entry with a group": _field(1, 2, _field(1, 2, _field(1, 2, b"k") + b"\x4b\x4c")),
    "cut in a packed int": _example_of(_field(3, 2, _field(1, 2, b"\x80"))),
    "cut in a packed float": _example_of(_field(2, 2, _field(1, 2, b"123"))),
    "key not utf-8": _field(1, 2, _field(1, 2, _field(1, 2, b"\xff"))),
    "long tag": b"\x8a\0\2\x0a\0",
    "nothing": b"",
}


def _agrees(data: bytes) -> None:
    """Whatever `parse_example` reads (which is tested against protobuf) is read equally."""
    try:
        expected = parse_example(data)
    except ValueError:
        with contextlib.suppress(ValueError):
            _read_all(data)  # may read a part, but must not fail in another way
        return
    try:
        found = _read_all(data)
    except NotAnExample:
        return
    assert repr(found) == repr(expected), data


@pytest.mark.parametrize("case", _WIRES)
def test_every_variant_of_the_wire_format_is_read_equally(case: str) -> None:
    _agrees(_WIRES[case])


def test_mutated_messages_are_read_equally() -> None:
    rng = random.Random(11)
    sound = encode_example(
        {
            "image/encoded": Feature(BYTES, [bytes(range(200))]),
            "label": Feature(INT64, [3, -7, 1 << 40]),
            "one": Feature(INT64, [-1]),
            "boxes": Feature(FLOAT, [0.25, 0.5, 1.0]),
            "ö": Feature(BYTES, [b"a", b""]),
        }
    )
    sources = [sound, *_WIRES.values()]
    for _ in range(6000):
        data = bytearray(rng.choice(sources) if rng.random() < 0.5 else sound)
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(data) + 1)
            what = rng.random()
            if what < 0.5 and place < len(data):
                data[place] = rng.randrange(256)
            elif what < 0.75:
                del data[place : place + rng.randint(1, 4)]
            else:
                data[place:place] = rng.randbytes(rng.randint(1, 4))
        _agrees(bytes(data))


def test_the_last_of_two_equal_names_wins() -> None:
    twice = encode_example({"a": Feature(INT64, [1])}) + encode_example({"a": Feature(INT64, [2])})
    assert ExampleSpans(twice).feature("a") == Feature(INT64, [2])


def test_a_sequence_example_is_named() -> None:
    message = tf.train.SequenceExample()
    message.context.feature["a"].int64_list.value.append(1)
    message.feature_lists.feature_list["b"].feature.add().bytes_list.value.append(b"x")
    with pytest.raises(NotAnExample, match="SequenceExample"):
        ExampleSpans(message.SerializeToString())


def _varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return out + bytes((value,))


def _message(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + _varint(len(content)) + content


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x0a\x04\x0a\xff\xff\x7f",
        b"\x0a\x08\x0a\x06\x0a\x01k\x12\xff\x7f",
        b"\x4b" * 100_000,
        _message(1, b"\x4b" * 100_000),
        _message(1, _message(1, _message(1, b"k") + _message(2, _message(3, _message(1, b"\xff" * 99))))),
    ],
)
def test_hostile_messages_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        _read_all(data)


def test_a_message_of_too_many_features_is_refused() -> None:
    features = b"".join(_message(1, _message(1, b"%07d" % i)) for i in range(MAX_FEATURES + 2))
    with pytest.raises(ValueError):
        _read_all(_message(1, features))


def test_a_feature_in_very_many_lists_is_read_in_linear_time() -> None:
    lists = _message(3, _message(1, b"\1")) * 100_000
    message = _message(1, _message(1, _message(1, b"k") + _message(2, lists)))
    assert _read_all(message) == {"k": Feature(INT64, [1] * 100_000)}


def test_many_entries_of_one_name_and_lists_of_many_numbers_are_bounded() -> None:
    many = _message(1, b"\x0a\0" * 200_000)
    assert _read_all(many) == {"": Feature(None, [])}
    pieces = _message(1, _message(1, _message(1, b"k") + _message(2, b"\x0a\0") * 50_000))
    assert _read_all(pieces) == {"k": Feature(BYTES, [])}
    numbers = _message(
        1, _message(1, _message(1, b"k") + _message(2, _message(3, _message(1, bytes(1 << 25)))))
    )
    with pytest.raises(ValueError, match="too many"):
        ExampleSpans(numbers).feature("k")


def test_a_packed_list_of_numbers_is_one_range() -> None:
    data = encode_example(
        {"f": Feature(FLOAT, [0.5, 1.0]), "i": Feature(INT64, [1, 300]), "b": Feature(BYTES, [])}
    )
    spans = ExampleSpans(data)
    floats, ints = spans.packed("f"), spans.packed("i")
    assert floats and data[floats.begin : floats.end] == struct.pack("<2f", 0.5, 1.0)
    assert ints and data[ints.begin : ints.end] == b"\1\xac\2"
    assert spans.packed("b") is None and spans.packed("missing") is None
