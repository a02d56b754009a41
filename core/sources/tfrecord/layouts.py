"""Finds the roles of a record's features, by their names or from a dataset of Shardwright."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from shardwright.schemas.feature_roles import OBJECT_ROLES
from shardwright.schemas.layouts import FeatureRole, FeatureSpec, Needs

#: TFDS stores ymin, xmin, ymax, xmax of all objects in one list.
_TFDS_BOX = "objects/bbox"
SOURCE_ID = "image/source_id"
_BOX = "image/object/bbox/"
_OBJECT = "image/object/"

#: Names of features by role in widely used layouts, the most common first.
_NAMES: Mapping[FeatureRole, tuple[str, ...]] = {
    FeatureRole.ENCODED: (
        "image/encoded", "image_raw", "image/image_raw", "image_bytes", "image/raw", "image",
        "jpg", "jpeg", "png", "webp", "img", "img_raw", "encoded", "encoded_image", "image_encoded",
        "image/data", "image_data", "data", "raw", "pixels", "x", "feature", "features",
    ),
    FeatureRole.KEY: ("image/filename", "filename", "file_name", "image_name", "image/name"),
    FeatureRole.SOURCE_ID: (SOURCE_ID, "image/id", "image_id"),
    FeatureRole.LABEL: (
        "image/class/label", "label", "labels", "image/label", "class/label", "class_id", "label_id", "class",
        "target", "y", "image/class", "category_id",
    ),
    FeatureRole.LABEL_TEXT: (
        "image/class/text", "label_text", "label_name", "class_name", "class/text", "class_text", "category",
        "name",
    ),
    FeatureRole.SYNSET: ("image/class/synset", "synset", "wnid"),
    FeatureRole.HEIGHT: ("image/height", "height", "image_height", "rows", "h"),
    FeatureRole.WIDTH: ("image/width", "width", "image_width", "cols", "w"),
    FeatureRole.CHANNELS: ("image/channels", "channels", "image_channels", "depth", "image/depth", "c"),
    FeatureRole.SHAPE: ("shape", "image/shape", "image_shape", "data_shape"),
    FeatureRole.SPLIT: ("split",),
    FeatureRole.CAPTION: ("image/caption", "caption", "captions", "txt"),
    FeatureRole.SEMANTIC_MASK: (
        "image/segmentation/class/encoded", "segmentation_mask", "mask", "image/mask", "mask_raw",
    ),
    FeatureRole.PANOPTIC_CATEGORY: ("image/panoptic/category_mask",),
    FeatureRole.PANOPTIC_INSTANCE: ("image/panoptic/instance_mask",),
    FeatureRole.BOX_XMIN: (_BOX + "xmin",),
    FeatureRole.BOX_YMIN: (_BOX + "ymin",),
    FeatureRole.BOX_XMAX: (_BOX + "xmax",),
    FeatureRole.BOX_YMAX: (_BOX + "ymax",),
    FeatureRole.BOXES: (_TFDS_BOX,),
    FeatureRole.OBJECT_LABEL: (_OBJECT + "class/label", _BOX + "label", "objects/label", "objects/label_id"),
    FeatureRole.OBJECT_TEXT: (_OBJECT + "class/text",),
    FeatureRole.OBJECT_CROWD: (_OBJECT + "is_crowd", "objects/is_crowd"),
    FeatureRole.OBJECT_AREA: (_OBJECT + "area", _OBJECT + "segment/area", "objects/area"),
    FeatureRole.OBJECT_DIFFICULT: (_OBJECT + "difficult", "objects/is_difficult"),
    FeatureRole.OBJECT_TRUNCATED: (_OBJECT + "truncated", "objects/is_truncated"),
    FeatureRole.OBJECT_OCCLUDED: (_OBJECT + "occluded", "objects/is_occluded"),
    FeatureRole.OBJECT_GROUP_OF: (_OBJECT + "group_of", "objects/is_group_of"),
    FeatureRole.OBJECT_DEPICTION: (_OBJECT + "depiction", "objects/is_depiction"),
    FeatureRole.OBJECT_VIEW: (_OBJECT + "view",),
    FeatureRole.OBJECT_MASK: (_OBJECT + "mask", "image/segmentation/object"),
    FeatureRole.KEYPOINT_X: (_OBJECT + "keypoint/x",),
    FeatureRole.KEYPOINT_Y: (_OBJECT + "keypoint/y",),
    FeatureRole.KEYPOINT_VISIBILITY: (_OBJECT + "keypoint/visibility",),
    FeatureRole.KEYPOINT_TEXT: (_OBJECT + "keypoint/text",),
}  # fmt: skip
#: Features that may name the image, besides their role, the likeliest first.
_FILE_NAMES = (
    "image/filename", SOURCE_ID, "filename", "file_name", "image_name", "image/name", "__key__",
    "key", "image_id", "image/id", "image/path", "path", "filepath", "image_uri", "id",
)  # fmt: skip
#: Prefixes that some tools add to every name.
_PREFIXES = ("train/", "val/", "validation/", "test/")
_MASKS = (
    FeatureRole.SEMANTIC_MASK,
    FeatureRole.PANOPTIC_CATEGORY,
    FeatureRole.PANOPTIC_INSTANCE,
    FeatureRole.OBJECT_MASK,
)
_CORNERS = (FeatureRole.BOX_XMIN, FeatureRole.BOX_YMIN, FeatureRole.BOX_XMAX, FeatureRole.BOX_YMAX)
_OBJECTS = frozenset((*OBJECT_ROLES, FeatureRole.BOXES))


@dataclass(frozen=True)
class FeatureNames:
    """Names of a record's features by role.

    Attributes:
      by_role: Mapping of role to the features that may have it, the likeliest first.
      file_names: Features that may name the image, the likeliest first.
      others: Features with unknown names; one of them may contain the image.
    """

    by_role: Mapping[FeatureRole, tuple[str, ...]]
    file_names: tuple[str, ...]
    others: tuple[str, ...] = ()

    def name(self, role: FeatureRole) -> str:
        """Returns the likeliest feature with a role; empty if there is none."""
        return next(iter(self.by_role.get(role, ())), "")

    @property
    def images(self) -> tuple[str, ...]:
        """Features that may contain the image, the likeliest first."""
        return self.by_role.get(FeatureRole.ENCODED, ())

    @property
    def boxes(self) -> tuple[str, ...]:
        """The features with xmin, ymin, xmax, ymax, or one with four values for each object."""
        corners = tuple(filter(None, map(self.name, _CORNERS)))
        return corners if len(corners) == 4 else self.by_role.get(FeatureRole.BOXES, ())

    @property
    def has_objects(self) -> bool:
        """Whether any feature belongs to objects."""
        return not _OBJECTS.isdisjoint(self.by_role)

    def has(self, needs: Needs) -> bool:
        """Returns whether records with these features can have the annotations that a layout needs."""
        have = self.by_role.keys()
        match needs:
            case Needs.IMAGE:
                return True
            case Needs.LABEL:
                return not have.isdisjoint((FeatureRole.LABEL, FeatureRole.LABEL_TEXT, FeatureRole.SYNSET))
            case Needs.OBJECTS:
                return bool(self.boxes)
            case Needs.SEMANTIC:
                return FeatureRole.SEMANTIC_MASK in have
            case Needs.PANOPTIC:
                return have >= {FeatureRole.PANOPTIC_CATEGORY, FeatureRole.PANOPTIC_INSTANCE}


@lru_cache(maxsize=64)
def names_by_role(names: tuple[str, ...]) -> FeatureNames:
    """Returns the roles of features, detected from their names."""
    plain: dict[str, str] = {}
    for name in names:
        prefix = next((p for p in _PREFIXES if name.lower().startswith(p)), "")
        plain.setdefault(name[len(prefix) :].lower(), name)

    def every(candidates: Iterable[str]) -> tuple[str, ...]:
        return tuple(plain[name] for name in candidates if name in plain)

    by_role = {role: found for role, candidates in _NAMES.items() if (found := every(candidates))}
    images_and_masks = {
        *by_role.get(FeatureRole.ENCODED, ()),
        *(by_role[mask][0] for mask in _MASKS if mask in by_role),
    }
    others = tuple(sorted(name for name in names if name not in images_and_masks))
    return FeatureNames(by_role, every(_FILE_NAMES), others)


def names_of_specs(specs: Iterable[FeatureSpec]) -> FeatureNames:
    """Returns the roles of features as a dataset of Shardwright defines them."""
    by_role: dict[FeatureRole, tuple[str, ...]] = {}
    for spec in specs:
        if spec.fill is not None:
            by_role.setdefault(spec.fill, (spec.name,))
    return FeatureNames(
        by_role, (*by_role.get(FeatureRole.KEY, ()), *by_role.get(FeatureRole.FILE_BASENAME, ()))
    )


#: Features by which layouts are known, and what they are called, the most specific first.
_KNOWN_LAYOUTS = (
    ({"image/panoptic/category_mask", "image/panoptic/instance_mask"}, "panoptic records"),
    ({_TFDS_BOX}, "detection records of TFDS"),
    ({f"{_BOX}{corner}" for corner in ("xmin", "ymin", "xmax", "ymax")}, "Object Detection API records"),
    ({"image/segmentation/class/encoded"}, "DeepLab records"),
    ({"image/encoded", "image/class/synset"}, "ImageNet records"),
    ({"image/encoded", "image/class/label"}, "TF-Slim records"),
    ({"image_name", "image", "image_channels"}, "TFRecorder records"),
    ({"key", "jpg"}, "img2dataset records"),
)


def layout_name(names: Iterable[str]) -> str:
    """Returns the common name of a layout with these features."""
    have = set(names)
    some = f"records with {', '.join(sorted(have)[:6])}{', ...' if len(have) > 6 else ''}"
    return next((called for features, called in _KNOWN_LAYOUTS if features <= have), some)
