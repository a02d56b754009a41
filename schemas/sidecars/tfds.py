"""`features.json` and `dataset_info.json`: `tfds.builder_from_directory` needs them to read the shards.

The shards do not change. In TensorFlow Datasets (TFDS), the features have the same names as in the records,
also `image/encoded`: TFDS writes nested features under such names, so it can read them.

This follows TFDS 4.9: `core/features`, `core/splits.py`, `core/naming.py` and `core/dataset_info.py`.
Some results may surprise:

- **Class ids are those of the records.** If they begin at 1, the list of names begins with `__unused_0__`, so
  that `int2str` is right for each id. -1 (no class) reads as -1 and has no name in `int2str`.
- **Class names** are in `features.json` itself. TFDS's own `*.labels.txt` has one name per line, and would
  lose empty names, spaces around a name, and line breaks inside.
- **Optional features** are lists, even single values, and are empty if a record has no value. For a missing
  scalar, TFDS would return the smallest number of the type.
- **Splits without records** are left out. TFDS never has one, and `as_dataset()` of all splits would fail.
- **Pictures have 16 bits** if some of them have (`--depth keep`); TFDS then reads 255 as 65535.
- **Values that TFDS would decode wrongly stay bytes**: pictures if one is WebP (which TFDS decodes to four
  dimensions), JPEG next to 16 bits (which TFDS would read as 65280), or raw pixels next to image files; raw
  pixels of several sizes or types; base64, serialized tensors, masks of objects and of instances, and masks
  of classes unless the ids of all classes fit into 8 bits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from shardwright.schemas.dataset import Dataset, picture_shape, sample_types, stored_format, stored_formats
from shardwright.schemas.example import FeatureType
from shardwright.schemas.layouts import Encoding, FeatureRole, FeatureSpec
from shardwright.schemas.parsing import DTYPES
from shardwright.schemas.plan import is_compressed
from shardwright.schemas.sample_types import widest

#: Template by which TFDS builds the names of the shards.
FILE_TEMPLATE = "{SPLIT}-{SHARD_X_OF_Y}.{FILEFORMAT}"
#: TFDS requires a version of three numbers; its own tool uses this one if the directory does not name any.
#: The fingerprint in the description tells builds apart.
DEFAULT_VERSION = "1.0.0"

_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8})){2}")
_MODULE = "tensorflow_datasets.core.features"
#: Declared types of extra columns and constants that TFDS restores from the stored values.
_DECLARED = ("bool", "int32", "uint32", "uint64")
#: Length and checksums of each record, which TFDS does not count.
_FRAME_BYTES = 16
_MAX_ID_OF_8_BITS = 255

_Json = dict[str, Any]
_Shape = Sequence[int | None]


def features_json(dataset: Dataset) -> str | None:
    """Returns `features.json`, or None if TFDS cannot read the shards because they are compressed."""
    if not is_readable(dataset):
        return None
    features = {spec.name: _feature(spec, dataset) for spec in dataset.features}
    return _text(_connector("features_dict.FeaturesDict", "featuresDict", {"features": features}))


def dataset_info_json(dataset: Dataset) -> str | None:
    """Returns `dataset_info.json`, or None if TFDS cannot read the shards because they are compressed."""
    if not is_readable(dataset):
        return None
    origin, supervised = dataset.provenance, _supervised(dataset.features)
    return _text(
        {
            "name": tfds_name(dataset.name),
            "version": dataset.name if _VERSION.fullmatch(dataset.name) else DEFAULT_VERSION,
            "description": origin.described(
                f"Images: {dataset.all_records}. Classes: {len(dataset.classes)}. "
                f"Layout: {dataset.layout}. Fingerprint: {dataset.fingerprint}. Written by Shardwright."
            ),
            # TFDS has no fields for creators and dates.
            **({"citation": origin.citation} if origin.citation else {}),
            **({"location": {"urls": [origin.url]}} if origin.url else {}),
            **({"redistributionInfo": {"license": origin.license}} if origin.license else {}),
            "fileFormat": "tfrecord",
            "splits": [
                {
                    "name": split,
                    "filepathTemplate": FILE_TEMPLATE,
                    "shardLengths": [str(shard.records) for shard in shards],
                    "numBytes": str(sum(shard.bytes - _FRAME_BYTES * shard.records for shard in shards)),
                }
                for split, shards in dataset.splits.items()
                if dataset.records(split)
            ],
            **({"supervisedKeys": supervised} if supervised else {}),
        }
    )


def tfds_name(name: str) -> str:
    """Returns a dataset's name in the form that TFDS allows: a letter, then lower case, digits and `_`."""
    plain = re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_")
    if not plain:
        return "dataset"
    return plain if plain[0].isalpha() else f"dataset_{plain}"


def class_names(labels: Sequence[str], first_label: int) -> list[str]:
    """Returns the name of each id from 0 on; ids below the first class get a placeholder."""
    used_names = set(labels)
    names: list[str] = []
    for number in range(first_label):
        name = f"__unused_{number}__"
        while name in used_names:
            name += "_"
        names.append(name)
    return [*names, *labels]


def is_readable(dataset: Dataset) -> bool:
    """Returns whether TFDS can read the shards; it cannot read compressed ones, nor splits named `_`."""
    named = all(any(map(str.isalnum, split)) for split in dataset.splits)
    return named and not any(is_compressed(shard.file) for shard in dataset.shards)


def _feature(spec: FeatureSpec, dataset: Dataset) -> _Json:
    """Returns a feature's entry in `features.json`."""
    role = spec.fill if spec.encoding is Encoding.PLAIN else None
    if role is FeatureRole.ENCODED:
        return _picture(dataset)
    if role in (FeatureRole.SEMANTIC_MASK, FeatureRole.PANOPTIC_CATEGORY) and not spec.optional:
        return _class_mask(dataset)
    if role is FeatureRole.BOXES:
        return _sequence(_custom("bounding_boxes.BBoxFeature", {}))
    if role in (FeatureRole.LABEL, FeatureRole.OBJECT_LABEL):
        names = class_names(dataset.labels, dataset.first_label)
        return _values(spec, _custom("class_label_feature.ClassLabel", {"names": names}))
    return _values(spec, _scalar(spec))


def _picture(dataset: Dataset) -> _Json:
    stored, shape, types = stored_format(dataset), picture_shape(dataset.plan.settings), sample_types(dataset)
    if stored == "raw":
        one = None not in shape and len(types) == 1
        return _tensor(types[0], shape, "bytes") if one else _text_feature()
    formats = set(stored_formats(dataset))
    if formats & {"raw", "webp"} or ("uint16" in types and formats != {"png"}):
        return _text_feature()
    image: _Json = {"dtype": widest(types), "shape": _dimensions(shape)}
    # TFDS requires the number of channels if the format of a picture is given.
    if stored in ("jpeg", "png") and shape[2] is not None:
        image["encodingFormat"] = stored
    return _connector("image_feature.Image", "image", image)


def _class_mask(dataset: Dataset) -> _Json:
    """Returns a mask of class ids: a picture with class names, if every record has a mask of 8 bits."""
    names = class_names(dataset.labels, dataset.first_label)
    if not dataset.labels or len(names) > _MAX_ID_OF_8_BITS or dataset.keeps_unlabelled:
        return _text_feature()  # a record without a mask has empty bytes, which cannot be decoded
    height, width, _ = picture_shape(dataset.plan.settings)
    arguments = {"labels": names, "shape": [height, width, 1], "encoding_format": "png"}
    return _custom("labeled_image.LabeledImage", arguments)


def _values(spec: FeatureSpec, scalar: _Json) -> _Json:
    """Returns a feature with as many values as its shape requires; lists may be absent from a record."""
    if not spec.optional and None not in spec.shape:
        return _tensor(_dtype(spec), spec.shape) if spec.shape else scalar
    each = spec.shape[1:]
    if spec.shape[:1] == (None,) and each and None not in each:
        return _tensor(_dtype(spec), spec.shape)
    return _sequence(scalar)


def _scalar(spec: FeatureSpec) -> _Json:
    return _text_feature() if spec.type is FeatureType.BYTES else _tensor(_dtype(spec), ())


def _dtype(spec: FeatureSpec) -> str:
    declared = spec.value_type if spec.type is FeatureType.INT64 else ""
    return declared if declared in _DECLARED else DTYPES[spec.type]


def _text_feature() -> _Json:
    """Returns a feature of unchanged bytes; TFDS also returns texts as bytes."""
    return _connector("text_feature.Text", "text", {})


def _tensor(dtype: str, shape: _Shape, encoding: str = "none") -> _Json:
    content = {"dtype": dtype, "encoding": encoding, "shape": _dimensions(shape)}
    return _connector("tensor_feature.Tensor", "tensor", content)


def _sequence(each: _Json) -> _Json:
    return _connector("sequence_feature.Sequence", "sequence", {"feature": each, "length": "-1"})


def _custom(name: str, arguments: Mapping[str, Any]) -> _Json:
    """Returns a feature that TFDS creates by calling its class, because the arguments exceed its message."""
    return _connector(name, "jsonFeature", {"json": json.dumps(arguments, sort_keys=True)})


def _connector(name: str, field: str, content: Mapping[str, Any]) -> _Json:
    """Returns a `Feature` message (TFDS's `proto/feature.proto`) in protobuf's JSON."""
    return {"pythonClassName": f"{_MODULE}.{name}", field: content}


def _dimensions(shape: _Shape) -> _Json:
    return {"dimensions": [str(-1 if size is None else size) for size in shape]} if shape else {}


def _supervised(features: Sequence[FeatureSpec]) -> _Json | None:
    """Returns the result of `as_supervised=True`: the picture and its class."""
    images = [spec.name for spec in features if spec.fill is FeatureRole.ENCODED]
    labels = [
        spec.name
        for spec in features
        if spec.fill is FeatureRole.LABEL and spec.encoding is Encoding.PLAIN and not spec.optional
    ]
    if not images or not labels:
        return None
    return {"tuple": {"items": [{"featureKey": images[0]}, {"featureKey": labels[0]}]}}


def _text(value: _Json) -> str:
    """Serializes to plain ASCII, for readers that use the machine's locale."""
    return json.dumps(value, indent=2, sort_keys=True) + "\n"
