"""Reads the rows of Parquet and Arrow files with pyarrow: in parts, and only the needed columns.

Images inside them are copied into spool files.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, repeat
from operator import methodcaller
from typing import Any, NamedTuple

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.concurrency.worker_pool import call_in_process
from shardwright.core.images.signatures import extension_of, kind_of
from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.containers import content_digest
from shardwright.core.sources.spool import Spool
from shardwright.core.sources.tables.columns import OBJECT_CLASSES
from shardwright.core.storage.ranges import RandomAccessFile, RangeReader
from shardwright.core.storage.store import StoredObject
from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.units import counted, format_size

#: Kinds of files, which have groups of rows.
KINDS = PARQUET, ARROW = "Parquet", "Arrow"
#: Smallest number of bytes, or of rows, of the groups of rows in a part, except for the last part.
_BYTES_A_PART, _ROWS_A_PART = 32 << 20, 20_000
#: Most rows of a row group; a file that states more is damaged.
_MAX_ROWS = 50_000_000
#: Number of rows of a Parquet file that are decoded at once.
_ROWS_AT_ONCE = 1024
#: Number of bytes to read at once from a column. Without it, pyarrow reads a row group's column as a whole.
_BUFFER = 1 << 20
#: Fields of Hugging Face's images.
BYTES, PATH = "bytes", "path"
#: The images in a spool file may take this many bytes, or else this many times the bytes of their file.
SMALL_BYTES, MAX_RATIO = 10**9, 200
#: Number of rows in which the first image is searched.
_VALUES_TRIED = 20
_EXTENSIONS = {"parquet": PARQUET, "pq": PARQUET, "arrow": ARROW, "feather": ARROW}
#: First bytes of an Arrow file; a stream begins with its first message.
_ARROW_FILE = b"ARROW1"
#: Where a file has its batches as a stream, for readers that do not use the footer.
_STREAM_OFFSET = 8
_MAGIC = {b"PAR1": PARQUET, _ARROW_FILE: ARROW}
#: Number of bytes that tell the kind of a file.
HEAD_BYTES = 8
#: Last bytes of a stream. Without them it may have been cut off between two messages.
_END = b"\xff\xff\xff\xff\0\0\0\0"
#: Key of Hugging Face's description of the columns in a schema's metadata.
_METADATA = b"huggingface"
#: Most names of classes, and deepest nesting of their description.
_MAX_CLASSES, _MAX_DEPTH = 1_000_000, 8


class EmbeddedImage(NamedTuple):
    """An image whose bytes are in the row itself, in the place of its path.

    Attributes:
      place: Part of the file with the bytes.
      size: Number of bytes of the image.
      version: Digest of the bytes.
    """

    place: ByteRange
    size: int
    version: str


def kind_of_file(name: str, head: bytes = b"") -> str:
    """Returns the kind of a file, by its first bytes or else by its name; empty if it is of no such kind."""
    by_name = _EXTENSIONS.get(extension_of(name), "")
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), by_name)


class RowGroups:
    """The rows of an open Parquet file, in its row groups.

    Args:
      ranges: Bytes of the file.

    Attributes:
      schema: Schema of the rows.
    """

    def __init__(self, ranges: RangeReader) -> None:
        from pyarrow import parquet

        self._file = parquet.ParquetFile(
            ranges, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True
        )
        self.schema: Any = self._file.schema_arrow

    def sizes(self) -> list[tuple[int, int]]:
        """Returns the number of rows and of bytes of each group.

        Raises:
          OSError: If the numbers of rows in the file contradict each other.
        """
        metadata, schema = self._file.metadata, self._file.schema
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        flat = [i for i in range(len(schema)) if not schema.column(i).max_repetition_level]
        agree = all(group.column(i).num_values == group.num_rows for group in groups for i in flat)
        possible = all(0 <= group.num_rows <= _MAX_ROWS for group in groups)
        if not (agree and possible and sum(group.num_rows for group in groups) == metadata.num_rows):
            raise OSError("its footer states impossible numbers of rows")
        return [(group.num_rows, max(group.total_byte_size, 0)) for group in groups]

    def batches(
        self, names: Sequence[str], begin: int = 0, end: int | None = None, rows: int = 1
    ) -> Iterator[Any]:
        """Yields columns of the rows in some groups, as record batches.

        Args:
          names: Names of the columns.
          begin: First group.
          end: End of the groups; None for the end of the file.
          rows: Most rows to decode at once.

        Raises:
          OSError: If a group has more or fewer rows than the file states.
        """
        for group in range(self._file.metadata.num_row_groups)[begin:end]:
            stated, count = self._file.metadata.row_group(group).num_rows, 0
            for batch in self._file.iter_batches(rows, row_groups=[group], columns=names, use_threads=False):
                count += batch.num_rows
                if count > stated:
                    break
                yield batch.select(names)
            if count != stated:
                raise OSError(f"row group {group} has {counted(count, 'row')} instead of {stated:,}")


class RecordBatches:
    """The rows of an open Arrow file or stream, in its record batches.

    Args:
      ranges: Bytes of the file.

    Attributes:
      schema: Schema of the rows.
    """

    def __init__(self, ranges: RangeReader) -> None:
        import pyarrow

        self._ranges = ranges
        # `memory_map` reads a local file in any state, this only in the listed one.
        self._is_file = ranges.read_at(0, len(_ARROW_FILE)) == _ARROW_FILE
        opened = pyarrow.ipc.open_file if self._is_file else pyarrow.ipc.open_stream
        self.schema: Any = opened(self._open()).schema

    def _open(self) -> Any:
        import pyarrow

        if storage.is_remote(self._ranges.path):
            return pyarrow.PythonFile(RandomAccessFile(self._ranges.read_at, self._ranges.size), "r")
        return pyarrow.memory_map(self._ranges.path)  # batches that are not used are not read

    def sizes(self) -> list[tuple[int, int]]:
        """Returns the number of rows of each record batch; their numbers of bytes are unknown.

        Raises:
          OSError: If a file has more or fewer batches than its footer states.
        """
        sizes = [(batch.num_rows, 0) for batch in self.batches(self.schema.names[:1])]
        if self._is_file:
            import pyarrow

            source = self._open()
            source.seek(_STREAM_OFFSET)
            count = sum(1 for _ in pyarrow.ipc.open_stream(source))
            if count != len(sizes):
                raise OSError(f"it has {counted(count, 'record batch')} instead of {len(sizes):,}")
        return sizes

    def batches(
        self, names: Sequence[str], begin: int = 0, end: int | None = None, rows: int = 1
    ) -> Iterator[Any]:
        """Yields columns of some record batches, each as a whole; see `RowGroups.batches`.

        Raises:
          OSError: If the file ends early.
        """
        import pyarrow

        source = self._open()
        fields = [self.schema.get_field_index(name) for name in names]
        options = pyarrow.ipc.IpcReadOptions(included_fields=fields)
        if self._is_file:
            file = pyarrow.ipc.open_file(source, options=options)
            batches: Iterator[Any] = map(file.get_batch, range(file.num_record_batches)[begin:end])
        else:
            batches = islice(pyarrow.ipc.open_stream(source, options=options), begin, end)
        for batch in batches:
            batch.validate(full=True)
            yield batch.select(names)
        if end is None and not self._is_file:
            source.seek(max(source.tell() - len(_END), 0))
            if source.read(len(_END)) != _END:
                raise OSError("it has no mark at the end of its stream, so rows may be missing")


#: The rows of an open file.
Opened = RowGroups | RecordBatches


def read_apart(kind: str, file: StoredObject, function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function that reads a file with a library in C, and returns its result.

    Damage can crash such a library, so a local file is read in a worker process. Remote files are read here,
    because a worker process does not know the options of their storage.

    Args:
      kind: Parquet or Arrow.
      file: The file.
      function: Function of a module, which is called with the open file.
      *args: Its other arguments.

    Raises:
      UsageError: If the file is damaged or of another kind, or the process crashed.
      EngineError: If it has changed since it was listed.
    """
    if storage.is_remote(file.path):
        return _read(kind, file, function, *args)

    def crashed(how: str) -> Any:
        raise UsageError(
            f"--input {file.path} cannot be read as {kind} (the library that reads it crashed: "
            f"{how}); write it again or leave it out."
        )

    return call_in_process(_read, kind, file, function, *args, crashed=crashed)


def _read(kind: str, file: StoredObject, function: Callable[..., Any], *args: Any) -> Any:
    import pyarrow

    try:
        return function((RowGroups if kind == PARQUET else RecordBatches)(RangeReader(*file[:3])), *args)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        detail = words_of(error).rstrip(".")
        raise UsageError(
            f"--input {file.path} cannot be read as {kind} ({detail}); write it again."
        ) from None


def is_bytes(type_: Any) -> bool:
    """Returns whether values of a type are bytes, also those of a dictionary."""
    return _name_of(type_) in ("binary", "large_binary", "binary_view")


def is_text(type_: Any) -> bool:
    """Returns whether values of a type are text, also those of a dictionary, or all are missing."""
    return _name_of(type_) in ("string", "large_string", "string_view", "null")


def _name_of(type_: Any) -> str:
    from pyarrow import types

    return str(type_.value_type if types.is_dictionary(type_) else type_)


def holds_images(opened: Opened, name: str) -> bool:
    """Returns whether the first value of a column of bytes is an image."""
    values = (value.as_py() for batch in opened.batches([name]) for value in batch.column(0))
    first = next((value for value in islice(values, _VALUES_TRIED) if value is not None), b"")
    return kind_of(first) is not None


def parts_of(kind: str, file: StoredObject) -> list[tuple[int, int, int]]:
    """Returns (first group, end of groups, number of the first row from 0) of the input splits of a file.

    The groups are row groups, or record batches.

    Raises:
      UsageError: If the file is damaged.
    """
    with storage.translated_errors("read", file.path):
        sizes = read_apart(kind, file, methodcaller("sizes"))
    parts, begin, first, rows, size = [], 0, 0, 0, 0
    for end, (group_rows, group_size) in enumerate(sizes, 1):
        rows, size = rows + group_rows, size + group_size
        if rows and (size >= _BYTES_A_PART or rows >= _ROWS_A_PART or end == len(sizes)):
            parts.append((begin, end, first))
            begin, first, rows, size = end, first + rows, 0, 0
    return parts


def read_rows(
    kind: str, file: StoredObject, names: Collection[str], begin: int, end: int
) -> Iterator[dict[str, Any]]:
    """Yields the rows in some groups of a file.

    Args:
      kind: Parquet or Arrow.
      file: The file.
      names: Names of the columns; those that the file lacks are left out.
      begin: First group.
      end: End of the groups.

    Raises:
      UsageError: If the file is damaged.
    """
    import pyarrow

    packed = read_apart(kind, file, _packed_columns, names, begin, end)
    for batch in pyarrow.ipc.open_stream(packed):
        columns = map(python_values, batch.columns)
        yield from (dict(zip(batch.schema.names, values)) for values in zip(*columns))


def _packed_columns(opened: Opened, names: Collection[str], begin: int, end: int) -> bytes:
    """Returns columns as an Arrow stream, which is smaller than their values in Python."""
    import pyarrow

    fields = [field for field in opened.schema if field.name in names]
    schema, out = pyarrow.schema(fields), pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(out, schema) as writer:
        for batch in opened.batches(schema.names, begin, end, _ROWS_AT_ONCE) if fields else ():
            writer.write_batch(pyarrow.RecordBatch.from_arrays(batch.columns, schema=schema))
    return bytes(out.getvalue())


def python_values(column: Any) -> list[Any]:
    """Returns the values of a column as Python objects; text that is not UTF-8 has surrogate escapes."""
    import pyarrow

    types = pyarrow.types
    if isinstance(column.type, pyarrow.DictionaryType):
        column = column.dictionary_decode()
    is_list = types.is_list(column.type) or types.is_large_list(column.type)
    single = column.type.value_type if is_list else column.type
    if types.is_temporal(single) or types.is_decimal(single):
        with contextlib.suppress(pyarrow.ArrowException):  # for example, the time zone is unknown
            column = column.cast(pyarrow.list_(pyarrow.string()) if is_list else pyarrow.string())
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        if is_list:
            return [None if item.values is None else python_values(item.values) for item in column]
        return [None if item is None else item.decode("utf-8", "surrogateescape")
                for item in column.cast(pyarrow.large_binary()).to_pylist()]  # fmt: skip


#: Bytes of the image of a row, why they cannot be read, or else its path; None if the row has neither.
Image = bytes | AnnotationFault | str | None
#: An `Image` after its bytes were copied.
Copied = EmbeddedImage | AnnotationFault | str | None


def rows_with_images(
    kind: str, file: StoredObject, image: str, others: Collection[str], groups: tuple[int, int], spool: Spool
) -> Iterator[dict[str, Any]]:
    """Yields the rows in some groups of a file, and copies their images into a spool file.

    A conversion reads images in another order than they are stored, and pyarrow would decode a whole row
    group for each of them.

    Args:
      kind: Parquet or Arrow.
      file: The file.
      image: Name of the column of images. Instead of an image without bytes, a row has its path.
      others: Names of other columns.
      groups: First group and end of the groups.
      spool: Directory for the spool file.

    Raises:
      UsageError: If the file is damaged; damaged images of a Parquet file are left out.
      EngineError: If the file has changed since it was listed.
    """
    begin, end = groups
    copy = partial(read_apart, kind, file, copy_images, image, begin, end, file.size)
    results: list[list[Copied]] = []
    identity = f"{file.path}:{file.size}:{file.version}:{groups}:{image}"
    spooled = spool.fill(identity, file.path, lambda out: results.append(copy(out.name)))
    # If another attempt has written the file, only the places of the images are needed.
    copied = results[0] if results else copy(os.devnull)
    rows = read_rows(kind, file, others, begin, end) if others else repeat({}, len(copied))
    for value, row in zip(copied, rows, strict=True):
        if isinstance(value, EmbeddedImage):
            place = value.place._replace(file=spooled.file, file_size=spooled.file_size)
            value = value._replace(place=place)
        yield {**row, image: value}


def _images(opened: Opened, name: str, begin: int, end: int) -> Iterator[Image]:
    """Yields the images of some groups; after damage in a row group, its other images cannot be read."""
    import pyarrow

    if isinstance(opened, RecordBatches):
        for batch in opened.batches([name], begin, end):
            yield from _images_in(batch.column(0))
        return
    for group, (rows, _) in enumerate(opened.sizes()[begin:end], begin):
        count, message = 0, ""
        # Row by row, so that memory is bounded by one page and one image.
        try:
            for batch in opened.batches([name], group, group + 1, rows=1):
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
    paths = python_values(fields[PATH]) if PATH in fields else repeat(None)
    for value, path in zip(fields[BYTES], paths):
        image = value.as_py()
        if image is None and isinstance(path, bytes):
            path = path.decode("utf-8", "surrogateescape")
        yield path if image is None else image


def copy_images(opened: Opened, name: str, begin: int, end: int, file_size: int, path: str) -> list[Copied]:
    """Copies the images of some groups one behind the other; equal images are stored once.

    Args:
      opened: The rows.
      name: Name of the column of images, of which only those with bytes are copied.
      begin: First group.
      end: End of the groups.
      file_size: Size of the file of the rows.
      path: File of this machine to which they are written.
    """
    copied: list[Copied] = []
    stored: dict[str, EmbeddedImage] = {}
    used, most = 0, max(SMALL_BYTES, MAX_RATIO * file_size)
    message = f"the images before it take more than {format_size(most)}; split its file"
    with open(path, "wb") as out:
        for image in _images(opened, name, begin, end):
            UNDERWAY.progress()
            if not isinstance(image, bytes):
                copied.append(image)
                continue
            digest = content_digest(image)
            if digest not in stored:
                if used + len(image) > most:
                    copied.append(AnnotationFault(message, QuarantineReason.TOO_LARGE))
                    continue
                stored[digest] = EmbeddedImage(ByteRange("", used, len(image)), len(image), digest)
                used += out.write(image)
            copied.append(stored[digest])
    return copied


# Hugging Face's description of the columns: its `Features`


def described_columns(schema: Any) -> Mapping[str, Any]:
    """Returns Hugging Face's description of the columns; empty if there is none."""
    try:
        features = json.loads((schema.metadata or {}).get(_METADATA, b"{}"))["info"]["features"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return {}
    return features if isinstance(features, Mapping) else {}


def type_of(feature: Any) -> str:
    """Returns the name of a feature's type; empty if it states none."""
    return str(feature.get("_type", "")) if isinstance(feature, Mapping) else ""


def _item_of(feature: Any) -> Any:
    """Returns the feature of the items of a list, or of lists of lists; other features as they are."""
    for _ in range(_MAX_DEPTH):
        if isinstance(feature, list) and len(feature) == 1:
            feature = feature[0]
        elif type_of(feature) and "feature" in feature:
            feature = feature["feature"]
        else:
            break
    return feature


def class_names(feature: Any) -> tuple[str, ...]:
    """Returns the names of a feature of classes, or of lists of classes; empty if it is another feature."""
    feature = _item_of(feature)
    names = feature.get("names") if type_of(feature) == "ClassLabel" else None
    if not isinstance(names, list) or not 0 < len(names) <= _MAX_CLASSES:
        return ()
    stripped = tuple(name.strip() if isinstance(name, str) else "" for name in names)
    return stripped if all(stripped) and len(set(stripped)) == len(stripped) else ()


def object_classes(feature: Any) -> tuple[str, ...]:
    """Returns the names of the classes of objects, for a struct of lists or a list of structs."""
    fields = _item_of(feature)
    names = map(class_names, map(fields.get, OBJECT_CLASSES) if isinstance(fields, Mapping) else ())
    return next(filter(None, names), ())


def is_struct_of_bytes(type_: Any) -> bool:
    """Returns whether values have Hugging Face's type of images, a struct of bytes and path."""
    import pyarrow

    has_bytes = pyarrow.types.is_struct(type_) and type_.get_field_index(BYTES) >= 0
    return has_bytes and is_bytes(type_.field(BYTES).type)
