"""Implements `--confine`: files outside an input's own folder or bucket are not read."""

from __future__ import annotations

import os

from shardwright.schemas.annotations import decode_annotations
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.transforms import storage
from shardwright.transforms.sources.image_files import folder_of
from shardwright.transforms.sources.input_probe import is_pattern
from shardwright.transforms.sources.source import Context, Input


class Confinement:
    """Confines the images and masks of an input to the places that the command names.

    These places are the input's folder (of a file: the folder that contains it) or its bucket,
    `--image_root` and `--mask_dir`. Absolute paths, `..` and symbolic links cannot lead out of them.

    Args:
      item: The input.
      context: The settings, and the folder of spool files, which may be read too.
    """

    def __init__(self, item: Input, context: Context) -> None:
        settings = context.settings
        folder = folder_of(item.path) if item.is_file or is_pattern(item.path) else item.path
        places = (folder, settings.image_root, settings.mask_dir, context.spool.path)
        self._roots = tuple(_resolved(place, whole_bucket=True) for place in places if place)
        self._folder = folder

    def check(self, ref: ImageRef) -> ImageRef:
        """Returns the reference, quarantined if its image or mask is outside."""
        if not ref.is_candidate:
            return ref
        paths = [ref.uri]
        if ref.annotations:
            annotations = decode_annotations(ref.annotations)
            paths += [path for path in (annotations.semantic_mask, annotations.panoptic_mask) if path]
        outside = next((path for path in paths if not self.holds(path)), None)
        if outside is None:
            return ref
        what = "it" if outside == ref.uri else f"its mask {printable(outside)}"
        return ref.quarantined(
            QuarantineReason.UNREADABLE,
            f"{what} lies outside of {printable(self._folder)}; with --confine it is not read",
        )

    def holds(self, path: str) -> bool:
        """Returns whether a file is below one of the places, after resolving symbolic links."""
        try:
            found = _resolved(path)
        except (OSError, ValueError):  # the path contains a NUL
            return False
        return any(found.startswith(root) for root in self._roots)


def _resolved(path: str, whole_bucket: bool = False) -> str:
    """Returns a path without links and `..`, with a slash at its end.

    Args:
      path: Local or remote path; a remote path has no links, and `..` has no meaning in it.
      whole_bucket: Whether to return the bucket of a remote path.
    """
    if not storage.is_remote(path):
        return os.path.realpath(path).rstrip("/") + "/"
    return "/".join(path.split("/")[:3]) + "/" if whole_bucket else path
