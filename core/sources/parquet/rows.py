"""Tables in Parquet and Arrow files: chooses their columns, and copies their images into spool files.

A conversion reads images in another order than they are stored, and pyarrow would decode a whole row group
for each of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.hashing import content_digest
from shardwright.core.sources.spool import Spool
from shardwright.core.sources.tables import columns, parquet
from shardwright.core.sources.tables.columns import OBJECTS, usual_columns
from shardwright.core.sources.tables.objects import CLASSES
from shardwright.core.sources.tables.rows import EmbeddedImage
from shardwright.core.storage.store import StoredObject
from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.image_ref import printable
from shardwright.schemas.layouts import Needs
from shardwright.schemas.units import counted, format_size

#: Fields of Hugging Face's images, and key of their description in a schema's metadata.
BYTES, PATH = "bytes", "path"
_METADATA = b"huggingface"
#: Most names of classes, and deepest nesting of their description.
_MAX_CLASSES, _MAX_DEPTH = 1_000_000, 8
#: The images in a spool file may take this many bytes, or else this many times the bytes of their file.
SMALL_BYTES, MAX_RATIO = 10**9, 200


class ImageTable(NamedTuple):
    """Describes how to read the rows of a file; `InputSplit.detail` carries it.

    Attributes:
      kind: Parquet or Arrow.
      names: Names of the columns, as `choose_columns` returns them; the first has the images.
      has_objects: Whether a column has objects.
      classes: Names of the classes whose numbers the rows or their objects have; empty if there are none.
    """

    kind: str
    names: Sequence[str]
    has_objects: bool
    classes: Sequence[str] = ()

    def describe(self, settings: ConvertSettings) -> str:
        """Returns what the columns have, for messages."""
        image, label, *others = self.names
        needs = settings.record_layout.needs
        has_objects = self.has_objects and needs is Needs.OBJECTS
        shown = (image, "" if needs is Needs.IMAGE else label, *others)
        names = f" ({counted(len(self.classes), 'name')})" if self.classes else ""
        return columns.describe_columns(shown, has_objects, {"objects" if has_objects else "classes": names})


def table_in(file: StoredObject, settings: ConvertSettings) -> ImageTable | None:
    """Returns the table in a file; None if it has no column of images.

    Raises:
      UsageError: If the file is damaged, or does not go with the settings.
    """
    with storage.translated_errors("read", file.path):
        if not file.size:
            raise UsageError(f"--input {printable(file.path)} is empty; write it again or remove it.")
        head = storage.read_range(file.path, 0, parquet.HEAD_BYTES, file.size, file.version)
        kind = parquet.kind_of_file(file.path.rpartition("/")[2], head) or parquet.PARQUET
        return parquet.parse_apart(kind, file.path, _table_in, kind, file, settings)


def _table_in(kind: str, file: StoredObject, settings: ConvertSettings) -> ImageTable | None:
    shown = printable(file.path)
    with parquet.open_rows(kind, file) as opened:
        header = opened.schema.names
        columns.check_unique(shown, header)
        features = _features(opened.schema)
        image = _image_column(shown, opened, features, settings.image_column)
        if not image:
            return None
        label = settings.label_column
        if not label and not usual_columns("label", header, {}):
            numbered = [name for name in header if _names_of(features.get(name))]
            label = numbered[0] if len(numbered) == 1 else ""
        named = replace(settings, image_column=image, label_column=label)
        names = columns.choose_columns(shown, header, named, {})
        columns.check_layout(shown, names, header, settings, "parquet")
        classes = {
            Needs.LABEL: _names_of(features.get(names[1])),
            Needs.OBJECTS: _object_classes(features.get(OBJECTS)),
        }
        classes_of_rows = classes.get(settings.record_layout.needs, ())
        return ImageTable(kind, names, OBJECTS in header, classes_of_rows)


def _image_column(
    shown: str, opened: parquet.RowGroups | parquet.RecordBatches, features: Mapping[str, Any], named: str
) -> str:
    """Returns the name of the column of images; empty if there is none.

    Raises:
      UsageError: If several columns have images.
    """
    types = {field.name: field.type for field in opened.schema if field.name and named in ("", field.name)}
    structs = [name for name, type_ in types.items() if _is_struct_of_bytes(type_)]
    images = [name for name in structs if _type_of(features.get(name)) == "Image"] or structs
    images = images or [
        name for name in types if parquet.is_bytes(types[name]) and parquet.holds_images(opened, name)
    ]
    usual = usual_columns("image", images, {})
    if len(images) > 1 and not usual:
        raise UsageError(
            f"--input {shown}: several of its columns hold images ({columns.names_shown(images)}); name one "
            "with --image_column."
        )
    return next(iter(usual or images), "")


def _is_struct_of_bytes(type_: Any) -> bool:
    """Returns whether values have Hugging Face's type of images, a struct of bytes and path."""
    import pyarrow

    has_bytes = pyarrow.types.is_struct(type_) and type_.get_field_index(BYTES) >= 0
    return has_bytes and parquet.is_bytes(type_.field(BYTES).type)


def _features(schema: Any) -> Mapping[str, Any]:
    """Returns Hugging Face's description of the columns; empty if there is none."""
    try:
        features = json.loads((schema.metadata or {}).get(_METADATA, b"{}"))["info"]["features"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return {}
    return features if isinstance(features, Mapping) else {}


def _type_of(feature: Any) -> str:
    return str(feature.get("_type", "")) if isinstance(feature, Mapping) else ""


def _item_of(feature: Any) -> Any:
    """Returns the feature of the items of a list, or of lists of lists; other features as they are."""
    for _ in range(_MAX_DEPTH):
        if isinstance(feature, list) and len(feature) == 1:
            feature = feature[0]
        elif _type_of(feature) and "feature" in feature:
            feature = feature["feature"]
        else:
            break
    return feature


def _names_of(feature: Any) -> tuple[str, ...]:
    """Returns the names of a feature of classes, or of lists of classes; empty if it is another feature."""
    feature = _item_of(feature)
    names = feature.get("names") if _type_of(feature) == "ClassLabel" else None
    if not isinstance(names, list) or not 0 < len(names) <= _MAX_CLASSES:
        return ()
    stripped = tuple(name.strip() if isinstance(name, str) else "" for name in names)
    return stripped if all(stripped) and len(set(stripped)) == len(stripped) else ()


def _object_classes(feature: Any) -> tuple[str, ...]:
    """Returns the names of the classes of objects, for a struct of lists or a list of structs."""
    fields = _item_of(feature)
    names = map(_names_of, map(fields.get, CLASSES) if isinstance(fields, Mapping) else ())
    return next(filter(None, names), ())


class CopiedImage(NamedTuple):
    """An image in a spool file: where it begins, its number of bytes, and their digest."""

    offset: int
    length: int
    digest: str


#: Bytes of the image of a row, why they cannot be read, or else its path; None if the row has neither.
Image = bytes | AnnotationFault | str | None
#: The same after the bytes were copied.
Copied = CopiedImage | AnnotationFault | str | None


def rows_of(
    file: StoredObject, table: ImageTable, part: tuple[int, int], settings: ConvertSettings, spool: Spool
) -> Iterator[dict[str, Any]]:
    """Yields the rows in a part of a file, with images or their paths in the column of images.

    Raises:
      UsageError: If the file is damaged; damaged images of a Parquet file are left out.
      EngineError: If the file has changed since it was listed.
    """
    image_column = table.names[0]
    others = columns.needed_columns(table.names, settings) - {image_column}
    copy = partial(parquet.parse_apart, table.kind, file.path, _copy_rows, file, table, others, part)
    results: list[tuple[list[Copied], bytes]] = []
    identity = f"{file.path}:{file.size}:{file.version}:{part}:{image_column}"
    spooled = spool.fill(identity, file.path, lambda out: results.append(copy(out.name)))
    # If another attempt has written the file, only the places of the images are needed.
    images, packed = results[0] if results else copy(os.devnull)
    size = storage.size_of(spooled)
    rows = parquet.unpacked_rows(packed) if packed else repeat({}, len(images))
    for image, row in zip(images, rows, strict=True):
        if isinstance(image, CopiedImage):
            place = ByteRange(spooled, image.offset, image.length, file_size=size)
            yield {**row, image_column: EmbeddedImage(place.encode(), image.length, image.digest)}
        else:
            yield {**row, image_column: image}


def _copy_rows(
    file: StoredObject, table: ImageTable, others: Collection[str], part: tuple[int, int], path: str
) -> tuple[list[Copied], bytes]:
    """Copies the images of a part to a file; returns where they are, and the packed other columns."""
    with parquet.open_rows(table.kind, file) as opened:
        copied = copy_images(_images(opened, table, *part), path, file.size)
        return copied, parquet.packed_columns(opened, others, *part)


def _images(
    opened: parquet.RowGroups | parquet.RecordBatches, table: ImageTable, begin: int, end: int
) -> Iterator[Image]:
    """Yields the images of a part; after damage in a row group, its other images cannot be read."""
    import pyarrow

    if table.kind == parquet.ARROW:
        for batch in opened.batches(table.names[:1], begin, end):
            yield from _images_in(batch.column(0))
        return
    for group, (rows, _) in enumerate([*opened.sizes()][begin:end], begin):
        count, message = 0, ""
        # Row by row, so that memory is bounded by one page and one image.
        try:
            for batch in opened.batches(table.names[:1], group, group + 1, rows=1):
                for image in _images_in(batch.column(0)):
                    yield image
                    count += 1
        except (pyarrow.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            message = f"its row group cannot be read ({words_of(error).rstrip('.')}); write its file again"
        for _ in range(count, rows):
            yield AnnotationFault(message, QuarantineReason.CORRUPT)


def _images_in(column: Any) -> Iterator[bytes | str | None]:
    """Yields the images of a column, or the paths of those that have no bytes."""
    import pyarrow

    if not pyarrow.types.is_struct(column.type):
        yield from (value.as_py() for value in column)
        return
    # Flattening respects missing structs.
    fields = dict(zip([field.name for field in column.type], column.flatten()))
    paths = parquet.python_values(fields[PATH]) if PATH in fields else repeat(None)
    for value, path in zip(fields[BYTES], paths):
        image = value.as_py()
        if image is None and isinstance(path, bytes):
            path = path.decode("utf-8", "surrogateescape")
        yield path if image is None else image


def copy_images(images: Iterable[Image], path: str, file_size: int) -> list[Copied]:
    """Copies the images of rows one behind the other; equal images are stored once.

    Args:
      images: The images, of which only those with bytes are copied.
      path: File of this machine to which they are written.
      file_size: Size of the file of the rows.
    """
    copied: list[Copied] = []
    offsets: dict[str, int] = {}
    end, most = 0, max(SMALL_BYTES, MAX_RATIO * file_size)
    message = f"the images before it take more than {format_size(most)}; split its file"
    with open(path, "wb") as out:
        for image in images:
            UNDERWAY.progress()
            if not isinstance(image, bytes):
                copied.append(image)
                continue
            digest = content_digest(image)
            if digest not in offsets and end + len(image) > most:
                copied.append(AnnotationFault(message, QuarantineReason.TOO_LARGE))
                continue
            if digest not in offsets:
                offsets[digest] = end
                end += out.write(image)
            copied.append(CopiedImage(offsets[digest], len(image), digest))
    return copied
