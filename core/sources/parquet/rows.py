"""Tables in Parquet and Arrow files: chooses their columns, and copies their images into spool files.

A conversion reads images in another order than they are stored, and pyarrow would decode a whole row group
for each of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.sources.hashing import content_digest
from shardwright.core.sources.spool import Spool
from shardwright.core.sources.tables import columns, parquet
from shardwright.core.sources.tables.columns import OBJECTS, ROLES, usual_columns
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
      image_fields: Fields of the images, if they are structs; empty if they are bytes.
      classes: Names of the classes whose numbers the rows or their objects have; empty if there are none.
    """

    kind: str
    names: Sequence[str]
    image_fields: Sequence[str] = ()
    classes: Sequence[str] = ()

    def describe(self, settings: ConvertSettings) -> str:
        """Returns what the columns have, for messages."""
        image, label, *others = self.names
        needs, has_objects = settings.record_layout.needs, OBJECTS in self.names[len(ROLES) :]
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
        fields = _fields_of(opened.schema.field(image).type)
        return ImageTable(kind, names, fields, classes.get(settings.record_layout.needs, ()))


def _image_column(
    shown: str, opened: parquet.RowGroups | parquet.RecordBatches, features: Mapping[str, Any], named: str
) -> str:
    """Returns the name of the column of images; empty if there is none.

    Raises:
      UsageError: If several columns have images.
    """
    types = {field.name: field.type for field in opened.schema if field.name and named in ("", field.name)}
    structs = [name for name, type_ in types.items() if BYTES in _fields_of(type_)]
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


def _fields_of(kind: Any) -> tuple[str, ...]:
    """Returns the fields of Hugging Face's type of images, a struct of bytes and path; empty for others."""
    import pyarrow

    if not pyarrow.types.is_struct(kind) or kind.get_field_index(BYTES) < 0:
        return ()
    return tuple(field.name for field in kind) if parquet.is_bytes(kind.field(BYTES).type) else ()


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


#: Image of a row, or what says why it cannot be read; None if the row has no image.
Copied = CopiedImage | EmbeddedImage | None


def rows_of(
    file: StoredObject, table: ImageTable, part: tuple[int, int], spool: Spool
) -> Iterator[list[Any]]:
    """Yields the rows in a part of a file, with the image or its path as the first value.

    Raises:
      UsageError: If the file is damaged; damaged images of a Parquet file are left out.
      EngineError: If the file has changed since it was listed.
    """
    copy = partial(parquet.parse_apart, table.kind, file.path, _copy_rows, file, table, part)
    results: list[tuple[list[Copied], bytes]] = []
    identity = f"{file.path}:{file.size}:{file.version}:{part}:{table.names[0]}"
    spooled = spool.fill(identity, file.path, lambda out: results.append(copy(out.name)))
    # If another attempt has written the file, only the places of the images are needed.
    images, packed = results[0] if results else copy(os.devnull)
    size, names = storage.size_of(spooled), _other_names(table)
    rows = parquet.unpacked_rows(packed, names) if packed else repeat((None,) * len(names), len(images))
    for image, (path, *others) in zip(images, rows, strict=True):
        if isinstance(image, CopiedImage):
            place = ByteRange(spooled, image.offset, image.length, file_size=size)
            image = EmbeddedImage(place.encode(), image.length, image.digest)
        yield [path if image is None else image, *others]


def _other_names(table: ImageTable) -> list[str]:
    """Returns the names of the columns without the images, of whose column only the paths are needed."""
    image, *others = table.names
    return [image if PATH in table.image_fields else "", *others]


def _copy_rows(
    file: StoredObject, table: ImageTable, part: tuple[int, int], path: str
) -> tuple[list[Copied], bytes]:
    """Copies the images of a part to a file; returns where they are, and the packed other columns."""
    with parquet.open_rows(table.kind, file) as opened:
        copied = copy_images(_images(opened, table, *part), path, file.size)
        field = PATH if PATH in table.image_fields else ""
        return copied, parquet.packed_columns(opened, _other_names(table), *part, field)


def _images(
    opened: parquet.RowGroups | parquet.RecordBatches, table: ImageTable, begin: int, end: int
) -> Iterator[bytes | EmbeddedImage | None]:
    """Yields the images of a part; after damage in a row group, its other images cannot be read."""
    import pyarrow

    field = BYTES if table.image_fields else ""
    if table.kind == parquet.ARROW:
        for column, *_ in opened.batches(table.names[:1], begin, end, field):
            yield from (value.as_py() for value in column)
        return
    for group, (rows, _) in enumerate([*opened.sizes()][begin:end], begin):
        count, message = 0, ""
        # Row by row, so that memory is bounded by one page and one image.
        batches = opened.batches(table.names[:1], group, group + 1, field, rows=1)
        try:
            for column, *_ in batches:
                for value in column:
                    yield value.as_py()
                    count += 1
        except (pyarrow.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            message = f"its row group cannot be read ({words_of(error).rstrip('.')}); write its file again"
        for _ in range(count, rows):
            yield EmbeddedImage("", reason=QuarantineReason.CORRUPT, message=message)


def copy_images(images: Iterable[bytes | EmbeddedImage | None], path: str, file_size: int) -> list[Copied]:
    """Copies the images of rows one behind the other; equal images are stored once.

    Args:
      images: Bytes of the images, or why they cannot be read; None for rows without an image.
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
                copied.append(EmbeddedImage("", reason=QuarantineReason.TOO_LARGE, message=message))
                continue
            if digest not in offsets:
                offsets[digest] = end
                end += out.write(image)
            copied.append(CopiedImage(offsets[digest], len(image), digest))
    return copied
