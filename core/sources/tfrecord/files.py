"""Finds the TFRecord files of an input and the files beside them, and checks the first records."""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import json
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import IO, NamedTuple

from shardwright.core import storage
from shardwright.core.images.signatures import is_image_name
from shardwright.core.records.compression import HEAD_BYTES, compression_of, unpack
from shardwright.core.records.framing import Record, is_header, read_records
from shardwright.core.records.images import image_of
from shardwright.core.records.record import (
    FeatureNames,
    KnownRecords,
    NotAnExample,
    SourceRecord,
    own_records,
)
from shardwright.core.sources.containers import keeps_splits
from shardwright.core.sources.image_files import folder_of, is_hidden, join, split_token
from shardwright.core.sources.input_probe import InputProbe, is_pattern
from shardwright.core.sources.tables.columns import names_shown
from shardwright.schemas.codes import FilterReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.dataset import DATASET_JSON, SHARDS_DIR, WORK_DIR, Dataset
from shardwright.schemas.errors import UsageError
from shardwright.schemas.feature_roles import CLASS_ROLES, FLAGS, PIXEL_MASKS
from shardwright.schemas.labels import MAX_OWN_ID
from shardwright.schemas.layouts import LAYOUTS, FeatureRole, Layout, Needs

#: Name of TFDS's description of a dataset.
_DATASET_INFO = "dataset_info.json"
_SIDE_FILES = re.compile(
    r"(?:dataset_info|features|dataset|validation|run)\.json|quarantine\.jsonl|report\.html|metadata\.json|"
    r".*\.pbtxt|.*labels?\.txt|class(?:_name)?e?s\.txt|_SUCCESS"
)
_CERTAIN = re.compile(r"\.tf_?rec(?:ord)?s?(?=[.\-_]|$)", re.IGNORECASE)
_LIKELY = re.compile(r"tf_?rec|\.record|-\d+-of-\d+", re.IGNORECASE)
_TFDS_SPLIT = re.compile(r".*-([a-z0-9_]{1,64})\.tfrecord-\d+-of-\d+\Z")

#: Number of files to read, of records in each, and of bytes in one that is remote or compressed.
_FILES, _RECORDS, _FIRST_BYTES = 4, 16, 1 << 22
_UNPACKED_BYTES = 1 << 24
#: Descriptions of missing annotations, with the features that contain them in common layouts.
_WHAT = {
    Needs.LABEL: "class of the image (image/class/label, image/class/text, label or the like)",
    Needs.OBJECTS: "boxes (image/object/bbox/xmin, ymin, xmax and ymax, or objects/bbox)",
    Needs.SEMANTIC: "mask with the class of every pixel (image/segmentation/class/encoded)",
    Needs.PANOPTIC: "panoptic masks (image/panoptic/category_mask and image/panoptic/instance_mask)",
}
_OBJECT_CLASSES = "classes of the objects (image/object/class/label or text, or objects/label)"
#: Values of objects that only some sources have, and that have no default.
_RARE_ROLES = (*FLAGS.values(), FeatureRole.OBJECT_VIEW, FeatureRole.OBJECT_MASK, FeatureRole.KEYPOINT_X)
#: Names of such files, most likely first: TF-Slim's and TFDS's for images, the Object Detection API's and
#: TFDS's for objects.
_IMAGE_CLASS_FILES = (
    "labels.txt", "label.labels.txt", "labels.labels.txt", "class_names.txt", "classes.txt",
)  # fmt: skip
_OBJECT_CLASS_FILES = ("label_map.pbtxt", "labelmap.pbtxt", "objects-label.labels.txt")

_NUMBERED = re.compile(r"(\d{1,18}):(.*)\Z")
#: Comments of a label map, and the messages inside its items.
_SKIPPED = re.compile(r"(?m)^\s*#.*$|\bkeypoints\s*:?\s*\{[^{}]*\}")
_ITEM = re.compile(r"item\s*:?\s*\{([^{}]*)\}")
_STRING = r"""\s*:\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')"""
_NAME = re.compile(r"(?<![a-z_])name" + _STRING)
_DISPLAY_NAME = re.compile(r"display_name" + _STRING)
_ID = re.compile(r"(?<![a-z_])id\s*:\s*(\d{1,18})")


class RecordFile(NamedTuple):
    """A file of an input that is read; `InputPart.detail` carries it.

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
        likely = list(filter(_LIKELY.search, folder.files))
        if len(likely) < sum(map(is_image_name, folder.files)):
            return False
        for name in likely[:3]:
            path = storage.join(folder.path, name)
            if _CERTAIN.search(name) or holds_records(name, storage.read_head(path, HEAD_BYTES)):
                return probe.images_below <= len(likely)
    return False


def files_of(
    path: str, is_file: bool, settings: ConvertSettings
) -> tuple[str, list[RecordFile], dict[str, str]]:
    """Returns the folder of an input, its TFRecord files, and file that is not read -> reason.

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
        return folder, own, {}
    if is_file:
        class_files = (*_IMAGE_CLASS_FILES, *_OBJECT_CLASS_FILES, _DATASET_INFO)
        beside = {last, *(name for name in class_files if storage.exists(join(folder, name)))}
    else:
        prefix = folder.rstrip("/") + "/"
        beside = {item.path.removeprefix(prefix) for item in storage.list_objects(folder, deep=not some)}
        if not some and any(name.startswith((f"{SHARDS_DIR}/", f"{WORK_DIR}/")) for name in beside):
            raise UsageError(
                f"--input {path} has no dataset.json: the run that wrote it did not finish; "
                "finish it with convert --resume, or name its complete files one by one."
            )
    files, others = [], dict[str, str]()
    for relative in sorted(fnmatch.filter(beside, pattern)):
        filtered = "" if is_file else _left_out(join(folder, relative), relative)
        if filtered:
            others[relative] = filtered
        elif filtered is not None:
            parent, _, _ = relative.rpartition("/")
            split = split_of(relative, storage.join(parent, _DATASET_INFO) in beside) if keep else ""
            classes = _class_file(folder, parent, beside, settings.record_layout.needs)
            files.append(RecordFile(relative, split, classes))
    return folder, files, others


def _left_out(path: str, relative: str) -> str | None:
    """Returns the reason why a file is not read; empty if it is read, None if it is ignored."""
    name = relative.rpartition("/")[2]
    if is_hidden(relative):
        return FilterReason.DOTFILE
    if _SIDE_FILES.fullmatch(name):
        return None
    if _CERTAIN.search(name):
        return ""
    head = b"" if is_image_name(name) else storage.read_head(path, HEAD_BYTES)
    is_read = holds_records(name, head) or (not head and _LIKELY.search(name) and not is_image_name(name))
    return "" if is_read else FilterReason.UNSUPPORTED_KIND


def split_of(relative: str, tfds: bool = False) -> str:
    """Returns the split in a file's name or folders; empty if they have none.

    >>> split_of("mnist-train.tfrecord-00000-of-00004"), split_of("val/a.tfrecord")
    ('train', 'val')
    """
    name = relative.rpartition("/")[2]
    named = _TFDS_SPLIT.match(name) if tfds else None
    return named[1] if named else split_token(name) or split_token(relative)


def _class_file(folder: str, parent: str, listed: Collection[str], needs: Needs) -> str:
    """Returns the file of class names beside a file or at the top of the input; empty if there is none."""
    images, objects = _IMAGE_CLASS_FILES, _OBJECT_CLASS_FILES
    names = (*objects, *images) if needs is Needs.OBJECTS else (*images, *objects)
    places = [storage.join(place, name) for place, name in product((parent, ""), names)]
    return next((join(folder, place) for place in places if place in listed), "")


def _read_own(path: str, must: bool) -> Dataset | None:
    """Returns the dataset of a `dataset.json`; None if there is none.

    Args:
      path: Path of the document.
      must: Whether a damaged document is an error.
    """
    data = storage.read_if_exists(path)
    if data is None:
        return None
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
    for place, shard in dataset.placed_shards():
        if not fnmatch.fnmatchcase(shard.file, pattern):
            continue
        if not storage.exists(join(folder, shard.file)):
            raise UsageError(
                f"--input {folder} lacks {shard.file}, which its dataset.json names; "
                "restore it, or name the other files one by one."
            )
        files.append(RecordFile(shard.file, place.split if keep_splits else "", document))
    return files


def known_records(file: RecordFile, settings: ConvertSettings, path: str = "") -> KnownRecords:
    """Returns what `dataset.json`, or the file of class names, says about the records of a file.

    Args:
      file: Description of the file.
      settings: Checked settings.
      path: Path of the file if it is going to be listed.

    Raises:
      UsageError: If the file that says it is damaged.
    """
    if not file.classes:
        return KnownRecords()
    data = storage.read_existing(file.classes)
    if file.own:
        return own_records(Dataset.from_bytes(data, file.classes), settings.record_layout, path)
    storage.check_utf8(file.classes, data)
    return KnownRecords(names=class_names_of(file.classes, data.decode("utf-8-sig", "replace")))


def class_names_of(name: str, text: str) -> Mapping[int, str]:
    """Returns id -> class name from such a file; empty if it is not one."""
    names = _parse_label_map(text) if name.endswith(".pbtxt") else _parse_labels(text)
    return {class_id: label for class_id, label in names.items() if label and class_id <= MAX_OWN_ID}


def _parse_labels(text: str) -> dict[int, str]:
    """Reads lines of `id:name`, or lines of names whose ids count from 0."""
    # Names may contain characters that end a line elsewhere, such as U+2028.
    lines = [line.strip() for line in re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff").rstrip())]
    matches = [_NUMBERED.match(line) for line in lines]
    if all(matches):
        return {int(match[1]): match[2].strip().replace("\\n", "\n") for match in matches if match}
    return dict(enumerate(lines))


def _parse_label_map(text: str) -> dict[int, str]:
    """Reads a `StringIntLabelMap` in protobuf's text format, as the TensorFlow Object Detection API uses it.

    Display names replace names that are codes of Open Images.
    """
    names: dict[int, str] = {}
    for item in _ITEM.findall(_SKIPPED.sub("", text)):
        class_id, name, display_name = _ID.search(item), _NAME.search(item), _DISPLAY_NAME.search(item)
        chosen = display_name if display_name and (not name or _unquoted(name).startswith("/m/")) else name
        if class_id and chosen:
            names[int(class_id[1])] = _unquoted(chosen)
    return names


def _unquoted(match: re.Match[str]) -> str:
    """Returns a string without its quotes; its escapes stand for bytes of UTF-8."""
    quoted: str = match[1] if match[1] is not None else match[2]
    unescaped = quoted.encode().decode("unicode_escape", "replace")
    return unescaped.encode("latin-1", "replace").decode("utf-8", "replace")


def first_records(file: IO[bytes]) -> Iterator[bytes]:
    """Yields the first undamaged records of a file."""
    return (item.data for item in islice(read_records(file), _RECORDS) if isinstance(item, Record))


def _sample(paths: Sequence[str]) -> Iterator[bytes]:
    """Yields the first undamaged records of some of the files."""
    for path in paths[:: max(1, -(-len(paths) // _FILES))]:
        with storage.translated_errors("read", path), _beginning(path) as file:
            yield from first_records(file)


def _beginning(path: str) -> IO[bytes]:
    """Opens a local file, or the unpacked first bytes of a remote or compressed file."""
    head = storage.read_head(path, _FIRST_BYTES)
    compression = compression_of(path, head)
    if compression == "none" and not storage.is_remote(path):
        return open(path, "rb")
    file = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    file.write(head if compression == "none" else unpack(head, compression, _UNPACKED_BYTES))
    file.flush()
    return file


def check_sample(
    path: str, files: Sequence[str], settings: ConvertSettings, known_records: KnownRecords
) -> list[str]:
    """Returns the names of the features in the first records of some files, sorted.

    Args:
      path: Path of the input.
      files: Its files.
      settings: Checked settings.
      known_records: What `dataset.json` or the file of class names says about the records.

    Raises:
      UsageError: If no record has an image and the annotations that the layout needs.
    """
    records: list[SourceRecord] = []
    image_faults: list[ValueError] = []
    fault: ValueError | None = None
    for data in _sample(files):
        try:
            records.append(SourceRecord(data, known_records.feature_names))
        except ValueError as error:
            fault = error
            continue
        try:
            image_of(records[-1], known_records, settings)
        except ValueError as error:
            image_faults.append(error)
    if isinstance(fault, NotAnExample) or (fault and not records):
        raise UsageError(
            f"--input {path}: its records are not tf.train.Example ({fault}); convert reads no others."
        )
    if records and len(image_faults) == len(records):
        raise UsageError(f"--input {path}: the first record: {image_faults[0]}.")
    features = sorted({name for record in records for name in record.features})
    _check_needs(path, features, [record.names for record in records], settings)
    _check_columns(path, features, known_records.columns, settings)
    return features


def _lacking(names: FeatureNames, layout: Layout) -> list[str]:
    """Returns descriptions of the annotations that a layout needs and records do not have."""
    have = names.by_role.keys()
    if layout.needs is Needs.LABEL:
        there = not have.isdisjoint(CLASS_ROLES)
    elif layout.needs is Needs.OBJECTS:
        there = bool(names.boxes)
    else:
        there = have >= {role for role in PIXEL_MASKS if role.needs is layout.needs}
    lacking = [] if there else [_WHAT[layout.needs]]
    if layout.needs is Needs.OBJECTS and names.boxes:
        if have.isdisjoint((FeatureRole.OBJECT_LABEL, FeatureRole.OBJECT_TEXT)):
            lacking.append(_OBJECT_CLASSES)
        for spec in layout.features:
            if spec.fill in _RARE_ROLES and not spec.optional and spec.fill not in have:
                lacking.append(f"{spec.fill.removeprefix('object_')} of the objects (feature {spec.name})")
    return lacking


def _check_needs(
    input_name: str, features: Sequence[str], names: Sequence[FeatureNames], settings: ConvertSettings
) -> None:
    """Checks that at least one record has the annotations that the layout needs.

    Args:
      input_name: Name of the input for messages.
      features: Names of the records' features.
      names: Roles of the features of each record.
      settings: Checked settings.

    Raises:
      UsageError: If annotations are missing; the message names them and the layouts that work.
    """
    layout = settings.record_layout
    if not names or (layout.needs is Needs.LABEL and settings.unlabelled == "keep"):
        return
    lacking = min((_lacking(item, layout) for item in names), key=len)
    if not lacking:
        return
    fitting = [name for name, other in LAYOUTS.items() if any(not _lacking(item, other) for item in names)]
    fitting.sort(key=lambda name: LAYOUTS[name].needs is Needs.IMAGE)  # it fits everything
    without = " (or write --unlabelled keep)" if layout.needs is Needs.LABEL else ""
    raise UsageError(
        f"--layout {layout.name}: the records of {input_name} have no {' and no '.join(lacking)}; they have "
        f"the features: {names_shown(features)}; choose --layout {' or '.join(fitting)}{without}."
    )


def _check_columns(
    input_name: str, features: Sequence[str], columns: Mapping[str, str], settings: ConvertSettings
) -> None:
    """Checks that records have the extra columns in the settings.

    Args:
      input_name: Name of the input for messages.
      features: Names of the features of some records.
      columns: Mapping of column to feature, for columns whose feature has another name.
      settings: Checked settings.

    Raises:
      UsageError: If a column is missing; the message names the first one.
    """
    of_any_length = {
        spec.column or spec.name
        for spec in settings.record_layout.features
        if spec.fill is FeatureRole.EXTRA and None in spec.value_shape
    }
    for column in settings.parsed_extra_columns if features else ():
        is_needed = not column.optional and column.name not in of_any_length
        if is_needed and columns.get(column.name, column.name) not in features:
            raise UsageError(
                f"{settings.option_of(column)}: the records of {input_name} have no such feature (features: "
                f"{names_shown(features)}); leave that column out, or name records that have it."
            )
