"""Layouts: custom ones, those without classes, the command that explains them; TensorFlow reads them all."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to
from helpers.annotation_sets.coco import put_coco, save
from helpers.depths import findings_of
from helpers.fewer_imports import late
from helpers.hostile import picture, run
from helpers.listing import Listed, listed
from helpers.manifests import write_csv, write_jsonl
from helpers.repository import PHOTOS
from helpers.trees import put_files
from PIL import Image

from shardwright import loader
from shardwright.core.records.build import label_ids
from shardwright.core.sources.folder_tree import FolderTree, decide
from shardwright.loader import Records
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.layouts import layouts
from shardwright.pipelines.plan import plan, print_forecast
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.results import print_convert_summary
from shardwright.pipelines.validate import validate
from shardwright.schemas.configuration.layout_file import parse_layout_file
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.layouts import (
    LAYOUTS,
    Encoding,
    FeatureRole,
    FeatureSpec,
    Layout,
    Needs,
    inline_layout,
)
from shardwright.schemas.parsing import spec_source
from shardwright.schemas.sidecars import SIDE_FILES

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
    words = " ".join(table.split())
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
    words = " ".join(out.split())
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


@pytest.mark.parametrize(
    ("found", "folders", "expected"),
    [
        ({}, "auto", ("", False)),
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
    names = ("cats/1.png", "dogs/long haired/2.png", "Grüße 3.PNG")
    source = put_files(tmp_path / "in", {name: picture(i) for i, name in enumerate(names)})
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
    put_files(tmp_path / "in", {f"{i}.png": picture(i) for i in range(2)})
    for number in range(2):
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"label": [1, 2], "score": number}))
    refs = listed(tmp_path / "in", "images", extra_columns="score:int64").refs
    assert all(ref.is_candidate and not ref.label for ref in refs.values()) and refs["1.png"].extra


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
    put_files(tmp_path / "in", {f"{i}.png": picture(i) for i in range(3)})
    given = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out"), "layout": inline_layout(own)}
    first = rebuild(**given, verify="none")
    put_files(tmp_path / "in", {"later.png": picture(3)})
    second = rebuild(**given)
    stored = json.loads((Path(second.path) / "dataset.json").read_text())
    assert first.changed and second.changed and stored["ledger"]["written"] == 4
    for made, verdict in ((first, "? Not verified"), (second, "✓ Sound")):
        assert verdict in (Path(made.path) / "report.html").read_text()


WIDTH, HEIGHT = 24, 20
#: For each picture: its class, the colors of its left and right half, and its boxes in COCO's format.
PICTURES: Mapping[str, tuple[str, Any, Any, Any]] = {
    "a.png": ("cat", (255, 0, 0), (0, 0, 255), []),
    "b.png": ("dog", (0, 255, 0), (255, 255, 255), [(2, 0, 0, 12, 20), (1, 12, 5, 6, 10)]),
    "c.png": ("dog", (0, 0, 0), (128, 128, 128), [(1, 6, 10, 12, 5)]),
}
LABELS = ("cat", "dog")
FORMATS = ("keep", "jpeg", "png", "webp", "raw")
TENSORS = """
extends: raw
rename: {image: picture}
features:
  picture: {fill: encoded, tensor: true}
  label: {fill: label, tensor: true}
  shape: {fill: shape, tensor: true}
  key: {fill: key, base64: true}
  mean: {constant: [[0.1, 1], [2, 3]], type: double, tensor: true}
"""
#: Name -> layout.
ALL = {**LAYOUTS, "tensors": parse_layout_file(TENSORS, "tensors.yaml")}


def pixels_of(name: str) -> np.ndarray[Any, Any]:
    _, left, right, _ = PICTURES[name]
    pixels = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    pixels[:, : WIDTH // 2], pixels[:, WIDTH // 2 :] = left, right
    return pixels


def ids_of(name: str) -> np.ndarray[Any, Any]:
    """Returns the class of every pixel: 1 above and 2 below; in the second picture only 1."""
    ids = np.ones((HEIGHT, WIDTH), np.uint8)
    ids[HEIGHT // 2 :] = 1 if name == "b.png" else 2
    return ids


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Needs, Mapping[str, Any]]:
    """Returns the input for each kind of layout, as settings."""
    root = tmp_path_factory.mktemp("inputs")
    folders = {
        kind: root / kind for kind in ("classes", "coco/images", "pictures", "masks", "panoptic/masks")
    }
    for folder in folders.values():
        folder.mkdir(parents=True)
    segments = []
    for number, (name, (label, *_)) in enumerate(PICTURES.items()):
        (folders["classes"] / label).mkdir(exist_ok=True)
        targets = (folders["classes"] / label, folders["coco/images"], folders["pictures"], root / "panoptic")
        for folder in targets:
            Image.fromarray(pixels_of(name)).save(folder / name)
        Image.fromarray(ids_of(name)).save(folders["masks"] / name)
        painted = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        painted[..., 0] = ids_of(name)
        Image.fromarray(painted).save(folders["panoptic/masks"] / name)
        present = sorted(set(ids_of(name).ravel().tolist()))
        info = [{"id": number_, "category_id": number_, "iscrowd": 0} for number_ in present]
        segments.append({"image_id": number, "file_name": name, "segments_info": info})
    boxes = {name: objects for name, (_, _, _, objects) in PICTURES.items()}
    file = put_coco(root / "coco" / "boxes.json", boxes, LABELS, dict.fromkeys(PICTURES, (WIDTH, HEIGHT)))
    document = json.loads(file.read_text())
    for item in document["annotations"]:
        x, y, w, h = item["bbox"]
        item["segmentation"] = [[x, y, x + w, y, x + w, y + h, x, y + h]]
        item |= {"keypoints": [x, y, 2, x + w, y + h, 1], "num_keypoints": 2}
    for category in document["categories"]:
        category |= {"keypoints": ["first", "last"], "isthing": 1}
    save(file, document)
    save(root / "panoptic" / "masks.json", {**document, "annotations": segments})
    (root / "names.txt").write_text("nothing\ncat\ndog\n")
    return {
        Needs.IMAGE: {"input": folders["pictures"]},
        Needs.LABEL: {"input": folders["classes"]},
        Needs.OBJECTS: {"input": root / "coco/boxes.json", "image_root": folders["coco/images"]},
        Needs.SEMANTIC: {
            "input": folders["pictures"], "mask_dir": folders["masks"], "class_names": root / "names.txt",
        },
        Needs.PANOPTIC: {"input": root / "panoptic/masks.json"},
    }  # fmt: skip


def plain(spec: FeatureSpec, value: Any) -> Any:
    if spec.encoding is Encoding.BASE64:
        return tf.io.decode_base64(value).numpy()
    if spec.encoding is Encoding.TENSOR:
        return tf.io.parse_tensor(value, spec.dtype).numpy()
    return value


def decoded(stored: Any, image_format: str) -> np.ndarray[Any, Any]:
    if isinstance(stored, np.ndarray):
        return stored
    if image_format == "raw":
        return tf.reshape(tf.io.decode_raw(stored, tf.uint8), (HEIGHT, WIDTH, 3)).numpy()  # type: ignore[no-any-return]
    if image_format == "webp":
        return np.asarray(Image.open(io.BytesIO(stored)).convert("RGB"))
    return tf.io.decode_image(stored, 3).numpy()  # type: ignore[no-any-return]


def expected(name: str, layout: Layout, image_format: str) -> dict[FeatureRole, Any]:
    """Returns the values of a picture's record, except the picture and its masks."""
    label, _, _, objects = PICTURES[name]
    stored = {"keep": "png", "jpeg": "jpg"}.get(image_format, image_format)
    key = f"{label}/{name}" if layout.needs is Needs.LABEL else name
    ids = [layout.first_label - 1 + category for category, *_ in objects]
    sides = [
        (y / HEIGHT, x / WIDTH, (y + h) / HEIGHT, (x + w) / WIDTH) for _, x, y, w, h in objects
    ]  # fmt: skip
    return {
        FeatureRole.FORMAT: layout.format_names.get(stored, stored).encode(),
        FeatureRole.HEIGHT: HEIGHT,
        FeatureRole.WIDTH: WIDTH,
        FeatureRole.CHANNELS: 3,
        FeatureRole.SHAPE: [HEIGHT, WIDTH, 3],
        FeatureRole.COLORSPACE: b"RGB",
        FeatureRole.LABEL: layout.first_label + LABELS.index(label),
        FeatureRole.LABEL_TEXT: label.encode(),
        FeatureRole.SYNSET: label.encode(),
        FeatureRole.KEY: key.encode(),
        FeatureRole.FILE_BASENAME: name.encode(),
        FeatureRole.SPLIT: b"train",
        FeatureRole.BOX_YMIN: [box[0] for box in sides],
        FeatureRole.BOX_XMIN: [box[1] for box in sides],
        FeatureRole.BOX_YMAX: [box[2] for box in sides],
        FeatureRole.BOX_XMAX: [box[3] for box in sides],
        FeatureRole.OBJECT_LABEL: ids,
        FeatureRole.OBJECT_TEXT: [LABELS[category - 1].encode() for category, *_ in objects],
        FeatureRole.OBJECT_CROWD: [0] * len(objects),
        FeatureRole.OBJECT_AREA: [w * h for *_, w, h in objects],
        FeatureRole.KEYPOINT_X: [x / WIDTH for _, x, _, w, _ in objects for x in (x, x + w)],
        FeatureRole.KEYPOINT_Y: [y / HEIGHT for _, _, y, _, h in objects for y in (y, y + h)],
        FeatureRole.KEYPOINT_VISIBILITY: [2, 1] * len(objects),
        FeatureRole.KEYPOINT_TEXT: [b"first", b"last"] * len(objects),
        FeatureRole.KEYPOINT_NUM: [2] * len(objects),
        FeatureRole.SEMANTIC_FORMAT: b"png",
        FeatureRole.CONSTANT: [[0.1, 1], [2, 3]],
    }


def assert_same(found: Any, known: Any) -> None:
    values = np.asarray(found)
    if values.dtype.kind in "OS":
        assert values.tolist() == known
    else:
        np.testing.assert_allclose(values, known, rtol=1e-6)


def check_masks(role: FeatureRole, stored: Any, name: str) -> bool:
    """Compares masks with the drawn ones; returns whether the feature holds masks."""
    if role is FeatureRole.OBJECT_MASK:
        objects = PICTURES[name][3]
        assert len(stored) == len(objects)
        for mask, (_, x, y, w, h) in zip(stored, objects):
            drawn = np.zeros((HEIGHT, WIDTH), np.uint8)
            drawn[y : y + h, x : x + w] = 1
            np.testing.assert_array_equal(tf.io.decode_png(mask, 1).numpy()[..., 0], drawn)
        return True
    if (
        role in (FeatureRole.SEMANTIC_MASK, FeatureRole.PANOPTIC_CATEGORY, FeatureRole.PANOPTIC_INSTANCE)
        and stored
    ):
        mask = tf.io.decode_png(stored, 1).numpy()[..., 0]
        assert (mask > 0).all() if role is FeatureRole.PANOPTIC_INSTANCE else (mask == ids_of(name)).all()
        return True
    return False


@pytest.mark.parametrize(
    ("name", "image_format"),
    [(name, one) for name, layout in ALL.items() for one in (("raw",) if layout.pixels else FORMATS)],
)
def test_tensorflow_reads_the_written_values(
    name: str, image_format: str, inputs: Mapping[Needs, Mapping[str, Any]]
) -> None:
    """With the code that `shardwright layouts` shows."""
    layout = ALL[name]
    source, settings = inputs[layout.needs]["input"], {**inputs[layout.needs], "image_format": image_format}
    del settings["input"]
    found = listed(source, inline_layout(layout), resize=f"{WIDTH}x{HEIGHT}", **settings)
    scope: dict[str, Any] = {"tf": tf}
    exec(spec_source(layout.features), scope)
    assigned = {key: ref._replace(split="train") for key, ref in found.refs.items()}
    planned = found._replace(refs=assigned, ids=label_ids(LABELS, layout.first_label))
    for key, made in planned.converted().items():
        record = tf.io.parse_single_example(made.example, scope["features"])
        by_role = {spec.fill: plain(spec, record[spec.name].numpy()) for spec in layout.features}
        pixels = decoded(by_role.pop(FeatureRole.ENCODED), image_format).astype(int)
        which = Path(key).name
        distance = np.abs(pixels - pixels_of(which)).mean()
        assert distance < (8 if image_format in ("jpeg", "webp") else 1e-9)
        known = expected(which, layout, image_format)
        compared = 0
        for role, value in by_role.items():
            if role is None or check_masks(role, value, which):
                continue
            if role in known:
                compared += 1
                assert_same(value, known[role])
        assert compared
    assert {Path(key).name for key in found.refs} == set(PICTURES)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ALL)
def test_verification_finds_nothing_in_any_layout(
    name: str, inputs: Mapping[Needs, Mapping[str, Any]], tmp_path: Path
) -> None:
    made = convert(
        **inputs[ALL[name].needs], output=tmp_path / "out", layout=inline_layout(ALL[name]), verify="none",
        resize=f"{WIDTH}x{HEIGHT}", compression="gzip",
    )  # fmt: skip
    assert made.dataset.ledger["written"] == len(PICTURES)
    assert not findings_of(tmp_path / "out")


def test_the_summary_of_a_layout_of_your_own_counts_segments(
    inputs: Mapping[Needs, Mapping[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("extends: panoptic")
    values = inputs[Needs.PANOPTIC]
    print_convert_summary(convert(output=tmp_path / "out", layout=tmp_path / "mine.yaml", **values))
    assert "  segments: 5 written" in capsys.readouterr().out


def test_patterns_that_begin_with_a_split_match_only_its_shards(copied: Path) -> None:
    for name in SIDE_FILES:
        (copied / name).touch()
    splits = json.loads((copied / "dataset.json").read_text())["splits"]
    prefixes = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
    for prefix, split in prefixes.items():
        files = tf.io.gfile.glob(f"{copied}/{prefix}*")
        assert sum(1 for _ in tf.data.TFRecordDataset(files)) == splits[split]["records"]
    # The ImportExampleGen of TFX joins the folder and a pattern, and passes the result to Beam.
    with beam.Pipeline("FnApiRunner") as pipeline:
        for split, stated in splits.items():
            read = pipeline | split >> beam.io.ReadFromTFRecord(file_pattern=f"{copied}/{split}-*")
            count = read | f"Count {split}" >> beam.combiners.Count.Globally()
            assert_that(count, equal_to([stated["records"]]), f"Check {split}")
