"""Reads downloaded CIFAR-10 and CIFAR-100: the Python version (pickles) and the binary version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any, NamedTuple

import numpy as np

from shardwright.core.sources.archives.compressed import GZIP
from shardwright.core.sources.archives.files import ArchiveFile, open_archive
from shardwright.core.sources.archives.kinds import TAR, first_members, kind_of_head
from shardwright.core.sources.arrays.files import FileSlice, Rows, slice_of, spooled
from shardwright.core.sources.arrays.pickles import PickledArray, PickleError, read_pickle
from shardwright.core.sources.source import Context, InputSplit
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import LABEL_SEPARATOR, printable
from shardwright.schemas.units import counted

#: What `--label_column` calls the superclasses of CIFAR-100, and the names of labels in the pickles.
COARSE = "coarse_label"
_COARSE_LABELS, _LABELS = "coarse_labels", ("fine_labels", "labels")
_SIDE, _CHANNELS = 32, 3
_PIXELS = _SIDE * _SIDE * _CHANNELS
_BATCH = re.compile(r"(?:data_batch_\d+|test_batch)(\.bin)?\Z")
_FINE_NAMES, _COARSE_NAMES = "fine_label_names.txt", "coarse_label_names.txt"
#: Files that name the classes, in the Python version and in the binary one.
_META_PYTHON, _META_BINARY = ("batches.meta", "meta"), ("batches.meta.txt", _FINE_NAMES, _COARSE_NAMES)
_FOLDERS = re.compile(r"(?:cifar-10-batches-(?:py|bin)|cifar-100-(?:python|binary))/?")
_MAX_META_BYTES = 1 << 20


def batches_among(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the files of a folder that are CIFAR's batches of images, in order."""
    files = set(names)
    batches = {name for name in files if _BATCH.match(name)}
    if "meta" in files or _FINE_NAMES in files:
        suffix = "" if "meta" in files else ".bin"
        batches |= files & {f"train{suffix}", f"test{suffix}"}
    return tuple(sorted(batches))


def meta_among(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the files of a CIFAR folder that name the classes."""
    files = set(names)
    return tuple(name for name in (*_META_PYTHON, *_META_BINARY) if name in files)


def split_of_batch(name: str) -> str:
    """Returns the split of a batch."""
    return "test" if name.startswith("test") else "train"


def is_cifar_archive(head: bytes) -> bool:
    """Returns whether a file begins like one of CIFAR's archives, compressed or not."""
    kind = kind_of_head(head)
    if kind not in (TAR, GZIP):
        return False
    members = first_members(lambda offset, length: head[offset : offset + length], len(head), kind)
    return bool(members) and bool(_FOLDERS.match(members[0].name))


class CifarClasses(NamedTuple):
    """The class number of each image of a batch, and the names of the classes if a file gives them."""

    numbers: np.ndarray
    names: Sequence[str]


class CifarBatch(NamedTuple):
    """A batch of images with their classes, and with their superclasses if it has them."""

    images: Rows
    fine: CifarClasses
    coarse: CifarClasses | None


def files_in_archive(path: str, part: InputSplit, context: Context) -> dict[str, tuple[str, FileSlice]]:
    """Returns the files of one of CIFAR's archives by name, with their paths in the archive.

    Raises:
      UsageError: If the archive is damaged, or holds no batches.
    """
    packed = slice_of(path)
    archive = ArchiveFile(path.rpartition("/")[2], packed.size, packed.version)
    files: dict[str, tuple[str, FileSlice]] = {}
    with open_archive(part._replace(path=path), archive, context) as opened:
        for member in opened.members:
            folder, _, name = member.name.rpartition("/")
            if not (member.fault or member.is_folder) and _FOLDERS.fullmatch(folder):
                files[name] = (
                    member.name,
                    replace(
                        packed,
                        file=opened.file or path,
                        offset=member.offset,
                        length=member.length,
                        size=opened.size,
                        version="" if opened.file else packed.version,
                    ),
                )
    if opened.damage or not batches_among(files):
        message = (
            opened.damage.message if opened.damage else "it holds no batches of images; download it again"
        )
        raise UsageError(f"--input {printable(path)}: {message}.")
    return files


def read_batch(name: str, files: Mapping[str, FileSlice], context: Context) -> CifarBatch:
    """Returns a batch of images. Pixels in a pickle are copied to the spool, others stay in the file.

    Args:
      name: Name of the batch.
      files: Files of its folder, by name.
      context: Context of the listing.

    Raises:
      UsageError: If the file is not a valid batch.
    """
    if name.endswith(".bin"):
        return _read_binary(name, files)
    where = f"{printable(files[name].uri)}: {name}"
    try:
        content = _read_dictionary(files[name])
        pixels = _pixels(content.get("data"), files[name], context)
        labels = next((_numbers(content[key]) for key in _LABELS if key in content), None)
        coarse = _numbers(content[_COARSE_LABELS]) if _COARSE_LABELS in content else None
        if labels is None:
            raise PickleError("it has no labels")
        if any(numbers.size != pixels.count for numbers in (labels, coarse) if numbers is not None):
            raise PickleError(f"it has {counted(pixels.count, 'image')} and {counted(labels.size, 'label')}")
    except PickleError as error:
        raise UsageError(f"{where} cannot be read: {error}; download the file again or remove it.") from None
    names, coarse_names = _names_python(files)
    superclasses = None if coarse is None else CifarClasses(coarse, coarse_names)
    return CifarBatch(pixels, CifarClasses(labels, names), superclasses)


def _read_dictionary(file_slice: FileSlice) -> dict[str, Any]:
    """Returns the dictionary in a pickle. Its keys are text, also if Python 2 wrote them.

    Raises:
      PickleError: If the pickle holds anything else.
    """
    with file_slice.open() as file:
        content = read_pickle(file)
    if not isinstance(content, dict) or not all(isinstance(key, str | bytes) for key in content):
        raise PickleError("it does not hold a dictionary with names")
    return {_text(key): value for key, value in content.items()}


def _text(value: str | bytes) -> str:
    raw = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
    return raw.decode("utf-8", "replace").replace(LABEL_SEPARATOR, " ")


def _pixels(array: Any, file_slice: FileSlice, context: Context) -> Rows:
    """Returns the images of a pickled array.

    Raises:
      PickleError: If they are not pixels in CIFAR's format.
    """
    if not isinstance(array, PickledArray):
        raise PickleError("it holds no array named data")
    pixels = array.integers()
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise PickleError(
            f"its array has shape {pixels.shape} and type {pixels.dtype}, not (N, {_PIXELS}) of uint8"
        )

    def write(file: IO[bytes]) -> None:
        file.write(np.ascontiguousarray(pixels).data)

    return _images(spooled(file_slice, "data", write, context), 0, _PIXELS, len(pixels))


def _images(file_slice: FileSlice, begin: int, stride: int, count: int) -> Rows:
    return Rows(file_slice, begin, stride, _PIXELS, count, (_SIDE, _SIDE, _CHANNELS), "|u1", planar=True)


def _numbers(values: Any) -> np.ndarray:
    """Returns a list or an array of numbers in a pickle as a NumPy array.

    Raises:
      PickleError: If it is neither.
    """
    if isinstance(values, PickledArray):
        return values.integers().astype(np.int64)
    if isinstance(values, list) and all(type(value) is int and abs(value) < 2**63 for value in values):
        return np.array(values, np.int64)
    raise PickleError("its labels are not numbers")


def _names_python(files: Mapping[str, FileSlice]) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the names of classes and superclasses; empty if no file gives them."""
    name = next((name for name in _META_PYTHON if name in files), None)
    if name is None:
        return (), ()
    try:
        content = _read_dictionary(files[name])
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
    return [_text(value) for value in values]


def _read_binary(name: str, files: Mapping[str, FileSlice]) -> CifarBatch:
    """Returns a batch of the binary version, in which 1 or 2 label bytes precede each image's pixels."""
    hundred = _FINE_NAMES in files
    file_slice = files[name]
    before = 2 if hundred else 1
    stride = before + _PIXELS
    count = -(-file_slice.length // stride)
    images = _images(file_slice, before, stride, count)
    # The labels precede the pixels, so a complete image has its labels too.
    table = Rows(file_slice, 0, stride, before, count, (before,), "|u1").values(0, images.whole)
    numbers = table.astype(np.int64)
    names = _lines(files, _FINE_NAMES if hundred else "batches.meta.txt")
    coarse = CifarClasses(numbers[:, 0], _lines(files, _COARSE_NAMES)) if hundred else None
    return CifarBatch(images, CifarClasses(numbers[:, before - 1], names), coarse)


def _lines(files: Mapping[str, FileSlice], name: str) -> Sequence[str]:
    if name not in files:
        return ()
    text = files[name].read(0, _MAX_META_BYTES).decode("utf-8", "replace")
    return [line.strip() for line in text.splitlines() if line.strip()]
