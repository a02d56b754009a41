"""Tables with a column of 0 and 1 for each class, such as Roboflow's `_classes.csv`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef, printable
from shardwright.schemas.layouts import Needs
from shardwright.schemas.units import counted
from shardwright.transforms.sources.image_files import class_name, inner_path
from shardwright.transforms.sources.input_probe import InputProbe
from shardwright.transforms.sources.moved_files import with_slashes
from shardwright.transforms.sources.source import Source
from shardwright.transforms.sources.tables.image_tables import ImageTable, TableFormat, TableHead
from shardwright.transforms.sources.tables.paths import RowFault
from shardwright.transforms.sources.tables.rows import check_several

_NAME = "_classes.csv"
_IMAGE_NAMES = ("filename", "file_name", "image", "image_name", "path")
_YES, _NO = ("1", "1.0"), ("0", "0.0", "")


class ClassTable(ImageTable):
    """A file whose columns are classes.

    Args:
      head: Beginning of the file.
      classes: Names of the classes.
      separator: Separator of several classes of an image; empty for one class.
    """

    def __init__(self, head: TableHead, classes: Sequence[str], separator: str) -> None:
        super().__init__(head)
        self.classes = classes
        self._separator = separator

    def image_in(self, cells: Sequence[str]) -> str:
        """Returns the path of the image of a row."""
        return inner_path(with_slashes(cells[0].strip()))

    def parse(self, cells: Sequence[str]) -> Sequence[str]:
        """Returns the classes of a row."""
        values = [cell.strip() for cell in cells[1:]]
        wrong = next((value for value in values if value not in (*_YES, *_NO)), None)
        if wrong is not None:
            raise RowFault(f"{wrong[:40]!r} is neither 0 nor 1")
        names = [name for name, value in zip(self.classes, values) if value in _YES]
        check_several(names, self._separator)
        return names

    def annotate(self, ref: ImageRef, rows: Mapping[int, Sequence[str]]) -> ImageRef:
        """Returns a reference with its classes."""
        (names,) = rows.values()
        return ref._replace(label=LABEL_SEPARATOR.join(names))

    def describe(self) -> str:
        """Returns the number of classes."""
        return f"; a column for each of {counted(len(self.classes), 'class')}"


def _is_table(head: TableHead) -> bool:
    """Returns whether the header names an image first, and a row has only 0 and 1 after it."""
    if len(head.header) < 2 or head.header[0].lower() not in _IMAGE_NAMES:
        return False
    rows = ([cell.strip() for cell in row[1:]] for row in head.rows[1:] if len(row) > 1)
    return any(all(cell in (*_YES, *_NO) for cell in row) for row in rows)


def _recognizes(head: TableHead, settings: ConvertSettings) -> bool:
    return head.path.rpartition("/")[2] == _NAME and _is_table(head)


def _load(head: TableHead, settings: ConvertSettings) -> ClassTable:
    shown = f"--input {printable(head.path)}"
    if not _is_table(head):
        raise UsageError(
            f"{shown} is not a table of classes: its header must name the image and then the classes "
            "(filename,cat,dog), and its rows must have 0 or 1 for each class."
        )
    classes = list(map(class_name, head.header[1:]))
    if not all(classes) or len(set(classes)) < len(classes):
        raise UsageError(f"{shown}: its header names a class twice, or an empty class; fix it.")
    return ClassTable(head, classes, settings.label_separator)


_FORMAT = TableFormat(
    "a table of classes",
    (_NAME,),
    f"holds no {_NAME} with a column of 0 and 1 for each class; name the file.",
    _recognizes,
    _load,
    one_row=True,
    needs_images=False,
)


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    return settings.record_layout.needs is Needs.LABEL and _FORMAT.accepts(probe, settings)


SOURCE = Source(
    name="class_columns",
    provides=frozenset({Needs.LABEL}),
    settings=frozenset({"image_root", "label_separator"}),
    accepts=_accepts,
    describe=_FORMAT.describe,
    list_part=_FORMAT.list_part,
    split=_FORMAT.split,
    names_images=True,
)
