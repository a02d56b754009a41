"""`parse.py` and the other files: they describe and read back pictures of every kind, depth and format."""

from __future__ import annotations

import ast
import base64
import io
import itertools
import json
import pickle
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.deep_datasets import KINDS, deep_dataset, widened
from helpers.described import BIRDS, described, of_layout, parse_module, read
from helpers.fewer_imports import late
from helpers.tfds_reading import check_all, converted, in_order, load, records_of, schema_of
from PIL import Image, ImageOps

from shardwright.pipelines.convert import convert
from shardwright.schemas.dataset import Dataset, sample_types, stored_format, stored_formats
from shardwright.schemas.layouts import LAYOUTS, FeatureRole
from shardwright.schemas.sidecars import SIDECARS
from shardwright.schemas.sidecars.parse_module import parse_py

READER = Path(__file__).with_name("only_tensorflow.py")
#: Class names that would end a string, a line, a docstring or a format.
HOSTILE = ('"""', 'it\'s "so"', "new\nline", "back\\slash\\", "{braces} %s", "żółw 🐢\u202e", "#'\t</script>")
MANY = tuple(f"class {i}" for i in range(300))

OWN_LAYOUT = """
features:
  "picture \\"1\\"": {fill: encoded, tensor: true}
  class: {fill: label, tensor: true}
  names: {fill: label_text}
  sides: {fill: shape, tensor: true}
  price: {column: price, type: float}
  rare: {column: rare, type: bool, optional: true}
  grid: {column: grid, type: int64, shape: [2, null]}
  tags: {column: tags, type: string, shape: [null], tensor: true}
  version: {constant: [[1, 2], [3, 4]], type: int32}
  caption: {fill: caption, optional: true, tensor: true}
  key: {fill: key, base64: true}
  mask: {fill: semantic_mask, optional: true}
pixels: true
"""


def make_inputs(root: Path) -> None:
    """Writes two pictures of different sizes in class folders, a table, and masks of 8 and of 16 bits."""
    for i, name in enumerate(HOSTILE[-2:]):
        folder = root / "classes" / name.replace("/", "_")
        folder.mkdir(parents=True)
        with Image.open(BIRDS[i]) as picture:
            ImageOps.exif_transpose(picture).resize((30 + i, 20)).save(folder / f"{i}.png")
    rows = [
        {"file": path.name, "label": "bird", "price": i / 2, "rare": [True, False, None][i % 3],
         "grid": [1, 2, 3, 4], "tags": ["a", "b"][:i]} for i, path in enumerate(BIRDS)
    ]  # fmt: skip
    (root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "own.yaml").write_text(OWN_LAYOUT)
    (root / "masks").mkdir()
    (root / "images").mkdir()
    for i, path in enumerate(BIRDS):
        with Image.open(path) as picture:
            width, height = picture.size
        shutil.copy(path, root / "images")
        ids = np.full((height, width), 3 + 300 * (i % 2), np.uint16)
        ids[: height // 2] = 255
        mask = Image.fromarray(ids if i % 2 else ids.astype(np.uint8))
        mask.save(root / "masks" / f"{path.stem}.png")


#: Datasets that other tests of the sidecars read too; all splits of the first are read.
SHARED = (
    "hostile", "photos", "gray", "kept", "webp", "detection", "vision", "tfrecorder", "raw", "several",
)  # fmt: skip
#: Name of another dataset -> its settings; paths are relative to the inputs.
CASES: dict[str, dict[str, Any]] = {
    "many sizes": {"input": "classes", "layout": "raw_with_shape", "shards": 5, "compression": "gzip"},
    "tensors": {"input": "rows.jsonl", "layout": "own.yaml", "image_root": "images",
                "resize": 16, "limit": 3},
    "pixels": {"input": "images", "layout": "segmentation", "mask_dir": "masks",
               "resize": 32, "color": "keep"},
}  # fmt: skip
_PATHS = ("input", "image_root", "mask_dir", "layout")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directories of all datasets, some of which have strange names and a stale shard."""
    root = tmp_path_factory.mktemp("parse")
    make_inputs(root)
    places = {name: described(name) for name in SHARED}
    for name, case in CASES.items():
        settings = {option: str(root / value) if option in _PATHS and (root / value).exists() else value
                    for option, value in case.items()}  # fmt: skip
        places[name] = root / "out {x}'s" / name
        convert(output=str(places[name]), max_bad_fraction=0, verify="none", **settings)
        (places[name] / "train-00000-of-00099.tfrecord").write_bytes(b"a stale shard")
    return places


@pytest.fixture(scope="module")
def found(places: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of the readers. One process without Shardwright ran all of them."""
    result = tmp_path_factory.mktemp("found") / "found.pickle"
    subprocess.run([sys.executable, "-I", READER, result, *places.values()], check=True, timeout=300)
    return dict(zip(places, pickle.loads(result.read_bytes()), strict=True))


def pixels_of(stored: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(stored)) as picture:
        pixels = np.asarray(picture if picture.mode in ("L", "RGB", "I;16") else picture.convert("RGB"))
    return pixels if pixels.ndim == 3 else pixels[..., None]


def key_of(values: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    return tuple(np.ravel(values[name]).tolist())


#: Dataset -> features whose values are compared unchanged; one of them identifies a record.
PLAIN = {
    "photos": ("image/filename", "image/class/label", "image/class/text", "image/height", "image/format"),
    "hostile": ("image/filename", "image/class/label", "image/class/text"),
    "gray": ("image/filename", "image/class/label", "image/class/synset", "image/colorspace"),
    "detection": (
        "image/filename", "image/object/bbox/xmin", "image/object/bbox/ymax", "image/object/class/label",
        "image/object/class/text", "image/caption",
    ),
    "vision": ("image/filename", "image/object/bbox/xmax", "image/object/area", "image/object/is_crowd"),
    "pixels": ("image/filename", "image/segmentation/class/format"),
    "several": ("image/filename", "image/class/label", "image/class/text"),
    "tfrecorder": ("image_name", "split", "label", "image_channels"),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PLAIN)
def test_values_equal_the_stored_values(
    name: str, places: Mapping[str, Path], found: Mapping[str, Any]
) -> None:
    dataset = read(places[name])
    assert found[name]["labels"] == dataset.labels
    first, *_ = PLAIN[name]
    for split, examples in found[name]["splits"].items():
        parsed = sorted(examples, key=lambda example: key_of(example, first))
        there = sorted(records_of(places[name], dataset, split), key=lambda record: key_of(record, first))
        assert len(parsed) == len(there) == found[name]["lengths"][split] == dataset.records(split)
        assert parsed or split == "never", "nothing to compare"
        for example, record in zip(parsed, there):
            assert example.keys() == {spec.name for spec in dataset.features}
            for feature in PLAIN[name]:
                np.testing.assert_array_equal(np.ravel(example[feature]), record.get(feature, []))


@pytest.mark.parametrize("name", [name for name in (*SHARED, *CASES) if name != "tensors"])
def test_pictures_equal_the_stored_pictures(
    name: str, places: Mapping[str, Path], found: Mapping[str, Any]
) -> None:
    dataset = read(places[name])
    picture = next(spec.name for spec in dataset.features if spec.fill is FeatureRole.ENCODED)
    raw = dataset.plan.settings["image_format"] == "raw"
    for split, examples in found[name]["splits"].items():
        parsed = [example[picture] for example in examples]
        assert all(pixels.dtype == np.uint8 and pixels.ndim == 3 for pixels in parsed)
        stored = [record[picture][0] for record in records_of(places[name], dataset, split)]
        if raw:
            bare = [base64.urlsafe_b64decode(data) if name == "tfrecorder" else data for data in stored]
            assert sorted(pixels.tobytes() for pixels in parsed) == sorted(bare)
            continue
        left = [pixels_of(data) for data in stored]
        for pixels in parsed:  # JPEG decoders differ slightly if nothing names the transform
            near = [i for i, other in enumerate(left) if other.shape == pixels.shape and _same(pixels, other)]
            assert near, f"{name}: a picture of shape {pixels.shape} is none that was stored"
            del left[near[0]]
        assert not left


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.abs(one.astype(int) - other).max() <= 8)


def test_raw_pixels_are_not_transposed(places: Mapping[str, Path], found: Mapping[str, Any]) -> None:
    """Rows and columns are not exchanged, compared with the sources themselves."""
    sources = {}
    for path in (places["many sizes"].parent.parent / "classes").rglob("*.png"):
        with Image.open(path) as picture:
            sources[path.parent.name] = np.asarray(picture)
    examples = found["many sizes"]["splits"]["train"]
    assert len(examples) == 2
    for example in examples:
        assert example["shape"].tolist() == list(example["data"].shape)
        np.testing.assert_array_equal(example["data"], sources[example["name"].decode()])
    for example in found["tfrecorder"]["splits"]["train"]:
        sides = (example["image_height"], example["image_width"], example["image_channels"])
        assert example["image"].shape == sides
    assert found["hostile"]["splits"]["never"] == [] and found["hostile"]["lengths"]["never"] == 0


def test_shapes_are_static_if_all_pictures_have_the_same(found: Mapping[str, Any]) -> None:
    shapes = {name: value["shapes"]["train"] for name, value in found.items()}
    assert shapes["photos"]["image/encoded"] == [24, 24, 3]
    assert shapes["gray"]["image/encoded"] == [24, 24, 1]
    assert shapes["kept"]["image/encoded"] == [None, None, None]
    assert shapes["webp"]["image"] == [None, None, 3]
    assert shapes["raw"]["image"] == [24, 24, 3]
    assert shapes["many sizes"]["data"] == [None, None, 3]
    assert shapes["pixels"]["image/encoded"] == [32, 32, None]
    assert shapes["detection"]["image/object/bbox/xmin"] == [None]
    assert shapes["tensors"]["grid"] == [2, None]


def test_masks_are_decoded(places: Mapping[str, Path], found: Mapping[str, Any]) -> None:
    seen = set()
    for example in found["pixels"]["splits"]["train"]:
        mask = example["image/segmentation/class/encoded"]
        assert (mask.shape, mask.dtype) == ((32, 32), np.int32)
        seen.add(tuple(np.unique(mask)))
    assert seen == {(3, 255), (255, 303)}  # masks of 8 and of 16 bits
    for name in ("detection", "vision"):
        dataset = read(places[name])
        stored = {
            record["image/filename"][0]: len(record.get("image/object/mask", ()))
            for record in records_of(places[name], dataset, "train")
        }
        assert set(stored.values()) == {0, 2}
        for example in found[name]["splits"]["train"]:
            masks = example["image/object/mask"]
            assert masks.shape == (stored[example["image/filename"]], *example["image/encoded"].shape[:2])
            assert masks.dtype == np.uint8 and set(np.unique(masks)) <= {0, 1}
            assert not len(masks) or masks.max() == 1
            if name == "vision":
                assert example["image/panoptic/category_mask"].shape == (0, 0)


def test_a_custom_layout_is_read_with_its_types(places: Mapping[str, Path], found: Mapping[str, Any]) -> None:
    rows = {
        row["file"]: row
        for row in map(json.loads, (places["tensors"].parent.parent / "rows.jsonl").read_text().splitlines())
    }
    examples = found["tensors"]["splits"]["train"]
    assert len(examples) == 3
    for example in examples:
        row = rows[example["key"].decode().rpartition("/")[2]]
        assert example['picture "1"'].shape == (16, 16, 3)
        assert example["sides"].tolist() == [16, 16, 3]
        assert example["class"] == 0 and example["names"] == b"bird"
        assert example["price"] == row["price"]
        assert example["rare"].dtype == bool and example["rare"] == bool(row["rare"])
        assert example["grid"].tolist() == [[1, 2], [3, 4]]
        assert [tag.decode() for tag in example["tags"]] == row["tags"]
        assert example["version"].tolist() == [[1, 2], [3, 4]]
        assert example["caption"].shape == (0,)
        assert example["mask"].shape == (0, 0)


def made_up(
    layout: str, labels: tuple[str, ...] = HOSTILE, name: str = "made up", **settings: Any
) -> Dataset:
    """A dataset that exists only in memory."""
    dataset = of_layout(layout, **{"resize": "", "image_format": "keep", **settings})
    splits = {'od"""d\\': (), "train": dataset.splits["train"]}
    plan = replace(dataset.plan, labels=labels)
    return replace(dataset, name=name, plan=plan, splits=splits, formats={})


@pytest.mark.sampled(7)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_compiles_for_every_layout_format_and_compression(layout: str) -> None:
    formats = ("raw",) if LAYOUTS[layout].pixels else ("keep", "jpeg", "png", "webp", "raw")
    choices = itertools.product(
        formats, ("none", "gzip"), ("", "64x48"), ("rgb", "keep"), ("quarantine", "keep")
    )
    for image_format, compression, resize, color, unlabelled in choices:
        dataset = made_up(
            layout, image_format=image_format, compression=compression, resize=resize, color=color,
            unlabelled=unlabelled,
        )  # fmt: skip
        source = parse_py(dataset)
        assert source == parse_py(dataset)
        tree = ast.parse(source)
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert {"parse", "load"} <= names
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert {name for name in used if name.startswith("_")} <= {*names, "__file__", "__name__"}
        assert source.count("compression_type") == (compression != "none")
        if layout in ("segmentation", "panoptic"):  # pictures without a mask hold empty bytes
            assert ("_optional_id_mask" in source) == (unlabelled == "keep")


@pytest.mark.parametrize("labels", [(), ("one",), ("a", "b"), HOSTILE, MANY])
@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_is_a_valid_literal(labels: tuple[str, ...], name: str) -> None:
    source = parse_py(made_up("classification", labels, name))
    tree = ast.parse(source.encode().decode())
    assert ast.get_docstring(tree, clean=False) and max(map(len, source.splitlines())) <= 110
    (value,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "labels"
    ]
    assert ast.literal_eval(value) == labels


def test_many_class_names_are_read_from_dataset_json() -> None:
    source = parse_py(made_up("classification", tuple(f"class {i}" for i in range(21_843))))
    assert 'labels = tuple(_dataset_json(HERE)["labels"])' in source
    assert len(source) < 4_000


tf = late("tensorflow")
tfds = late("tensorflow_datasets")
mlc = late("mlcroissant")

#: Kind -> how TensorFlow Datasets reads its pictures: decoded, as a tensor, or as bytes.
IN_TFDS = {
    "png of 16 bits": "Image",
    "gray png of 16 bits": "Image",
    "png of 8 and 16 bits": "Image",
    "jpeg next to png of 16 bits": "Text",
    "raw of 16 bits": "Tensor",
    "raw of 16 bits and many sizes": "Text",
    "six channels": "Tensor",
    "two channels of 8 bits": "Text",
    "floats": "Tensor",
    "floats of many sizes": "Text",
    "raw of all types": "Text",
    "floats and pngs": "Text",
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", KINDS)
def test_parse_py_reads_the_pixels(name: str) -> None:
    directory, pictures = deep_dataset(name)
    widest = KINDS[name].types[-1]
    data = parse_module(directory).load("train")
    assert data.element_spec["image/encoded"].dtype.name == widest
    for example, pixels in zip(data.as_numpy_iterator(), pictures, strict=True):
        found, wanted = example["image/encoded"], widened(pixels, widest)
        if wanted.dtype == pixels.dtype or widest == "uint16":
            np.testing.assert_array_equal(found, wanted)
        else:  # TensorFlow multiplies where NumPy divides
            np.testing.assert_allclose(found, wanted, rtol=2e-7)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", KINDS)
def test_tensorflow_datasets_reads_the_pixels(name: str) -> None:
    directory, pictures = deep_dataset(name)
    builder = load(directory)
    feature = builder.info.features["image/encoded"]
    assert type(feature) is getattr(tfds.features, IN_TFDS[name])
    stored = read(directory)
    for example, pixels in zip(in_order(builder, "train"), pictures, strict=True):
        assert example["image/dtype"].decode() == pixels.dtype.name
        if isinstance(feature, tfds.features.Text):
            assert isinstance(example["image/encoded"], bytes)
        else:
            np.testing.assert_array_equal(example["image/encoded"], widened(pixels, sample_types(stored)[-1]))


@pytest.mark.parametrize("name", KINDS)
def test_every_file_states_types_and_channels(name: str) -> None:
    directory, _ = deep_dataset(name)
    kind, counts = KINDS[name], read(directory).dtypes
    found = mlc.Dataset(jsonld=directory / "croissant.json")
    assert not found.metadata.ctx.issues.errors
    rows = {row["features/name"]: row["features/description"] for row in found.records("features")}
    card = (directory / "README.md").read_text()
    for dtype in kind.types:
        assert dtype in rows["image/encoded"]
        assert f"{counts[dtype]} image{'s' if counts[dtype] > 1 else ''} of {dtype}" in card
    assert ("4 with alpha" not in card) == (kind.channels not in (1, 3))
    features = schema_of(directory)
    assert tuple(features["image/dtype"].string_domain.value) == kind.types
    assert features["image/channels"].int_domain.max == kind.channels
    fraction = features["image/encoded"].image_domain.minimum_supported_image_fraction
    assert fraction == all(form != "raw" for _, form in kind.stored)


def test_no_type_is_stated_without_the_settings() -> None:
    dataset = read(described("photos"))
    assert not dataset.dtypes and "dtypes" not in dataset.as_json() and sample_types(dataset) == ("uint8",)
    for make in SIDECARS.values():
        assert "uint16" not in (make(dataset) or "")


#: Kind of dataset -> formats of its sources, as extensions.
FORMATS = {
    "jpeg": ("jpg", "jpg", "jpg", "jpg"),
    "webp too": ("jpg", "png", "jpg", "webp"),
}
STORED = {"jpeg": ("jpeg",), "webp too": ("jpeg", "png", "webp")}
#: One of these kinds, its directory and its dataset.
Kept = tuple[str, Path, Dataset]


@pytest.fixture(scope="module", params=FORMATS)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A dataset of each kind, with four pictures in two splits."""
    root = tmp_path_factory.mktemp("kept")
    folder = root / "in" / "birds"
    folder.mkdir(parents=True)
    for bird, ending in zip(BIRDS, FORMATS[request.param]):
        with Image.open(bird) as picture:
            picture.resize((40, 30)).save(folder / f"{bird.stem}.{ending}")
    made = converted(root / "out", input=str(root / "in"), image_format="keep", splits="a=0.5,b=0.5")
    return request.param, *made


def test_formats_are_counted_and_stated(kept: Kept) -> None:
    kind, directory, dataset = kept
    for split in dataset.splits:
        records = records_of(directory, dataset, split)
        assert dataset.formats[split] == Counter(record["image/format"][0].decode() for record in records)
    assert sum(map(Counter, dataset.formats.values()), Counter()) == Counter(FORMATS[kind])
    assert stored_formats(dataset) == STORED[kind]
    assert stored_format(dataset) == ("jpeg" if kind == "jpeg" else "")
    features = schema_of(directory)
    assert set(features["image/format"].string_domain.value) == set(FORMATS[kind])
    decodable = features["image/encoded"].image_domain.minimum_supported_image_fraction
    assert decodable == (kind != "webp too")
    feature = check_all(directory, dataset).info.features["image/encoded"]
    assert isinstance(feature, tfds.features.Image if decodable else tfds.features.Text)
    if decodable:
        assert feature.encoding_format == "jpeg"
        assert in_order(load(directory), "a")[0]["image/encoded"].shape == (30, 40, 3)


def test_parse_py_decodes_every_format(kept: Kept) -> None:
    kind, directory, dataset = kept
    module = parse_module(directory)
    assert ("decode_jpeg" in (directory / "parse.py").read_text()) == (kind == "jpeg")
    for split in dataset.splits:
        records = {record["image/filename"][0]: record for record in records_of(directory, dataset, split)}
        found = list(module.load(split).as_numpy_iterator())
        assert len(found) == len(records) > 0
        for example in found:
            (stored,) = records[example["image/filename"]]["image/encoded"]
            if kind == "jpeg":
                with Image.open(io.BytesIO(stored)) as picture:
                    decoded = np.asarray(picture)
            else:  # TensorFlow then chooses the faster transform of JPEG
                decoded = tf.io.decode_image(stored, channels=3, expand_animations=False).numpy()
            np.testing.assert_array_equal(example["image/encoded"], decoded)


def test_unknown_formats_mean_any_format(kept: Kept) -> None:
    _, directory, dataset = kept
    document = json.loads((directory / "dataset.json").read_text())
    del document["formats"]
    older = Dataset.from_bytes(json.dumps(document).encode(), "dataset.json")
    assert older.fingerprint == dataset.fingerprint
    # Shards with an older ledger do not list formats.
    in_part = replace(dataset, formats={"a": dataset.formats["a"]})
    for unknown in (older, in_part):
        assert stored_formats(unknown) == ("jpeg", "png", "webp") and stored_format(unknown) == ""
    encoded = replace(
        older, plan=replace(older.plan, settings={**older.plan.settings, "image_format": "webp"})
    )
    assert stored_format(encoded) == "webp"
