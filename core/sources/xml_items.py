"""Reads XML piece by piece: the elements directly inside the root, each with all that is in it."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any
from xml.parsers import expat

from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.schemas.errors import words_of

_MAX_DEPTH = 64
#: Depth of the elements that are read one after the other; the root is at depth 1.
_ITEM_DEPTH = 2
_STEP_BYTES = 1 << 20
#: Bytes that are read at once for one element.
_READ_BYTES = 1 << 12


@dataclass(slots=True)
class XmlElement:
    """An element.

    Attributes:
      line: Line in the file, from 1.
      begin: Offset in the file.
      text: Text directly inside, without that of the elements inside.
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


class XmlReader:
    """Reads a file whose root has a name; it refuses document types, whose entities could grow without end.

    Args:
      root: Name of the root.
      encoding: Encoding of a part of a file, which does not state it; None for a whole file.
      line: Line of the file at which a part begins.
    """

    def __init__(self, root: str, encoding: str | None = None, line: int = 1) -> None:
        self._root, self._line = root, line
        self._open: list[XmlElement] = []
        self._complete: list[XmlElement] = []
        self.encoding = encoding
        self._parser = expat.ParserCreate(encoding)
        self._parser.buffer_text = True
        self._parser.XmlDeclHandler = self._declare
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.StartDoctypeDeclHandler = _refuse
        self._parser.EntityDeclHandler = _refuse

    def feed(self, data: bytes, is_last: bool = False) -> list[XmlElement]:
        """Returns the elements directly inside the root that end in a piece of the file.

        Raises:
          AnnotationFault: If the XML is broken; the message names the line.
        """
        try:
            self._parser.Parse(data, is_last)
        except expat.ExpatError as error:
            what = expat.errors.messages[error.code]
            raise AnnotationFault(f"its XML is broken in line {error.lineno}: {what}") from None
        except (ValueError, LookupError) as error:  # such as an unknown encoding
            raise AnnotationFault(f"its XML cannot be read: {words_of(error)}") from None
        complete, self._complete = self._complete, []
        return complete

    def _declare(self, version: str, encoding: str | None, standalone: int) -> None:
        self.encoding = encoding

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open and name != self._root:
            raise AnnotationFault(f"its XML begins with <{name}> instead of <{self._root}>")
        line = self._line - 1 + self._parser.CurrentLineNumber
        element = XmlElement(name, attributes, line, self._parser.CurrentByteIndex)
        if len(self._open) >= _ITEM_DEPTH:
            self._open[-1].children.append(element)
        self._open.append(element)
        if len(self._open) > _MAX_DEPTH:
            raise AnnotationFault("its XML is nested too deeply")

    def _text(self, text: str) -> None:
        if len(self._open) >= _ITEM_DEPTH:
            self._open[-1].text += text

    def _end(self, name: str) -> None:
        element = self._open.pop()
        if len(self._open) == _ITEM_DEPTH - 1:
            self._complete.append(element)


def _refuse(*_: Any) -> None:
    raise AnnotationFault("its XML declares a document type, which could make it grow without end")


def read_xml(data: bytes, root: str) -> Iterator[XmlElement]:
    """Yields the elements directly inside the root of a small file.

    Raises:
      AnnotationFault: If the XML is broken; the message names the line.
    """
    yield from XmlReader(root).feed(data, is_last=True)


class XmlItems:
    """The elements of one name directly inside the root of an XML file; only their places are in memory.

    Args:
      file: The open file.
      root: Name of the root.
      name: Name of the elements.
      refused: Names of elements that may not be in the file -> what is wrong then.
    """

    def __init__(self, file: IO[bytes], root: str, name: str, refused: Mapping[str, str]) -> None:
        self._file, self._root, self._name, self._refused = file, root, name, refused
        self._encoding: str | None = None
        self._places = array("q")  # line and begin of each element

    def scan(self) -> Iterator[XmlElement]:
        """Yields all elements, and notes their places.

        Raises:
          AnnotationFault: If the XML is broken; the message names the line.
        """
        reader = XmlReader(self._root)
        data = b" "
        while data:
            data = self._file.read(_STEP_BYTES)
            UNDERWAY.progress()
            for element in reader.feed(data, is_last=not data):
                if element.name in self._refused:
                    raise AnnotationFault(self._refused[element.name])
                if element.name == self._name:
                    self._places.extend((element.line, element.begin))
                    yield element
        self._encoding = reader.encoding

    def number(self, index: int) -> int:
        """Returns the line of an element."""
        return self._places[2 * index]

    def read(self, index: int) -> XmlElement:
        """Returns an element."""
        line, begin = self._places[2 * index : 2 * index + 2]
        reader = XmlReader(self._root, self._encoding, line)
        elements = reader.feed(f"<{self._root}>".encode())
        while not elements:  # the element ends somewhere in the next bytes
            elements = reader.feed(os.pread(self._file.fileno(), _READ_BYTES, begin))
            begin += _READ_BYTES
        return elements[0]
