"""`stats.pb`: the statistics that TensorFlow Data Validation computes for the same records, in its format."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tensorflow_metadata.proto.v0 import statistics_pb2

from shardwright.core.stats_pb import ALL_EXAMPLES, stats_pb
from shardwright.schemas.example import Feature, FeatureType
from shardwright.schemas.layouts import CLASSIFICATION
from shardwright.schemas.statistics import RecordStatistics, Statistics
from shardwright.transforms.building_blocks import merge_all

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
