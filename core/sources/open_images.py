"""Open Images: a CSV file with a row for each box, relative to the size of image `<ImageID>.jpg`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from shardwright.core import storage
from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.box_table import BoxColumns, BoxTable
from shardwright.core.sources.image_files import class_name, folder_of, inner_path, join
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.tables.image_tables import TableHead, table_format
from shardwright.core.sources.tables.texts import Lines, csv_cells
from shardwright.schemas.annotations import ObjectAnnotation
from shardwright.schemas.codes import QuarantineReason

_NEEDED = ("ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax")
#: Part of the names of the files that name the classes.
DESCRIPTIONS = "class-descriptions"
#: What messages say about an input without boxes.
NOUN = "CSV file of Open Images' boxes, such as train-annotations-bbox.csv"
RULE = (
    f"its first line names {', '.join(_NEEDED)}; write --input FILE.csv --image_root FOLDER with the folder "
    "of the images."
)
#: Field of an object -> column.
_FLAGS = {
    "occluded": "IsOccluded", "truncated": "IsTruncated", "group_of": "IsGroupOf", "depiction": "IsDepiction",
}  # fmt: skip
_FLAG_VALUES = {"1": True, "0": False, "-1": None, "": None}
_SUFFIX = ".jpg"


class BoxFile(BoxTable):
    """A file of boxes."""

    def __init__(self, head: TableHead) -> None:
        place = head.header.index
        sides = tuple(map(place, ("XMin", "YMin", "XMax", "YMax")))
        super().__init__(head, BoxColumns(place("ImageID"), place("LabelName"), sides=sides), has_header=True)

    is_relative = True
    fault_reason = QuarantineReason.BAD_ROW

    def check_unit(self, box: Sequence[float], texts: Sequence[str]) -> None:
        """Does nothing, because the format decides the unit: a box outside of its picture is a bad box."""

    def image_in(self, cells: Sequence[str]) -> str:
        """Returns the name of the image of a row."""
        name = inner_path(super().image_in(cells))
        return name and name + _SUFFIX

    def object_in(self, cells: Sequence[str]) -> ObjectAnnotation | None:
        """Returns the object of a row."""
        item = super().object_in(cells)
        row = dict(zip(self.head.header, cells))
        flags: dict[str, Any] = {}
        for field, name in _FLAGS.items():
            text = row.get(name, "")
            if text.strip() not in _FLAG_VALUES:
                raise AnnotationFault(f"{name} is {text!r} instead of 0, 1 or -1")
            flags[field] = _FLAG_VALUES[text.strip()]
        return item and replace(
            item, label=class_name(self._class_names.get(item.label, item.label)), **flags
        )

    @cached_property
    def _class_names(self) -> Mapping[str, str]:
        """Class names by LabelName, from the `class-descriptions` file beside the file of boxes."""
        here = folder_of(self.head.path)
        beside = InputProbe(here, is_file=False).files
        names = [name for name in beside if DESCRIPTIONS in name and name.lower().endswith(".csv")]
        names.sort(key=lambda name: ("boxable" not in name, name))
        if not names:
            return {}
        text = storage.read_text("--input", join(here, names[0]))
        rows = csv_cells(Lines([text.encode()]), 1, ",")
        pairs = (cells for _, cells in rows if isinstance(cells, list) and len(cells) > 1)
        return {code.strip(): name.strip() for code, name, *_ in pairs}


SOURCE = table_format(
    name="open_images",
    title="Open Images' boxes",
    settings=frozenset({"image_root"}),
    suffixes=(".csv",),
    has_numbers=True,
    table_in=lambda head, _: BoxFile(head) if set(_NEEDED) <= set(head.header) else None,
    noun=NOUN,
    rule=RULE,
).source()
