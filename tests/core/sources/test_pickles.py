"""Pickles of plain data are read like in Python, and hostile ones have no effect."""

from __future__ import annotations

import contextlib
import copyreg
import io
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.core.sources.arrays import cifar
from shardwright.core.sources.arrays.cifar import PickledArray, PickleError, read_pickle

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


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read(protocol: int, order: Any) -> None:
    array = np.arange(2000, dtype=np.uint16).reshape(10, -1).copy(order)
    for stored in (array, array.astype(">u2")):
        found = read_pickle(io.BytesIO(pickle.dumps({"data": stored}, protocol)))["data"]
        assert isinstance(found, PickledArray) and (found.integers() == array).all()


@pytest.mark.parametrize("array", [np.zeros(3, np.float32), np.array([{}]), np.zeros(2, "i2,f4")])
def test_arrays_of_other_values_are_refused(array: np.ndarray) -> None:
    with pytest.raises(PickleError):
        read_pickle(io.BytesIO(pickle.dumps(array, 2))).integers()


def test_numbers_of_numpy_are_read() -> None:
    data = [np.int64(-5), np.uint8(200)]
    assert read_pickle(io.BytesIO(pickle.dumps(data, 4))) == [-5, 200]


class _Calls:
    def __init__(self, *what: Any) -> None:
        self.what = what

    def __reduce__(self) -> Any:
        return self.what


class _WithState:
    def __init__(self) -> None:
        self.value = 1

    def __setstate__(self, state: Any) -> None:
        Path("pwned").touch()


_CALLS: tuple[Any, ...] = (
    (os.system, ("touch pwned",)),
    (eval, ("open('pwned', 'w')",)),
    (exec, ("open('pwned', 'w')",)),
    (np.lib.npyio.NpzFile, ("x",)),
    (np.frombuffer, (b"x",)),
    (getattr, ("x", "y")),
    (bytearray, (10**12,)),
    (_WithState, ()),
)


class _Persistent(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        return "pwned" if isinstance(value, set) else None


def _with_persistent_id(protocol: int) -> bytes:
    file = io.BytesIO()
    _Persistent(file, protocol).dump([set()])
    return file.getvalue()


@pytest.fixture
def extension() -> Any:
    copyreg.add_extension("os", "system", 7)
    yield 7
    copyreg.remove_extension("os", "system", 7)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_no_code_is_run(
    protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extension: int
) -> None:
    monkeypatch.chdir(tmp_path)
    for made in (
        pickle.dumps(_WithState(), protocol),
        *(pickle.dumps([_Calls(*call)], protocol) for call in _CALLS),
        _with_persistent_id(protocol),
        b"\x80\x02\x82\x07(X\x0b\0\0\0touch pwnedtR.",
        b"(X\x0b\0\0\0touch pwnedios\nsystem\n.",
        b"(cos\nsystem\nX\x0b\0\0\0touch pwnedo.",
        b"\x80\x05\x97.",
    ):
        with pytest.raises(PickleError, match="never run"):
            read_pickle(io.BytesIO(made))
    assert not list(tmp_path.iterdir())


_ENCODE = b"c_codecs\nencode\n"
_TYPE = b"cnumpy\ndtype\n(X\2\0\0\0u1tR"
_ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n)R"


@pytest.mark.parametrize(
    "made",
    [
        _ENCODE + b"}X\x01\0\0\0aK\1sb.",  # sets attributes of a function
        _ENCODE + b"N}X\x0c\0\0\0__defaults__)s\x86b.",
        b"cnumpy\nndarray\n)R.",
        b"cnumpy\nndarray\n)b.",
        _ARRAY + b"}b.",
        _ARRAY + b"(K\1K\1NNNtb.",
        b"]}b.",
        b"c__builtin__\nbytes\n(J\xff\xff\xff\x7ftR.",
        _ENCODE + b"(X\1\0\0\0aX\3\0\0\0zlbtR.",
        b"cnumpy.core.multiarray\nscalar\n(" + _TYPE + b"C\2abtR.",
        b"cos.path\njoin\n.",
        b"\x80\x04X\x05\0\0\0numpyX\x15\0\0\0ndarray.__reduce_ex__\x93.",
    ],
)
def test_names_that_arrays_need_cannot_be_misused(made: bytes) -> None:
    with pytest.raises(PickleError):
        read_pickle(io.BytesIO(made)).integers()
    array = np.arange(3)
    assert (read_pickle(io.BytesIO(pickle.dumps(array, 2))).integers() == array).all()


@pytest.mark.parametrize(
    "made",
    [
        b"]r\xff\xff\xff\x7f.",  # a memo with two billion places
        b"]p99999999999\n.",
        b"B\xff\xff\xff\xff.",  # a string of 4 GB
        b"\x8e" + struct.pack("<Q", 2**60) + b".",
        b"\x8b\xff\xff\xff\x7f.",  # a number of 2 GB
        b"(" * 10_000,
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(J\xff\xff\xff\x7ftU\1btR(K\1NNNNtb.",
        b"N" * 3_000_100,
        b"",
    ],
)
def test_bombs_need_neither_memory_nor_time(made: bytes) -> None:
    with pytest.raises(PickleError):
        read_pickle(io.BytesIO(made)).integers()


def test_the_same_text_is_not_encoded_again_and_again() -> None:
    text = b"X" + struct.pack("<I", 1000) + b"a" * 1000
    made = text + b"q\0" + b"".join(_ENCODE + b"(h\0U\6latin1tR" for _ in range(100)) + b"."
    with pytest.raises(PickleError, match="larger than its file"):
        read_pickle(io.BytesIO(made))


def test_a_large_pickle_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "data_batch_1").open("w+b") as file:
        file.truncate(cifar.MAX_PICKLE_BYTES + 1)
        with pytest.raises(PickleError, match=r"500.0 MB are read; save its images as a .npy file"):
            read_pickle(file)


def test_protocol_0_of_python_2_says_what_to_do() -> None:
    with pytest.raises(PickleError, match="protocol 2"):
        read_pickle(io.BytesIO(b"S'\\xff'\n."))
