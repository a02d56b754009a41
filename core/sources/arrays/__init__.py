"""Arrays of images: MNIST's idx files, CIFAR, and NumPy's `.npy` and `.npz`, with their labels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import astuple, replace

from shardwright.core import storage
from shardwright.core.sources.arrays import cifar
from shardwright.core.sources.arrays.files import (
    CIFAR_ARCHIVE,
    ArrayFile,
    Rows,
)
from shardwright.core.sources.arrays.find import FoundArray, find_arrays
from shardwright.core.sources.arrays.values import (
    LabelReader,
    check_first_images,
    image_shape,
    rows_are_planar,
    times,
)
from shardwright.core.sources.containers import (
    ContainerFile,
    content_digest,
    filtered_part,
    filtered_refs,
    keeps_splits,
    state_of,
)
from shardwright.core.sources.image_files import is_hidden, key_of
from shardwright.core.sources.input_probe import InputProbe, look_at
from shardwright.core.sources.source import Context, Input, InputSplit, Source
from shardwright.schemas.byte_range import PIXELS
from shardwright.schemas.codes import FilterReason, QuarantineReason, Stage
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, ImageFault, UsageError
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.split_order import in_split_order
from shardwright.schemas.units import counted

#: Most arrays whose headers are checked before the start; others are checked when they are listed.
_LOOKED_AT = 16
#: Most bytes of images, and most images, that are listed in one batch.
_BATCH_BYTES, _BATCH_ROWS = 4 << 20, 1 << 16
#: Most missing images of a file that are listed one by one; the rest is given as a number.
_MAX_MISSING = 10_000
_DIGITS = 6


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    try:
        arrays, _ = find_arrays(probe, settings)
    except UsageError:  # `_describe` reports it
        return True
    except (OSError, EngineError):
        return False
    return bool(arrays) or (probe.is_file and probe.name.lower().endswith((".npz", ".npy")))


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    arrays, _ = find_arrays(probe, settings)
    if not arrays:
        raise UsageError(
            f"--input {printable(probe.path)} holds no array with a name of an image array, such as "
            "train-images-idx3-ubyte.gz, data_batch_1, or x_train or images in a .npz file; name the array "
            "in a .npz file with --image_column."
        )
    for array in arrays[:_LOOKED_AT]:
        if not array.images.is_cifar:
            _check(array, settings)
    first = arrays[0].images
    if not first.is_cifar and first.header.shape[0] and settings.depth == "8":
        check_first_images(first, settings)
    splits = in_split_order({array.split for array in arrays} - {""})
    unlabelled = sum(not (array.labels or array.images.is_cifar) for array in arrays)
    without = f", {unlabelled} of them without labels" if unlabelled else ""
    of_splits = f" of {', '.join(splits)}" if splits else ""
    return f"{counted(len(arrays), 'array')} ({first.kind}{without}){of_splits}"


def _check(array: FoundArray, settings: ConvertSettings) -> tuple[tuple[int, ...], bool]:
    """Returns the shape of the images of an array, and whether they are planar (`image_shape`).

    Raises:
      UsageError: If it is not an array of images, or there are more or fewer labels.
    """
    images, labels = array.images, array.labels
    shape = image_shape(images.header, settings, images.name)
    if labels and labels.header.shape[0] != images.header.shape[0]:
        raise UsageError(
            f"{images.name} has {counted(images.header.shape[0], 'image')}, but "
            f"{labels.name} has {counted(labels.header.shape[0], 'label')}; the numbers must be equal."
        )
    return shape


def _split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields one input split for each array of images, and one for all other files."""
    arrays, others = find_arrays(look_at(item.path), context.settings)
    for array in arrays:
        yield InputSplit(item, array.images.path, detail=json.dumps(astuple(array)))
    reasons = {True: FilterReason.DOTFILE, False: FilterReason.NOT_AN_IMAGE}
    files = (ContainerFile(name, filtered=reasons[is_hidden(name)]) for name in others)
    yield from filtered_part(item, item.path, files)


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for each image of an array, and the ids of its classes."""
    if filtered := filtered_refs(part):
        yield from filtered
        return
    images, labels, split, dataset = json.loads(part.detail)
    array = FoundArray(ArrayFile(*images), ArrayFile(*labels) if labels else None, split, dataset)
    key = f"{part.item.prefix}{key_of(array.images.file)}!"
    keeps = keeps_splits(context.settings)
    is_archive = array.images.kind == CIFAR_ARCHIVE
    parts = cifar.read_batches(part, is_archive, context) if array.images.is_cifar else _read(array, context)
    for inner, split, rows, reader in parts:
        keep = context.settings.keeps_samples(rows.dtype)
        yield from list_rows(rows, reader, key + inner, split if keeps else "", keep)
        yield from reader.class_ids()


def _read(array: FoundArray, context: Context) -> Iterator[tuple[str, str, Rows, LabelReader]]:
    """Yields (rest of the keys, split, images, labels) of an array."""
    images, labels = array.images, array.labels
    shape, planar = _check(array, context.settings)
    rows = images.rows(context)
    rows = replace(rows, shape=shape, planar=planar or rows_are_planar(rows, shape))
    label_rows = labels.rows(context) if labels else None
    reader = LabelReader((labels or images).name, label_rows, separator=context.settings.label_separator)
    yield f"{key_of(images.member)}/" if images.member else "", array.split, rows, reader


def list_rows(
    rows: Rows, reader: LabelReader, key: str, split: str, keep: bool = False
) -> Iterator[ImageRef]:
    """Yields a reference for each image of an array, also for images that are missing from its file.

    Args:
      rows: Images of the array.
      reader: Reader of their labels.
      key: Prefix of the keys; the number of the image follows.
      split: Split of all images.
      keep: Whether images keep their type and all channels.
    """
    digits = max(_DIGITS, len(str(max(rows.count - 1, 0))))
    file_slice, length, stride = rows.file_slice, rows.length, rows.stride
    uri = file_slice.uri
    place = file_slice.place._replace(
        length=length, method=PIXELS, shape=rows.shape, planar=rows.planar, dtype=rows.dtype, keep=keep
    )
    order = rows.dtype[0] if rows.dtype[0] == ">" else ""
    form = f".{times(rows.shape)}.{rows.dtype[1:]}{order}{'.planar' if rows.planar else ''}"
    marked = not storage.is_remote(file_slice.file)
    state = "" if marked else state_of(uri).version
    step = min(_BATCH_ROWS, max(1, _BATCH_BYTES // stride))
    for first in range(0, rows.whole, step):
        count = min(step, rows.whole - first)
        data = memoryview(rows.read(first, count) if marked else b"")
        for i, (label, reason, message) in enumerate(reader.read_rows(first, count)):
            number = first + i
            if marked:
                state = content_digest(data[i * stride : i * stride + length])
            ref = ImageRef(
                f"{key}{number:0{digits}}",
                uri,
                label,
                split,
                size=length,
                version=state + form,
                place=place._replace(offset=place.offset + number * stride).encode(),
                message=message,
            )
            yield ref.quarantined(reason, message) if reason else ref
    yield from _missing(rows, ImageRef("", uri, split=split), key, digits)


def _missing(rows: Rows, ref: ImageRef, key: str, digits: int) -> Iterator[ImageRef]:
    """Yields references for missing images and for bytes after the last image."""
    cut = f"the file ends after {rows.whole:,} of {counted(rows.count, 'image')}; download it again"
    fault = rows.damage or ImageFault(QuarantineReason.TRUNCATED, Stage.LIST, cut)
    end = min(rows.count, rows.whole + _MAX_MISSING)
    for number in range(rows.whole, end):
        yield ref._replace(key=f"{key}{number:0{digits}}").quarantined(fault.reason, fault.message)
    if end < rows.count:
        rest = f"this one and {rows.count - end - 1} more: {fault.message}"
        yield ref._replace(key=f"{key}{end:0{digits}}").quarantined(fault.reason, rest)
    if rows.bytes_behind:
        behind = f"at least {rows.bytes_behind} bytes after the last image belong to no image"
        yield ref._replace(key=f"{key}{rows.count:0{digits}}").quarantined(QuarantineReason.CORRUPT, behind)


SOURCE = Source(
    name="arrays",
    provides=frozenset({Needs.LABEL, Needs.IMAGE}),
    settings=frozenset({"image_column", "label_column", "label_separator", "pixel_shape"}),
    accepts=_accepts,
    describe=_describe,
    list_part=list_part,
    split=_split,
)
