"""`inspect` for every way to store a picture: pixels, base64, serialized tensors, custom layouts."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shardwright.pipelines.convert import convert
from shardwright.pipelines.inspect import inspect, main
from shardwright.transforms.images.contact_sheet import SIDE

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


def sheet_of(place: Path | str, tmp_path: Path) -> tuple[dict[str, Any], set[tuple[int, ...]]]:
    """Inspects a dataset; returns the result, and the colors in the middle of the sheet's pictures."""
    path = tmp_path / "sheet.png"
    found = inspect(str(place), records=1, contact_sheet=str(path))
    pixels = np.asarray(Image.open(path))
    middles = {tuple(int(v) for v in pixels[8 + SIDE // 2, 8 + SIDE // 2 + i * (SIDE + 8)]) for i in range(2)}
    return found, middles


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two plain pictures in every layout."""
    root = tmp_path_factory.mktemp("places")
    for name, color in _COLORS.items():
        (root / "in" / name).mkdir(parents=True)
        Image.new("RGB", (20, 12), color).save(root / "in" / name / "0.png")
    (root / "own.yaml").write_text(_OWN)
    (root / "files.yaml").write_text(_OWN_FILES)
    for layout in (*_RAW, "files"):
        name = f"{root / layout}.yaml" if layout in ("own", "files") else layout
        convert(input=str(root / "in"), output=str(root / layout), layout=name, resize="20x12",
                **({"image_format": "png"} if layout == "files" else {}))  # fmt: skip
    return root


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", [*_RAW, "files"])
def test_pictures_are_shown_however_they_are_stored(layout: str, places: Path, tmp_path: Path) -> None:
    found, middles = sheet_of(places / layout, tmp_path)
    assert found["contact_sheet"]["thumbnails"] == 2 and middles == set(_COLORS.values())
    (shown,) = (value for value in found["records"][0]["features"].values() if isinstance(value, dict))
    assert shown["kind"] == ("png" if layout == "files" else "raw")
    assert layout == "files" or shown["bytes"] == 20 * 12 * 3


@pytest.mark.parametrize("layout", ["raw_with_shape", "tfrecorder", "files"])
def test_pictures_in_foreign_files_are_shown(layout: str, places: Path, tmp_path: Path) -> None:
    """For `raw`, only dataset.json states the shape."""
    found, middles = sheet_of(f"{places / layout}/*.tfrecord", tmp_path)
    assert found["contact_sheet"]["thumbnails"] == 2 and middles == set(_COLORS.values())


def test_encoded_values_are_shown_decoded(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(places / "own"), "--json"]) == 0
    features = json.loads(capsys.readouterr().out)["records"][0]["features"]
    assert features["klass"] in _COLORS and features["corner"] == [1, 2, 3, 4]
    assert main([str(places / "own")]) == 0
    shown = capsys.readouterr().out
    assert "tensor of uint8: any x any x any" in shown and "base64: one value" in shown
    assert '"features"' not in shown  # the layout is shown as a table, not as a setting


def test_boxes_in_a_single_list_are_drawn(tmp_path: Path) -> None:
    blank = io.BytesIO()
    Image.new("RGB", (64, 64), "white").save(blank, "PNG")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(blank.getvalue())
    document = {
        "images": [{"id": 1, "file_name": "a.png", "width": 64, "height": 64}],
        "categories": [{"id": 1, "name": "dog"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 32, 64]}],
    }
    (tmp_path / "in" / "instances.json").write_text(json.dumps(document))
    (tmp_path / "boxes.yaml").write_text(
        "needs: objects\nfeatures:\n  image: {fill: encoded}\n  boxes: {fill: boxes, tensor: true}\n"
        "  kinds: {fill: object_label}\n"
    )
    convert(input=str(tmp_path / "in" / "instances.json"), output=str(tmp_path / "out"),
            layout=str(tmp_path / "boxes.yaml"))  # fmt: skip
    inspect(str(tmp_path / "out"), contact_sheet=str(tmp_path / "sheet.png"))
    row = np.asarray(Image.open(tmp_path / "sheet.png"))[8 + SIDE // 2, 8 : 8 + SIDE].astype(int)
    drawn = np.flatnonzero(np.ptp(row, axis=1) > 50)
    assert drawn.min() <= 1 and SIDE // 2 - 3 <= drawn.max() <= SIDE // 2 + 2
