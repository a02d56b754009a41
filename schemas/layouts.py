"""Record layouts as data: which features a record has, and what fills each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shardwright.schemas.errors import UsageError
from shardwright.schemas.example import FeatureType


class Fill(StrEnum):
    """What fills a feature."""

    ENCODED = "encoded"  # the image's bytes as they are stored
    FORMAT = "format"  # jpg, png, webp or raw
    HEIGHT = "height"
    WIDTH = "width"
    CHANNELS = "channels"
    LABEL = "label"  # the class id
    LABEL_TEXT = "label_text"  # the class name
    KEY = "key"
    SOURCE_SHA256 = "source_sha256"  # hex digest of the source file's bytes


@dataclass(frozen=True)
class FeatureSpec:
    """One feature of a layout.

    Attributes:
      name: the key in `tf.train.Example`.
      type: bytes, float or int64.
      shape: number of values per dimension; () is one value, (None,) any number.
      fill: what fills it; None for features inferred from records of unknown origin.
    """

    name: str
    type: FeatureType
    shape: tuple[int | None, ...] = ()
    fill: Fill | None = None

    @property
    def length(self) -> int | None:
        """Number of values a record holds, or None when it may vary."""
        product = 1
        for size in self.shape:
            if size is None:
                return None
            product *= size
        return product


@dataclass(frozen=True)
class Layout:
    """A named set of features; `first_label` is the id of the first class."""

    name: str
    features: tuple[FeatureSpec, ...]
    first_label: int = 0

    def by_fill(self) -> Mapping[Fill, FeatureSpec]:
        """Returns the features by what fills them."""
        return {spec.fill: spec for spec in self.features if spec.fill is not None}


#: TF-Slim's classification records (research/slim/datasets/dataset_utils.py) with the key, the
#: class name, the channels and the source's checksum added.
CLASSIFICATION = Layout(
    name="classification",
    features=(
        FeatureSpec("image/channels", FeatureType.INT64, fill=Fill.CHANNELS),
        FeatureSpec("image/class/label", FeatureType.INT64, fill=Fill.LABEL),
        FeatureSpec("image/class/text", FeatureType.BYTES, fill=Fill.LABEL_TEXT),
        FeatureSpec("image/encoded", FeatureType.BYTES, fill=Fill.ENCODED),
        FeatureSpec("image/filename", FeatureType.BYTES, fill=Fill.KEY),
        FeatureSpec("image/format", FeatureType.BYTES, fill=Fill.FORMAT),
        FeatureSpec("image/height", FeatureType.INT64, fill=Fill.HEIGHT),
        FeatureSpec("image/key/sha256", FeatureType.BYTES, fill=Fill.SOURCE_SHA256),
        FeatureSpec("image/width", FeatureType.INT64, fill=Fill.WIDTH),
    ),
)

LAYOUTS: Mapping[str, Layout] = {layout.name: layout for layout in (CLASSIFICATION,)}


def layout_by_name(name: str) -> Layout:
    """Returns a built-in layout.

    Raises:
      UsageError: if there is none of that name.
    """
    if name not in LAYOUTS:
        raise UsageError(f"--layout {name}: unknown layout; choose one of {', '.join(LAYOUTS)}.")
    return LAYOUTS[name]


def features_json(features: tuple[FeatureSpec, ...]) -> list[dict[str, object]]:
    """Returns the features as `dataset.json` stores them."""
    return [
        {
            "name": spec.name,
            "type": spec.type.value,
            "shape": list(spec.shape),
            "fill": spec.fill.value if spec.fill else None,
        }
        for spec in features
    ]


def features_from_json(value: Sequence[Mapping[str, Any]]) -> tuple[FeatureSpec, ...]:
    """Reads what `features_json` wrote."""
    return tuple(
        FeatureSpec(
            name=str(item["name"]),
            type=FeatureType(item["type"]),
            shape=tuple(item["shape"]),
            fill=Fill(item["fill"]) if item.get("fill") else None,
        )
        for item in value
    )
