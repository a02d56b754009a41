"""The roles that a feature of a record can have, each with its type, its shape and a description."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self, TypeAlias

from shardwright.schemas.example import FeatureType


class Needs(StrEnum):
    """Kind of annotations that a layout stores."""

    LABEL = "label"  # the class of an image
    OBJECTS = "objects"  # boxes and their properties
    SEMANTIC = "semantic"  # a class for every pixel
    PANOPTIC = "panoptic"  # a segment for every pixel
    IMAGE = "image"  # nothing besides the image


_INT64, _FLOAT, _BYTES = FeatureType.INT64, FeatureType.FLOAT, FeatureType.BYTES
_Shape: TypeAlias = tuple[int | None, ...]
_Role: TypeAlias = tuple[str, FeatureType, _Shape, str, Needs | None]


def _role(name: str, type_: FeatureType, what: str, needs: Needs | None = None, shape: _Shape = ()) -> _Role:
    return name, type_, shape, what, needs


def _object(name: str, type_: FeatureType, what: str) -> _Role:
    return _role(name, type_, f"of each object: {what}", Needs.OBJECTS, (None,))


def _keypoint(name: str, type_: FeatureType, what: str) -> _Role:
    return _role(name, type_, f"of each key point of each object: {what}", Needs.OBJECTS, (None,))


class FeatureRole(StrEnum):
    """The role of a feature, and how its value is stored in a record. Layout files call it `fill`.

    Masks are gray PNGs with 8 bits, or with 16 bits if an image has an id above 255.

    Attributes:
      type: Type of its feature.
      shape: Number of values per dimension, None for any number.
      what: Description of the value.
      needs: Kind of annotations that a layout needs for it; None if every image has the value.
    """

    _value_: str
    type: FeatureType
    shape: tuple[int | None, ...]
    what: str
    needs: Needs | None

    def __new__(
        cls,
        value: str,
        type_: FeatureType = _BYTES,
        shape: _Shape = (),
        what: str = "",
        needs: Needs | None = None,
    ) -> Self:
        """Makes the role; other values than the name are needed only for the members below."""
        role = str.__new__(cls, value)
        role._value_ = value
        role.type, role.shape, role.what, role.needs = type_, shape, what, needs
        return role

    ENCODED = _role(
        "encoded", _BYTES, "the image file's bytes, or its bare uint8 pixels row by row (--image_format raw)"
    )
    FORMAT = _role("format", _BYTES, "the stored image's format: jpg, png, webp or raw")
    HEIGHT = _role("height", _INT64, "the stored picture's height in pixels")
    WIDTH = _role("width", _INT64, "the stored picture's width in pixels")
    CHANNELS = _role("channels", _INT64, "the stored picture's channels: 1 grey, 3 RGB, 4 with alpha")
    SHAPE = _role("shape", _INT64, "the stored picture's height, width and channels", shape=(3,))
    DTYPE = _role("dtype", _BYTES, "the type of the stored picture's samples: uint8, uint16 or float32")
    COLORSPACE = _role("colorspace", _BYTES, "RGB, or Grayscale of a picture with one channel")
    LABEL = _role("label", _INT64, "the class id; -1 without a class")
    LABEL_TEXT = _role("label_text", _BYTES, "the class name")
    SYNSET = _role("synset", _BYTES, "the class name, which ImageNet has as a synset id (n01440764)")
    KEY = _role(
        "key", _BYTES, "the image's key: its path relative to the input; or the file name that a TFRecord had"
    )
    SOURCE_ID = _role(
        "source_id",
        _BYTES,
        "the image's id as text: COCO's, one that a TFRecord had, or a number from its key",
    )
    FILE_BASENAME = _role("file_basename", _BYTES, "the last part of the image's key or file name")
    SPLIT = _role("split", _BYTES, "the split's name")
    FOLD = _role("fold", _INT64, "the record's fold, from 0 (--folds)")
    SOURCE_SHA256 = _role("source_sha256", _BYTES, "the sha256 of the source file's bytes, in hex")
    EXTRA = _role("extra", _BYTES, "a column of the source")
    CONSTANT = _role("constant", _BYTES, "the same value in every record")
    BOX_XMIN = _object("box_xmin", _FLOAT, "the box's left side, as a share of the width (0 to 1)")
    BOX_YMIN = _object("box_ymin", _FLOAT, "the box's upper side, as a share of the height")
    BOX_XMAX = _object("box_xmax", _FLOAT, "the box's right side, as a share of the width")
    BOX_YMAX = _object("box_ymax", _FLOAT, "the box's lower side, as a share of the height")
    BOXES = _role(
        "boxes",
        _FLOAT,
        "of each object: ymin, xmin, ymax, xmax as shares of the sides",
        Needs.OBJECTS,
        shape=(None, 4),
    )
    OBJECT_LABEL = _object("object_label", _INT64, "class id")
    OBJECT_TEXT = _object("object_text", _BYTES, "class name")
    OBJECT_CROWD = _object("object_crowd", _INT64, "1 for a group that is not told apart")
    OBJECT_AREA = _object("object_area", _FLOAT, "area in square pixels of the stored picture")
    OBJECT_DIFFICULT = _object("object_difficult", _INT64, "1 where VOC calls it difficult")
    OBJECT_TRUNCATED = _object("object_truncated", _INT64, "1 where it reaches beyond the picture")
    OBJECT_OCCLUDED = _object("object_occluded", _INT64, "1 where something hides a part of it")
    OBJECT_GROUP_OF = _object("object_group_of", _INT64, "1 where the box holds several")
    OBJECT_DEPICTION = _object("object_depiction", _INT64, "1 where it is a drawing or the like")
    OBJECT_VIEW = _object("object_view", _BYTES, "VOC's pose")
    OBJECT_MASK = _object("object_mask", _BYTES, "a PNG of the stored picture's size, 1 inside and 0 outside")
    CAPTION = _role("caption", _BYTES, "sentences that describe the image", Needs.OBJECTS, shape=(None,))
    SEMANTIC_MASK = _role(
        "semantic_mask",
        _BYTES,
        "a PNG with the class id of every pixel; 255 (or 65535) where it was padded",
        Needs.SEMANTIC,
    )
    SEMANTIC_FORMAT = _role("semantic_format", _BYTES, "the mask's format: png", Needs.SEMANTIC)
    PANOPTIC_CATEGORY = _role(
        "panoptic_category", _BYTES, "a PNG with the class id of every pixel, 0 for none", Needs.PANOPTIC
    )
    PANOPTIC_INSTANCE = _role(
        "panoptic_instance",
        _BYTES,
        "a PNG with the number of every pixel's instance, 0 for stuff and none",
        Needs.PANOPTIC,
    )
    KEYPOINT_X = _keypoint("keypoint_x", _FLOAT, "its position as a share of the width; 0 if not labelled")
    KEYPOINT_Y = _keypoint("keypoint_y", _FLOAT, "its position as a share of the height; 0 if not labelled")
    KEYPOINT_VISIBILITY = _keypoint("keypoint_visibility", _INT64, "0 not labelled, 1 hidden, 2 visible")
    KEYPOINT_TEXT = _keypoint("keypoint_text", _BYTES, "its name")
    KEYPOINT_NUM = _object("keypoint_num", _INT64, "number of its key points that are labelled")


#: Roles of features that state the classes of an image.
CLASS_ROLES = (FeatureRole.LABEL, FeatureRole.LABEL_TEXT, FeatureRole.SYNSET)

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

#: Roles of the sides of boxes, each in a feature of its own.
BOX_SIDES = (FeatureRole.BOX_XMIN, FeatureRole.BOX_YMIN, FeatureRole.BOX_XMAX, FeatureRole.BOX_YMAX)

#: Roles whose numbers are sides of boxes or positions of key points.
POSITION_ROLES = (*BOX_SIDES, FeatureRole.BOXES, FeatureRole.KEYPOINT_X, FeatureRole.KEYPOINT_Y)

#: Roles of the size of the stored picture, in the order of its shape.
PICTURE_SIDES = (FeatureRole.HEIGHT, FeatureRole.WIDTH, FeatureRole.CHANNELS)

#: Roles of masks with an id for every pixel.
PIXEL_MASKS = (FeatureRole.SEMANTIC_MASK, FeatureRole.PANOPTIC_CATEGORY, FeatureRole.PANOPTIC_INSTANCE)

#: Roles of features with image files.
IMAGE_ROLES = (FeatureRole.ENCODED, FeatureRole.OBJECT_MASK, *PIXEL_MASKS)

#: Roles with one value per object.
OBJECT_ROLES = tuple(
    role
    for role in FeatureRole
    if role.needs is Needs.OBJECTS and role not in (FeatureRole.BOXES, FeatureRole.CAPTION, *KEYPOINT_ROLES)
)
