"""`schema.pbtxt` and `label_map.pbtxt`, in protobuf's text format.

The schema of the records is for TFX, TensorFlow Data Validation and TensorFlow Transform. It is a
`tensorflow.metadata.v0.Schema` (tensorflow_metadata/proto/v0/schema.proto). A feature with the same number of
values in every record has a `shape`, which `schema_as_feature_spec` reads as `FixedLenFeature`. Other
features have a `value_count`, which it reads as `VarLenFeature`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from shardwright.schemas.dataset import Dataset, picture_shape, sample_types, stored_formats
from shardwright.schemas.example import FeatureType
from shardwright.schemas.feature_roles import FLAGS, POSITION_ROLES, FeatureRole, Needs
from shardwright.schemas.image_formats import FORMAT_NAMES
from shardwright.schemas.labels import UNLABELLED
from shardwright.schemas.layouts import Encoding, FeatureSpec
from shardwright.schemas.values import ValueType

#: The fields of a message in order; a repeated field occurs several times.
Fields: TypeAlias = "Sequence[tuple[str, Value]]"
#: The value of a field: a text, a number, a type of features, or the fields of a nested message.
Value: TypeAlias = "str | int | float | FeatureType | Fields"


def message(fields: Iterable[tuple[str, Value]]) -> str:
    """Returns a message as text, with one field per line."""
    return "".join(f"{line}\n" for line in _lines(fields))


def _lines(fields: Iterable[tuple[str, Value]]) -> Iterator[str]:
    for name, value in fields:
        if isinstance(value, str | int | float):
            yield f"{name}: {_scalar(value)}"
        else:
            yield f"{name} {{"
            yield from (f"  {line}" for line in _lines(value))
            yield "}"


def _scalar(value: str | int | float | FeatureType) -> str:
    """Returns a value; of a text in quotes, as UTF-8, everything except plain ASCII is escaped."""
    if isinstance(value, FeatureType):
        return _TYPES[value]
    if not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else repr(value)
    plain = re.sub(r"""(["'\\])""", r"\\\1", value.encode().decode("latin-1"))
    return '"' + re.sub("[^ -~]", lambda byte: f"\\{ord(byte[0]):03o}", plain) + '"'


#: The domain of a feature: the name of its field in `Feature`, and the fields of the domain.
_Domain: TypeAlias = tuple[str, Fields]

_TYPES = {FeatureType.BYTES: "BYTES", FeatureType.INT64: "INT", FeatureType.FLOAT: "FLOAT"}
_ANY_SHARE: _Domain = ("float_domain", [("min", 0.0), ("max", 1.0)])
_FLAG: _Domain = ("int_domain", [("min", 0), ("max", 1)])
#: Stored formats that TensorFlow decodes.
_DECODABLE = ("jpeg", "png")
_MAX_CHANNELS = 4


def label_map_pbtxt(classes: Mapping[int, str]) -> str:
    """Returns a `StringIntLabelMap` for the TF Object Detection API.

    Args:
      classes: Id -> class name, in the order of ids; 0 means background there, so it cannot be an id.
    """
    return message(("item", [("id", number), ("name", name)]) for number, name in classes.items())


def schema_pbtxt(dataset: Dataset) -> str:
    """Returns the schema of a dataset's records."""
    return message(("feature", _feature(spec, dataset)) for spec in dataset.features)


def _feature(spec: FeatureSpec, dataset: Dataset) -> Fields:
    domain = _domain(spec, dataset)
    comment = _ENCODED_AS.get(spec.encoding)
    return [
        ("name", spec.name),
        ("type", spec.type),
        *([] if spec.optional else [("presence", [("min_fraction", 1.0), ("min_count", 1)])]),
        _size(spec),
        *([domain] if domain else []),
        *([("annotation", [("comment", comment)])] if comment else []),
    ]


_ENCODED_AS = {
    Encoding.BASE64: "URL-safe base64: tf.io.decode_base64 reads it",
    Encoding.TENSOR: "a serialized tensor: tf.io.parse_tensor reads it",
}


def _size(spec: FeatureSpec) -> tuple[str, Value]:
    """Returns the number of values of a feature in a record.

    Only a feature in every record gets a shape, because TensorFlow Transform refuses it elsewhere.
    """
    if spec.length is None:
        return "value_count", [("min", 0)]
    if spec.optional:
        return "value_count", [("min", spec.length), ("max", spec.length)]
    return "shape", [("dim", [("size", size)]) for size in spec.shape if size is not None]


def _domain(spec: FeatureSpec, dataset: Dataset) -> _Domain | None:
    """Returns the domain of a feature's values; None if it is unknown."""
    if spec.fill is None or spec.encoding is not Encoding.PLAIN:
        return None
    if spec.fill is FeatureRole.CONSTANT:
        if spec.type is FeatureType.BYTES:
            return _one_of(spec.value)
        if not spec.value or not all(map(math.isfinite, spec.value)):
            return None
        kind = "int_domain" if spec.type is FeatureType.INT64 else "float_domain"
        return kind, [("min", min(spec.value)), ("max", max(spec.value))]
    if spec.fill is FeatureRole.EXTRA and spec.value_type == ValueType.ENUM:
        limits = [("min", 0), ("max", len(spec.value) - 1)] if spec.value else []  # names of numbers
        return "int_domain", [*limits, ("is_categorical", True)]
    if spec.fill is FeatureRole.EXTRA:
        return _DECLARED.get(spec.value_type)
    domain = _DOMAINS.get(spec.fill)
    return domain(dataset) if callable(domain) else domain


_DECLARED: Mapping[str, _Domain] = {
    ValueType.BOOL: ("bool_domain", []),
    ValueType.INT32: ("int_domain", [("min", -(2**31)), ("max", 2**31 - 1)]),
    ValueType.UINT32: ("int_domain", [("min", 0), ("max", 2**32 - 1)]),
    ValueType.UINT64: ("int_domain", [("min", 0)]),
}


def _one_of(values: Sequence[str]) -> _Domain | None:
    return ("string_domain", [("value", value) for value in dict.fromkeys(values)]) if values else None


def _keeps_unlabelled(dataset: Dataset) -> bool:
    """Returns whether images without a class are possible; only layouts for classification leave them out."""
    return dataset.keeps_unlabelled or dataset.record_layout.needs is not Needs.LABEL


def _class_ids(dataset: Dataset, unlabelled: bool = False) -> _Domain | None:
    """Returns the domain of the ids of the classes, and of none at all if `unlabelled`."""
    first = UNLABELLED if unlabelled else dataset.first_label
    last = dataset.first_label + len(dataset.labels) - 1 if dataset.labels else UNLABELLED
    if last < first:
        return None
    return "int_domain", [("min", first), ("max", last), ("is_categorical", True)]


def _label_names(dataset: Dataset, names: Sequence[str]) -> _Domain | None:
    if dataset.record_layout.needs is not Needs.LABEL:
        return None  # such an image may have a class that no object and no mask has
    return _one_of([*names, *([""] if _keeps_unlabelled(dataset) else [])])


def _format(dataset: Dataset) -> _Domain | None:
    names = dataset.record_layout.format_names
    formats = [name for kind, name in FORMAT_NAMES.items() if kind in stored_formats(dataset)]
    return _one_of([names.get(name, name) for name in formats])


def _picture(dataset: Dataset) -> _Domain | None:
    stored = stored_formats(dataset)
    return None if stored == ("raw",) else _images(all(kind in _DECODABLE for kind in stored))


def _mask(dataset: Dataset) -> _Domain:
    return _images(not dataset.keeps_unlabelled)  # an image without a class has no mask


def _images(decodable: bool) -> _Domain:
    return "image_domain", [("minimum_supported_image_fraction", 1.0)] if decodable else []


def _side(dataset: Dataset, number: int, most: int | None = None) -> _Domain:
    """Returns the domain of height, width or channels."""
    size = picture_shape(dataset.plan.settings)[number]
    upper = size or most
    return "int_domain", [("min", size or 1), *([("max", upper)] if upper else [])]


#: Role of a feature -> its domain, or a function that computes it from the dataset.
_DOMAINS: Mapping[FeatureRole, _Domain | Callable[[Dataset], _Domain | None]] = {
    FeatureRole.ENCODED: _picture,
    FeatureRole.FORMAT: _format,
    FeatureRole.HEIGHT: lambda dataset: _side(dataset, 0),
    FeatureRole.WIDTH: lambda dataset: _side(dataset, 1),
    FeatureRole.CHANNELS: lambda dataset: _side(dataset, 2, _MAX_CHANNELS),
    FeatureRole.SHAPE: ("int_domain", [("min", 1)]),
    FeatureRole.DTYPE: lambda dataset: _one_of(sample_types(dataset)),
    FeatureRole.COLORSPACE: ("string_domain", [("value", "RGB"), ("value", "Grayscale")]),
    FeatureRole.LABEL: lambda dataset: _class_ids(dataset, _keeps_unlabelled(dataset)),
    FeatureRole.LABEL_TEXT: lambda dataset: _label_names(dataset, dataset.plan.label_texts),
    FeatureRole.SYNSET: lambda dataset: _label_names(dataset, dataset.labels),
    FeatureRole.FOLD: lambda dataset: (
        "int_domain",
        [("min", 0), ("max", int(dataset.plan.settings["folds"]) - 1)],
    ),
    FeatureRole.SPLIT: lambda dataset: _one_of(list(dataset.splits)),
    **dict.fromkeys(POSITION_ROLES, _ANY_SHARE),
    FeatureRole.OBJECT_LABEL: _class_ids,
    FeatureRole.OBJECT_TEXT: lambda dataset: _one_of(list(dataset.classes.values())),
    **dict.fromkeys((FeatureRole.OBJECT_CROWD, *FLAGS.values()), _FLAG),
    FeatureRole.KEYPOINT_VISIBILITY: ("int_domain", [("min", 0), ("max", 2)]),
    FeatureRole.KEYPOINT_NUM: ("int_domain", [("min", 0)]),
    FeatureRole.OBJECT_AREA: ("float_domain", [("min", 0.0)]),
    FeatureRole.OBJECT_MASK: lambda _: _images(True),
    FeatureRole.SEMANTIC_MASK: _mask,
    FeatureRole.SEMANTIC_FORMAT: lambda dataset: _one_of(
        ["png", *([""] if dataset.keeps_unlabelled else [])]
    ),
    FeatureRole.PANOPTIC_CATEGORY: _mask,
    FeatureRole.PANOPTIC_INSTANCE: _mask,
}
