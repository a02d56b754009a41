"""Text files in stretches: whole lines, where rows begin, and the rows of CSV and JSON Lines."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any

from shardwright.schemas.columns import finite_or_text
from shardwright.transforms import storage

#: Bytes that are read at once.
STEP = 4 << 20
#: Longest line, and longest cell; an unclosed quote would otherwise take in the rest of the file.
LONGEST = 16 << 20
#: Several classes that are numbers.
_NUMBERS = re.compile(r"\d+(?:\s+\d+)+\Z")
#: Given to the CSV reader after the last line: where it comes back inside a cell, a quote was not closed.
_END = "\0the lines end here\0"

#: A row: the line it begins in, and the values wanted of it, or what is wrong with it.
Row = tuple[int, Sequence[Any] | str]


def count_lines(data: bytes) -> int:
    """Returns the number of line ends: LF, CR LF and CR."""
    if b"\r" not in data:
        return data.count(b"\n")
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def read_steps(path: str, begin: int, end: int, size: int, version: str, step: int = STEP) -> Iterator[bytes]:
    """Yields a stretch of a file, piece by piece.

    Raises:
      EngineError: if the file is not as it was listed.
    """
    while begin < end:
        data = storage.read_range(path, begin, min(step, end - begin), size, version)
        if not data:
            raise storage.changed(path)
        yield data
        begin += len(data)


def _last_line_end(data: bytes) -> int:
    """Returns what whole lines take of the data; a CR at its end may be half of a CR LF."""
    return max(data.rfind(b"\n"), data.rfind(b"\r", 0, max(len(data) - 1, 0))) + 1


@lru_cache
def row_pattern(delimiter: str, skip_spaces: bool) -> re.Pattern[bytes]:
    """Returns what matches any number of whole rows as `csv.reader` takes them, at one go.

    A quote opens a cell only where the cell begins; what follows the closing quote belongs to it.
    """
    mark = re.escape(delimiter.encode())
    spaces = rb" *+" if skip_spaces else b""
    rest = rb"[^%s\r\n]*+" % mark
    cell = rb'(?>%s(?:"(?:[^"]++|"")*+"%s|[^"%s\r\n]%s|))' % (spaces, rest, mark, rest)
    return re.compile(rb"(?:%s(?:%s%s)*+(?:\r\n?|\n))*+" % (cell, mark, cell))


def find_row_starts(
    steps: Iterable[bytes], begin: int, stretch: int, pattern: re.Pattern[bytes] | None
) -> Iterator[tuple[int, int]]:
    """Yields (byte, lines before it since `begin`) of rows at least a stretch apart.

    Args:
      steps: the bytes of the file from `begin`, where a row begins.
      begin: byte of the file.
      stretch: bytes.
      pattern: `row_pattern`; None where a line is a row.
    """
    rest, position, lines, last = b"", begin, 0, begin
    for data in steps:
        buffer = rest + data if rest else data
        if pattern is None or b'"' not in buffer:
            end = _last_line_end(buffer)
        else:
            match = pattern.match(buffer, 0, len(buffer) - buffer.endswith(b"\r"))
            end = match.end() if match else 0
        lines += count_lines(buffer[:end])
        position += end
        if position - last >= stretch:
            yield position, lines
            last = position
        rest = buffer[end:]
        if len(rest) > LONGEST:  # a quote that is not closed: what is left is one stretch
            return


class Lines:
    """The lines of a stretch as text, their ends kept; undecodable bytes are surrogate escapes.

    Args:
      steps: the bytes of the stretch.

    Attributes:
      too_long: numbers of lines that were left out for their length, from 0; empty ones stand for them.
    """

    def __init__(self, steps: Iterable[bytes]) -> None:
        self._steps = steps
        self.too_long: set[int] = set()

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(io.StringIO(text, newline="") for text in self._texts())

    def _texts(self) -> Iterator[str]:
        rest, lines, skipping = b"", 0, False
        for data in self._steps:
            buffer = rest + data if rest else data
            end = _last_line_end(buffer)
            if skipping and not end:
                rest = buffer[-1:]  # perhaps the first half of a CR LF
                continue
            if skipping:
                begin = _first_line_end(buffer)
                buffer, end, skipping = buffer[begin:], end - begin, False
            if end:
                block = buffer[:end]
                lines += count_lines(block)
                yield block.decode("utf-8", "surrogateescape")
            rest = buffer[end:]
            if len(rest) > LONGEST:
                self.too_long.add(lines)
                lines += 1
                skipping = True
                rest = rest[-1:]
                yield "\n"
        if rest and not skipping:
            yield rest.decode("utf-8", "surrogateescape")


def _first_line_end(data: bytes) -> int:
    ends = [place for place in (data.find(b"\n"), data.find(b"\r")) if place >= 0]
    place = min(ends)
    return place + (2 if data[place : place + 2] == b"\r\n" else 1)


def csv_cells(
    steps: Iterable[bytes], number: int, delimiter: str, skip_spaces: bool
) -> Iterator[tuple[int, list[str] | str]]:
    """Yields (line, cells) of each row that is not blank; what is wrong instead where it is no row.

    Where a quote is never closed, each line that it takes in is a row by itself: they are all lost.
    """
    if csv.field_size_limit() < LONGEST:
        csv.field_size_limit(LONGEST)
    lines = Lines(steps)
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
            problem = "a cell of it is too long"
            if line > first + 1:
                problem = f"a quote opens in line {number + first} and does not close"
            for lost in range(first, line):
                yield number + lost, problem
            continue
        line = reader.line_num
        if lines.too_long and (long := lines.too_long.intersection(range(first, line))):
            yield number + first, f"line {number + min(long)} is longer than {LONGEST >> 20} MiB"
        elif not any(map(str.strip, cells)):
            continue  # a blank line, or one of delimiters only, as spreadsheets leave at the end
        elif cells[-1].endswith(_END) and (line > first + 1 or cells == [_END]):
            for lost in range(first, line - 1):
                yield number + lost, f"a quote opens in line {number + first} and never closes"
        else:
            yield number + first, cells


def csv_rows(
    cells: Iterable[tuple[int, list[str] | str]], width: int, positions: Sequence[int]
) -> Iterator[Row]:
    """Yields the values wanted of each row.

    Args:
      cells: the rows.
      width: cells that a row has.
      positions: of the values among the cells, -1 for none.
    """
    pick = itemgetter(*positions)
    for number, row in cells:
        if isinstance(row, str):
            yield number, row
        elif len(row) != width:
            few = "few" if len(row) < width else "many"
            yield number, f"it has too {few} cells: {len(row)} instead of {width}"
        else:
            row.append("")
            yield number, pick(row)


def list_rows(
    steps: Iterable[bytes], number: int, take_apart: Callable[[str], tuple[str, str]], separator: str
) -> Iterator[Row]:
    """Yields the values of lines with a path and a class.

    Args:
      steps: the bytes of the lines.
      number: of the first line.
      take_apart: returns the path and the class of a line.
      separator: between the classes of an image that may have several; empty for one class.
    """
    lines = Lines(steps)
    for line, text in enumerate(lines):
        if line in lines.too_long:
            yield number + line, f"it is longer than {LONGEST >> 20} MiB"
            continue
        path, label = take_apart(text)
        if not path:
            continue
        numbers = label.split() if _NUMBERS.match(label) and not separator else []
        yield number + line, (path, numbers or label, "", "", "")


def json_rows(steps: Iterable[bytes], number: int, names: Sequence[str]) -> Iterator[Row]:
    """Yields the values of the names in each line of JSON Lines; None for what a line does not have."""
    lines = Lines(steps)
    for line, text in enumerate(lines):
        if line in lines.too_long:
            yield number + line, f"it is longer than {LONGEST >> 20} MiB"
            continue
        if text.isspace():
            continue
        try:
            value = json.loads(text, parse_float=finite_or_text)
        except (ValueError, RecursionError) as error:
            what = error.msg.lower() if isinstance(error, json.JSONDecodeError) else "it cannot be read"
            yield number + line, f"it is no JSON ({what})"
            continue
        if not isinstance(value, dict):
            yield number + line, "it is no JSON object"
            continue
        yield number + line, [value[name] if name in value else _named(value, name) for name in names]


def _named(value: dict[str, Any], name: str) -> Any:
    """Returns a value by its name, or by the names on the way to it with dots between."""
    if name in value or not name:
        return value.get(name)
    if "." in name:
        for outer, inner in value.items():
            if isinstance(inner, dict) and name.startswith(f"{outer}."):
                return _named(inner, name[len(outer) + 1 :])
    return None
