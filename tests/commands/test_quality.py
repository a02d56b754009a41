"""`validate --quality`: duplicate, odd and wrongly labelled pictures, and the files with statistics."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from PIL import Image, ImageOps
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from shardwright.core.records.framing import Record, read_records
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.validate import validate
from shardwright.schemas.example import parse_example
from shardwright.schemas.findings import Finding, ValidationReport

SPLITS = ("train", "test")
ODD_CLASS = "<i>o'dd</i>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    """Folders of splits and classes: copies, another format, another size, a flipped one, dark, gray."""
    root = tmp_path_factory.mktemp("quality") / "in"
    for split in SPLITS:
        for name in ("birds", "flowers", ODD_CLASS):
            (root / split / name).mkdir(parents=True)
    pictures = sorted((photos / "birds").iterdir()) + sorted((photos / "flowers").iterdir())
    kept = [path for path in pictures if not path.name.startswith(("blackbird", "dove", "owl", "swallow"))]
    for path in kept[:12]:
        shutil.copy(path, root / "train" / path.parent.name / path.name)
    opaque = [path for path in kept[:12] if path.suffix == ".jpg"]
    first, second, third = (ImageOps.exif_transpose(Image.open(path)) for path in opaque[:3])
    shutil.copy(opaque[0], root / "train" / "birds" / "z copy.jpg")
    shutil.copy(opaque[1], root / "test" / "birds" / "leaked.jpg")
    third.save(root / "train" / ODD_CLASS / "z conflict.webp", quality=80)
    first.resize((300, 200)).save(root / "test" / "birds" / "resized.jpg", quality=60)
    ImageOps.mirror(second).save(root / "train" / "birds" / "z flipped.png")
    Image.new("RGB", (64, 64), (30, 30, 20)).save(root / "train" / ODD_CLASS / "z dark.png")
    third.convert("L").resize((90, 17)).save(root / "train" / ODD_CLASS / "z grey.png")
    return root


def run(folder: Path, output: Path, **settings: Any) -> ValidationReport:
    convert(input=str(folder), output=str(output), **settings)
    return validate(str(output), mode="quality")


@pytest.fixture(scope="module")
def small(folder: Path) -> tuple[Path, ValidationReport]:
    """A dataset of small pictures with one shard per split, and its findings."""
    output = folder.parent / "small"
    return output, run(folder, output, resize=96, shards=1)


def pairs(report: ValidationReport) -> set[tuple[str, frozenset[str | None]]]:
    """Returns codes and keys of the findings about pairs."""
    return {
        (one.code.value, frozenset((one.key, one.other.key)))
        for one in report.findings
        if one.other is not None
    }


def names(report: ValidationReport, code: str) -> set[str]:
    return {(one.key or "").rpartition("/")[2] for one in report.findings if one.code == code}


def test_kept_pictures_are_measured(folder: Path, tmp_path: Path) -> None:
    report = run(folder, tmp_path / "a", shards=1)
    assert report.sound and report.mode == "quality"
    kinds = sorted(code for code, _ in pairs(report))
    assert kinds == ["EXACT_DUPLICATE", "LABEL_CONFLICT", "SPLIT_LEAKAGE", "SPLIT_LEAKAGE"], pairs(report)
    ends = {
        frozenset(str(key).rpartition("/")[2] for key in keys) - {"z copy.jpg", "leaked.jpg"}
        for _, keys in pairs(report)
    }
    assert len(ends) == 4
    assert names(report, "DARK") == {"z dark.png"} and names(report, "ODD_ASPECT_RATIO") == {"z grey.png"}
    assert names(report, "LOW_INFORMATION") == {"z dark.png"}
    assert "z grey.png" in names(report, "GRAYSCALE")
    assert {"TINY_CLASS"} <= set(report.counts) and "NEAR_DUPLICATE" not in report.counts
    stored = json.loads((tmp_path / "a" / "findings.json").read_text())
    severities = {one["code"]: one["severity"] for one in stored["findings"]}
    assert severities["SPLIT_LEAKAGE"] == severities["LABEL_CONFLICT"] == "warning"
    assert severities["EXACT_DUPLICATE"] == severities["DARK"] == severities["TINY_CLASS"] == "note"
    scores = {one["code"]: one.get("score") for one in stored["findings"] if "z " in (one["key"] or "")}
    assert 0 <= scores["DARK"] < 0.32 and 0 < scores["ODD_ASPECT_RATIO"] < 0.35
    assert scores["GRAYSCALE"] is None
    assert all(one["other"]["shard"] for one in stored["findings"] if one["code"] == "EXACT_DUPLICATE")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("image_format", ["jpeg", "raw", "webp"])
def test_findings_do_not_depend_on_how_pictures_are_stored(
    folder: Path, small: tuple[Path, ValidationReport], tmp_path: Path, image_format: str
) -> None:
    many = run(folder, tmp_path / "a", resize=96, image_format=image_format, shards=5)
    _, one = small
    assert pairs(many) == pairs(one) and len(pairs(one)) == 4
    # A lossy codec need not keep gray pixels gray.
    counts = [{**report.counts, "GRAYSCALE": 0} for report in (many, one)]
    assert counts[0] == counts[1] and "ODD_SIZE" not in many.counts


def test_without_quality_pictures_are_not_measured(small: tuple[Path, ValidationReport]) -> None:
    output, report = small
    full = validate(str(output))
    assert full.run.counts == {"SPLIT_LEAKAGE": 1}  # the same file in two splits
    assert report.counts["SPLIT_LEAKAGE"] == 2
    assert full.counts == report.counts, "what was found before is not forgotten"


def test_a_fast_check_keeps_findings_of_quality(
    small: tuple[Path, ValidationReport], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    shutil.copytree(small[0], output)
    before = validate(str(output), mode="quality")
    assert before.warnings == 3 and before.notes
    capsys.readouterr()
    assert main(["validate", str(output), "--fast", "--warn_on", "DATA_CRC"]) == 0
    stored = json.loads((output / "findings.json").read_text())
    assert (stored["mode"], stored["warnings"], stored["notes"]) == ("fast", 3, before.notes)
    assert [run["depth"] for run in stored["checks"]] == ["fast", "quality"]
    conflict = next(one for one in stored["findings"] if one["code"] == "LABEL_CONFLICT")
    assert (conflict["depth"], conflict["time"]) == ("quality", before.time)
    assert "1 LABEL_CONFLICT (warning), found by the quality check of" in capsys.readouterr().out
    page = (output / "report.html").read_text()
    assert "Warnings to look at" in page and "LABEL_CONFLICT" in page and "(<bdi>quality</bdi>)" in page


def test_a_pair_is_reported_once(small: tuple[Path, ValidationReport]) -> None:
    linked = [one for one in small[1].findings if one.other is not None]
    assert len({Finding.order(one)[:2] for one in linked}) == len(linked) == 4


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
