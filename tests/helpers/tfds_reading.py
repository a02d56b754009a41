"""Reads datasets with TensorFlow Datasets, and compares them with TensorFlow's own parse of the shards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from helpers.described import read as read_dataset
from helpers.fewer_imports import late
from helpers.repository import PHOTOS
from helpers.tensorflow_records import read_records
from helpers.tfrecords import features_of
from shardwright.pipelines.convert import convert
from shardwright.schemas.dataset import Dataset, Shard
from shardwright.schemas.example import Feature, encode_example
from shardwright.schemas.layouts import FeatureSpec
from shardwright.schemas.ledger import ledger_json
from shardwright.schemas.plan import Plan
from shardwright.schemas.sidecars.tfds import dataset_info_json, features_json

tf = late("tensorflow")
tfds = late("tensorflow_datasets")

SETTINGS = {"resize": "", "fit": "stretch", "color": "rgb", "image_format": "keep", "compression": "none"}


def load(directory: Path) -> Any:
    """Returns the dataset that a user of TensorFlow Datasets loads."""
    return tfds.builder_from_directory(directory)


def in_order(builder: Any, split: Any, **options: Any) -> list[Any]:
    """Returns the examples of a split, in the order of the shards."""
    config = tfds.ReadConfig(interleave_cycle_length=1)
    return list(tfds.as_numpy(builder.as_dataset(split=split, read_config=config, **options)))


def examples_of(directory: Path, dataset: Dataset, split: str) -> list[Any]:
    """Returns the records of a split, parsed by TensorFlow."""
    files = [directory / shard.file for shard in dataset.splits[split]]
    return [tf.train.Example.FromString(data) for data in read_records(files)]


def records_of(directory: Path, dataset: Dataset, split: str) -> list[dict[str, list[Any]]]:
    """Returns the values of the features of each record, in order, as TensorFlow parses them."""
    files = [directory / shard.file for shard in dataset.splits[split]]
    return [features_of(data) for data in read_records(files, dataset.plan.settings["compression"])]


def schema_of(directory: Path) -> dict[str, schema_pb2.Feature]:
    """Returns the features in the `schema.pbtxt` of a dataset."""
    text = (directory / "schema.pbtxt").read_text(encoding="ascii")
    return {feature.name: feature for feature in text_format.Parse(text, schema_pb2.Schema()).feature}


def expected(values: list[Any], feature: Any) -> Any:
    """Returns the content of a feature as TensorFlow decodes it."""
    if isinstance(feature, tfds.features.Image):
        return tf.io.decode_image(values[0], channels=feature.shape[-1] or 0).numpy()
    if getattr(feature, "_encoding", None) is tfds.features.Encoding.BYTES:
        return np.frombuffer(values[0], np.uint8).reshape(feature.shape)
    return values


def check_all(directory: Path, dataset: Dataset) -> Any:
    """Compares every feature of every record with TensorFlow's parse; returns the builder."""
    builder = load(directory)
    features = builder.info.features
    assert set(features) == {spec.name for spec in dataset.features}
    for split, shards in dataset.splits.items():
        count = sum(shard.records for shard in shards)
        if not count:
            assert split not in builder.info.splits
            continue
        info = builder.info.splits[split]
        assert info.num_examples == count
        assert info.shard_lengths == [shard.records for shard in shards]
        assert [path.name for path in info.filepaths] == [shard.file for shard in shards]
        read, raw = in_order(builder, split), records_of(directory, dataset, split)
        assert len(read) == len(raw) == count
        for got, stored in zip(read, raw, strict=True):
            assert set(got) >= set(stored)
            for name, feature in features.items():
                want = expected(stored.get(name, []), feature)
                if isinstance(want, np.ndarray):
                    np.testing.assert_array_equal(got[name], want)
                else:
                    flat = [got[name]] if isinstance(got[name], bytes) else got[name].reshape(-1).tolist()
                    assert flat == want, name
    return builder


def converted(directory: Path, **settings: Any) -> tuple[Path, Dataset]:
    """Converts the example pictures, or the given input."""
    convert(**{"input": str(PHOTOS), "output": str(directory), "verify": "none", **settings})
    return directory, read_dataset(directory)


def put_sidecars(dataset: Dataset, directory: Path) -> Path:
    """Writes the files for TensorFlow Datasets; returns their directory."""
    (directory / "dataset_info.json").write_text(dataset_info_json(dataset) or "")
    (directory / "features.json").write_text(features_json(dataset) or "")
    return directory


def made(
    directory: Path,
    features: Sequence[FeatureSpec],
    records: Sequence[Mapping[str, Any]],
    labels: Sequence[str] = ("a", "b"),
    first_label: int = 0,
    format: str = "",
    **settings: Any,
) -> tuple[Path, Dataset]:
    """Writes one shard of records, as a dataset with a custom layout.

    Args:
      directory: The new directory.
      features: Features of the records.
      records: Values of each record.
      labels: Class names.
      first_label: Id of the first class.
      format: Format of all pictures; empty if it is not stated.
      **settings: Further settings.
    """
    directory.mkdir()
    file = directory / "train-00000-of-00001.tfrecord"
    types = {spec.name: spec.type for spec in features}
    with tf.io.TFRecordWriter(str(file)) as writer:
        for record in records:
            stored = {name: Feature(types[name], values) for name, values in record.items()}
            writer.write(encode_example(stored))
    dataset = Dataset(
        name="made",
        layout="own",
        features=tuple(features),
        plan=Plan(tuple(labels), {"train": 1}, {"train": 1}, {**SETTINGS, **settings}),
        versions={},
        splits={"train": (Shard(file.name, len(records), file.stat().st_size, "0" * 64),)},
        ledger=ledger_json({}, {}),
        class_counts={},
        first_label=first_label,
        formats={"train": {format: len(records)}} if format else {},
    )
    (directory / "dataset.json").write_text(json.dumps(dataset.as_json()))
    return put_sidecars(dataset, directory), dataset
