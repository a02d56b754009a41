"""Reads ranges of text files: whole lines, starts of rows, and rows of CSV and JSON Lines."""

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

#: Number of bytes to read at once.
STEP = 4 << 20
#: Size of the longest line and cell. Without it, an unclosed quote would cover the rest of the file.
LONGEST = 16 << 20
#: Matches several classes that are numbers.
_NUMBERS = re.compile(r"\d+(?:\s+\d+)+\Z")
#: Passed to the CSV reader after the last line. If it ends up inside a cell, a quote was not closed. No
#: decoded line contains its first character.
_END = "\ud800the lines end here\ud800"

#: Row: the number of its first line, and its values or an error message.
Row = tuple[int, Sequence[Any] | str]


def count_lines(data: bytes) -> int:
    """Returns the number of line ends: LF, CR LF and CR."""
    if b"\r" not in data:
        return data.count(b"\n")
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def read_steps(path: str, begin: int, end: int, size: int, version: str, step: int = STEP) -> Iterator[bytes]:
    """Yields a range of a file in pieces.

    Raises:
      EngineError: If the file has changed since it was listed.
    """
    while begin < end:
        data = storage.read_range(path, begin, min(step, end - begin), size, version)
        if not data:
            raise storage.changed(path)
        yield data
        begin += len(data)


def _last_line_end(data: bytes) -> int:
    """Returns the end of the last whole line in the data; a CR at its end may be half of a CR LF."""
    return max(data.rfind(b"\n"), data.rfind(b"\r", 0, max(len(data) - 1, 0))) + 1


@lru_cache
def row_pattern(delimiter: str, skip_spaces: bool) -> re.Pattern[bytes]:
    """Returns a pattern that matches any number of whole rows as `csv.reader` reads them.

    A quote opens a cell only at the start of the cell. Text after the closing quote belongs to the cell.
    """
    mark = re.escape(delimiter.encode())
    spaces = rb" *(?! )" if skip_spaces else b""
    rest = rb"[^%s\r\n]*" % mark

    # `(?>...)` and `*+` give nothing back: no row can begin inside another.
    quoted = rb'(?>[^"]*(?:""[^"]*)*)'
    cell = rb'(?>%s(?:"%s"%s|[^"%s\r\n]%s|))' % (spaces, quoted, rest, mark, rest)
    return re.compile(rb"(?:%s(?:%s%s)*+(?:\r\n?|\n))*+" % (cell, mark, cell))


def find_row_starts(
    steps: Iterable[bytes], begin: int, stretch: int, pattern: re.Pattern[bytes] | None
) -> Iterator[tuple[int, int]]:
    """Yields (byte offset, number of lines since `begin`) for starts of rows at least `stretch` bytes apart.

    Args:
      steps: Bytes of the file from `begin` on.
      begin: Byte offset of the start of a row.
      stretch: Smallest distance in bytes.
      pattern: `row_pattern`; None if every line is a row.
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
        if len(rest) > LONGEST:  # an unclosed quote: the rest stays in one range
            return


class Lines:
    """Iterates over the lines of a range as text with line ends; undecodable bytes are surrogate escapes.

    Args:
      steps: Bytes of the range.

    Attributes:
      too_long: Numbers, from 0, of the lines that are too long. They are replaced by empty lines.
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
    """Yields (line, cells) for each row that is not blank; for a bad row, a message instead of cells.

    If a quote is never closed, every line after it is reported as a bad row.
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


def csv_rows(
    cells: Iterable[tuple[int, list[str] | str]], width: int, positions: Sequence[int]
) -> Iterator[Row]:
    """Yields the values of the selected columns in each row.

    Args:
      cells: Rows.
      width: Number of cells in a row.
      positions: Positions of the columns; -1 for an empty value.
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
    """Yields the values in lines with a path and a class.

    Args:
      steps: Bytes of the lines.
      number: Number of the first line.
      take_apart: Function that returns the path and the class in a line.
      separator: Separator of several classes of an image; empty for one class.
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
    """Yields the values of the given names in each line of JSON Lines; None for missing values."""
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
            yield number + line, f"it is not JSON ({what})"
            continue
        if not isinstance(value, dict):
            yield number + line, "it is not a JSON object"
            continue
        yield number + line, [value[name] if name in value else named_value(value, name) for name in names]


def named_value(value: dict[str, Any], name: str) -> Any:
    """Returns a value by its name, or by the path of names to it, joined by dots."""
    if name in value or not name:
        return value.get(name)
    if "." in name:
        for outer, inner in value.items():
            if isinstance(inner, dict) and name.startswith(f"{outer}."):
                return named_value(inner, name[len(outer) + 1 :])
    return None
