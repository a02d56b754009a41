"""Reads box tables: CSV files with a row for each box, a common format of tutorials and converters.

The columns are found by their usual names: `filename,width,height,class,xmin,ymin,xmax,ymax`. A file without
a header must be `path,x1,y1,x2,y2,class`. Rows of one image may be anywhere in the file.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.labels import MAX_OWN_ID, ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.units import counted
from shardwright.transforms import storage
from shardwright.transforms.sources.file_states import FileStates, with_states
from shardwright.transforms.sources.image_files import (
    annotated,
    bad_entry,
    check_folder,
    class_name,
    folder_of,
    number_in,
    split_token,
)
from shardwright.transforms.sources.image_lists import (
    MAX_TRIED,
    find_image_root,
    find_lists,
    names_with,
    placed_lists,
    prefix_of_images,
    prefix_of_lines,
    split_lists,
)
from shardwright.transforms.sources.input_probe import HEAD_BYTES, InputProbe, look_at
from shardwright.transforms.sources.manifest.columns import (
    check_text,
    head_rows,
    is_open_images,
    looks_like_path,
    sniff_delimiter,
    usual_names,
)
from shardwright.transforms.sources.manifest.paths import ImageRoot, RowFault
from shardwright.transforms.sources.row_runs import MAX_LINE_BYTES, RowRuns
from shardwright.transforms.sources.source import Context, Input, InputSplit, Source
from shardwright.transforms.sources.split_names import split_name

#: Names of box columns, compared in lower case without `_`, `-`, `.` and spaces.
_CORNERS = (
    ("xmin", "x1", "left", "minx", "bboxxmin", "bboxx1", "bboxleft", "boxxmin", "xtl", "roix1", "boxx1"),
    ("ymin", "y1", "top", "miny", "bboxymin", "bboxy1", "bboxtop", "boxymin", "ytl", "roiy1", "boxy1"),
    ("xmax", "x2", "right", "maxx", "bboxxmax", "bboxx2", "bboxright", "boxxmax", "xbr", "roix2", "boxx2"),
    ("ymax", "y2", "bottom", "maxy", "bboxymax", "bboxy2", "bboxbottom", "boxymax", "ybr", "roiy2", "boxy2"),
)
#: The same for a box that is given as its upper left corner, width and height.
_EXTENTS = (
    ("bboxx", "boxx", "x", "xmin", "left", "bboxleft"),
    ("bboxy", "boxy", "y", "ymin", "top", "bboxtop"),
    ("bboxwidth", "boxwidth", "bboxw", "boxw", "w"),
    ("bboxheight", "boxheight", "bboxh", "boxh", "h"),
)
_SIZE = (("width", "imagewidth", "imgwidth"), ("height", "imageheight", "imgheight"))
_CORNER_NAMES = ("xmin", "ymin", "xmax", "ymax")
#: Cells of a row without a header: path, x1, y1, x2, y2, class.
_BARE_WIDTH = 6
_SUFFIXES = (".csv", ".tsv")
_TEXT_SUFFIXES = (*_SUFFIXES, ".txt")
_NAMES_TRIED = 5
#: How far a share may be outside 0 to 1, because of rounding or boxes that exceed the picture.
_SLACK = 0.5
_OWN_ID = re.compile(r"(?:0|[1-9][0-9]{0,6})\Z")
_NO_FIELD = -1


class _BadRow(Exception):
    """A row cannot be used; the message gives the reason."""


class BoxTable(NamedTuple):
    """A file and its format.

    Attributes:
      path: Path of the file.
      key: Path relative to the input.
      split: Split from the file's name or folder; empty if it is the only one.
      root: Folder that its image paths are relative to.
      delimiter: Delimiter of cells.
      width: Number of cells in a row.
      image: Position of the image's path in a row. Here and below, -1 means that the column is missing.
      label: Position of the class.
      split_column: Position of the split.
      sides: Positions of the four numbers of a box.
      size: Positions of the picture's width and height.
      has_extents: Whether the last two numbers are the box's width and height.
      relative: Whether the numbers are shares of the picture's width and height.
      has_header: Whether the first line names the columns.
      names: Names of the columns of image, class and box, for display.
    """

    path: str
    key: str
    split: str
    root: str
    delimiter: str
    width: int
    image: int
    label: int
    split_column: int
    sides: tuple[int, ...]
    size: tuple[int, ...]
    has_extents: bool
    relative: bool
    has_header: bool
    names: tuple[str, ...]

    def describe(self) -> str:
        """Returns a description of the file and its format, for display."""
        unit = "shares of width and height" if self.relative else "pixels"
        form = "left, top, width, height" if self.has_extents else "corners"
        where = f"images in {printable(self.root)}" + (f", split {self.split}" if self.split else "")
        if not self.has_header:
            return f"{printable(self.key)} (no header: path, x1, y1, x2, y2, class in {unit}; {where})"
        image, label, *sides = map(printable, self.names)
        return (
            f"{printable(self.key)} (paths in {image!r}, classes in {label!r}, boxes in {', '.join(sides)}: "
            f"{form} in {unit}; {where})"
        )


class _Columns(NamedTuple):
    """Positions of columns in a row, as in `BoxTable`."""

    image: int
    label: int
    split: int
    sides: tuple[int, ...]
    size: tuple[int, ...]
    has_extents: bool


def _plain(name: str) -> str:
    return re.sub(r"[\s_.-]+", "", name.strip().lower())


def _find(header: Sequence[str], names: Sequence[str]) -> int:
    return next((header.index(name) for name in names if name in header), _NO_FIELD)


def _columns_of(header: Sequence[str], settings: ConvertSettings) -> _Columns | None:
    """Returns the positions of box columns in a header; None if it has no such columns."""
    plain = [_plain(name) for name in header]

    def role(name: str) -> int:
        named = str(getattr(settings, f"{name}_column"))
        if named:
            return header.index(named) if named in header else _NO_FIELD
        usual = [_plain(item) for item in usual_names(name)]
        return _find(plain, [*usual, "imageid"] if name == "image" else usual)

    corners = tuple(_find(plain, names) for names in _CORNERS)
    sides, has_extents = corners, False
    if _NO_FIELD in corners:
        sides, has_extents = tuple(_find(plain, names) for names in _EXTENTS), True
    if _NO_FIELD in sides:
        return None
    size = tuple(_find(plain, names) for names in _SIZE)
    image, label = role("image"), role("label")
    if _NO_FIELD in (image, label):
        return None
    return _Columns(image, label, role("split"), sides, size, has_extents)


def _is_number(cell: str) -> bool:
    return number_in(cell) is not None


def _is_bare_row(row: Sequence[str]) -> bool:
    """Returns whether a row is `path,x1,y1,x2,y2,class`, or `path,,,,,` for an image without objects."""
    if len(row) != _BARE_WIDTH or not looks_like_path(row[0]):
        return False
    return not any(cell.strip() for cell in row[1:]) or all(map(_is_number, row[1:5]))


class _Head(NamedTuple):
    """First rows of a file, and the format detected from them."""

    delimiter: str
    rows: list[list[str]]
    columns: _Columns
    header: list[str]


def _read_head(name: str, head: bytes, settings: ConvertSettings) -> _Head | None:
    """Detects the format from the first bytes of a file; None if it is not a box table."""
    delimiter = sniff_delimiter(name, head)
    rows = head_rows(head, len(head) < HEAD_BYTES, delimiter, False)
    if not rows or is_open_images(head):
        return None
    header = [cell.strip() for cell in rows[0]]
    columns = _columns_of(header, settings)
    if columns is not None and not looks_like_path(rows[0][columns.image]):
        return _Head(delimiter, rows[1:], columns, header)
    if all(map(_is_bare_row, rows)):
        return _Head(delimiter, rows, _Columns(0, 5, _NO_FIELD, (1, 2, 3, 4), (), False), [])
    return None


def _head_of(path: str) -> bytes:
    with storage.translated_errors("read", path):
        return storage.read_head(path, HEAD_BYTES)


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    wants_objects = settings.record_layout.needs is Needs.OBJECTS
    if not probe.is_file:
        return wants_objects and bool(_files_in(probe, settings, MAX_TRIED))
    if not probe.name.lower().endswith(_TEXT_SUFFIXES):
        return False
    found = _read_head(probe.name, probe.head, settings)
    if found is None or wants_objects:
        return found is not None
    # A table with one box for each image may be meant for classes. Several boxes for one image decide it.
    images = [row[found.columns.image] for row in found.rows if len(row) > found.columns.image]
    return settings.record_layout.needs is Needs.LABEL and len(set(images)) < len(images)


def _files_in(probe: InputProbe, settings: ConvertSettings, tried: int | None = None) -> list[str]:
    def is_one(path: str) -> bool:
        return _read_head(path.rpartition("/")[2], _head_of(path), settings) is not None

    return find_lists(probe, lambda folder, tried: names_with(folder, _SUFFIXES, tried, is_one), tried)


def _find_tables(probe: InputProbe, settings: ConvertSettings) -> list[BoxTable]:
    """Returns the files of an input.

    Raises:
      UsageError: if there are no files, a file is not a box table, or its images are missing.
    """
    names = [""] if probe.is_file else _files_in(probe, settings)
    if not names:
        raise UsageError(
            f"--input {printable(probe.path)} holds no CSV file with boxes; its header must name the "
            "image, the class and the sides, such as filename,class,xmin,ymin,xmax,ymax."
        )
    tables = [_table(path, key, split, settings) for path, key, split in placed_lists(probe, names)]
    if len(tables) > 1:
        _check_apart(tables, settings)
    return tables


def _check_apart(tables: Sequence[BoxTable], settings: ConvertSettings) -> None:
    """Checks that the first rows of several files are about different images.

    Raises:
      UsageError: if two files list the boxes of one image.
    """
    first: dict[str, BoxTable] = {}
    for table in tables:
        found = _read_head(table.key, _head_of(table.path), settings)
        for row in found.rows if found else ():
            image = row[table.image] if table.image < len(row) else ""
            other = first.setdefault(storage.join(table.root, image), table)
            if image and other is not table:
                raise UsageError(
                    f"{printable(other.path)} and {printable(table.path)} both list the boxes of "
                    f"{printable(image)}; name one of them: write --input {printable(other.path)} or --input "
                    f"{printable(table.path)}."
                )


def _table(path: str, key: str, split: str, settings: ConvertSettings) -> BoxTable:
    shown = printable(path)
    name = path.rpartition("/")[2]
    head = _head_of(path)
    check_text(shown, head)
    for role in ("image", "label", "split"):
        named = str(getattr(settings, f"{role}_column"))
        first = head_rows(head, len(head) < HEAD_BYTES, sniff_delimiter(name, head), False)[:1]
        if named and first and named not in [cell.strip() for cell in first[0]]:
            raise UsageError(
                f"--{role}_column {printable(named)}: {shown} has no such column; it has "
                f"{printable(', '.join(first[0]))[:500]}."
            )
    found = _read_head(name, head, settings)
    if found is None:
        raise UsageError(
            f"--input {shown} is not a CSV file with boxes: its header must name the image, the class and "
            "the sides, such as filename,class,xmin,ymin,xmax,ymax."
        )
    delimiter, rows, columns, header = found
    if not rows:
        raise UsageError(f"--input {shown} has columns but no rows; add a row for each box.")
    if not header:
        _check_bare(shown, rows)
    chosen = (columns.image, columns.label, *columns.sides)
    table = BoxTable(
        path, key, split, "", delimiter, len(header) or _BARE_WIDTH,
        columns.image, columns.label, columns.split, columns.sides,
        columns.size if _NO_FIELD not in columns.size else (), columns.has_extents,
        _is_relative(shown, rows, columns, bool(header)), bool(header),
        tuple(header[number] for number in chosen) if header else (),
    )  # fmt: skip
    return table._replace(root=_root_of(table, rows, settings))


def _check_bare(shown: str, rows: Sequence[Sequence[str]]) -> None:
    """Checks that the rows of a file without a header are clearly corners, followed by the class.

    Raises:
      UsageError: if the rows are ambiguous.
    """
    advice = "add a line with the names of the columns, such as path,xmin,ymin,xmax,ymax,class"
    full = [row for row in rows if row[1].strip()]
    for number, row in enumerate(rows, 1):
        if row[1].strip():
            xmin, ymin, xmax, ymax = map(float, row[1:5])
            if xmax <= xmin or ymax <= ymin:
                raise UsageError(
                    f"--input {shown} has no header, and row {number} is not path,x1,y1,x2,y2,class: its box "
                    f"ends before it begins, so it may be left, top, width, height; {advice}."
                )
    if full and all(_is_number(row[5]) for row in full):
        boxes = [list(map(float, row[2:6])) for row in full]
        if all(xmax > xmin and ymax > ymin for xmin, ymin, xmax, ymax in boxes):
            raise UsageError(
                f"--input {shown} has no header, and its class may be the second or the last number; "
                f"{advice}."
            )


def _is_relative(shown: str, rows: Sequence[Sequence[str]], columns: _Columns, has_header: bool) -> bool:
    """Returns whether boxes in the first rows are shares of the picture's width and height, not pixels.

    Raises:
      UsageError: if the unit is ambiguous.
    """
    shares = pixels = written_as_shares = 0
    first = {True: 0, False: 0}
    for number, row in enumerate(rows, 2 if has_header else 1):
        cells = [row[place].strip() for place in columns.sides if place < len(row)]
        if len(cells) < len(columns.sides) or not all(map(_is_number, cells)):
            continue
        is_share = all(0 <= float(cell) <= 1 for cell in cells)
        first[is_share] = first[is_share] or number
        shares += is_share
        pixels += not is_share
        written_as_shares += is_share and any(not cell.isdigit() for cell in cells)
    if shares and pixels and written_as_shares:
        raise UsageError(
            f"--input {shown}: the box in line {first[True]} is in shares of the image and the one in line "
            f"{first[False]} in pixels; write all of them in one unit."
        )
    if shares and not pixels and not written_as_shares:
        raise UsageError(
            f"--input {shown}: all its boxes consist of 0 and 1, which may be pixels or shares of the "
            "image; write shares with a decimal point (1.0)."
        )
    return shares > 0 and not pixels


def _root_of(table: BoxTable, rows: Sequence[Sequence[str]], settings: ConvertSettings) -> str:
    """Returns the folder that the paths in a file are relative to.

    Raises:
      UsageError: if none of the first images is in one of the usual folders.
    """
    named = dict.fromkeys(row[table.image].strip() for row in rows if len(row) > table.image)
    names = [name for name in named if name][:_NAMES_TRIED]
    token = split_token(table.path.rpartition("/")[2])
    if not names or any(name.startswith("/") or "://" in name for name in names):
        return settings.image_root.rstrip("/") or folder_of(table.path)
    found = find_image_root(table.path, names, settings.image_root, token)
    if not found:
        raise UsageError(
            f"--input {printable(table.path)}: {printable(names[0])} is neither beside it nor in images/; "
            "name the folder of its images with --image_root."
        )
    return found


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    if settings.image_root:
        check_folder("--image_root", settings.image_root)
    tables = _find_tables(probe, settings)
    return "a table of boxes: " + "; ".join(table.describe() for table in tables)


def split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields one input split for each file."""
    yield from split_lists(item, _find_tables(look_at(item.path), context.settings))


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for each image that a file names, and for each row that names none."""
    table = _decode_table(part.detail)
    prefix = prefix_of_images(part, table.root, context)
    shown = printable(table.key)
    with storage.translated_errors("read", table.path), storage.open_local(table.path) as opened:
        reader = _Reader(table)
        first = _skip_header(opened, table) if table.has_header else 1
        runs = RowRuns()
        for line in runs.index(opened, reader.image_of, first):
            key = f"{prefix_of_lines(part, table.key)}{line}"
            yield bad_entry(key, table.path, f"line {line} names no image", QuarantineReason.BAD_ROW)
        refs = (
            ref
            for group in runs.groups()
            for ref in _images(opened, reader, runs, group, prefix, shown)
        )  # fmt: skip
        for ref in with_states(refs, FileStates(table.root, len(runs)), table.root):
            yield from reader.new_ids(ref)
            yield ref


def _decode_table(text: str) -> BoxTable:
    values: list[Any] = [tuple(item) if isinstance(item, list) else item for item in json.loads(text)]
    return BoxTable(*values)


def _skip_header(file: IO[bytes], table: BoxTable) -> int:
    """Skips the line of column names; returns the number of the next line."""
    for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), 2):
        if line.strip():
            return number
    raise storage.changed(table.path)


class _Reader:
    """Reads the rows of one file."""

    def __init__(self, table: BoxTable) -> None:
        self.table = table
        self.root = ImageRoot(table.root)
        self._seen: set[str] = set()

    def cells(self, text: str) -> list[str]:
        """Returns the cells of a row.

        Raises:
          _BadRow: if the row cannot be parsed.
        """
        if '"' not in text:
            return text.split(self.table.delimiter)
        try:
            return next(csv.reader([text], delimiter=self.table.delimiter, strict=True))
        except csv.Error as error:
            raise _BadRow(str(error)) from None

    def image_of(self, line: bytes, number: int) -> str:
        """Returns the key of the image that a line names; empty if it does not name one."""
        text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
        if number == 1:
            text = text.removeprefix("\ufeff")
        try:
            return self.key_of(self.cells(text))[0]
        except (_BadRow, RowFault):
            return ""

    def key_of(self, cells: Sequence[str]) -> tuple[str, str]:
        """Returns (key, uri) of the image of a row.

        Raises:
          RowFault: if the row does not name an image.
        """
        named = cells[self.table.image].strip() if len(cells) > self.table.image else ""
        return self.root.find(named)

    def new_ids(self, ref: ImageRef) -> Iterator[ClassId]:
        """Yields the ids of an image's numeric classes that were not yielded before."""
        for name in ref.labels:
            if name not in self._seen and _OWN_ID.match(name) and int(name) <= MAX_OWN_ID:
                self._seen.add(name)
                yield ClassId(name, int(name))


def _images(
    opened: IO[bytes], reader: _Reader, runs: RowRuns, group: list[int], prefix: str, shown: str
) -> Iterator[ImageRef]:
    """Yields the references of the images in a group of row runs: one, or more if hashes collide."""
    rows: dict[str, list[tuple[int, list[str]]]] = {}
    uris: dict[str, str] = {}
    for line, text in runs.rows(opened, group):
        if not text.strip():
            continue
        cells = reader.cells(text.removeprefix("\ufeff") if line == 1 else text)
        key, uri = reader.key_of(cells)
        uris.setdefault(key, uri)
        rows.setdefault(key, []).append((line, cells))
    table = reader.table
    for key, found in rows.items():
        message = f"line {found[0][0]} of {shown}"
        ref = ImageRef(prefix + key, uris[key], split=table.split, message=message)
        line = 0
        try:
            objects: list[ObjectAnnotation] = []
            sizes: dict[tuple[int, int], int] = {}
            splits: dict[str, int] = {}
            for line, cells in found:
                if len(cells) != table.width:
                    raise _BadRow(f"it has {counted(len(cells), 'cell')} instead of {table.width}")
                objects += _objects(cells, table)
                if table.size and (size := _size(cells, table)):
                    sizes.setdefault(size, line)
                if table.split_column != _NO_FIELD:
                    splits.setdefault(_split(cells[table.split_column]), line)
            _check_one("sizes", sizes)
            _check_one("splits", splits)
        except _BadRow as bad:
            why = f"line {line} of {shown}: {bad}"
            yield ref.quarantined(QuarantineReason.BAD_ANNOTATION, why)
            continue
        if splits and (split := next(iter(splits))):
            ref = ref._replace(split=split)
        size = next(iter(sizes), None)
        yield annotated(ref, Annotations(tuple(objects), relative=table.relative, size=size))


def _check_one(what: str, found: Mapping[Any, int]) -> None:
    if len(found) > 1:
        first, second = list(found.values())[:2]
        raise _BadRow(f"its image has two {what}, in lines {first} and {second}")


def _split(cell: str) -> str:
    try:
        return split_name(cell)
    except ValueError as error:
        raise _BadRow(str(error)) from None


def _size(cells: Sequence[str], table: BoxTable) -> tuple[int, int] | None:
    """Returns the width and height of the picture; None if a row gives none, or 0."""
    sides = []
    for name, place in zip(("width", "height"), table.size):
        text = cells[place].strip()
        side = float(text) if _is_number(text) else math.nan if text else 0.0
        if not math.isfinite(side) or side != int(side):
            raise _BadRow(f"its {name} is {text!r}")
        sides.append(int(side))
    return (sides[0], sides[1]) if min(sides) > 0 else None


def _objects(cells: Sequence[str], table: BoxTable) -> list[ObjectAnnotation]:
    """Returns the object of a row; empty if the image has no objects."""
    texts = [cells[place].strip() for place in table.sides]
    label = cells[table.label].strip()
    if not label and not any(texts):
        return []
    names = table.names[2:] or _CORNER_NAMES
    for name, text in zip(names, texts):
        if not _is_number(text):
            raise _BadRow(f"{name} is {text!r}, which is not a number")
    box = [float(text) for text in texts]
    _check_unit(box, texts, table.relative)
    if table.has_extents:
        box[2:] = [box[0] + box[2], box[1] + box[3]]
    return [ObjectAnnotation(class_name(label), (box[0], box[1], box[2], box[3]))]


def _check_unit(box: Sequence[float], texts: Sequence[str], relative: bool) -> None:
    """Checks that a box has the unit of the file's first rows.

    Raises:
      _BadRow: if its unit differs.
    """
    shown = ", ".join(texts)
    if relative and any(not -_SLACK <= side <= 1 + _SLACK for side in box):
        raise _BadRow(
            f"its box ({shown}) is in pixels, but the boxes in the first rows are shares of the image"
        )
    if not relative and all(0 <= side <= 1 for side in box) and not all(text.isdigit() for text in texts):
        raise _BadRow(
            f"its box ({shown}) is in shares of the image, but the boxes in the first rows are in pixels"
        )


SOURCE = Source(
    name="box_table",
    provides=frozenset({Needs.OBJECTS}),
    settings=frozenset({"image_root", "image_column", "label_column", "split_column"}),
    accepts=_accepts,
    describe=_describe,
    list_part=list_part,
    split=split,
    names_images=True,
)
