"""JSON read item by item: the same values as when read at once, and the place of errors."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.entries import parse_item, stream_list, stream_object

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.dictionaries(st.text(), _VALUES, max_size=5), st.booleans(), st.sampled_from([None, 0, 2]), st.binary()
)
def test_streaming_agrees_with_the_standard_parser(
    document: dict[str, Any], ascii_only: bool, indent: int | None, behind: bytes
) -> None:
    behind = behind.lstrip(b"{[ \t\n\r")  # a second document is an error
    data = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    items = list(stream_object(io.BytesIO(data + b" " + behind)))
    rebuilt: dict[str, Any] = {}
    for item in items:
        assert repr(parse_item(data[item.begin : item.begin + item.length])) == repr(item.value)
        if isinstance(document[item.name], list):
            rebuilt.setdefault(item.name, []).append(item.value)
        else:
            rebuilt[item.name] = item.value
    expected = {name: value for name, value in parse_item(data).items() if value != []}
    assert repr(rebuilt) == repr(expected)
    for cut in {0, len(data) // 2, len(data) - 1}:
        with pytest.raises(AnnotationFault):
            list(stream_object(io.BytesIO(data[:cut])))


def test_values_may_cross_chunks() -> None:
    rows = [{"id": i, "text": "ä" * (i % 50), "n": i} for i in range(40_000)]
    text = '{"images": [' + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "]}"
    found = [item.value for item in stream_object(io.BytesIO(text.encode()))]
    assert found == rows


@pytest.mark.parametrize(
    ("data", "message", "byte"),
    [
        (b"", "the end instead of {", 0),
        (b'{"a": [1, 2', "the end instead of , or ]", 11),
        (b'{"a": "b', "it is not JSON or ends too early", 6),
        (b'{"a": tru', "it is not JSON or ends too early", 6),
        (b'{"a": [1, oops]}', "it is not JSON or ends too early", 10),
        (b'{"a" 1}', "'1' instead of :", 5),
        (b"[1]", "'[' instead of {", 0),
        (b"{1: 2}", "an object has a name that is not a string", 2),
        (b'\xef\xbb\xbf{"a": [1}', "'}' instead of , or ]", 11),
        (b'{"a": ' + b"[" * 100_000, "its values are nested too deeply or too long", 7),
        (b'{"a": [1]}\n{"a": [2]}', "a second document begins", 11),
        (b"{} []", "a second document begins", 3),
    ],
)
def test_messages_name_the_error_and_its_place(data: bytes, message: str, byte: int) -> None:
    with pytest.raises(AnnotationFault) as raised:
        list(stream_object(io.BytesIO(data)))
    assert str(raised.value) == (f"its JSON is broken at byte {byte}: {message}; fetch it again or fix it")


def test_a_second_list_is_an_error() -> None:
    assert [item.value for item in stream_list(io.BytesIO(b"[1, 2] \n"))] == [1, 2]
    with pytest.raises(AnnotationFault, match="at byte 6: a second document begins"):
        list(stream_list(io.BytesIO(b"[1, 2][3]")))
