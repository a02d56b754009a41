"""Recognizes tables and lists from the first bytes of a file: kind, encoding and dialect of CSV."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from itertools import islice

from shardwright.core.images.signatures import is_image_name
from shardwright.core.sources.input_probe import HEAD_BYTES
from shardwright.core.sources.tables.columns import STORED, is_usual, looks_like_path
from shardwright.core.sources.tables.lines import Lines, csv_cells
from shardwright.core.sources.tables.parquet import PARQUET, kind_of_file
from shardwright.schemas.errors import UsageError
from shardwright.schemas.plain_text import check_utf8

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


def may_be_list(name: str) -> bool:
    """Returns whether a file name may be that of a list: `train.txt`, `train.lst` or without extension."""
    return "." not in name or name.lower().endswith(LIST_SUFFIXES)


def kind_of_table(name: str, head: bytes) -> str:
    """Returns the kind of the table in a file."""
    if kind_of_file("", head) == PARQUET:
        return PARQUET
    if kind_of(name):
        return kind_of(name)
    if may_be_list(name) and is_path_list(head) and not is_listing(head):
        return LIST
    return JSONL if head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{") else CSV


def check_text(shown: str, head: bytes) -> None:
    """Checks that the head of a file may be UTF-8 text.

    Raises:
      UsageError: If the file is compressed or in another encoding.
    """
    if head.startswith(b"\x1f\x8b"):
        raise UsageError(f"--input {shown} is compressed; unpack it first.")
    check_utf8(f"--input {shown}", head)
    if len(head) > 3 and head[:200].count(0) >= len(head[:200]) // 3:
        raise UsageError(f"--input {shown} is not UTF-8 text; save it as UTF-8.")


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
    return not has_delimiter and (is_usual("image", cell) or looks_like_path(cell))


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


def is_listing(head: bytes) -> bool:
    """Returns whether the head of a file looks like rows of `[split,]image,label` without a header."""
    rows = head_rows(head)[:5]
    return bool(rows) and all(len(row) > 1 and is_bare(row) for row in rows)


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
