"""KITTI's object labels: a text file with 15 columns in `label_2` for each image in `image_2`."""

from __future__ import annotations

from shardwright.core.sources.annotation_files import AnnotationFault, faults_in, rows_of
from shardwright.core.sources.image_files import class_name, is_folder, join, number_in, parent_of
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.pairs import PairedFolders, PairFormat
from shardwright.core.sources.shapes import numbers_of
from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.configuration.settings import ConvertSettings

_IMAGES, _LABELS, _LISTS, _TESTING = "image_2", "label_2", "ImageSets", "testing"
#: Number of columns of a line, without and with the score of a detection.
_COLUMNS = (15, 16)
#: Columns of the share that is cut off, and of the sides of the box.
_NUMERIC_COLUMNS = ("column 2", "column 5", "column 6", "column 7", "column 8")
#: Class of areas whose objects are not labelled.
_IGNORED = "DontCare"
_OCCLUDED = {"0": False, "1": True, "2": True}


def parse_kitti(data: bytes) -> Annotations:
    """Returns the objects in the label file of an image.

    Raises:
      AnnotationFault: If a line cannot be used; the message names it.
    """
    objects = []
    for line, cells in rows_of(data):
        if len(cells) not in _COLUMNS:
            raise AnnotationFault(f"line {line} has {len(cells)} columns instead of 15")
        if cells[0] == _IGNORED:
            continue
        columns = {f"column {place}": cell for place, cell in enumerate(cells, 1)}
        with faults_in(f"line {line}"):
            truncated, left, top, right, bottom = numbers_of(columns, _NUMERIC_COLUMNS, number_in)
        objects.append(
            ObjectAnnotation(
                class_name(cells[0]),
                (left, top, right, bottom),
                truncated=truncated > 0 if truncated >= 0 else None,
                occluded=_OCCLUDED.get(cells[2].removesuffix(".0").removesuffix(".00")),
            )
        )
    return Annotations(objects=tuple(objects))


def _find(probe: InputProbe, settings: ConvertSettings) -> list[PairedFolders]:
    """Returns the images and their labels. The images of `testing` have no labels."""
    if _IMAGES not in probe.folders:
        return []
    above = parent_of(probe.root)
    lists = [join(folder, _LISTS) for folder in (probe.root, above)]
    return [
        PairedFolders(
            images=join(probe.root, _IMAGES),
            annotations=join(probe.root, _LABELS) if _LABELS in probe.folders else "",
            suffixes=(".txt",),
            lists=next(filter(is_folder, lists), ""),
            tests_apart=is_folder(join(above, _TESTING)),
        )
    ]


SOURCE = PairFormat(
    name="kitti",
    title="KITTI",
    expected=f"name the folder with {_IMAGES}/ and {_LABELS}/, or the one with training/ that contains them",
    find=_find,
    parse=lambda data, folders: parse_kitti(data),
).source()
