"""Which feature of a record means what: told by their names, or by what a dataset of ours says of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from shardwright.schemas.layouts import FeatureSpec, Fill, Needs

#: Where the image is, the likeliest first.
_IMAGES = (
    "image/encoded", "image_raw", "image/image_raw", "image_bytes", "image/raw", "image",
    "jpg", "jpeg", "png", "webp", "img", "img_raw", "encoded", "encoded_image", "image_encoded",
    "image/data", "image_data", "data", "raw", "pixels", "x", "feature", "features",
)  # fmt: skip
#: What the image is called, the likeliest first.
_FILE_NAMES = (
    "image/filename", "image/source_id", "filename", "file_name", "image_name", "image/name", "__key__",
    "key", "image_id", "image/id", "image/path", "path", "filepath", "image_uri", "id",
)  # fmt: skip
#: The file name, and the id by which evaluations know the image.
_NAMES = ("image/filename", "filename", "file_name", "image_name", "image/name")
SOURCE_ID = "image/source_id"
_SOURCE_IDS = (SOURCE_ID, "image/id", "image_id")
_LABELS = (
    "image/class/label", "label", "labels", "image/label", "class/label", "class_id", "label_id", "class",
    "target", "y", "image/class", "category_id",
)  # fmt: skip
_TEXTS = (
    "image/class/text", "label_text", "label_name", "class_name", "class/text", "class_text", "category",
    "name",
)  # fmt: skip
_SYNSETS = ("image/class/synset", "synset", "wnid")
_HEIGHTS = ("image/height", "height", "image_height", "rows", "h")
_WIDTHS = ("image/width", "width", "image_width", "cols", "w")
_CHANNELS = ("image/channels", "channels", "image_channels", "depth", "image/depth", "c")
_SHAPES = ("shape", "image/shape", "image_shape", "data_shape")
_SEMANTIC = ("image/segmentation/class/encoded", "segmentation_mask", "mask", "image/mask", "mask_raw")
_CAPTIONS = ("image/caption", "caption", "captions", "txt")
#: Prefixes that some writers put before every name.
_PREFIXES = ("train/", "val/", "validation/", "test/")

_BOX = "image/object/bbox/"
_OBJECT = "image/object/"
#: TFDS keeps ymin, xmin, ymax, xmax of all objects in one list.
_TFDS_BOX = "objects/bbox"


@dataclass(frozen=True)
class ObjectRoles:
    """The features with one value for each object; empty where there is none.

    Attributes:
      box: xmin, ymin, xmax, ymax, or one feature with four values for each object.
      label: class ids.
      text: class names.
      crowd: flags, as those below.
      area: square pixels.
      difficult: a flag.
      truncated: a flag.
      occluded: a flag.
      group_of: a flag.
      depiction: a flag.
      view: texts.
      mask: images.
    """

    box: tuple[str, ...] = ()
    label: str = ""
    text: str = ""
    crowd: str = ""
    area: str = ""
    difficult: str = ""
    truncated: str = ""
    occluded: str = ""
    group_of: str = ""
    depiction: str = ""
    view: str = ""
    mask: str = ""


@dataclass(frozen=True)
class FeatureNames:
    """What the features of a record mean, by their names; empty where there is none.

    Attributes:
      images: features that hold the image, the likeliest first.
      others: features of unknown names, one of which may hold it.
      file_names: features that say what the image is called, the likeliest first.
      file_name: the image's file name.
      source_id: the image's id, bytes or a number.
      label: class ids, or names as bytes.
      text: class names.
      synset: class names, as ImageNet's synset ids.
      height: in pixels.
      width: in pixels.
      channels: of the pixels.
      shape: height, width and channels in one.
      split: the split's name.
      semantic: an image with the class of every pixel.
      category: likewise, of a panoptic record.
      instance: an image with the instance of every pixel.
      caption: sentences.
      objects: what belongs to objects.
    """

    images: tuple[str, ...]
    others: tuple[str, ...]
    file_names: tuple[str, ...]
    file_name: str
    source_id: str
    label: str
    text: str
    synset: str
    height: str
    width: str
    channels: str
    shape: str
    split: str
    semantic: str
    category: str
    instance: str
    caption: str
    objects: ObjectRoles

    def has(self, needs: Needs) -> bool:
        """Whether records with these features can say what a layout is about."""
        return bool(
            {
                Needs.LABEL: self.label or self.text or self.synset,
                Needs.OBJECTS: self.objects.box,
                Needs.SEMANTIC: self.semantic,
                Needs.PANOPTIC: self.category and self.instance,
            }[needs]
        )


@lru_cache(maxsize=64)
def roles_of(names: tuple[str, ...]) -> FeatureNames:
    """Returns what features mean."""
    plain: dict[str, str] = {}
    for name in names:
        prefix = next((p for p in _PREFIXES if name.lower().startswith(p)), "")
        plain.setdefault(name[len(prefix) :].lower(), name)

    def first(candidates: Iterable[str]) -> str:
        return next((plain[name] for name in candidates if name in plain), "")

    def every(candidates: Sequence[str]) -> tuple[str, ...]:
        return tuple(plain[name] for name in candidates if name in plain)

    corners = every([_BOX + corner for corner in ("xmin", "ymin", "xmax", "ymax")])
    objects = ObjectRoles(
        box=corners if len(corners) == 4 else every([_TFDS_BOX]),
        label=first((_OBJECT + "class/label", _BOX + "label", "objects/label", "objects/label_id")),
        text=first((_OBJECT + "class/text",)),
        crowd=first((_OBJECT + "is_crowd", "objects/is_crowd")),
        area=first((_OBJECT + "area", _OBJECT + "segment/area", "objects/area")),
        difficult=first((_OBJECT + "difficult", "objects/is_difficult")),
        truncated=first((_OBJECT + "truncated", "objects/is_truncated")),
        occluded=first((_OBJECT + "occluded", "objects/is_occluded")),
        group_of=first((_OBJECT + "group_of", "objects/is_group_of")),
        depiction=first((_OBJECT + "depiction", "objects/is_depiction")),
        view=first((_OBJECT + "view",)),
        mask=first((_OBJECT + "mask", "image/segmentation/object")),
    )
    semantic = first(_SEMANTIC)
    category, instance = first(("image/panoptic/category_mask",)), first(("image/panoptic/instance_mask",))
    images = every(_IMAGES)
    known = {*images, semantic, category, instance, objects.mask}
    return FeatureNames(
        images=images,
        others=tuple(sorted(name for name in names if name not in known)),
        file_names=every(_FILE_NAMES),
        file_name=first(_NAMES),
        source_id=first(_SOURCE_IDS),
        label=first(_LABELS),
        text=first(_TEXTS),
        synset=first(_SYNSETS),
        height=first(_HEIGHTS),
        width=first(_WIDTHS),
        channels=first(_CHANNELS),
        shape=first(_SHAPES),
        split=first(("split",)),
        semantic=semantic,
        category=category,
        instance=instance,
        caption=first(_CAPTIONS),
        objects=objects,
    )


_CORNERS = (Fill.BOX_XMIN, Fill.BOX_YMIN, Fill.BOX_XMAX, Fill.BOX_YMAX)


def roles_of_specs(specs: Iterable[FeatureSpec]) -> FeatureNames:
    """Returns what features mean of which a dataset of ours says what fills them, whatever their names."""
    by_fill: dict[Fill, str] = {}
    for spec in specs:
        if spec.fill is not None:
            by_fill.setdefault(spec.fill, spec.name)

    def name(fill: Fill) -> str:
        return by_fill.get(fill, "")

    corners = tuple(by_fill[fill] for fill in _CORNERS if fill in by_fill)
    objects = ObjectRoles(
        box=corners if len(corners) == 4 else tuple(filter(None, [name(Fill.BOXES)])),
        label=name(Fill.OBJECT_LABEL),
        text=name(Fill.OBJECT_TEXT),
        crowd=name(Fill.OBJECT_CROWD),
        area=name(Fill.OBJECT_AREA),
        difficult=name(Fill.OBJECT_DIFFICULT),
        truncated=name(Fill.OBJECT_TRUNCATED),
        occluded=name(Fill.OBJECT_OCCLUDED),
        group_of=name(Fill.OBJECT_GROUP_OF),
        depiction=name(Fill.OBJECT_DEPICTION),
        view=name(Fill.OBJECT_VIEW),
        mask=name(Fill.OBJECT_MASK),
    )
    return FeatureNames(
        images=tuple(filter(None, [name(Fill.ENCODED)])),
        others=(),
        file_names=tuple(filter(None, [name(Fill.KEY), name(Fill.FILE_BASENAME)])),
        file_name=name(Fill.KEY) or name(Fill.FILE_BASENAME),
        source_id=name(Fill.SOURCE_ID),
        label=name(Fill.LABEL),
        text=name(Fill.LABEL_TEXT),
        synset=name(Fill.SYNSET),
        height=name(Fill.HEIGHT),
        width=name(Fill.WIDTH),
        channels=name(Fill.CHANNELS),
        shape=name(Fill.SHAPE),
        split=name(Fill.SPLIT),
        semantic=name(Fill.SEMANTIC_MASK),
        category=name(Fill.PANOPTIC_CATEGORY),
        instance=name(Fill.PANOPTIC_INSTANCE),
        caption=name(Fill.CAPTION),
        objects=objects,
    )


def layout_name(names: Iterable[str]) -> str:
    """Returns what people call records with such features."""
    have = set(names)
    roles = roles_of(tuple(sorted(have)))
    if roles.category and roles.instance:
        return "panoptic records"
    if roles.objects.box:
        return "detection records of TFDS" if _TFDS_BOX in have else "Object Detection API records"
    if "image/segmentation/class/encoded" in have:
        return "DeepLab records"
    if {"image/encoded", "image/class/synset"} <= have:
        return "ImageNet records"
    if {"image/encoded", "image/class/label"} <= have:
        return "TF-Slim records"
    if {"image_name", "image", "image_channels"} <= have:
        return "TFRecorder records"
    if "key" in have and have & {"jpg", "png", "webp"}:
        return "img2dataset records"
    return "records with " + ", ".join(sorted(have)[:6]) + (", ..." if len(have) > 6 else "")
