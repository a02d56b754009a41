"""Pairs the images in one folder with the annotation files in another."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from shardwright.schemas.annotations import Annotations
from shardwright.schemas.codes import FilterReason, QuarantineReason
from shardwright.schemas.image_ref import ImageRef, decode_refs, encode_refs, is_image, printable
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.sources.annotation_files import (
    AnnotationFault,
    read_annotation_file,
    side_by_side,
)
from shardwright.transforms.sources.class_folders import list_class_folders
from shardwright.transforms.sources.image_files import (
    MISSING,
    annotated,
    bad_entry,
    below,
    files_below,
    join,
    key_of,
)
from shardwright.transforms.sources.semantic_masks import MaskFile, stem_of
from shardwright.transforms.sources.source import Input, InputSplit

#: Number of images in one split.
_PART_FILES = 2000
NO_FILE = "there is no annotation file for it (--missing_annotations empty stores it without objects)"
_NO_MASK_FILE = "there is no annotation file for it"


class Pairing(NamedTuple):
    """A folder of images and a folder with an annotation file for each image.

    With the suffixes `_photo` and `_label.txt`, `images/a/1_photo.png` goes with `annotations/a/1_label.txt`.

    Attributes:
      images: Folder of the images.
      annotations: Folder of the annotation files; empty if there are none and the images are left out.
      suffix: End of the names of annotation files.
      image_suffix: End of the names of images, before the extension.
      split: Split of the images; empty if it is unknown.
    """

    images: str
    annotations: str
    suffix: str
    image_suffix: str = ""
    split: str = ""

    def describe(self) -> str:
        """Returns a description of the image folder and the split for messages."""
        split = f", split {self.split}" if self.split else ""
        left_out = "" if self.annotations else ", left out because they have no annotations"
        return f"images in {printable(self.images)}{split}{left_out}"

    def annotation_of(self, image: str) -> str:
        """Returns the path of an image's annotation file; both paths are relative to their folders."""
        return stem_of(image).removesuffix(self.image_suffix) + self.suffix


def split_pairs(
    item: Input, pairing: Pairing, splits: Mapping[str, str] | None = None, has_masks: bool = False
) -> Iterator[InputSplit]:
    """Yields splits of a few thousand images each, without reading the annotations.

    Args:
      item: Input.
      pairing: Folders of images and annotations.
      splits: Mapping of image path, without extension, to split. Images that are not in it are left out.
        None if there are no lists of splits.
      has_masks: Whether the annotation files are masks.
    """
    refs = _list_images(item, pairing, splits, has_masks)
    while batch := list(islice(refs, _PART_FILES)):
        detail = json.dumps([pairing, encode_refs(batch).decode("latin-1")])
        yield InputSplit(item, pairing.annotations, detail=detail)


def _list_images(
    item: Input, pairing: Pairing, splits: Mapping[str, str] | None, has_masks: bool
) -> Iterator[ImageRef]:
    files = {}
    if pairing.annotations:
        files = {
            path: state for path, state in files_below(pairing.annotations) if _is_one(path, pairing.suffix)
        }
    input_path = item.path.rstrip("/")
    prefix = item.prefix + key_of(below(f"{pairing.images}/", input_path) or "")
    used = set()
    for ref in list_class_folders(Input(pairing.images, prefix)):
        path = below(ref.uri, pairing.images) or ref.uri
        ref = ref._replace(label="", split=pairing.split)
        if not is_image(ref):
            yield ref
            continue
        name = pairing.annotation_of(path)
        used.add(name)
        if splits is not None:
            ref = ref._replace(split=splits.get(stem_of(path), pairing.split))
        if not pairing.annotations or (splits is not None and stem_of(path) not in splits):
            yield ref.filtered(FilterReason.NOT_LISTED)
        elif not ref.is_candidate:
            yield ref
        elif has_masks and name not in files:
            yield ref.quarantined(QuarantineReason.BAD_ANNOTATION, _NO_MASK_FILE)
        elif has_masks:
            yield ref.annotated(MaskFile(name, files[name]).annotations)
        else:
            yield ref
    for name in sorted(files.keys() - used):
        path = join(pairing.annotations, name)
        inner = below(path, input_path)
        yield bad_entry(item.prefix + key_of(inner or name), path, MISSING)


def _is_one(path: str, suffix: str) -> bool:
    return path.endswith(suffix) and not any(part.startswith(".") for part in path.split("/"))


def list_pairs(
    part: InputSplit, parse: Callable[[bytes], Annotations] | None, missing_annotations: str
) -> Iterator[ImageRef]:
    """Yields the references of a split with their annotations.

    Args:
      part: Split from `split_pairs`.
      parse: Function that parses an annotation file, or raises AnnotationFault. None for masks, which are
        read later.
      missing_annotations: Setting of that name; `empty` stores images without a file without objects.
    """
    values, packed = json.loads(part.detail)
    pairing = Pairing(*values)
    refs = decode_refs(packed.encode("latin-1"))
    if parse is None or not pairing.annotations:
        yield from refs
        return

    def read(ref: ImageRef) -> ImageRef:
        if not ref.is_candidate:
            return ref
        name = pairing.annotation_of(below(ref.uri, pairing.images) or ref.uri)
        try:
            file = join(pairing.annotations, name)
            data = read_annotation_file(file)
            if data is None and missing_annotations == "empty":
                return annotated(ref, Annotations(objects=()))
            if data is None:
                raise AnnotationFault(NO_FILE)
            with UNDERWAY.working_on(file, "parse"):
                return annotated(ref, parse(data))
        except AnnotationFault as fault:
            return ref.quarantined(QuarantineReason.BAD_ANNOTATION, f"{printable(name)}: {fault}")

    yield from side_by_side(read, refs, pairing.annotations)
