"""Single values and extra columns: stored as TensorFlow's protobuf would store them, or refused."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import math
from collections.abc import Sized
from typing import Any

import numpy as np
import pytest
from helpers.fewer_imports import late
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.schemas.columns import (
    ExtraColumn,
    column_values,
    decode_extra,
    encode_extra,
    finite_or_text,
    parse_extra_columns,
)
from shardwright.schemas.example import FeatureType
from shardwright.schemas.image_ref import ImageRef, decode_refs, encode_refs
from shardwright.schemas.values import TYPE_NAMES, ValueType, coerce, feature_type

tf = late("tensorflow")

WHOLE = [type_ for type_ in ValueType if feature_type(type_) is FeatureType.INT64]
RANGES = {
    ValueType.BOOL: (0, 1),
    ValueType.INT32: (-(2**31), 2**31 - 1),
    ValueType.UINT32: (0, 2**32 - 1),
    ValueType.UINT64: (0, 2**63 - 1),
    ValueType.INT64: (-(2**63), 2**63 - 1),
    ValueType.ENUM: (-(2**63), 2**63 - 1),
}
TYPES = st.sampled_from(list(ValueType))


class Fruit(enum.IntEnum):
    APPLE = 3


INTEGERS = st.integers() | st.sampled_from([b + d for b in (2**31, 2**32, 2**63, 2**64) for d in (-1, 0, 1)])
INTEGERS = INTEGERS | INTEGERS.map(lambda number: -number)
FLOATS = st.floats() | st.floats(width=32) | st.sampled_from([3.4028235677973362e38, 3.4028235677973366e38])
NUMPY = st.one_of(
    *(st.integers(np.iinfo(kind).min, np.iinfo(kind).max).map(kind)
      for kind in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)),
    st.floats(width=16).map(np.float16), st.floats(width=32).map(np.float32), st.floats().map(np.float64),
    st.floats().map(np.longdouble), st.booleans().map(np.bool_), st.binary().map(np.bytes_),
    st.text(st.characters(exclude_categories=["Cs"])).map(np.str_),
)  # fmt: skip
ODD = st.sampled_from([
    None, Fruit.APPLE, decimal.Decimal("1.5"), decimal.Decimal("1e400"),
    decimal.Decimal("sNaN"), fractions.Fraction(1, 3), fractions.Fraction(10**400), 1j, np.complex64(1),
    np.longdouble("1e400"), np.longdouble("1e39"), [1], (1,), {}, {1}, [], range(1), np.array(3),
    np.array([3]), np.array(1.5), np.array([True]), np.datetime64("2020-01-01"), np.timedelta64(3, "s"),
    datetime.datetime(2020, 1, 1), bytearray(b"a"), memoryview(b"a"), np.void(b"ab"),
    object(), int, 10**4000, -(10**4000), 10**39, 10**400,
])  # fmt: skip
VALUES = st.booleans() | INTEGERS | FLOATS | NUMPY | ODD | st.binary()


def stored_by_protobuf(value: Any, type_: ValueType) -> list[Any]:
    """Returns the list of a feature after a value was added with protobuf; empty if protobuf refuses it."""
    try:
        return list(getattr(tf.train, f"{feature_type(type_).title()}List")(value=[value]).value)
    except (TypeError, ValueError, OverflowError, decimal.InvalidOperation):
        return []


def stored_by_us(value: Any, type_: ValueType) -> list[Any]:
    try:
        return [coerce(value, type_)]
    except ValueError:
        return []


def same(ours: list[Any], theirs: list[Any]) -> bool:
    """Returns whether values and their types are equal; NaN equals itself, and 0 differs from -0."""
    return list(map(repr, ours)) == list(map(repr, theirs)) and [*map(type, ours)] == [*map(type, theirs)]


@given(VALUES, TYPES)
@example(np.uint64(2**63), ValueType.UINT64)
@example(True, ValueType.INT32)
@example(np.float64(3), ValueType.INT64)
def test_stored_values_equal_protobufs(value: Any, type_: ValueType) -> None:
    ours, theirs = stored_by_us(value, type_), stored_by_protobuf(value, type_)
    if ours and isinstance(value, np.bool_) and feature_type(type_) is FeatureType.INT64:
        assert type_ is ValueType.BOOL and ours == [int(value)]  # documented
    elif ours and isinstance(value, str):
        assert ours == [str(value).encode()] or feature_type(type_) is not FeatureType.BYTES  # documented
    elif ours:
        assert same(ours, theirs)
    elif theirs:
        low, high = RANGES.get(type_, (None, None))
        out_of_range = low is not None and not low <= theirs[0] <= high
        became_infinite = theirs[0] in (math.inf, -math.inf) and value != theirs[0]
        several = isinstance(value, Sized | np.complexfloating)
        assert out_of_range or became_infinite or several


@given(INTEGERS, st.sampled_from(WHOLE))
def test_integers_outside_the_range_of_their_type_are_refused(number: int, type_: ValueType) -> None:
    low, high = RANGES[type_]
    if low <= number <= high:
        assert coerce(number, type_) == number
        if type_ is not ValueType.BOOL:
            assert coerce(f" {number}\t", type_) == number
    else:
        for value in (number, str(number)):
            with pytest.raises(ValueError, match=f"is not a valid {type_}"):
                coerce(value, type_)


NOT_VALID = "is not a valid {}"
#: Types, values that each of them refuses, and what is said about them.
REFUSED: list[tuple[list[ValueType], tuple[Any, ...], str]] = [
    (WHOLE, ("3.0", "1_000", "٣", "３", "²", "0x10", "1e3", "", " ", "3 4", "--3", "+", "3,000"), NOT_VALID),
    (WHOLE, ("1" * 5000, "\udcff", "n"), NOT_VALID),
    (
        WHOLE,
        (3.0, 1.0, 0.0, np.float32(1), np.float16(1), math.nan, math.inf, -0.0),
        "it is a float, which is never cut",
    ),
    (
        [ValueType.FLOAT],
        ("1_0.5", "٣.5", "1,5", "", "0x1p3", "1e", "e5", ".", "nanx", "1 2", "infinit", "--1"),
        NOT_VALID,
    ),
    (
        [ValueType.FLOAT],
        (1e39, -1e39, "1e39", "-1e400", 10**39, 10**400, "9" * 400, finite_or_text("1e999")),
        "too large for the 32 bits of a float",
    ),
    ([ValueType.BOOL], ("t", "on", "2", "10", "truee", "", 2, -1, b"true", None), NOT_VALID),
]


@pytest.mark.parametrize(
    ("type_", "value", "why"),
    [(type_, value, why) for types, values, why in REFUSED for type_ in types for value in values],
)
def test_numbers_and_booleans_are_read_strictly(type_: ValueType, value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why.format(type_)):
        coerce(value, type_)


@given(st.floats(), st.sampled_from([ValueType.FLOAT, ValueType.DOUBLE]))
@example(math.nan, ValueType.FLOAT)
@example(-math.inf, ValueType.DOUBLE)
def test_floats_in_text_are_stored_exactly(number: float, type_: ValueType) -> None:
    assert same(stored_by_us(f" {number!r} ", type_), stored_by_us(number, type_))


@pytest.mark.parametrize("text", ["inf", "-Infinity", "+INF", "NaN", "-nan"])
def test_infinite_numbers_stay_infinite(text: str) -> None:
    assert not math.isfinite(coerce(text, ValueType.FLOAT))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "stored"),
    [("true", 1), (" TRUE ", 1), ("Yes", 1), ("1", 1), ("false", 0), ("no", 0), ("0", 0), ("False", 0)],
)
def test_booleans_are_read_from_text(text: str, stored: int) -> None:
    found = coerce(text, ValueType.BOOL)
    assert found == stored and type(found) is int


def test_enums_are_read_by_name_and_number() -> None:
    names = ("red", "green", "1")
    known = [("red", 0), (" green ", 1), ("1", 2), (1, 1), ("0", 0), (np.int8(2), 2)]
    assert [coerce(value, ValueType.ENUM, names) for value, _ in known] == [number for _, number in known]
    assert coerce(Fruit.APPLE, ValueType.ENUM) == 3 == coerce(" 3", ValueType.ENUM)
    for value in ("blue", 3, -1, "3", Fruit.APPLE, 1.0, None, b"red", "Red", [0]):
        with pytest.raises(ValueError, match="is not a valid enum"):
            coerce(value, ValueType.ENUM, names)
    with pytest.raises(ValueError, match="is not a valid enum"):
        coerce("red", ValueType.ENUM)


@given(st.binary())
def test_bytes_survive_as_text(value: bytes) -> None:
    text = value.decode("utf-8", "surrogateescape")
    for type_ in (ValueType.STRING, ValueType.BYTES):
        assert coerce(value, type_) == coerce(text, type_) == value


@pytest.mark.parametrize(
    "value", [1, 1.5, True, None, [b"a"], datetime.date(2020, 1, 1), bytearray(b"a"), "\ud800"]
)
def test_other_values_are_not_texts(value: Any) -> None:
    message = r"is not a valid string; write it as text|cannot be written as UTF-8"
    with pytest.raises(ValueError, match=message):
        coerce(value, ValueType.STRING)


@given(st.dictionaries(TYPES, st.lists(VALUES | st.text(), max_size=3)))
def test_a_reference_carries_every_value_exactly(values: dict[ValueType, list[Any]]) -> None:
    kept = {
        type_: [value for value in items if stored_by_us(value, type_)] for type_, items in values.items()
    }
    carried = encode_extra(
        {
            type_.value: column_values(ExtraColumn(type_.value, type_, True), items, "")
            for type_, items in kept.items()
        }
    )
    (ref,) = decode_refs(encode_refs([ImageRef("a.jpg", "/a.jpg", extra=carried)]))
    for type_, items in kept.items():
        found = decode_extra(ref.extra)[type_.value]
        if feature_type(type_) is FeatureType.BYTES:
            found = [text.encode("utf-8", "surrogateescape") for text in found]
        assert same(found, [coerce(item, type_) for item in items])


def test_every_type_can_be_declared() -> None:
    columns = parse_extra_columns(",".join(f"{name}_column:{name}" for name in TYPE_NAMES))
    assert [column.value_type for column in columns] == [*ValueType, ValueType.INT64]
    assert [column.type for column in columns] == [*[FeatureType.INT64] * 6, *[FeatureType.FLOAT] * 2,
                                                   *[FeatureType.BYTES] * 2, FeatureType.INT64]  # fmt: skip
    with pytest.raises(ValueError, match=", ".join(TYPE_NAMES)):
        parse_extra_columns("price:int16")


@pytest.mark.parametrize("type_", list(ValueType))
@pytest.mark.parametrize(
    "value", [10**5000, ["x" * 10**6], object(), {"a": 1}], ids=["huge", "long", "object", "dict"]
)
def test_messages_stay_short(type_: ValueType, value: Any) -> None:
    with pytest.raises(ValueError) as caught:
        coerce(value, type_)
    assert len(str(caught.value)) < 250


@given(FLOATS, INTEGERS)
def test_serialized_tensors_have_all_64_bits(number: float, whole: int) -> None:
    assert same([coerce(number, ValueType.DOUBLE, wide=True)], [float(number)])
    if 0 <= whole < 2**64:
        assert coerce(whole, ValueType.UINT64, wide=True) == whole
    else:
        with pytest.raises(ValueError, match="is not a valid uint64"):
            coerce(whole, ValueType.UINT64, wide=True)


INT = ExtraColumn("n", ValueType.INT64)
INTS = ExtraColumn("ns", ValueType.UINT32, True)
FLOAT = ExtraColumn("x", ValueType.FLOAT)
TEXT = ExtraColumn("t", ValueType.STRING)
TEXTS = ExtraColumn("ts", ValueType.STRING, True)


def test_declarations_are_parsed() -> None:
    assert parse_extra_columns("x:float, ts:string[],n:int") == (FLOAT, TEXTS, INT)


@pytest.mark.parametrize("text", ["price", "price:", ":float", "a:int,a:int", "a:money", "a:int[", "a[]:int"])
def test_wrong_declarations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a column|occurs twice"):
        parse_extra_columns(text)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (INT, "1.5"), (INTS, [1.0]), (INTS, [[1]]), (INTS, [None]), (INTS, {"a": 1}), (INTS, b"abc"),
        (TEXT, 3), (TEXTS, [3]), (TEXTS, [None]), (INT, {"a": 1}), (INTS, "1||2"), (TEXT, [b"a"]),
        (INT, ""), (INT, None), (INT, [1]), (FLOAT, ""), (FLOAT, None), (TEXT, None), (TEXT, ["a"]),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(column: ExtraColumn, value: Any) -> None:
    with pytest.raises(ValueError, match=column.name):
        column_values(column, value, "|")


@given(
    st.lists(
        st.text(st.characters(exclude_characters="|", exclude_categories=["Cs"]), min_size=1), min_size=1
    )
)
def test_lists_are_split_at_the_separator(items: list[str]) -> None:
    assert column_values(TEXTS, "|".join(items), "|") == items == column_values(TEXTS, items, "|")
    assert column_values(TEXTS, items[0], "") == items[:1] == column_values(TEXTS, items[0].encode(), "|")
    assert column_values(TEXTS, "", "|") == column_values(TEXTS, None, "|") == []
