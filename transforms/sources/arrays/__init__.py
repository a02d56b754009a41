"""Arrays of images: MNIST's idx files, CIFAR, and NumPy's `.npy` and `.npz`, with their labels."""

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
from shardwright.transforms.sources.arrays import cifar
from shardwright.transforms.sources.arrays.files import (
    IDX,
    NPY,
    NPZ,
    ArrayFile,
    FileSlice,
    Rows,
    UnreadableRows,
    slice_of,
)
from shardwright.transforms.sources.arrays.find import CIFAR, CIFAR_ARCHIVE, FoundArray, find_arrays
from shardwright.transforms.sources.arrays.images import (
    check_first_images,
    check_type,
    image_shape,
    rows_are_planar,
    times,
)
from shardwright.transforms.sources.arrays.labels import MISSING, ArrayLabel, LabelReader
from shardwright.transforms.sources.input_probe import InputProbe, look_at
from shardwright.transforms.sources.source import Context, Input, InputSplit, Source

_KINDS = {
    IDX: "IDX files",
    NPY: "NumPy arrays",
    NPZ: "NumPy arrays",
    CIFAR: "CIFAR batches",
    CIFAR_ARCHIVE: "a CIFAR archive",
}
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

#: Function that returns the labels of some images, given the first number and the count.
Labels = Callable[[int, int], list[ArrayLabel]]


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    try:
        found = find_arrays(probe, settings)
    except UsageError:  # `_describe` reports it
        return True
    except (OSError, EngineError):
        return False
    is_named = probe.is_file and probe.name.lower().endswith((".npz", ".npy"))
    return bool(found.arrays) or is_named


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    found = find_arrays(probe, settings)
    if not found.arrays:
        raise UsageError(
            f"--input {printable(probe.path)} holds no array with a name of an image array, such as "
            "train-images-idx3-ubyte.gz, data_batch_1, or x_train or images in a .npz file; name the array "
            "in a .npz file with --image_column."
        )
    for number, array in enumerate(found.arrays[:_LOOKED_AT]):
        if array.is_cifar:
            continue
        images, labels = array.images(found.folder), array.labels(found.folder)
        _checked_shape(images, labels, settings)
        if not number and images.header.shape[0] and settings.depth == "8":
            check_first_images(images, settings)
    _check_columns(probe, any(array.is_cifar for array in found.arrays[:_LOOKED_AT]), settings)
    splits = in_split_order({array.split for array in found.arrays} - {""})
    unlabelled = [array for array in found.arrays if not array.is_cifar and not array.labels_file]
    without = f", {len(unlabelled)} of them without labels" if unlabelled else ""
    of_splits = f" of {', '.join(splits)}" if splits else ""
    kind = _KINDS[found.arrays[0].kind]
    return f"{counted(len(found.arrays), 'array')} ({kind}{without}){of_splits}"


def _check_columns(probe: InputProbe, has_coarse: bool, settings: ConvertSettings) -> None:
    names = [item.name for item in settings.parsed_extra_columns]
    unknown = [name for name in names if name != cifar.COARSE or not has_coarse]
    if unknown:
        raise UsageError(
            f"--extra_columns {unknown[0]}: {printable(probe.path)} has no such column; the only extra "
            f"column of arrays is {cifar.COARSE} of CIFAR-100."
        )


def _checked_shape(
    images: ArrayFile, labels: ArrayFile | None, settings: ConvertSettings
) -> tuple[tuple[int, int, int], bool]:
    """Returns (height, width, channels) of the images of an array, and whether they are planar.

    Raises:
      UsageError: If it is not an array of images, or there are more or fewer labels.
    """
    check_type(images.header, images.name)
    shape = image_shape(images.header, settings, images.name)
    if labels and labels.header.shape[0] != images.header.shape[0]:
        raise UsageError(
            f"{images.name} has {counted(images.header.shape[0], 'image')}, but "
            f"{labels.name} has {counted(labels.header.shape[0], 'label')}; the numbers must be equal."
        )
    return shape


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
    if context.settings.splits != ConvertSettings.splits:  # the user chose other splits
        array = array._replace(split="")
    if array.is_cifar:
        yield from _list_cifar(part, array, context)
    else:
        yield from _list_array(part, array, context)


def _other(part: InputSplit, name: str) -> ImageRef:
    hidden = name.rpartition("/")[2].startswith(".")
    ref = ImageRef(part.item.prefix + _key(name), storage.join(part.path, name))
    return ref.filtered(FilterReason.DOTFILE if hidden else FilterReason.NOT_AN_IMAGE)


def _key(name: str) -> str:
    return key_from_bytes(os.fsencode(name))


def _list_array(part: InputSplit, array: FoundArray, context: Context) -> Iterator[ImageRef | ClassId]:
    settings = context.settings
    images, labels = array.images(part.path), array.labels(part.path)
    shape, planar = _checked_shape(images, labels, settings)
    rows = images.rows(context)
    rows = replace(rows, shape=shape, planar=planar or rows_are_planar(rows, shape))
    reader = LabelReader(labels.name if labels else images.name, separator=settings.label_separator)
    read: Labels = partial(_no_labels, array.file)
    if labels:
        read = partial(_labels_of, labels.rows(context), reader)
    key = f"{part.item.prefix}{_key(array.file)}!{_key(array.member) + '/' if array.member else ''}"
    keep = settings.keeps_samples(rows.dtype)
    yield from list_rows(rows, read, key, array.split, images.path, keep=keep)
    yield from reader.class_ids()


def _no_labels(file: str, first: int, count: int) -> list[ArrayLabel]:
    return [ArrayLabel(message=f"there are no labels for {printable(file)}")] * count


def _labels_of(rows: Rows, reader: LabelReader, first: int, count: int) -> list[ArrayLabel]:
    if rows.damage:
        return [ArrayLabel("", rows.damage.reason, f"its label: {rows.damage.message}")] * count
    labels = reader.read(rows.values(first, count))
    return labels + [MISSING] * (count - len(labels))


def _list_cifar(part: InputSplit, array: FoundArray, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields the references of a batch, or of all batches in an archive."""
    path = storage.join(part.path, array.file)
    if array.kind == CIFAR:
        parent, _, name = path.rpartition("/")
        folder = parent or "/"
        names = InputProbe(folder, is_file=False).files
        files = {item: slice_of(storage.join(folder, item)) for item in (name, *cifar.meta_among(names))}
        yield from _list_batch(name, files, f"{_key(array.file)}!", part, array, context)
        return
    members = cifar.open_archive(slice_of(path), context)
    files = {name: file_slice for name, (_, file_slice) in members.items()}
    keep_split = context.settings.splits == ConvertSettings.splits
    for name in cifar.batches_among(members):
        inside = members[name][0].encode("utf-8", "surrogateescape")
        key = f"{_key(array.file)}!{key_from_bytes(inside)}!"
        batch = array._replace(file=name, split=cifar.split_of_batch(name) if keep_split else "")
        yield from _list_batch(name, files, key, part, batch, context)


def _list_batch(
    name: str, files: dict[str, FileSlice], key: str, part: InputSplit, array: FoundArray, context: Context
) -> Iterator[ImageRef | ClassId]:
    settings = context.settings
    path = files[name].uri
    batch = cifar.read_batch(name, files, context)
    coarse = batch.coarse
    where = printable(f"{path}!{name}")
    by_coarse = settings.label_column in (cifar.COARSE, f"{cifar.COARSE}s")
    if coarse is None and (by_coarse or settings.parsed_extra_columns):
        raise UsageError(f"{where} has no {cifar.COARSE}; only CIFAR-100 has it.")
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
    yield from list_rows(batch.images, labels, part.item.prefix + key, array.split, path, columns)
    yield from reader.class_ids()


def list_rows(
    rows: Rows,
    labels: Labels,
    key: str,
    split: str,
    uri: str,
    extra: Callable[[int], str] | None = None,
    keep: bool = False,
) -> Iterator[ImageRef]:
    """Yields a reference for each image of an array, also for images that are missing from its file.

    Args:
      rows: Images of the array.
      labels: Function that returns the labels of some images.
      key: Prefix of the keys; the number of the image follows.
      split: Split of all images.
      uri: File of the input.
      extra: Function that returns the extra columns of an image, given its number.
      keep: Whether images keep their type and all channels.
    """
    digits = max(_DIGITS, len(str(max(rows.count - 1, 0))))
    file_slice, length, stride = rows.file_slice, rows.length, rows.stride
    place = ByteRange(
        file_slice.file if file_slice.file != uri else "",
        file_slice.offset + rows.begin,
        length,
        PIXELS,
        file_slice.size,
        file_slice.version,
        shape=rows.shape,
        planar=rows.planar,
        dtype=rows.dtype,
        keep=keep,
    )
    order = rows.dtype[0] if rows.dtype[0] == ">" else ""
    form = f".{times(rows.shape)}.{rows.dtype[1:]}{order}{'.planar' if rows.planar else ''}"
    marked = not storage.is_remote(file_slice.file) and file_slice.length <= _MARKED_BYTES
    state = "" if marked else slice_of(uri).version
    step = min(_BATCH_ROWS, max(1, _BATCH_BYTES // stride)) if marked else _BATCH_ROWS
    for first in range(0, rows.whole, step):
        count = min(step, rows.whole - first)
        data = memoryview(rows.read(first, count) if marked else b"")
        for i, (label, reason, message) in enumerate(labels(first, count)):
            number = first + i
            if marked:
                state = _mark(data[i * stride : i * stride + length])
            ref = ImageRef(
                f"{key}{number:0{digits}}",
                uri,
                label,
                split,
                size=length,
                version=state + form,
                place=place._replace(offset=place.offset + number * stride).encode(),
                message=message,
                extra=extra(number) if extra else "",
            )
            yield ref.quarantined(reason, message) if reason else ref
    yield from _missing(rows, ImageRef("", uri, split=split), key, digits)


def _mark(pixels: memoryview) -> str:
    return hashlib.blake2b(pixels, digest_size=_MARK_BYTES, usedforsecurity=False).hexdigest()


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
)
