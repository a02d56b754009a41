"""Images in one folder and masks with the same names in another, for `--layout segmentation`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from shardwright.schemas.annotations import Annotations
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, is_image, printable
from shardwright.schemas.layouts import Needs
from shardwright.transforms import storage
from shardwright.transforms.sources.class_folders import list_class_folders
from shardwright.transforms.sources.folder_tree import FolderTree, could_be_splits, split_folders
from shardwright.transforms.sources.image_files import bad_entry, below, check_folder, files_below, key_of
from shardwright.transforms.sources.input_probe import InputProbe
from shardwright.transforms.sources.source import Context, InputSplit, Source

#: File formats of masks, the most common first. JPEG is not among them because it changes the ids.
_MASK_SUFFIXES = (".png", ".tif", ".tiff", ".bmp", ".webp", ".gif")
NO_MASK = "there is no mask for it"


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    if probe.is_file:
        raise UsageError(f"--input {printable(probe.path)} is not a folder; name the folder of the images.")
    if not settings.mask_dir:
        raise UsageError("--source semantic_masks needs --mask_dir, the folder with a mask for each image.")
    check_folder("--mask_dir", settings.mask_dir)
    return f"images with masks in {printable(settings.mask_dir)}"


def stem_of(path: str) -> str:
    """Returns a path without its file extension."""
    folder, slash, name = path.rpartition("/")
    stem = name.rpartition(".")[0] or name
    return folder + slash + stem


class MaskFile(NamedTuple):
    """File of a mask: its path, relative to the mask folder, and its state."""

    path: str
    state: storage.StoredObject

    @property
    def annotations(self) -> Annotations:
        """Annotations of an image with this mask."""
        uri, size, version, _ = self.state
        return Annotations(semantic_mask=uri, mask_size=size, mask_version=version)


def find_masks(folder: str) -> dict[str, MaskFile]:
    """Returns the masks in a folder by path, relative to the folder and without extension.

    The paths are keys (`key_of`), so that they can be compared with the keys of images.
    """
    found: dict[str, tuple[int, str, MaskFile]] = {}
    for path, state in files_below(folder):
        key = key_of(path)
        suffix = os.path.splitext(key)[1].lower()
        if suffix not in _MASK_SUFFIXES or any(part.startswith(".") for part in key.split("/")):
            continue
        candidate = (_MASK_SUFFIXES.index(suffix), key, MaskFile(path, state))
        stem = stem_of(key)
        found[stem] = min(found.get(stem, candidate), candidate)
    return {stem: mask for stem, (_, _, mask) in found.items()}


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef]:
    """Yields a reference for every file in the folder tree, and for every mask without an image."""
    folder = part.item.path.rstrip("/") or "/"
    mask_folder = context.settings.mask_dir.rstrip("/") or "/"
    masks = find_masks(mask_folder)
    tree = split_folders_in(folder)
    used = set()
    for ref in list_class_folders(part.item):
        if _lies_in(ref.uri, mask_folder):
            continue
        path = ref.key.removeprefix(part.item.prefix)
        ref = ref._replace(label="", split=tree.place(path)[0])
        if not is_image(ref):
            yield ref
            continue
        stem = stem_of(path)
        used.add(stem)
        if not ref.is_candidate:
            yield ref
            continue
        mask = masks.get(stem)
        if mask is None:
            yield ref.quarantined(QuarantineReason.BAD_ANNOTATION, NO_MASK)
        else:
            yield ref.annotated(mask.annotations)
    name = mask_folder.rpartition("/")[2]
    for stem in sorted(masks.keys() - used):
        path, state = masks[stem]
        key = f"{part.item.prefix}{key_of(f'{name}/{path}')}"
        yield bad_entry(key, state.path, "there is no image for this mask")


def _lies_in(path: str, folder: str) -> bool:
    """Returns whether a file is in the mask folder, which may be inside the image folder."""
    if storage.is_remote(path) or storage.is_remote(folder):
        return below(path, folder) is not None
    return below(os.path.abspath(path), os.path.abspath(folder)) is not None


def split_folders_in(folder: str) -> FolderTree:
    """Returns the meaning of the top folders: splits if all of them have names of splits."""
    tops = InputProbe(folder, is_file=False).folders
    return FolderTree(split_folders(tops) if could_be_splits(tops) else {})


SOURCE = Source(
    name="semantic_masks",
    provides=frozenset({Needs.SEMANTIC}),
    settings=frozenset({"mask_dir"}),
    accepts=lambda probe, settings: (
        bool(settings.mask_dir) and not probe.is_file and settings.record_layout.needs is Needs.SEMANTIC
    ),
    describe=_describe,
    list_part=list_part,
    unique_keys=True,
)
