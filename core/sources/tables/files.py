"""Reads tables with a row for each image, in any kind of file: their columns, and ranges of their rows.

Rows of JSON Lines may contain their images as base64 text, also in data URLs. The text is a range of bytes in
the file, from which a worker reads it again.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from shardwright.core import storage
from shardwright.core.images.byte_ranges import from_base64
from shardwright.core.images.signatures import is_image_name, kind_of
from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.containers import content_digest
from shardwright.core.sources.file_states import ImageRoot, local_state
from shardwright.core.sources.input_probe import HEAD_BYTES
from shardwright.core.sources.source import Input, InputPart
from shardwright.core.sources.spool import Spool
from shardwright.core.sources.tables import columns, parquet, texts
from shardwright.core.sources.tables.columns import OBJECTS, looks_like_path, usual_columns
from shardwright.core.sources.tables.parquet import BYTES, PATH, EmbeddedImage
from shardwright.core.storage.store import StoredObject
from shardwright.schemas.byte_range import BASE64, ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault, UsageError
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import counted

#: Number of bytes of CSV or JSON Lines in one range.
STRETCH = 16_000_000
#: Number of rows whose images are looked for before the conversion begins.
_ROWS_TRIED = 50
#: What a message says about the columns in `Table.names`.
_NOUNS = ("images", "classes", "splits", "groups", "checksums")
#: What messages call the columns of a file without a header, and their names in `Table.names`.
_UNNAMED = ("path", "class")
_BARE_NAMES = ("image", "label", columns.ML_USE, "", "")


class Table(NamedTuple):
    """A table: how to read its file, and what the place of the file says about the rows.

    Attributes:
      file: The file.
      kind: Kind of the file, such as `CSV`.
      names: Names of the columns, as `choose_columns` returns them.
      header: Names of all columns; empty if the file does not name them. Then rows of CSV are
        `[split,]image[,label...]`.
      begin: Byte offset of the first row.
      number: Number of the first row: its line, or 0 if the column of images has the images themselves.
      delimiter: Delimiter of CSV.
      skip_spaces: Whether blanks before a cell of CSV are ignored.
      is_base64: Whether the column of images has the images themselves as base64 text.
      has_images: Whether the column of images has the images themselves as bytes.
      classes: Names of the classes whose numbers the rows or their objects have; empty if they have names.
      root: Folder to which its paths are relative; empty for the working directory.
      prefix: Prefix of the keys: the folder of the file.
      split: Split of rows that have none.
    """

    file: StoredObject
    kind: str
    names: tuple[str, ...]
    header: tuple[str, ...] = ()
    begin: int = 0
    number: int = 1
    delimiter: str = ","
    skip_spaces: bool = False
    is_base64: bool = False
    has_images: bool = False
    classes: Sequence[str] = ()
    root: str = ""
    prefix: str = ""
    split: str = ""

    @property
    def has_objects(self) -> bool:
        """Whether a column has objects."""
        return OBJECTS in self.header

    def describe(self) -> str:
        """Returns a description of the file for messages."""
        if self.kind == texts.LIST:
            return "a list with a path and a class on each line"
        if self.kind == texts.CSV and not self.header:
            return "a CSV manifest without a header: [split,] image, class"
        kind = "TSV" if self.kind == texts.CSV and self.delimiter == "\t" else self.kind
        header = " with a header" if self.kind == texts.CSV else ""
        notes = {"images": " as base64"} if self.is_base64 else {}
        return f"a {kind} manifest{header}: {self.describe_columns(notes)}"

    def describe_columns(self, notes: Mapping[str, str]) -> str:
        """Returns what the columns have, for messages.

        Args:
          notes: What follows the column of images, of classes or of objects, by that word.
        """
        named = dict(zip(_NOUNS, self.names)) | {"objects": OBJECTS if self.has_objects else ""}
        return ", ".join(f"{noun} in {name!r}{notes.get(noun, '')}" for noun, name in named.items() if name)

    def check_layout(self, settings: ConvertSettings, source: str) -> None:
        """Checks that the table has what the layout needs.

        Args:
          settings: Checked settings.
          source: Name of the source that reads it.

        Raises:
          UsageError: If something is missing.
        """
        layout, table_name = settings.record_layout, self.file.path
        names = columns.names_shown(self.header or _UNNAMED)
        if layout.needs is Needs.OBJECTS and not self.has_objects:
            raise UsageError(
                f"--layout {layout.name}: {table_name} is read as {source}, but it has no column {OBJECTS}, "
                f"only {names}; choose --layout classification, or another --source."
            )
        if layout.needs is not Needs.LABEL or settings.unlabelled == "keep" or self.names[1]:
            return
        if self.has_objects:
            raise UsageError(
                f"--layout {layout.name}: the rows of {table_name} have objects and no class; choose "
                "--layout detection."
            )
        raise UsageError(
            f"--input {table_name}: none of its columns ({names}) has a usual name for classes; name the "
            "column with --label_column, or keep images without a class with --unlabelled keep."
        )

    def parts(self, item: Input) -> Iterator[InputPart]:
        """Yields the parts of the table that workers list in parallel."""
        for place in ranges_of(self):
            yield InputPart(item, self.file.path, (self, place))


#: A table, and known values of its columns in the first rows.
_Opened = tuple[Table, Mapping[str, object]]


def load_table(file: StoredObject, settings: ConvertSettings) -> Table:
    """Returns the table in a file.

    Raises:
      UsageError: If the file has no rows that can be read, or no column that is named or needed.
    """
    table, first = open_table(file, settings)
    if table.names:
        return table
    base64_images = base64_column(first, settings.image_column) if table.kind == texts.JSONL else ""
    named = replace(settings, image_column=base64_images or settings.image_column)
    names = columns.choose_columns(file.path, table.header, named, first)
    return table._replace(names=names, is_base64=bool(base64_images))


def open_table(file: StoredObject, settings: ConvertSettings) -> _Opened:
    """Returns the table in a file, and known values of its columns in the first rows.

    The names of the table's columns are still to be chosen, if the file names them and is a text.

    Raises:
      UsageError: If the file has no rows that can be read.
    """
    if not file.size:
        raise UsageError(f"--input {file.path} is empty; add a row for each image.")
    head = storage.read_range(file.path, 0, HEAD_BYTES, file.size, file.version)
    kind = texts.kind_of_table(file.path.rpartition("/")[2], head)
    if kind == parquet.PARQUET:
        return parquet.read_apart(parquet.PARQUET, file, _parquet_table, file, settings), {}
    texts.check_text(file.path, head)
    begin = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
    if kind == texts.LIST:
        columns.check_named(file.path, _UNNAMED, columns.named_columns(settings))
        return Table(file, texts.LIST, _BARE_NAMES, begin=begin), {}
    lines = texts.Lines(texts.read_steps(file, begin, file.size, HEAD_BYTES), begin)
    if kind == texts.JSONL or (not kind and head[begin:].lstrip().startswith(b"{")):
        return _jsonl_table(file, lines)
    return _csv_table(file, head, lines, settings)


def _parquet_table(opened: parquet.RowGroups, file: StoredObject, settings: ConvertSettings) -> Table:
    header = tuple(opened.schema.names)
    names = columns.choose_columns(file.path, header, settings, {})
    type_ = opened.schema.field(names[0]).type
    has_images = parquet.is_bytes(type_) and parquet.holds_images(opened, names[0])
    if has_images or not (parquet.is_text(type_) or parquet.is_bytes(type_)):
        raise UsageError(
            f"--input {file.path}: its column {printable(names[0])!r} holds no paths but "
            f"{'images' if has_images else str(type_)[:60]}; name the column of paths with "
            "--image_column, or choose --source parquet if the images are inside."
        )
    return Table(file, parquet.PARQUET, names, header)


def _csv_table(file: StoredObject, head: bytes, lines: texts.Lines, settings: ConvertSettings) -> _Opened:
    delimiter = texts.sniff_delimiter(file.path, head)
    skip_spaces = texts.has_spaces_before_quotes(head, delimiter)
    table = Table(file, texts.CSV, _BARE_NAMES, begin=lines.position)
    table = table._replace(delimiter=delimiter, skip_spaces=skip_spaces)
    rows = texts.csv_cells(lines, 1, delimiter, skip_spaces)
    _, first = next(rows, (0, "it holds no rows"))
    if isinstance(first, str):
        raise UsageError(f"--input {file.path}: {first}; name a manifest with a row for each image.")
    if texts.is_bare(first) and not columns.named_columns(settings):
        return table, {}
    table = table._replace(begin=lines.position, number=1 + lines.count)
    header = tuple(cell.strip() for cell in first)
    _, second = next(rows, (0, ""))
    cells = second if isinstance(second, list) else []
    return table._replace(names=(), header=header), dict(zip(header, cells))


def _jsonl_table(file: StoredObject, lines: texts.Lines) -> _Opened:
    begin = lines.position
    values: dict[str, object] = {}
    for text in lines:
        row = texts.json_object(text)
        if isinstance(row, dict):
            for column, value in _values_in(row):
                values.setdefault(column, value)
        if lines.position >= (HEAD_BYTES if values else texts.LONGEST):
            break
    if not values:
        what = "none of its first lines is a JSON object" if lines.count else "it holds no rows"
        raise UsageError(f"--input {file.path}: {what}; JSON Lines has one object on each line.")
    # Objects may be lists, or have fields.
    tops = {name.partition(".")[0] for name in values} & {OBJECTS}
    header = tuple(dict.fromkeys((*values, *tops)))
    return Table(file, texts.JSONL, (), header, begin=begin), values


def _values_in(row: Mapping[str, object], above: str = "", depth: int = 3) -> Iterator[tuple[str, object]]:
    """Yields the names and values in a JSON object; names in nested objects are joined by dots."""
    for name, item in row.items():
        if not isinstance(item, dict):
            yield above + name, item
        elif depth:
            yield from _values_in(item, f"{above}{name}.", depth - 1)


def ranges_of(table: Table) -> Iterator[tuple[int, int, int]]:
    """Yields ranges of rows: begin and end, in bytes or row groups, and the number of the first row."""
    file = table.file
    if table.kind in parquet.KINDS:
        for begin, end, row in parquet.parts_of(table.kind, file):
            yield begin, end, table.number + row
        return
    begin, row = table.begin, table.number
    if file.size - begin > STRETCH:
        lines = texts.Lines(texts.read_steps(file, begin, file.size), begin)
        is_csv = table.kind == texts.CSV
        rows = texts.csv_cells(lines, row, table.delimiter, table.skip_spaces) if is_csv else lines
        for _ in rows:
            if lines.position - begin >= STRETCH:
                yield begin, lines.position, row
                begin, row = lines.position, table.number + lines.count
    if begin < file.size:
        yield begin, file.size, row


def rows_of(
    table: Table, part: tuple[int, int, int], settings: ConvertSettings, spool: Spool | None = None
) -> Iterator[texts.Row]:
    """Yields the rows in a range that `ranges_of` yielded; images inside a row need a spool."""
    file, (begin, end, first_row) = table.file, part
    needed = {*table.names, *(column.name for column in settings.parsed_extra_columns)} - {""}
    if settings.record_layout.needs is Needs.OBJECTS:
        needed |= {OBJECTS, columns.WIDTH, columns.HEIGHT}
    if table.has_images and spool is not None:
        image, *_ = table.names
        others = needed.intersection(table.header) - {image}
        rows = parquet.rows_with_images(table.kind, file, image, others, (begin, end), spool)
        return enumerate(rows, first_row)
    if table.kind == parquet.PARQUET:
        return enumerate(parquet.read_rows(table.kind, file, needed, begin, end), first_row)
    lines = texts.Lines(texts.read_steps(file, begin, end), begin)
    if table.kind == texts.CSV:
        cells = texts.csv_cells(lines, first_row, table.delimiter, table.skip_spaces)
        places = {name: table.header.index(name) for name in needed.intersection(table.header)}
        named = partial(_named_cells, places, len(table.header))
        row_of = named if table.header else partial(_bare_row, settings)
        return ((line, row if isinstance(row, str) else row_of(row)) for line, row in cells)
    if table.kind == texts.LIST:
        return texts.text_rows(lines, first_row, partial(_list_row, settings))

    def parse(text: str) -> Mapping[str, Any] | str:
        row = texts.json_object(text)
        if isinstance(row, str):
            return row
        values = {name: texts.named_value(row, name) for name in needed}
        if table.is_base64:
            image, line = table.names[0], text.encode("utf-8", "surrogateescape")
            values[image] = embedded_image(row, image, line, lines.position - len(line), file)
        return values

    return texts.text_rows(lines, first_row, parse)


def _named_cells(places: Mapping[str, int], width: int, cells: Sequence[str]) -> Mapping[str, Any] | str:
    """Returns the cells in some places of a row of CSV, by the names of their columns."""
    if len(cells) == width:
        return {name: cells[place] for name, place in places.items()}
    return f"it has too {'few' if len(cells) < width else 'many'} cells: {len(cells)} instead of {width}"


def _bare_row(settings: ConvertSettings, cells: Sequence[str]) -> Mapping[str, Any]:
    """Returns a row `[split,]image[,label...]` of a file without a header."""
    split, image, *labels = cells if texts.has_split(cells) else ("", *cells)
    separator = settings.label_separator
    names = [name for text in labels for name in (text.split(separator) if separator else [text])]
    return {"image": image, "label": [name for name in names if name.strip()], columns.ML_USE: split}


def _list_row(settings: ConvertSettings, text: str) -> Mapping[str, Any]:
    """Returns a line with a path and a class, or with several classes that are numbers."""
    path, label = texts.path_and_label(text)
    words = label.split()
    several = len(words) > 1 and not settings.label_separator and all(map(str.isdecimal, words))
    return {"image": path, "label": words if several else label}


def first_images(table: Table, settings: ConvertSettings) -> list[Any]:
    """Returns the images of the first rows, which are paths or embedded; a bad row gives none."""
    if table.kind == parquet.PARQUET:
        part = next(ranges_of(table), (0, 0, 1))
    else:
        part = (table.begin, min(table.begin + HEAD_BYTES, table.file.size), table.number)
    rows = rows_of(table, part, settings)
    image = table.names[0]
    return [None if isinstance(row, str) else row.get(image) for _, row in islice(rows, _ROWS_TRIED)]


def missing_images(table: Table, settings: ConvertSettings) -> str:
    """Returns a warning for messages if none of the first images on a disk exists; else an empty text."""
    paths = [path for path in first_images(table, settings) if path and isinstance(path, str)]
    root = ImageRoot(table.root)
    if not paths or any(_may_exist(root, path) for path in paths):
        return ""
    return (
        f"; none of the first {counted(len(paths), 'image')} is there, so all are searched by file name; "
        f"--image_root says where paths begin (now {printable(table.root) or 'the working directory'})"
    )


def _may_exist(root: ImageRoot, path: str) -> bool:
    try:
        _, uri = root.find(path)
        if not storage.is_remote(uri):
            local_state(uri)
    except AnnotationFault:
        return False
    return True


_DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
#: Number of characters to look at, and the fewest that an image has.
_HEAD, _FEWEST = 88, 32
#: Longest text that may be a path.
_MAX_PATH_LENGTH = 1024


def base64_column(values: Mapping[str, object], named: str) -> str:
    """Returns the column with images as base64 text; empty if there is none, or a usual one has paths.

    Args:
      values: Known values in the first rows, by name.
      named: Column that the settings name; empty for the usual ones.
    """
    names = [named]
    if not named:
        names = usual_columns("image", list(dict.fromkeys(name.partition(".")[0] for name in values)), {})
        if any(looks_like_path(str(values.get(name, ""))[:_MAX_PATH_LENGTH]) for name in names):
            return ""
    candidates = (column for name in names for column in (name, f"{name}.{BYTES}"))
    return next((name for name in candidates if _is_image(values.get(name))), "")


def _is_image(value: Any) -> bool:
    """Returns whether a value is the base64 text of an image, or a data URL with it."""
    if not isinstance(value, str):
        return False
    head = re.sub(r"\s", "", _payload(value)[:_HEAD]).encode("utf-8", "replace")
    try:
        return len(head) >= _FEWEST and kind_of(from_base64(head[: len(head) // 4 * 4])) is not None
    except ImageFault:
        return False


def embedded_image(
    row: dict[str, Any], name: str, line: bytes, offset: int, file: StoredObject
) -> EmbeddedImage | AnnotationFault | str | None:
    """Returns the image of a row, or why it cannot be read, or its path; None if the row has neither.

    Args:
      row: The row.
      name: Name of its base64 text.
      line: Line with the row.
      offset: Byte offset of the line.
      file: File with the line.
    """
    text = texts.named_value(row, name)
    if text in (None, ""):
        outer, _, last = name.rpartition(".")
        path = texts.named_value(row, f"{outer}.{PATH}") if outer and last == BYTES else None
        return path if isinstance(path, str) else None
    if not isinstance(text, str):
        return _bad(f"its image is not base64 text but {type(text).__name__}")
    payload = _payload(text)
    if payload == text and is_image_name(text) and len(text) <= _MAX_PATH_LENGTH:
        return text
    # JSON writes line ends, and often slashes, with a backslash.
    plain = payload.replace("\r", "\\r").replace("\n", "\\n").encode("utf-8", "replace")
    written = plain if plain in line else plain.replace(b"/", b"\\/")
    try:
        image = from_base64(written)
    except ImageFault as fault:
        return _bad(fault.message)
    if written not in line:
        return _bad("its base64 has unusual escapes; write it again")
    place = ByteRange("", offset + line.find(written), len(written), BASE64, file.size, file.version)
    return EmbeddedImage(place, len(image), content_digest(image))


def _payload(text: str) -> str:
    """Returns base64 text without the beginning of a data URL."""
    url = _DATA_URL.match(text)
    return text[url.end() :] if url else text


def _bad(message: str) -> AnnotationFault:
    return AnnotationFault(message, QuarantineReason.CORRUPT)
