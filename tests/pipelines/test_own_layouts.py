"""Custom layouts end to end: columns of manifests, where layouts are stored and shown, sizes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.fewer_imports import late
from helpers.tensorflow_records import read_records
from PIL import Image

from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.plan import plan
from shardwright.pipelines.results import ConvertResult
from shardwright.schemas.errors import UsageError

tf = late("tensorflow")

LAYOUT = """
name: shop
extends: tutorial
features:
  cost: {column: price, type: float, optional: true}
  note: {column: note, type: string, optional: true}
  grid: {column: grid, type: int32, shape: [2, 2], tensor: true}
  rows: {column: rows, type: float, shape: [null, 2]}
  exact: {column: exact, type: double, tensor: true}
"""
GOOD = {"price": 0.5, "note": "x", "grid": [[1, 2], [3, 4]], "rows": [[1, 2], [3, 4], [5, 6]], "exact": 0.1}


@pytest.fixture
def shop(tmp_path: Path) -> Callable[..., ConvertResult]:
    """Converts rows of a manifest with the layout above."""
    (tmp_path / "shop.yaml").write_text(LAYOUT)
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for i in range(8):
        Image.new("RGB", (4 + i, 3), (20 * i, 0, 0)).save(pictures / f"{i}.png")

    def run(rows: list[dict[str, Any]], **more: Any) -> ConvertResult:
        manifest = tmp_path / "rows.jsonl"
        full = [{"image": f"{i}.png", "label": "ab"[i % 2], **row} for i, row in enumerate(rows)]
        manifest.write_text("".join(json.dumps(row) + "\n" for row in full))
        values = {
            "input": manifest, "image_root": pictures, "output": tmp_path / "out", "verify": "full",
            "max_bad_fraction": 1, **more,
        }  # fmt: skip
        return convert(**values if "plan_from" in more else {"layout": tmp_path / "shop.yaml", **values})

    return run


def records(made: ConvertResult) -> dict[int, Any]:
    """Returns the features of each record, in the order of the pictures' numbers."""
    files = [Path(made.path) / shard.file for shard in made.dataset.splits["train"]]
    parsed = [tf.train.Example.FromString(data) for data in read_records(files)]
    return {
        example.features.feature["width"].int64_list.value[0] - 4: example.features.feature
        for example in parsed
    }


def test_columns_of_every_shape_are_stored(shop: Callable[..., ConvertResult]) -> None:
    flat = {**GOOD, "grid": [1, 2, 3, 4], "rows": []}
    lacking = {name: value for name, value in GOOD.items() if name not in ("price", "note")}
    bad = [
        {**GOOD, "grid": [[1, 2, 3, 4]]},
        {**GOOD, "grid": [[1, 2, 3], [4]]},
        {**GOOD, "rows": [[1, 2], [3]]},
        {**GOOD, "rows": [1, 2, 3]},
        {**GOOD, "exact": None},
    ]
    made = shop([GOOD, flat, lacking, *bad])
    found = records(made)
    assert sorted(found) == [0, 1, 2]
    for number, features in found.items():
        grid = tf.io.parse_tensor(features["grid"].bytes_list.value[0], tf.int32)
        assert grid.numpy().tolist() == [[1, 2], [3, 4]]
        assert tf.io.parse_tensor(features["exact"].bytes_list.value[0], tf.float64).numpy() == 0.1
        assert list(features["rows"].float_list.value) == ([] if number == 1 else [1, 2, 3, 4, 5, 6])
        assert ("cost" in features, "note" in features) == (number != 2, number != 2)
    lines = (Path(made.path) / "quarantine.jsonl").read_text().splitlines()
    reasons = {Path(line["key"]).name: (line["reason"], line["message"]) for line in map(json.loads, lines)}
    assert {reason for reason, _ in reasons.values()} == {"BAD_ROW"}
    assert "does not have the shape 2 x 2" in reasons["3.png"][1]
    assert "does not have the shape 2 x 2" in reasons["4.png"][1]
    assert "does not have the shape any x 2" in reasons["5.png"][1]
    assert "has 3 values, not any x 2" in reasons["6.png"][1]
    assert "exact is empty" in reasons["7.png"][1]


def test_cells_of_a_csv_are_in_row_order(shop: Callable[..., ConvertResult], tmp_path: Path) -> None:
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["image", "label", "price", "note", "grid", "rows", "exact"],
             ["0.png", "a", "", "", "1|2|3|4", "1|2|3|4", "0.1"],
             ["1.png", "b", "2", "n", "1|2|3", "", "0.1"]]
        )  # fmt: skip
    made = shop([], input=tmp_path / "rows.csv", label_separator="|")
    features = records(made)[0]
    assert tf.io.parse_tensor(features["grid"].bytes_list.value[0], tf.int32).numpy().tolist() == [
        [1, 2],
        [3, 4],
    ]
    assert list(features["rows"].float_list.value) == [1, 2, 3, 4]
    assert "cost" not in features and "note" not in features
    assert made.dataset.ledger["quarantined"] == 1


def test_a_missing_column_is_named(shop: Callable[..., ConvertResult]) -> None:
    with pytest.raises(UsageError, match=r"--layout shop, column exact: .*has no such column"):
        shop([{name: value for name, value in GOOD.items() if name != "exact"}])


def test_the_layout_is_carried_and_shown_with_its_name(
    shop: Callable[..., ConvertResult], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = shop([GOOD, GOOD])
    document = json.loads((Path(made.path) / "dataset.json").read_text())
    assert document["layout"] == document["settings"]["layout"]["name"] == "shop"
    assert document["settings"] == document["plan"]["settings"]
    (tmp_path / "shop.yaml").unlink()  # the file is not needed any more
    again = shop([GOOD, GOOD], output=tmp_path / "again", plan_from=made.path)
    assert again.dataset.features == made.dataset.features
    assert again.dataset.fingerprint == made.dataset.fingerprint
    common = ["--input", str(tmp_path / "rows.jsonl"), "--image_root", str(tmp_path / "pictures")]
    capsys.readouterr()
    assert main(["plan", *common, "--plan_from", made.path]) == 0
    output = [*common, "--output", str(tmp_path / "third"), "--plan_from", made.path]
    assert main(["convert", *output]) == 0
    assert main(["inspect", str(tmp_path / "third")]) == 0
    assert main(["validate", "--dataset", str(tmp_path / "third")]) == 0
    shown = "".join(capsys.readouterr())
    assert "first_label" not in shown and '{"' not in shown
    assert "shop" in shown


@pytest.mark.parametrize("needs", ["objects", "semantic", "panoptic"])
def test_refusals_name_the_layout(photos: Path, tmp_path: Path, needs: str) -> None:
    (tmp_path / "mine.yaml").write_text(f"needs: {needs}\nfeatures: {{x: {{fill: encoded}}}}")
    with pytest.raises(UsageError, match=r"--layout mine: ") as refusal:
        plan(input=photos, layout=tmp_path / "mine.yaml")
    assert "{" not in refusal.value.message


OWN_TENSOR = "extends: raw\nfeatures: {image: {fill: encoded, tensor: true}}"
OWN_BASE64 = "extends: minimal\nfeatures: {image: {fill: encoded, base64: true}}"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("layout", "settings", "tolerance"),
    [
        ("raw", {"resize": 32}, 0.001),
        ("raw_with_shape", {}, 0.001),
        ("tfrecorder", {"resize": "40x20"}, 0.02),
        (OWN_TENSOR, {"resize": 32}, 0.001),
        (OWN_BASE64, {}, 0.05),
        (OWN_BASE64, {"resize": 32, "image_format": "png"}, 0.05),
    ],
)
def test_the_plan_estimates_the_size(
    photos: Path, tmp_path: Path, layout: str, settings: dict[str, Any], tolerance: float
) -> None:
    """All 61 photos are in the sample. For pictures of many sizes, the estimate uses their mean."""
    if "\n" in layout:
        (tmp_path / "mine.yaml").write_text(layout)
        layout = str(tmp_path / "mine.yaml")
    made = convert(input=photos, output=tmp_path / "out", layout=layout, **settings)
    written = sum(shard.bytes for shards in made.dataset.splits.values() for shard in shards)
    assert sum(made.dataset.plan.estimate.values()) == pytest.approx(written, rel=tolerance)
