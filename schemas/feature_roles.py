"""The roles that a feature of a record can have, each with its type, its shape and a description."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from shardwright.schemas.example import FeatureType


class Needs(StrEnum):
    """Kind of annotations that a layout stores."""

    LABEL = "label"  # the class of an image
    OBJECTS = "objects"  # boxes and their properties
    SEMANTIC = "semantic"  # a class for every pixel
    PANOPTIC = "panoptic"  # a segment for every pixel
    IMAGE = "image"  # nothing besides the image


class FeatureRole(StrEnum):
    """The role of a feature. Layout files call it `fill`; `FEATURE_ROLES` describes each."""

    ENCODED = "encoded"
    FORMAT = "format"
    HEIGHT = "height"
    WIDTH = "width"
    CHANNELS = "channels"
    SHAPE = "shape"
    DTYPE = "dtype"
    COLORSPACE = "colorspace"
    LABEL = "label"
    LABEL_TEXT = "label_text"
    SYNSET = "synset"
    KEY = "key"
    SOURCE_ID = "source_id"
    FILE_BASENAME = "file_basename"
    SPLIT = "split"
    FOLD = "fold"
    SOURCE_SHA256 = "source_sha256"
    EXTRA = "extra"
    CONSTANT = "constant"
    BOX_XMIN = "box_xmin"
    BOX_YMIN = "box_ymin"
    BOX_XMAX = "box_xmax"
    BOX_YMAX = "box_ymax"
    BOXES = "boxes"
    OBJECT_LABEL = "object_label"
    OBJECT_TEXT = "object_text"
    OBJECT_CROWD = "object_crowd"
    OBJECT_AREA = "object_area"
    OBJECT_DIFFICULT = "object_difficult"
    OBJECT_TRUNCATED = "object_truncated"
    OBJECT_OCCLUDED = "object_occluded"
    OBJECT_GROUP_OF = "object_group_of"
    OBJECT_DEPICTION = "object_depiction"
    OBJECT_VIEW = "object_view"
    OBJECT_MASK = "object_mask"
    CAPTION = "caption"
    SEMANTIC_MASK = "semantic_mask"
    SEMANTIC_FORMAT = "semantic_format"
    PANOPTIC_CATEGORY = "panoptic_category"
    PANOPTIC_INSTANCE = "panoptic_instance"
    KEYPOINT_X = "keypoint_x"
    KEYPOINT_Y = "keypoint_y"
    KEYPOINT_VISIBILITY = "keypoint_visibility"
    KEYPOINT_TEXT = "keypoint_text"
    KEYPOINT_NUM = "keypoint_num"


class RoleInfo(NamedTuple):
    """How the value of a role is stored in a record.

    Attributes:
      type: Type of its feature.
      shape: Number of values per dimension, None for any number.
      what: Description of the value.
      needs: Kind of annotations that a layout needs for it; None if every image has the value.
    """

    type: FeatureType
    shape: tuple[int | None, ...]
    what: str
    needs: Needs | None = None


_INT64, _FLOAT, _BYTES = FeatureType.INT64, FeatureType.FLOAT, FeatureType.BYTES
_ONE: tuple[int | None, ...] = ()
_EACH: tuple[int | None, ...] = (None,)


def _keypoint(type_: FeatureType, what: str) -> RoleInfo:
    return RoleInfo(type_, _EACH, f"of each key point of each object: {what}", Needs.OBJECTS)


def _object(type_: FeatureType, what: str) -> RoleInfo:
    return RoleInfo(type_, _EACH, f"of each object: {what}", Needs.OBJECTS)


#: Description of each role. Masks are gray PNGs with 8 bits, or with 16 bits if an image has an id above 255.
FEATURE_ROLES: Mapping[FeatureRole, RoleInfo] = {
    FeatureRole.ENCODED: RoleInfo(
        _BYTES, _ONE, "the image file's bytes, or its bare uint8 pixels row by row (--image_format raw)"
    ),
    FeatureRole.FORMAT: RoleInfo(_BYTES, _ONE, "the stored image's format: jpg, png, webp or raw"),
    FeatureRole.HEIGHT: RoleInfo(_INT64, _ONE, "the stored picture's height in pixels"),
    FeatureRole.WIDTH: RoleInfo(_INT64, _ONE, "the stored picture's width in pixels"),
    FeatureRole.CHANNELS: RoleInfo(
        _INT64, _ONE, "the stored picture's channels: 1 grey, 3 RGB, 4 with alpha"
    ),
    FeatureRole.SHAPE: RoleInfo(_INT64, (3,), "the stored picture's height, width and channels"),
    FeatureRole.DTYPE: RoleInfo(
        _BYTES, _ONE, "the type of the stored picture's samples: uint8, uint16 or float32"
    ),
    FeatureRole.COLORSPACE: RoleInfo(_BYTES, _ONE, "RGB, or Grayscale of a picture with one channel"),
    FeatureRole.LABEL: RoleInfo(_INT64, _ONE, "the class id; -1 without a class"),
    FeatureRole.LABEL_TEXT: RoleInfo(_BYTES, _ONE, "the class name"),
    FeatureRole.SYNSET: RoleInfo(
        _BYTES, _ONE, "the class name, which ImageNet has as a synset id (n01440764)"
    ),
    FeatureRole.KEY: RoleInfo(
        _BYTES, _ONE, "the image's key: its path relative to the input; or the file name that a TFRecord had"
    ),
    FeatureRole.SOURCE_ID: RoleInfo(
        _BYTES, _ONE, "the image's id as text: COCO's, one that a TFRecord had, or a number from its key"
    ),
    FeatureRole.FILE_BASENAME: RoleInfo(_BYTES, _ONE, "the last part of the image's key or file name"),
    FeatureRole.SPLIT: RoleInfo(_BYTES, _ONE, "the split's name"),
    FeatureRole.FOLD: RoleInfo(_INT64, _ONE, "the record's fold, from 0 (--folds)"),
    FeatureRole.SOURCE_SHA256: RoleInfo(_BYTES, _ONE, "the sha256 of the source file's bytes, in hex"),
    FeatureRole.EXTRA: RoleInfo(_BYTES, _ONE, "a column of the source"),
    FeatureRole.CONSTANT: RoleInfo(_BYTES, _ONE, "the same value in every record"),
    FeatureRole.BOX_XMIN: _object(_FLOAT, "the box's left side, as a share of the width (0 to 1)"),
    FeatureRole.BOX_YMIN: _object(_FLOAT, "the box's upper side, as a share of the height"),
    FeatureRole.BOX_XMAX: _object(_FLOAT, "the box's right side, as a share of the width"),
    FeatureRole.BOX_YMAX: _object(_FLOAT, "the box's lower side, as a share of the height"),
    FeatureRole.BOXES: RoleInfo(
        _FLOAT, (None, 4), "of each object: ymin, xmin, ymax, xmax as shares of the sides", Needs.OBJECTS
    ),
    FeatureRole.OBJECT_LABEL: _object(_INT64, "class id"),
    FeatureRole.OBJECT_TEXT: _object(_BYTES, "class name"),
    FeatureRole.OBJECT_CROWD: _object(_INT64, "1 for a group that is not told apart"),
    FeatureRole.OBJECT_AREA: _object(_FLOAT, "area in square pixels of the stored picture"),
    FeatureRole.OBJECT_DIFFICULT: _object(_INT64, "1 where VOC calls it difficult"),
    FeatureRole.OBJECT_TRUNCATED: _object(_INT64, "1 where it reaches beyond the picture"),
    FeatureRole.OBJECT_OCCLUDED: _object(_INT64, "1 where something hides a part of it"),
    FeatureRole.OBJECT_GROUP_OF: _object(_INT64, "1 where the box holds several"),
    FeatureRole.OBJECT_DEPICTION: _object(_INT64, "1 where it is a drawing or the like"),
    FeatureRole.OBJECT_VIEW: _object(_BYTES, "VOC's pose"),
    FeatureRole.OBJECT_MASK: _object(_BYTES, "a PNG of the stored picture's size, 1 inside and 0 outside"),
    FeatureRole.CAPTION: RoleInfo(_BYTES, _EACH, "sentences that describe the image", Needs.OBJECTS),
    FeatureRole.SEMANTIC_MASK: RoleInfo(
        _BYTES,
        _ONE,
        "a PNG with the class id of every pixel; 255 (or 65535) where it was padded",
        Needs.SEMANTIC,
    ),
    FeatureRole.SEMANTIC_FORMAT: RoleInfo(_BYTES, _ONE, "the mask's format: png", Needs.SEMANTIC),
    FeatureRole.PANOPTIC_CATEGORY: RoleInfo(
        _BYTES, _ONE, "a PNG with the class id of every pixel, 0 for none", Needs.PANOPTIC
    ),
    FeatureRole.PANOPTIC_INSTANCE: RoleInfo(
        _BYTES,
        _ONE,
        "a PNG with the number of every pixel's instance, 0 for stuff and none",
        Needs.PANOPTIC,
    ),
    FeatureRole.KEYPOINT_X: _keypoint(_FLOAT, "its position as a share of the width; 0 if not labelled"),
    FeatureRole.KEYPOINT_Y: _keypoint(_FLOAT, "its position as a share of the height; 0 if not labelled"),
    FeatureRole.KEYPOINT_VISIBILITY: _keypoint(_INT64, "0 not labelled, 1 hidden, 2 visible"),
    FeatureRole.KEYPOINT_TEXT: _keypoint(_BYTES, "its name"),
    FeatureRole.KEYPOINT_NUM: _object(_INT64, "number of its key points that are labelled"),
}

#: Roles of the flags of objects, by their names in `ObjectAnnotation`.
FLAGS: Mapping[str, FeatureRole] = {
    flag: FeatureRole(f"object_{flag}")
    for flag in ("difficult", "truncated", "occluded", "group_of", "depiction")
}
#: Roles with one value per key point of each object.
KEYPOINT_ROLES = (
    FeatureRole.KEYPOINT_X,
    FeatureRole.KEYPOINT_Y,
    FeatureRole.KEYPOINT_VISIBILITY,
    FeatureRole.KEYPOINT_TEXT,
)

#: Roles whose numbers are sides of boxes or positions of key points.
POSITION_ROLES = (
    FeatureRole.BOX_XMIN,
    FeatureRole.BOX_YMIN,
    FeatureRole.BOX_XMAX,
    FeatureRole.BOX_YMAX,
    FeatureRole.BOXES,
    FeatureRole.KEYPOINT_X,
    FeatureRole.KEYPOINT_Y,
)

#: Roles with one value per object.
OBJECT_ROLES = tuple(
    role
    for role, info in FEATURE_ROLES.items()
    if info.needs is Needs.OBJECTS and role not in (FeatureRole.BOXES, FeatureRole.CAPTION, *KEYPOINT_ROLES)
)
