"""Reads large JSON files item by item, with the positions of the items."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
from array import array
from collections.abc import Hashable, Iterator
from typing import IO, Any, NamedTuple

from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.sources.annotation_files import AnnotationFault

_CHUNK_BYTES = 1 << 20
#: Largest item, since each item is held in memory.
_MAX_ITEM_BYTES = 256 << 20
#: An error this close to the end of the text may only mean that more must be read.
_NEAR_END = 32
_SPACE = re.compile(r"[ \t\n\r]*")
_BOM = b"\xef\xbb\xbf"
_LONG_NUMBER = 300
_UNFINISHED_STRING = "Unterminated string"
_WORDS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")


class JsonFault(ValueError):
    """The file is not valid JSON.

    Attributes:
      byte: Position of the fault.
      message: What is wrong, without the position.
    """

    def __init__(self, byte: int, message: str) -> None:
        super().__init__(f"{message} at byte {byte}")
        self.byte = byte
        self.message = message


class Item(NamedTuple):
    """An item of an array, or a value that is not an array.

    Attributes:
      name: Name of the array or value in the object.
      value: Parsed value.
      begin: Position of its first byte.
      length: Number of bytes.
    """

    name: str
    value: Any
    begin: int
    length: int


def parse_item(data: bytes) -> Any:
    """Parses one JSON value. Invalid UTF-8 in strings becomes surrogate escapes.

    Raises:
      ValueError: if it is not JSON.
      RecursionError: if it is nested too deeply.
    """
    return _loads(data.decode("utf-8", "surrogateescape"))


def _integer(text: str) -> float:
    return int(text) if len(text) < _LONG_NUMBER else math.inf


#: Python refuses integers of thousands of digits. Such a number does not make the file invalid.
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
    """The part of a file that is being parsed.

    Each byte is one character, so that positions in the text are positions in the file.
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
        """Reads more text, at least as much as is left."""
        if self.at > _CHUNK_BYTES:
            self.text = self.text[self.at :]
            self.begin += self.at
            self.at = 0
        if len(self.text) - self.at > _MAX_ITEM_BYTES:
            raise self.fault("a value is larger than 256 MB")
        UNDERWAY.progress()
        chunk = self._file.read(max(_CHUNK_BYTES, len(self.text) - self.at))
        self.ended = not chunk
        self.text += chunk.decode("latin-1")

    def skip_space(self) -> str:
        """Skips whitespace and returns the next character; empty at the end of the file."""
        while True:
            self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
            if self.at < len(self.text):
                return self.text[self.at]
            self.more()
            if self.ended:
                return ""

    def expect(self, characters: str) -> str:
        """Reads and returns the next character, which must be one of those given."""
        found = self.skip_space()
        if not found:
            raise self.fault("it ends too early")
        if found not in characters:
            raise self.fault(f"{found!r} instead of {' or '.join(characters)}")
        self.at += 1
        return found

    def check_end(self) -> None:
        """Checks that no second document follows, as in files that were joined. Other bytes are ignored.

        Raises:
          JsonFault: if one follows; its values would be lost.
        """
        if self.skip_space() in ("{", "["):
            raise self.fault("a second document begins")

    def _final_fault(self, error: json.JSONDecodeError) -> JsonFault:
        """Returns whether the file is cut off or wrong, as a fault, after all was read."""
        rest = self.text[error.pos :].strip()
        cut_off = _UNFINISHED_STRING in error.msg or any(word.startswith(rest) for word in _WORDS)
        if cut_off:
            return self.fault("it ends too early", len(self.text))
        return self.fault("it is not JSON", error.pos)

    def value(self) -> tuple[Any, int, int]:
        """Returns (next value, position, number of bytes)."""
        self.skip_space()
        while True:
            try:
                value, end = _decode(self.text, self.at)
            except json.JSONDecodeError as error:
                if self.ended:
                    raise self._final_fault(error) from None
                if error.pos <= len(self.text) - _NEAR_END and _UNFINISHED_STRING not in error.msg:
                    raise self.fault("it is not JSON", error.pos) from None
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

    After the last item, each array yields one more item without a value and of length 0, so that empty
    arrays are visible too.

    Raises:
      JsonFault: if the file is not a JSON object, or is incomplete.
    """
    window = _Window(file)
    window.expect("{")
    if window.skip_space() == "}":
        window.expect("}")
        window.check_end()
        return
    while True:
        name = window.value()[0]
        if not isinstance(name, str):
            raise window.fault("an object has a name that is not a string")
        window.expect(":")
        if window.skip_space() == "[":
            yield from _stream_array(window, name)
        else:
            yield Item(name, *window.value())
        if window.expect(",}") == "}":
            window.check_end()
            return


def stream_list(file: IO[bytes]) -> Iterator[Item]:
    """Yields the items of a JSON array, whose name is empty, in order.

    Raises:
      JsonFault: if the file is not a JSON array, or is incomplete.
    """
    window = _Window(file)
    for item in _stream_array(window, ""):
        if item.length:
            yield item
    window.check_end()


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


class JsonItems:
    """The items of a file that is one JSON array; only their places are in memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._places = array("q")  # offset and length of each item

    def scan(self) -> Iterator[Any]:
        """Yields all items, and notes their places.

        Raises:
          AnnotationFault: If it is not a complete JSON array; the message names the place.
        """
        try:
            for item in stream_list(self._file):
                self.add(item)
                yield item.value
        except JsonFault as fault:
            raise AnnotationFault(
                f"it is not a complete JSON array: {fault}; fetch it again or fix it"
            ) from None

    def add(self, item: Item) -> None:
        """Notes the place of an item."""
        self._places.extend((item.begin, item.length))

    def number(self, index: int) -> int:
        """Returns the place of an item from 1."""
        return index + 1

    def read(self, index: int) -> Any:
        """Returns an item."""
        begin, length = self._places[2 * index : 2 * index + 2]
        return parse_item(os.pread(self._file.fileno(), length, begin))


def first_items(head: bytes) -> list[Any]:
    """Returns the items of a JSON array that are complete in the first bytes of a file."""
    items = []
    with contextlib.suppress(JsonFault):
        for item in stream_list(io.BytesIO(head)):
            items.append(item.value)
    return items


class ItemsByKey:
    """The items of a large file by a key that several of them share; only their places are in memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        # The items of a key form a linked list, last one first.
        self._begins, self._lengths = array("q"), array("i")
        self._ranks, self._before = array("i"), array("i")
        self._last: dict[Hashable, int] = {}

    def add(self, key: Hashable, item: Item, rank: int) -> None:
        """Adds an item.

        Args:
          key: Its key.
          item: Its place.
          rank: Its number for messages.
        """
        self._before.append(self._last.get(key, -1))
        self._last[key] = len(self._begins)
        self._begins.append(item.begin)
        self._lengths.append(item.length)
        self._ranks.append(rank)

    def __iter__(self) -> Iterator[Hashable]:
        """Yields all keys."""
        yield from self._last

    def ranks(self, key: Hashable) -> list[int]:
        """Returns the numbers of the items of a key, in the order of the file."""
        return [self._ranks[place] for place in self._places(key)]

    def read(self, key: Hashable) -> Iterator[Any]:
        """Yields the items of a key, in the order of the file."""
        for place in self._places(key):
            yield parse_item(os.pread(self._file.fileno(), self._lengths[place], self._begins[place]))

    def _places(self, key: Hashable) -> list[int]:
        places = []
        place = self._last.get(key, -1)
        while place >= 0:
            places.append(place)
            place = self._before[place]
        return places[::-1]
