"""`image/source_id`: readers can convert every id to a number."""

from __future__ import annotations

import pytest
from helpers.fewer_imports import late
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.source_ids import number_of_key, number_text, source_id_of

tf = late("tensorflow")


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_the_number_of_a_key_has_63_bits(key: str) -> None:
    assert 0 <= number_of_key(key) < 2**63
    assert source_id_of(ImageRef(key, "x")) == str(number_of_key(key))


def test_the_number_of_a_key_never_changes() -> None:
    assert number_of_key("cats/a.jpg") == 6157863834817839828
    assert source_id_of(ImageRef("cats/a.jpg", "x", source_id="139")) == "139"


@pytest.mark.parametrize("value", [0, 139, "000000000139", -1, 2**63 - 1, str(-(2**63))])
def test_tensorflow_reads_the_same_number(value: int | str) -> None:
    # The same as process_source_id of the model garden.
    assert int(tf.strings.to_number(number_text(value), tf.int64)) == int(value)


def test_readers_that_take_a_float_do_not_fail() -> None:
    # EfficientDet and the model garden's older code leave out the type.
    assert float(tf.strings.to_number(str(2**63 - 1))) == 2.0**63
    assert float(tf.strings.to_number("581929")) == 581929  # the largest id of COCO 2017


@pytest.mark.parametrize("value", ["", "a1", "1.5", "12 ", "1_000", "١٢", 2**63, str(2**63), "9" * 40])
def test_other_texts_are_not_numbers(value: int | str) -> None:
    assert number_text(value) == ""
