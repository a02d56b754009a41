"""Reads KITTI's object labels: a text file with 15 columns in `label_2` for each image in `image_2`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.layouts import Needs
from shardwright.transforms.sources.annotation_files import (
    AnnotationFault,
    read_list_file,
)
from shardwright.transforms.sources.image_files import class_name, join, number_in, split_token
from shardwright.transforms.sources.input_probe import InputProbe, look_at
from shardwright.transforms.sources.paired_files import Pairing, list_pairs, split_pairs
from shardwright.transforms.sources.source import Context, Input, InputSplit, Source

_IMAGES, _LABELS, _SETS = "image_2", "label_2", "ImageSets"
#: Folders of the original collection; the labels of the second are not public.
_TRAINING, _TESTING = "training", "testing"
#: CVAT's name for images without a subset.
_DEFAULT = "default"
_LISTS = ("train", "val", "test")
#: Number of columns of a line, without and with the score of a detection.
_COLUMNS = (15, 16)
#: Class of areas whose objects are not labelled.
_IGNORED = ("DontCare",)
_OCCLUDED = {"0": False, "1": True, "2": True}
_FOLDERS_TRIED = 20


def parse_kitti(data: bytes) -> Annotations:
    """Parses the label file of an image.

    Raises:
      AnnotationFault: if a line cannot be used; the message names it.
    """
    objects = []
    for line, text in enumerate(data.decode("utf-8-sig", "replace").splitlines(), 1):
        cells = text.split()
        if not cells:
            continue
        if len(cells) not in _COLUMNS:
            raise AnnotationFault(f"line {line} has {len(cells)} columns instead of 15")
        if cells[0] in _IGNORED:
            continue
        truncated, left, top, right, bottom = (_number(line, cells, place) for place in (1, 4, 5, 6, 7))
        objects.append(
            ObjectAnnotation(
                class_name(cells[0]),
                (left, top, right, bottom),
                truncated=truncated > 0 if truncated >= 0 else None,
                occluded=_OCCLUDED.get(cells[2].removesuffix(".0").removesuffix(".00")),
            )
        )
    return Annotations(objects=tuple(objects))


def _number(line: int, cells: list[str], place: int) -> float:
    value = number_in(cells[place])
    if value is None:
        raise AnnotationFault(f"column {place + 1} of line {line} is {cells[place]!r}, which is not a number")
    return value


def _find_pairings(probe: InputProbe, tried: int | None = None) -> list[Pairing]:
    """Returns an input's folders with images and labels, and the folders beside them with images only.

    Args:
      probe: The input.
      tried: Number of folders to examine, which is enough to detect the format; None for all.
    """
    if probe.is_file:
        return []
    root = probe.path.rstrip("/") or "/"
    if {_IMAGES, _LABELS} <= {*probe.folders}:
        return [_pairing(root, "")]
    # Other folders are not examined: a remote folder with many images would take long.
    names = [name for name in probe.folders if split_token(name) or name.lower() == _DEFAULT][:tried]
    inner = {name: probe.inside(name).folders for name in names}
    labelled = [name for name, folders in inner.items() if {_IMAGES, _LABELS} <= {*folders}]
    several = len(labelled) > 1
    found = [
        _pairing(join(root, name), split_token(name) or name.lower() if several else "") for name in labelled
    ]
    if labelled:
        alone = (name for name, folders in inner.items() if _IMAGES in folders and _LABELS not in folders)
        found += [
            Pairing(join(join(root, name), _IMAGES), "", ".txt", split=split_token(name)) for name in alone
        ]
    return found


def _pairing(folder: str, split: str) -> Pairing:
    return Pairing(join(folder, _IMAGES), join(folder, _LABELS), ".txt", split=split)


def _read_lists(root: str) -> Mapping[str, str] | None:
    """Returns image name without suffix -> split from `ImageSets`; None if there are no lists."""
    texts = {name: read_list_file(join(join(root, _SETS), f"{name}.txt")) for name in _LISTS}
    splits: dict[str, str] = {}
    for name, text in texts.items():
        for stem in (text or b"").decode("utf-8", "surrogateescape").split():
            first = splits.setdefault(stem, name)
            if first != name:
                raise UsageError(
                    f"--input {printable(root)}: {_SETS} lists {printable(stem)} both in {first} and in "
                    f"{name}; remove it from one of them."
                )
    return splits or None


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    pairings = _find_pairings(probe)
    if not pairings:
        raise UsageError(
            f"--input {printable(probe.path)} is not a KITTI dataset: name the folder with {_IMAGES}/ and "
            f"{_LABELS}/, or the one with {_TRAINING}/ that contains them."
        )
    lists = ", splits from ImageSets" if _lists_of(probe) else ""
    return f"KITTI{lists} ({'; '.join(pairing.describe() for pairing in pairings)})"


def _lists_of(probe: InputProbe) -> Mapping[str, str] | None:
    return _read_lists(probe.path.rstrip("/") or "/") if _SETS in probe.folders else None


def split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields input splits of some thousand images each."""
    probe = look_at(item.path)
    lists = _lists_of(probe)
    pairings = _find_pairings(probe)
    yield from chain.from_iterable(
        split_pairs(item, pairing, lists if pairing.annotations else None) for pairing in pairings
    )


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef]:
    """Yields the references of an input split with their annotations."""
    yield from list_pairs(part, parse_kitti, context.settings.missing_annotations)


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    return any(
        name.endswith(".txt")
        for pairing in _find_pairings(probe, _FOLDERS_TRIED)[:1]
        for name in InputProbe(pairing.annotations, is_file=False).files
    )


SOURCE = Source(
    name="kitti",
    provides=frozenset({Needs.OBJECTS}),
    settings=frozenset({"missing_annotations"}),
    accepts=_accepts,
    describe=_describe,
    list_part=list_part,
    split=split,
)
