"""Reads box tables: CSV files with a row for each box, a common format of tutorials and converters.

The columns are found by their usual names: `filename,width,height,class,xmin,ymin,xmax,ymax`. A file without
a header must be `path,x1,y1,x2,y2,class`. Rows of one image may be anywhere in the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.image_files import annotated, class_name, number_in, split_in
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.shapes import size_of
from shardwright.core.sources.tables.columns import USUAL, looks_like_path, named_column, plain_name
from shardwright.core.sources.tables.image_tables import ImageTable, TableHead, parse_head, table_format
from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plain_text import printable

#: Names of box columns, as `plain_name` returns them, without `.`.
_CORNERS = (
    ("xmin", "x1", "left", "minx", "bboxxmin", "bboxx1", "bboxleft", "boxxmin", "xtl", "roix1", "boxx1"),
    ("ymin", "y1", "top", "miny", "bboxymin", "bboxy1", "bboxtop", "boxymin", "ytl", "roiy1", "boxy1"),
    ("xmax", "x2", "right", "maxx", "bboxxmax", "bboxx2", "bboxright", "boxxmax", "xbr", "roix2", "boxx2"),
    ("ymax", "y2", "bottom", "maxy", "bboxymax", "bboxy2", "bboxbottom", "boxymax", "ybr", "roiy2", "boxy2"),
)
#: These columns for a box that is given as its upper left corner, width and height.
_EXTENTS = (
    ("bboxx", "boxx", "x", "xmin", "left", "bboxleft"),
    ("bboxy", "boxy", "y", "ymin", "top", "bboxtop"),
    ("bboxwidth", "boxwidth", "bboxw", "boxw", "w"),
    ("bboxheight", "boxheight", "bboxh", "boxh", "h"),
)
_SIZE = (("width", "imagewidth", "imgwidth"), ("height", "imageheight", "imgheight"))
#: Position of a column that does not exist.
_MISSING = -1
_CORNER_NAMES = ("xmin", "ymin", "xmax", "ymax")
#: Cells of a row without a header: path, x1, y1, x2, y2, class.
_BARE_WIDTH = 6
#: How far a share may be outside 0 to 1, because of rounding or boxes that exceed the picture.
_SLACK = 0.5


class BoxColumns(NamedTuple):
    """Positions of columns in a row; -1 for a missing one.

    Attributes:
      image: Path of the image.
      label: Class.
      split: Split.
      sides: Four numbers of the box.
      size: Width and height of the picture; empty if either is missing.
      has_extents: Whether the last two numbers of the box are its width and height.
    """

    image: int = 0
    label: int = 5
    split: int = _MISSING
    sides: tuple[int, ...] = (1, 2, 3, 4)
    size: tuple[int, ...] = ()
    has_extents: bool = False


def _box_columns(header: Sequence[str], settings: ConvertSettings) -> BoxColumns | None:
    """Returns the positions of the columns in a header; None if it has no columns of boxes."""
    plain = [plain_name(name).replace(".", "") for name in header]

    def find(names: Sequence[str]) -> int:
        return next((plain.index(name) for name in names if name in plain), _MISSING)

    def role(name: str) -> int:
        named = named_column(name, settings)
        if named:
            return header.index(named) if named in header else _MISSING
        return find([*USUAL[name], *(["imageid"] if name == "image" else [])])

    image, label, split = map(role, ("image", "label", "split"))
    corners, extents, size = (tuple(map(find, names)) for names in (_CORNERS, _EXTENTS, _SIZE))
    has_extents = _MISSING in corners
    sides = extents if has_extents else corners
    if _MISSING in (image, label, *sides):
        return None
    return BoxColumns(image, label, split, sides, size if _MISSING not in size else (), has_extents)


#: An object, if a row has one, and the size and the split of its image, if given.
_Box = tuple[ObjectAnnotation | None, tuple[int, int] | None, str]


class BoxTable(ImageTable):
    """A file with a row for each box.

    Args:
      head: Beginning of the file.
      columns: Positions of its columns.
      has_header: Whether its first row names the columns.
    """

    fault_reason = QuarantineReason.BAD_ANNOTATION

    def __init__(self, head: TableHead, columns: BoxColumns, has_header: bool) -> None:
        super().__init__(head)
        self.has_header = has_header
        self._columns = columns
        self._names = [head.header[place] for place in columns.sides] if has_header else _CORNER_NAMES

    @cached_property
    def is_relative(self) -> bool:
        """Whether boxes are shares of the width and height of their image; the first rows show that.

        Raises:
          UsageError: If they have two units, or the unit is not clear.
        """
        where = self.head.where
        lines: dict[bool, int] = {}  # whether a box is in shares -> the first such line
        written_as_shares = False
        for line, row in enumerate(self.first_rows, 1 + self.has_header):
            cells = [row[place].strip() for place in self._columns.sides if place < len(row)]
            if len(cells) == len(self._columns.sides) and all(map(_is_number, cells)):
                is_share = all(0 <= float(cell) <= 1 for cell in cells)
                lines.setdefault(is_share, line)
                written_as_shares |= is_share and any(not cell.isdigit() for cell in cells)
        if len(lines) == 2 and written_as_shares:
            raise UsageError(
                f"{where}: the box in line {lines[True]} is in shares of the image and the one in line "
                f"{lines[False]} in pixels; write all of them in one unit."
            )
        if [*lines] == [True] and not written_as_shares:
            raise UsageError(
                f"{where}: all its boxes consist of 0 and 1, which may be pixels or shares of the image; "
                "write shares with a decimal point (1.0)."
            )
        return [*lines] == [True]

    def describe(self) -> str:
        """Returns the columns and the unit of the boxes."""
        if not self.has_header:
            _check_bare(self.head.where, self.first_rows)
        unit = "shares of width and height" if self.is_relative else "pixels"
        if not self.has_header:
            return f"; no header: path, x1, y1, x2, y2, class in {unit}"
        form = "left, top, width, height" if self._columns.has_extents else "corners"
        image, label = (printable(self.head.header[place]) for place in self._columns[:2])
        sides = printable(", ".join(self._names))
        return f"; paths in {image!r}, classes in {label!r}, boxes in {sides}: {form} in {unit}"

    def image_in(self, cells: Sequence[str]) -> str:
        """Returns the path of the image of a row."""
        return cells[self._columns.image].strip() if self._columns.image < len(cells) else ""

    def parse(self, cells: Sequence[str]) -> _Box:
        """Returns the object of a row, and the size and split of its image."""
        split = split_in(cells[self._columns.split]) if self._columns.split != _MISSING else ""
        sides = dict(zip(("width", "height"), (cells[place].strip() for place in self._columns.size)))
        return self.object_in(cells), size_of(sides, parse=number_in), split

    def object_in(self, cells: Sequence[str]) -> ObjectAnnotation | None:
        """Returns the object of a row; None for an image without objects.

        Raises:
          AnnotationFault: If its box is wrong.
        """
        texts = [cells[place].strip() for place in self._columns.sides]
        label = cells[self._columns.label].strip()
        if not label and not any(texts):
            return None
        for name, text in zip(self._names, texts):
            if not _is_number(text):
                raise AnnotationFault(f"{name} is {text!r}, which is not a number")
        left, top, right, bottom = map(float, texts)
        self.check_unit((left, top, right, bottom), texts)
        if self._columns.has_extents:
            right, bottom = left + right, top + bottom
        return ObjectAnnotation(class_name(label), (left, top, right, bottom))

    def check_unit(self, box: Sequence[float], texts: Sequence[str]) -> None:
        """Checks that a box has the unit of the file's first rows.

        Raises:
          AnnotationFault: If its unit differs.
        """
        box_text = ", ".join(texts)
        if self.is_relative and any(not -_SLACK <= side <= 1 + _SLACK for side in box):
            raise AnnotationFault(
                f"its box ({box_text}) is in pixels, but the boxes in the first rows are shares of the image"
            )
        are_shares = all(0 <= side <= 1 for side in box) and not all(text.isdigit() for text in texts)
        if not self.is_relative and are_shares:
            raise AnnotationFault(
                f"its box ({box_text}) is in shares of the image, but the boxes in the first rows are in "
                "pixels"
            )

    def annotate(self, ref: ImageRef, rows: Mapping[int, _Box]) -> ImageRef:
        """Returns a reference with its objects."""
        size = _only("sizes", {line: size for line, (_, size, _) in rows.items() if size})
        split = _only("splits", {line: split for line, (_, _, split) in rows.items()})
        objects = tuple(item for item, *_ in rows.values() if item)
        ref = ref._replace(split=split or ref.split)
        return annotated(ref, Annotations(objects, relative=self.is_relative, size=size))


def _only(what: str, values: dict[int, Any]) -> Any:
    """Returns the value of all lines; None if there are no lines.

    Raises:
      AnnotationFault: If two lines have different values.
    """
    lines = {value: line for line, value in reversed(values.items())}
    if len(lines) > 1:
        first, second = sorted(lines.values())[:2]
        raise AnnotationFault(f"its image has two {what}, in lines {first} and {second}")
    return next(iter(lines), None)


def _is_number(cell: str) -> bool:
    return number_in(cell) is not None


def _is_bare_row(row: Sequence[str]) -> bool:
    """Returns whether a row is `path,x1,y1,x2,y2,class`, or `path,,,,,` for an image without objects."""
    if len(row) != _BARE_WIDTH or not looks_like_path(row[0]):
        return False
    return not any(cell.strip() for cell in row[1:]) or all(map(_is_number, row[1:5]))


def _check_bare(where: str, rows: Sequence[Sequence[str]]) -> None:
    """Checks that the rows of a file without a header are clearly corners, followed by the class.

    Raises:
      UsageError: If the rows are ambiguous.
    """
    advice = "add a line with the names of the columns, such as path,xmin,ymin,xmax,ymax,class"
    full = [(line, row) for line, row in enumerate(rows, 1) if row[1].strip()]
    for line, row in full:
        if not _are_corners(row[1:5]):
            raise UsageError(
                f"{where} has no header, and row {line} is not path,x1,y1,x2,y2,class: its box ends before "
                f"it begins, so it may be left, top, width, height; {advice}."
            )
    if full and all(_is_number(row[5]) and _are_corners(row[2:6]) for _, row in full):
        raise UsageError(
            f"{where} has no header, and its class may be the second or the last number; {advice}."
        )


def _are_corners(cells: Sequence[str]) -> bool:
    left, top, right, bottom = map(float, cells)
    return right > left and bottom > top


def _table_in(head: TableHead, settings: ConvertSettings) -> BoxTable | None:
    """Returns the table that begins with these rows; None if it is not a box table."""
    columns = _box_columns(head.header, settings)
    if columns is not None and not looks_like_path(head.rows[0][columns.image]):
        return BoxTable(head, columns, has_header=True)
    is_bare = bool(head.rows) and all(map(_is_bare_row, head.rows))
    return BoxTable(head, BoxColumns(), has_header=False) if is_bare else None


def _suits(probe: InputProbe, settings: ConvertSettings) -> bool:
    needs = settings.record_layout.needs
    if needs is Needs.OBJECTS:
        return True
    # A table with one box for each image may be meant for classes. Several boxes for one image decide it.
    is_table = probe.is_file and needs is Needs.LABEL
    table = _table_in(parse_head(probe.head, probe.path), settings) if is_table else None
    images = [table.image_in(row) for row in table.first_rows] if table else []
    return len(set(images)) < len(images)


SOURCE = table_format(
    name="box_table",
    title="a table of boxes",
    settings=frozenset({"image_root", "image_column", "label_column", "split_column"}),
    suffixes=(".csv", ".tsv"),
    has_numbers=True,
    table_in=_table_in,
    noun="CSV file with boxes",
    rule="its header must name the image, the class and the sides, such as "
    "filename,class,xmin,ymin,xmax,ymax.",
    suits=_suits,
).source()
