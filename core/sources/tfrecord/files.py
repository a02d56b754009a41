"""Finds the TFRecord files of an input, their splits and the files beside them."""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import json
import re
from collections.abc import Collection, Mapping
from itertools import chain, product
from typing import NamedTuple

from shardwright.core import storage
from shardwright.core.images.signatures import is_image_name
from shardwright.core.records.compression import HEAD_BYTES, compression_of, unpack
from shardwright.core.records.framing import is_header
from shardwright.core.sources.class_files import IMAGE_CLASS_FILES, OBJECT_CLASS_FILES, class_names_of
from shardwright.core.sources.containers import ContainerFile, keeps_splits
from shardwright.core.sources.image_files import folder_of, join, split_token
from shardwright.core.sources.input_probe import InputProbe, is_pattern
from shardwright.schemas.codes import FilterReason
from shardwright.schemas.configuration.settings import ConvertSettings
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


class RecordFile(NamedTuple):
    """A file of an input that is read; `InputSplit.detail` carries it.

    Attributes:
      relative: Path relative to the input; its name if it is the input.
      split: Split of its records; empty if unknown.
      classes: Path of the file that lists its class names, or of the `dataset.json` that names it; empty if
        there is none.
    """

    relative: str
    split: str = ""
    classes: str = ""

    @property
    def own(self) -> bool:
        """Whether it belongs to a dataset of Shardwright."""
        return self.classes.rpartition("/")[2] == DATASET_JSON


def holds_records(name: str, head: bytes) -> bool:
    """Returns whether a file begins like a TFRecord file, compressed or not."""
    compression = compression_of(name, head)
    return is_header(head if compression == "none" else unpack(head, compression))


def accepts(probe: InputProbe) -> bool:
    """Returns whether an input is a dataset directory, or has mainly TFRecord files."""
    if probe.is_file:
        return bool(_CERTAIN.search(probe.name)) or holds_records(probe.name, probe.head)
    if DATASET_JSON in probe.files and _read_own(join(probe.path, DATASET_JSON), must=False):
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


def files_of(
    path: str, is_file: bool, settings: ConvertSettings
) -> tuple[str, list[RecordFile], list[ContainerFile]]:
    """Returns the folder of an input, its TFRecord files, and files that are not read.

    A finished dataset has exactly the files that its `dataset.json` names. For other inputs, splits are
    detected from the names of files (`train-00000-of-00008`, `mnist-train.tfrecord-...`) and folders.

    Args:
      path: Path of the input; its last part may be a pattern.
      is_file: Whether the input is a single file.
      settings: Checked settings.

    Raises:
      UsageError: If a dataset is damaged or unfinished.
    """
    path = path.rstrip("/") or "/"
    some, keep = is_file or is_pattern(path), keeps_splits(settings)
    folder, last = (folder_of(path), path.rpartition("/")[2]) if some else (path, "*")
    pattern = glob.escape(last) if is_file else last
    dataset = _read_own(join(folder, DATASET_JSON), must=not some)
    own = _own_files(folder, dataset, pattern, keep) if dataset else []
    if own or (dataset and not some):
        return folder, own, []
    if is_file:
        class_files = (*IMAGE_CLASS_FILES, *OBJECT_CLASS_FILES, _DATASET_INFO)
        beside = {last, *(name for name in class_files if storage.exists(join(folder, name)))}
    else:
        prefix = folder.rstrip("/") + "/"
        beside = {item.path.removeprefix(prefix) for item in storage.list_objects(folder, deep=not some)}
        if not some and any(name.startswith((f"{SHARDS_DIR}/", f"{WORK_DIR}/")) for name in beside):
            raise UsageError(
                f"--input {printable(path)} has no dataset.json: the run that wrote it did not finish; "
                "finish it with convert --resume, or name its complete files one by one."
            )
    files, others = [], []
    for relative in sorted(fnmatch.filter(beside, pattern)):
        filtered = "" if is_file else _left_out(join(folder, relative), relative)
        if filtered:
            others.append(ContainerFile(relative, filtered=filtered))
        elif filtered is not None:
            split = split_of(relative, _beside(relative, _DATASET_INFO) in beside) if keep else ""
            classes = _class_file(folder, relative, beside, settings.record_layout.needs)
            files.append(RecordFile(relative, split, classes))
    return folder, files, others


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
    several = (IMAGE_CLASS_FILES, OBJECT_CLASS_FILES)
    names = chain.from_iterable(reversed(several) if needs is Needs.OBJECTS else several)
    places = [place + name for place, name in product((_beside(relative, ""), ""), names)]
    return next((join(folder, place) for place in places if place in listed), "")


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
    try:
        return Dataset.from_bytes(data, path)
    except UsageError:
        with contextlib.suppress(ValueError, TypeError, RecursionError):  # another tool's document
            must = must and "format_version" in json.loads(data)
        if must:
            raise
        return None


def _own_files(folder: str, dataset: Dataset, pattern: str, keep_splits: bool) -> list[RecordFile]:
    document = join(folder, DATASET_JSON)
    files = []
    for split, shards in dataset.splits.items():
        for shard in shards:
            if not isinstance(shard.file, str) or "/" in shard.file or not isinstance(shard.records, int):
                raise UsageError(f"{document} is damaged ({shard!r}); restore it or convert again.")
            if not fnmatch.fnmatchcase(shard.file, pattern):
                continue
            if not storage.exists(join(folder, shard.file)):
                raise UsageError(
                    f"--input {printable(folder)} lacks {shard.file}, which its dataset.json names; "
                    "restore it, or name the other files one by one."
                )
            files.append(RecordFile(shard.file, split if keep_splits else "", document))
    return files


def dataset_of(file: RecordFile) -> Dataset:
    """Returns the Shardwright dataset that a file belongs to.

    Raises:
      UsageError: If its `dataset.json` is damaged.
    """
    with storage.translated_errors("read", file.classes):
        return Dataset.from_bytes(storage.read_bytes(file.classes), file.classes)


def class_names_in(path: str) -> Mapping[int, str]:
    """Returns the class names by id in a file of class names; none if the path is empty."""
    if not path:
        return {}
    with storage.translated_errors("read", path):
        data = storage.read_bytes(path)
    check_utf8(printable(path), data)
    return class_names_of(path, data.decode("utf-8-sig", "replace"))
