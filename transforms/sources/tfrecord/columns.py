"""Reads features of records that are stored as extra columns."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any

from shardwright.schemas.columns import ExtraColumn, column_values, encode_extra
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.example import FeatureType
from shardwright.schemas.layouts import FeatureRole
from shardwright.schemas.tensor_proto import parse_tensor
from shardwright.transforms.sources.tfrecord.record import SourceRecord

#: Largest number of bytes in the extra columns of one image.
_MAX_BYTES = 1 << 20


def extra_of(record: SourceRecord, columns: Mapping[str, str], settings: ConvertSettings) -> str:
    """Returns a record's values of the extra columns, encoded for a reference; empty if there are none.

    Args:
      record: Record to read.
      columns: Mapping of column to feature, for columns whose feature has another name.
      settings: Checked settings.

    Raises:
      ValueError: If a needed value is missing or has the wrong type.
    """
    wanted = settings.parsed_extra_columns
    if not wanted:
        return ""
    values: dict[str, list[Any]] = {}
    size = 0
    for column in wanted:
        name = columns.get(column.name, column.name)
        begin_end = record.features.get(name, ())
        size += sum(begin_end[1::2]) - sum(begin_end[::2])
        if size > _MAX_BYTES:
            raise ValueError(f"its extra columns have more than {_MAX_BYTES:,} bytes")
        found: Any = _values(record, name, column)
        if not column.is_list:
            found = found[0] if len(found) == 1 else found or None
        values[column.name] = column_values(column, found, settings.label_separator)
    return encode_extra(values)


def _values(record: SourceRecord, name: str, column: ExtraColumn) -> list[Any]:
    """Returns the values of a feature, or of its serialized tensor if the column has numbers."""
    feature = record.feature(name)
    values = list(feature.values)
    if len(values) == 1 and feature.type is FeatureType.BYTES and column.type is not FeatureType.BYTES:
        with contextlib.suppress(ValueError):  # the value may be a number as text
            return list(parse_tensor(values[0]).values)
    return values


def check_columns(
    shown: str, names: Collection[str], columns: Mapping[str, str], settings: ConvertSettings
) -> None:
    """Checks that records have the extra columns in the settings.

    Args:
      shown: Name of the input for messages.
      names: Names of the features of some records.
      columns: Mapping of column to feature, for columns whose feature has another name.
      settings: Checked settings.

    Raises:
      UsageError: If a column is missing; the message names the first one.
    """
    layout = settings.record_layout
    any_number = {
        spec.column or spec.name
        for spec in layout.features
        if spec.fill is FeatureRole.EXTRA and None in spec.value_shape
    }
    for column in settings.parsed_extra_columns:
        if column.optional or column.name in any_number:
            continue
        name = columns.get(column.name, column.name)
        if names and name not in names:
            features = ", ".join(sorted(names)[:20])
            raise UsageError(
                f"{settings.option_of(column)}: the records of {shown} have no such feature "
                f"(features: {features}); leave that column out, or name records that have it."
            )
