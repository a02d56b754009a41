"""Which files of an input hold TFRecords, of which split they are, and what lies beside them."""

from __future__ import annotations

import fnmatch
import glob
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from shardwright.schemas.codes import FilterReason
from shardwright.schemas.dataset import DATASET_JSON, SHARDS_DIR, WORK_DIR, Dataset
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.layouts import Needs
from shardwright.transforms import storage
from shardwright.transforms.images.signatures import is_image_name
from shardwright.transforms.records.framing import HEADER_BYTES, compression_of, masked_crc32c
from shardwright.transforms.sources.class_files import IMAGE_CLASS_FILES, OBJECT_CLASS_FILES, class_names_of
from shardwright.transforms.sources.input_probe import InputProbe, is_pattern

#: TFDS's description of a dataset, beside its files.
DATASET_INFO = "dataset_info.json"
_SIDE_FILES = re.compile(
    r"(?:dataset_info|features|dataset|validation|run)\.json|quarantine\.jsonl|report\.html|metadata\.json|"
    r".*\.pbtxt|.*labels?\.txt|class(?:_name)?e?s\.txt|_SUCCESS"
)
_CERTAIN = re.compile(r"\.tf_?rec(?:ord)?s?(?=[.\-_]|$)", re.IGNORECASE)
_LIKELY = re.compile(r"tf_?rec|\.record|-\d+-of-\d+", re.IGNORECASE)
_SHARD_NUMBER = re.compile(r"[-_.]\d+(?:-of-\d+)?(?=\.|$)")
_SUFFIX = re.compile(r"\.(?:tf_?rec(?:ord)?s?|record|gz|zlib)(?=[.\-_]|$)", re.IGNORECASE)
_SPLIT_WORD = re.compile(
    r"(train|training|val|valid|validation|minival|dev|test|testing|eval)(?:19|20)?\d{0,2}\Z"
)
_TFDS_SPLIT = re.compile(r".*-([a-z0-9_]{1,64})\.tfrecord-\d+-of-\d+\Z")
_ZLIB_SIZES = b"\x78\x68\x58\x48\x38\x28\x18\x08"
#: Folders that a glance goes into.
_FOLDERS_LOOKED_INTO = 16


@dataclass(frozen=True)
class RecordFile:
    """A file of an input.

    Attributes:
      relative: its path below the input; its name if it is the input.
      split: that it belongs to; empty where nothing says it.
      own: whether a `dataset.json` names it.
      records: how many it should have; -1 when unknown.
      classes: the file that lists its class names; empty without one.
      filtered: why it is not read, if so.
    """

    relative: str
    split: str = ""
    own: bool = False
    records: int = -1
    classes: str = ""
    filtered: str = ""

    def encode(self) -> str:
        """Returns it as a `Part` carries it."""
        return json.dumps(list(vars(self).values()))

    @staticmethod
    def decode(text: str) -> RecordFile:
        """Reads what `encode` wrote."""
        return RecordFile(*json.loads(text))


def is_frame(head: bytes) -> bool:
    """Whether bytes begin with the header of a TFRecord."""
    return len(head) >= HEADER_BYTES and masked_crc32c(head[:8]) == int.from_bytes(head[8:12], "little")


def compression_in(name: str, head: bytes) -> str:
    """Tells a file's compression from its first bytes, or from its name if these say nothing."""
    if is_frame(head):
        return "none"
    if head[:1] and head[0] in _ZLIB_SIZES and is_frame(unpack(head, "zlib")):
        return "zlib"
    return compression_of(name, head)


def unpack(head: bytes, compression: str, limit: int = HEADER_BYTES) -> bytes:
    """Unpacks the beginning of a file, as far as it can be."""
    try:
        unpacker = zlib.decompressobj({"gzip": 31, "zlib": 15}[compression])
        return unpacker.decompress(head, limit)
    except zlib.error:
        return b""


def holds_records(name: str, head: bytes) -> bool:
    """Whether a file's first bytes are those of TFRecords, compressed or not."""
    compression = compression_in(name, head)
    return is_frame(head if compression == "none" else unpack(head, compression))


def accepts(glimpse: InputProbe) -> bool:
    """Whether an input is a dataset directory, or mainly of TFRecord files."""
    if glimpse.is_file:
        return bool(_CERTAIN.search(glimpse.name)) or holds_records(glimpse.name, glimpse.head)
    if DATASET_JSON in glimpse.files:
        text = _text(storage.join(glimpse.path, DATASET_JSON))
        if '"format_version"' in text and '"splits"' in text:
            return True
    looked = 0
    folders = [glimpse]
    while folders and looked < _FOLDERS_LOOKED_INTO:
        folder = folders.pop(0)
        looked += 1
        likely = [name for name in folder.files if _LIKELY.search(name) and not name.startswith(".")]
        pictures = sum(map(is_image_name, folder.files))
        if len(likely) < pictures:
            return False
        for name in likely[:3]:
            if _CERTAIN.search(name) or holds_records(
                name, storage.read_head(storage.join(folder.path, name), 4096)
            ):
                return glimpse.images_below <= len(likely)
        children = [name for name in folder.folders if not name.startswith(".")]
        folders += [InputProbe(storage.join(folder.path, name), is_file=False) for name in children[:8]]
    return False


def path_of(path: str, is_file: bool, file: RecordFile) -> str:
    """Returns the path of one of the files of an input."""
    if is_file:
        return path
    return storage.join(_folder_of(path) if is_pattern(path) else path, file.relative)


def _folder_of(path: str) -> str:
    """Returns the folder that something lies in."""
    folder, slash, _ = path.rpartition("/")
    return folder or slash or "."


def files_of(path: str, is_file: bool, needs: Needs, keep_splits: bool) -> Iterator[RecordFile]:
    """Yields what an input has: its TFRecord files, and what is left out of it.

    A finished dataset has the files that its `dataset.json` names and no others. Elsewhere splits
    are told from names of files (`train-00000-of-00008`, `mnist-train.tfrecord-...`) and folders.

    Args:
      path: the input, whose last part may be a pattern.
      is_file: whether it is a single file.
      needs: what the layout is about, for the class names.
      keep_splits: whether the splits of the source count.

    Raises:
      UsageError: if a dataset is damaged, or was not finished.
    """
    path = path.rstrip("/") or "/"
    some = is_file or is_pattern(path)
    folder = _folder_of(path) if some else path
    only = path.rpartition("/")[2] if is_file else ""
    pattern = (glob.escape(only) or path.rpartition("/")[2]) if some else "*"
    dataset = _read_own(storage.join(folder, DATASET_JSON), must=not some)
    if dataset:
        files = [item.file for items in dataset.splits.values() for item in items]
        if not some or any(fnmatch.fnmatchcase(str(file), pattern) for file in files):
            yield from _own_files(folder, dataset, pattern, keep_splits)
            return
    if is_file:
        names = [
            name
            for name in (*IMAGE_CLASS_FILES, *OBJECT_CLASS_FILES, DATASET_INFO)
            if storage.exists(storage.join(folder, name))
        ]
        beside = [only, *names]
    else:
        beside = _names_in(folder) if some else storage.list_files(folder)
        if not some and any(name.startswith((f"{SHARDS_DIR}/", f"{WORK_DIR}/")) for name in beside):
            raise UsageError(
                f"--input {printable(path)} has no dataset.json: the run that wrote it did not finish; "
                "finish it with convert --resume, or name its sound files one by one."
            )
    listed = set(beside)
    for relative in sorted(beside):
        if some and not fnmatch.fnmatchcase(relative, pattern):
            continue
        filtered = "" if is_file else _left_out(storage.join(folder, relative), relative)
        if filtered is None:
            continue
        split = split_of(relative, _beside(relative, DATASET_INFO) in listed) if keep_splits else ""
        yield RecordFile(
            relative, split, classes=_class_file(folder, relative, listed, needs), filtered=filtered
        )


def _names_in(folder: str) -> list[str]:
    """Returns the names of the files directly in a folder, however many there are; none if it is missing."""
    if storage.is_remote(folder):
        return [name for name in storage.list_files(folder) if "/" not in name]
    if not os.path.isdir(folder):
        return []
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if not entry.is_dir()]


def _beside(relative: str, name: str) -> str:
    parent = relative.rpartition("/")[0]
    return f"{parent}/{name}" if parent else name


def _left_out(path: str, relative: str) -> str | None:
    """Returns why a file is not read: a filter reason, empty if it is, None if nobody counts it."""
    name = relative.rpartition("/")[2]
    if any(part.startswith(".") for part in relative.split("/")):
        return FilterReason.DOTFILE
    if _SIDE_FILES.fullmatch(name):
        return None
    if _CERTAIN.search(name):
        return ""
    if is_image_name(name):
        return FilterReason.UNSUPPORTED_KIND
    head = storage.read_head(path, 4096)
    if holds_records(name, head) or (not head and _LIKELY.search(name)):
        return ""
    return FilterReason.UNSUPPORTED_KIND


def split_of(relative: str, tfds: bool = False) -> str:
    """Returns the split that a file's name or its folders say; empty if they say none.

    >>> split_of("mnist-train.tfrecord-00000-of-00004"), split_of("val/a.tfrecord")
    ('train', 'val')
    """
    *folders, name = relative.split("/")
    named = _TFDS_SPLIT.match(name)
    if tfds and named:
        return named[1]
    words = re.split(r"[-_.]", _SHARD_NUMBER.sub("", _SUFFIX.sub("", name)).lower())
    for word in (words[-1], words[0], *(folder.lower() for folder in reversed(folders))):
        found = _SPLIT_WORD.match(word)
        if found:
            return found[1]
    return ""


def _class_file(folder: str, relative: str, listed: Iterable[str], needs: Needs) -> str:
    """Returns the file that lists class names, beside a file or at the top; empty without one."""
    names = (
        (*OBJECT_CLASS_FILES, *IMAGE_CLASS_FILES)
        if needs is Needs.OBJECTS
        else (*IMAGE_CLASS_FILES, *OBJECT_CLASS_FILES)
    )
    for place in dict.fromkeys((_beside(relative, ""), "")):
        for name in names:
            if place + name in listed:
                return storage.join(folder, place + name)
    return ""


def _read_own(path: str, must: bool) -> Dataset | None:
    """Returns the dataset of a `dataset.json`; None if there is none.

    Args:
      path: of the document.
      must: whether a damaged one is an error.
    """
    with storage.translated_errors("read", path):
        if not storage.exists(path):
            return None
        try:
            document = json.loads(storage.read_bytes(path))
        except (ValueError, RecursionError):
            if must:
                raise UsageError(f"{path} is no JSON; restore it or convert again.") from None
            return None
    if not isinstance(document, Mapping) or "format_version" not in document:
        return None
    try:
        return Dataset.from_json(document, path)
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
                    "restore it, or name the files that are there one by one."
                )
            yield RecordFile(shard.file, split if keep_splits else "", True, shard.records, document)


def dataset_of(file: RecordFile) -> Dataset:
    """Returns the dataset of ours that a file belongs to.

    Raises:
      UsageError: if its `dataset.json` is gone or damaged.
    """
    dataset = _read_own(file.classes, must=True)
    if dataset is None:
        raise UsageError(f"{printable(file.classes)} is gone or damaged; restore it or convert again.")
    return dataset


def class_names_in(path: str) -> Mapping[int, str]:
    """Returns id -> class name of a `dataset.json`, or another file that lists them; empty without one."""
    if not path:
        return {}
    if path.rpartition("/")[2] == DATASET_JSON:
        dataset = _read_own(path, must=True)
        return dict(enumerate(dataset.labels, dataset.first_label)) if dataset else {}
    with storage.translated_errors("read", path):
        return class_names_of(path, _text(path))


def _text(path: str) -> str:
    return storage.read_bytes(path).decode("utf-8", "replace")
