"""Arrays of images: MNIST's IDX files, CIFAR, and NumPy's `.npy` and `.npz`, with their labels."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from shardwright.schemas.byte_range import PIXELS, ByteRange
from shardwright.schemas.codes import FilterReason, QuarantineReason
from shardwright.schemas.columns import column_values, encode_extra
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.example import FeatureType
from shardwright.schemas.image_ref import ImageRef, key_from_bytes, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.split_order import in_split_order
from shardwright.schemas.units import counted
from shardwright.transforms import storage
from shardwright.transforms.sources.arrays import cifar as cifar_arrays
from shardwright.transforms.sources.arrays.checks import (
    array_header,
    array_name,
    array_rows,
    check_counts,
    check_first_images,
    check_type,
    image_shape,
    rows_are_planar,
    times,
)
from shardwright.transforms.sources.arrays.find import (
    CIFAR,
    CIFAR_ARCHIVE,
    IDX,
    NPY,
    NPZ,
    FoundArray,
    find_arrays,
)
from shardwright.transforms.sources.arrays.labels import MISSING, ArrayLabel, LabelReader
from shardwright.transforms.sources.arrays.rows import FileSlice, Rows, UnreadableRows, slice_of
from shardwright.transforms.sources.input_probe import InputProbe, look_at
from shardwright.transforms.sources.source import Context, Input, InputSplit, Source

_OTHERS = "others"
#: Most arrays whose headers are checked before the start; others are checked when they are listed.
_LOOKED_AT = 16
#: Most bytes of images, and most images, that are listed in one batch.
_BATCH_BYTES, _BATCH_ROWS = 4 << 20, 1 << 16
#: Largest local array, in bytes, whose images are marked by their content; images of larger arrays are
#: marked by the state of the file.
_MARKED_BYTES = 4 << 30
_MARK_BYTES = 8
#: Most missing images of a file that are listed one by one; the rest is given as a number.
_MAX_MISSING = 10_000
_DIGITS = 6


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    try:
        found = find_arrays(probe, settings)
    except UsageError:  # `_describe` reports it
        return True
    except (OSError, EngineError):
        return False
    if probe.is_file:
        return bool(found.arrays) or probe.name.lower().endswith((".npz", ".npy"))
    return bool(found.arrays) and not found.has_images


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    found = find_arrays(probe, settings)
    if not found.arrays:
        raise UsageError(
            f"--input {printable(probe.path)} holds no array with a name of an image array, such as "
            "train-images-idx3-ubyte.gz, data_batch_1, or x_train or images in a .npz file; name the array "
            "in a .npz file with --image_column."
        )
    coarse = False
    for number, array in enumerate(found.arrays[:_LOOKED_AT]):
        path = storage.join(found.folder, array.file)
        if array.kind in (CIFAR, CIFAR_ARCHIVE):
            coarse = True
            continue
        header = array_header(path, array.kind, array.member)
        image_shape(header, settings, array_name(path, array.member))
        check_type(header, array_name(path, array.member))
        if array.labels_file:
            labels_path = storage.join(found.folder, array.labels_file)
            labels = array_header(labels_path, array.labels_kind, array.labels_member)
            check_counts(header.shape[0], labels.shape[0], array, found.folder)
        if not number and header.shape[0] and settings.depth == "8":
            check_first_images(path, array, header, settings)
    unknown = [item.name for item in settings.parsed_extra_columns if item.name != cifar_arrays.COARSE]
    if settings.parsed_extra_columns and (unknown or not coarse):
        name = unknown[0] if unknown else cifar_arrays.COARSE
        raise UsageError(
            f"--extra_columns {name}: {printable(probe.path)} has no such column; the only extra column "
            f"of arrays is {cifar_arrays.COARSE} of CIFAR-100."
        )
    kinds = {IDX: "IDX files", NPY: "NumPy arrays", NPZ: "NumPy arrays", CIFAR: "CIFAR batches"}
    kind = kinds.get(found.arrays[0].kind, "a CIFAR archive")
    splits = in_split_order({array.split for array in found.arrays} - {""})
    unlabelled = [array for array in found.arrays if array.kind in (IDX, NPY, NPZ) and not array.labels_file]
    without = f", {len(unlabelled)} of them without labels" if unlabelled else ""
    of_splits = f" of {', '.join(splits)}" if splits else ""
    return f"{counted(len(found.arrays), 'array')} ({kind}{without}){of_splits}"


def _split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields one input split for each array of images, and one for all other files."""
    found = find_arrays(look_at(item.path), context.settings)
    for array in found.arrays:
        yield InputSplit(item, found.folder, detail=json.dumps(array))
    if found.others:
        yield InputSplit(item, found.folder, detail=json.dumps([_OTHERS, *found.others]))


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for each image of an array, and the ids of its classes."""
    kind, *detail = json.loads(part.detail)
    if kind == _OTHERS:
        yield from (_other(part, name) for name in detail)
        return
    array = FoundArray(kind, *detail)
    if kind == CIFAR:
        yield from _list_cifar(part, array, context)
    elif kind == CIFAR_ARCHIVE:
        yield from _list_cifar_archive(part, array, context)
    else:
        yield from _list_array(part, array, context)


def _other(part: InputSplit, name: str) -> ImageRef:
    hidden = name.rpartition("/")[2].startswith(".")
    ref = ImageRef(part.item.prefix + _key(name), storage.join(part.path, name))
    return ref.filtered(FilterReason.DOTFILE if hidden else FilterReason.NOT_AN_IMAGE)


def _key(name: str) -> str:
    return key_from_bytes(os.fsencode(name))


def _split_of(array: FoundArray, settings: ConvertSettings) -> str:
    """Returns the split from an array's name, unless the user chose other splits."""
    return array.split if settings.splits == ConvertSettings.splits else ""


def _list_array(part: InputSplit, array: FoundArray, context: Context) -> Iterator[ImageRef | ClassId]:
    settings = context.settings
    path = storage.join(part.path, array.file)
    where = array_name(path, array.member)
    header = array_header(path, array.kind, array.member)
    check_type(header, where)
    shape, planar = image_shape(header, settings, where)
    rows = array_rows(path, array.kind, array.member, context)
    rows = replace(rows, shape=shape, planar=planar or rows_are_planar(rows, shape))
    key = f"{_key(array.file)}!{_key(array.member) + '/' if array.member else ''}"
    reader = LabelReader(where, separator=settings.label_separator)
    labels: Callable[[int, int], list[ArrayLabel]] = partial(_no_labels, array.file)
    if array.labels_file:
        labels_path = storage.join(part.path, array.labels_file)
        label_rows = array_rows(labels_path, array.labels_kind, array.labels_member, context)
        check_counts(rows.count, label_rows.count, array, part.path)
        reader = LabelReader(array_name(labels_path, array.labels_member), separator=settings.label_separator)
        labels = partial(_labels_of, label_rows, reader)
    yield from list_rows(
        rows,
        labels,
        part.item.prefix + key,
        _split_of(array, settings),
        path,
        keep=settings.keeps_samples(rows.dtype),
    )
    yield from reader.class_ids()


def _no_labels(file: str, first: int, count: int) -> list[ArrayLabel]:
    return [ArrayLabel(message=f"there are no labels for {printable(file)}")] * count


def _labels_of(rows: Rows, reader: LabelReader, first: int, count: int) -> list[ArrayLabel]:
    if rows.damage:
        return [ArrayLabel("", rows.damage.reason, f"its label: {rows.damage.message}")] * count
    labels = reader.read(rows.values(first, count))
    return labels + [MISSING] * (count - len(labels))


def _list_cifar(part: InputSplit, array: FoundArray, context: Context) -> Iterator[ImageRef | ClassId]:
    folder, slash, name = array.file.rpartition("/")
    base = storage.join(part.path, folder) if slash else part.path
    names = InputProbe(base, is_file=False).files
    files = {item: slice_of(storage.join(base, item)) for item in (name, *cifar_arrays.meta_among(names))}
    yield from _list_batch(name, files, _key(array.file), part, array, context)


def _list_cifar_archive(
    part: InputSplit, array: FoundArray, context: Context
) -> Iterator[ImageRef | ClassId]:
    path = storage.join(part.path, array.file)
    members, damage = cifar_arrays.open_archive(slice_of(path), context)
    batches = cifar_arrays.batches_among(members)
    if damage or not batches:
        message = damage.message if damage else "it holds no batches of images; download it again"
        raise UsageError(f"--input {printable(path)}: {message}.")
    files = {name: file_slice for name, (_, file_slice) in members.items()}
    for name in batches:
        batch = array._replace(file=name, split=cifar_arrays.split_of_batch(name))
        key = f"{_key(array.file)}!{key_from_bytes(members[name][0].encode('utf-8', 'surrogateescape'))}"
        yield from _list_batch(name, files, key, part, batch, context)


def _list_batch(
    name: str, files: dict[str, FileSlice], key: str, part: InputSplit, array: FoundArray, context: Context
) -> Iterator[ImageRef | ClassId]:
    settings = context.settings
    path = files[name].uri
    try:
        batch = cifar_arrays.read_batch(name, files, context)
    except ValueError as error:
        raise UsageError(
            f"{printable(path)}: {name} cannot be read: {error}; download the file again or remove it."
        ) from None
    where = array_name(path, name)
    coarse = batch.coarse
    by_coarse = settings.label_column in (cifar_arrays.COARSE, f"{cifar_arrays.COARSE}s")
    if coarse is None and (by_coarse or settings.parsed_extra_columns):
        raise UsageError(f"{where} has no {cifar_arrays.COARSE}; only CIFAR-100 has it.")
    reader = LabelReader(where, batch.coarse_names if by_coarse else batch.names)
    numbers = coarse if by_coarse and coarse is not None else batch.labels

    def labels(first: int, count: int) -> list[ArrayLabel]:
        return reader.read(numbers[first : first + count])

    def extra(number: int) -> str:
        """Returns the extra columns of an image."""
        assert coarse is not None
        found = int(coarse[number])
        named = batch.coarse_names[found] if found in range(len(batch.coarse_names)) else str(found)
        try:
            values = {
                column.name: column_values(column, named if column.type is FeatureType.BYTES else found, "")
                for column in settings.parsed_extra_columns
            }
        except ValueError as error:
            raise UsageError(f"--extra_columns {settings.extra_columns}: {where}: {error}.") from None
        return encode_extra(values)

    columns = extra if settings.parsed_extra_columns else None
    split = _split_of(array, settings)
    yield from list_rows(batch.images, labels, f"{part.item.prefix}{key}!", split, path, columns)
    yield from reader.class_ids()


def list_rows(
    rows: Rows,
    labels: Callable[[int, int], list[ArrayLabel]],
    key: str,
    split: str,
    uri: str,
    extra: Callable[[int], str] | None = None,
    keep: bool = False,
) -> Iterator[ImageRef]:
    """Yields a reference for each image of an array, also for images that are missing from its file.

    Args:
      rows: Images of the array.
      labels: Function that returns the labels of some images, given the first number and the count.
      key: Prefix of the keys; the number of the image follows.
      split: Split of all images.
      uri: File of the input.
      extra: Function that returns the extra columns of an image, given its number.
      keep: Whether images keep their type and all channels.
    """
    digits = max(_DIGITS, len(str(max(rows.count - 1, 0))))
    file_slice, length = rows.file_slice, rows.length
    file = file_slice.file if file_slice.file != uri else ""
    place = ByteRange(
        file, 0, length, PIXELS, file_slice.size, file_slice.version,
        shape=rows.shape, planar=rows.planar, dtype=rows.dtype, keep=keep,
    ).encode()  # fmt: skip
    before = f"[{json.dumps(file)}"  # only the offset between them differs
    after = place[len(before) + len(",0,") :]
    mark = f".{times(rows.shape)}.{rows.dtype[1:]}{rows.dtype[0] if rows.dtype[0] == '>' else ''}"
    mark += ".planar" if rows.planar else ""
    marked = not storage.is_remote(file_slice.file) and file_slice.length <= _MARKED_BYTES
    state = "" if marked else slice_of(uri).version + mark
    step = min(_BATCH_ROWS, max(1, _BATCH_BYTES // rows.stride)) if marked else _BATCH_ROWS
    digest = partial(hashlib.blake2b, digest_size=_MARK_BYTES, usedforsecurity=False)
    offset, stride = file_slice.offset + rows.begin, rows.stride
    for first in range(0, rows.whole, step):
        count = min(step, rows.whole - first)
        found_labels = labels(first, count)
        data = memoryview(rows.read(first, count) if marked else b"")
        begin = 0
        for number, (label, reason, message) in zip(range(first, first + count), found_labels, strict=True):
            version = digest(data[begin : begin + length]).hexdigest() + mark if marked else state
            place = f"{before},{offset + number * stride},{after}"
            columns = extra(number) if extra else ""
            # Positional fields: by name this call takes half as long again.
            ref = ImageRef(
                f"{key}{number:0{digits}}", uri, label, split, "", length, version, "", "", "", "", place,
                message, "", columns,
            )  # fmt: skip
            begin += stride
            yield ref.quarantined(reason, message) if reason else ref
    yield from _missing(rows, ImageRef("", uri, split=split), key, digits)


def _missing(rows: Rows, ref: ImageRef, key: str, digits: int) -> Iterator[ImageRef]:
    """Yields references for missing images and for bytes after the last image."""
    cut = UnreadableRows(
        QuarantineReason.TRUNCATED,
        f"the file ends after {rows.whole:,} of {counted(rows.count, 'image')}; download it again",
    )
    reason, message = rows.damage or cut
    end = min(rows.count, rows.whole + _MAX_MISSING)
    for number in range(rows.whole, end):
        yield ref._replace(key=f"{key}{number:0{digits}}").quarantined(reason, message)
    if end < rows.count:
        rest = f"this one and {rows.count - end - 1} more: {message}"
        yield ref._replace(key=f"{key}{end:0{digits}}").quarantined(reason, rest)
    if rows.bytes_behind:
        behind = f"at least {rows.bytes_behind} bytes after the last image belong to no image"
        yield ref._replace(key=f"{key}{rows.count:0{digits}}").quarantined(QuarantineReason.CORRUPT, behind)


SOURCE = Source(
    name="arrays",
    provides=frozenset({Needs.LABEL, Needs.IMAGE}),
    settings=frozenset({"image_column", "label_column", "extra_columns", "label_separator", "pixel_shape"}),
    accepts=_accepts,
    describe=_describe,
    list_part=list_part,
    split=_split,
    has_columns=True,
)
