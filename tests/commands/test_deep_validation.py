"""Datasets of 16 bits, floats and many channels: types are counted, samples measured, reports drawn."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from helpers.planting import rewrite, set_text, write_ledger, written_lines
from helpers.resealing import read_shard, settle
from PIL import Image

from shardwright.pipelines.convert import convert
from shardwright.pipelines.inspect import inspect
from shardwright.pipelines.salvage import salvage
from shardwright.pipelines.validate import validate
from shardwright.schemas.example import parse_example

SHARD = "train-00000-of-00001.tfrecord"
RANDOM = np.random.default_rng(5)
SIDES = (12, 10)
BANDS = 5


def smooth(number: int, dtype: str, channels: int) -> np.ndarray:
    """Returns samples of a picture that looks like no other."""
    coarse = np.random.default_rng(number).integers(0, 256, (4, 4, channels), np.uint8)
    planes = [Image.fromarray(coarse[..., i]).resize(SIDES[::-1]) for i in range(channels)]
    pixels = np.stack([np.asarray(plane) for plane in planes], axis=-1)
    if dtype == "float32":
        return (pixels * np.float32(13.5) - 900).astype(np.float32)
    return pixels.astype(dtype) * (257 if dtype == "uint16" else 1)


DEEP = {f"deep{i}.png": smooth(i, "uint16", 3) for i in range(4)}
GRAY = {f"gray{i}.png": smooth(10 + i, "uint16", 1) for i in range(2)}
EIGHT = {f"eight{i}.png": smooth(20 + i, "uint8", 3) for i in range(2)}
FLOATS = {f"float{i}.tif": smooth(30 + i, "float32", 1) for i in range(3)}
FLOATS["float0.tif"][2:4, 5] = np.nan
FLOATS["float1.tif"][0, 0] = np.inf


def write(folder: Path, name: str, pixels: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if name.endswith(".png"):
        (folder / name).write_bytes(imagecodecs.png_encode(np.ascontiguousarray(np.squeeze(pixels))))
    else:
        tifffile.imwrite(folder / name, np.squeeze(pixels))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of images of all types, each stored as it is."""
    root = tmp_path_factory.mktemp("mixed")
    for name, pixels in (DEEP | GRAY | EIGHT | FLOATS).items():
        write(root / "in" / "a", name, pixels)
    convert(input=str(root / "in"), output=str(root / "out"), depth="keep", color="keep", shards="1")
    return root / "out"


@pytest.fixture(scope="module")
def bands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of multispectral images."""
    root = tmp_path_factory.mktemp("bands")
    (root / "in" / "a").mkdir(parents=True)
    for i in range(4):
        options: dict[str, Any] = {"photometric": "minisblack", "planarconfig": "contig"}
        tifffile.imwrite(root / "in" / "a" / f"{i}.tif", smooth(50 + i, "uint16", BANDS), **options)
    convert(input=str(root / "in"), output=str(root / "out"), depth="keep", channels=BANDS, shards="1")
    return root / "out"


def number_of(dataset: Path, name: str) -> int:
    return [Path(line["key"]).name for line in written_lines(dataset, SHARD)].index(name)


def test_types_are_counted_again(mixed: Path, tmp_path: Path) -> None:
    document = json.loads((mixed / "dataset.json").read_text())
    assert document["dtypes"] == {"float32": 3, "uint16": 6, "uint8": 2}
    dataset = Path(shutil.copytree(mixed, tmp_path / "dataset"))
    document["dtypes"] = {"float32": 3, "uint16": 8}
    (dataset / "dataset.json").write_text(json.dumps(document))
    found = validate(dataset, mode="fast").findings
    assert [(item.code.value, item.message) for item in found] == [
        ("COUNT_MISMATCH", "field 'dtypes.uint16' says 8, but should say 6"),
        ("COUNT_MISMATCH", "field 'dtypes.uint8' is missing; it should be 2"),
    ]


def test_a_type_that_only_the_ledger_states_is_found(mixed: Path, tmp_path: Path) -> None:
    dataset = Path(shutil.copytree(mixed, tmp_path / "dataset"))
    lines = written_lines(dataset, SHARD)
    lines[number_of(dataset, "deep0.png")]["dtype"] = "uint8"
    write_ledger(dataset, SHARD, lines)
    settle(dataset)
    (finding,) = validate(dataset, mode="fast").findings
    assert finding.code == "LEDGER_MISMATCH"
    assert finding.message == "its samples are uint16, the shard's ledger says uint8"


def moments(pictures: dict[str, np.ndarray]) -> dict[str, Any]:
    channels = next(iter(pictures.values())).shape[-1]
    every = np.concatenate([pixels.reshape(-1, channels) for pixels in pictures.values()]).astype(float)
    kept = [every[np.isfinite(every[:, i]), i] for i in range(channels)]
    return {
        "mean": [values.mean() for values in kept],
        "std": [values.std() for values in kept],
        "min": [values.min() for values in kept],
        "max": [values.max() for values in kept],
    }


def test_samples_are_measured_in_their_own_units(mixed: Path, tmp_path: Path) -> None:
    dataset = Path(shutil.copytree(mixed, tmp_path / "dataset"))
    assert validate(dataset, mode="quality").sound
    statistics = json.loads((dataset / "statistics.json").read_text())["total"]["all"]
    for kind, number, pictures in (
        ("uint16", "3", DEEP), ("uint16", "1", GRAY), ("uint8", "3", EIGHT), ("float32", "1", FLOATS),
    ):  # fmt: skip
        found = statistics["samples"][kind][number]
        assert found["images"] == len(pictures)
        for name, values in moments(pictures).items():
            assert found[name] == pytest.approx(values, rel=1e-5), (kind, name)
    assert (found["nan"], found["infinite"]) == ([2], [1])
    assert statistics["channels"] == {"1": 5, "3": 6}
    page = (dataset / "report.html").read_text()
    for text in (
        "Stored samples, in their own units",
        "2 NaN, 1 infinite",
        "1 of 3",
        "65535",
        "Types of samples",
    ):
        assert text in page
    assert page.count("data:image/jpeg") >= len(DEEP | GRAY | EIGHT | FLOATS)


def test_multispectral_images_are_measured_and_compared_with_their_source(
    bands: Path, tmp_path: Path
) -> None:
    dataset = Path(shutil.copytree(bands, tmp_path / "dataset"))
    source = str(bands.parent / "in")
    assert validate(dataset, mode="quality", against=source).sound
    statistics = json.loads((dataset / "statistics.json").read_text())
    pictures = {str(i): smooth(50 + i, "uint16", BANDS) for i in range(4)}
    found = statistics["total"]["all"]["samples"]["uint16"][str(BANDS)]
    for name, values in moments(pictures).items():
        assert found[name] == pytest.approx(values, rel=1e-5), name
    assert len(statistics["normalize"]["train"]["mean"]) == BANDS
    (bands_of_one,) = parse_example(read_shard(dataset / SHARD)[0])["image/encoded"].values
    other = np.frombuffer(bytes(bands_of_one), "<u2") + np.uint16(40)
    rewrite(dataset, set_text("image/encoded", other.tobytes()), 0, SHARD)
    assert {item.code for item in validate(dataset, against=source).findings} == {"SOURCE_CHANGED"}


def test_files_without_a_dataset_are_checked_by_their_types(mixed: Path, tmp_path: Path) -> None:
    shutil.copy(mixed / SHARD, tmp_path / SHARD)
    report = validate(str(tmp_path / "*.tfrecord"), mode="quality", report=tmp_path / "findings.json")
    assert report.sound, report.findings
    statistics = json.loads((tmp_path / "statistics.json").read_text())
    assert sorted(statistics["total"]["all"]["samples"]) == ["float32", "uint16", "uint8"]


def test_a_gate_limits_the_types(mixed: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate.yaml"
    gate.write_text("allowed_dtypes: [uint16, uint8]\n")
    (finding,) = validate(mixed, mode="fast", expect=gate, report=tmp_path / "findings.json").findings
    assert finding.message == "allowed_dtypes: 3 images have samples of type float32"


@pytest.mark.parametrize("with_ledger", [True, False])
def test_salvage_knows_the_types(mixed: Path, tmp_path: Path, with_ledger: bool) -> None:
    dataset = Path(shutil.copytree(mixed, tmp_path / "dataset"))
    lines = written_lines(dataset, SHARD)
    lost = lines[number_of(dataset, "float2.tif")]
    data = bytearray((dataset / SHARD).read_bytes())
    data[lost["offset"] + 40] ^= 1
    (dataset / SHARD).write_bytes(data)
    if not with_ledger:
        (dataset / "_shards" / SHARD.replace(".tfrecord", ".jsonl.gz")).unlink()
    salvage(dataset, tmp_path / "saved")
    document = json.loads((tmp_path / "saved" / "dataset.json").read_text())
    assert document["dtypes"] == {"float32": 2, "uint16": 6, "uint8": 2}
    assert validate(tmp_path / "saved").sound


def test_contact_sheets_show_every_type(mixed: Path, bands: Path, tmp_path: Path) -> None:
    for dataset, images in ((mixed, 11), (bands, 4)):
        sheet = tmp_path / f"{images}.png"
        assert inspect(str(dataset), contact_sheet=str(sheet))["contact_sheet"]["thumbnails"] == images
        assert np.asarray(Image.open(sheet).convert("L")).std() > 20
