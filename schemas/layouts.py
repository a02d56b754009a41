"""Record layouts as data: named features, the role that fills each of them, and the built-in layouts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from math import prod
from typing import Any

from shardwright.schemas.columns import ExtraColumn
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.example import FeatureType
from shardwright.schemas.feature_roles import CLASS_ROLES, FLAGS
from shardwright.schemas.feature_roles import FeatureRole as FeatureRole
from shardwright.schemas.feature_roles import Needs as Needs
from shardwright.schemas.json_values import fields_json, from_json, given_fields, to_json
from shardwright.schemas.values import ValueType, short_repr


class Encoding(StrEnum):
    """How a value becomes the bytes of a feature."""

    PLAIN = "plain"  # unchanged
    BASE64 = "base64"  # URL-safe base64 with padding, of bytes
    TENSOR = "tensor"  # tf.io.serialize_tensor's TensorProto, which tf.io.parse_tensor reads


#: Fields of a feature that are stored even if they have their default values.
_ALWAYS_STORED = ("name", "type", "shape", "fill")


@dataclass(frozen=True)
class FeatureSpec:
    """One feature of a layout.

    Attributes:
      name: Key in `tf.train.Example`.
      type: bytes, float or int64, as the record stores it.
      shape: Number of values per dimension. () is one value, (None,) any number, (None, 4) any number of
        groups of four in one flat list.
      fill: Role of its values; None for features inferred from records of unknown origin.
      optional: Whether records leave it out if the source has no value.
      encoding: How the value becomes bytes.
      dtype: NumPy's name of the type inside a serialized tensor (`object` for texts), or of the bare pixels
        of every record; else empty.
      tensor_shape: Shape of a serialized tensor, None for any number; () for a single value.
      value_type: Declared type (`ValueType`) of an extra column or a constant, else empty.
      value: Values of a constant, texts and bytes as text; for a column of type enum, the names of its
        numbers.
      column: Name of an extra column in the source, if it differs from the feature's name.
    """

    name: str
    type: FeatureType
    shape: tuple[int | None, ...] = ()
    fill: FeatureRole | None = None
    optional: bool = False
    encoding: Encoding = Encoding.PLAIN
    dtype: str = ""
    tensor_shape: tuple[int | None, ...] = ()
    value_type: str = ""
    value: tuple[Any, ...] = ()
    column: str = ""

    @property
    def value_shape(self) -> tuple[int | None, ...]:
        """Shape of its values, also if they are in a serialized tensor."""
        return self.tensor_shape if self.encoding is Encoding.TENSOR else self.shape

    @property
    def holds_pixels(self) -> bool:
        """Whether it is a serialized tensor of a picture's pixels."""
        return self.fill is FeatureRole.ENCODED and self.encoding is Encoding.TENSOR and self.dtype == "uint8"

    @property
    def pixel_type(self) -> str:
        """Sample type of the bare pixels of every record; empty if the layout does not state one."""
        is_bare = self.fill is FeatureRole.ENCODED and self.encoding is not Encoding.TENSOR
        return self.dtype if is_bare else ""

    @cached_property
    def length(self) -> int | None:
        """Number of values in a record; None if it varies."""
        sizes = [size for size in self.shape if size is not None]
        return prod(sizes) if len(sizes) == len(self.shape) else None

    @cached_property
    def constant(self) -> tuple[int | float | bytes, ...]:
        """The values of a constant, as each record stores them."""
        return tuple(item.encode() if isinstance(item, str) else item for item in self.value)

    def as_json(self) -> dict[str, Any]:
        """Returns the feature as `dataset.json` stores it: without default values."""
        return {name: to_json(item) for name, item in given_fields(self, *_ALWAYS_STORED).items()}


def pixel_type_of(features: Sequence[FeatureSpec]) -> str:
    """Returns the sample type of the bare pixels of every record; empty if no feature states one."""
    return next((spec.pixel_type for spec in features if spec.pixel_type), "")


@dataclass(frozen=True)
class Layout:
    """A named set of features.

    Attributes:
      name: Name for `--layout`.
      features: Features of each record.
      first_label: Id of the first class.
      needs: Kind of annotations that the source must have.
      format_names: Format -> the name that the layout's readers use, if it is not jpg, png, webp or raw.
      pixels: Whether it stores raw pixels instead of image files.
      summary: One sentence about the layout and its readers.
    """

    name: str
    features: tuple[FeatureSpec, ...]
    first_label: int = 0
    needs: Needs = Needs.LABEL
    format_names: Mapping[str, str] = field(default_factory=dict)
    pixels: bool = False
    summary: str = "a layout of your own"

    @cached_property
    def by_role(self) -> Mapping[FeatureRole, FeatureSpec]:
        """The features by role; if several have the same role, one that every record has is preferred."""
        optional_first = sorted(self.features, key=lambda spec: not spec.optional)
        return {spec.fill: spec for spec in optional_first if spec.fill is not None}

    @property
    def columns(self) -> tuple[ExtraColumn, ...]:
        """The columns of the source that it stores, each once; required if any feature requires it.

        Raises:
          UsageError: If two features contradict each other about a column.
        """
        named: dict[str, tuple[ExtraColumn, str]] = {}
        for spec in self.features:
            if spec.fill is not FeatureRole.EXTRA:
                continue
            column = column_of(spec)
            definition, first = named.get(column.name, (column, spec.name))
            if column._replace(optional=definition.optional) != definition:
                raise UsageError(
                    f"--layout {self.name}: features {first!r} and {spec.name!r} read the column "
                    f"{column.name!r} as different types; give them the same type, values and shape, "
                    "and doubles and uint64 the same tensor."
                )
            named[column.name] = column._replace(optional=definition.optional and column.optional), first
        return tuple(column for column, _ in named.values())

    @cached_property
    def stores_annotations(self) -> bool:
        """Whether records hold more than an image and its class: objects, or a mask."""
        return self.needs not in (Needs.IMAGE, Needs.LABEL)

    @property
    def stores_size(self) -> bool:
        """Whether records state the stored picture's height and width."""
        roles = self.by_role.keys()
        return self._has_shape or {FeatureRole.HEIGHT, FeatureRole.WIDTH} <= roles

    @property
    def stores_channels(self) -> bool:
        """Whether records state the stored picture's number of channels."""
        return self._has_shape or FeatureRole.CHANNELS in self.by_role

    @cached_property
    def pixel_type(self) -> str:
        """Sample type of the bare pixels of every record; empty if it does not state one."""
        return pixel_type_of(self.features)

    @property
    def _has_shape(self) -> bool:
        """Whether a feature contains height, width and channels: as its value, or as a tensor's shape."""
        return any(spec.fill is FeatureRole.SHAPE or spec.holds_pixels for spec in self.features)

    def as_json(self) -> dict[str, Any]:
        """Returns a custom layout as the settings of a dataset store it."""
        return {name: value for name, value in fields_json(self).items() if name != "summary"}


_EACH = (None,)


def column_of(spec: FeatureSpec) -> ExtraColumn:
    """Returns the source's column for a feature."""
    shape = spec.value_shape
    return ExtraColumn(
        name=spec.column or spec.name,
        value_type=ValueType(spec.value_type or spec.type),
        is_list=shape != (),
        names=spec.value,
        optional=spec.optional,
        wide=spec.dtype in ("float64", "uint64"),
        rows=shape if len(shape) > 1 else (),
    )


def extended(
    layout: Layout,
    columns: Sequence[ExtraColumn],
    several_labels: bool,
    folds: bool = False,
    dtype: bool = False,
    one_size: bool = False,
) -> Layout:
    """Returns a layout with further features.

    Args:
      layout: A layout.
      columns: Extra columns to store.
      several_labels: Whether an image may have several classes.
      folds: Whether records store their fold.
      dtype: Whether records store the type and the shape of their picture.
      one_size: Whether all pictures have the same height and width, so that they need not be stored.

    Raises:
      UsageError: If a feature of the layout has the name of a new one.
    """
    if dtype:
        roles = [] if layout.pixel_type else [FeatureRole.DTYPE]
        roles += [] if layout.stores_channels else [FeatureRole.CHANNELS]
        roles += [] if layout.stores_size or one_size else [FeatureRole.HEIGHT, FeatureRole.WIDTH]
        layout = _with_roles(layout, roles, "--depth keep and --channels store")
    if folds:
        layout = _with_roles(layout, [FeatureRole.FOLD], "--folds stores")
    names = {spec.name for spec in layout.features}
    for column in columns:
        if column.name in names:
            raise UsageError(
                f"--extra_columns {column.name}: layout {layout.name} has a feature of that name; "
                "rename the column."
            )
    extra = (
        FeatureSpec(
            column.name, column.type, _EACH if column.is_list else (), FeatureRole.EXTRA,
            value_type=column.value_type,
        )
        for column in columns
    )  # fmt: skip
    layout = with_several_classes(layout) if several_labels else layout
    return replace(layout, features=(*layout.features, *extra))


def _with_roles(layout: Layout, roles: Sequence[FeatureRole], options: str) -> Layout:
    """Returns a layout that has features of these roles, those that it lacks with the names of the roles.

    Args:
      layout: A layout.
      roles: Roles of features that describe the picture.
      options: The options that store them, with a verb, for the message about a name that is in use.
    """
    names = {spec.name for spec in layout.features}
    prefix = "image/" if any(name.startswith("image/") for name in names) else ""
    added = {f"{prefix}{role}": role for role in roles if role not in layout.by_role}
    for name, role in added.items():
        if name in names:
            raise UsageError(
                f"Layout {layout.name} has a feature {name!r} that is not the picture's {role.value}, which "
                f"{options}; rename the feature."
            )
    return replace(layout, features=(*layout.features, *(_feature(*item) for item in added.items())))


def with_several_classes(layout: Layout) -> Layout:
    """Returns a layout in whose records an image may have several classes."""
    features = (_several(spec) if spec.fill in CLASS_ROLES else spec for spec in layout.features)
    return replace(layout, features=tuple(features))


def _several(spec: FeatureSpec) -> FeatureSpec:
    """Returns the feature with any number of values instead of one."""
    if spec.encoding is Encoding.TENSOR:
        return replace(spec, tensor_shape=_EACH)
    return replace(spec, shape=_EACH)


def inline_layout(layout: Layout) -> str:
    """Returns a layout as a value of the setting `layout`, so that workers do not need its file."""
    return json.dumps(layout.as_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _feature(name: str, role: FeatureRole, optional: bool = False) -> FeatureSpec:
    """Returns a feature with the type and shape of its role."""
    return FeatureSpec(name, role.type, role.shape, role, optional)


def _features(**roles: FeatureRole) -> tuple[FeatureSpec, ...]:
    return tuple(_feature(name, role) for name, role in roles.items())


_PICTURE = (
    _feature("image/encoded", FeatureRole.ENCODED),
    _feature("image/filename", FeatureRole.KEY),
    _feature("image/format", FeatureRole.FORMAT),
    _feature("image/height", FeatureRole.HEIGHT),
    _feature("image/key/sha256", FeatureRole.SOURCE_SHA256),
    _feature("image/width", FeatureRole.WIDTH),
)
CLASSIFICATION = Layout(
    name="classification",
    summary="TF-Slim's classification records, with key, class name, channels and checksum.",
    # research/slim/datasets/dataset_utils.py
    features=(
        _feature("image/channels", FeatureRole.CHANNELS),
        _feature("image/class/label", FeatureRole.LABEL),
        _feature("image/class/text", FeatureRole.LABEL_TEXT),
        *_PICTURE,
    ),
)

IMAGENET = Layout(
    name="imagenet",
    summary="ImageNet records as TF-Slim and the TPU models read them: ids from 1, synset, color space.",
    # research/slim/datasets/build_imagenet_data.py without its boxes, like imagenet_to_gcs.py
    features=(
        _feature("image/channels", FeatureRole.CHANNELS),
        _feature("image/class/label", FeatureRole.LABEL),
        _feature("image/class/synset", FeatureRole.SYNSET),
        _feature("image/class/text", FeatureRole.LABEL_TEXT),
        _feature("image/colorspace", FeatureRole.COLORSPACE),
        _feature("image/encoded", FeatureRole.ENCODED),
        _feature("image/filename", FeatureRole.FILE_BASENAME),
        _feature("image/format", FeatureRole.FORMAT),
        _feature("image/height", FeatureRole.HEIGHT),
        _feature("image/width", FeatureRole.WIDTH),
    ),
    first_label=1,
    format_names={"jpg": "JPEG", "png": "PNG", "webp": "WEBP"},
)

_OBJECTS = (
    _feature("image/object/bbox/xmin", FeatureRole.BOX_XMIN),
    _feature("image/object/bbox/xmax", FeatureRole.BOX_XMAX),
    _feature("image/object/bbox/ymin", FeatureRole.BOX_YMIN),
    _feature("image/object/bbox/ymax", FeatureRole.BOX_YMAX),
    _feature("image/object/class/text", FeatureRole.OBJECT_TEXT),
    _feature("image/object/class/label", FeatureRole.OBJECT_LABEL),
    _feature("image/object/is_crowd", FeatureRole.OBJECT_CROWD),
    _feature("image/object/area", FeatureRole.OBJECT_AREA),
)
_MASKS_AND_CAPTIONS = (
    _feature("image/object/mask", FeatureRole.OBJECT_MASK, optional=True),
    _feature("image/caption", FeatureRole.CAPTION, optional=True),
)

DETECTION = Layout(
    name="detection",
    summary="The TF Object Detection API's records: boxes, classes from 1, masks; lists may be empty.",
    # dataset_tools/create_coco_tf_record.py, create_pascal_tf_record.py, oid_tfrecord_creation.py: features
    # that only one of them writes are present if the source has the value
    features=(
        *_PICTURE,
        _feature("image/source_id", FeatureRole.SOURCE_ID),
        *_OBJECTS,
        *(_feature(f"image/object/{flag}", role, optional=True) for flag, role in FLAGS.items()),
        _feature("image/object/view", FeatureRole.OBJECT_VIEW, optional=True),
        *_MASKS_AND_CAPTIONS,
    ),
    first_label=1,
    needs=Needs.OBJECTS,
    format_names={"jpg": "jpeg"},
)

KEYPOINTS = replace(
    DETECTION,
    name="keypoints",
    summary="As detection, with the key points of each object, such as the joints of persons.",
    # dataset_tools/create_coco_tf_record.py with a file of key points: every object has the same number of
    # points, so that readers can reshape the lists
    features=(
        *DETECTION.features,
        _feature("image/object/keypoint/x", FeatureRole.KEYPOINT_X),
        _feature("image/object/keypoint/y", FeatureRole.KEYPOINT_Y),
        _feature("image/object/keypoint/visibility", FeatureRole.KEYPOINT_VISIBILITY),
        _feature("image/object/keypoint/text", FeatureRole.KEYPOINT_TEXT),
        _feature("image/object/keypoint/num", FeatureRole.KEYPOINT_NUM),
    ),
)

VISION = Layout(
    name="vision",
    summary="The TF model garden's records: as detection, but jpg, and without objects no object features.",
    # official/vision/data/tfrecord_lib.py and create_coco_tf_record.py
    features=(
        *_PICTURE,
        _feature("image/source_id", FeatureRole.SOURCE_ID),
        *(replace(spec, optional=True) for spec in _OBJECTS),
        *_MASKS_AND_CAPTIONS,
        _feature("image/segmentation/class/encoded", FeatureRole.SEMANTIC_MASK, optional=True),
        _feature("image/panoptic/category_mask", FeatureRole.PANOPTIC_CATEGORY, optional=True),
        _feature("image/panoptic/instance_mask", FeatureRole.PANOPTIC_INSTANCE, optional=True),
    ),
    first_label=1,
    needs=Needs.OBJECTS,
)

SEGMENTATION = Layout(
    name="segmentation",
    summary="DeepLab's records, with the checksum: a class for every pixel.",
    # research/deeplab/datasets/build_data.py
    features=(
        *_PICTURE,
        _feature("image/channels", FeatureRole.CHANNELS),
        _feature("image/segmentation/class/encoded", FeatureRole.SEMANTIC_MASK),
        _feature("image/segmentation/class/format", FeatureRole.SEMANTIC_FORMAT),
    ),
    needs=Needs.SEMANTIC,
    format_names={"jpg": "jpeg"},
)

PANOPTIC = Layout(
    name="panoptic",
    summary="The TF model garden's panoptic records: a class and an instance for every pixel.",
    # official/vision/data/create_coco_tf_record.py
    features=(
        *_PICTURE,
        _feature("image/source_id", FeatureRole.SOURCE_ID),
        _feature("image/panoptic/category_mask", FeatureRole.PANOPTIC_CATEGORY),
        _feature("image/panoptic/instance_mask", FeatureRole.PANOPTIC_INSTANCE),
    ),
    first_label=1,
    needs=Needs.PANOPTIC,
)

IMAGES = Layout(
    name="images",
    summary="Images without classes, as for pretraining: TF-Slim's records without the class.",
    features=tuple(
        spec
        for spec in CLASSIFICATION.features
        if spec.fill not in (FeatureRole.LABEL, FeatureRole.LABEL_TEXT)
    ),
    needs=Needs.IMAGE,
)

TFDS = Layout(
    name="tfds",
    summary="TensorFlow Datasets' image classification: image and label, which tfds.load users know.",
    # tensorflow_datasets/core/folder_dataset/image_folder.py
    features=_features(image=FeatureRole.ENCODED, label=FeatureRole.LABEL),
)

TFRECORDER = Layout(
    name="tfrecorder",
    summary="TFRecorder's records: bare pixels as base64, the image's sides, split and label.",
    # tfrecorder/input_schema.py, beam_image.py; unlike there, labels have the ids that this project gives
    # them
    features=(
        replace(_feature("image", FeatureRole.ENCODED), encoding=Encoding.BASE64),
        *_features(
            image_channels=FeatureRole.CHANNELS,
            image_height=FeatureRole.HEIGHT,
            image_name=FeatureRole.FILE_BASENAME,
            image_width=FeatureRole.WIDTH,
            label=FeatureRole.LABEL,
            split=FeatureRole.SPLIT,
        ),
    ),
    pixels=True,
)

MINIMAL = Layout(
    name="minimal",
    summary="The least that a tutorial has: the image file's bytes and the class id.",
    features=_features(image=FeatureRole.ENCODED, label=FeatureRole.LABEL),
)

TUTORIAL = Layout(
    name="tutorial",
    summary="The records of TensorFlow's own TFRecord guide: sides, depth, label and image_raw.",
    # tensorflow.org/tutorials/load_data/tfrecord
    features=_features(
        depth=FeatureRole.CHANNELS,
        height=FeatureRole.HEIGHT,
        image_raw=FeatureRole.ENCODED,
        label=FeatureRole.LABEL,
        width=FeatureRole.WIDTH,
    ),
)

RAW = Layout(
    name="raw",
    summary="Bare uint8 pixels of images that all have one size, and the class id.",
    features=_features(image=FeatureRole.ENCODED, label=FeatureRole.LABEL),
    pixels=True,
)

RAW_WITH_SHAPE = Layout(
    name="raw_with_shape",
    summary="Bare uint8 pixels with their shape (height, width, channels) and the class name.",
    features=_features(data=FeatureRole.ENCODED, name=FeatureRole.LABEL_TEXT, shape=FeatureRole.SHAPE),
    pixels=True,
)

LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout
    for layout in (
        CLASSIFICATION, IMAGENET, IMAGES, DETECTION, KEYPOINTS, VISION, SEGMENTATION, PANOPTIC,
        TFDS, TFRECORDER, MINIMAL, TUTORIAL, RAW, RAW_WITH_SHAPE,
    )
}  # fmt: skip


def is_layout_file(value: str) -> bool:
    """Whether a value of `--layout` names a file."""
    return value.lower().endswith((".yaml", ".yml"))


def layout_by_name(value: str) -> Layout:
    """Returns the layout for a value of the setting `layout`: a built-in name or a result of `inline_layout`.

    Raises:
      UsageError: If there is no layout of that name, or the layout is damaged.
    """
    if value.startswith("{"):
        return _inline(value)
    if is_layout_file(value):
        raise UsageError(
            f"--layout {value}: the file has not been read; give settings what "
            "shardwright.core.plan.request.read_layout returns."
        )
    if value not in LAYOUTS:
        raise UsageError(
            f"--layout {short_repr(value)[1:-1]}: unknown layout; name a file that ends in .yaml, or "
            f"choose one of {', '.join(LAYOUTS)}{nearest(value, tuple(LAYOUTS)) or '.'}"
        )
    return LAYOUTS[value]


@lru_cache(maxsize=16)
def _inline(value: str) -> Layout:
    try:
        return from_json(Layout, json.loads(value))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise UsageError(
            f"--layout {short_repr(value)}: this is not a layout; name a file that ends in .yaml, or "
            f"choose one of {', '.join(LAYOUTS)}."
        ) from None
