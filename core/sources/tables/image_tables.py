"""Lists the images of CSV files in a format with one or more rows for each image.

A source gives a `TableFormat`, which recognizes its files, and an `ImageTable`, which says what the cells of
a row mean. This module finds the files and the folders of their images, and reads the rows.
"""

from __future__ import annotations

import codecs
import json
import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, NamedTuple

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.sources.documents import DocumentFile, usual_folders
from shardwright.core.sources.file_states import FileStates, with_states
from shardwright.core.sources.image_files import (
    bad_entry,
    check_folders,
    find_root,
    folder_of,
    key_of,
    split_token,
)
from shardwright.core.sources.image_lists import MAX_TRIED, names_with, placed_lists, prefix_of_images
from shardwright.core.sources.input_probe import HEAD_BYTES, InputProbe, look_at
from shardwright.core.sources.source import Context, Input, InputSplit, Source
from shardwright.core.sources.tables.columns import check_named, named_columns
from shardwright.core.sources.tables.heads import check_text, head_rows, sniff_delimiter
from shardwright.core.sources.tables.lines import STEP, Lines, Row, csv_cells, line_cells
from shardwright.core.sources.tables.paths import ImageRoot, RowFault
from shardwright.core.sources.tables.rows import NumberedClasses
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
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
          RowFault: If the row is wrong.
        """

    @abstractmethod
    def annotate(self, ref: ImageRef, rows: Mapping[int, Any]) -> ImageRef:
        """Returns a reference with what its rows say.

        Args:
          ref: The reference.
          rows: Line -> result of `parse`.

        Raises:
          RowFault: If the rows do not agree.
        """

    @abstractmethod
    def check(self, shown: str) -> None:
        """Checks that the first rows are clear.

        Args:
          shown: Option and name of the file, for messages.

        Raises:
          UsageError: If they are not.
        """

    @abstractmethod
    def describe(self) -> str:
        """Returns what a message says about the columns, after a semicolon."""


#: Line and cells of a row.
_Cells = tuple[int, Sequence[str]]


@dataclass(frozen=True)
class TableFormat:
    """How a source reads its files.

    Attributes:
      name: Name of the source.
      title: Description of its files, for messages.
      provides: Kinds of annotations that the source can provide.
      settings: Settings that the source uses, out of those that only some sources use.
      suffixes: Ends of the names, in lower case, of files that are found in folders.
      table_in: Returns the table that begins with a head; None if the file is not of this format.
      noun: Name of one of its files, for messages about an input without one.
      rule: What such a file must be; the end of these messages.
      suits: Returns whether `--source auto` looks for this format in an input.
      fault_reason: Reason for the quarantine of an image with a bad row.
      one_row: Whether an image has one row, which may span several lines. Several rows are an error, as are
        equal keys. Otherwise a row is a line.
    """

    name: str
    title: str
    provides: frozenset[Needs]
    settings: frozenset[str]
    suffixes: str | tuple[str, ...]
    table_in: Callable[[TableHead, ConvertSettings], ImageTable | None]
    noun: str
    rule: str
    suits: Callable[[InputProbe, ConvertSettings], bool] = lambda probe, settings: True
    fault_reason: str = QuarantineReason.BAD_ROW
    one_row: bool = False

    def source(self) -> Source:
        """Returns the source that reads this format."""
        return Source(
            name=self.name,
            provides=self.provides,
            settings=self.settings,
            accepts=lambda probe, settings: (
                self.suits(probe, settings) and bool(self._names(probe, settings, MAX_TRIED))
            ),
            describe=self._describe,
            list_part=self._list_part,
            split=self._split,
        )

    def _names(self, probe: InputProbe, settings: ConvertSettings, tried: int | None = None) -> list[str]:
        """Returns the paths of the files in a folder, or else in its folders named like splits.

        If the input is such a file, the path is empty.
        """

        def is_one(path: str) -> bool:
            return self.table_in(read_head(path), settings) is not None

        if probe.is_file:
            return [""] if is_one(probe.path) else []
        splits = [name for name in probe.folders if split_token(name) and not name.startswith(".")]
        return names_with(probe, self.suffixes, tried, is_one) or [
            f"{folder}/{name}"
            for folder in splits[:tried]
            for name in names_with(probe.inside(folder), self.suffixes, tried, is_one)
        ]

    def _describe(self, probe: InputProbe, settings: ConvertSettings) -> str:
        """Returns a description of an input."""
        check_folders(settings, self.settings)
        described = []
        for file, table in self._find_tables(probe, settings).items():
            split = f", split {file.split}" if file.split else ""
            where = f"images in {printable(file.root)}{split}{table.describe()}"
            described.append(f"{printable(file.key)} ({where})")
        return f"{self.title}: {'; '.join(described)}"

    def _split(self, item: Input, context: Context) -> Iterator[InputSplit]:
        """Yields one input split for each file."""
        for file in self._find_tables(look_at(item.path), context.settings):
            yield InputSplit(item, file.path, detail=json.dumps(file))

    def _find_tables(self, probe: InputProbe, settings: ConvertSettings) -> dict[DocumentFile, ImageTable]:
        """Returns the files of an input, and their tables.

        Raises:
          UsageError: If there are none, one is not of this format, or its images are missing.
        """
        names = [""] if probe.is_file else self._names(probe, settings)
        if not names:
            raise UsageError(f"--input {printable(probe.path)} holds no {self.noun}; {self.rule}")
        tables: dict[DocumentFile, ImageTable] = {}
        for path, key, split in placed_lists(probe, names):
            table = self._load(path, settings)
            images = list(dict.fromkeys(filter(None, map(table.image_in, table.first_rows))))
            tables[DocumentFile(path, key, self._root_of(path, images, settings), split)] = table
        return tables

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
        table.check(f"--input {printable(path)}")
        return table

    def _root_of(self, path: str, images: Sequence[str], settings: ConvertSettings) -> str:
        """Returns the folder that the paths in a file are relative to.

        Raises:
          UsageError: If none of the first images is in one of the usual folders.
        """
        tried = images[:_NAMES_TRIED]
        if not tried or any(name.startswith("/") or "://" in name for name in tried):
            return settings.image_root.rstrip("/") or folder_of(path)
        root = find_root(usual_folders(path, settings), tried) or settings.image_root.rstrip("/")
        if not root:
            raise UsageError(
                f"--input {printable(path)}: {printable(tried[0])} is neither beside it nor in a usual "
                "folder; name the folder of its images with --image_root."
            )
        return root

    def _list_part(self, part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
        """Yields a reference for each image that a file names, and for each row that names none."""
        file = DocumentFile(*json.loads(part.detail))
        table = self._load(file.path, context.settings)
        yield from map(ClassId, table.classes, range(len(table.classes)))
        classes = NumberedClasses()
        root = ImageRoot("" if file.root == "." else file.root)

        def find(cells: Sequence[str]) -> tuple[str, str]:
            path = table.image_in(cells)
            try:
                return root.find(path) if 0 < len(path) <= _MAX_PATH_LENGTH else ("", "")
            except RowFault:
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

    def _ref(self, ref: ImageRef, file: DocumentFile, table: ImageTable, rows: Sequence[_Cells]) -> ImageRef:
        """Returns a reference with what its rows say, or quarantined if one of them is wrong."""
        shown, width = printable(file.key), len(table.head.rows[0])
        ref = ref._replace(message=f"line {rows[0][0]} of {shown}")
        parsed: dict[int, Any] = {}
        try:
            for line, cells in rows:
                if len(cells) != width:
                    raise RowFault(f"it has {counted(len(cells), 'cell')} instead of {width}")
                parsed[line] = table.parse(cells)
            return table.annotate(ref, parsed)
        except RowFault as fault:
            return ref.quarantined(self.fault_reason, f"line {line} of {shown}: {fault}")


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
        parse: Callable[[Lines, int], Iterator[Row]],
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
