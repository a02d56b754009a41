"""Extra columns: values keep their type, and nothing is cut off or rounded."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.columns import (
    ExtraColumn,
    column_values,
    decode_extra,
    encode_extra,
    parse_extra_columns,
)
from shardwright.schemas.example import FeatureType
from shardwright.schemas.values import TYPE_NAMES, ValueType

INT = ExtraColumn("n", ValueType.INT64)
INTS = ExtraColumn("ns", ValueType.UINT32, True)
FLOAT = ExtraColumn("x", ValueType.FLOAT)
TEXT = ExtraColumn("t", ValueType.STRING)
TEXTS = ExtraColumn("ts", ValueType.STRING, True)


def test_declarations_are_parsed() -> None:
    assert parse_extra_columns("price:float, tags:string[],n:int") == (
        ExtraColumn("price", ValueType.FLOAT, False),
        ExtraColumn("tags", ValueType.STRING, True),
        ExtraColumn("n", ValueType.INT64, False),
    )


def test_every_type_can_be_declared() -> None:
    columns = parse_extra_columns(",".join(f"{name}_column:{name}" for name in TYPE_NAMES))
    assert [column.value_type for column in columns] == [*ValueType, ValueType.INT64]
    assert [column.type for column in columns] == [*[FeatureType.INT64] * 6, *[FeatureType.FLOAT] * 2,
                                                   *[FeatureType.BYTES] * 2, FeatureType.INT64]  # fmt: skip
    with pytest.raises(ValueError, match=", ".join(TYPE_NAMES)):
        parse_extra_columns("price:int16")


@pytest.mark.parametrize("text", ["price", "price:", ":float", "a:int,a:int", "a:money", "a:int[", "a[]:int"])
def test_wrong_declarations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a column|occurs twice"):
        parse_extra_columns(text)


@given(st.integers())
def test_whole_numbers_are_kept_or_refused(number: int) -> None:
    if -(2**63) <= number < 2**63:
        assert column_values(INT, str(number), "|") == column_values(INT, number, "|") == [number]
    else:
        with pytest.raises(ValueError, match="is not a valid int64"):
            column_values(INT, str(number), "|")


@given(st.floats(width=32))
def test_floats_are_kept(number: float) -> None:
    (found,) = column_values(FLOAT, repr(number), "|")
    assert struct.pack("<f", found) == struct.pack("<f", number) or math.isnan(number)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (INT, "1.5"), (INT, 1.5), (INT, 3.0), (INT, "3.0"), (INT, "1_000"), (INTS, [1.0]), (INTS, [-1]),
        (INTS, [[1]]), (INTS, [None]), (INTS, {"a": 1}), (INTS, [2**32]), (INTS, b"abc"), (TEXT, 3),
        (TEXTS, [3]), (TEXTS, [None]), (TEXTS, ["\ud800"]), (INT, {"a": 1}), (INT, b"3"), (INTS, "1||2"),
        (TEXT, [b"a"]), (INT, ""), (INT, None), (INT, "x"), (INT, [1]), (INT, float("nan")),
        (FLOAT, ""), (FLOAT, None), (FLOAT, "1,5"), (FLOAT, 1e39), (TEXT, None), (TEXT, ["a"]),
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


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.integers() | st.text()))
)
def test_values_survive_a_reference(values: dict[str, list[Any]]) -> None:
    assert decode_extra(encode_extra(values)) == values
