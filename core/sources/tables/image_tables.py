"""Lists the images of CSV files in a format with one or more rows for each image.

A source gives a `TableFormat`, which recognizes its files, and an `ImageTable`, which says what the cells of
a row mean. This module reads the rows.
"""

from __future__ import annotations

import codecs
import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, NamedTuple

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.file_states import FileStates, with_states
from shardwright.core.sources.image_files import bad_entry, key_of
from shardwright.core.sources.image_lists import (
    ListFile,
    ListFormat,
    named_folder,
    prefix_of_images,
    required_root,
)
from shardwright.core.sources.input_probe import HEAD_BYTES
from shardwright.core.sources.source import Context, InputSplit
from shardwright.core.sources.tables.columns import check_named, named_columns
from shardwright.core.sources.tables.heads import check_text, head_rows, sniff_delimiter
from shardwright.core.sources.tables.lines import STEP, Cells, Lines, csv_cells, line_cells
from shardwright.core.sources.tables.paths import ImageRoot
from shardwright.core.sources.tables.rows import NumberedClasses
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.units import counted

#: Number of images to look for in a folder.
_NAMES_TRIED = 5
#: Longest path of an image.
_MAX_PATH_LENGTH = 4096


class TableHead(NamedTuple):
    """The beginning of a CSV file.

    Attributes:
      path: Path of the file.
      data: Its first bytes.
      delimiter: Delimiter of cells.
      rows: First rows; the first one may name the columns.
    """

    path: str
    data: bytes
    delimiter: str
    rows: Sequence[list[str]]

    @property
    def shown(self) -> str:
        """Option and name of the file, for messages."""
        return f"--input {printable(self.path)}"

    @property
    def header(self) -> list[str]:
        """The first row without blanks around its cells; empty if there is none."""
        return [cell.strip() for cell in self.rows[0]] if self.rows else []


def read_head(path: str) -> TableHead:
    """Returns the beginning of a CSV file."""
    with storage.translated_errors("read", path):
        data = storage.read_head(path, HEAD_BYTES)
    delimiter = sniff_delimiter(path, data)
    return TableHead(path, data, delimiter, head_rows(data, delimiter))


class ImageTable(ABC):
    """What the rows of a CSV file mean.

    Attributes:
      head: Beginning of the file.
      has_header: Whether the first row names the columns.
      classes: Names of the classes in the order of their ids; empty if the file does not list them.
    """

    has_header = True
    classes: Sequence[str] = ()

    def __init__(self, head: TableHead) -> None:
        self.head = head

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


#: Line and cells of a row.
_Cells = tuple[int, Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class TableFormat(ListFormat):
    """A format with rows for each image.

    Attributes:
      table_in: Returns the table that begins with a head; None if the file is not of this format.
      fault_reason: Reason for the quarantine of an image with a bad row.
      one_row: Whether an image has one row, which may span several lines. Several rows are an error, as are
        equal keys. Otherwise a row is a line.
    """

    table_in: Callable[[TableHead, ConvertSettings], ImageTable | None]
    fault_reason: str = QuarantineReason.BAD_ROW
    one_row: bool = False

    def is_one(self, path: str, settings: ConvertSettings) -> bool:
        """Returns whether a file is of the format."""
        return self.table_in(read_head(path), settings) is not None

    def examine(self, file: ListFile, settings: ConvertSettings) -> tuple[str, str]:
        """Returns the folder of the images of a file, and a description of its columns."""
        table = self._load(file.path, settings)
        description = table.describe()
        images = list(dict.fromkeys(filter(None, map(table.image_in, table.first_rows))))[:_NAMES_TRIED]
        if not images or any(name.startswith("/") or "://" in name for name in images):
            return named_folder(file.path, settings), description
        return required_root(file.path, images, settings, images), description

    def _load(self, path: str, settings: ConvertSettings) -> ImageTable:
        """Returns the table of a file.

        Raises:
          UsageError: If it is not of this format, or has no column that the settings name.
        """
        head = read_head(path)
        check_text(printable(path), head.data)
        check_named(printable(path), head.header, named_columns(settings, self.settings))
        table = self.table_in(head, settings)
        if table is None:
            raise UsageError(f"--input {printable(path)} is not a {self.noun}; {self.rule}")
        return table

    def list_part(self, part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
        """Yields a reference for each image that a file names, and for each row that names none."""
        file: ListFile = part.detail[0]
        table = self._load(file.path, context.settings)
        yield from map(ClassId, table.classes, range(len(table.classes)))
        classes = NumberedClasses()
        root = ImageRoot("" if file.root == "." else file.root)

        def find(cells: Sequence[str]) -> tuple[str, str]:
            path = table.image_in(cells)
            try:
                return root.find(path) if 0 < len(path) <= _MAX_PATH_LENGTH else ("", "")
            except AnnotationFault:
                return "", ""

        # Rows are lines, because an image whose rows are lost in an unclosed quote would be stored without
        # some of its objects.
        parse = partial(csv_cells if self.one_row else line_cells, delimiter=table.head.delimiter)
        with storage.translated_errors("read", file.path), storage.open_local(file.path) as opened:
            runs = RowRuns(opened, parse, find)
            for line, problem in runs.scan(table.has_header):
                message = f"line {line} of {printable(file.key)}: {problem}"
                key = f"{part.item.prefix}{key_of(file.key)}:line {line}"
                yield bad_entry(key, file.path, message, QuarantineReason.BAD_ROW)
            prefix = prefix_of_images(part, file.root, context)
            refs = (
                self._ref(ImageRef(prefix + key, uri, split=file.split), file, table, own)
                for key, uri, rows in runs.images()
                for own in ([[row] for row in rows] if self.one_row else [rows])
            )
            for ref in with_states(refs, FileStates(file.root, len(runs)), file.root):
                if not table.classes:
                    yield from classes.new_ids(ref)
                yield ref

    def _ref(self, ref: ImageRef, file: ListFile, table: ImageTable, rows: Sequence[_Cells]) -> ImageRef:
        """Returns a reference with what its rows say, or quarantined if one of them is wrong."""
        shown, width = printable(file.key), len(table.head.rows[0])
        ref = ref._replace(message=f"line {rows[0][0]} of {shown}")
        parsed: dict[int, Any] = {}
        try:
            for line, cells in rows:
                if len(cells) != width:
                    raise AnnotationFault(f"it has {counted(len(cells), 'cell')} instead of {width}")
                parsed[line] = table.parse(cells)
            return table.annotate(ref, parsed)
        except AnnotationFault as fault:
            return ref.quarantined(fault.reason or self.fault_reason, f"line {line} of {shown}: {fault}")


class RowRuns:
    """The rows of a file by image. Only the places of runs, consecutive rows of one image, are in memory.

    An image takes 210 bytes, because most images have one run.

    Args:
      file: The file.
      parse: Function that parses rows from lines, given the number of the first line.
      find: Function that returns the key and the URI of the image of a row; empty texts for none.
    """

    def __init__(
        self,
        file: IO[bytes],
        parse: Callable[[Lines, int], Iterator[Cells]],
        find: Callable[[Sequence[str]], tuple[str, str]],
    ) -> None:
        self._file, self._parse, self._find = file, parse, find
        # Key of the image -> offset, number of bytes and first line of each run.
        self._runs: dict[str, array[int]] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def scan(self, has_header: bool) -> Iterator[tuple[int, str]]:
        """Stores the place of every run; yields (line, fault) for rows that name no image."""
        begin = len(codecs.BOM_UTF8) if self._file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else 0
        self._file.seek(begin)
        lines = Lines(iter(partial(self._file.read, STEP), b""), begin)
        rows = self._parse(lines, 1)
        if has_header:
            next(rows, None)
        last, begin, line = "", lines.position, lines.count + 1
        for number, cells in UNDERWAY.passing(rows):
            image = "" if isinstance(cells, str) else self._find(cells)[0]
            if not image:
                yield number, cells if isinstance(cells, str) else "it names no image"
            elif image == last:
                self._runs[image][-2] += lines.position - begin
            else:
                self._runs.setdefault(image, array("q")).extend((begin, lines.position - begin, line))
            last, begin, line = image, lines.position, lines.count + 1

    def images(self) -> Iterator[tuple[str, str, list[_Cells]]]:
        """Yields the key, the URI and the rows of each image, in the order of the file."""
        for key, runs in self._runs.items():
            rows: list[_Cells] = []
            for begin, length, line in zip(runs[::3], runs[1::3], runs[2::3]):
                parsed = self._parse(Lines([os.pread(self._file.fileno(), length, begin)]), line)
                rows += [(number, cells) for number, cells in parsed if not isinstance(cells, str)]
            yield key, self._find(rows[0][1])[1], rows
