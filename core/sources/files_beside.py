"""Finds metadata files beside images, such as `1.cls`, `1.json` and `1.txt` for `1.jpg`, and reads them.

They mean the same beside the images of a folder, in archives and in WebDatasets.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, TypeVar

from shardwright.core.images.signatures import is_image_name
from shardwright.core.sources.annotation_files import AnnotationFault, read_annotation_file, side_by_side
from shardwright.core.sources.folder_tree import AUTO
from shardwright.core.sources.image_files import is_hidden, labelled
from shardwright.core.sources.tables.rows import with_class_ids
from shardwright.schemas.annotations import Annotations
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.columns import column_values, encode_extra, finite_or_text
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import FeatureRole, Needs
from shardwright.schemas.plain_text import UTF16, is_utf16

#: Extensions of metadata files: a class, any fields, a caption.
METADATA = ("cls", "json", "txt")
#: Images that are examined to decide whether each has metadata. A later image without metadata is treated
#: as in a WebDataset: it is bad if the settings need its metadata.
IMAGES_LOOKED_AT = 10_000
_LABEL_FIELDS = ("label", "class", "cls", "class_name")
#: A class number that means no class.
_NEGATIVE = re.compile(r"-[1-9][0-9]{0,17}")
_UNLABELLED = "neither .cls nor .json says its class"
_SHARDS_SAY_NONE = ", and its folder is named like a shard (--folders classes takes that for the class)"
#: When a folder has columns, for messages.
_UNLESS = " unless a .json lies beside every image"

_Item = TypeVar("_Item")


def stem_of(path: str) -> str:
    """Returns a path without the extension of its last part."""
    return posixpath.splitext(path)[0]


def is_metadata_name(name: str) -> bool:
    """Returns whether a file has a name of an image's metadata."""
    return name.rpartition(".")[2] in METADATA


def take_name_apart(path: str) -> tuple[str, str]:
    """Returns the sample and the field of a file; the field follows the first dot of its name.

    >>> take_name_apart("train/0001.seg.png")
    ('train/0001', 'seg.png')
    """
    folder, slash, name = path.rpartition("/")
    stem, _, field_name = name.partition(".")
    return folder + slash + stem, field_name.lower()


def grouped(items: Iterable[_Item], path_of: Callable[[_Item], str]) -> Iterator[list[_Item]]:
    """Yields the items of sorted paths in groups, so that each image is with its metadata.

    `a/1.jpg` and `a/1.json` both begin with `a/1.`, and so do all names that are sorted in between.
    """
    for _, group in groupby(items, lambda item: take_name_apart(path_of(item))[0]):
        yield list(group)


def every_image_has_metadata(paths: Iterable[str]) -> bool:
    """Returns whether there are images, and a metadata file is beside each of the first ones.

    Args:
      paths: Sorted paths; hidden ones are ignored.
    """
    images = 0
    for group in grouped(paths, str):
        stems = set(map(stem_of, filter(is_metadata_name, group)))
        shown = [path for path in group if is_image_name(path) and not is_hidden(path)]
        if not stems.issuperset(map(stem_of, shown)):
            return False
        images += len(shown)
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
            f"{settings.option_of(needed[0])}: {where} is read as {source}, which has no "
            f"columns{unless}; name a manifest with the images and their columns, or leave that column out."
        )


def _read_beside(ref: ImageRef, name: str) -> bytes | None:
    return read_annotation_file(f"{stem_of(ref.uri)}.{name}")


def add_metadata(
    refs: Iterable[ImageRef],
    path: str,
    settings: ConvertSettings,
    names_classes: bool,
    read: Callable[[ImageRef, str], bytes | None] = _read_beside,
) -> Iterator[ImageRef | ClassId]:
    """Yields all references with the content of their metadata files, and the id of each numeric class once.

    A class from folders is kept, unless `--label_column` names a field.

    Args:
      refs: References of images and other files.
      path: Their folder or archive. If it is remote, several files are read at once.
      settings: Checked settings.
      names_classes: Whether the folders of the images give their classes.
      read: Function of a reference and an extension; returns the content of that file beside the image, or
        None if there is none.
    """
    hint = "" if names_classes or settings.folders != AUTO else _SHARDS_SAY_NONE
    needed = {reads_class: _metadata_needed(settings, reads_class) for reads_class in (False, True)}

    def with_files(ref: ImageRef) -> tuple[ImageRef, bool]:
        """Returns a reference with its metadata, and whether this gives its class."""
        reads_class = _reads_class(settings, bool(ref.label))
        names = needed[reads_class] if ref.is_candidate else []
        if not names:
            return ref, False
        try:
            files = {name: data for name in names if (data := read(ref, name)) is not None}
            ref = with_metadata(ref, files, settings)
        except AnnotationFault as fault:
            return ref.quarantined(QuarantineReason.BAD_ANNOTATION, str(fault)), False
        return ref._replace(message=ref.message + hint if ref.message else ""), reads_class

    yield from with_class_ids(side_by_side(with_files, refs, path))


def _metadata_needed(settings: ConvertSettings, reads_class: bool) -> list[str]:
    """Returns the extensions in `METADATA` of the files that must be read.

    Args:
      settings: Checked settings.
      reads_class: Whether metadata gives the class of the image.
    """
    is_needed = {
        "cls": reads_class and not settings.label_column,
        "json": reads_class or settings.parsed_extra_columns,
        "txt": FeatureRole.CAPTION in settings.record_layout.by_role,
    }
    return [name for name in METADATA if is_needed[name]]


def _reads_class(settings: ConvertSettings, has_class: bool) -> bool:
    """Returns whether metadata gives the class of an image."""
    if settings.record_layout.needs is Needs.IMAGE:
        return False
    return bool(settings.label_column) or not has_class


def with_metadata(ref: ImageRef, files: Mapping[str, bytes], settings: ConvertSettings) -> ImageRef:
    """Returns a reference with what the metadata files of its image say.

    Args:
      ref: The reference, with its class if that is known from elsewhere.
      files: Extension in `METADATA` -> content.
      settings: Checked settings.

    Raises:
      AnnotationFault: If a file is wrong.
    """
    texts = {name: _decode(name, data) for name, data in files.items()}
    values = _parse_json(texts["json"]) if "json" in texts else {}
    if _reads_class(settings, bool(ref.label)):
        value = _label_value(texts, values, settings)
        names = [] if value is None else _class_names(value, settings.label_separator)
        message = "" if names else _UNLABELLED if value is None else "its class is empty"
        ref = labelled(ref, names, "classes", settings)._replace(message=message)
    if texts.get("txt", "").strip():
        ref = ref.annotated(Annotations(captions=(_storable(texts["txt"].strip()),)))
    columns, separator = settings.parsed_extra_columns, settings.label_separator or ","
    if columns:
        try:
            extra = {item.name: column_values(item, values.get(item.name), separator) for item in columns}
        except ValueError as error:
            raise AnnotationFault(f"its .json lacks a value or has a wrong one: {error}") from None
        ref = ref._replace(extra=_storable(encode_extra(extra)))
    return ref


def _decode(name: str, data: bytes) -> str:
    if is_utf16(data):
        raise AnnotationFault(f"its .{name} file is {UTF16}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise AnnotationFault(f"its .{name} file is not UTF-8 text") from None


def _parse_json(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text, parse_float=finite_or_text)
    except (ValueError, RecursionError):
        raise AnnotationFault("its .json file is not JSON") from None
    return values if isinstance(values, dict) else {"label": values} if isinstance(values, int | str) else {}


def _label_value(texts: Mapping[str, str], values: dict[str, Any], settings: ConvertSettings) -> Any:
    """Returns the class that the metadata gives; None if it gives none."""
    if settings.label_column:
        return values.get(settings.label_column)
    if "cls" in texts:
        return texts["cls"].strip()
    return next((values[name] for name in _LABEL_FIELDS if values.get(name) is not None), None)


def _class_names(value: Any, separator: str) -> list[str]:
    """Returns the names of classes, each once; a negative number is none."""
    items = value if isinstance(value, list) else [value]
    if isinstance(value, str) and separator:
        items = value.split(separator)
    return list(dict.fromkeys(filter(None, map(_class_name, items))))


def _class_name(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is int and abs(value) < 2**63:
        return str(value) if value >= 0 else ""
    if not isinstance(value, str):
        raise AnnotationFault(f"its class is {str(value)[:80]!r}, neither a name nor a number")
    text = value.strip()
    if LABEL_SEPARATOR in text:
        raise AnnotationFault("its class holds a control character")
    return "" if _NEGATIVE.fullmatch(text) else _storable(text)


def _storable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise AnnotationFault("it holds text that is not valid Unicode") from None
    return text
