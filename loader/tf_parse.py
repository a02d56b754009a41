"""Parses records with TensorFlow, as `schemas/parsing.py` describes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from shardwright.schemas.dataset import Dataset
from shardwright.schemas.errors import UsageError
from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.labels import UNLABELLED
from shardwright.schemas.layouts import Encoding, FeatureSpec
from shardwright.schemas.parsing import Parsing, ParsingKind, parsing_of

Features = dict[str, tf.Tensor]
#: Roles with an image's class, in order of preference: next to a synset, the text may be its description.
_CLASS_FILLS = (FeatureRole.LABEL, FeatureRole.SYNSET, FeatureRole.LABEL_TEXT)


def parser(features: Sequence[FeatureSpec]) -> Callable[[tf.Tensor], Features]:
    """Returns a function from a serialized example to its features, with base64 and tensors decoded."""
    description = {spec.name: _described(parsing_of(spec)) for spec in features}

    def parse(record: tf.Tensor) -> Features:
        found = tf.io.parse_single_example(record, description)
        return {spec.name: _unpacked(spec, found[spec.name]) for spec in features}

    return parse


def _described(parsing: Parsing) -> tf.io.FixedLenFeature | tf.io.FixedLenSequenceFeature:
    dtype = tf.as_dtype(parsing.dtype)
    if parsing.kind is ParsingKind.SEQUENCE:
        return tf.io.FixedLenSequenceFeature(parsing.shape, dtype, allow_missing=True)
    return tf.io.FixedLenFeature(parsing.shape, dtype, parsing.default)


def _unpacked(spec: FeatureSpec, value: tf.Tensor) -> tf.Tensor:
    if spec.encoding is Encoding.BASE64:
        return tf.io.decode_base64(value)
    if spec.encoding is Encoding.TENSOR:
        dtype = tf.string if spec.dtype == "object" else tf.as_dtype(spec.dtype)
        value = tf.io.parse_tensor(value, dtype)
        value.set_shape(spec.tensor_shape)
    return value


def feature_of(features: Sequence[FeatureSpec], role: FeatureRole) -> FeatureSpec | None:
    """Returns the first feature with a role, if there is one."""
    return next((spec for spec in features if spec.fill is role), None)


def class_feature(features: Sequence[FeatureSpec]) -> FeatureSpec | None:
    """Returns the feature with an image's class or classes, if there is one."""
    found = (feature_of(features, role) for role in _CLASS_FILLS)
    return next((spec for spec in found if spec is not None), None)


def class_index(dataset: Dataset, spec: FeatureSpec) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a function from the value of the class feature to the index of the class in `dataset.labels`.

    The index counts from 0, even if the layout's ids do not; -1 means no class. Several classes
    become a vector with a 1.0 for each of them.
    """
    count = len(dataset.labels)
    several = spec.value_shape not in ((), (1,))
    if several and not count:
        raise UsageError("The dataset has no classes; load it with as_dict=True.")
    names = None
    if spec.fill is not FeatureRole.LABEL:
        names = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant([name.encode() for name in dataset.labels], tf.string),
                tf.range(count, dtype=tf.int64),
            ),
            UNLABELLED,
        )

    def index(value: tf.Tensor) -> tf.Tensor:
        if names is not None:
            places = names.lookup(value)
        else:
            ids = tf.cast(value, tf.int64)
            places = tf.where(
                ids < dataset.first_label, tf.constant(UNLABELLED, tf.int64), ids - dataset.first_label
            )
        if not several:
            return tf.reshape(places, [])
        return tf.reduce_max(tf.one_hot(tf.concat([[UNLABELLED], places], 0), count), 0)

    return index
