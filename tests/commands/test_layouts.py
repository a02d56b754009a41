"""Layouts: custom ones end to end, those without classes, and the command that explains layouts."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.depths import findings_of
from helpers.fewer_imports import late
from helpers.hostile import run
from helpers.listing import Listed, listed
from helpers.manifests import write_csv, write_jsonl
from helpers.repository import PHOTOS
from helpers.trees import put_files
from PIL import Image

from shardwright import loader
from shardwright.core.sources.folder_tree import FolderTree, decide
from shardwright.core.sources.inputs import check_inputs
from shardwright.loader import Records
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.layouts import layouts
from shardwright.pipelines.plan import plan, print_forecast
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.validate import validate
from shardwright.schemas.configuration.layout_file import parse_layout_file
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.layouts import LAYOUTS, inline_layout
from shardwright.schemas.parsing import spec_source

Capture = pytest.CaptureFixture[str]

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
SHOP = inline_layout(parse_layout_file(LAYOUT, "shop.yaml"))
GOOD = {"price": 0.5, "note": "x", "grid": [[1, 2], [3, 4]], "rows": [[1, 2], [3, 4], [5, 6]], "exact": 0.1}


@pytest.fixture
def put_rows(tmp_path: Path) -> Callable[[list[dict[str, Any]]], Path]:
    """Writes a manifest with rows for pictures of different sizes."""
    for i in range(8):
        Image.new("RGB", (4 + i, 3), (20 * i, 0, 0)).save(tmp_path / f"{i}.png")

    def put(rows: list[dict[str, Any]]) -> Path:
        full = [{"image": f"{i}.png", "label": "ab"[i % 2], **row} for i, row in enumerate(rows)]
        return write_jsonl(tmp_path / "rows.jsonl", full)

    return put


PutRows = Callable[[list[dict[str, Any]]], Path]


def bad_rows(found: Listed) -> dict[str, str]:
    """Returns the messages about rows, some of which are found when a record is built."""
    return {key: entry.message for key, entry in found.entries().items() if entry.reason == "BAD_ROW"}


def test_columns_of_every_shape_are_stored(put_rows: PutRows) -> None:
    flat = {**GOOD, "grid": [1, 2, 3, 4], "rows": []}
    lacking = {name: value for name, value in GOOD.items() if name not in ("price", "note")}
    bad = [
        {**GOOD, "grid": [[1, 2, 3, 4]]},
        {**GOOD, "grid": [[1, 2, 3], [4]]},
        {**GOOD, "rows": [[1, 2], [3]]},
        {**GOOD, "rows": [1, 2, 3]},
        {**GOOD, "exact": None},
    ]
    found = listed(put_rows([GOOD, flat, lacking, *bad]), SHOP)
    records = found.records()
    assert sorted(records) == ["0.png", "1.png", "2.png"]
    for key, record in records.items():
        features = record.features.feature
        grid = tf.io.parse_tensor(features["grid"].bytes_list.value[0], tf.int32)
        assert grid.numpy().tolist() == [[1, 2], [3, 4]]
        assert tf.io.parse_tensor(features["exact"].bytes_list.value[0], tf.float64).numpy() == 0.1
        assert list(features["rows"].float_list.value) == ([] if key == "1.png" else [1, 2, 3, 4, 5, 6])
        assert ("cost" in features, "note" in features) == (key != "2.png", key != "2.png")
    messages = bad_rows(found)
    assert "does not have the shape 2 x 2" in messages["3.png"]
    assert "does not have the shape 2 x 2" in messages["4.png"]
    assert "does not have the shape any x 2" in messages["5.png"]
    assert "has 3 values, not any x 2" in messages["6.png"]
    assert "exact is empty" in messages["7.png"]


@pytest.mark.usefixtures("put_rows")
def test_cells_of_a_csv_are_in_row_order(tmp_path: Path) -> None:
    rows = write_csv(
        tmp_path / "rows.csv",
        [["image", "label", "price", "note", "grid", "rows", "exact"],
         ["0.png", "a", "", "", "1|2|3|4", "1|2|3|4", "0.1"],
         ["1.png", "b", "2", "n", "1|2|3", "", "0.1"]],
    )  # fmt: skip
    found = listed(rows, SHOP, label_separator="|")
    assert bad_rows(found).keys() == {"1.png"}
    features = found.records()["0.png"].features.feature
    grid = tf.io.parse_tensor(features["grid"].bytes_list.value[0], tf.int32).numpy()
    assert grid.tolist() == [[1, 2], [3, 4]]
    assert list(features["rows"].float_list.value) == [1, 2, 3, 4]
    assert "cost" not in features and "note" not in features


def test_a_missing_column_is_named(put_rows: PutRows) -> None:
    rows = put_rows([{name: value for name, value in GOOD.items() if name != "exact"}])
    with pytest.raises(UsageError, match=r"--layout shop, column exact: .*has no such column"):
        listed(rows, SHOP)


def test_the_layout_is_carried_and_shown_with_its_name(
    put_rows: PutRows, tmp_path: Path, capsys: Capture
) -> None:
    rows, out, again = put_rows([GOOD, GOOD]), str(tmp_path / "out"), str(tmp_path / "again")
    (tmp_path / "shop.yaml").write_text(LAYOUT)
    convert(input=rows, output=out, layout=tmp_path / "shop.yaml", verify="none")
    document = json.loads((tmp_path / "out" / "dataset.json").read_text())
    assert document["layout"] == document["settings"]["layout"]["name"] == "shop"
    assert document["settings"] == document["plan"]["settings"]
    (tmp_path / "shop.yaml").unlink()  # the file is not needed any more
    capsys.readouterr()
    assert main(["plan", str(rows), "--plan_from", out]) == 0
    assert main(["convert", str(rows), again, "--plan_from", out, "--verify=none"]) == 0
    stored = json.loads((tmp_path / "again" / "dataset.json").read_text())
    assert (stored["features"], stored["fingerprint"]) == (document["features"], document["fingerprint"])
    assert main(["inspect", again]) == 0
    assert not findings_of(again)
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
    made = convert(input=photos, output=tmp_path / "out", layout=layout, verify="none", **settings)
    written = sum(shard.bytes for shards in made.dataset.splits.values() for shard in shards)
    assert sum(made.dataset.plan.estimate.values()) == pytest.approx(written, rel=tolerance)


OWN = """
extends: classification
drop: [image/key/sha256]
rename: {image/encoded: "the \\"picture\\""}
features:
  price: {column: cost, type: double}
  kind: {column: kind, type: enum, values: [small, large]}
  version: {constant: [[1, 2], [3, 4]], type: int32}
  note: {constant: "it's", type: string}
  corners: {fill: boxes, optional: true, tensor: true}
  key: {fill: key, base64: true}
"""


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_it_lists_every_layout(capsys: Capture) -> None:
    code, out, _ = run(capsys, "layouts")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    for layout in LAYOUTS.values():
        assert layout.summary
        assert rows[layout.name].split()[1:3] == [str(layout.first_label), layout.needs.value]
        assert layout.summary[:20] in rows[layout.name]
    assert "…" not in out  # a pipe gets whole lines
    code, out, _ = run(capsys, "layouts", "--json")
    found = json.loads(out)["layouts"]
    assert [item["name"] for item in found] == list(LAYOUTS)
    assert all(item.keys() == {"name", "summary", "first_label", "needs"} for item in found)
    assert {"layouts": found} == layouts()


@pytest.mark.parametrize("name", LAYOUTS)
def test_it_explains_each(name: str, capsys: Capture) -> None:
    layout = LAYOUTS[name]
    code, out, _ = run(capsys, "layouts", name)
    assert code == 0
    table, spec = out.split("\n# tf.io.parse_single_example(record, features)\n")
    assert spec == spec_source(layout.features)
    for feature in layout.features:
        (row,) = (line for line in table.splitlines() if line.split()[:1] == [feature.name])
        assert row.split()[1] == feature.type.value
        assert (", optional" in row) == feature.optional
    words = one_line(table)
    assert (f"Class ids begin at {layout.first_label}" in words) == (name not in ("images", "raw_with_shape"))
    assert ("bare pixels" in words) == layout.pixels
    assert ("Optional features are left out" in words) == any(item.optional for item in layout.features)
    code, out, _ = run(capsys, "layouts", "--json", name)
    found = json.loads(out)
    assert found.items() >= layouts(name).items()
    assert [item["name"] for item in found["features"]] == [feature.name for feature in layout.features]
    assert found["parsing_spec"] == spec
    for item, feature in zip(found["features"], layout.features):
        assert f"    {json.dumps(item['name'])}: {item['parsing']},\n" in spec
        assert feature.fill is not None and item["what"]
        if feature.fill.value not in ("encoded", "format"):  # these depend on the layout
            assert item["what"] == feature.fill.what


def features_of(explained: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in explained["features"]}


def test_spelling_and_pixels_depend_on_the_layout() -> None:
    formats = {
        name: next(item["what"] for item in layouts(name)["features"] if item["fill"] == "format")
        for name in ("classification", "imagenet", "detection")
    }
    assert formats["classification"].endswith(": jpg, png, webp or raw")
    assert formats["imagenet"].endswith(": JPEG, PNG, WEBP or raw")
    assert formats["detection"].endswith(": jpeg, png, webp or raw")
    assert "bare" in features_of(layouts("raw"))["image"]["what"]
    assert any("--resize" in note for note in layouts("raw")["notes"])
    assert not any("--resize" in note for note in layouts("raw_with_shape")["notes"])


def test_it_explains_a_custom_layout(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(OWN)
    code, out, _ = run(capsys, "layouts", path)
    assert code == 0
    words = one_line(out)
    assert words.startswith("shop: a layout of your own")
    assert "the source's column cost (double)" in words
    assert "the source's column kind (enum, one of small, large)" in words
    assert "always 1, 2, 3, 4" in words
    assert "always it's" in words
    assert "as serialized tensor of float32, any x 4 (tf.io.parse_tensor)" in words
    assert "as URL-safe base64 (tf.io.decode_base64)" in words
    features = features_of(layouts(str(path)))
    assert "image/key/sha256" not in features
    assert features['the "picture"']["fill"] == "encoded"
    assert features["version"]["shape"] == [2, 2]
    assert features["corners"]["tensor_shape"] == [None, 4]


tfds = late("tensorflow_datasets")

BIRDS = sorted((PHOTOS / "birds").iterdir())[:6]


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), (len(path.name) * 9 % 256, 60, 90)).save(path)


@pytest.mark.parametrize(
    ("found", "folders", "expected"),
    [
        ({}, "auto", ("", False)),
        ({"cats": False}, "auto", ("", False)),
        ({"00000": False}, "auto", ("", False)),
        ({"train": False, "Test": True}, "auto", ("train", True)),
        ({"train": False}, "ignore", ("", False)),
        ({"train": False}, "classes", ("", False)),
        ({"train": False, "cats": False}, "splits", ("train", True)),
    ],
)
def test_without_classes_folders_are_splits_or_nothing(
    found: dict[str, bool], folders: str, expected: tuple[str, bool]
) -> None:
    tree = decide(found, ConvertSettings(layout="images", folders=folders), "in", (), metadata=False)
    assert (tree.place("train/cats/1.jpg")[0], tree.leaves_out("loose.jpg")) == expected
    assert tree.place("train/cats/1.jpg", 2)[1] == ""


def test_splits_beside_other_folders_are_a_question() -> None:
    with pytest.raises(UsageError, match=r"(?s)--folders splits if .*--folders ignore if"):
        decide({"train": False, "cats": False}, ConvertSettings(layout="images"), "in", (), metadata=False)


def test_the_meaning_of_folders_is_told() -> None:
    assert FolderTree(names_classes=False, classless=True).text == "a folder of images"
    settings = ConvertSettings(layout="images")
    tree = decide({"test": False, "train": True}, settings, "in", (), metadata=False)
    assert tree.text == "images in train and test; files outside of these are left out"


def candidates(path: Path, **settings: Any) -> set[str]:
    """Lists an input with `--layout images`, where nothing has a class; returns the keys of its images."""
    refs = listed(path, "images", **settings).refs.values()
    assert {ref.label + ref.split + ref.annotations for ref in refs} == {""}
    return {ref.key for ref in refs if ref.is_candidate}


def test_classes_of_every_source_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in"
    for name in ("cats/1.png", "dogs/long haired/2.png", "Grüße 3.PNG"):
        picture(source / name)
    (source / "cats" / "1.xml").write_text("<annotation></annotation>")
    (source / "_annotations.coco.json").write_text('{"images": [], "annotations": [], "categories": []}')
    assert candidates(source) == {"cats/1.png", "dogs/long haired/2.png", "Grüße 3.PNG"}
    table = tmp_path / "rows.csv"
    table.write_text("path,label\ncats/1.png,cat|pet\nGrüße 3.PNG,\n")
    assert candidates(table, image_root=source) == {"cats/1.png", "Grüße 3.PNG"}
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for path in sorted(source.rglob("*.png")):
            archive.write(path, f"pack/{path.relative_to(source)}")
    assert len(candidates(tmp_path / "images.zip")) == 2
    pixels = tmp_path / "pixels.npz"
    np.savez(pixels, x_train=np.zeros((3, 8, 8), np.uint8), y_train=np.array([1, 2, 0]))
    planned = plan(input=pixels, layout="images")
    assert (planned.total, planned.plan.labels) == (3, ())
    print_forecast(planned)
    shown = capsys.readouterr().out
    assert "  3 images, " in shown and "class" not in shown


def test_metadata_with_a_wrong_class_is_no_fault(tmp_path: Path) -> None:
    for number in range(2):
        picture(tmp_path / "in" / f"{number}.png")
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"label": [1, 2], "score": number}))
    refs = listed(tmp_path / "in", "images", extra_columns="score:int64").refs
    assert all(ref.is_candidate and not ref.label for ref in refs.values()) and refs["1.png"].extra


def test_a_source_of_annotations_names_the_folder_to_use(tmp_path: Path) -> None:
    picture(tmp_path / "in" / "1.png")
    settings = ConvertSettings(input=(str(tmp_path / "in"),), layout="images", source="labelme")
    with pytest.raises(UsageError, match="name the folder with a JSON file for each image"):
        check_inputs(settings, None)


def test_a_dataset_without_classes_is_complete(tmp_path: Path) -> None:
    files = {f"{'train' if number else 'test'}/{path.name}": path for number, path in enumerate(BIRDS)}
    source = put_files(tmp_path / "in", {name: path.read_bytes() for name, path in files.items()})
    out = tmp_path / "out"
    made = convert(input=str(source), output=str(out), layout="images", resize="32", verify="none")
    assert made.dataset.labels == () and made.dataset.layout == "images"
    assert {name: sum(s.records for s in shards) for name, shards in made.dataset.splits.items()} == {
        "train": 5, "test": 1,
    }  # fmt: skip
    files = {path.name for path in out.iterdir()}
    assert files.isdisjoint({"labels.txt", "label_map.pbtxt"}) and "features.json" in files
    assert validate(out, mode="quality", against=str(source)).sound
    assert "0 classes" not in (out / "report.html").read_text()
    builder = tfds.builder_from_directory(out)
    stored = builder.as_dataset(split="train", decoders={"image/encoded": tfds.decode.SkipDecoding()})
    names = {item["image/filename"].decode() for item in tfds.as_numpy(stored)}
    assert names == {f"train/{path.name}" for path in BIRDS[1:]}
    for record in Records(str(out), split="train"):
        assert "image/class/label" not in record
    for batch in loader.load(str(out), split="test", batch_size=1):
        assert batch["image"].shape == (1, 32, 32, 3) and batch["image"].dtype == tf.uint8


def test_rebuilds_need_no_classes(tmp_path: Path) -> None:
    """And their pages say whether they are verified."""
    own = parse_layout_file("extends: images\ndrop: [image/key/sha256]\n", "own.yaml")
    for number in range(3):
        picture(tmp_path / "in" / f"{number}.png")
    given = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out"), "layout": inline_layout(own)}
    first = rebuild(**given, verify="none")
    picture(tmp_path / "in" / "later.png")
    second = rebuild(**given)
    stored = json.loads((Path(second.path) / "dataset.json").read_text())
    assert first.changed and second.changed and stored["ledger"]["written"] == 4
    for made, verdict in ((first, "? Not verified"), (second, "✓ Sound")):
        assert verdict in (Path(made.path) / "report.html").read_text()
