"""Tables with a column of 0 and 1 for each class, such as Roboflow's `_classes.csv`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.image_files import class_name, inner_path, labelled, with_slashes
from shardwright.core.sources.tables.columns import names_images
from shardwright.core.sources.tables.image_tables import ImageTable, TableHead, table_format
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import counted

_NAME = "_classes.csv"
_YES, _NO = ("1", "1.0"), ("0", "0.0", "")


class ClassTable(ImageTable):
    """A file whose columns are classes.

    Attributes:
      classes: Names of the classes, in the order of the columns.
    """

    one_line = False

    def __init__(self, head: TableHead, settings: ConvertSettings) -> None:
        super().__init__(head)
        self.classes = list(map(class_name, head.header[1:]))
        self._settings = settings

    def image_in(self, cells: Sequence[str]) -> str:
        """Returns the path of the image of a row."""
        return inner_path(with_slashes(cells[0].strip()))

    def parse(self, cells: Sequence[str]) -> Sequence[str]:
        """Returns the classes of a row."""
        values = [cell.strip() for cell in cells[1:]]
        wrong = next((value for value in values if value not in (*_YES, *_NO)), None)
        if wrong is not None:
            raise AnnotationFault(f"{wrong[:40]!r} is neither 0 nor 1")
        return [name for name, value in zip(self.classes, values) if value in _YES]

    def annotate(self, ref: ImageRef, rows: Mapping[int, Sequence[str]]) -> ImageRef:
        """Returns a reference with its classes."""
        if len(rows) > 1:
            first, second, *_ = rows
            both = f"lines {first} and {second} both name {printable(ref.key)}"
            raise UsageError(f"{self.head.where}: {both}; remove one of them.")
        (names,) = rows.values()
        return labelled(ref, names, "classes", self._settings)

    def describe(self) -> str:
        """Returns the number of classes."""
        if not all(self.classes):
            raise UsageError(f"{self.head.where}: its header names an empty class; fix it.")
        return f"; a column for each of {counted(len(self.classes), 'class')}"


def _table_in(head: TableHead, settings: ConvertSettings) -> ClassTable | None:
    """Returns the table if its header names an image first, and a row has only 0 and 1 after it."""
    if len(head.header) < 2 or not names_images(head.header[0]):
        return None
    rows = ([cell.strip() for cell in row[1:]] for row in head.rows[1:] if len(row) > 1)
    is_table = any(all(cell in (*_YES, *_NO) for cell in row) for row in rows)
    return ClassTable(head, settings) if is_table else None


SOURCE = table_format(
    name="class_columns",
    title="a table of classes",
    provides=frozenset({Needs.LABEL}),
    settings=frozenset({"image_root", "label_separator"}),
    suffixes=(_NAME,),
    table_in=_table_in,
    noun=f"{_NAME} or other table of classes",
    rule="its header must name the image and then the classes (filename,cat,dog), and its rows must have 0 "
    "or 1 for each class.",
    suits=lambda probe, settings: (
        settings.record_layout.needs is Needs.LABEL and (not probe.is_file or probe.name == _NAME)
    ),
    begin=lambda documents, _: map(ClassId, documents[0].entries.classes, count()),
).source()
