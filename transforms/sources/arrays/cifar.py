"""Reads downloaded CIFAR-10 and CIFAR-100: the Python version (pickles) and the binary version."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

import numpy as np

from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.image_ref import LABEL_SEPARATOR, printable
from shardwright.schemas.units import counted
from shardwright.transforms.sources.arrays.plain_pickle import (
    LongString,
    PickledArray,
    PickledType,
    PickleError,
    read_pickle,
)
from shardwright.transforms.sources.arrays.rows import (
    ArrayHeader,
    FileSlice,
    Rows,
    UnreadableRows,
    head_of,
    open_gzip,
    rows_of,
    unpack,
)
from shardwright.transforms.sources.source import Context

#: Extra column of CIFAR-100, and its names in the pickles.
COARSE = "coarse_label"
_COARSE_LABELS, _LABELS = "coarse_labels", ("fine_labels", "labels")
_SIDE, _CHANNELS = 32, 3
_PIXELS = _SIDE * _SIDE * _CHANNELS
_BATCH = re.compile(r"(?:data_batch_\d+|test_batch)(\.bin)?\Z")
_META_PYTHON, _META_BINARY = ("batches.meta", "meta"), ("batches.meta.txt", "fine_label_names.txt")
_COARSE_NAMES_BINARY = "coarse_label_names.txt"
_FOLDERS = re.compile(r"(?:\./)?(cifar-10-batches-(?:py|bin)|cifar-100-(?:python|binary))/?")
#: Most bytes of an unpacked archive; CIFAR's archives have less than 200 MB.
_MAX_UNPACKED = 1 << 30
_MAX_MEMBERS = 1000
_MAX_META_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"
_GZIP_BITS = 31


def batches_among(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the files of a folder that are CIFAR's batches of images, in order."""
    known = set(names)
    batches = {name for name in known if _BATCH.match(name)}
    if "meta" in known or "fine_label_names.txt" in known:
        suffix = "" if "meta" in known else ".bin"
        batches |= {name for name in (f"train{suffix}", f"test{suffix}") if name in known}
    return tuple(sorted(batches))


def meta_among(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the files of a CIFAR folder that name the classes."""
    known = set(names)
    found = (*_META_PYTHON, *_META_BINARY, _COARSE_NAMES_BINARY)
    return tuple(name for name in found if name in known)


def split_of_batch(name: str) -> str:
    """Returns the split of a batch."""
    return "test" if name.startswith("test") else "train"


def is_cifar_archive(head: bytes) -> bool:
    """Returns whether a file begins like one of CIFAR's archives, compressed or not."""
    head = head_of(head, _GZIP_BITS) if head.startswith(_GZIP) else head
    try:
        with tarfile.open(fileobj=io.BytesIO(head), mode="r:") as archive:
            first = archive.next()
    except (tarfile.TarError, EOFError, ValueError, OverflowError):
        return False
    return first is not None and bool(_FOLDERS.match(first.name))


@dataclass(frozen=True)
class CifarBatch:
    """A batch of images with their labels.

    Attributes:
      images: Rows of the images.
      labels: Class number of each image.
      names: Class names; empty if no file gives them.
      coarse: Superclass number of each image, or None.
      coarse_names: Names of the superclasses.
    """

    images: Rows
    labels: np.ndarray
    names: Sequence[str]
    coarse: np.ndarray | None = None
    coarse_names: Sequence[str] = ()


def open_archive(
    file_slice: FileSlice, context: Context
) -> tuple[dict[str, tuple[str, FileSlice]], UnreadableRows | None]:
    """Returns the files of one of CIFAR's archives by name, with their paths in the archive.

    The second result is the damage of the archive, or None; files before the damage are included.
    """
    damage = None
    if file_slice.read(0, 2) == _GZIP:
        unpacked, damage = unpack(file_slice, "", partial(open_gzip, file_slice), _MAX_UNPACKED, context)
        file_slice = unpacked
    files: dict[str, tuple[str, FileSlice]] = {}
    try:
        with tarfile.open(fileobj=file_slice.open(), mode="r:") as archive:
            for member, _ in zip(archive, range(_MAX_MEMBERS)):
                folder, _, name = member.name.rpartition("/")
                if member.isreg() and member.sparse is None and _FOLDERS.fullmatch(folder):
                    files[name] = member.name, file_slice.inside(member.offset_data, member.size)
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        damage = damage or UnreadableRows(
            QuarantineReason.TRUNCATED, f"it is cut off or damaged ({words_of(error)}); download it again"
        )
    return files, damage


def read_batch(name: str, files: Mapping[str, FileSlice], context: Context) -> CifarBatch:
    """Returns a batch of images; most pixels stay in the file and are read from there.

    Args:
      name: Name of the batch.
      files: Files of its folder, by name.
      context: Context of the listing.

    Raises:
      ValueError: if the file is not a valid batch.
    """
    if name.endswith(".bin"):
        return _read_binary(name, files)
    try:
        with files[name].open() as file:
            content = read_pickle(file)
        found = _content(content)
    except PickleError as error:
        raise ValueError(str(error)) from None
    pixels = _pixels(found["data"], files[name], context)
    labels = next((_numbers(found[key], files[name]) for key in _LABELS if key in found), None)
    if labels is None:
        raise ValueError("it has no labels")
    coarse = _numbers(found[_COARSE_LABELS], files[name]) if _COARSE_LABELS in found else None
    if labels.size != pixels.count or (coarse is not None and coarse.size != pixels.count):
        raise UsageError(
            f"{printable(files[name].uri)}: {name} has {counted(pixels.count, 'image')} and "
            f"{counted(labels.size, 'label')}; "
            "download the file again."
        )
    names, coarse_names = _names_python(files)
    return CifarBatch(pixels, labels, names, coarse, coarse_names)


def _content(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict) or not isinstance(content.get("data"), PickledArray):
        raise PickleError("it holds no array named data")
    return content


def _pixels(array: PickledArray, file_slice: FileSlice, context: Context) -> Rows:
    """Returns the images of a pickled array.

    Raises:
      ValueError: if they are not pixels in CIFAR's format.
    """
    dtype = array.dtype or PickledType("")
    if dtype.code != "u1" or len(array.shape) != 2 or array.shape[1] != _PIXELS:
        raise ValueError(f"its array has shape {array.shape} and type {dtype.code}, not (N, {_PIXELS}) of u1")
    length = array.data.length if isinstance(array.data, LongString) else len(array.data)
    if length != array.shape[0] * _PIXELS:
        raise ValueError(
            f"its array has {length} bytes, but its shape says {counted(array.shape[0], 'image')}"
        )
    if isinstance(array.data, LongString):
        pixels = file_slice.inside(array.data.offset, length)
    else:  # a pickle that stores the bytes as text
        data = array.data

        def write(file: IO[bytes]) -> None:
            file.write(data)

        place = f"{file_slice.offset}:{file_slice.length}"
        state = f"{file_slice.uri}:{file_slice.size}:{file_slice.version}:{place}:data"
        path = context.spool.fill(state, file_slice.uri, write)
        pixels = FileSlice(file_slice.uri, path, 0, length, length, "")
    rows = rows_of(pixels, ArrayHeader("|u1", array.shape, 0, array.fortran), context)
    return _images(rows.file_slice, rows.begin, _PIXELS, array.shape[0])


def _images(file_slice: FileSlice, begin: int, stride: int, count: int) -> Rows:
    return Rows(file_slice, begin, stride, _PIXELS, count, (_SIDE, _SIDE, _CHANNELS), "|u1", planar=True)


def _numbers(values: Any, file_slice: FileSlice) -> np.ndarray:
    """Returns a list or an array of numbers in a pickle as a NumPy array.

    Raises:
      ValueError: if it is neither.
    """
    if isinstance(values, list) and all(type(value) is int and abs(value) < 2**63 for value in values):
        return np.array(values, np.int64)
    if isinstance(values, PickledArray) and values.dtype and values.dtype.code[:1] in ("i", "u", "b"):
        data = values.data if isinstance(values.data, bytes) else file_slice.read(*values.data)
        order = ">" if values.dtype.order == ">" else "<"
        return np.frombuffer(data, np.dtype(order + values.dtype.code)).astype(np.int64)
    raise ValueError("its labels are not numbers")


def _names_python(files: Mapping[str, FileSlice]) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the names of classes and superclasses; empty if no file gives them."""
    name = next((name for name in _META_PYTHON if name in files), None)
    if name is None:
        return (), ()
    try:
        with files[name].open() as file:
            content = read_pickle(file)
        if not isinstance(content, dict):
            raise PickleError("it does not hold a dictionary")
        names = _texts(content.get("fine_label_names", content.get("label_names", [])))
        return names, _texts(content.get("coarse_label_names", []))
    except PickleError as error:
        raise UsageError(
            f"{printable(files[name].uri)}: {name}, which names the classes, cannot be read: {error}; "
            "download the file again, or remove it to use numbers as names."
        ) from None


def _texts(values: Any) -> Sequence[str]:
    if not isinstance(values, list) or not all(isinstance(value, str | bytes) for value in values):
        raise PickleError("its class names are not strings")
    as_bytes = (value if isinstance(value, bytes) else value.encode("utf-8", "replace") for value in values)
    return [value.decode("utf-8", "replace").replace(LABEL_SEPARATOR, " ") for value in as_bytes]


def _read_binary(name: str, files: Mapping[str, FileSlice]) -> CifarBatch:
    """Returns a batch of the binary version, in which 1 or 2 label bytes precede each image's pixels."""
    hundred = "fine_label_names.txt" in files
    file_slice = files[name]
    before = 2 if hundred else 1
    stride = before + _PIXELS
    count = -(-file_slice.length // stride)
    images = _images(file_slice, before, stride, count)
    # The labels precede the pixels, so a complete image has its labels too.
    table = Rows(file_slice, 0, stride, before, count, (before,), "|u1").values(0, images.whole)
    labels = table[:, before - 1].astype(np.int64)
    names = _lines(files, "fine_label_names.txt" if hundred else "batches.meta.txt")
    coarse = table[:, 0].astype(np.int64) if hundred else None
    return CifarBatch(images, labels, names, coarse, _lines(files, _COARSE_NAMES_BINARY))


def _lines(files: Mapping[str, FileSlice], name: str) -> Sequence[str]:
    if name not in files:
        return ()
    text = files[name].read(0, _MAX_META_BYTES).decode("utf-8", "replace")
    return [line.strip() for line in text.splitlines() if line.strip()]
