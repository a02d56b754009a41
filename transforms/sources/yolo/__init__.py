"""YOLO: a text file for each image with lines of `class cx cy w h`, relative to the image size."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping

from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.units import counted
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.sources.annotation_files import (
    AnnotationFault,
    read_annotation_file,
    side_by_side,
)
from shardwright.transforms.sources.class_folders import list_class_folders
from shardwright.transforms.sources.file_states import FileStates, with_states
from shardwright.transforms.sources.image_files import (
    annotated,
    bad_entry,
    below,
    class_name,
    files_below,
    join,
    key_of,
)
from shardwright.transforms.sources.input_probe import InputProbe
from shardwright.transforms.sources.source import Context, Input, InputSplit, Source
from shardwright.transforms.sources.yolo.files import (
    ListedImage,
    YoloPlace,
    find_entries,
    label_folder,
    label_path,
    read_list,
    read_set,
    recognizes,
)

_BOX_VALUES = 5
#: A class, a box and the confidence of a model.
_CONFIDENCE_VALUES = 6
#: A class and three points.
_MIN_OUTLINE_VALUES = 7
#: Names of text files that do not contain labels.
_NO_LABELS = ("classes.txt", "images.txt", "train.txt", "val.txt", "valid.txt", "test.txt")


def parse_labels(data: bytes, names: Mapping[int, str], is_pose: bool = False) -> list[ObjectAnnotation]:
    """Returns the objects that a label file lists.

    The confidence that models write after a box is ignored.

    Args:
      data: Contents of the file.
      names: Class names by id; an object with any other id has no class.
      is_pose: Whether lines have a box and key points; otherwise they have a box or an outline.

    Raises:
      AnnotationFault: If a line is wrong; the message names the line.
    """
    objects = []
    for line, text in enumerate(data.decode("utf-8-sig", "replace").splitlines(), 1):
        if not text.strip():
            continue
        try:
            values = [float(value) for value in text.split()]
        except ValueError:
            raise AnnotationFault(f"line {line} of its labels has a value that is not a number") from None
        if not all(map(math.isfinite, values)):
            raise AnnotationFault(f"line {line} of its labels has a number that is not finite")
        if values[0] != int(values[0]):
            raise AnnotationFault(
                f"line {line} of its labels begins with {values[0]}, which is not a class id"
            )
        label = names.get(int(values[0]), "")
        if not is_pose and len(values) == _CONFIDENCE_VALUES and 0 <= values[-1] <= 1:
            values.pop()
        if len(values) == _BOX_VALUES or (is_pose and len(values) > _BOX_VALUES):
            x, y, width, height = values[1:_BOX_VALUES]
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            objects.append(ObjectAnnotation(label, box))
        elif len(values) >= _MIN_OUTLINE_VALUES and len(values) % 2:
            xs, ys = values[1::2], values[2::2]
            hull = (min(xs), min(ys), max(xs), max(ys))
            objects.append(ObjectAnnotation(label, hull, segmentation=[values[1:]]))
        else:
            raise AnnotationFault(
                f"line {line} of its labels has {counted(len(values), 'number')} instead of a class and a "
                "box, or an outline"
            )
    return objects


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    found = read_set(probe.path)
    places = [
        f"{place.split}: {printable(place.path)}" if place.split else printable(place.path)
        for place in found.places
    ]
    missing = f"; left out: {printable(', '.join(found.missing))}" if found.missing else ""
    return f"YOLO, {counted(len(found.names), 'class')} ({', '.join(places)}){missing}"


def split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields one split for each image folder and each list of a dataset."""
    for number, place in enumerate(read_set(item.path).places):
        yield InputSplit(item, place.path, number=number, detail=json.dumps(place))


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for every image in a folder or list, and for every label file without an image."""
    dataset = read_set(part.item.path)
    place = YoloPlace(*json.loads(part.detail))
    names = {number: class_name(name) for number, name in dataset.names.items()}
    for number, name in names.items():
        if name:
            yield ClassId(name, number)

    def read(ref: ImageRef) -> ImageRef:
        if not ref.is_candidate:
            return ref
        try:
            file = label_path(ref.uri)
            data = read_annotation_file(file)
            with UNDERWAY.working_on(file, "parse"):
                objects = [] if data is None else parse_labels(data, names, dataset.is_pose)
        except AnnotationFault as fault:
            return ref.quarantined(QuarantineReason.BAD_ANNOTATION, str(fault))
        return annotated(ref, Annotations(objects=tuple(objects), relative=True))

    if place.is_list:
        yield from side_by_side(read, _listed(part, place, dataset.root), place.path)
        return
    used = set()
    for ref in side_by_side(read, _lying(part, place, dataset.root), place.path):
        used.add(label_path(ref.uri))
        yield ref
    yield from _without_image(part, place, dataset.root, used)


def _prefix(part: InputSplit, path: str, place: YoloPlace, root: str) -> str:
    """Returns the prefix of the keys of a folder's images."""
    inner = below(f"{path}/", root)
    if inner is None:
        inner = f"{place.split or path.rpartition('/')[2]}/"
    return part.item.prefix + key_of(inner)


def _lying(part: InputSplit, place: YoloPlace, root: str) -> Iterator[ImageRef]:
    """Yields the files in a folder, except those that may be label files."""
    for ref in list_class_folders(Input(place.path, _prefix(part, place.path, place, root))):
        if not ref.uri.lower().endswith(".txt"):
            yield ref._replace(label="", split=place.split)


def _listed(part: InputSplit, place: YoloPlace, root: str) -> Iterator[ImageRef]:
    """Yields the images that a file lists."""
    lines = read_list(place.path)
    states = FileStates(root, len(lines))
    refs = (_of_entry(part, place, root, entry) for entry in find_entries(lines, place, root, states))
    return with_states(refs, states, root)


def _of_entry(part: InputSplit, place: YoloPlace, root: str, entry: ListedImage) -> ImageRef:
    path = entry.path
    inner = below(path, root)
    key = key_of((path.partition("://")[2] or path).lstrip("/") if inner is None else inner)
    if ".." in key.split("/"):
        key = "/".join(step for step in key.split("/") if step != "..")
    message = f"listed in {printable(place.path)}"
    ref = ImageRef(part.item.prefix + key, path, split=place.split, message=message)
    return ref.quarantined(QuarantineReason.BAD_ANNOTATION, entry.fault) if entry.fault else ref


def _without_image(part: InputSplit, place: YoloPlace, root: str, used: set[str]) -> Iterator[ImageRef]:
    """Yields bad entries for the label files without an image."""
    folder = label_folder(place.path)
    prefix = _prefix(part, folder, place, root)
    for path, _ in files_below(folder):
        name = path.rpartition("/")[2].lower()
        uri = join(folder, path)
        hidden = any(step.startswith(".") for step in path.split("/"))
        if not name.endswith(".txt") or hidden or name in _NO_LABELS or uri in used:
            continue
        if folder != place.path or holds_labels(uri):
            yield bad_entry(prefix + key_of(path), uri, "there is no image for this label file")


def holds_labels(path: str) -> bool:
    """Returns whether a text file among images contains labels; it may be any other text."""
    try:
        return bool(parse_labels(read_annotation_file(path) or b"", {}))
    except AnnotationFault:
        return False


SOURCE = Source(
    name="yolo",
    provides=frozenset({Needs.OBJECTS}),
    accepts=lambda probe, settings: recognizes(probe),
    describe=_describe,
    list_part=list_part,
    split=split,
)
