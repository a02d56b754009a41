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
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.pictures import Picture
from shardwright.schemas.split_order import by_split
from shardwright.schemas.statistics.feature_statistics import (
    MAX_CATEGORIES,
    RecordStatistics,
    first_of,
    keep_first,
)
from shardwright.schemas.statistics.picture_statistics import PictureStatistics
from shardwright.schemas.statistics.sketches import ValueCounts

FORMAT_VERSION = 1
#: Number of classes of a split to describe, the largest ones; for others only the number of records is given.
MAX_DESCRIBED_CLASSES = 1000
#: Number of classes to keep sums for, those whose names come first.
_MAX_CLASSES = 1 << 15
#: Maximum number of values on one line of the document.
_SHORT = 8


@dataclass
class SplitStatistics:
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

    def merge(self, other: SplitStatistics) -> SplitStatistics:
        """Adds the sums over other records; returns itself."""
        self.pictures.merge(other.pictures)
        self.labels.merge(other.labels)
        for label, sums in other.classes.items():
            if label not in self.classes:
                self.classes[label] = PictureStatistics(of_class=True)
            self.classes[label].merge(sums)
        keep_first(self.classes, _MAX_CLASSES)
        self.records.merge(other.records)
        return self

    def as_json(self, scores: Sequence[str] = ()) -> dict[str, Any]:
        """Returns the readable form; `scores` are the names of the pictures' scores."""
        known = first_of(self.classes, _MAX_CLASSES)
        counted = {name.decode(): count for name, count in self.labels.most_common()}
        described = [name for name in counted or known if name in known][:MAX_DESCRIBED_CLASSES]
        classes: dict[str, Any] = {name: {"records": count} for name, count in counted.items()}
        classes |= {name: known[name].as_json() for name in described}
        objects = self._objects()
        return {
            "all": self.pictures.as_json(scores),
            "classes": dict(sorted(classes.items())),
            "number_of_classes": self.labels.unique,
            **({"objects": {"classes": objects}} if objects else {}),
        }

    def _objects(self) -> dict[str, int]:
        """Returns the number of objects of each class, by class name or, if there are no names, by id."""
        found = {
            sums.fill: sums.values
            for sums in self.records.first_features().values()
            if sums.values is not None
        }
        value_counts = found.get(FeatureRole.OBJECT_TEXT) or found.get(FeatureRole.OBJECT_LABEL)
        counted = value_counts.most_common() if value_counts is not None else ()
        return dict(sorted((name.decode("utf-8", "replace"), count) for name, count in counted))


@dataclass
class Statistics:
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

    def merge(self, other: Statistics) -> Statistics:
        """Adds other sums; returns itself."""
        for split, sums in other.splits.items():
            self.splits.setdefault(split, SplitStatistics()).merge(sums)
        return self

    def total(self) -> SplitStatistics:
        """Returns the sums over all splits."""
        all_ = SplitStatistics()
        for sums in self.splits.values():
            all_.merge(sums)
        return all_

    def as_json(self, scores: Sequence[str] = ()) -> dict[str, Any]:
        """Returns the content of `statistics.json`.

        Args:
          scores: Names of the scores of the pictures.
        """
        splits = {split: sums.as_json(scores) for split, sums in by_split(self.splits).items()}
        return {
            "format_version": FORMAT_VERSION,
            "normalize": {
                split: {name: pixels[name] for name in ("mean", "std")}
                for split, sums in splits.items()
                if (pixels := sums["all"].get("pixels"))
            },
            "splits": splits,
            "total": self.total().as_json(scores),
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
