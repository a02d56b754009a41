"""Reads the arrays of a JSON object that is too large for memory, item by item, with their places."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from shardwright.transforms.concurrency.underway import UNDERWAY

_CHUNK_BYTES = 1 << 20
#: No sensible item is larger; what is would be held in memory as a whole.
_MOST_ITEM_BYTES = 256 << 20
#: An error so close to the end of what was read may only mean that there is more to read.
_NEAR_END = 32
_SPACE = re.compile(r"[ \t\n\r]*")
_BOM = b"\xef\xbb\xbf"
_LONG_NUMBER = 300
_UNFINISHED_STRING = "Unterminated string"
_WORDS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")


class JsonFault(ValueError):
    """The file is no such JSON.

    Attributes:
      byte: where.
      message: what is wrong there, without the place.
    """

    def __init__(self, byte: int, message: str) -> None:
        super().__init__(f"{message} at byte {byte}")
        self.byte = byte
        self.message = message


class Item(NamedTuple):
    """An item of an array, or a value that is no array.

    Attributes:
      name: under which the array or value stands in the object.
      value: as Python has it; None for those of `skip`.
      begin: its first byte.
      length: its bytes.
    """

    name: str
    value: Any
    begin: int
    length: int


def parse_item(data: bytes) -> Any:
    """Parses one JSON value. What is no UTF-8 in strings becomes surrogate escapes.

    Raises:
      ValueError: if it is none.
      RecursionError: if it is nested too deeply.
    """
    return _loads(data.decode("utf-8", "surrogateescape"))


def _integer(text: str) -> float:
    return int(text) if len(text) < _LONG_NUMBER else math.inf


#: Python refuses to parse integers of thousands of digits, a fault of that number and not of the file.
_PATIENT = json.JSONDecoder(parse_int=_integer)
_FAST = json.JSONDecoder()


def _loads(text: str) -> Any:
    return _decode(text, _SPACE.match(text).end())[0]  # type: ignore[union-attr]


def _decode(text: str, start: int) -> tuple[Any, int]:
    try:
        return _FAST.raw_decode(text, start)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return _PATIENT.raw_decode(text, start)


class _Window:
    """The stretch of a file that is being parsed.

    A byte stands as one character, whatever it means, so that places in the text are places in the file.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.begin = len(_BOM) if file.read(len(_BOM)) == _BOM else 0
        file.seek(self.begin)
        self.text = ""
        self.at = 0
        self.ended = False

    def fault(self, message: str, at: int | None = None) -> JsonFault:
        return JsonFault(self.begin + (self.at if at is None else at), message)

    def more(self) -> None:
        """Reads on, at least as much again as is there."""
        if self.at > _CHUNK_BYTES:
            self.text = self.text[self.at :]
            self.begin += self.at
            self.at = 0
        if len(self.text) - self.at > _MOST_ITEM_BYTES:
            raise self.fault("a value is larger than 256 MB")
        UNDERWAY.progress()
        chunk = self._file.read(max(_CHUNK_BYTES, len(self.text) - self.at))
        self.ended = not chunk
        self.text += chunk.decode("latin-1")

    def skip_space(self) -> str:
        """Goes on to the next character that is no space and returns it; empty at the file's end."""
        while True:
            self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
            if self.at < len(self.text):
                return self.text[self.at]
            self.more()
            if self.ended:
                return ""

    def expect(self, characters: str) -> str:
        """Returns the next character, which has to be one of those, and goes beyond it."""
        found = self.skip_space()
        if not found:
            raise self.fault("it ends unfinished")
        if found not in characters:
            raise self.fault(f"{found!r} stands where {' or '.join(characters)} belongs")
        self.at += 1
        return found

    def _final_fault(self, error: json.JSONDecodeError) -> JsonFault:
        """Tells a file that is cut off from one that is wrong, when there is no more to read."""
        rest = self.text[error.pos :].strip()
        cut_off = _UNFINISHED_STRING in error.msg or any(word.startswith(rest) for word in _WORDS)
        if cut_off:
            return self.fault("it ends unfinished", len(self.text))
        return self.fault("it is no JSON", error.pos)

    def value(self) -> tuple[Any, int, int]:
        """Returns the next value, where it begins and its bytes."""
        self.skip_space()
        while True:
            try:
                value, end = _decode(self.text, self.at)
            except json.JSONDecodeError as error:
                if self.ended:
                    raise self._final_fault(error) from None
                if error.pos <= len(self.text) - _NEAR_END and _UNFINISHED_STRING not in error.msg:
                    raise self.fault("it is no JSON", error.pos) from None
            except RecursionError:
                raise self.fault("its values are nested too deeply") from None
            else:
                if end < len(self.text) or self.ended:
                    begin, length = self.begin + self.at, end - self.at
                    piece = self.text[self.at : end]
                    if not piece.isascii():
                        value = parse_item(piece.encode("latin-1"))
                    self.at = end
                    return value, begin, length
            self.more()


def stream_object(file: IO[bytes]) -> Iterator[Item]:
    """Yields the items of all arrays in a JSON object, and its other values, in order.

    An array yields one more item at its end, without value and of length 0, so that an empty one
    shows too.

    Raises:
      JsonFault: if the file is no JSON object, or ends before its time.
    """
    window = _Window(file)
    window.expect("{")
    if window.skip_space() == "}":
        return
    while True:
        name = window.value()[0]
        if not isinstance(name, str):
            raise window.fault("an object has a name that is no string")
        window.expect(":")
        if window.skip_space() == "[":
            yield from _stream_array(window, name)
        else:
            yield Item(name, *window.value())
        if window.expect(",}") == "}":
            return


def _stream_array(window: _Window, name: str) -> Iterator[Item]:
    window.expect("[")
    if window.skip_space() == "]":
        window.expect("]")
    else:
        while True:
            yield Item(name, *window.value())
            if window.expect(",]") == "]":
                break
    yield Item(name, None, window.begin + window.at, 0)
