"""`statistics.json`: statistics of a dataset, per split and per class, computed from sums that can be merged.

Counts, sums, extremes, means and deviations are exact, quantiles accurate to 0.4 %. All sums are integers, so
the document does not depend on the parts and their order.

    format_version      version of this document
    normalize           split -> mean and std of each channel, 0 to 1, as `Normalize` takes them
    splits              split -> the fields below; records of unknown split have an empty name
    total               the same over all splits
      all               fields of all decoded pictures: records, unlabelled, formats, channels
                        (number -> pictures), spreads of bytes, width, height, aspect_ratio (width by height),
                        megapixels, boxes and scores
        pixels          mean and std over all pixels, and `per_image` with equal weight for each picture.
                        If any picture has colors, all are read as RGB (gray repeated, alpha ignored).
      classes           class -> the same without quantiles; classes beyond the largest 1,000: only records
      number_of_classes estimated above 131,072
      objects           classes -> number of objects, if records have objects
    a spread            count, min, max, mean, std, median, quantiles (as NumPy means them), and a histogram
                        with one more edge than counts

Statistics of samples are in the pictures' own units, and on the scale on which they are trained. Integers are
trained on a scale from 0 to 1, floats as they are: so does the loader with a float type. If the records do
not state the type of their samples, pictures are measured as they are displayed, in 8 bits.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple, Self, TypeAlias

from shardwright.schemas.example import Feature, FeatureType
from shardwright.schemas.feature_roles import IMAGE_ROLES, FeatureRole
from shardwright.schemas.json_values import from_json, to_json
from shardwright.schemas.layouts import Encoding, FeatureSpec
from shardwright.schemas.pictures import SCORES, ChannelSamples, ImageQuality, Picture, Samples
from shardwright.schemas.sample_types import HIGHEST
from shardwright.schemas.sketches import (
    FLOAT32_BITS,
    FRACTION_BITS,
    Histogram,
    Moments,
    Sums,
    ValueCounts,
    rounded,
    square_root,
)
from shardwright.schemas.splits import by_split
from shardwright.schemas.values import ValueType

#: Maximum number of distinct values to count: of categories, and of other values.
MAX_CATEGORIES, _MAX_VALUES = 1 << 17, 1000
#: Maximum number of features of records, those whose names come first.
_MAX_FEATURES = 1 << 12
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


@dataclass
class FeatureStatistics(Sums):
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
    formats: Counter[str] = field(default_factory=Counter)

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
            is_blob = spec.fill in IMAGE_ROLES or spec.encoding is Encoding.TENSOR
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
                if math.isfinite(value):
                    self.numbers.add(value)
                elif math.isnan(value):
                    self.nan += 1
                elif value > 0:
                    self.high_infinite += 1
                else:
                    self.low_infinite += 1

    def _add_bytes(self, value: bytes) -> None:
        self.numbers.add(len(value))
        if self.values is None:
            formats = (name for name, magic in _FORMATS.items() if value.startswith(magic))
            self.formats[next(formats, "")] += 1
            return
        self.values.add(value)
        try:
            value.decode()
        except UnicodeDecodeError:
            self.not_utf8 += 1


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
class RecordStatistics(Sums):
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

    def merge(self, other: Self) -> Self:
        """Adds the sums over other records; returns itself."""
        super().merge(other)
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
        features = [(name, from_json(FeatureStatistics, sums)) for name, sums in state["features"]]
        return RecordStatistics(state["records"], {(name, sums.type): sums for name, sums in features})


FORMAT_VERSION = 1
#: Number of classes of a split to describe, the largest ones; for others only the number of records is given.
MAX_DESCRIBED_CLASSES = 1000
#: Number of classes to keep sums for, those whose names come first.
_MAX_CLASSES = 1 << 15
#: Maximum number of values on one line of the document.
_SHORT = 8
_FLOAT = "float32"
#: Type of the samples of pictures whose records do not state it.
_NOT_STATED = ""
#: Type of samples -> number of its units (those of `Moments.total`) in 1.0 of the scale for training.
_UNITS_IN_ONE: Mapping[str, int] = {**HIGHEST, _FLOAT: 1 << FLOAT32_BITS, _NOT_STATED: HIGHEST["uint8"]}
#: Number of color channels. Gray is repeated if other pictures have colors.
_COLORS = 3

#: Weight, sum, and sum of squares.
_Sums: TypeAlias = tuple[int, int, int]


@dataclass
class ChannelStatistics(Sums):
    """Sums over one channel of some pictures.

    Attributes:
      values: The finite samples.
      nan: Number of samples that are NaN.
      infinite: Number of samples that are infinite.
      images: Number of pictures with a finite sample.
      means: Sum of the means of these pictures, in the unit of `values.total` times 2^40.
      mean_squares: Sum of their mean squares, in the unit of `values.squares` times 2^40.
    """

    values: Moments
    nan: int = 0
    infinite: int = 0
    images: int = 0
    means: int = 0
    mean_squares: int = 0

    def add(self, samples: ChannelSamples) -> None:
        """Adds the samples of a picture."""
        self.nan += samples.nan
        self.infinite += samples.infinite
        if not samples.finite:
            return
        bits, low, high = self.values.bits, samples.low, samples.high
        self.values.merge(Moments(bits, samples.finite, samples.total, samples.squares, low, high))
        self.images += 1
        self.means += (samples.total << FRACTION_BITS) // samples.finite
        self.mean_squares += (samples.squares << FRACTION_BITS) // samples.finite


class Kind(NamedTuple):
    """What pictures must share so that their samples are added up: the type, and the number of channels."""

    dtype: str
    channels: int


@dataclass
class KindStatistics(Sums):
    """Sums over the pictures of one kind.

    Attributes:
      images: Number of pictures.
      channels: Sums over each channel.
    """

    images: int = 0
    channels: list[ChannelStatistics] = field(default_factory=list)


@dataclass
class SampleStatistics(Sums):
    """Sums over the samples of pictures; merged in any order.

    Attributes:
      kinds: Kind of pictures -> sums.
    """

    kinds: dict[Kind, KindStatistics] = field(default_factory=dict)

    def add(self, quality: ImageQuality) -> None:
        """Adds a picture."""
        samples = quality.samples
        if samples is None:
            if not quality.pixels:
                return
            sums = zip(quality.sums, quality.squares)
            samples = Samples(
                _NOT_STATED,
                tuple(ChannelSamples(quality.pixels, total, square, 0, 0) for total, square in sums),
            )
        kind = Kind(samples.dtype, len(samples.channels))
        if kind not in self.kinds:
            bits = FLOAT32_BITS if kind.dtype == _FLOAT else 0
            channels = [ChannelStatistics(Moments(bits)) for _ in samples.channels]
            self.kinds[kind] = KindStatistics(channels=channels)
        self.kinds[kind].images += 1
        for channel, measured in zip(self.kinds[kind].channels, samples.channels):
            channel.add(measured)

    @property
    def stated(self) -> dict[Kind, KindStatistics]:
        """The sums over pictures whose records state the type of their samples, in order."""
        return {kind: sums for kind, sums in sorted(self.kinds.items()) if kind.dtype != _NOT_STATED}

    def images_by_channels(self) -> dict[str, int]:
        """Returns the number of pictures with each number of channels."""
        images: Counter[int] = Counter()
        for kind, sums in self.kinds.items():
            images[kind.channels] += sums.images
        return {str(channels): count for channels, count in sorted(images.items())}

    def as_json(self) -> dict[str, Any]:
        """Returns the readable form, in the samples' own units: type -> number of channels -> lists."""
        document: dict[str, Any] = {}
        for kind, sums in self.stated.items():
            rows = [channel.values if channel.values.count else None for channel in sums.channels]
            pixels = {
                "images": sums.images,
                "mean": [None if values is None else rounded(values.mean) for values in rows],
                "std": [None if values is None else rounded(values.deviation) for values in rows],
                "min": [None if values is None else rounded(values.low, 9) for values in rows],
                "max": [None if values is None else rounded(values.high, 9) for values in rows],
            }
            if kind.dtype == _FLOAT:
                pixels["nan"] = [channel.nan for channel in sums.channels]
                pixels["infinite"] = [channel.infinite for channel in sums.channels]
            document.setdefault(kind.dtype, {})[str(kind.channels)] = pixels
        return document

    def scaled_json(self) -> dict[str, Any] | None:
        """Returns means and deviations over all pictures on the scale for training; None without pictures.

        If types are stated and all pictures have the same number of channels, each channel counts. Otherwise,
        if any picture has colors, all are read as colors: gray is repeated, and of other channels the first
        three count.
        """
        kinds = self.stated or self.kinds  # all records of a dataset state the type of their samples, or none
        if not kinds:
            return None
        counts = {kind.channels for kind in kinds}
        all_count = len(counts) == 1 and bool(self.stated)
        number = max(counts) if all_count else _COLORS if max(counts) >= _COLORS else 1
        scale = math.lcm(*(_UNITS_IN_ONE[kind.dtype] for kind in kinds))
        all_pixels: list[list[_Sums]] = [[] for _ in range(number)]
        equal_weight: list[list[_Sums]] = [[] for _ in range(number)]
        for kind, sums in kinds.items():
            channels, f = sums.channels, scale // _UNITS_IN_ONE[kind.dtype]
            chosen = channels[:number] if len(channels) >= number else channels[:1] * number
            for i, one in enumerate(chosen):
                all_pixels[i].append((one.values.count, one.values.total * f, one.values.squares * f**2))
                equal_weight[i].append((one.images << FRACTION_BITS, one.means * f, one.mean_squares * f**2))
        first = [sums.channels[0] for sums in kinds.values()]
        return {
            "images": sum(sums.images for sums in kinds.values()),
            "pixels": sum(one.values.count + one.nan + one.infinite for one in first),
            **_mean_and_std(all_pixels, scale),
            "per_image": _mean_and_std(equal_weight, scale),
        }


def _mean_and_std(columns: Iterable[Iterable[_Sums]], scale: int) -> dict[str, list[float | None]]:
    """Returns mean and deviation of each channel; None for a channel without samples.

    Args:
      columns: The sums of each channel, in a unit that all parts share.
      scale: Number of these units in 1.0.
    """
    means, deviations = list[float | None](), list[float | None]()
    for parts in columns:
        weight, total, squares = map(sum, zip(*parts))
        means.append(rounded(total / (weight * scale)) if weight else None)
        variance = weight * squares - total * total, weight**2 * scale**2
        deviations.append(rounded(square_root(*variance)) if weight else None)
    return {"mean": means, "std": deviations}


_WHOLE = ("boxes.per_image", "bytes", "height", "width")
_SHARES = ("boxes.area", "boxes.height", "boxes.width", *(f"scores.{name}" for name in SCORES))


@dataclass
class PictureStatistics(Sums):
    """Sums over some pictures; any number of them can be merged, in any order.

    Attributes:
      of_class: Whether it is about a class, for which fewer statistics are kept.
      records: Number of pictures.
      unlabelled: Number of pictures without a class.
      boxes: Number of objects in them.
      formats: Format detected from the bytes -> pictures.
      spreads: Name -> moments or histogram of its values.
      samples: Sums over the samples of the pictures.
    """

    of_class: bool = False
    records: int = 0
    unlabelled: int = 0
    boxes: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    spreads: dict[str, Moments] = field(default_factory=dict)
    samples: SampleStatistics = field(default_factory=SampleStatistics)

    def add(self, picture: Picture) -> None:
        """Adds a picture."""
        self.records += 1
        self.unlabelled += not picture.labels
        self.boxes += len(picture.boxes)
        self.formats[picture.format] += 1
        self._add("bytes", picture.bytes)
        self._add("width", picture.width)
        self._add("height", picture.height)
        self._add("aspect_ratio", picture.width / max(1, picture.height))
        if picture.quality is not None:
            self.samples.add(picture.quality)
        if self.of_class:
            return
        self._add("megapixels", picture.width * picture.height / 1e6)
        self._add("boxes.per_image", len(picture.boxes))
        for width, height in picture.boxes:
            if width >= 0 and height >= 0 and math.isfinite(width) and math.isfinite(height):
                self._add("boxes.width", width)
                self._add("boxes.height", height)
                self._add("boxes.area", width * height)
        for name, score in zip(SCORES, picture.quality.scores if picture.quality is not None else ()):
            if math.isfinite(score):
                self._add(f"scores.{name}", score)

    def _add(self, name: str, value: float) -> None:
        spread = self.spreads.get(name)
        if spread is None:
            kind = Moments if self.of_class else Histogram  # without bins, because there are many classes
            spread = self.spreads[name] = kind(0 if name in _WHOLE else FRACTION_BITS)
        spread.add(value)

    def as_json(self) -> dict[str, Any]:
        """Returns the readable form."""
        pixels = self.samples.scaled_json()
        document: dict[str, Any] = {
            "bytes": self._spread("bytes") | {"sum": self.spreads["bytes"].sum if self.records else 0},
            "channels": self.samples.images_by_channels(),
            "formats": dict(sorted(self.formats.items())),
            "records": self.records,
            **({} if pixels is None else {"pixels": pixels}),
            **{name: self._spread(name) for name in ("aspect_ratio", "height", "width")},
        }
        if self.of_class:
            return dict(sorted(document.items()))
        if samples := self.samples.as_json():
            document["samples"] = samples
        document["megapixels"] = self._spread("megapixels")
        document["unlabelled"] = self.unlabelled
        if self.boxes:
            parts = ("area", "height", "per_image", "width")
            document["boxes"] = {part: self._spread(f"boxes.{part}") for part in parts}
            document["boxes"]["count"] = self.boxes
        scores = {name: self._spread(f"scores.{name}") for name in SCORES if f"scores.{name}" in self.spreads}
        if scores:
            document["scores"] = scores
        return dict(sorted(document.items()))

    def _spread(self, name: str) -> dict[str, Any]:
        spread = self.spreads.get(name, Moments())
        return spread.summary(name in _SHARES) if isinstance(spread, Histogram) else spread.summary()


@dataclass
class SplitStatistics(Sums):
    """Sums over one split.

    Attributes:
      pictures: Sums over all of its pictures.
      labels: Number of pictures of each class.
      classes: Class name -> sums over the pictures of the class.
      records: Sums over the features of its records.
    """

    pictures: PictureStatistics = field(default_factory=PictureStatistics)
    labels: ValueCounts = field(default_factory=lambda: ValueCounts(MAX_CATEGORIES))
    classes: dict[str, PictureStatistics] = field(default_factory=dict)
    records: RecordStatistics = field(default_factory=RecordStatistics)

    def add(self, picture: Picture) -> None:
        """Adds a picture; a picture of several classes counts for each of them."""
        self.pictures.add(picture)
        for label in dict.fromkeys(picture.labels):
            self.labels.add(label.encode("utf-8", "replace"))
            if label not in self.classes:
                self.classes[label] = PictureStatistics(of_class=True)
            self.classes[label].add(picture)
        keep_first(self.classes, _MAX_CLASSES)

    def merge(self, other: Self) -> Self:
        """Adds the sums over other records; returns itself."""
        super().merge(other)
        keep_first(self.classes, _MAX_CLASSES)
        return self

    def as_json(self) -> dict[str, Any]:
        """Returns the readable form."""
        stored = first_of(self.classes, _MAX_CLASSES)
        counted = {name.decode(): count for name, count in self.labels.most_common()}
        described = [name for name in counted or stored if name in stored][:MAX_DESCRIBED_CLASSES]
        classes: dict[str, Any] = {name: {"records": count} for name, count in counted.items()}
        classes |= {name: stored[name].as_json() for name in described}
        objects = self._objects()
        return {
            "all": self.pictures.as_json(),
            "classes": dict(sorted(classes.items())),
            "number_of_classes": self.labels.unique,
            **({"objects": {"classes": objects}} if objects else {}),
        }

    def _objects(self) -> dict[str, int]:
        """Returns the number of objects of each class, by class name or, if there are no names, by id."""
        document = {
            sums.fill: sums.values
            for sums in self.records.first_features().values()
            if sums.values is not None
        }
        value_counts = document.get(FeatureRole.OBJECT_TEXT) or document.get(FeatureRole.OBJECT_LABEL)
        counted = value_counts.most_common() if value_counts is not None else ()
        return dict(sorted((name.decode("utf-8", "replace"), count) for name, count in counted))


@dataclass
class Statistics(Sums):
    """Sums per split; any number of them can be merged, in any order.

    Attributes:
      splits: Name of a split -> its sums.
    """

    splits: dict[str, SplitStatistics] = field(default_factory=dict)

    @staticmethod
    def of_shard(
        split: str, pictures: Iterable[Picture], records: RecordStatistics | None = None
    ) -> Statistics:
        """Returns the statistics of a shard.

        Args:
          split: Split of the shard, which is listed even if the shard is empty.
          pictures: Pictures of its records.
          records: Sums over the features of its records.
        """
        sums = SplitStatistics(records=records or RecordStatistics())
        for picture in pictures:
            sums.add(picture)
        return Statistics({split: sums})

    def total(self) -> SplitStatistics:
        """Returns the sums over all splits."""
        return reduce(SplitStatistics.merge, self.splits.values(), SplitStatistics())

    def as_json(self) -> dict[str, Any]:
        """Returns the content of `statistics.json`."""
        splits = {split: sums.as_json() for split, sums in by_split(self.splits).items()}
        return {
            "format_version": FORMAT_VERSION,
            "normalize": {
                split: {name: pixels[name] for name in ("mean", "std")}
                for split, sums in splits.items()
                if (pixels := sums["all"].get("pixels"))
            },
            "splits": splits,
            "total": self.total().as_json(),
        }


def statistics_text(document: Mapping[str, Any]) -> str:
    """Returns the text of a document: with sorted keys, and short values on one line."""
    return _text(document, 0) + "\n"


def _text(value: Any, depth: int) -> str:
    if not isinstance(value, Mapping) or not value:
        return json.dumps(value, ensure_ascii=False)
    if len(value) <= _SHORT and not any(isinstance(item, Mapping | list) for item in value.values()):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    indent = "  " * (depth + 1)
    lines = (
        f"{indent}{json.dumps(key, ensure_ascii=False)}: {_text(item, depth + 1)}"
        for key, item in sorted(value.items())
    )
    return "{\n" + ",\n".join(lines) + "\n" + "  " * depth + "}"
