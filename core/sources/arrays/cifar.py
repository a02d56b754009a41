"""Reads downloaded CIFAR-10 and CIFAR-100: the Python version (pickles) and the binary version.

Pickles of plain data are read without running any of their code. A pickle may call each object that
`Unpickler.find_class` returns. Here that is never NumPy's own function, because NumPy trusts the arguments,
but a stand-in that keeps them. `PickledArray.integers` checks them.
"""

from __future__ import annotations

import pickle
import pickletools
import re
import struct
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any

import numpy as np

from shardwright.core import storage
from shardwright.core.sources.archives.files import archive_parts, first_members, open_archive
from shardwright.core.sources.arrays.files import CIFAR_ARCHIVE, FileSlice, Rows, slice_of, spooled_rows
from shardwright.core.sources.arrays.values import LabelReader
from shardwright.core.sources.image_files import folder_of
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.source import Context, InputPart
from shardwright.schemas.byte_range import decode_place
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import counted, format_size

#: What `--label_column` calls the superclasses of CIFAR-100.
COARSE = "coarse_label"
_SHAPE, _PIXELS = (32, 32, 3), 32 * 32 * 3
_BATCH = re.compile(r"(?:data_batch_\d+|test_batch)(\.bin)?\Z")
_FINE_NAMES, _COARSE_NAMES = "fine_label_names.txt", "coarse_label_names.txt"
#: Files that name the classes, in the Python version and in the binary one.
_META_PYTHON, _META_BINARY = ("batches.meta", "meta"), ("batches.meta.txt", _FINE_NAMES, _COARSE_NAMES)
_FOLDERS = re.compile(r"(?:cifar-10-batches-(?:py|bin)|cifar-100-(?:python|binary))/?")
_MAX_META_BYTES = 1 << 20
#: Most bytes of a pickle, which is read into memory. CIFAR-100 has 155 MB.
MAX_PICKLE_BYTES = 500_000_000
#: Most operations of a pickle; CIFAR-100 takes about 300,000.
_MAX_OPERATIONS = 3_000_000
#: Operations that name values by a number, for which `Unpickler` reserves memory.
_NUMBERED = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))
#: Operations that plain data does not need: other calls, persistent ids, extension codes and buffers.
_FORBIDDEN = frozenset((
    "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER",
    "READONLY_BUFFER",
))  # fmt: skip
#: NumPy's codes of integers.
_INTEGERS = frozenset(("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"))
#: Errors of `pickle` and `pickletools` about damaged pickles.
_DAMAGES = (
    pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, TypeError, AttributeError,
    OverflowError, MemoryError, RecursionError, struct.error,
)  # fmt: skip


def batches_among(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the files of a folder that are CIFAR's batches of images, in order."""
    files = set(names)
    batches = {name for name in files if _BATCH.match(name)}
    if _is_hundred(files):
        suffix = "" if "meta" in files else ".bin"
        batches |= files & {f"train{suffix}", f"test{suffix}"}
    return tuple(sorted(batches))


def meta_among(names: Container[str]) -> tuple[str, ...]:
    """Returns the files of a CIFAR folder that name the classes."""
    return tuple(name for name in (*_META_PYTHON, *_META_BINARY) if name in names)


def split_of_batch(name: str) -> str:
    """Returns the split of a batch."""
    return "test" if name.startswith("test") else "train"


def is_cifar_archive(head: bytes) -> bool:
    """Returns whether a file begins like one of CIFAR's archives, compressed or not."""
    members = first_members(lambda offset, length: head[offset : offset + length], len(head))
    return bool(members) and bool(_FOLDERS.match(members[0].key))


def read_batches(part: InputPart, context: Context) -> Iterator[tuple[str, str, Rows, LabelReader]]:
    """Yields (rest of the keys, split, images, labels) of a batch, or of each batch in an archive.

    What a pickle holds is copied to the spool, the rest stays in the file.

    Raises:
      UsageError: If a file is damaged or no batch, or has no superclasses and they are asked for.
    """
    if part.detail.images.kind == CIFAR_ARCHIVE:
        files, keys = _members_of(part, context)
    else:
        folder, name = folder_of(part.path), part.path.rpartition("/")[2]
        meta = meta_among(InputProbe(folder, is_file=False).files)
        files, keys = {file: slice_of(storage.join(folder, file)) for file in (name, *meta)}, {name: ""}
    for name in batches_among(files):
        yield keys[name], split_of_batch(name), *_read_batch(name, files, context)


def _members_of(part: InputPart, context: Context) -> tuple[dict[str, FileSlice], dict[str, str]]:
    """Returns the files of one of CIFAR's archives by name, and their keys in the archive, each with `!`.

    Raises:
      UsageError: If the archive is damaged, or holds no batches.
    """
    files, keys = dict[str, FileSlice](), dict[str, str]()
    with open_archive(next(archive_parts(part.item, context)), context) as opened:
        for ref in opened.members():
            folder, _, name = ref.key.rpartition("/")
            if ref.is_candidate and _FOLDERS.fullmatch(folder):
                files[name], keys[name] = FileSlice(part.path, decode_place(ref.place)), f"{ref.key}!"
    fault = opened.damage.message if opened.damage else ""
    if fault or not batches_among(files):
        message = fault or "it holds no batches of images; download it again"
        raise UsageError(f"--input {part.path}: {message}.")
    return files, keys


def _read_batch(name: str, files: Mapping[str, FileSlice], context: Context) -> tuple[Rows, LabelReader]:
    """Returns the images and labels of a batch.

    Args:
      name: Name of the batch.
      files: Files of its folder, by name.
      context: Context of the listing.
    """
    file_slice, hundred = files[name], _is_hundred(files)
    where = f"--input {file_slice.uri}: {name}"
    by_coarse = context.settings.label_column in (COARSE, f"{COARSE}s")
    if by_coarse and not hundred:
        raise UsageError(f"{where} has no {COARSE}; leave --label_column out.")
    if name.endswith(".bin"):  # 1 or 2 bytes of labels precede the pixels of each image
        before = 2 if hundred else 1
        stride = before + _PIXELS
        count = -(-file_slice.place.length // stride)
        pixels, label_bytes = file_slice.after(before), file_slice.after(0 if by_coarse else before - 1)
        images = Rows(pixels, stride, count, _SHAPE, "|u1", planar=True)
        labels = Rows(label_bytes, stride, count)
    else:
        try:
            values, classes = _values_in(file_slice, by_coarse)
        except PickleError as error:
            raise UsageError(
                f"{where} cannot be read: {error}; download the file again or remove it."
            ) from None
        images = replace(spooled_rows(file_slice, "data", values, context), shape=_SHAPE, planar=True)
        labels = spooled_rows(file_slice, f"labels {by_coarse}", classes, context)
    return images, LabelReader(printable(f"{file_slice.uri}!{name}"), labels, _class_names(files, by_coarse))


def _values_in(file_slice: FileSlice, by_coarse: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pixels and the class numbers in a pickled batch.

    Raises:
      PickleError: If it holds anything else.
    """
    content = _read_dictionary(file_slice)
    if not isinstance(data := content.get("data"), PickledArray):
        raise PickleError("it holds no array named data")
    pixels = data.integers()
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise PickleError(
            f"its array has shape {pixels.shape} and type {pixels.dtype}, not (N, {_PIXELS}) of uint8"
        )
    fine = content.get("fine_labels", content.get("labels"))
    labels = content.get("coarse_labels") if by_coarse else fine
    if isinstance(labels, PickledArray):
        class_ids = np.ascontiguousarray(labels.integers(), np.int64).reshape(-1)
    elif isinstance(labels, list) and all(type(label) is int and abs(label) < 2**63 for label in labels):
        class_ids = np.array(labels, np.int64)
    else:
        raise PickleError("it has no labels that are numbers")
    if class_ids.size != len(pixels):
        raise PickleError(f"it has {counted(len(pixels), 'image')} and {counted(class_ids.size, 'label')}")
    return pixels, class_ids


def _is_hundred(names: Container[str]) -> bool:
    """Returns whether a folder has the files of CIFAR-100, in either version."""
    return "meta" in names or _FINE_NAMES in names


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


def _class_names(files: Mapping[str, FileSlice], by_coarse: bool) -> Sequence[str]:
    """Returns the class names by number; empty if no file gives them.

    Raises:
      UsageError: If the file is damaged.
    """
    text = _COARSE_NAMES if by_coarse else _FINE_NAMES if _FINE_NAMES in files else "batches.meta.txt"
    meta = next((name for name in (*_META_PYTHON, text) if name in files), None)
    if meta is None:
        return ()
    if meta == text:
        lines = files[meta].read(0, _MAX_META_BYTES).splitlines()
        return [_text(line.strip()) for line in lines if line.strip()]
    try:
        content = _read_dictionary(files[meta])
        fine = content.get("fine_label_names", content.get("label_names", []))
        names = content.get("coarse_label_names", []) if by_coarse else fine
        if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
            raise PickleError("its class names are not strings")
    except PickleError as error:
        raise UsageError(
            f"--input {files[meta].uri}: {meta}, which names the classes, cannot be read: "
            f"{error}; download the file again, or remove it to use numbers as names."
        ) from None
    return [_text(name) for name in names]


class PickleError(Exception):
    """The pickle is damaged, too large, or holds more than plain data."""


class PickledArray:
    """A NumPy array or dtype, with the arguments and the state from which NumPy would make it.

    The state of an array is its version, shape, dtype, whether it is in Fortran order, and its bytes. The
    first argument of a dtype is its code, such as u1; its state begins with its version and byte order.
    """

    __slots__ = ("arguments", "state")

    def __init__(self, *arguments: Any, state: Any = None) -> None:
        self.arguments = arguments
        self.state = state

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def integers(self) -> np.ndarray:
        """Returns the array, if it holds integers.

        Raises:
          PickleError: If it holds other values, or its bytes do not fit its shape.
        """
        try:
            _, shape, dtype, fortran, data = self.state
            code = dtype.arguments[0] if isinstance(dtype, PickledArray) else ""
            code = code.decode("latin-1") if isinstance(code, bytes) else code
            if code not in _INTEGERS:
                raise PickleError("an array in it does not hold integers")
            order = ">" if dtype.state is not None and dtype.state[1] in (">", b">") else "<"
            array = np.frombuffer(data, order + code)
            return array.reshape(shape, order="F" if fortran else "C")
        except (TypeError, ValueError, IndexError, OverflowError) as error:
            raise PickleError(f"an array in it is damaged ({words_of(error)})") from None


class _StandIn:
    """Stands for a function that a pickle looks up by its name. The pickle cannot change it."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise PickleError("it changes a function, which is not plain data")


class _Unpickler(pickle.Unpickler):
    """Reads plain data and arrays.

    Args:
      file: File at the beginning of the pickle.
      size: Number of its bytes.
    """

    def __init__(self, file: IO[bytes], size: int) -> None:
        super().__init__(file, encoding="bytes")
        #: Characters that may still be encoded: plain data encodes each text once.
        self._to_encode = size
        calls: dict[str, Callable[..., Any]] = {
            "numpy.core.multiarray._reconstruct": PickledArray,
            "numpy.core.multiarray.scalar": lambda dtype, data: int(
                _array(data, dtype, (1,), "C").integers()[0]
            ),
            "numpy.core.numeric._frombuffer": _array,
            "numpy.dtype": PickledArray,
            "numpy.ndarray": _never,
            "_codecs.encode": self._encode,
            "builtins.bytes": lambda: b"",
        }
        self._stand_ins = {name: _StandIn(call) for name, call in calls.items()}

    def find_class(self, module: str, name: str) -> Any:
        """Returns the stand-in for one of the few names that plain data and arrays need."""
        module = module.replace("numpy._core", "numpy.core").replace("__builtin__", "builtins")
        if f"{module}.{name}" not in self._stand_ins:
            raise PickleError(f"it asks for {module}.{name}, which is not plain data and is never run")
        return self._stand_ins[f"{module}.{name}"]

    def _encode(self, text: Any, codec: Any = "") -> bytes:
        """Returns bytes that protocol 2 of Python 3 wrote as text."""
        if codec not in ("latin1", "latin-1", b"latin1", b"latin-1") or not isinstance(text, str):
            raise PickleError("it encodes something that is not text")
        self._to_encode -= len(text)
        if self._to_encode < 0:
            raise PickleError("its data is larger than its file")
        return text.encode("latin-1")


def _array(data: Any, dtype: Any, shape: Any, order: Any) -> PickledArray:
    return PickledArray(state=(1, shape, dtype, order == "F", data))


def _never(*_: Any) -> Any:
    raise PickleError("it calls numpy.ndarray, which is never run")


def read_pickle(file: IO[bytes]) -> Any:
    """Returns the plain data of a pickle, with each array as a `PickledArray`.

    Args:
      file: Seekable file that consists of the pickle. Texts of Python 2 are returned as bytes.

    Raises:
      PickleError: If the pickle is damaged, too large, or holds anything else.
    """
    size = file.seek(0, 2)
    if size > MAX_PICKLE_BYTES:
        raise PickleError(
            f"it has {format_size(size)}, and pickles of up to {format_size(MAX_PICKLE_BYTES)} are read; "
            "save its images as a .npy file"
        )
    file.seek(0)
    try:
        # Plain data has few kinds of operations, and asks for no more memory than it has bytes.
        for count, (operation, argument, _) in enumerate(pickletools.genops(file), 1):
            if operation.name in _FORBIDDEN:
                raise PickleError(f"it holds more than plain data ({operation.name}), which is never run")
            if count > _MAX_OPERATIONS or (operation.name in _NUMBERED and int(argument or 0) > size):
                raise PickleError("it has more values than plain data of its size")
        file.seek(0)
        return _Unpickler(file, size).load()
    except _DAMAGES as error:
        if isinstance(error, UnicodeDecodeError) and error.encoding == "ascii":
            # `pickletools` does not read them.
            raise PickleError("it is a pickle of protocol 0 with bytes; save it with protocol 2") from None
        raise PickleError(f"it is damaged ({words_of(error)})") from None
