"""`schema.pbtxt` and `stats.pb`: what TensorFlow Transform and Data Validation read and compute."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from helpers.described import HOSTILE_NAMES, KINDS, described, of_layout, read
from helpers.fewer_imports import late
from helpers.records import examples
from helpers.tfds_reading import schema_of
from hypothesis import given
from hypothesis import strategies as st
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from shardwright.core.stats_pb import ALL_EXAMPLES, stats_pb
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.example import Feature, FeatureType
from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.layouts import CLASSIFICATION, LAYOUTS, FeatureSpec
from shardwright.schemas.sidecars.tfx_schema import message, schema_pbtxt
from shardwright.schemas.statistics import RecordStatistics, Statistics
from shardwright.transforms.building_blocks import merge_all

tf = late("tensorflow")

DTYPES = {schema_pb2.INT: "int64", schema_pb2.FLOAT: "float32", schema_pb2.BYTES: "string"}
FLOAT, BYTES = FeatureType.FLOAT, FeatureType.BYTES
LISTS = {schema_pb2.INT: "int64_list", schema_pb2.FLOAT: "float_list", schema_pb2.BYTES: "bytes_list"}


def parsed(text: str) -> schema_pb2.Schema:
    return text_format.Parse(text, schema_pb2.Schema())


def by_name(text: str) -> dict[str, schema_pb2.Feature]:
    return {feature.name: feature for feature in parsed(text).feature}


def written(kind: str) -> dict[str, schema_pb2.Feature]:
    """Returns the features in the file that a conversion wrote."""
    return schema_of(described(kind))


def faults(features: dict[str, schema_pb2.Feature], record: tf.train.Example) -> Iterator[str]:
    """Yields the differences between a record and a schema."""
    found = record.features.feature
    yield from (f"{name} is unknown" for name in found if name not in features)
    for name, feature in features.items():
        if name not in found:
            if feature.presence.min_fraction == 1:
                yield f"{name} is missing"
            continue
        kind = found[name].WhichOneof("kind")
        if kind != LISTS[feature.type]:
            yield f"{name} is a {kind}"
            continue
        values = list(getattr(found[name], kind).value)
        least, most = counts(feature)
        if not least <= len(values) <= most:
            yield f"{name} has {len(values)} values"
        yield from (f"{name}: {value!r:.80}" for value in values if not in_domain(feature, value))


def counts(feature: schema_pb2.Feature) -> tuple[float, float]:
    if feature.HasField("shape"):
        length = int(np.prod([dim.size for dim in feature.shape.dim], initial=1))
        return length, length
    limits = feature.value_count
    return limits.min, limits.max if limits.HasField("max") else np.inf


def in_domain(feature: schema_pb2.Feature, value: Any) -> bool:
    kind = feature.WhichOneof("domain_info")
    if kind is None:
        return True
    domain = getattr(feature, kind)
    if kind == "bool_domain":
        return value in (0, 1)
    if kind == "string_domain":
        return value.decode() in domain.value
    if kind == "image_domain":
        needed = domain.minimum_supported_image_fraction == 1
        return not needed or tf.io.decode_image(value).shape[-1] in (1, 3, 4)
    low = domain.min if domain.HasField("min") else -np.inf
    return bool(low <= value <= (domain.max if domain.HasField("max") else np.inf))


def feature_spec(features: dict[str, schema_pb2.Feature]) -> dict[str, Any]:
    """Returns the result of TensorFlow Transform's `schema_utils.schema_as_feature_spec` for a schema.

    A feature with a shape becomes a `FixedLenFeature` and must have a `min_fraction` of 1; any other feature
    becomes a `VarLenFeature`.
    """
    spec: dict[str, Any] = {}
    for name, feature in features.items():
        if feature.HasField("shape"):
            assert feature.presence.min_fraction == 1
            shape = [dim.size for dim in feature.shape.dim]
            spec[name] = tf.io.FixedLenFeature(shape, tf.as_dtype(DTYPES[feature.type]))
        else:
            spec[name] = tf.io.VarLenFeature(tf.as_dtype(DTYPES[feature.type]))
    return spec


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", KINDS)
def test_records_match_the_schema_and_parse_as_in_tensorflow_transform(kind: str) -> None:
    dataset, features = read(described(kind)), written(kind)
    assert list(features) == [spec.name for spec in dataset.features]
    records = [record for split in examples(described(kind)).values() for record in split]
    assert len(records) == sum(dataset.records(split) for split in dataset.splits) > 0
    assert [fault for record in records for fault in faults(features, record)] == []
    serialized = [record.SerializeToString() for record in records]
    batch = tf.io.parse_example(serialized, feature_spec(features))
    for name, value in batch.items():
        assert value.shape[0] == len(records), name


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_is_valid_for_every_layout(layout: str) -> None:
    dataset = of_layout(layout)
    features = by_name(schema_pbtxt(dataset))
    spec = feature_spec(features)
    for item in dataset.features:
        feature = features[item.name]
        assert schema_pb2.FeatureType.Name(feature.type).lower() == item.type.value.removesuffix("64")
        assert feature.HasField("presence") != item.optional
        fixed = None not in item.shape and not item.optional
        assert isinstance(spec[item.name], tf.io.FixedLenFeature) == fixed
        assert counts(feature) == ((item.length, item.length) if item.length is not None else (0, np.inf))
        if item.fill in (FeatureRole.LABEL, FeatureRole.OBJECT_LABEL):
            first = LAYOUTS[layout].first_label
            assert (feature.int_domain.min, feature.int_domain.max) == (first, first + 4)
        if item.fill in (FeatureRole.LABEL_TEXT, FeatureRole.OBJECT_TEXT, FeatureRole.SYNSET):
            assert tuple(feature.string_domain.value) == dataset.labels


@pytest.mark.parametrize("unlabelled", ["keep", "quarantine"])
def test_masks_may_be_missing(unlabelled: str) -> None:
    features = by_name(schema_pbtxt(of_layout("segmentation", unlabelled=unlabelled)))
    mask, format_ = (features[f"image/segmentation/class/{name}"] for name in ("encoded", "format"))
    assert mask.image_domain.minimum_supported_image_fraction == (unlabelled != "keep")
    assert list(format_.string_domain.value) == (["png", ""] if unlabelled == "keep" else ["png"])


def test_domains_of_classes_and_sides() -> None:
    features, dataset = written("photos"), read(described("photos"))
    label = features["image/class/label"].int_domain
    assert (label.min, label.max, label.is_categorical) == (0, len(dataset.labels) - 1, True)
    assert tuple(features["image/class/text"].string_domain.value) == dataset.labels
    assert (features["image/height"].int_domain.min, features["image/height"].int_domain.max) == (24, 24)
    assert list(features["image/format"].string_domain.value) == ["jpg"]
    for kind in ("photos", "kept"):
        encoded = written(kind)["image/encoded"].image_domain
        assert encoded.minimum_supported_image_fraction == 1
    first = written("gray")
    assert (first["image/class/label"].int_domain.min, first["image/class/label"].int_domain.max) == (1, 5)
    assert first["image/channels"].int_domain.max == 1
    assert not written("originals")["height"].int_domain.HasField("max")
    assert not written("webp")["image"].image_domain.HasField("minimum_supported_image_fraction")
    assert written("shapes")["data"].WhichOneof("domain_info") is None
    assert [dim.size for dim in written("shapes")["shape"].shape.dim] == [3]
    assert list(written("tfrecorder")["split"].string_domain.value) == ["train", "test"]


def test_classes_whose_names_are_codes() -> None:
    dataset = read(described("gray"))
    # Two classes may have the same readable name.
    texts = ("bird, fowl", "", *dataset.labels[2:4], "bird, fowl")
    features = by_name(schema_pbtxt(replace(dataset, plan=replace(dataset.plan, texts=texts))))
    assert tuple(features["image/class/synset"].string_domain.value) == dataset.labels
    assert list(features["image/class/text"].string_domain.value) == ["bird, fowl", *dataset.labels[1:4]]


def test_hostile_names_and_images_without_a_class() -> None:
    features = written("hostile")
    assert features["image/class/label"].int_domain.min == -1
    assert set(features["image/class/text"].string_domain.value) == {*HOSTILE_NAMES, ""}


def test_optional_features_and_objects() -> None:
    features = written("detection")
    mask, crowd = features["image/object/mask"], features["image/object/is_crowd"]
    assert not mask.HasField("presence") and crowd.presence.min_fraction == 1
    assert [features[f"image/object/bbox/{side}"].float_domain.max for side in ("xmin", "ymax")] == [1, 1]
    assert list(features["image/object/class/text"].string_domain.value) == ["wing", "<b>eak"]
    assert not written("vision")["image/object/class/label"].HasField("presence")


def test_declared_types_constants_and_encodings_have_domains() -> None:
    features = written("own")
    assert features["a/./b"].HasField("bool_domain")
    assert (features["kind"].int_domain.max, features["kind"].int_domain.is_categorical) == (1, True)
    assert features["count"].int_domain.max == 2**32 - 1
    assert features["version"].int_domain.min == features["version"].int_domain.max == 3
    assert list(features["not text"].string_domain.value) == ["caf\N{LATIN SMALL LETTER E WITH ACUTE}", 'x"y']
    assert features["scale"].float_domain.max == 0.5
    assert "parse_tensor" in features["label"].annotation.comment[0]
    assert "base64" in features["basename"].annotation.comment[0]


def only(spec: FeatureSpec, **changes: Any) -> schema_pb2.Feature:
    """Returns the schema of a dataset of photos with only one feature."""
    dataset: Dataset = replace(read(described("photos")), features=(spec,), **changes)
    (feature,) = parsed(schema_pbtxt(dataset)).feature
    return feature


def test_an_optional_feature_of_fixed_length_has_a_count_instead_of_a_shape() -> None:
    feature = only(FeatureSpec("x", FLOAT, (2, 3), optional=True))
    assert not feature.HasField("shape") and not feature.HasField("presence")
    assert (feature.value_count.min, feature.value_count.max) == (6, 6)


@pytest.mark.parametrize(
    "spec",
    [
        FeatureSpec("x", FLOAT, fill=FeatureRole.CONSTANT, value=(float("nan"),)),
        FeatureSpec("x", FLOAT, fill=FeatureRole.CONSTANT, value=(float("inf"),)),
        FeatureSpec("x", FeatureType.INT64, fill=FeatureRole.LABEL),
        FeatureSpec("x", BYTES, fill=FeatureRole.LABEL_TEXT),
    ],
)
def test_some_constants_and_missing_classes_have_no_domain(spec: FeatureSpec) -> None:
    plan = replace(read(described("photos")).plan, labels=())
    assert only(spec, plan=plan).WhichOneof("domain_info") is None


@given(st.text(), st.integers(-(2**63), 2**63 - 1), st.floats(width=32, allow_nan=False), st.booleans())
def test_any_value_survives_the_text_format(text: str, number: int, share: float, flag: bool) -> None:
    text = text.encode("utf-8", "ignore").decode()
    written = message([
        ("feature", [
            ("name", text), ("type", FeatureType.INT64),
            ("int_domain", [("min", number), ("is_categorical", flag)]),
        ]),
        ("float_domain", [("min", share)]),
    ])  # fmt: skip
    read_back = parsed(written)
    (feature,) = read_back.feature
    assert (feature.name, feature.type) == (text, schema_pb2.INT)
    assert (feature.int_domain.min, feature.int_domain.is_categorical) == (number, flag)
    assert read_back.float_domain[0].min == share


_SPECS = {spec.name: spec for spec in CLASSIFICATION.features}
_JPEG, _PNG = b"\xff\xd8\xff" + bytes(7), b"\x89PNG\r\n\x1a\n" + bytes(12)


def _features(**values: Any) -> dict[str, Feature]:
    types = {int: FeatureType.INT64, float: FeatureType.FLOAT, bytes: FeatureType.BYTES}
    return {
        name.replace("__", "/"): Feature(types[type(items[0])] if items else FeatureType.INT64, items)
        for name, items in values.items()
    }


def _of(*records: dict[str, Feature], split: str = "train") -> Statistics:
    sums = RecordStatistics()
    for record in records:
        sums.add(record, _SPECS)
    return Statistics.of_shard(split, [], sums)


def _read(statistics: Statistics) -> dict[str, Any]:
    message = statistics_pb2.DatasetFeatureStatisticsList.FromString(stats_pb(statistics))
    return {dataset.name: dataset for dataset in message.datasets}


def _feature(name: str, *records: dict[str, Feature]) -> Any:
    dataset = _read(_of(*records))["train"]
    return next(feature for feature in dataset.features if feature.path.step == [name])


def test_there_are_statistics_for_all_and_for_each_split() -> None:
    statistics = _of(_features(x=[1])).merge(_of(_features(x=[2]), _features(x=[3]), split="test"))
    statistics.merge(_of(split="empty"))
    found = _read(statistics)
    assert {name: dataset.num_examples for name, dataset in found.items()} == {
        ALL_EXAMPLES: 3, "empty": 0, "test": 2, "train": 1,
    }  # fmt: skip
    assert next(iter(found)) == "All Examples"
    assert found[ALL_EXAMPLES].features[0].num_stats.mean == 2


def test_records_of_unknown_split_are_only_in_all() -> None:
    assert list(_read(_of(_features(x=[1]), split=""))) == [ALL_EXAMPLES]


def test_numbers_match_numpy() -> None:
    values = [float(np.float32(value)) for value in (0, 1.5, -2.25, 1e30, 0.1, 0)]
    found = _feature("x", _features(x=values[:4]), _features(x=values[4:]), _features(y=[1]))
    stats = found.num_stats
    assert found.type == found.FLOAT
    assert math.isclose(stats.mean, np.mean(values))
    assert math.isclose(stats.std_dev, np.std(values), rel_tol=1e-6)
    assert (stats.min, stats.max, stats.num_zeros) == (-2.25, values[3], 2)
    common = stats.common_stats
    assert (common.num_non_missing, common.num_missing, common.tot_num_values) == (2, 1, 6)
    assert (common.min_num_values, common.max_num_values, common.avg_num_values) == (2, 4, 3)
    standard, quantiles = stats.histograms
    assert (standard.type, quantiles.type) == (standard.STANDARD, standard.QUANTILES)
    for histogram in (standard, quantiles):
        assert len(histogram.buckets) == 10
        assert math.isclose(sum(bucket.sample_count for bucket in histogram.buckets), 6)
        assert (histogram.buckets[0].low_value, histogram.buckets[-1].high_value) == (-2.25, values[3])


def test_nan_and_infinity_are_counted_separately() -> None:
    stats = _feature("x", _features(x=[math.nan, 1.0, math.inf, math.inf, math.nan])).num_stats
    assert (stats.min, stats.max, stats.mean) == (1, math.inf, math.inf)
    assert [histogram.num_nan for histogram in stats.histograms] == [2, 2]
    assert stats.histograms[0].buckets[-1].sample_count == 2
    alone = _feature("x", _features(x=[-math.inf])).num_stats
    assert (alone.min, alone.max, alone.mean) == (-math.inf, -math.inf, -math.inf)
    assert math.isnan(_feature("x", _features(x=[-math.inf, math.inf])).num_stats.mean)
    assert _feature("x", _features(x=[math.nan])).num_stats.histograms[0].num_nan == 1


def test_class_ids_are_categories() -> None:
    found = _feature("image/class/label", *(_features(image__class__label=[n]) for n in (7, 10, 10)))
    assert found.type == found.INT
    assert found.string_stats.unique == 2
    assert [(top.value, top.frequency) for top in found.string_stats.top_values] == [("10", 2), ("7", 1)]
    assert math.isclose(found.string_stats.avg_length, 5 / 3, rel_tol=1e-6)


def test_texts_are_counted_and_other_bytes_reported() -> None:
    found = _feature("x", _features(x=[b"b", "ü".encode(), b"b", b"\xff", b"a"]))
    stats = found.string_stats
    assert found.type == found.STRING
    assert (stats.unique, stats.invalid_utf8_count) == (4, 1)
    # Of equally frequent values, TFDV lists the greater one first, by bytes.
    ranks = [(bucket.low_rank, bucket.label, bucket.sample_count) for bucket in stats.rank_histogram.buckets]
    assert ranks == [(0, "b", 2), (1, "__BYTES_VALUE__", 1), (2, "ü", 1), (3, "a", 1)]
    assert [top.value for top in stats.top_values] == [label for _, label, _ in ranks]


def test_pictures_are_bytes_with_their_formats() -> None:
    found = _feature("image/encoded", *(_features(image__encoded=[data]) for data in (_JPEG, _PNG, _PNG)))
    stats = found.bytes_stats
    assert found.type == found.BYTES
    assert (stats.min_num_bytes, stats.max_num_bytes, stats.max_num_bytes_int) == (10, 20, 20)
    assert math.isclose(stats.avg_num_bytes, 50 / 3, rel_tol=1e-6)
    histogram = found.custom_stats[1].rank_histogram
    assert found.custom_stats[1].name == "image_format_histogram"
    assert [(bucket.label, bucket.sample_count) for bucket in histogram.buckets] == [("jpeg", 1), ("png", 2)]
    assert not _feature("image/encoded", _features(image__encoded=[b"bare pixels"])).custom_stats


def test_a_feature_without_values_is_listed() -> None:
    common = _feature("x", _features(x=[]), _features(x=[])).num_stats.common_stats
    assert (common.num_non_missing, common.tot_num_values, common.max_num_values) == (2, 0, 0)


def test_equal_statistics_have_equal_bytes_in_any_parts() -> None:
    shards = [_of(_features(x=[n], y=[0.1 * n]), split=("test", "train")[n % 2]) for n in range(6)]
    merge = merge_all(Statistics)
    assert stats_pb(merge(shards)) == stats_pb(merge(merge([shard]) for shard in reversed(shards)))
