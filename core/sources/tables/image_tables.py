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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import IO, Any, NamedTuple

import numpy as np

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.sources.file_states import FileStates, with_states
from shardwright.core.sources.hashing import name_hash
from shardwright.core.sources.image_files import bad_entry, check_folder, folder_of, key_of, split_token
from shardwright.core.sources.image_lists import (
    MAX_TRIED,
    find_image_root,
    find_lists,
    placed_lists,
    prefix_of_images,
)
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
      delimiter: Delimiter of cells.
      rows: First rows; the first one may name the columns.
    """

    path: str
    delimiter: str
    rows: Sequence[list[str]]

    @property
    def header(self) -> list[str]:
        """The first row without blanks around its cells; empty if there is none."""
        return [cell.strip() for cell in self.rows[0]] if self.rows else []


def parse_head(path: str, head: bytes) -> TableHead:
    """Returns the beginning of a CSV file from its first bytes."""
    delimiter = sniff_delimiter(path, head)
    return TableHead(path, delimiter, head_rows(head, delimiter))


def _read_head(path: str) -> bytes:
    with storage.translated_errors("read", path):
        return storage.read_head(path, HEAD_BYTES)


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

    def check(self, shown: str) -> None:
        """Checks that the first rows are clear.

        Args:
          shown: Option and name of the file, for messages.

        Raises:
          UsageError: If they are not.
        """
        if not self.first_rows:
            raise UsageError(f"{shown} has columns but no rows; add a row for each image.")

    def describe(self) -> str:
        """Returns what a message says about the columns, after a semicolon; empty for nothing."""
        return ""


class _TableFile(NamedTuple):
    """A file of an input.

    Attributes:
      key: Path relative to the input.
      root: Folder of its images.
      split: Split from the name of the file or of its folder; empty if it is the only one.
    """

    path: str
    key: str
    root: str
    split: str


@dataclass(frozen=True)
class TableFormat:
    """How a source reads its files.

    Attributes:
      name: Name of the source.
      title: Description of its files, for messages.
      provides: Kinds of annotations that the source can provide.
      settings: Settings that the source uses, out of those that only some sources use.
      pattern: Shell pattern for the names, in lower case, of files that are found in folders.
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
    pattern: str
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
            accepts=self._accepts,
            describe=self._describe,
            list_part=self._list_part,
            split=self._split,
        )

    def _accepts(self, probe: InputProbe, settings: ConvertSettings) -> bool:
        """Returns whether an input is a file of this format, or a folder with one."""
        if not self.suits(probe, settings):
            return False
        if probe.is_file:
            return self.table_in(parse_head(probe.path, probe.head), settings) is not None
        return bool(self._names_in(probe, settings, MAX_TRIED))

    def _names_in(self, probe: InputProbe, settings: ConvertSettings, tried: int | None = None) -> list[str]:
        def names_in(folder: InputProbe, tried: int | None) -> list[str]:
            names = [name for name in folder.files if fnmatchcase(name.lower(), self.pattern)]
            heads = ((name, _read_head(storage.join(folder.path, name))) for name in names[:tried])
            return [name for name, head in heads if self.table_in(parse_head(name, head), settings)]

        return find_lists(probe, names_in, tried)

    def _describe(self, probe: InputProbe, settings: ConvertSettings) -> str:
        """Returns a description of an input."""
        if settings.image_root:
            check_folder("--image_root", settings.image_root)
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

    def _find_tables(self, probe: InputProbe, settings: ConvertSettings) -> dict[_TableFile, ImageTable]:
        """Returns the files of an input, and their tables.

        Raises:
          UsageError: If there are none, one is not of this format, or its images are missing.
        """
        names = [""] if probe.is_file else self._names_in(probe, settings)
        if not names:
            raise UsageError(f"--input {printable(probe.path)} holds no {self.noun}; {self.rule}")
        tables: dict[_TableFile, ImageTable] = {}
        for path, key, split in placed_lists(probe, names):
            table = self._load(path, settings)
            images = list(dict.fromkeys(filter(None, map(table.image_in, table.first_rows))))
            tables[_TableFile(path, key, self._root_of(path, images, settings), split)] = table
        return tables

    def _load(self, path: str, settings: ConvertSettings) -> ImageTable:
        """Returns the table of a file.

        Raises:
          UsageError: If it is not of this format, or has no column that the settings name.
        """
        data = _read_head(path)
        check_text(printable(path), data)
        head = parse_head(path, data)
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
        root = find_image_root(path, tried, settings.image_root, split_token(path.rpartition("/")[2]))
        if not root:
            raise UsageError(
                f"--input {printable(path)}: {printable(tried[0])} is neither beside it nor in images/; "
                "name the folder of its images with --image_root."
            )
        return root

    def _list_part(self, part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
        """Yields a reference for each image that a file names, and for each row that names none."""
        file = _TableFile(*json.loads(part.detail))
        table = self._load(file.path, context.settings)
        yield from map(ClassId, table.classes, range(len(table.classes)))
        classes = NumberedClasses()
        with storage.translated_errors("read", file.path), storage.open_local(file.path) as opened:
            listing = _Listing(self, table, file, prefix_of_images(part, file.root, context))
            for line, problem in listing.index(opened):
                message = f"line {line} of {printable(file.key)}: {problem}"
                key = f"{part.item.prefix}{key_of(file.key)}:line {line}"
                yield bad_entry(key, file.path, message, QuarantineReason.BAD_ROW)
            states = FileStates(file.root, len(listing.runs))
            for ref in with_states(listing.refs(opened), states, file.root):
                if not table.classes:
                    yield from classes.new_ids(ref)
                yield ref


class RowRuns:
    """Runs of consecutive rows of the same image.

    A run takes 32 bytes in four columns. Most images have one run.
    """

    def __init__(self) -> None:
        self._identity = array("Q")  # hash of the image's name
        self._begin = array("q")
        self._length = array("q")
        self._line = array("q")  # number of the first line

    def __len__(self) -> int:
        return len(self._identity)

    def index(
        self, lines: Lines, rows: Iterable[Row], image_of: Callable[[Sequence[str]], str]
    ) -> Iterator[tuple[int, str]]:
        """Stores the position of every run; yields (line, fault) for rows that name no image.

        Args:
          lines: Lines of the file, the first of which has the number 1, up to the first row to store.
          rows: Iterator that parses a row from the lines at a time.
          image_of: Function that returns the image name of a row; empty if the row has none.
        """
        last, begin, line = "", lines.position, lines.count + 1
        for number, cells in UNDERWAY.passing(rows):
            image = "" if isinstance(cells, str) else image_of(cells)
            if not image:
                yield number, cells if isinstance(cells, str) else "it names no image"
            elif image == last:
                self._length[-1] = lines.position - self._begin[-1]
            else:
                self._identity.append(name_hash(image))
                self._begin.append(begin)
                self._length.append(lines.position - begin)
                self._line.append(line)
            last, begin, line = image, lines.position, lines.count + 1

    def groups(self) -> Iterator[list[int]]:
        """Yields the indices of the runs that belong together, in the order of the file.

        A group has the runs of one image, unless two names have the same hash.
        """
        if not self._identity:
            return
        identity = np.frombuffer(self._identity, np.uint64)
        order = np.argsort(identity, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(identity[order])) + 1, len(order))
        begins = np.append(0, ends[:-1])
        for number in np.argsort(order[begins]):
            yield order[begins[number] : ends[number]].tolist()

    def rows(
        self, file: IO[bytes], group: Iterable[int], parse: Callable[[Lines, int], Iterable[Row]]
    ) -> Iterator[tuple[int, Sequence[str]]]:
        """Yields (line, cells) of the rows in a group of runs.

        Args:
          file: The file.
          group: Indices of the runs.
          parse: Function that parses rows from lines, given the number of the first line.
        """
        for run in group:
            data = os.pread(file.fileno(), self._length[run], self._begin[run])
            for line, cells in parse(Lines([data]), self._line[run]):
                if not isinstance(cells, str):
                    yield line, cells


class _Listing:
    """Lists the images of one file.

    Args:
      reader: Format of the file.
      table: Table in the file.
      file: The file.
      prefix: Prefix of the keys of its images.
    """

    def __init__(self, reader: TableFormat, table: ImageTable, file: _TableFile, prefix: str) -> None:
        self._format, self._table, self._file, self._prefix = reader, table, file, prefix
        self._root = ImageRoot("" if file.root == "." else file.root)
        self.runs = RowRuns()

    def _parse(self, lines: Lines, number: int) -> Iterator[Row]:
        delimiter = self._table.head.delimiter
        if self._format.one_row:
            return csv_cells(lines, number, delimiter, skip_spaces=False)
        # An image whose rows are lost in an unclosed quote would be stored without some of its objects.
        return line_cells(lines, number, delimiter)

    def _find(self, cells: Sequence[str]) -> tuple[str, str]:
        """Returns (key, URI) of the image of a row; empty texts if the row names none."""
        path = self._table.image_in(cells)
        try:
            return self._root.find(path) if 0 < len(path) <= _MAX_PATH_LENGTH else ("", "")
        except RowFault:
            return "", ""

    def index(self, opened: IO[bytes]) -> Iterator[tuple[int, str]]:
        """Finds the rows of each image; yields (line, fault) for rows that name no image."""
        begin = len(codecs.BOM_UTF8) if opened.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else 0
        opened.seek(begin)
        lines = Lines(iter(partial(opened.read, STEP), b""), begin)
        rows = self._parse(lines, 1)
        if self._table.has_header:
            next(rows, None)
        yield from self.runs.index(lines, rows, lambda cells: self._find(cells)[0])

    def refs(self, opened: IO[bytes]) -> Iterator[ImageRef]:
        """Yields a reference for each image, and a faulty one for each with a bad row."""
        for group in self.runs.groups():
            images: dict[str, tuple[str, list[tuple[int, Sequence[str]]]]] = {}  # two may have the same hash
            for line, cells in self.runs.rows(opened, group, self._parse):
                key, uri = self._find(cells)
                images.setdefault(key, (uri, []))[1].append((line, cells))
            for key, (uri, rows) in images.items():
                for own in ([row] for row in rows) if self._format.one_row else [rows]:
                    yield self._ref(key, uri, own)

    def _ref(self, key: str, uri: str, rows: Iterable[tuple[int, Sequence[str]]]) -> ImageRef:
        file, width = printable(self._file.key), len(self._table.head.rows[0])
        parsed: dict[int, Any] = {}
        ref = ImageRef(self._prefix + key, uri, split=self._file.split)
        try:
            for line, cells in rows:
                if not parsed:
                    ref = ref._replace(message=f"line {line} of {file}")
                if len(cells) != width:
                    raise RowFault(f"it has {counted(len(cells), 'cell')} instead of {width}")
                parsed[line] = self._table.parse(cells)
            return self._table.annotate(ref, parsed)
        except RowFault as fault:
            return ref.quarantined(self._format.fault_reason, f"line {line} of {file}: {fault}")
