"""`validate --quality` writes statistics.json and stats.pb, which match the dataset, NumPy and the schema."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from PIL import Image
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from shardwright.pipelines.cli import main
from shardwright.pipelines.validate import validate
from shardwright.schemas.example import parse_example
from shardwright.transforms.records.framing import Record
from shardwright.transforms.records.recovery import read_records


@pytest.fixture(scope="module")
def looked_at(sound_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the dataset with its statistics."""
    copy = tmp_path_factory.mktemp("looked_at") / "dataset"
    shutil.copytree(sound_dataset, copy)
    validate(str(copy), mode="quality")
    return copy


@pytest.fixture(scope="module")
def document(looked_at: Path) -> Any:
    return json.loads((looked_at / "statistics.json").read_text())


@pytest.fixture(scope="module")
def pictures(looked_at: Path) -> dict[str, list[bytes]]:
    """The stored pictures of each split."""
    splits = json.loads((looked_at / "dataset.json").read_text())["splits"]
    found: dict[str, list[bytes]] = {split: [] for split in splits}
    for split, content in splits.items():
        for shard in content["shards"]:
            with (looked_at / shard["file"]).open("rb") as file:
                records = [record.data for record in read_records(file) if isinstance(record, Record)]
            found[split] += [parse_example(data)["image/encoded"].values[0] for data in records]
    return found


def test_counts_equal_those_of_the_dataset(looked_at: Path, document: Any) -> None:
    dataset = json.loads((looked_at / "dataset.json").read_text())
    assert document["splits"].keys() == dataset["splits"].keys()
    for split, sums in document["splits"].items():
        assert sums["all"]["records"] == dataset["splits"][split]["records"]
        assert sums["all"]["formats"] == dataset["formats"][split]
        counts = {name: value["records"] for name, value in sums["classes"].items()}
        assert counts == {name: count for name, count in dataset["class_counts"][split].items() if count}
    assert document["total"]["all"]["records"] == sum(
        content["records"] for content in dataset["splits"].values()
    )


def test_means_and_deviations_equal_those_of_all_decoded_pixels(
    document: Any, pictures: dict[str, list[bytes]]
) -> None:
    for split, stored in pictures.items():
        pixels = np.concatenate([np.asarray(Image.open(io.BytesIO(data))).reshape(-1, 3) for data in stored])
        assert np.allclose(document["normalize"][split]["mean"], (pixels / 255).mean(0), rtol=1e-5)
        assert np.allclose(document["normalize"][split]["std"], (pixels / 255).std(0), rtol=1e-5)


def test_sizes_in_bytes_equal_those_of_the_pictures(document: Any, pictures: dict[str, list[bytes]]) -> None:
    sizes = [len(data) for stored in pictures.values() for data in stored]
    found = document["total"]["all"]["bytes"]
    assert (found["sum"], found["min"], found["max"]) == (sum(sizes), min(sizes), max(sizes))
    for name, value in found["quantiles"].items():
        assert abs(value - (true := np.quantile(sizes, int(name[1:]) / 100))) <= true / 256 + 1


def test_stats_pb_describes_the_features_of_the_schema(looked_at: Path) -> None:
    data = (looked_at / "stats.pb").read_bytes()
    message = statistics_pb2.DatasetFeatureStatisticsList.FromString(data)
    schema = text_format.Parse((looked_at / "schema.pbtxt").read_text(), schema_pb2.Schema())
    types = {feature.name: feature.type for feature in schema.feature}
    domains = {feature.name: set(feature.string_domain.value) for feature in schema.feature}
    for dataset in message.datasets:
        assert {feature.path.step[0] for feature in dataset.features} == types.keys()
        for feature in dataset.features:
            name = feature.path.step[0]
            known = {
                feature.STRING: schema_pb2.BYTES,
                feature.BYTES: schema_pb2.BYTES,
                feature.INT: schema_pb2.INT,
            }
            assert known[feature.type] == types[name]
            stats = getattr(feature, feature.WhichOneof("stats"))
            assert stats.common_stats.num_non_missing == dataset.num_examples
            if domains[name]:
                assert {top.value for top in stats.top_values} <= domains[name]


def test_the_output_names_the_files_and_a_repetition_writes_the_same(
    looked_at: Path, document: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("statistics.json", "stats.pb")
    before = {name: (looked_at / name).read_bytes() for name in names}
    assert main(["validate", "--dataset", str(looked_at), "--quality"]) == 0
    assert {name: (looked_at / name).read_bytes() for name in names} == before
    printed = capsys.readouterr().out
    assert "channel means" in printed
    assert " ".join(f"{value:.4f}" for value in document["normalize"]["train"]["mean"]) in printed
