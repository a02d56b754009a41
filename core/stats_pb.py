"""`stats.pb`: statistics of the records' features, as TensorFlow Data Validation computes and reads them.

A binary `DatasetFeatureStatisticsList` (tensorflow_metadata/proto/v0/statistics.proto). Its first dataset
covers all splits and has TFDV's name for this slice; the others are the splits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from shardwright.schemas.example import FeatureType
from shardwright.schemas.sketches import Histogram, ValueCounts
from shardwright.schemas.statistics import FeatureStatistics, Statistics

#: TFDV's name of the slice with all records (tensorflow_data_validation/constants.py).
ALL_EXAMPLES = "All Examples"
#: TFDV's text for a value that is not UTF-8 (same file).
_NOT_UTF8 = "__BYTES_VALUE__"
#: Least share of values that are images, for a feature to hold images.
_IMAGES = 0.8
#: Defaults of TFDV's StatsOptions.
_TOP_VALUES, _RANKS, _BUCKETS = 20, 1000, 10


def stats_pb(statistics: Statistics) -> bytes:
    """Returns the bytes of `stats.pb`, which are equal for equal statistics."""
    from tensorflow_metadata.proto.v0 import statistics_pb2

    document = statistics_pb2.DatasetFeatureStatisticsList()
    splits = [(split, sums) for split, sums in sorted(statistics.splits.items()) if split]
    for name, part in [(ALL_EXAMPLES, statistics.total()), *splits]:
        count = part.records.records
        dataset = document.datasets.add(name=name, num_examples=count)
        seen = set()
        for (feature, _), sums in part.records.first_features().items():
            # Validation reports a feature with values of two types; TFDV allows each name only once.
            if feature not in seen:
                _fill(dataset.features.add(), feature, sums, count)
            seen.add(feature)
    data: bytes = document.SerializeToString(deterministic=True)
    return data


def _fill(proto: Any, name: str, sums: FeatureStatistics, records: int) -> None:
    proto.path.step.append(name)
    if sums.type is FeatureType.BYTES:
        proto.type = proto.BYTES if sums.values is None else proto.STRING
    else:
        proto.type = proto.INT if sums.type is FeatureType.INT64 else proto.FLOAT
    if sums.values is not None:
        _fill_string(proto.string_stats, sums, sums.values, records)
    elif sums.type is FeatureType.BYTES:
        _fill_common(proto.bytes_stats.common_stats, sums, records)
        if sums.numbers.count:
            proto.bytes_stats.avg_num_bytes = sums.numbers.mean
            proto.bytes_stats.min_num_bytes = sums.numbers.low
            proto.bytes_stats.max_num_bytes = sums.numbers.high
            proto.bytes_stats.max_num_bytes_int = int(sums.numbers.high)
        _add_formats(proto, sums.formats)
    else:
        _fill_numeric(proto.num_stats, sums, records)


def _fill_common(proto: Any, sums: FeatureStatistics, records: int) -> None:
    lengths = sums.lengths
    proto.num_non_missing = lengths.count
    proto.num_missing = records - lengths.count
    proto.tot_num_values = int(lengths.sum)
    if lengths.count:
        proto.min_num_values, proto.max_num_values = int(lengths.low), int(lengths.high)
        proto.avg_num_values = lengths.mean
        _fill_quantiles(proto.num_values_histogram, lengths)


def _fill_string(proto: Any, sums: FeatureStatistics, value_counts: ValueCounts, records: int) -> None:
    _fill_common(proto.common_stats, sums, records)
    proto.unique = value_counts.unique
    # TFDV sorts values of equal frequency in descending order.
    pairs = sorted(value_counts.most_common(), key=lambda pair: (pair[1], pair[0]), reverse=True)
    if sums.numbers.count:
        is_bytes = sums.type is FeatureType.BYTES  # of numbers, the length is the number of their digits
        total = sums.numbers.total if is_bytes else sum(len(value) * count for value, count in pairs)
        proto.avg_length = total / sums.numbers.count
    proto.invalid_utf8_count = sums.not_utf8
    for rank, (value, count) in enumerate(pairs[:_RANKS]):
        text = _text(value)
        if rank < _TOP_VALUES:
            proto.top_values.add(value=text, frequency=count)
        proto.rank_histogram.buckets.add(low_rank=rank, high_rank=rank, label=text, sample_count=count)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _NOT_UTF8


def _add_formats(proto: Any, formats: Mapping[str, int]) -> None:
    """Adds counts of image formats, which TFDV compares with the schema's `image_domain`."""
    total = sum(formats.values())
    if total - formats.get("", 0) < _IMAGES * max(1, total):
        return
    proto.custom_stats.add(name="domain_info", str="image_domain {}")
    histogram = proto.custom_stats.add(name="image_format_histogram").rank_histogram
    for name, count in sorted(formats.items()):
        histogram.buckets.add(label=name or "UNKNOWN", sample_count=count)


def _fill_numeric(proto: Any, sums: FeatureStatistics, records: int) -> None:
    _fill_common(proto.common_stats, sums, records)
    numbers = sums.numbers
    standard = proto.histograms.add(type=0, num_nan=sums.nan)
    quantiles = proto.histograms.add(type=1, num_nan=sums.nan)
    if numbers.count:
        proto.mean, proto.std_dev = numbers.mean, numbers.deviation
        proto.num_zeros = numbers.zeros
        proto.min, proto.max = numbers.low, numbers.high
        proto.median = numbers.quantiles([0.5])[0]
        buckets = numbers.equal_buckets(numbers.low, numbers.high, _BUCKETS)
        for (low, high), count in zip(pairwise(buckets.edges), buckets.counts):
            standard.buckets.add(low_value=low, high_value=high, sample_count=count)
        _fill_quantiles(quantiles, numbers)
    infinite = {-math.inf: sums.low_infinite, math.inf: sums.high_infinite}
    present = [value for value, count in infinite.items() if count]
    if present:  # they are not in any bin, and the mean of both is NaN
        proto.min, proto.max = min(numbers.low, *present), max(numbers.high, *present)
        proto.mean, proto.std_dev = sum(present), math.nan
        for value in present:
            standard.buckets.add(low_value=value, high_value=value, sample_count=infinite[value])


def _fill_quantiles(proto: Any, spread: Histogram) -> None:
    """Adds buckets that hold equal numbers of values."""
    proto.type = proto.QUANTILES
    edges = spread.quantiles([part / _BUCKETS for part in range(_BUCKETS + 1)])
    for low, high in pairwise(edges):
        proto.buckets.add(low_value=low, high_value=high, sample_count=spread.count / _BUCKETS)
