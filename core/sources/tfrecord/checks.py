"""Checks the first records of an input against the settings, before anything is written."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import IO

from shardwright.core import storage
from shardwright.core.records.compression import compression_of, unpack
from shardwright.core.records.framing import Record
from shardwright.core.records.recovery import read_records
from shardwright.core.sources.tfrecord.images import image_of
from shardwright.core.sources.tfrecord.record import PIXEL_MASKS, FeatureNames, OwnRecords, SourceRecord
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.example import NotAnExample
from shardwright.schemas.feature_roles import FEATURE_ROLES, FLAGS
from shardwright.schemas.image_ref import printable
from shardwright.schemas.layouts import LAYOUTS, FeatureRole, Layout, Needs

#: Number of files to read, of records in each, and of bytes in one that is remote or compressed.
_FILES, _RECORDS, _FIRST_BYTES = 4, 16, 1 << 22
_UNPACKED_BYTES = 1 << 24
#: Largest number of features that a message names.
_MAX_FEATURES = 20
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


def first_records(file: IO[bytes]) -> Iterator[bytes]:
    """Yields the first undamaged records of a file."""
    return (item.data for item in islice(read_records(file), _RECORDS) if isinstance(item, Record))


def _sample(paths: Sequence[str]) -> list[bytes]:
    """Returns the first undamaged records of some of the files."""
    records: list[bytes] = []
    for path in paths[:: max(1, -(-len(paths) // _FILES))]:
        with storage.translated_errors("read", path), _beginning(path) as file:
            records += first_records(file)
    return records


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
    path: str, files: Sequence[str], settings: ConvertSettings, own: OwnRecords | None
) -> list[str]:
    """Returns the names of the features in the first records of some files, sorted.

    Args:
      path: Path of the input.
      files: Its files.
      settings: Checked settings.
      own: Description of the records, if they belong to a dataset of Shardwright.

    Raises:
      UsageError: If no record has an image and the annotations that the layout needs.
    """
    shown = printable(path)
    records: list[SourceRecord] = []
    fault: ValueError | None = None
    for data in _sample(files):
        try:
            records.append(SourceRecord(data, own.feature_names if own else None))
        except ValueError as error:
            fault = error
    if isinstance(fault, NotAnExample) or (fault and not records):
        raise UsageError(
            f"--input {shown}: its records are not tf.train.Example ({fault}); convert reads no others."
        )
    faults = [_image_fault(record, own, settings) for record in records]
    if faults and all(faults):
        raise UsageError(f"--input {shown}: the first record: {faults[0]}.")
    features = sorted({name for record in records for name in record.features})
    _check_needs(shown, features, [record.names for record in records], settings)
    _check_columns(shown, features, own.columns if own else {}, settings)
    return features


def _image_fault(record: SourceRecord, own: OwnRecords | None, settings: ConvertSettings) -> str:
    try:
        image_of(record, own, settings)
    except ValueError as error:
        return str(error)
    return ""


def _lacking(names: FeatureNames, layout: Layout) -> list[str]:
    """Returns descriptions of the annotations that a layout needs and records do not have."""
    have = names.by_role.keys()
    if layout.needs is Needs.LABEL:
        there = not have.isdisjoint((FeatureRole.LABEL, FeatureRole.LABEL_TEXT, FeatureRole.SYNSET))
    elif layout.needs is Needs.OBJECTS:
        there = bool(names.boxes)
    else:
        there = have >= {role for role in PIXEL_MASKS if FEATURE_ROLES[role].needs is layout.needs}
    lacking = [] if there else [_WHAT[layout.needs]]
    if layout.needs is Needs.OBJECTS and names.boxes:
        if have.isdisjoint((FeatureRole.OBJECT_LABEL, FeatureRole.OBJECT_TEXT)):
            lacking.append(_OBJECT_CLASSES)
        for spec in layout.features:
            if spec.fill in _RARE_ROLES and not spec.optional and spec.fill not in have:
                lacking.append(f"{spec.fill.removeprefix('object_')} of the objects (feature {spec.name})")
    return lacking


def _check_needs(
    shown: str, features: Sequence[str], names: Sequence[FeatureNames], settings: ConvertSettings
) -> None:
    """Checks that at least one record has the annotations that the layout needs.

    Args:
      shown: Name of the input for messages.
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
        f"--layout {layout.name}: the records of {shown} have no {' and no '.join(lacking)}; they have the "
        f"features: {listed(features)}; choose --layout {' or '.join(fitting)}{without}."
    )


def listed(features: Sequence[str]) -> str:
    """Returns the names of features, of many the first ones."""
    return ", ".join(features[:_MAX_FEATURES]) + (", ..." if len(features) > _MAX_FEATURES else "")


def _check_columns(
    shown: str, features: Sequence[str], columns: Mapping[str, str], settings: ConvertSettings
) -> None:
    """Checks that records have the extra columns in the settings.

    Args:
      shown: Name of the input for messages.
      features: Names of the features of some records.
      columns: Mapping of column to feature, for columns whose feature has another name.
      settings: Checked settings.

    Raises:
      UsageError: If a column is missing; the message names the first one.
    """
    any_number = {
        spec.column or spec.name
        for spec in settings.record_layout.features
        if spec.fill is FeatureRole.EXTRA and None in spec.value_shape
    }
    for column in settings.parsed_extra_columns if features else ():
        is_needed = not column.optional and column.name not in any_number
        if is_needed and columns.get(column.name, column.name) not in features:
            raise UsageError(
                f"{settings.option_of(column)}: the records of {shown} have no such feature (features: "
                f"{listed(features)}); leave that column out, or name records that have it."
            )
