"""YOLO: a text file for each image with lines of `class cx cy w h`, relative to the image size."""

from __future__ import annotations

import re
from collections.abc import Mapping

from shardwright.core.sources.annotation_files import AnnotationFault, read_annotation_file, rows_of
from shardwright.core.sources.files_beside import stem_of
from shardwright.core.sources.image_files import bad_entry, class_name, is_folder, number_in
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.pairs import PairedFolders, PairFormat
from shardwright.core.sources.shapes import hull
from shardwright.core.sources.yolo_dataset import read_dataset
from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.codes import FilterReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import counted

#: Numbers of a line with a box, of one with the confidence of a model, and of the smallest outline.
_BOX, _BOX_AND_CONFIDENCE, _MIN_OUTLINE = 5, 6, 7
#: Path of a folder of images up to that folder, which is no bucket; Darknet's VOC images are in `JPEGImages`.
_IMAGES = re.compile(r"(.*(?<!:/)/|\A)(?:images|JPEGImages)(?=/|\Z)", re.DOTALL)


def parse_labels(data: bytes, names: Mapping[int, str], is_pose: bool = False) -> Annotations:
    """Returns the objects that a label file lists; the confidence that models write is ignored.

    Args:
      data: Contents of the file.
      names: Class names by id; an object with any other id has no class.
      is_pose: Whether lines have a box and key points; otherwise they have a box or an outline.

    Raises:
      AnnotationFault: If a line is wrong; the message names the line.
    """
    objects = []
    for line, cells in rows_of(data):
        where = f"line {line} of its labels"
        values = [value for cell in cells if (value := number_in(cell)) is not None]
        if len(values) != len(cells):
            raise AnnotationFault(f"{where} has a value that is not a finite number")
        if values[0] != int(values[0]):
            raise AnnotationFault(f"{where} begins with {values[0]}, which is not a class id")
        label = names.get(int(values[0]), "")
        if is_pose or (len(values) == _BOX_AND_CONFIDENCE and 0 <= values[-1] <= 1):
            values = values[:_BOX]
        if len(values) == _BOX:
            x, y, width, height = values[1:_BOX]
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            objects.append(ObjectAnnotation(label, box))
        elif len(values) >= _MIN_OUTLINE and len(values) % 2:
            objects.append(ObjectAnnotation(label, hull(values[1:]), segmentation=[values[1:]]))
        else:
            raise AnnotationFault(
                f"{where} has {counted(len(values), 'number')} instead of a class and a box, or an outline"
            )
    return Annotations(objects=tuple(objects), relative=True)


def label_path(image: str) -> str:
    """Returns the usual path of an image's labels: in `labels` instead of the last `images`.

    >>> label_path("/data/images/train/a.b.jpg")
    '/data/labels/train/a.b.txt'
    """
    folder, slash, name = image.rpartition("/")
    return f"{label_folder(folder)}{slash}{stem_of(name)}.txt"


def label_folder(images: str) -> str:
    """Returns the label folder of an image folder."""
    match = _IMAGES.match(images)
    return f"{match[1]}labels{images[match.end() :]}" if match else images


def holds_labels(path: str) -> bool:
    """Returns whether a text file contains labels; among images it may be any other text."""
    try:
        return bool(parse_labels(read_annotation_file(path) or b"", {}).objects)
    except AnnotationFault:
        return False


def _find(probe: InputProbe, settings: ConvertSettings) -> list[PairedFolders]:
    dataset = read_dataset(probe)
    if dataset is None:
        return []
    names = tuple((class_id, class_name(name)) for class_id, name in dataset.names.items())
    folder_pairs = []
    for path, split in dataset.places.items():
        is_list = not is_folder(path)
        images = dataset.root if is_list else path
        labels = label_folder(path)
        folder_pairs.append(
            PairedFolders(
                images=images,
                annotations=labels if not is_list and is_folder(labels) else images,
                suffixes=(".txt",),
                split=split,
                image_list=path if is_list else "",
                root=dataset.root,
                classes=names,
                is_pose=dataset.is_pose,
            )
        )
    return folder_pairs


def _alone(ref: ImageRef, data: bytes) -> ImageRef:
    """Returns a text file without an image, which may be any text."""
    try:
        parse_labels(data, {})
    except AnnotationFault:
        return ref.filtered(FilterReason.NOT_AN_IMAGE)
    return bad_entry(ref.key, ref.uri, ref.message)


def _summarize(probe: InputProbe, settings: ConvertSettings) -> str:
    dataset = read_dataset(probe)
    if dataset is None:  # it is in folders that are named like splits
        return ""
    left_out = f"; left out: {printable(', '.join(dataset.missing))}" if dataset.missing else ""
    return f", {counted(len(dataset.names), 'class')}{left_out}"


SOURCE = PairFormat(
    name="yolo",
    title="YOLO",
    expected=(
        "it has neither data.yaml nor obj.data nor a file of class names; add classes.txt, with a class on "
        "each line, beside images/ and labels/, or write --input PATH/data.yaml"
    ),
    find=_find,
    summarize=_summarize,
    parse=lambda data, folders: parse_labels(data, dict(folders.classes), folders.is_pose),
    noun="label file",
    settings=frozenset(),
    files_of=lambda image: [label_path(image), f"{stem_of(image)}.txt"],
    alone=_alone,
).source()
