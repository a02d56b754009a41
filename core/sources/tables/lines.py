"""Reads the lines of text files, and the rows of CSV and JSON Lines in them.

Files are read in ranges, in parallel. A range begins with a row, so it is parsed like a file of its own.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from shardwright.core import storage
from shardwright.core.storage.store import StoredObject
from shardwright.schemas.columns import finite_or_text

#: Number of bytes to read at once.
STEP = 4 << 20
#: Size of the longest line and cell. Without it, an unclosed quote would cover the rest of the file.
LONGEST = 16 << 20
#: Passed to the CSV reader after the last line. If it ends up inside a cell, a quote was not closed. No
#: decoded line contains its first character.
_END = "\ud800the lines end here\ud800"

Values = TypeVar("Values")
#: Number of a row's first line, and its cells or an error message.
Cells = tuple[int, Sequence[str] | str]
#: Number of a row, and its values by the names of their columns or an error message.
Row = tuple[int, Mapping[str, Any] | str]


def read_steps(file: StoredObject, begin: int, end: int, step: int = STEP) -> Iterator[bytes]:
    """Yields a range of a file in pieces.

    Raises:
      EngineError: If the file has changed since it was listed.
    """
    while begin < end:
        data = storage.read_range(file.path, begin, min(step, end - begin), file.size, file.version)
        if not data:
            raise storage.changed(file.path)
        yield data
        begin += len(data)


class Lines:
    """Iterates over lines as text with line ends (LF, CR LF or CR).

    Undecodable bytes become surrogate escapes.

    Args:
      steps: Bytes of the lines, in pieces.
      begin: Byte offset of the first line.

    Attributes:
      position: Byte offset of the end of the last line.
      count: Number of lines so far.
      too_long: Indices, from 0, of the lines that are too long. They are replaced by empty lines.
    """

    def __init__(self, steps: Iterable[bytes], begin: int = 0) -> None:
        self._steps = steps
        self.position = begin
        self.count = 0
        self.too_long: set[int] = set()

    def __iter__(self) -> Iterator[str]:
        rest, left_out = b"", 0
        for data in filter(None, self._steps):
            # The last line may go on in the next piece; a CR at its end may be half of a CR LF.
            *lines, rest = (rest + data).splitlines(keepends=True)
            for line in lines:
                yield self._next(line, left_out)
                left_out = 0
            if len(rest) > LONGEST:
                left_out += len(rest) - 1
                rest = rest[-1:]
        if rest:
            yield self._next(rest, left_out)

    def _next(self, line: bytes, left_out: int) -> str:
        """Returns the next line as text.

        Args:
          line: The line, or only its end.
          left_out: Number of bytes of the line that are left out before that.
        """
        self.position += left_out + len(line)
        if left_out:
            self.too_long.add(self.count)
            line = b"\n"
        self.count += 1
        return line.decode("utf-8", "surrogateescape")


def csv_cells(lines: Lines, number: int, delimiter: str, skip_spaces: bool = False) -> Iterator[Cells]:
    """Yields (line, cells) for each row that is not blank; for a bad row, a message instead of cells.

    If a quote is never closed, every line after it is reported as a bad row.

    Args:
      lines: Lines that begin with a row.
      number: Number of the first line.
      delimiter: Delimiter of cells.
      skip_spaces: Whether blanks before a cell are ignored.
    """
    if csv.field_size_limit() < LONGEST:
        csv.field_size_limit(LONGEST)
    reader = csv.reader(chain(lines, (_END,)), delimiter=delimiter, skipinitialspace=skip_spaces)
    line = 0
    while True:
        first = line
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            line = reader.line_num
            problem = "one of its cells is too long"
            if line > first + 1:
                problem = f"a quote opens in line {number + first} and does not close"
            for lost in range(first, line):
                yield number + lost, problem
            continue
        line = reader.line_num
        if lines.too_long and (long := lines.too_long.intersection(range(first, line))):
            yield number + first, f"line {number + min(long)} is longer than {LONGEST >> 20} MiB"
        elif not any(map(str.strip, cells)):
            continue  # a blank line, or one with delimiters only, as spreadsheets write at the end
        elif cells[-1].endswith(_END) and (line > first + 1 or cells == [_END]):
            for lost in range(first, line - 1):
                yield number + lost, f"a quote opens in line {number + first} and never closes"
        else:
            yield number + first, cells


def line_cells(lines: Lines, number: int, delimiter: str) -> Iterator[Cells]:
    """Yields (line, cells) for each line that is not blank; a cell whose quote is not closed is left out."""

    def parse(text: str) -> list[str] | str:
        try:
            cells = next(csv.reader([text.rstrip("\r\n"), _END], delimiter=delimiter))
        except csv.Error as error:
            return str(error)
        return cells[:-1] if cells[-1].endswith(_END) else cells

    return text_rows(lines, number, parse)


def text_rows(
    lines: Lines, number: int, parse: Callable[[str], Values | str]
) -> Iterator[tuple[int, Values | str]]:
    """Yields the values in each line that is not blank.

    Args:
      lines: The lines, each of which is a row.
      number: Number of the first line.
      parse: Function that returns the values in a line, or what is wrong with it.
    """
    for index, text in enumerate(lines):
        if index in lines.too_long:
            yield number + index, f"it is longer than {LONGEST >> 20} MiB"
        elif text.strip():
            yield number + index, parse(text)


def json_object(text: str) -> dict[str, Any] | str:
    """Returns the JSON object in a line, or what is wrong with the line."""
    try:
        value = json.loads(text, parse_float=finite_or_text)
    except (ValueError, RecursionError) as error:
        what = error.msg.lower() if isinstance(error, json.JSONDecodeError) else "it cannot be read"
        return f"it is not JSON ({what})"
    return value if isinstance(value, dict) else "it is not a JSON object"


def named_value(value: dict[str, Any], name: str) -> Any:
    """Returns a value by its name, or by the path of names to it, joined by dots."""
    if name in value or not name:
        return value.get(name)
    if "." in name:
        for outer, inner in value.items():
            if isinstance(inner, dict) and name.startswith(f"{outer}."):
                return named_value(inner, name[len(outer) + 1 :])
    return None
