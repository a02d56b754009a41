"""The built-in layouts, with the features that their readers expect.

The names of features are those of the code named at each layout. A comment says what a layout has in
addition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shardwright.schemas.feature_roles import FEATURE_ROLES, FeatureRole, Needs
from shardwright.schemas.layouts.spec import Encoding, FeatureSpec, Layout


def _feature(name: str, role: FeatureRole, optional: bool = False) -> FeatureSpec:
    """Returns a feature with the type and shape of its role."""
    info = FEATURE_ROLES[role]
    return FeatureSpec(name, info.type, info.shape, role, optional)


def _features(**roles: FeatureRole) -> tuple[FeatureSpec, ...]:
    return tuple(_feature(name, role) for name, role in roles.items())


CLASSIFICATION = Layout(
    name="classification",
    summary="TF-Slim's classification records, with key, class name, channels and checksum.",
    # research/slim/datasets/dataset_utils.py
    features=(
        _feature("image/channels", FeatureRole.CHANNELS),
        _feature("image/class/label", FeatureRole.LABEL),
        _feature("image/class/text", FeatureRole.LABEL_TEXT),
        _feature("image/encoded", FeatureRole.ENCODED),
        _feature("image/filename", FeatureRole.KEY),
        _feature("image/format", FeatureRole.FORMAT),
        _feature("image/height", FeatureRole.HEIGHT),
        _feature("image/key/sha256", FeatureRole.SOURCE_SHA256),
        _feature("image/width", FeatureRole.WIDTH),
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

_PICTURE = (
    _feature("image/encoded", FeatureRole.ENCODED),
    _feature("image/filename", FeatureRole.KEY),
    _feature("image/format", FeatureRole.FORMAT),
    _feature("image/height", FeatureRole.HEIGHT),
    _feature("image/key/sha256", FeatureRole.SOURCE_SHA256),
    _feature("image/width", FeatureRole.WIDTH),
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
        _feature("image/object/difficult", FeatureRole.OBJECT_DIFFICULT, optional=True),
        _feature("image/object/truncated", FeatureRole.OBJECT_TRUNCATED, optional=True),
        _feature("image/object/occluded", FeatureRole.OBJECT_OCCLUDED, optional=True),
        _feature("image/object/group_of", FeatureRole.OBJECT_GROUP_OF, optional=True),
        _feature("image/object/depiction", FeatureRole.OBJECT_DEPICTION, optional=True),
        _feature("image/object/view", FeatureRole.OBJECT_VIEW, optional=True),
        *_MASKS_AND_CAPTIONS,
    ),
    first_label=1,
    needs=Needs.OBJECTS,
    format_names={"jpg": "jpeg"},
)

KEYPOINTS = Layout(
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
    first_label=1,
    needs=Needs.OBJECTS,
    format_names={"jpg": "jpeg"},
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
