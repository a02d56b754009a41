"""Reads pickles of plain data without running any of their code.

A pickle may call whatever `Unpickler.find_class` returns. Here that is never NumPy's own function, because
NumPy trusts the arguments, but a stand-in that checks them and keeps an array's type, shape and bytes.
"""

from __future__ import annotations

import math
import pickle
import pickletools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from shardwright.schemas.errors import words_of
from shardwright.schemas.units import format_size

#: Most bytes of a pickle, which is read into memory. CIFAR-100 has 155 MB.
MAX_PICKLE_BYTES = 500_000_000
#: Most operations of a pickle; CIFAR-100 takes about 300,000.
_MAX_OPERATIONS = 3_000_000
#: Operations that name values by a number, for which `Unpickler` reserves memory.
_NUMBERED = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))
#: Operations that plain data needs: no other calls, persistent ids, extension codes and buffers.
_OPERATIONS = _NUMBERED | frozenset((
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP", "MEMOIZE", "GET", "BINGET", "LONG_BINGET",
    "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT",
    "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    "BYTEARRAY8", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "EMPTY_LIST", "LIST", "APPEND",
    "APPENDS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_DICT", "DICT", "SETITEM",
    "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
))  # fmt: skip
#: NumPy's codes of integers.
_INTEGERS = frozenset(("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"))
#: Errors of `pickle` and `pickletools` about damaged pickles.
_DAMAGES = (
    pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, TypeError, AttributeError,
    OverflowError, MemoryError, RecursionError, struct.error,
)  # fmt: skip


class PickleError(Exception):
    """The pickle is damaged, too large, or holds more than plain data."""


@dataclass(eq=False, slots=True)
class PickledType:
    """A NumPy dtype: its code, such as u1, and its byte order."""

    code: str
    order: str = "|"

    def __setstate__(self, state: Any) -> None:
        order = _text(state[1])
        if order not in ("<", ">", "|", "="):
            raise PickleError("the type of an array in it is damaged")
        self.order = order


@dataclass(eq=False, slots=True)
class PickledArray:
    """A NumPy array.

    Attributes:
      shape: Shape of the array.
      dtype: Type of its values.
      fortran: Whether it is in Fortran order.
      data: Bytes of its values.
    """

    shape: tuple[int, ...] = ()
    dtype: PickledType | None = None
    fortran: bool = False
    data: bytes | bytearray = b""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        sides = type(shape) is tuple and all(type(side) is int and 0 <= side < 2**63 for side in shape)
        if not sides or type(dtype) is not PickledType or not isinstance(data, bytes | bytearray):
            raise PickleError("an array in it is damaged")
        self.shape, self.dtype, self.fortran, self.data = shape, dtype, bool(fortran), data

    def integers(self) -> np.ndarray:
        """Returns the array, if it holds integers.

        Raises:
          PickleError: If it holds other values, or its bytes do not fit its shape.
        """
        if self.dtype is None or self.dtype.code not in _INTEGERS:
            code = self.dtype.code if self.dtype is not None else "nothing"
            raise PickleError(f"an array in it holds values of type {code}, not integers")
        dtype = np.dtype((">" if self.dtype.order == ">" else "<") + self.dtype.code)
        if math.prod(self.shape) * dtype.itemsize != len(self.data):
            raise PickleError(f"its array has {len(self.data)} bytes, which is not its shape {self.shape}")
        return np.frombuffer(self.data, dtype).reshape(self.shape, order="F" if self.fortran else "C")


class _StandIn:
    """Stands for something that a pickle looks up by its name. The pickle cannot change it.

    Args:
      name: Its name.
      call: What a call of it does. None if plain data does not call it.
    """

    __slots__ = ("_call", "_name")

    def __init__(self, name: str, call: Callable[..., Any] | None = None) -> None:
        self._name, self._call = name, call

    def __call__(self, *arguments: Any) -> Any:
        if self._call is None:
            raise PickleError(f"it calls {self._name}, which is never run")
        return self._call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise PickleError(f"it changes {self._name}, which is not plain data")


class _Unpickler(pickle.Unpickler):
    """Reads plain data and arrays.

    Args:
      file: File at the beginning of the pickle.
      size: Number of its bytes.
    """

    def __init__(self, file: IO[bytes], size: int) -> None:
        super().__init__(file, encoding="bytes")
        #: Characters that may still be encoded: plain data encodes each text once.
        self._to_encode = size
        self._stand_ins = {
            "_reconstruct": _StandIn("_reconstruct", lambda *_: PickledArray()),
            "scalar": _StandIn("scalar", _scalar),
            "_frombuffer": _StandIn("_frombuffer", _from_buffer),
            "dtype": _StandIn("dtype", lambda code, *_: PickledType(_text(code))),
            "ndarray": _StandIn("ndarray"),
            "encode": _StandIn("encode", self._encode),
            "bytes": _StandIn("bytes", lambda: b""),
        }

    def find_class(self, module: str, name: str) -> Any:
        """Returns the stand-in for one of the few names that plain data and arrays need."""
        if (module, name) not in _GLOBALS:
            raise PickleError(f"it asks for {module}.{name}, which is not plain data and is never run")
        return self._stand_ins[name]

    def _encode(self, text: Any, codec: str = "") -> bytes:
        """Returns bytes that protocol 2 of Python 3 wrote as text."""
        if codec not in ("latin1", "latin-1", b"latin1", b"latin-1") or not isinstance(text, str):
            raise PickleError("it encodes something that is not text")
        self._to_encode -= len(text)
        if self._to_encode < 0:
            raise PickleError("its data is larger than its file")
        return text.encode("latin-1")


_GLOBALS = frozenset(
    (
        *(
            (f"numpy.{core}.multiarray", name)
            for core in ("core", "_core")
            for name in ("_reconstruct", "scalar")
        ),
        *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        ("_codecs", "encode"),
        ("__builtin__", "bytes"),
        ("builtins", "bytes"),
    )
)


def read_pickle(file: IO[bytes]) -> Any:
    """Returns the plain data of a pickle, with each array as a `PickledArray`.

    Args:
      file: Seekable file that consists of the pickle. Texts of Python 2 are returned as bytes.

    Raises:
      PickleError: If the pickle is damaged, too large, or holds anything else.
    """
    size = file.seek(0, 2)
    if size > MAX_PICKLE_BYTES:
        raise PickleError(
            f"it has {format_size(size)}, and pickles of up to {format_size(MAX_PICKLE_BYTES)} are read; "
            "save its images as a .npy file"
        )
    file.seek(0)
    try:
        _check_operations(file, size)
        file.seek(0)
        return _Unpickler(file, size).load()
    except _DAMAGES as error:
        if isinstance(error, UnicodeDecodeError) and error.encoding == "ascii":
            # `pickletools` does not read them.
            raise PickleError("it is a pickle of protocol 0 with bytes; save it with protocol 2") from None
        raise PickleError(f"it is damaged ({words_of(error)})") from None


def _check_operations(file: IO[bytes], size: int) -> None:
    """Checks that a pickle has only operations of plain data, and asks for no more memory than it has bytes.

    Raises:
      PickleError: If it has others, or too many.
    """
    for count, (operation, argument, _) in enumerate(pickletools.genops(file), 1):
        if operation.name not in _OPERATIONS:
            raise PickleError(f"it holds more than plain data ({operation.name}), which is never run")
        if count > _MAX_OPERATIONS or (operation.name in _NUMBERED and int(argument or 0) > size):
            raise PickleError("it has more values than plain data of its size")


def _text(value: Any) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> PickledArray:
    array = PickledArray()
    array.__setstate__((1, shape, dtype, order == "F", data))
    return array


def _scalar(dtype: Any, data: Any) -> int:
    return int(_from_buffer(data, dtype, (1,), "C").integers()[0])
