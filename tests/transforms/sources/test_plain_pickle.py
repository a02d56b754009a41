"""Pickles of plain data are read like in Python, and hostile ones have no effect."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import pickletools
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.transforms.sources.arrays.plain_pickle import (
    LongString,
    PickledArray,
    PickleError,
    read_pickle,
)

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
_PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | _TEXT
    | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(_TEXT, inner) | st.tuples(inner) | st.tuples(inner, inner, inner)
    ),
    max_leaves=30,
)


@given(_PLAIN, st.integers(0, 5))
def test_plain_data_is_read(data: Any, protocol: int) -> None:
    assert read_pickle(io.BytesIO(pickle.dumps(data, protocol))) == data


@given(_PLAIN, st.data())
def test_damaged_data_is_an_error_or_other_plain_data(content: Any, data: st.DataObject) -> None:
    """Any change of a byte gives our own error or other plain data, never a crash."""
    made = bytearray(pickle.dumps(content, data.draw(st.integers(0, 5))))
    place = data.draw(st.integers(0, len(made) - 1))
    made[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(PickleError):
        read_pickle(io.BytesIO(made[: data.draw(st.integers(place, len(made)))]))


@given(st.binary(max_size=200))
def test_any_bytes_are_data_or_an_error(data: bytes) -> None:
    with contextlib.suppress(PickleError):
        read_pickle(io.BytesIO(data))


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_stay_in_the_file(protocol: int, order: Any) -> None:
    array = np.arange(200_000, dtype=np.uint16).reshape(100, -1).copy(order)
    made = pickle.dumps({"data": array}, protocol)
    found = read_pickle(io.BytesIO(made))["data"]
    assert isinstance(found, PickledArray) and isinstance(found.data, LongString)
    assert found.shape == array.shape and found.dtype is not None and found.dtype.code == "u2"
    stored = made[found.data.offset : found.data.offset + found.data.length]
    assert found.fortran == (order == "F")
    assert (np.frombuffer(stored, "<u2").reshape(array.shape, order=order) == array).all()


def test_numbers_of_numpy_are_read() -> None:
    data = [np.int64(-5), np.uint8(200)]
    assert read_pickle(io.BytesIO(pickle.dumps(data, 4))) == [-5, 200]


class _Calls:
    def __init__(self, *what: Any) -> None:
        self.what = what

    def __reduce__(self) -> Any:
        return self.what


@pytest.mark.parametrize(
    "what",
    [
        (os.system, ("touch pwned",)),
        (eval, ("open('pwned', 'w')",)),
        (np.lib.npyio.NpzFile, ("x",)),
        (np.frombuffer, (b"x",)),
        (getattr, ("x", "y")),
    ],
)
def test_no_code_is_called(what: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for protocol in (0, 2, 4):
        with pytest.raises(PickleError, match="never run"):
            read_pickle(io.BytesIO(pickle.dumps([_Calls(*what)], protocol)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "made",
    [
        b"]r\xff\xff\xff\x7f.",  # a memo with two billion places
        b"B\xff\xff\xff\xff.",  # a string of 4 GB
        b"\x8e" + struct.pack("<Q", 2**60) + b".",
        b"\x8b\xff\xff\xff\x7f.",  # a number of 2 GB
        b"(" * 10_000,
        b"]2a2a2a.",  # a list that contains itself
        b"(dI1\nI2\ns.",  # a key whose hash an attacker can choose
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(J\xff\xff\xff\x7ftU\1btR.",
        b"c_codecs\nencode\n(X\3\0\0\0abcU\6latin1tR" * 3 + b".",
        b"N" * 4_000_000,
        b"",
    ],
)
def test_bombs_need_neither_memory_nor_time(made: bytes) -> None:
    """All of them end at once, without much memory."""
    with contextlib.suppress(PickleError):
        read_pickle(io.BytesIO(made))


def test_every_allowed_opcode_is_one_of_python() -> None:
    known = {opcode.code.encode("latin-1") for opcode in pickletools.opcodes}
    from shardwright.transforms.sources.arrays.plain_pickle import _STEPS

    assert _STEPS.keys() <= known
