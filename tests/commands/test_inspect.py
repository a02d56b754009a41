"""The output of inspect for datasets, damaged ones, foreign files, and every way to store a picture."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.annotation_sets.coco import put_coco
from helpers.hostile import flip, picture, run, sentence_of
from helpers.pictures import file_of
from helpers.repository import PHOTOS
from helpers.resealing import frame
from helpers.trees import put_files
from PIL import Image

from shardwright.core.preview import SIDE, RecordLocation, even_quota, pick_evenly
from shardwright.core.records.compression import read_lazily
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.inspect import inspect
from shardwright.schemas.example import Feature, FeatureType, encode_example

SPLITS = "train=0.8,test=0.2"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("inspect") / "out"
    convert(input=str(PHOTOS), output=str(path), resize=64, splits=SPLITS, verify="none")
    return path


def test_shows_header_splits_ledger_classes_and_records(dataset, capsys):
    code, out, _ = run(capsys, "inspect", dataset, "--records", 2)
    document = json.loads((dataset / "dataset.json").read_text())
    assert code == 0
    assert "resize 64x64" in out and "seed" not in out  # settings with default values are not shown
    assert "image/encoded" in out and "int64" in out
    assert "quarantined" in out and "vehicles" in out
    assert out.count("train-00000-of-00001.tfrecord, record") == 2
    assert " kB jpg>" in out and ".png" in out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert f"  fingerprint {document['fingerprint']}" in lines  # in one piece


def test_json_contains_the_content_of_dataset_json(dataset, capsys):
    code, out, _ = run(capsys, "inspect", "--dataset", dataset, "--json", "--split=test", "--records=1")
    found = json.loads(out)
    document = json.loads((dataset / "dataset.json").read_text())
    assert code == 0
    for name in ("fingerprint", "layout", "versions", "labels", "class_counts", "ledger", "features"):
        assert found[name] == document[name]
    assert found["splits"]["test"]["records"] == document["splits"]["test"]["records"]
    assert found["changed_settings"] == {"splits": "train=4/5,test=1/5", "resize": "64x64"}
    (record,) = found["records"]
    values = record["features"]
    assert record["shard"].startswith("test-") and record["offset"] == 0
    assert found["labels"][values["image/class/label"]] == values["image/class/text"]
    assert values["image/encoded"]["kind"] == "jpg"
    assert (values["image/height"], values["image/width"]) == (64, 64)


def test_the_contact_sheet_is_balanced_and_reproducible(dataset, tmp_path, capsys):
    sheets = [tmp_path / "a.png", tmp_path / "b.png"]
    for sheet in sheets:
        code, out, _ = run(capsys, "inspect", dataset, "--contact-sheet", sheet, "--thumbnails", 10)
        assert code == 0 and "10 images drawn" in out
    assert sheets[0].read_bytes() == sheets[1].read_bytes()
    with Image.open(sheets[0]) as image:
        assert image.size == (4 * 136 + 8, 3 * 156 + 8)  # a grid of 4 columns
        colors = image.convert("RGB").getcolors(1 << 20)
    assert colors is not None and len(colors) > 1000
    counts = {"a": 50, "b": 1, "c": 50, "none": 0}
    assert even_quota(counts, 7) == {"a": 3, "b": 1, "c": 3}
    assert even_quota({str(i): 9 for i in range(100)}, 4) == {"0": 1, "25": 1, "50": 1, "75": 1}


def test_picks_the_first_records_of_each_class_and_stops_when_it_has_them():
    taken = []

    def places():
        for offset, label in enumerate("aaabacab"):
            taken.append(offset)
            yield RecordLocation("shard", offset, label)

    picked = pick_evenly(places(), {"a": 5, "b": 2, "c": 1}, 4, 100)
    assert [place.offset for place in picked] == [0, 1, 3, 5]
    assert taken == [0, 1, 2, 3, 4, 5]
    unknown = pick_evenly((RecordLocation("shard", i, str(i % 3)) for i in range(9)), {}, 4, 100)
    assert [place.label for place in unknown] == ["0", "0", "1", "2"]
    assert len(pick_evenly((RecordLocation("shard", i, "new") for i in range(9)), {"a": 0}, 4, 100)) == 4


def test_foreign_files_have_their_features_inferred(dataset, tmp_path, capsys):
    sheet = tmp_path / "sheet.jpg"
    code, out, _ = run(capsys, "inspect", f"{dataset}/*.tfrecord", "--json", "--contact_sheet", sheet)
    found = json.loads(out)
    assert code == 0
    assert len(found["files"]) == 2 and "ledger" not in found
    features = {item["name"]: item for item in found["features"]}
    assert features["image/encoded"]["type"] == "bytes" and features["image/height"]["shape"] == []
    assert found["contact_sheet"]["thumbnails"] == 61


def test_values_are_shown_as_text_and_never_control_the_terminal(tmp_path, capsys):
    values = {
        "escape": Feature(FeatureType.BYTES, [b"a\x1b[31m\nb"]),
        "float": Feature(FeatureType.FLOAT, [0.5, float("nan")]),
        "many": Feature(FeatureType.INT64, list(range(100))),
        "text": Feature(FeatureType.BYTES, ["château 中".encode()]),
        "vector": Feature(FeatureType.BYTES, [bytes(1234)]),
    }
    path = tmp_path / "values.tfrecord"
    path.write_bytes(frame(encode_example(values)) + frame(b""))  # and a record without features
    code, out, _ = run(capsys, "inspect", path)
    assert code == 0 and "record 1, byte" in out
    assert "\x1b[31m" not in out and "<8 B binary>" in out
    assert "château 中" in out and "<1.2 kB binary>" in out
    assert "[0.5, nan]" in out and "... 100 in all" in out
    _, out, _ = run(capsys, "inspect", path, "--json")
    assert json.loads(out)["records"][0]["features"]["float"] == [0.5, "nan"]


def test_the_contact_sheet_draws_any_class_name(tmp_path, capsys):
    names = ("château", "中文", "line\nbreak", "شجرة", "🐈", "x" * 100)
    photos = put_files(tmp_path / "photos", {f"{name}/a.png": picture(1) for name in names})
    out, sheet = tmp_path / "out", tmp_path / "sheet.webp"
    convert(input=str(photos), output=str(out), verify="none")
    code, shown, _ = run(capsys, "inspect", out, "--contact_sheet", sheet)
    assert code == 0 and "6 images" in shown
    assert "中文" in shown and "line\\nbreak" in shown
    with Image.open(sheet) as image:
        assert image.format == "WEBP" and min(image.size) > 100


def test_the_contact_sheet_marks_undecodable_images(tmp_path, capsys):
    path, sheet = tmp_path / "some.tfrecord", tmp_path / "sheet.png"
    large = tmp_path / "large.jpg"
    Image.new("RGB", (3000, 2000), "teal").save(large)
    path.write_bytes(
        b"".join(
            frame(encode_example({"image/encoded": Feature(FeatureType.BYTES, [data])}))
            for data in (b"\xff\xd8\xff broken", b"no picture", large.read_bytes())
        )
    )
    code, out, _ = run(capsys, "inspect", path, "--contact_sheet", sheet)
    assert code == 0 and "3 images drawn" in out
    with Image.open(sheet) as image:
        colors = {color for _, color in image.getcolors(1 << 20)}
    assert any(abs(r) < 4 and abs(g - 128) < 4 and abs(b - 128) < 4 for r, g, b in colors)


def test_damage_is_reported_and_sound_records_are_shown(dataset, tmp_path, capsys):
    copy = Path(shutil.copytree(dataset, tmp_path / "copy"))
    (shard,) = copy.glob("train*.tfrecord")
    flip(shard, 20)
    shutil.rmtree(copy / "_shards")  # so that the sheet uses the records themselves
    code, out, _ = run(capsys, "inspect", copy, "--contact_sheet", tmp_path / "sheet.png")
    assert code == 0
    assert "damaged: train-00000-of-00001.tfrecord, record 0, byte 0: the checksum" in out
    assert "record 1" in out and "51 images drawn" in out
    shard.write_bytes(b"")
    code, out, _ = run(capsys, "inspect", copy)
    assert code == 0 and "dataset.json says 52 records" in out


def test_reads_no_more_of_a_shard_than_it_needs(dataset, capsys, monkeypatch):
    read = []

    def counted(path):
        for item in read_lazily(path):
            read.append(item)
            yield item

    monkeypatch.setattr("shardwright.pipelines.inspect.read_lazily", counted)
    assert run(capsys, "inspect", dataset, "--records", 2)[0] == 0
    assert len(read) == 2
    read.clear()
    (dataset / "train-00000-of-00001.tfrecord").rename(dataset / "away")
    try:
        assert inspect(str(dataset), records=0)["records"] == [] and not read
        assert "is missing" in sentence_of(run(capsys, "inspect", dataset), 3)
    finally:
        (dataset / "away").rename(dataset / "train-00000-of-00001.tfrecord")


_COLORS = {"ant": (200, 30, 30), "bee": (30, 200, 30)}
_OWN = """
extends: classification
pixels: true
drop: [image/encoded, image/class/text]
features:
  px: {fill: encoded, tensor: true}
  klass: {fill: label_text, base64: true}
  corner: {constant: [[1, 2], [3, 4]], type: int32}
"""
_OWN_FILES = """
features:
  image: {fill: encoded, base64: true}
  number: {fill: label, tensor: true}
"""
_RAW = ("raw", "raw_with_shape", "tfrecorder", "own")
_COMPRESSED = {"raw": "gzip", "own": "zlib"}


def sheet_of(place: Path | str, tmp_path: Path) -> tuple[dict[str, Any], set[tuple[int, ...]]]:
    """Inspects a dataset; returns the result, and the colors in the middle of the sheet's pictures."""
    path = tmp_path / "sheet.png"
    found = inspect(str(place), records=1, contact_sheet=str(path))
    pixels = np.asarray(Image.open(path))
    middles = {tuple(int(v) for v in pixels[8 + SIDE // 2, 8 + SIDE // 2 + i * (SIDE + 8)]) for i in range(2)}
    return found, middles


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two plain pictures in every layout, some in compressed shards."""
    root = tmp_path_factory.mktemp("places")
    images = {name: Image.new("RGB", (20, 12), color) for name, color in _COLORS.items()}
    put_files(root / "in", {f"{name}/0.png": file_of(image, "PNG") for name, image in images.items()})
    put_files(root, {"own.yaml": _OWN, "files.yaml": _OWN_FILES})
    for layout in (*_RAW, "files"):
        name = f"{root / layout}.yaml" if layout in ("own", "files") else layout
        more = {"compression": _COMPRESSED.get(layout, "none"), "resize": "20x12", "verify": "none"}
        more |= {"image_format": "png"} if layout == "files" else {}
        convert(input=str(root / "in"), output=str(root / layout), layout=name, **more)
    return root


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", [*_RAW, "files"])
def test_pictures_are_shown_however_they_are_stored(layout: str, places: Path, tmp_path: Path) -> None:
    found, middles = sheet_of(places / layout, tmp_path)
    assert found["contact_sheet"]["thumbnails"] == 2 and middles == set(_COLORS.values())
    assert found["records"][0]["shard"].endswith({"raw": ".gz", "own": ".zlib"}.get(layout, ".tfrecord"))
    (shown,) = (value for value in found["records"][0]["features"].values() if isinstance(value, dict))
    assert shown["kind"] == ("png" if layout == "files" else "raw")
    assert layout == "files" or shown["bytes"] == 20 * 12 * 3


@pytest.mark.parametrize("layout", ["raw_with_shape", "tfrecorder", "files"])
def test_pictures_in_foreign_files_are_shown(layout: str, places: Path, tmp_path: Path) -> None:
    """For `raw`, only dataset.json states the shape."""
    found, middles = sheet_of(f"{places / layout}/*.tfrecord", tmp_path)
    assert found["contact_sheet"]["thumbnails"] == 2 and middles == set(_COLORS.values())


def test_encoded_values_are_shown_decoded(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(places / "own"), "--json"]) == 0
    features = json.loads(capsys.readouterr().out)["records"][0]["features"]
    assert features["klass"] in _COLORS and features["corner"] == [1, 2, 3, 4]
    assert main(["inspect", str(places / "own")]) == 0
    shown = capsys.readouterr().out
    assert "tensor of uint8: any x any x any" in shown and "base64: one value" in shown
    assert '"features"' not in shown  # the layout is shown as a table, not as a setting


def test_boxes_in_a_single_list_are_drawn(tmp_path: Path) -> None:
    Image.new("RGB", (64, 64), "white").save(tmp_path / "a.png")
    file = put_coco(tmp_path / "instances.json", {"a.png": [(1, 0, 0, 32, 64)]}, ["dog"])
    (tmp_path / "boxes.yaml").write_text(
        "needs: objects\nfeatures:\n  image: {fill: encoded}\n  boxes: {fill: boxes, tensor: true}\n"
        "  kinds: {fill: object_label}\n"
    )
    convert(input=file, output=tmp_path / "out", layout=tmp_path / "boxes.yaml", verify="none")
    inspect(str(tmp_path / "out"), contact_sheet=str(tmp_path / "sheet.png"))
    row = np.asarray(Image.open(tmp_path / "sheet.png"))[8 + SIDE // 2, 8 : 8 + SIDE].astype(int)
    drawn = np.flatnonzero(np.ptp(row, axis=1) > 50)
    assert drawn.min() <= 1 and SIDE // 2 - 3 <= drawn.max() <= SIDE // 2 + 2
