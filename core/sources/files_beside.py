"""Finds metadata files beside the images of a folder, and adds their content to references."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import TypeVar

from shardwright.core import storage
from shardwright.core.images.signatures import is_image_name
from shardwright.core.sources.annotation_files import side_by_side
from shardwright.core.sources.folder_tree import AUTO
from shardwright.core.sources.image_files import is_hidden
from shardwright.core.sources.image_metadata import (
    MAX_METADATA_BYTES,
    METADATA,
    BadMetadata,
    decoded,
    metadata_needed,
    read_metadata,
)
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.labels import ClassId

#: Images that are examined to decide whether each has metadata. A later image without metadata is treated
#: as in a WebDataset: it is bad if the settings need its metadata.
IMAGES_LOOKED_AT = 10_000
_SHARDS_SAY_NONE = ", and its folder is named like a shard (--folders classes takes that for the class)"
#: When a folder has columns, for messages.
_UNLESS = " unless a .json lies beside every image"

_Item = TypeVar("_Item")


def stem_of(path: str) -> str:
    """Returns a path without the extension of its last part."""
    folder, slash, name = path.rpartition("/")
    return folder + slash + (name.rpartition(".")[0] or name)


def is_metadata_name(name: str) -> bool:
    """Returns whether a file has a name of an image's metadata."""
    return name.rpartition(".")[2] in METADATA


def _first_stem(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return folder + slash + name.partition(".")[0]


def grouped(items: Iterable[_Item], path_of: Callable[[_Item], str]) -> Iterator[list[_Item]]:
    """Yields the items of sorted paths in groups, so that each image is with its metadata.

    `a/1.jpg` and `a/1.json` both begin with `a/1.`, and so does whatever is sorted in between.
    """
    for _, group in groupby(items, lambda item: _first_stem(path_of(item))):
        yield list(group)


def every_image_has_metadata(paths: Iterable[str]) -> bool:
    """Returns whether there are images, and a metadata file is beside each of the first ones.

    Args:
      paths: Sorted paths; hidden ones are ignored.
    """
    images = 0
    for group in grouped(paths, str):
        known = set(map(stem_of, filter(is_metadata_name, group)))
        for path in filter(is_image_name, group):
            if is_hidden(path):
                continue
            if stem_of(path) not in known:
                return False
            images += 1
        if images >= IMAGES_LOOKED_AT:
            break
    return images > 0


def without_metadata(items: Iterable[_Item], path_of: Callable[[_Item], str]) -> Iterator[_Item]:
    """Yields the items of sorted paths, except the metadata files of images."""
    for group in grouped(items, path_of):
        images = {stem_of(path) for path in map(path_of, group) if is_image_name(path)}
        for item in group:
            path = path_of(item)
            if not (is_metadata_name(path) and stem_of(path) in images):
                yield item


def check_columns(where: str, source: str, settings: ConvertSettings, unless: str = _UNLESS) -> None:
    """Checks that the settings need no columns, or a hook fills them, for images that have none.

    Args:
      where: The input.
      source: Name of the source that reads it.
      settings: Checked settings.
      unless: When the source has columns, for the message; empty for never.

    Raises:
      UsageError: If they need columns.
    """
    needed = [item for item in settings.parsed_extra_columns if not (item.is_list or item.optional)]
    if needed and not settings.map:
        raise UsageError(
            f"{settings.option_of(needed[0])}: {printable(where)} is read as {source}, which has no "
            f"columns{unless}; name a manifest with the images and their columns, or leave that column out."
        )


def read_beside(ref: ImageRef, name: str) -> bytes | None:
    """Returns the content of an image's metadata file with an extension; None if there is none."""
    path = f"{stem_of(ref.uri)}.{name}"
    try:
        return storage.read_head(path, MAX_METADATA_BYTES + 1)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise BadMetadata(f"its .{name} file cannot be read: permission denied") from None
    except OSError as error:
        raise storage.fault(error, "read", path) from error


class MetadataReader:
    """Adds the content of metadata files to the references of their images.

    Args:
      settings: Checked settings.
      names_classes: Whether the folders of the images give their classes.
      read: Function of a reference and an extension; returns the content of that file beside the image, or
        None if there is none.
    """

    def __init__(
        self,
        settings: ConvertSettings,
        names_classes: bool,
        read: Callable[[ImageRef, str], bytes | None] = read_beside,
    ) -> None:
        self._settings, self._read = settings, read
        self._hint = "" if names_classes or settings.folders != AUTO else _SHARDS_SAY_NONE
        self._needed = {known: sorted(metadata_needed(settings, known)) for known in (False, True)}

    def add_all(self, refs: Iterable[ImageRef], path: str) -> Iterator[ImageRef | ClassId]:
        """Yields all references with their metadata, and the id of each numeric class once.

        Args:
          refs: References of images and other files.
          path: Their folder or archive. If it is remote, several files are read at once.
        """
        seen: set[ClassId] = set()
        for ref, numbers in side_by_side(self.add, refs, path):
            yield from set(numbers) - seen
            seen.update(numbers)
            yield ref

    def add(self, ref: ImageRef) -> tuple[ImageRef, tuple[ClassId, ...]]:
        """Returns a reference with its metadata, and the ids of its numeric classes.

        A class from folders is kept, unless `--label_column` names a field.
        """
        has_class = bool(ref.label)
        if not ref.is_candidate or not self._needed[has_class]:
            return ref, ()
        try:
            found = {name: self._read(ref, name) for name in self._needed[has_class]}
            texts = {name: _decoded(name, data) for name, data in found.items() if data is not None}
            metadata = read_metadata(texts, self._settings, has_class)
        except BadMetadata as error:
            return ref.quarantined(QuarantineReason.BAD_ANNOTATION, str(error)), ()
        ref = ref._replace(extra=metadata.extra)
        if metadata.annotations:
            ref = ref.annotated(metadata.annotations)
        if has_class and not self._settings.label_column:
            return ref, ()
        message = metadata.message + self._hint if metadata.message else ""
        return ref._replace(label=metadata.label, message=message), metadata.numbers


def _decoded(name: str, data: bytes) -> str:
    if len(data) > MAX_METADATA_BYTES:
        raise BadMetadata(f"its .{name} file is too large")
    return decoded(name, data)
