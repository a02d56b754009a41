"""Lists the images of CSV files in a format with one or more rows for each image.

A source gives a function that recognizes its files, and an `ImageTable`, which says what the cells of a row
mean. This module reads the rows as the entries of a document.
"""

from __future__ import annotations

import codecs
import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import IO, Any, NamedTuple

from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.documents import Document, DocumentFormat, ImagePaths
from shardwright.core.sources.image_files import inner_path
from shardwright.core.sources.input_probe import HEAD_BYTES
from shardwright.core.sources.tables import texts
from shardwright.core.sources.tables.columns import check_named, check_unique, named_columns
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import counted

#: Longest path of an image.
_MAX_PATH_LENGTH = 4096


class TableHead(NamedTuple):
    """The beginning of a CSV file.

    Attributes:
      path: Path of the file.
      delimiter: Delimiter of cells.
      rows: First rows; the first one may name the columns.
      file: The open file; None if its rows are not read.
    """

    path: str
    delimiter: str
    rows: Sequence[list[str]]
    file: IO[bytes] | None = None

    @property
    def where(self) -> str:
        """Option and name of the file, for messages."""
        return f"--input {self.path}"

    @property
    def header(self) -> list[str]:
        """The first row without blanks around its cells; empty if there is none."""
        return [cell.strip() for cell in self.rows[0]] if self.rows else []


def parse_head(data: bytes, path: str) -> TableHead:
    """Returns the beginning of a CSV file, of which at least `HEAD_BYTES` are given if it has so many."""
    delimiter = texts.sniff_delimiter(path, data)
    return TableHead(path, delimiter, texts.head_rows(data[:HEAD_BYTES], delimiter))


class ImageTable(ABC):
    """A CSV file. An entry is a run: consecutive rows of one image; only its place is in memory.

    Attributes:
      head: Beginning of the file.
      has_header: Whether the first row names the columns.
      one_line: Whether each row is a line. An image whose rows are lost in a quote that is not closed would
        be stored without some of its objects.
      fault_reason: Reason for the quarantine of an image with a bad row.
    """

    has_header = True
    one_line = True
    fault_reason: str = QuarantineReason.BAD_ROW

    def __init__(self, head: TableHead) -> None:
        self.head = head
        parse = texts.line_cells if self.one_line else texts.csv_cells
        self._parse = partial(parse, delimiter=head.delimiter)
        self._places = array("q")  # first line, offset and number of bytes of each run

    @property
    def first_rows(self) -> Sequence[list[str]]:
        """First rows, without the names of columns."""
        return self.head.rows[1:] if self.has_header else self.head.rows

    @abstractmethod
    def image_in(self, cells: Sequence[str]) -> str:
        """Returns the path of the image of a row; empty if the row names none."""

    @abstractmethod
    def parse(self, cells: Sequence[str]) -> Any:
        """Returns what a row with as many cells as the first says about its image.

        Raises:
          AnnotationFault: If the row is wrong.
        """

    @abstractmethod
    def annotate(self, ref: ImageRef, rows: Mapping[int, Any]) -> ImageRef:
        """Returns a reference with what its rows say.

        Args:
          ref: The reference.
          rows: Line -> result of `parse`.

        Raises:
          AnnotationFault: If the rows do not agree.
        """

    @abstractmethod
    def describe(self) -> str:
        """Returns what a message says about the columns, after a semicolon.

        Raises:
          UsageError: If the first rows are not clear.
        """

    def scan(self) -> Iterator[str | AnnotationFault]:
        """Yields the path of the image of each run, or what is wrong with a row that names none."""
        file = self.head.file
        assert file is not None
        begin = len(codecs.BOM_UTF8) if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else 0
        file.seek(begin)
        lines = texts.Lines(iter(partial(file.read, texts.STEP), b""), begin)
        rows = self._parse(lines, 1)
        if self.has_header:
            next(rows, None)
        last, begin, line = "", lines.position, lines.count + 1
        for current_line, cells in UNDERWAY.passing(rows):
            fault = cells if isinstance(cells, str) else "it names no image"
            image = "" if isinstance(cells, str) else self.image_in(cells)
            if image and image == last:
                self._places[-1] += lines.position - begin
            else:
                self._places.extend((line if image else current_line, begin, lines.position - begin))
                yield image or AnnotationFault(fault)
            last, begin, line = image, lines.position, lines.count + 1

    def number(self, index: int) -> int:
        """Returns the first line of a run."""
        return self._places[3 * index]

    def read(self, index: int) -> Iterator[tuple[int, Sequence[str]]]:
        """Yields the line and the cells of each row of a run."""
        assert self.head.file is not None
        first_line, begin, length = self._places[3 * index : 3 * index + 3]
        data = os.pread(self.head.file.fileno(), length, begin)
        for line, cells in self._parse(texts.Lines([data]), first_line):
            if not isinstance(cells, str):
                yield line, cells


def table_format(
    *,
    table_in: Callable[[TableHead, ConvertSettings], ImageTable | None],
    noun: str,
    rule: str,
    settings: frozenset[str],
    **others: Any,
) -> DocumentFormat:
    """Returns a format of CSV files.

    Args:
      table_in: Returns the table that begins with a head; None if the file is not of this format.
      noun: See `DocumentFormat`.
      rule: See `DocumentFormat`.
      settings: Settings that it uses.
      **others: Other fields of the format.
    """

    def open_table(file: IO[bytes], path: str, checked: ConvertSettings) -> ImageTable:
        data = file.read(HEAD_BYTES)
        file.seek(0)
        texts.check_text(path, data)
        head = parse_head(data, path)._replace(file=file)
        check_named(path, head.header, named_columns(checked, settings))
        table = table_in(head, checked)
        if table is None:
            raise UsageError(f"--input {path} is not a {noun}; {rule}")
        if table.has_header:
            check_unique(path, head.header)
        return table

    return DocumentFormat(
        noun=noun,
        rule=rule,
        settings=settings,
        entry="line",
        recognizes=lambda data, path, checked: table_in(parse_head(data, path), checked) is not None,
        open=open_table,
        image_of=_image_of,
        annotate=_annotate,
        summarize=lambda document, *_: document.entries.describe(),
        is_table=True,
        **others,
    )


def _image_of(image: str | AnnotationFault, settings: ConvertSettings) -> ImagePaths:
    if isinstance(image, AnnotationFault):
        raise image
    if len(image) > _MAX_PATH_LENGTH:
        raise AnnotationFault("it names no image")
    return ImagePaths(image, (image,) if inner_path(image) else ())


def _annotate(ref: ImageRef, runs: Sequence[tuple[Document, int]], settings: ConvertSettings) -> ImageRef:
    """Returns a reference with what its rows say, or quarantined if one of them is wrong."""
    document = runs[0][0]
    table: ImageTable = document.entries
    file_name, width = printable(document.key), len(table.head.rows[0])
    rows = [row for _, run in runs for row in table.read(run)]
    line = rows[0][0]
    ref = ref._replace(message=f"line {line} of {file_name}")
    parsed: dict[int, Any] = {}
    try:
        for line, cells in rows:
            if len(cells) != width:
                raise AnnotationFault(f"it has {counted(len(cells), 'cell')} instead of {width}")
            parsed[line] = table.parse(cells)
        return table.annotate(ref, parsed)
    except AnnotationFault as fault:
        return ref.quarantined(fault.reason or table.fault_reason, f"line {line} of {file_name}: {fault}")
