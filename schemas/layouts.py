"""Record layouts as data: which features a record has, and what fills each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from shardwright.schemas.columns import ExtraColumn
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
    EXTRA = "extra"  # the extra column of the feature's name
    # One value for each object, in the same order:
    BOX_XMIN = "box_xmin"  # shares of the stored picture's width and height, 0 to 1
    BOX_YMIN = "box_ymin"
    BOX_XMAX = "box_xmax"
    BOX_YMAX = "box_ymax"
    OBJECT_LABEL = "object_label"  # class id
    OBJECT_TEXT = "object_text"  # class name
    OBJECT_CROWD = "object_crowd"
    OBJECT_AREA = "object_area"  # square pixels of the stored picture
    OBJECT_DIFFICULT = "object_difficult"
    OBJECT_TRUNCATED = "object_truncated"
    OBJECT_OCCLUDED = "object_occluded"
    OBJECT_GROUP_OF = "object_group_of"
    OBJECT_DEPICTION = "object_depiction"
    OBJECT_VIEW = "object_view"
    OBJECT_MASK = "object_mask"  # PNG of the stored picture's size, 1 inside and 0 outside
    CAPTION = "caption"
    # One value for each pixel, as a grey PNG of 8 bits, or of 16 where an image has one above 255:
    SEMANTIC_MASK = "semantic_mask"  # class ids; 255 (or 65535) where it was padded
    SEMANTIC_FORMAT = "semantic_format"
    PANOPTIC_CATEGORY = "panoptic_category"  # class ids, 0 for none
    PANOPTIC_INSTANCE = "panoptic_instance"  # 1, 2, ... by the place of the segment, 0 for stuff and none


class Needs(StrEnum):
    """What a layout is about."""

    LABEL = "label"  # the class of an image
    OBJECTS = "objects"  # boxes and what goes with them
    SEMANTIC = "semantic"  # a class for every pixel
    PANOPTIC = "panoptic"  # a segment for every pixel


@dataclass(frozen=True)
class FeatureSpec:
    """One feature of a layout.

    Attributes:
      name: the key in `tf.train.Example`.
      type: bytes, float or int64.
      shape: number of values per dimension; () is one value, (None,) any number.
      fill: what fills it; None for features inferred from records of unknown origin.
      optional: whether records leave it out where the source says nothing of the kind.
    """

    name: str
    type: FeatureType
    shape: tuple[int | None, ...] = ()
    fill: Fill | None = None
    optional: bool = False

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
    """A named set of features.

    Attributes:
      name: by which `--layout` chooses it.
      features: what each record holds.
      first_label: the id of the first class.
      needs: what a source must say of its images.
      jpeg_name: how the layout's readers spell the format of a JPEG.
    """

    name: str
    features: tuple[FeatureSpec, ...]
    first_label: int = 0
    needs: Needs = Needs.LABEL
    jpeg_name: str = "jpg"

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

_INT64, _FLOAT, _BYTES = FeatureType.INT64, FeatureType.FLOAT, FeatureType.BYTES
_EACH = (None,)

_PICTURE = (
    FeatureSpec("image/encoded", _BYTES, fill=Fill.ENCODED),
    FeatureSpec("image/filename", _BYTES, fill=Fill.KEY),
    FeatureSpec("image/format", _BYTES, fill=Fill.FORMAT),
    FeatureSpec("image/height", _INT64, fill=Fill.HEIGHT),
    FeatureSpec("image/key/sha256", _BYTES, fill=Fill.SOURCE_SHA256),
    FeatureSpec("image/width", _INT64, fill=Fill.WIDTH),
)

#: The TF Object Detection API's (dataset_tools/create_coco_tf_record.py, create_pascal_tf_record.py,
#: oid_tfrecord_creation.py); what only one of them writes is there where the source says it.
DETECTION = Layout(
    name="detection",
    features=(
        *_PICTURE,
        FeatureSpec("image/source_id", _BYTES, fill=Fill.KEY),
        FeatureSpec("image/object/bbox/xmin", _FLOAT, _EACH, Fill.BOX_XMIN),
        FeatureSpec("image/object/bbox/xmax", _FLOAT, _EACH, Fill.BOX_XMAX),
        FeatureSpec("image/object/bbox/ymin", _FLOAT, _EACH, Fill.BOX_YMIN),
        FeatureSpec("image/object/bbox/ymax", _FLOAT, _EACH, Fill.BOX_YMAX),
        FeatureSpec("image/object/class/text", _BYTES, _EACH, Fill.OBJECT_TEXT),
        FeatureSpec("image/object/class/label", _INT64, _EACH, Fill.OBJECT_LABEL),
        FeatureSpec("image/object/is_crowd", _INT64, _EACH, Fill.OBJECT_CROWD),
        FeatureSpec("image/object/area", _FLOAT, _EACH, Fill.OBJECT_AREA),
        FeatureSpec("image/object/difficult", _INT64, _EACH, Fill.OBJECT_DIFFICULT, optional=True),
        FeatureSpec("image/object/truncated", _INT64, _EACH, Fill.OBJECT_TRUNCATED, optional=True),
        FeatureSpec("image/object/occluded", _INT64, _EACH, Fill.OBJECT_OCCLUDED, optional=True),
        FeatureSpec("image/object/group_of", _INT64, _EACH, Fill.OBJECT_GROUP_OF, optional=True),
        FeatureSpec("image/object/depiction", _INT64, _EACH, Fill.OBJECT_DEPICTION, optional=True),
        FeatureSpec("image/object/view", _BYTES, _EACH, Fill.OBJECT_VIEW, optional=True),
        FeatureSpec("image/object/mask", _BYTES, _EACH, Fill.OBJECT_MASK, optional=True),
        FeatureSpec("image/caption", _BYTES, _EACH, Fill.CAPTION, optional=True),
    ),
    first_label=1,
    needs=Needs.OBJECTS,
    jpeg_name="jpeg",
)

#: DeepLab's (research/deeplab/datasets/build_data.py) with the source's checksum added.
SEGMENTATION = Layout(
    name="segmentation",
    features=(
        *_PICTURE,
        FeatureSpec("image/channels", _INT64, fill=Fill.CHANNELS),
        FeatureSpec("image/segmentation/class/encoded", _BYTES, fill=Fill.SEMANTIC_MASK),
        FeatureSpec("image/segmentation/class/format", _BYTES, fill=Fill.SEMANTIC_FORMAT),
    ),
    needs=Needs.SEMANTIC,
    jpeg_name="jpeg",
)

#: The TF model garden's panoptic records (official/vision/data/create_coco_tf_record.py) without objects.
PANOPTIC = Layout(
    name="panoptic",
    features=(
        *_PICTURE,
        FeatureSpec("image/source_id", _BYTES, fill=Fill.KEY),
        FeatureSpec("image/panoptic/category_mask", _BYTES, fill=Fill.PANOPTIC_CATEGORY),
        FeatureSpec("image/panoptic/instance_mask", _BYTES, fill=Fill.PANOPTIC_INSTANCE),
    ),
    first_label=1,
    needs=Needs.PANOPTIC,
)

LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout for layout in (CLASSIFICATION, DETECTION, SEGMENTATION, PANOPTIC)
}


def extended(layout: Layout, columns: Sequence[ExtraColumn], several_labels: bool) -> Layout:
    """Returns a layout with features for extra columns, and any number of classes an image if asked.

    Raises:
      UsageError: if a column has the name of one of the layout's features.
    """
    taken = {spec.name for spec in layout.features}
    for column in columns:
        if column.name in taken:
            raise UsageError(
                f"--extra_columns {column.name}: layout {layout.name} has a feature of that name; "
                "rename the column."
            )
    extra = (
        FeatureSpec(column.name, column.type, _EACH if column.is_list else (), Fill.EXTRA)
        for column in columns
    )
    several = (Fill.LABEL, Fill.LABEL_TEXT) if several_labels else ()
    features = (replace(spec, shape=_EACH) if spec.fill in several else spec for spec in layout.features)
    return replace(layout, features=(*features, *extra))


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
            **({"optional": True} if spec.optional else {}),
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
            optional=bool(item.get("optional", False)),
        )
        for item in value
    )
