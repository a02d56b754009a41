"""Says what is missing from a folder that looks like a dataset with annotations, but has none to read."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.layouts import Needs
from shardwright.transforms import storage
from shardwright.transforms.images.signatures import is_image_name
from shardwright.transforms.sources.files_beside import stem_of
from shardwright.transforms.sources.folder_tree import AUTO
from shardwright.transforms.sources.input_probe import InputProbe
from shardwright.transforms.sources.open_images import DESCRIPTIONS, NO_BOXES
from shardwright.transforms.sources.yolo import holds_labels

_IMAGE_FOLDERS = ("images", "image", "imgs", "img")
_MASK_FOLDERS = ("masks", "mask", "segmentation", "segmentations")
_CLASSES = "or --folders classes if each folder is a class"


def check_parts(probe: InputProbe, settings: ConvertSettings) -> None:
    """Checks that a folder without recognized annotations does not look like one that has them.

    Raises:
      UsageError: If it does; the message says what is missing and what to write.
    """
    needs = settings.record_layout.needs
    if probe.is_file or settings.folders != AUTO or needs is Needs.IMAGE:
        return
    shown = f"--input {printable(probe.path)}"
    images, masks = (_folder_named(probe, names) for names in (_IMAGE_FOLDERS, _MASK_FOLDERS))
    if images and masks and needs in (Needs.LABEL, Needs.SEMANTIC):
        places = [printable(storage.join(probe.path, name)) for name in (images, masks)]
        end = f", {_CLASSES}" if needs is Needs.LABEL else ""
        raise UsageError(
            f"{shown} has images and masks; write --layout segmentation --input {places[0]} --mask_dir "
            f"{places[1]}{end}."
        )
    if needs is Needs.SEMANTIC:
        raise UsageError(
            f"--layout {settings.record_layout.name}: {shown} has no masks; name their folder with "
            "--mask_dir."
        )
    labels = next(_label_files(probe, with_beside=needs is Needs.OBJECTS), "")
    if labels:
        names = printable(storage.join(probe.path, "classes.txt"))
        layout, end = (" and --layout detection", f", {_CLASSES}") if needs is Needs.LABEL else ("", "")
        raise UsageError(
            f"{shown}: {printable(labels)} looks like labels of YOLO, but no file names the classes; add "
            f"{names} with a class on each line and write --source yolo{layout}{end}."
        )
    if needs is Needs.OBJECTS and any(DESCRIPTIONS in name for name in probe.files):
        raise UsageError(f"{shown} {NO_BOXES}")


def _folder_named(probe: InputProbe, names: tuple[str, ...]) -> str:
    return next((name for name in probe.folders if name.lower() in names), "")


def _label_files(probe: InputProbe, with_beside: bool) -> Iterator[str]:
    """Yields text files with YOLO's labels: in `labels` beside `images`, or beside images."""
    if "images" in probe.folders and "labels" in probe.folders:
        folder = probe.inside("labels")
        for inner in (folder, *map(folder.inside, folder.folders[:1])):
            yield from _labels_in(inner, [name for name in inner.files if name.endswith(".txt")])
    if with_beside:
        stems = {stem_of(name) for name in probe.files if is_image_name(name)}
        yield from _labels_in(
            probe, [name for name in probe.files if name.endswith(".txt") and stem_of(name) in stems]
        )


def _labels_in(probe: InputProbe, names: list[str]) -> Iterator[str]:
    paths = (storage.join(probe.path, name) for name in names[:1])
    return (path for path in paths if holds_labels(path))
