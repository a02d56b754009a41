"""Sums over the values of the records' features, with the numbers that TensorFlow Data Validation reports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardwright.schemas.example import Feature, FeatureType
from shardwright.schemas.feature_roles import PIXEL_MASKS, FeatureRole
from shardwright.schemas.json_values import from_json, to_json
from shardwright.schemas.layouts import Encoding, FeatureSpec
from shardwright.schemas.statistics.sketches import FLOAT32_BITS, Histogram, ValueCounts
from shardwright.schemas.values import ValueType

#: Maximum number of distinct values to count: of categories, and of other values.
MAX_CATEGORIES, _MAX_VALUES = 1 << 17, 1000
#: Maximum number of features of records, those whose names come first.
_MAX_FEATURES = 1 << 12
#: Roles of features with bytes that are not text.
_BLOBS = frozenset({FeatureRole.ENCODED, FeatureRole.OBJECT_MASK, *PIXEL_MASKS})
#: The first bytes of the formats that TFDV distinguishes (tensorflow_data_validation/statistics/generators).
_FORMATS = {"bmp": b"BM", "gif": b"GIF8", "jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}
#: Roles of features whose values are names or numbers of a known set.
_CATEGORIES = frozenset(
    {
        FeatureRole.LABEL,
        FeatureRole.LABEL_TEXT,
        FeatureRole.SYNSET,
        FeatureRole.OBJECT_LABEL,
        FeatureRole.OBJECT_TEXT,
        FeatureRole.KEYPOINT_TEXT,
        FeatureRole.FORMAT,
        FeatureRole.DTYPE,
        FeatureRole.SPLIT,
        FeatureRole.FOLD,
    }
)


def is_texts(sums: FeatureStatistics) -> bool:
    """Returns whether a feature's values are texts; false if that is not known."""
    return sums.type is FeatureType.BYTES and sums.values is not None


@dataclass
class FeatureStatistics:
    """Sums over the values of one feature.

    Attributes:
      type: Type of the values.
      fill: Role of the feature (`FeatureRole`); empty if unknown.
      lengths: Number of values per record, over the records that have the feature.
      numbers: The values of numbers; for bytes, their lengths.
      values: Occurrences of each value, for texts and categories.
      nan: Number of values that are NaN.
      low_infinite: Number of values that are minus infinity.
      high_infinite: Number of values that are infinity.
      not_utf8: Number of values that are not UTF-8.
      formats: For bytes that are not text: TFDV's name of the image format (empty if it knows none) ->
        values.
    """

    type: FeatureType
    fill: str = ""
    lengths: Histogram = field(default_factory=Histogram)
    numbers: Histogram = field(default_factory=Histogram)
    values: ValueCounts | None = None
    nan: int = 0
    low_infinite: int = 0
    high_infinite: int = 0
    not_utf8: int = 0
    formats: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(type_: FeatureType, spec: FeatureSpec | None) -> FeatureStatistics:
        """Returns empty statistics for a feature.

        Args:
          type_: Type of its values.
          spec: Its description in the layout, if known.
        """
        is_category = is_blob = False
        if spec is not None:
            is_category = spec.fill in _CATEGORIES or spec.value_type in (ValueType.ENUM, ValueType.BOOL)
            is_blob = spec.fill in _BLOBS or spec.encoding is Encoding.TENSOR
        value_counts = None
        if is_category and type_ is not FeatureType.FLOAT:
            value_counts = ValueCounts(MAX_CATEGORIES)
        elif type_ is FeatureType.BYTES and not is_blob:
            value_counts = ValueCounts(_MAX_VALUES)
        numbers = Histogram(FLOAT32_BITS if type_ is FeatureType.FLOAT else 0)
        fill = spec.fill.value if spec is not None and spec.fill is not None else ""
        return FeatureStatistics(type_, fill, numbers=numbers, values=value_counts)

    def add(self, values: Sequence[Any]) -> None:
        """Adds the values of one record."""
        self.lengths.add(len(values))
        if self.type is FeatureType.BYTES:
            for value in values:
                self._add_bytes(value)
        elif self.type is FeatureType.INT64:
            for value in values:
                self.numbers.add(value)
                if self.values is not None:
                    self.values.add(str(value).encode())
        else:
            for value in values:
                self._add_float(value)

    def _add_bytes(self, value: bytes) -> None:
        self.numbers.add(len(value))
        if self.values is None:
            found = (name for name, magic in _FORMATS.items() if value.startswith(magic))
            format_ = next(found, "")
            self.formats[format_] = self.formats.get(format_, 0) + 1
            return
        self.values.add(value)
        try:
            value.decode()
        except UnicodeDecodeError:
            self.not_utf8 += 1

    def _add_float(self, value: float) -> None:
        if math.isfinite(value):
            self.numbers.add(value)
        elif math.isnan(value):
            self.nan += 1
        elif value > 0:
            self.high_infinite += 1
        else:
            self.low_infinite += 1

    @property
    def text_bytes(self) -> int:
        """Number of bytes of all values; for numbers that are counted, the bytes of their digits."""
        if self.type is FeatureType.BYTES or self.values is None:
            return self.numbers.total
        return sum(len(value) * times for value, times in self.values.most_common())

    def merge(self, other: FeatureStatistics) -> FeatureStatistics:
        """Adds the sums over other values of the same feature and type; returns itself."""
        self.lengths.merge(other.lengths)
        self.numbers.merge(other.numbers)
        if self.values is not None and other.values is not None:
            self.values.merge(other.values)
        self.nan += other.nan
        self.low_infinite += other.low_infinite
        self.high_infinite += other.high_infinite
        self.not_utf8 += other.not_utf8
        for name, count in other.formats.items():
            self.formats[name] = self.formats.get(name, 0) + count
        return self


def keep_first(items: dict[Any, Any], most: int) -> None:
    """Keeps only the items with the first keys in order, if there are more than twice as many.

    An item among the first of all parts together is among the first of each part that has it, so it is never
    dropped. Other items may be dropped in some parts; `first_of` leaves them out.
    """
    if len(items) > 2 * most:
        for key in sorted(items)[most:]:
            del items[key]


def first_of(items: Mapping[Any, Any], most: int) -> dict[Any, Any]:
    """Returns the items with the first keys, in order."""
    return {key: items[key] for key in sorted(items)[:most]}


@dataclass
class RecordStatistics:
    """Sums over the features of some records.

    Attributes:
      records: Number of records.
      features: Name and type of values -> sums. A feature that has two types occurs twice, which is an error.
    """

    records: int = 0
    features: dict[tuple[str, FeatureType], FeatureStatistics] = field(default_factory=dict)

    def add(self, features: Mapping[str, Feature], specs: Mapping[str, FeatureSpec]) -> None:
        """Adds a record.

        Args:
          features: Its features, as they are stored.
          specs: Name of a feature -> its description in the layout, if known.
        """
        self.records += 1
        for name, feature in features.items():
            if feature.type is None:
                continue
            key = name, feature.type
            sums = self.features.get(key)
            if sums is None:
                sums = self.features[key] = FeatureStatistics.of(feature.type, specs.get(name))
            sums.add(feature.values)
        keep_first(self.features, _MAX_FEATURES)

    def merge(self, other: RecordStatistics) -> RecordStatistics:
        """Adds the sums over other records; returns itself."""
        self.records += other.records
        for key, sums in other.features.items():
            if key not in self.features:
                self.features[key] = FeatureStatistics(
                    sums.type, sums.fill, Histogram(), Histogram(sums.numbers.bits),
                    None if sums.values is None else ValueCounts(sums.values.most),
                )  # fmt: skip
            self.features[key].merge(sums)
        keep_first(self.features, _MAX_FEATURES)
        return self

    def first_features(self) -> dict[tuple[str, FeatureType], FeatureStatistics]:
        """Returns the features in order, or the first of them if there are far too many."""
        return first_of(self.features, _MAX_FEATURES)

    def as_json(self) -> dict[str, Any]:
        """Returns the sums as they are stored."""
        return {
            "records": self.records,
            "features": [[name, to_json(sums)] for (name, _), sums in self.first_features().items()],
        }

    @staticmethod
    def from_json(state: Mapping[str, Any]) -> RecordStatistics:
        """Reads the result of `as_json`."""
        made = [(name, from_json(FeatureStatistics, sums)) for name, sums in state["features"]]
        return RecordStatistics(state["records"], {(name, sums.type): sums for name, sums in made})
