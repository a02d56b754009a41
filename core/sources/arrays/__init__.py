"""Arrays of images: MNIST's idx files, CIFAR, and NumPy's `.npy` and `.npz`, with their labels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from shardwright.core import storage
from shardwright.core.sources.arrays import cifar
from shardwright.core.sources.arrays.files import (
    IDX,
    NPY,
    NPZ,
    ArrayFile,
    FileSlice,
    Rows,
    UnreadableRows,
    slice_of,
)
from shardwright.core.sources.arrays.find import (
    CIFAR,
    CIFAR_ARCHIVE,
    ArrayPlace,
    FoundArray,
    find_arrays,
)
from shardwright.core.sources.arrays.images import (
    check_first_images,
    image_shape,
    rows_are_planar,
    times,
)
from shardwright.core.sources.arrays.labels import MISSING, ArrayLabel, LabelReader
from shardwright.core.sources.containers import (
    ContainerFile,
    filtered_part,
    filtered_refs,
    keeps_splits,
)
from shardwright.core.sources.hashing import content_digest
from shardwright.core.sources.image_files import is_hidden, key_of
from shardwright.core.sources.input_probe import InputProbe, look_at
from shardwright.core.sources.source import Context, Input, InputSplit, Source
from shardwright.schemas.byte_range import PIXELS, ByteRange
from shardwright.schemas.codes import FilterReason, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.image_ref import ImageRef, key_from_bytes, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.split_order import in_split_order
from shardwright.schemas.units import counted

_KINDS = {
    IDX: "IDX files",
    NPY: "NumPy arrays",
    NPZ: "NumPy arrays",
    CIFAR: "CIFAR batches",
    CIFAR_ARCHIVE: "a CIFAR archive",
}
#: Most arrays whose headers are checked before the start; others are checked when they are listed.
_LOOKED_AT = 16
#: Most bytes of images, and most images, that are listed in one batch.
_BATCH_BYTES, _BATCH_ROWS = 4 << 20, 1 << 16
#: Largest local array, in bytes, whose images are marked by their content; images of larger arrays are
#: marked by the state of the file.
_MARKED_BYTES = 4 << 30
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
        if not array.images.is_cifar:
            images, _, _ = _checked(array, found.folder, settings)
            if not number and images.header.shape[0] and settings.depth == "8":
                check_first_images(images, settings)
    splits = in_split_order({array.split for array in found.arrays} - {""})
    unlabelled = sum(not (array.labels or array.images.is_cifar) for array in found.arrays)
    without = f", {unlabelled} of them without labels" if unlabelled else ""
    of_splits = f" of {', '.join(splits)}" if splits else ""
    kind = _KINDS[found.arrays[0].images.kind]
    return f"{counted(len(found.arrays), 'array')} ({kind}{without}){of_splits}"


def _checked(
    array: FoundArray, folder: str, settings: ConvertSettings
) -> tuple[ArrayFile, ArrayFile | None, tuple[tuple[int, ...], bool]]:
    """Returns an array, its labels, and the shape of its images (`image_shape`).

    Raises:
      UsageError: If it is not an array of images, or there are more or fewer labels.
    """
    images = array.images.array_in(folder)
    labels = array.labels.array_in(folder) if array.labels else None
    shape = image_shape(images.header, settings, images.name)
    if labels and labels.header.shape[0] != images.header.shape[0]:
        raise UsageError(
            f"{images.name} has {counted(images.header.shape[0], 'image')}, but "
            f"{labels.name} has {counted(labels.header.shape[0], 'label')}; the numbers must be equal."
        )
    return images, labels, shape


def _split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields one input split for each array of images, and one for all other files."""
    found = find_arrays(look_at(item.path), context.settings)
    for array in found.arrays:
        yield InputSplit(item, found.folder, detail=json.dumps(array))
    reasons = {True: FilterReason.DOTFILE, False: FilterReason.NOT_AN_IMAGE}
    others = (ContainerFile(name, filtered=reasons[is_hidden(name)]) for name in found.others)
    yield from filtered_part(item, found.folder, others)


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for each image of an array, and the ids of its classes."""
    if filtered := filtered_refs(part):
        yield from filtered
        return
    images, labels, split, dataset = json.loads(part.detail)
    array = FoundArray(ArrayPlace(*images), ArrayPlace(*labels) if labels else None, split, dataset)
    if not keeps_splits(context.settings):
        array = array._replace(split="")
    if array.images.is_cifar:
        yield from _list_cifar(part, array, context)
    else:
        yield from _list_array(part, array, context)


def _list_array(part: InputSplit, array: FoundArray, context: Context) -> Iterator[ImageRef | ClassId]:
    settings, place = context.settings, array.images
    images, labels, (shape, planar) = _checked(array, part.path, settings)
    rows = images.rows(context)
    rows = replace(rows, shape=shape, planar=planar or rows_are_planar(rows, shape))
    reader = LabelReader(labels.name if labels else images.name, separator=settings.label_separator)
    read: Labels = partial(_no_labels, place.file)
    if labels:
        read = partial(_labels_of, labels.rows(context), reader)
    key = f"{part.item.prefix}{key_of(place.file)}!{key_of(place.member) + '/' if place.member else ''}"
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
    file = array.images.file
    path = storage.join(part.path, file)
    if array.images.kind == CIFAR:
        folder, _, name = path.rpartition("/")
        probe = InputProbe(folder or "/", is_file=False)
        files = {item: slice_of(probe.inside(item).path) for item in (name, *cifar.meta_among(probe.files))}
        yield from _list_batch(name, files, f"{key_of(file)}!", part, array.split, context)
        return
    members = cifar.files_in_archive(path, part, context)
    files = {name: file_slice for name, (_, file_slice) in members.items()}
    for name in cifar.batches_among(members):
        inside = key_from_bytes(members[name][0].encode("utf-8", "surrogateescape"))
        split = cifar.split_of_batch(name) if keeps_splits(context.settings) else ""
        yield from _list_batch(name, files, f"{key_of(file)}!{inside}!", part, split, context)


def _list_batch(
    name: str, files: dict[str, FileSlice], key: str, part: InputSplit, split: str, context: Context
) -> Iterator[ImageRef | ClassId]:
    batch = cifar.read_batch(name, files, context)
    path = files[name].uri
    reader = LabelReader(printable(f"{path}!{name}"), batch.names)

    def labels(first: int, count: int) -> list[ArrayLabel]:
        return reader.read(batch.numbers[first : first + count])

    yield from list_rows(batch.images, labels, part.item.prefix + key, split, path)
    yield from reader.class_ids()


def list_rows(
    rows: Rows,
    labels: Labels,
    key: str,
    split: str,
    uri: str,
    keep: bool = False,
) -> Iterator[ImageRef]:
    """Yields a reference for each image of an array, also for images that are missing from its file.

    Args:
      rows: Images of the array.
      labels: Function that returns the labels of some images.
      key: Prefix of the keys; the number of the image follows.
      split: Split of all images.
      uri: File of the input.
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
    settings=frozenset({"image_column", "label_column", "label_separator", "pixel_shape"}),
    accepts=_accepts,
    describe=_describe,
    list_part=list_part,
    split=_split,
)
