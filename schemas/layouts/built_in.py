"""The built-in layouts, each as its readers know it.

The keys are those of the code that is named with each; what it has besides is said there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shardwright.schemas.fills import FILLS, Fill, Needs
from shardwright.schemas.layouts.spec import Encoding, FeatureSpec, Layout


def _feature(name: str, fill: Fill, optional: bool = False) -> FeatureSpec:
    """Returns a feature of the type and shape that its fill has."""
    info = FILLS[fill]
    return FeatureSpec(name, info.type, info.shape, fill, optional)


def _features(**fills: Fill) -> tuple[FeatureSpec, ...]:
    return tuple(_feature(name, fill) for name, fill in fills.items())


CLASSIFICATION = Layout(
    name="classification",
    summary="TF-Slim's classification records, with key, class name, channels and checksum.",
    # research/slim/datasets/dataset_utils.py
    features=(
        _feature("image/channels", Fill.CHANNELS),
        _feature("image/class/label", Fill.LABEL),
        _feature("image/class/text", Fill.LABEL_TEXT),
        _feature("image/encoded", Fill.ENCODED),
        _feature("image/filename", Fill.KEY),
        _feature("image/format", Fill.FORMAT),
        _feature("image/height", Fill.HEIGHT),
        _feature("image/key/sha256", Fill.SOURCE_SHA256),
        _feature("image/width", Fill.WIDTH),
    ),
)

IMAGENET = Layout(
    name="imagenet",
    summary="ImageNet records as TF-Slim and the TPU models read them: ids from 1, synset, colour space.",
    # research/slim/datasets/build_imagenet_data.py without its boxes, which imagenet_to_gcs.py omits, too
    features=(
        _feature("image/channels", Fill.CHANNELS),
        _feature("image/class/label", Fill.LABEL),
        _feature("image/class/synset", Fill.SYNSET),
        _feature("image/class/text", Fill.LABEL_TEXT),
        _feature("image/colorspace", Fill.COLORSPACE),
        _feature("image/encoded", Fill.ENCODED),
        _feature("image/filename", Fill.FILE_BASENAME),
        _feature("image/format", Fill.FORMAT),
        _feature("image/height", Fill.HEIGHT),
        _feature("image/width", Fill.WIDTH),
    ),
    first_label=1,
    format_names={"jpg": "JPEG", "png": "PNG", "webp": "WEBP"},
)

_PICTURE = (
    _feature("image/encoded", Fill.ENCODED),
    _feature("image/filename", Fill.KEY),
    _feature("image/format", Fill.FORMAT),
    _feature("image/height", Fill.HEIGHT),
    _feature("image/key/sha256", Fill.SOURCE_SHA256),
    _feature("image/width", Fill.WIDTH),
)
_OBJECTS = (
    _feature("image/object/bbox/xmin", Fill.BOX_XMIN),
    _feature("image/object/bbox/xmax", Fill.BOX_XMAX),
    _feature("image/object/bbox/ymin", Fill.BOX_YMIN),
    _feature("image/object/bbox/ymax", Fill.BOX_YMAX),
    _feature("image/object/class/text", Fill.OBJECT_TEXT),
    _feature("image/object/class/label", Fill.OBJECT_LABEL),
    _feature("image/object/is_crowd", Fill.OBJECT_CROWD),
    _feature("image/object/area", Fill.OBJECT_AREA),
)
_MASKS_AND_CAPTIONS = (
    _feature("image/object/mask", Fill.OBJECT_MASK, optional=True),
    _feature("image/caption", Fill.CAPTION, optional=True),
)

DETECTION = Layout(
    name="detection",
    summary="The TF Object Detection API's records: boxes, classes from 1, masks; lists may be empty.",
    # dataset_tools/create_coco_tf_record.py, create_pascal_tf_record.py, oid_tfrecord_creation.py: what
    # only one of them writes is there where the source says it
    features=(
        *_PICTURE,
        _feature("image/source_id", Fill.SOURCE_ID),
        *_OBJECTS,
        _feature("image/object/difficult", Fill.OBJECT_DIFFICULT, optional=True),
        _feature("image/object/truncated", Fill.OBJECT_TRUNCATED, optional=True),
        _feature("image/object/occluded", Fill.OBJECT_OCCLUDED, optional=True),
        _feature("image/object/group_of", Fill.OBJECT_GROUP_OF, optional=True),
        _feature("image/object/depiction", Fill.OBJECT_DEPICTION, optional=True),
        _feature("image/object/view", Fill.OBJECT_VIEW, optional=True),
        *_MASKS_AND_CAPTIONS,
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
        _feature("image/source_id", Fill.SOURCE_ID),
        *(replace(spec, optional=True) for spec in _OBJECTS),
        *_MASKS_AND_CAPTIONS,
        _feature("image/segmentation/class/encoded", Fill.SEMANTIC_MASK, optional=True),
        _feature("image/panoptic/category_mask", Fill.PANOPTIC_CATEGORY, optional=True),
        _feature("image/panoptic/instance_mask", Fill.PANOPTIC_INSTANCE, optional=True),
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
        _feature("image/channels", Fill.CHANNELS),
        _feature("image/segmentation/class/encoded", Fill.SEMANTIC_MASK),
        _feature("image/segmentation/class/format", Fill.SEMANTIC_FORMAT),
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
        _feature("image/source_id", Fill.SOURCE_ID),
        _feature("image/panoptic/category_mask", Fill.PANOPTIC_CATEGORY),
        _feature("image/panoptic/instance_mask", Fill.PANOPTIC_INSTANCE),
    ),
    first_label=1,
    needs=Needs.PANOPTIC,
)

TFDS = Layout(
    name="tfds",
    summary="TensorFlow Datasets' image classification: image and label, which tfds.load users know.",
    # tensorflow_datasets/core/folder_dataset/image_folder.py
    features=_features(image=Fill.ENCODED, label=Fill.LABEL),
)

TFRECORDER = Layout(
    name="tfrecorder",
    summary="TFRecorder's records: bare pixels as base64, the picture's sides, split and label.",
    # tfrecorder/input_schema.py, beam_image.py; labels here are numbered as everywhere in this project
    features=(
        replace(_feature("image", Fill.ENCODED), encoding=Encoding.BASE64),
        *_features(
            image_channels=Fill.CHANNELS,
            image_height=Fill.HEIGHT,
            image_name=Fill.FILE_BASENAME,
            image_width=Fill.WIDTH,
            label=Fill.LABEL,
            split=Fill.SPLIT,
        ),
    ),
    pixels=True,
)

MINIMAL = Layout(
    name="minimal",
    summary="The least that a tutorial has: the image file's bytes and the class id.",
    features=_features(image=Fill.ENCODED, label=Fill.LABEL),
)

TUTORIAL = Layout(
    name="tutorial",
    summary="The records of TensorFlow's own TFRecord guide: sides, depth, label and image_raw.",
    # tensorflow.org/tutorials/load_data/tfrecord
    features=_features(
        depth=Fill.CHANNELS, height=Fill.HEIGHT, image_raw=Fill.ENCODED, label=Fill.LABEL, width=Fill.WIDTH
    ),
)

RAW = Layout(
    name="raw",
    summary="Bare uint8 pixels of pictures that all have one size, and the class id.",
    features=_features(image=Fill.ENCODED, label=Fill.LABEL),
    pixels=True,
)

RAW_WITH_SHAPE = Layout(
    name="raw_with_shape",
    summary="Bare uint8 pixels with their shape (height, width, channels) and the class name.",
    features=_features(data=Fill.ENCODED, name=Fill.LABEL_TEXT, shape=Fill.SHAPE),
    pixels=True,
)

LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout
    for layout in (
        CLASSIFICATION, IMAGENET, DETECTION, VISION, SEGMENTATION, PANOPTIC, TFDS, TFRECORDER,
        MINIMAL, TUTORIAL, RAW, RAW_WITH_SHAPE,
    )
}  # fmt: skip
