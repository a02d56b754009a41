"""Finds the TFRecord files of an input, their splits and the files beside them."""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import json
import os
import re
import zlib
from collections.abc import Collection, Iterator, Mapping
from itertools import chain, product
from typing import NamedTuple

from shardwright.core import storage
from shardwright.core.images.signatures import is_image_name
from shardwright.core.records.compression import WBITS, compression_of
from shardwright.core.records.framing import HEADER_BYTES, masked_crc32c
from shardwright.core.sources.class_files import IMAGE_CLASS_FILES, OBJECT_CLASS_FILES, class_names_of
from shardwright.core.sources.containers import ContainerFile
from shardwright.core.sources.image_files import split_token
from shardwright.core.sources.input_probe import InputProbe, is_pattern
from shardwright.schemas.codes import FilterReason
from shardwright.schemas.dataset import DATASET_JSON, SHARDS_DIR, WORK_DIR, Dataset
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plain_text import check_utf8

#: Name of TFDS's description of a dataset.
_DATASET_INFO = "dataset_info.json"
_SIDE_FILES = re.compile(
    r"(?:dataset_info|features|dataset|validation|run)\.json|quarantine\.jsonl|report\.html|metadata\.json|"
    r".*\.pbtxt|.*labels?\.txt|class(?:_name)?e?s\.txt|_SUCCESS"
)
_CERTAIN = re.compile(r"\.tf_?rec(?:ord)?s?(?=[.\-_]|$)", re.IGNORECASE)
_LIKELY = re.compile(r"tf_?rec|\.record|-\d+-of-\d+", re.IGNORECASE)
_TFDS_SPLIT = re.compile(r".*-([a-z0-9_]{1,64})\.tfrecord-\d+-of-\d+\Z")
#: Bytes at the beginning of a file that show what it is.
HEAD_BYTES = 4096
_ZLIB_SIZES = b"\x78\x68\x58\x48\x38\x28\x18\x08"


class RecordFile(NamedTuple):
    """A file of an input that is read; `InputSplit.detail` carries it.

    Attributes:
      relative: Path relative to the input; its name if it is the input.
      split: Split of its records; empty if unknown.
      own: Whether a `dataset.json` names it.
      records: Expected number of records; -1 if unknown.
      classes: Path of the file that lists its class names; empty if there is none.
    """

    relative: str
    split: str = ""
    own: bool = False
    records: int = -1
    classes: str = ""


def is_frame(head: bytes) -> bool:
    """Returns whether bytes begin with the header of a TFRecord."""
    return len(head) >= HEADER_BYTES and masked_crc32c(head[:8]) == int.from_bytes(head[8:12], "little")


def compression_in(name: str, head: bytes) -> str:
    """Returns a file's compression, detected from its first bytes, or else from its name."""
    if is_frame(head):
        return "none"
    if head[:1] and head[0] in _ZLIB_SIZES and is_frame(unpack(head, "zlib")):
        return "zlib"
    return compression_of(name, head)


def unpack(head: bytes, compression: str, limit: int = HEADER_BYTES) -> bytes:
    """Returns the unpacked beginning of a file; empty if it cannot be unpacked."""
    try:
        return zlib.decompressobj(WBITS[compression]).decompress(head, limit)
    except zlib.error:
        return b""


def holds_records(name: str, head: bytes) -> bool:
    """Returns whether a file begins like a TFRecord file, compressed or not."""
    compression = compression_in(name, head)
    return is_frame(head if compression == "none" else unpack(head, compression))


def accepts(probe: InputProbe) -> bool:
    """Returns whether an input is a dataset directory, or has mainly TFRecord files."""
    if probe.is_file:
        return bool(_CERTAIN.search(probe.name)) or holds_records(probe.name, probe.head)
    if DATASET_JSON in probe.files:
        text = _text(storage.join(probe.path, DATASET_JSON))
        if '"format_version"' in text and '"splits"' in text:
            return True
    for folder in probe.folders_near():
        likely = [name for name in folder.files if _LIKELY.search(name) and not name.startswith(".")]
        if len(likely) < sum(map(is_image_name, folder.files)):
            return False
        for name in likely[:3]:
            path = storage.join(folder.path, name)
            if _CERTAIN.search(name) or holds_records(name, storage.read_head(path, HEAD_BYTES)):
                return probe.images_below <= len(likely)
    return False


def folder_of(path: str, is_file: bool) -> str:
    """Returns the folder of an input, to which the paths of its files are relative."""
    if not (is_file or is_pattern(path)):
        return path
    folder, slash, _ = path.rpartition("/")
    return folder or slash or "."


def files_of(
    path: str, is_file: bool, needs: Needs, keep_splits: bool
) -> Iterator[RecordFile | ContainerFile]:
    """Yields the TFRecord files of an input, and as `ContainerFile` those that are not read.

    A finished dataset has exactly the files that its `dataset.json` names. For other inputs, splits are
    detected from the names of files (`train-00000-of-00008`, `mnist-train.tfrecord-...`) and folders.

    Args:
      path: Path of the input; its last part may be a pattern.
      is_file: Whether the input is a single file.
      needs: Kind of annotations that the layout needs, to choose the file of class names.
      keep_splits: Whether to keep the splits of the source.

    Raises:
      UsageError: If a dataset is damaged or unfinished.
    """
    path = path.rstrip("/") or "/"
    some = is_file or is_pattern(path)
    folder, last = folder_of(path, is_file), path.rpartition("/")[2]
    pattern = (glob.escape(last) if is_file else last) if some else "*"
    dataset = _read_own(storage.join(folder, DATASET_JSON), must=not some)
    own = list(_own_files(folder, dataset, pattern, keep_splits)) if dataset else []
    if own or (dataset and not some):
        yield from own
        return
    if is_file:
        class_files = (*IMAGE_CLASS_FILES, *OBJECT_CLASS_FILES, _DATASET_INFO)
        beside = [last, *(name for name in class_files if storage.exists(storage.join(folder, name)))]
    else:
        beside = _names_in(folder) if some else storage.list_files(folder)
        if not some and any(name.startswith((f"{SHARDS_DIR}/", f"{WORK_DIR}/")) for name in beside):
            raise UsageError(
                f"--input {printable(path)} has no dataset.json: the run that wrote it did not finish; "
                "finish it with convert --resume, or name its complete files one by one."
            )
    listed = set(beside)
    for relative in sorted(name for name in beside if not some or fnmatch.fnmatchcase(name, pattern)):
        filtered = "" if is_file else _left_out(storage.join(folder, relative), relative)
        if filtered:
            yield ContainerFile(relative, filtered=filtered)
        elif filtered is not None:
            split = split_of(relative, _beside(relative, _DATASET_INFO) in listed) if keep_splits else ""
            yield RecordFile(relative, split, classes=_class_file(folder, relative, listed, needs))


def _names_in(folder: str) -> list[str]:
    """Returns the names of all files directly in a folder; none if the folder is missing."""
    if storage.is_remote(folder):
        return [name for name in storage.list_files(folder) if "/" not in name]
    if not os.path.isdir(folder):
        return []
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if not entry.is_dir()]


def _beside(relative: str, name: str) -> str:
    parent, slash, _ = relative.rpartition("/")
    return parent + slash + name


def _left_out(path: str, relative: str) -> str | None:
    """Returns the reason why a file is not read; empty if it is read, None if it is ignored."""
    name = relative.rpartition("/")[2]
    if any(part.startswith(".") for part in relative.split("/")):
        return FilterReason.DOTFILE
    if _SIDE_FILES.fullmatch(name):
        return None
    if _CERTAIN.search(name):
        return ""
    if is_image_name(name):
        return FilterReason.UNSUPPORTED_KIND
    head = storage.read_head(path, HEAD_BYTES)
    if holds_records(name, head) or (not head and _LIKELY.search(name)):
        return ""
    return FilterReason.UNSUPPORTED_KIND


def split_of(relative: str, tfds: bool = False) -> str:
    """Returns the split in a file's name or folders; empty if they have none.

    >>> split_of("mnist-train.tfrecord-00000-of-00004"), split_of("val/a.tfrecord")
    ('train', 'val')
    """
    name = relative.rpartition("/")[2]
    named = _TFDS_SPLIT.match(name)
    if tfds and named:
        return named[1]
    return split_token(name) or split_token(relative)


def _class_file(folder: str, relative: str, listed: Collection[str], needs: Needs) -> str:
    """Returns the file of class names beside a file or at the top of the input; empty if there is none."""
    several = [IMAGE_CLASS_FILES, OBJECT_CLASS_FILES]
    names = chain.from_iterable(reversed(several) if needs is Needs.OBJECTS else several)
    places = [place + name for place, name in product((_beside(relative, ""), ""), names)]
    return next((storage.join(folder, place) for place in places if place in listed), "")


def _read_own(path: str, must: bool) -> Dataset | None:
    """Returns the dataset of a `dataset.json`; None if there is none.

    Args:
      path: Path of the document.
      must: Whether a damaged document is an error.
    """
    with storage.translated_errors("read", path):
        if not storage.exists(path):
            return None
        data = storage.read_bytes(path)
    with contextlib.suppress(ValueError, RecursionError):  # reported below
        document = json.loads(data)
        if not isinstance(document, Mapping) or "format_version" not in document:
            return None
    try:
        return Dataset.from_bytes(data, path)
    except UsageError:
        if must:
            raise
        return None


def _own_files(folder: str, dataset: Dataset, pattern: str, keep_splits: bool) -> Iterator[RecordFile]:
    document = storage.join(folder, DATASET_JSON)
    for split, shards in dataset.splits.items():
        for shard in shards:
            if not isinstance(shard.file, str) or "/" in shard.file or not isinstance(shard.records, int):
                raise UsageError(f"{document} is damaged ({shard!r}); restore it or convert again.")
            if not fnmatch.fnmatchcase(shard.file, pattern):
                continue
            if not storage.exists(storage.join(folder, shard.file)):
                raise UsageError(
                    f"--input {printable(folder)} lacks {shard.file}, which its dataset.json names; "
                    "restore it, or name the other files one by one."
                )
            yield RecordFile(shard.file, split if keep_splits else "", True, shard.records, document)


def dataset_of(file: RecordFile) -> Dataset:
    """Returns the Shardwright dataset that a file belongs to.

    Raises:
      UsageError: If its `dataset.json` is missing or damaged.
    """
    dataset = _read_own(file.classes, must=True)
    if dataset is None:
        raise UsageError(f"{printable(file.classes)} is missing or damaged; restore it or convert again.")
    return dataset


def class_names_in(path: str, dataset: Dataset | None) -> Mapping[int, str]:
    """Returns the class names by id of a dataset, or else in a file of class names; may be empty."""
    if dataset or not path:
        return dict(enumerate(dataset.labels, dataset.first_label)) if dataset else {}
    with storage.translated_errors("read", path):
        return class_names_of(path, _text(path))


def _text(path: str) -> str:
    data = storage.read_bytes(path)
    check_utf8(printable(path), data)
    return data.decode("utf-8-sig", "replace")
