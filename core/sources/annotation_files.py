"""Reads annotation files: small ones, of one image each, and large JSON and XML files entry by entry.

Only the places of the entries of a large file are in memory.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count
from typing import IO, Any, NamedTuple, TypeVar
from xml.parsers import expat

from shardwright.core import storage
from shardwright.core.concurrency.thread_pool import each, ordered_map, reading_executor
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.plain_text import UTF16, is_utf16

Value = TypeVar("Value")
Result = TypeVar("Result")

MAX_BYTES = 16 << 20
#: Items that are being read or wait for the ones before them.
_READS_AHEAD = 1024
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
#: Errors of a single file; other errors affect the whole machine.
OF_ONE_FILE = (
    *_NOT_THERE, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV,
)  # fmt: skip


class AnnotationFault(Exception):
    """An image, or what is said about it, cannot be used; the message says why.

    Attributes:
      reason: Reason for the quarantine; empty for the usual one of the format.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


@contextlib.contextmanager
def faults_in(part: str) -> Iterator[None]:
    """Turns a ValueError about a part of a file, such as a line, into an AnnotationFault that names it."""
    try:
        yield
    except ValueError as error:
        raise AnnotationFault(f"{part}: {error}") from None


def read_annotation_file(path: str, max_bytes: int = MAX_BYTES) -> bytes | None:
    """Reads a file.

    Args:
      path: Path of the file.
      max_bytes: Size from which the file is too large.

    Returns:
      The content, or None if the file does not exist.

    Raises:
      AnnotationFault: If the file cannot be read, is too large or is UTF-16 text.
      EngineError: If the storage failed.
    """
    try:
        with UNDERWAY.working_on(path, "read"):
            data = storage.read_head(path, max_bytes)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        if error.errno in OF_ONE_FILE:
            why = (error.strerror or str(error)).lower()
            raise AnnotationFault(f"its annotations cannot be read: {why}") from None
        raise storage.fault(error, "read", path) from error
    if is_utf16(data):
        raise AnnotationFault(f"its annotation file is {UTF16}")
    if len(data) >= max_bytes:
        raise AnnotationFault(f"its annotations are {max_bytes >> 20} MB or more")
    return data


def parse_json(data: bytes) -> Any:
    """Returns the value in a JSON file.

    Raises:
      AnnotationFault: If it is not JSON; the message names the line.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "it"
        raise AnnotationFault(f"{where} is not JSON") from None


def rows_of(data: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the cells of each line of a text that is not blank."""
    lines = data.decode("utf-8-sig", "replace").splitlines()
    return ((line, cells) for line, text in enumerate(lines, 1) if (cells := text.split()))


def read_list_file(path: str) -> bytes | None:
    """Reads a file that lists images, such as those of a split; returns None if it does not exist.

    Raises:
      UsageError: If the file cannot be used.
      EngineError: If the storage failed.
    """
    try:
        return read_annotation_file(path)
    except AnnotationFault as fault:
        raise UsageError(f"{path}: {fault}.") from None


def side_by_side(function: Callable[[Value], Result], items: Iterable[Value], path: str) -> Iterator[Result]:
    """Yields a function's results in order; calls it in parallel if the items are remote.

    Args:
      function: Function to call for each item.
      items: Items to process.
      path: Path that tells whether the items are remote.
    """
    if not storage.is_remote(path):
        return map(function, items)
    return ordered_map(
        each(function),
        items,
        reading_executor(),
        weigh=lambda _: 0,
        max_items=_READS_AHEAD,
        chunk_items=1,
    )


# Large files, entry by entry

#: Bytes of a file that are read at once, and those for one XML element.
_CHUNK_BYTES, _ELEMENT_BYTES = 1 << 20, 1 << 12
#: Largest item, since each item is held in memory.
_MAX_ITEM_BYTES = 256 << 20
#: An error this close to the end of the text may only mean that more must be read.
_NEAR_END = 32
_SPACE = re.compile(r"[ \t\n\r]*")
_BOM = b"\xef\xbb\xbf"
_DECODER = json.JSONDecoder()
_UTF8 = "utf-8"
_MAX_DEPTH = 64


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

    def fault(self, message: str, at: int | None = None) -> AnnotationFault:
        place = self.begin + (self.at if at is None else at)
        return AnnotationFault(f"its JSON is broken at byte {place}: {message}; fetch it again or fix it")

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
          AnnotationFault: If one follows; its values would be lost.
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

    def members(self, begin: str, end: str) -> Iterator[None]:
        """Yields at the beginning of each member of an array or object between two characters."""
        self.expect(begin)
        character = self.expect(end) if self.skip_space() == end else ""
        while character != end:
            yield
            character = self.expect(f",{end}")

    def items(self, name: str) -> Iterator[Item]:
        """Yields the items of an array."""
        return (Item(name, *self.value()) for _ in self.members("[", "]"))


def stream_object(file: IO[bytes]) -> Iterator[Item]:
    """Yields the items of all arrays in a JSON object, and its other values, in order.

    Raises:
      AnnotationFault: If the file is not a JSON object, or is incomplete.
    """
    window = _Window(file)
    for _ in window.members("{", "}"):
        name = window.value()[0]
        if not isinstance(name, str):
            raise window.fault("an object has a name that is not a string")
        window.expect(":")
        if window.skip_space() == "[":
            yield from window.items(name)
        else:
            yield Item(name, *window.value())
    window.check_end()


def stream_list(file: IO[bytes]) -> Iterator[Item]:
    """Yields the items of a JSON array, whose name is empty, in order.

    Raises:
      AnnotationFault: If the file is not a JSON array, or is incomplete.
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
          AnnotationFault: If it is not a complete JSON array; the message names the place.
        """
        for item in stream_list(self._file):
            self.add(item)
            yield item.value

    def add(self, item: Item) -> None:
        """Notes the place of an item."""
        self._places.extend((item.begin, item.length))

    def number(self, index: int) -> int:
        """Returns the place of an item, counted from 1."""
        return index + 1

    def read(self, index: int) -> Any:
        """Returns an item."""
        begin, length = self._places[2 * index : 2 * index + 2]
        return parse_item(os.pread(self._file.fileno(), length, begin))


def first_item(head: bytes) -> Any:
    """Returns the first item of a JSON array; None if the first bytes of a file do not hold it."""
    return next((item.value for item in complete_items(stream_list(io.BytesIO(head)))), None)


def complete_items(items: Iterator[Item]) -> Iterator[Item]:
    """Yields the items before the place where a JSON file is cut off."""
    with contextlib.suppress(AnnotationFault):
        yield from items


@dataclass(slots=True)
class XmlElement:
    """An element.

    Attributes:
      line: Line in the file, from 1.
      begin: Offset in the file.
      text: Text directly inside; the text of the elements inside is left out.
    """

    name: str
    attributes: Mapping[str, str]
    line: int
    begin: int
    text: str = ""
    children: list[XmlElement] = field(default_factory=list)

    def text_of(self, *names: str) -> str:
        """Returns the text of the first element at a path inside; empty if there is none."""
        for child in self.children:
            if child.name == names[0]:
                return child.text_of(*names[1:]) if len(names) > 1 else child.text.strip()
        return ""


def xml_elements(
    pieces: Iterable[bytes], root: str, encoding: str | None = None, line: int = 1
) -> Iterator[XmlElement]:
    """Yields the elements directly inside the root of a file.

    Document types are refused, because their entities could grow without end.

    Args:
      pieces: Content of the file. An empty piece ends it.
      root: Name of the root.
      encoding: Encoding of the file; None for the one that it states.
      line: Line of the file at which the pieces begin.

    Raises:
      AnnotationFault: If the XML is broken; the message names the line.
    """
    unfinished: list[XmlElement] = []
    complete: list[XmlElement] = []
    parser = expat.ParserCreate(encoding)

    def start(name: str, attributes: dict[str, str]) -> None:
        if not unfinished and name != root:
            raise AnnotationFault(f"its XML begins with <{name}> instead of <{root}>")
        current_line = line - 1 + parser.CurrentLineNumber
        unfinished.append(XmlElement(name, attributes, current_line, parser.CurrentByteIndex))
        if len(unfinished) > _MAX_DEPTH:
            raise AnnotationFault("its XML is nested too deeply")

    def add_text(text: str) -> None:
        if len(unfinished) > 1:  # not in the root, whose text would grow with the file
            unfinished[-1].text += text

    def end(name: str) -> None:
        element = unfinished.pop()
        if len(unfinished) > 1:
            unfinished[-1].children.append(element)
        elif unfinished:
            complete.append(element)

    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = add_text, _refuse
    for piece in pieces:
        try:
            parser.Parse(piece, not piece)
        except expat.ExpatError as error:
            what = expat.errors.messages[error.code]
            raise AnnotationFault(f"its XML is broken in line {error.lineno}: {what}") from None
        except (ValueError, LookupError) as error:  # such as an unknown encoding
            raise AnnotationFault(f"its XML cannot be read: {words_of(error)}") from None
        yield from complete
        complete.clear()


def _refuse(*_: Any) -> None:
    raise AnnotationFault("its XML declares a document type, which could make it grow without end")


def read_xml(data: bytes, root: str) -> list[XmlElement]:
    """Returns the elements directly inside the root of a small file.

    Raises:
      AnnotationFault: If the XML is broken; the message names the line.
    """
    return list(xml_elements([data, b""], root))


class XmlItems:
    """The elements of one name directly inside the root of an XML file in UTF-8.

    Args:
      file: The open file.
      root: Name of the root.
      name: Name of the elements.
      refused: Names of elements that may not be in the file -> what is wrong then.
    """

    def __init__(self, file: IO[bytes], root: str, name: str, refused: Mapping[str, str]) -> None:
        self._file, self._root, self._name, self._refused = file, root, name, refused
        self._places = array("q")  # line and begin of each element

    def scan(self) -> Iterator[XmlElement]:
        """Yields all elements, and notes their places.

        Raises:
          AnnotationFault: If the XML is broken; the message names the line.
        """
        pieces = iter(partial(self._file.read, _CHUNK_BYTES), b"")
        for element in xml_elements(chain(pieces, [b""]), self._root, _UTF8):
            UNDERWAY.progress()
            if element.name in self._refused:
                raise AnnotationFault(self._refused[element.name])
            if element.name == self._name:
                self._places.extend((element.line, element.begin))
                yield element

    def number(self, index: int) -> int:
        """Returns the line of an element."""
        return self._places[2 * index]

    def read(self, index: int) -> XmlElement:
        """Returns an element."""
        line, begin = self._places[2 * index : 2 * index + 2]
        places = count(begin, _ELEMENT_BYTES)
        pieces = (os.pread(self._file.fileno(), _ELEMENT_BYTES, place) for place in places)
        return next(xml_elements(chain([f"<{self._root}>".encode()], pieces), self._root, _UTF8, line))
