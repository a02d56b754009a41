"""Recognizes tables and lists from the first bytes of a text file, and reads its lines and rows.

Files are read in ranges, in parallel. A range begins with a row, so it is parsed like a file of its own.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

from shardwright.core import storage
from shardwright.core.images.signatures import is_image_name
from shardwright.core.sources.input_probe import HEAD_BYTES
from shardwright.core.sources.tables.columns import STORED, looks_like_path, names_images
from shardwright.core.sources.tables.parquet import PARQUET, kind_of_file
from shardwright.core.storage.store import StoredObject
from shardwright.schemas.columns import finite_or_text
from shardwright.schemas.errors import UsageError

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


def csv_cells(lines: Lines, first_line: int, delimiter: str, skip_spaces: bool = False) -> Iterator[Cells]:
    """Yields (line, cells) for each row that is not blank; for a bad row, a message instead of cells.

    If a quote is never closed, every line after it is reported as a bad row.

    Args:
      lines: Lines that begin with a row.
      first_line: Number of the first line.
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
                problem = f"a quote opens in line {first_line + first} and does not close"
            for lost in range(first, line):
                yield first_line + lost, problem
            continue
        line = reader.line_num
        if lines.too_long and (long := lines.too_long.intersection(range(first, line))):
            yield first_line + first, f"line {first_line + min(long)} is longer than {LONGEST >> 20} MiB"
        elif not any(map(str.strip, cells)):
            continue  # a blank line, or one with delimiters only, as spreadsheets write at the end
        elif cells[-1].endswith(_END) and (line > first + 1 or cells == [_END]):
            for lost in range(first, line - 1):
                yield first_line + lost, f"a quote opens in line {first_line + first} and never closes"
        else:
            yield first_line + first, cells


def line_cells(lines: Lines, first_line: int, delimiter: str) -> Iterator[Cells]:
    """Yields (line, cells) for each line that is not blank; a cell whose quote is not closed is left out."""

    def parse(text: str) -> list[str] | str:
        try:
            cells = next(csv.reader([text.rstrip("\r\n"), _END], delimiter=delimiter))
        except csv.Error as error:
            return str(error)
        return cells[:-1] if cells[-1].endswith(_END) else cells

    return text_rows(lines, first_line, parse)


def text_rows(
    lines: Lines, first_line: int, parse: Callable[[str], Values | str]
) -> Iterator[tuple[int, Values | str]]:
    """Yields the values in each line that is not blank.

    Args:
      lines: The lines, each of which is a row.
      first_line: Number of the first line.
      parse: Function that returns the values in a line, or what is wrong with it.
    """
    for index, text in enumerate(lines):
        if index in lines.too_long:
            yield first_line + index, f"it is longer than {LONGEST >> 20} MiB"
        elif text.strip():
            yield first_line + index, parse(text)


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


#: Kinds of tables, besides Parquet. A list has a path and a class on each line.
CSV, JSONL, LIST = "CSV", "JSON Lines", "list"
_KINDS = {
    ".csv": CSV, ".tsv": CSV, ".jsonl": JSONL, ".ndjson": JSONL, ".parquet": PARQUET, ".pq": PARQUET,
}  # fmt: skip
LIST_SUFFIXES = (".txt", ".lst")
#: Values of the first cell of a row in files of Google's AutoML and Vertex AI without a header.
_SPLIT_WORDS = frozenset(("", "TRAIN", "TRAINING", "VALIDATE", "VALIDATION", "TEST", "UNASSIGNED"))
_DELIMITERS = ",\t;"
_HEAD_ROWS = 200
_LINES_SNIFFED = 20
#: Fraction of the first lines of a list that must look like a path and a class.
_LIKE_A_LIST = 0.75
_BOX = re.compile(r"-?[\d.]+(?:,-?[\d.]+){3,}")


def kind_of(name: str) -> str:
    """Returns the kind of table that a file name indicates; empty if it indicates none."""
    return _KINDS.get(name[name.rfind(".") :].lower(), "") if "." in name else ""


def kind_of_table(name: str, head: bytes) -> str:
    """Returns the kind of the table in a file; empty if neither its name nor its beginning shows a table.

    Lists, and CSV files without a header, may be named `train.txt`, `train.lst`, or without an extension.
    """
    if kind_of_file("", head) == PARQUET:
        return PARQUET
    if not kind_of(name) and ("." not in name or name.lower().endswith(LIST_SUFFIXES)):
        rows = head_rows(head)[:5]
        if rows and all(len(row) > 1 and is_bare(row) for row in rows):
            return CSV
        if is_path_list(head):
            return LIST
    return kind_of(name)


def check_text(file_name: str, head: bytes) -> None:
    """Checks that the head of a file may be UTF-8 text.

    Raises:
      UsageError: If the file is compressed or in another encoding.
    """
    if head.startswith(b"\x1f\x8b"):
        raise UsageError(f"--input {file_name} is compressed; unpack it first.")
    storage.check_utf8(f"--input {file_name}", head)
    if len(head) > 3 and head[:200].count(0) >= len(head[:200]) // 3:
        raise UsageError(f"--input {file_name} is not UTF-8 text; save it as UTF-8.")


def head_rows(head: bytes, delimiter: str = ",") -> list[list[str]]:
    """Returns the cells of the first rows.

    Args:
      head: First `HEAD_BYTES` of a file, or the whole file; else the last row may be incomplete.
      delimiter: Delimiter of cells.
    """
    parsed = csv_cells(Lines([head.removeprefix(codecs.BOM_UTF8)]), 1, delimiter, skip_spaces=False)
    rows = [cells for _, cells in islice(parsed, _HEAD_ROWS + 1)]
    if len(head) >= HEAD_BYTES or len(rows) > _HEAD_ROWS:
        rows = rows[:-1]
    return [cells for cells in rows if isinstance(cells, list)]


def sniff_delimiter(name: str, head: bytes) -> str:
    """Returns the delimiter of a CSV file: a tab for `.tsv`, else the likeliest one in the first line."""
    if name.lower().endswith(".tsv"):
        return "\t"
    first = next((line for line in head.removeprefix(codecs.BOM_UTF8).splitlines() if line.strip()), b"")
    unquoted, line = re.sub(rb'"[^"]*"', b"", first), first.decode("utf-8", "surrogateescape")
    marks = sorted(_DELIMITERS, key=lambda mark: -unquoted.count(mark.encode()))
    return next((mark for mark in marks if any(map(_is_telling, line.split(mark)))), marks[0])


def _is_telling(cell: str) -> bool:
    """Returns whether a cell is a usual name of an image column or the path of an image."""
    cell = cell.strip().strip('"')
    has_delimiter = any(mark in cell for mark in _DELIMITERS)
    return not has_delimiter and (names_images(cell) or looks_like_path(cell))


def has_spaces_before_quotes(head: bytes, delimiter: str) -> bool:
    """Returns whether quoted cells follow `, ` in the first lines, which is hardly ever accidental."""
    mark = re.escape(delimiter.encode())
    return any(re.search(rb'%s +"[^"%s]' % (mark, mark), line) for line in head.splitlines()[:_LINES_SNIFFED])


def has_split(row: Sequence[str]) -> bool:
    """Returns whether a row without a header begins with a split, before the path of the image."""
    return len(row) > 1 and row[0].strip().upper() in _SPLIT_WORDS


def is_bare(row: Sequence[str]) -> bool:
    """Returns whether a row looks like `[split,]image[,label...]`, without a header."""
    return looks_like_path(row[has_split(row)])


def is_path_list(head: bytes) -> bool:
    """Returns whether the head of a file looks like lines of path and class, such as `a/b.jpg 3`."""
    lines = head.decode("utf-8-sig", "surrogateescape").splitlines()
    if len(head) >= HEAD_BYTES:
        lines = lines[:-1]
    lines = [line for line in lines if line.strip()][:_LINES_SNIFFED]
    pieces = [path_and_label(line) for line in lines]
    # Some training tools write the boxes of an image after its path: 10,20,30,40,0
    telling = [bool(looks_like_path(path) and label and not _BOX.match(label)) for path, label in pieces]
    return bool(pieces) and telling[0] and sum(telling) >= _LIKE_A_LIST * len(telling)


def path_and_label(line: str) -> tuple[str, str]:
    """Returns the path and the class in a line; both may contain blanks.

    >>> path_and_label("my cats/1.jpg great dane")
    ('my cats/1.jpg', 'great dane')
    """
    line = line.strip()
    if "\t" in line:
        path, _, label = line.partition("\t")
        return path.strip(), label.strip()
    for match in reversed([*re.finditer(r"\s+", line)]):
        if is_image_name(line[: match.start()]):
            return line[: match.start()], line[match.end() :]
    path, _, label = line.rpartition(" ")
    return (path.strip(), label) if STORED.match(line) or label.isdigit() else (line, "")
