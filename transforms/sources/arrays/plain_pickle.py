"""Reads pickles of plain data without running any of their code.

A pickle is a program for a small stack machine (see `pickletools` in the standard library). This machine
has only the operations that make lists, dictionaries, texts, numbers and NumPy arrays. It does not read
long strings but keeps their positions, so that the pixels of an array can be read in place.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

#: Strings with more bytes are not read but stay in the file.
_LONG_STRING = 1 << 16
#: Most steps of a program; CIFAR-100 takes about 300,000.
_MAX_STEPS = 3_000_000
#: Most bytes of a line; old pickles write names and numbers as lines.
_MAX_LINE = 1 << 12

_ARRAY, _DTYPE, _NDARRAY, _SCALAR, _ENCODE, _FROM_BUFFER, _BYTES = (
    "_reconstruct", "dtype", "ndarray", "scalar", "encode", "_frombuffer", "bytes",
)  # fmt: skip
#: The only names that a pickle may look up. Here they name records; they are never called.
_GLOBALS = {
    **{(f"numpy.{core}.multiarray", name): name for core in ("core", "_core") for name in (_ARRAY, _SCALAR)},
    **{(f"numpy.{core}.numeric", _FROM_BUFFER): _FROM_BUFFER for core in ("core", "_core")},
    ("numpy", _DTYPE): _DTYPE,
    ("numpy", _NDARRAY): _NDARRAY,
    ("_codecs", _ENCODE): _ENCODE,
    ("__builtin__", _BYTES): _BYTES,
    ("builtins", _BYTES): _BYTES,
}


class PickleError(Exception):
    """The pickle is damaged or holds more than plain data."""


class LongString(NamedTuple):
    """A string that was not read.

    Attributes:
      offset: Position of its first byte.
      length: Number of bytes.
    """

    offset: int
    length: int


class _Name(NamedTuple):
    """A name that a pickle looked up."""

    name: str


@dataclass
class PickledType:
    """A NumPy dtype: its code, such as u1, and its byte order."""

    code: str
    order: str = "|"


@dataclass
class PickledArray:
    """A NumPy array.

    Attributes:
      shape: Shape of the array.
      dtype: Type of its values.
      fortran: Whether it is in Fortran order.
      data: Bytes of its values, or their position in the file.
    """

    shape: tuple[int, ...] = ()
    dtype: PickledType | None = None
    fortran: bool = False
    data: bytes | LongString = b""


_MARK = object()


def read_pickle(file: IO[bytes]) -> Any:
    """Returns the plain data of a pickle: texts as `str` or `bytes`, long ones as `LongString`.

    Args:
      file: Seekable file at the beginning of the pickle.

    Raises:
      PickleError: if the pickle is damaged or holds anything else.
    """
    machine = _Machine(file)
    try:
        return machine.run()
    except (IndexError, KeyError, TypeError, ValueError, struct.error, OverflowError) as error:
        raise PickleError(f"it is damaged ({type(error).__name__} at byte {file.tell()})") from None


class _Machine:
    """Stack machine that runs the operations of a pickle."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._begin = file.tell()
        self._size = file.seek(0, 2)
        file.seek(self._begin)
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        #: Bytes of text that may still be encoded; a valid pickle encodes each text only once.
        self._to_encode = self._size

    def run(self) -> Any:
        read = self._file.read
        steps = _STEPS
        for _ in range(_MAX_STEPS):
            code = read(1)
            if code == b".":
                return self._stack.pop()
            if not code:
                raise PickleError("it ends early")
            step = steps.get(code)
            if step is None:
                raise PickleError(f"it holds more than plain data (operation {code!r}), which is never run")
            step(self)
        raise PickleError("it has no end")

    def bytes_of(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise PickleError("it ends early")
        return data

    def number(self, layout: struct.Struct) -> Any:
        return layout.unpack(self.bytes_of(layout.size))[0]

    def line(self) -> str:
        line = self._file.readline(_MAX_LINE)
        if not line.endswith(b"\n"):
            raise PickleError("a line has no end")
        return line[:-1].decode("latin-1")

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def string(self, length: int, codec: str = "") -> None:
        """Pushes a string, or its position if it is long."""
        if length > _LONG_STRING:
            offset = self._file.tell()
            if length > self._size - offset:
                raise PickleError("it ends early")
            self._file.seek(length, 1)
            self.push(LongString(offset, length) if not codec else _LongText(offset, length))
            return
        data = self.bytes_of(length)
        self.push(data.decode(codec, "surrogatepass") if codec else data)

    def to_mark(self) -> list[Any]:
        """Removes and returns everything down to the last mark."""
        place = len(self._stack) - 1
        while self._stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise PickleError("a mark is missing")
        items = self._stack[place + 1 :]
        del self._stack[place:]
        return items

    def extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise PickleError("it appends to something that is not a list")
        target.extend(items)

    def update(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise PickleError("it sets an item of something that is not a dictionary")
        for key, value in zip(items[::2], items[1::2]):
            # Python randomizes their hashes, so a crafted pickle cannot slow a dictionary down.
            if type(key) not in (str, bytes):
                raise PickleError("the key of a dictionary is not text")
            target[key.decode("utf-8", "replace") if type(key) is bytes else key] = value

    def look_up(self, module: str, name: str) -> None:
        module = "_codecs" if module == "codecs" else module
        if (module, name) not in _GLOBALS:
            raise PickleError(f"it asks for {module}.{name}, which is not plain data and is never run")
        self.push(_Name(name))

    def reduce(self) -> None:
        arguments, callee = self._stack.pop(), self._stack.pop()
        if type(callee) is not _Name or type(arguments) is not tuple:
            raise PickleError("it calls something that is not a name")
        if callee.name == _ARRAY:
            self.push(PickledArray())
        elif callee.name == _DTYPE:
            self.push(PickledType(_text(arguments[0])))
        elif callee.name == _FROM_BUFFER:
            data, dtype, shape, order = arguments
            self.push(_array(shape, dtype, order == "F", data))
        elif callee.name == _SCALAR:
            self.push(_scalar(*arguments))
        elif callee.name == _ENCODE:
            self.push(self._encoded(*arguments))
        elif callee.name == _BYTES and not arguments:
            self.push(b"")
        else:
            raise PickleError(f"it calls {callee.name}")

    def _encoded(self, text: Any, codec: str = "") -> bytes:
        """Returns bytes that protocol 2 of Python 3 wrote as text."""
        if codec not in ("latin1", "latin-1") or not isinstance(text, str | _LongText):
            raise PickleError("it encodes something that is not text")
        self._to_encode -= text.length if isinstance(text, _LongText) else len(text)
        if self._to_encode < 0:
            raise PickleError("its data is larger than its file")
        if isinstance(text, _LongText):
            here = self._file.tell()
            self._file.seek(text.offset)
            text, _ = self.bytes_of(text.length).decode("utf-8"), self._file.seek(here)
        return bytes(text.encode("latin-1"))

    def build(self) -> None:
        state, target = self._stack.pop(), self._stack[-1]
        if type(state) is not tuple:
            raise PickleError("it changes something that is not an array")
        if type(target) is PickledType:
            target.order = _text(state[1])
        elif type(target) is PickledArray:
            _, shape, dtype, fortran, data = state
            self._stack[-1].__dict__.update(_array(shape, dtype, bool(fortran), data).__dict__)
        else:
            raise PickleError("it changes something that is not an array")

    def put(self, place: int) -> None:
        self._memo[place] = self._stack[-1]

    def get(self, place: int) -> None:
        self.push(self._memo[place])


class _LongText(NamedTuple):
    """A long UTF-8 text that was not read."""

    offset: int
    length: int


def _text(value: Any) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


def _array(shape: Any, dtype: Any, fortran: bool, data: Any) -> PickledArray:
    sides = type(shape) is tuple and all(type(side) is int and 0 <= side < 2**63 for side in shape)
    if not sides or type(dtype) is not PickledType or not isinstance(data, bytes | LongString):
        raise PickleError("an array in it is damaged")
    return PickledArray(shape, dtype, fortran, data)


_SCALARS = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q"}


def _scalar(dtype: Any, data: Any) -> int:
    if type(dtype) is not PickledType or dtype.code not in _SCALARS or not isinstance(data, bytes):
        raise PickleError("a number in it is damaged")
    return int(struct.unpack((">" if dtype.order == ">" else "<") + _SCALARS[dtype.code], data)[0])


def _quoted(machine: _Machine) -> None:
    text = machine.line()
    if len(text) < 2 or text[0] not in "\"'" or text[-1] != text[0]:
        raise PickleError("a string in it is damaged")
    machine.push(codecs.escape_decode(text[1:-1].encode("latin-1"))[0])


def _integer(machine: _Machine) -> None:
    text = machine.line()
    special = {"00": False, "01": True}
    machine.push(special[text] if text in special else int(text.removesuffix("L")))


def _long(machine: _Machine, size: int) -> None:
    if size < 0 or size > 1 << 10:
        raise PickleError("a number in it is too long")
    machine.push(int.from_bytes(machine.bytes_of(size), "little", signed=True))


def _set_top(machine: _Machine, count: int) -> None:
    items = tuple(machine._stack[-count:])
    if len(items) < count:
        raise PickleError("the stack is empty")
    del machine._stack[-count:]
    machine.push(items)


def _append(machine: _Machine) -> None:
    item = machine._stack.pop()
    machine.extend([item])


def _set_item(machine: _Machine) -> None:
    value, key = machine._stack.pop(), machine._stack.pop()
    machine.update([key, value])


def _dict(machine: _Machine) -> None:
    items = machine.to_mark()
    machine.push({})
    machine.update(items)


def _stack_global(machine: _Machine) -> None:
    name, module = machine._stack.pop(), machine._stack.pop()
    machine.look_up(_text(module), _text(name))


_U1, _U2, _U4, _U8 = (struct.Struct(f"<{code}") for code in "BHIQ")
_I4, _F8 = struct.Struct("<i"), struct.Struct(">d")
_STEPS: dict[bytes, Callable[[_Machine], Any]] = {
    b"\x80": lambda m: m.bytes_of(1),  # PROTO
    b"\x95": lambda m: m.bytes_of(8),  # FRAME
    b"(": lambda m: m.push(_MARK),
    b"0": lambda m: m._stack.pop(),
    b"1": lambda m: m.to_mark(),
    b"2": lambda m: m.push(m._stack[-1]),
    b"}": lambda m: m.push({}),
    b"]": lambda m: m.push([]),
    b")": lambda m: m.push(()),
    b"d": _dict,
    b"l": lambda m: m.push(m.to_mark()),
    b"t": lambda m: m.push(tuple(m.to_mark())),
    b"\x85": lambda m: _set_top(m, 1),
    b"\x86": lambda m: _set_top(m, 2),
    b"\x87": lambda m: _set_top(m, 3),
    b"a": _append,
    b"e": lambda m: m.extend(m.to_mark()),
    b"s": _set_item,
    b"u": lambda m: m.update(m.to_mark()),
    b"S": _quoted,
    b"T": lambda m: m.string(m.number(_U4)),
    b"U": lambda m: m.string(m.number(_U1)),
    b"B": lambda m: m.string(m.number(_U4)),
    b"C": lambda m: m.string(m.number(_U1)),
    b"\x8e": lambda m: m.string(m.number(_U8)),
    b"\x96": lambda m: m.string(m.number(_U8)),  # BYTEARRAY8
    b"V": lambda m: m.push(m.line().encode("latin-1").decode("raw-unicode-escape")),
    b"X": lambda m: m.string(m.number(_U4), "utf-8"),
    b"\x8c": lambda m: m.string(m.number(_U1), "utf-8"),
    b"\x8d": lambda m: m.string(m.number(_U8), "utf-8"),
    b"I": _integer,
    b"L": _integer,
    b"J": lambda m: m.push(m.number(_I4)),
    b"K": lambda m: m.push(m.number(_U1)),
    b"M": lambda m: m.push(m.number(_U2)),
    b"\x8a": lambda m: _long(m, m.number(_U1)),
    b"\x8b": lambda m: _long(m, m.number(_I4)),
    b"F": lambda m: m.push(float(m.line())),
    b"G": lambda m: m.push(m.number(_F8)),
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"p": lambda m: m.put(int(m.line())),
    b"q": lambda m: m.put(m.number(_U1)),
    b"r": lambda m: m.put(m.number(_U4)),
    b"\x94": lambda m: m.put(len(m._memo)),
    b"g": lambda m: m.get(int(m.line())),
    b"h": lambda m: m.get(m.number(_U1)),
    b"j": lambda m: m.get(m.number(_U4)),
    b"c": lambda m: m.look_up(m.line(), m.line()),
    b"\x93": _stack_global,
    b"R": lambda m: m.reduce(),
    b"b": lambda m: m.build(),
}
