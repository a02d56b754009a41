"""Reads pickles of plain data without running any of their code.

A pickle may call each object that `Unpickler.find_class` returns. Here that is never NumPy's own function,
because NumPy trusts the arguments, but a stand-in that keeps them. `PickledArray.integers` checks them.
"""

from __future__ import annotations

import pickle
import pickletools
import struct
from collections.abc import Callable
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
#: Operations that plain data does not need: other calls, persistent ids, extension codes and buffers.
_FORBIDDEN = frozenset((
    "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER",
    "READONLY_BUFFER",
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


class PickledArray:
    """A NumPy array or dtype, with the arguments and the state from which NumPy would make it.

    The state of an array is its version, shape, dtype, whether it is in Fortran order, and its bytes. The
    first argument of a dtype is its code, such as u1; its state begins with its version and byte order.
    """

    __slots__ = ("arguments", "state")

    def __init__(self, *arguments: Any, state: Any = None) -> None:
        self.arguments = arguments
        self.state = state

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def integers(self) -> np.ndarray:
        """Returns the array, if it holds integers.

        Raises:
          PickleError: If it holds other values, or its bytes do not fit its shape.
        """
        try:
            _, shape, dtype, fortran, data = self.state
            code = dtype.arguments[0] if isinstance(dtype, PickledArray) else ""
            code = code.decode("latin-1") if isinstance(code, bytes) else code
            if code not in _INTEGERS:
                raise PickleError("an array in it does not hold integers")
            order = ">" if dtype.state is not None and dtype.state[1] in (">", b">") else "<"
            array = np.frombuffer(data, order + code)
            return array.reshape(shape, order="F" if fortran else "C")
        except (TypeError, ValueError, IndexError, OverflowError) as error:
            raise PickleError(f"an array in it is damaged ({words_of(error)})") from None


class _StandIn:
    """Stands for a function that a pickle looks up by its name. The pickle cannot change it."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise PickleError("it changes a function, which is not plain data")


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
        calls: dict[str, Callable[..., Any]] = {
            "numpy.core.multiarray._reconstruct": PickledArray,
            "numpy.core.multiarray.scalar": lambda dtype, data: int(
                _array(data, dtype, (1,), "C").integers()[0]
            ),
            "numpy.core.numeric._frombuffer": _array,
            "numpy.dtype": PickledArray,
            "numpy.ndarray": _never,
            "_codecs.encode": self._encode,
            "builtins.bytes": lambda: b"",
        }
        self._stand_ins = {name: _StandIn(call) for name, call in calls.items()}

    def find_class(self, module: str, name: str) -> Any:
        """Returns the stand-in for one of the few names that plain data and arrays need."""
        module = module.replace("numpy._core", "numpy.core").replace("__builtin__", "builtins")
        if f"{module}.{name}" not in self._stand_ins:
            raise PickleError(f"it asks for {module}.{name}, which is not plain data and is never run")
        return self._stand_ins[f"{module}.{name}"]

    def _encode(self, text: Any, codec: Any = "") -> bytes:
        """Returns bytes that protocol 2 of Python 3 wrote as text."""
        if codec not in ("latin1", "latin-1", b"latin1", b"latin-1") or not isinstance(text, str):
            raise PickleError("it encodes something that is not text")
        self._to_encode -= len(text)
        if self._to_encode < 0:
            raise PickleError("its data is larger than its file")
        return text.encode("latin-1")


def _array(data: Any, dtype: Any, shape: Any, order: Any) -> PickledArray:
    return PickledArray(state=(1, shape, dtype, order == "F", data))


def _never(*_: Any) -> Any:
    raise PickleError("it calls numpy.ndarray, which is never run")


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
        if operation.name in _FORBIDDEN:
            raise PickleError(f"it holds more than plain data ({operation.name}), which is never run")
        if count > _MAX_OPERATIONS or (operation.name in _NUMBERED and int(argument or 0) > size):
            raise PickleError("it has more values than plain data of its size")
