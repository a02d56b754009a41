"""Reads large JSON files item by item, with the positions of the items."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from array import array
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from shardwright.core.concurrency.underway import UNDERWAY

_CHUNK_BYTES = 1 << 20
#: Largest item, since each item is held in memory.
_MAX_ITEM_BYTES = 256 << 20
#: An error this close to the end of the text may only mean that more must be read.
_NEAR_END = 32
_SPACE = re.compile(r"[ \t\n\r]*")
_BOM = b"\xef\xbb\xbf"
_DECODER = json.JSONDecoder()


class JsonFault(ValueError):
    """The file is not valid JSON; the message says what is wrong, and at which byte."""


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
      ValueError: If it is not JSON.
      RecursionError: If it is nested too deeply.
    """
    return json.loads(data.decode("utf-8", "surrogateescape"))


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
        return JsonFault(f"{message} at byte {self.begin + (self.at if at is None else at)}")

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
            if self.at < len(self.text) or self.ended:
                return self.text[self.at : self.at + 1]
            self.more()

    def expect(self, characters: str) -> str:
        """Reads and returns the next character, which must be one of those given."""
        character = self.skip_space()
        if not character or character not in characters:
            what = repr(character) if character else "the end"
            raise self.fault(f"{what} instead of {' or '.join(characters)}")
        self.at += 1
        return character

    def check_end(self) -> None:
        """Checks that no second document follows, as in files that were joined. Other bytes are ignored.

        Raises:
          JsonFault: If one follows; its values would be lost.
        """
        if self.skip_space() in ("{", "["):
            raise self.fault("a second document begins")

    def value(self) -> tuple[Any, int, int]:
        """Returns (next value, position, number of bytes)."""
        self.skip_space()
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                is_cut = "Unterminated string" in error.msg or error.pos > len(self.text) - _NEAR_END
                if self.ended or not is_cut:
                    raise self.fault("it is not JSON or ends too early", error.pos) from None
            except (RecursionError, ValueError):  # Python reads integers of up to 4,300 digits
                raise self.fault("its values are nested too deeply or too long") from None
            else:
                if end < len(self.text) or self.ended:
                    begin, length = self.begin + self.at, end - self.at
                    piece = self.text[self.at : end]
                    self.at = end
                    return value if piece.isascii() else parse_item(piece.encode("latin-1")), begin, length
            self.more()

    def items(self, name: str) -> Iterator[Item]:
        """Yields the items of an array."""
        self.expect("[")
        end = self.expect("]") if self.skip_space() == "]" else ""
        while end != "]":
            yield Item(name, *self.value())
            end = self.expect(",]")


def stream_object(file: IO[bytes]) -> Iterator[Item]:
    """Yields the items of all arrays in a JSON object, and its other values, in order.

    Raises:
      JsonFault: If the file is not a JSON object, or is incomplete.
    """
    window = _Window(file)
    window.expect("{")
    end = window.expect("}") if window.skip_space() == "}" else ""
    while end != "}":
        name = window.value()[0]
        if not isinstance(name, str):
            raise window.fault("an object has a name that is not a string")
        window.expect(":")
        if window.skip_space() == "[":
            yield from window.items(name)
        else:
            yield Item(name, *window.value())
        end = window.expect(",}")
    window.check_end()


def stream_list(file: IO[bytes]) -> Iterator[Item]:
    """Yields the items of a JSON array, whose name is empty, in order.

    Raises:
      JsonFault: If the file is not a JSON array, or is incomplete.
    """
    window = _Window(file)
    yield from window.items("")
    window.check_end()


class JsonItems:
    """Items of a file, such as those of one JSON array; only their places are in memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._places = array("q")  # offset and length of each item

    def __len__(self) -> int:
        return len(self._places) // 2

    def scan(self) -> Iterator[Any]:
        """Yields all items of a file that is one array, and notes their places.

        Raises:
          JsonFault: If it is not a complete JSON array; the message names the place.
        """
        for item in stream_list(self._file):
            self.add(item)
            yield item.value

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
    items: list[Any] = []
    with contextlib.suppress(JsonFault):
        items.extend(item.value for item in stream_list(io.BytesIO(head)))
    return items
