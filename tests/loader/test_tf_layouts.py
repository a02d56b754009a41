"""`load` for every layout, format and encoding: the pictures and classes do not depend on the storage."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.fewer_imports import late
from helpers.tensorflow_records import read_records
from PIL import Image

from shardwright import loader
from shardwright.loader import Records, open_dataset
from shardwright.pipelines.convert import convert
from shardwright.schemas.errors import UsageError

tf = late("tensorflow")

SIDES = {"resize": "24x16", "image_format": "png"}

#: Settings whose records hold the same pixels as PNGs.
LOSSLESS: dict[str, dict[str, Any]] = {
    "imagenet in zlib": {"layout": "imagenet", "compression": "zlib", **SIDES},
    "tutorial in gzip": {"layout": "tutorial", "compression": "gzip", **SIDES},
    "tfrecorder": {"layout": "tfrecorder", "resize": "24x16"},
    "raw": {"layout": "raw", "resize": "24x16"},
    "raw_with_shape": {"layout": "raw_with_shape", "resize": "24x16"},
    "raw pixels": {"resize": "24x16", "image_format": "raw"},
}


@pytest.fixture(scope="module")
def converted(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Returns a function that converts the birds and some other pictures with some settings."""
    root = tmp_path_factory.mktemp("layouts")
    chosen = sorted(photos.glob("*/*"))[::4]
    for path in chosen:
        target = root / "in" / path.parent.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    count = iter(range(100))

    def make(**settings: Any) -> Path:
        output = root / str(next(count))
        convert(**{"input": str(root / "in"), "output": str(output), "shards": 2, **settings})
        return output

    return make


@pytest.fixture(scope="module")
def as_png(converted: Callable[..., Path]) -> Path:
    return converted(**SIDES)


def examples(directory: Path, **options: Any) -> list[tuple[np.ndarray, int]]:
    """Pixels and labels of all pictures, in the order of the shards."""
    data = loader.load(directory, batch_size=None, shuffle=False, **options)
    return [(image, int(label)) for image, label in data.as_numpy_iterator()]


def assert_same(found: list[tuple[np.ndarray, int]], expected: list[tuple[np.ndarray, int]]) -> None:
    for (image, label), (wanted, other) in zip(found, expected, strict=True):
        assert label == other
        assert np.array_equal(image, wanted)


def test_pngs_equal_pillows_pixels(as_png: Path) -> None:
    rows = loader.load(as_png, batch_size=None, shuffle=False, as_dict=True)
    names = open_dataset(as_png).labels
    stored = [
        tf.train.Example.FromString(record).features.feature
        for record in read_records(sorted(as_png.glob("*.tfrecord")))
    ]
    for row, features in zip(rows, stored, strict=True):
        encoded = features["image/encoded"].bytes_list.value[0]
        assert np.array_equal(row["image"], Image.open(io.BytesIO(encoded)))
        assert row["image/filename"].numpy() == features["image/filename"].bytes_list.value[0]
        assert names[int(row["label"])].encode() == row["image/class/text"].numpy()
        assert "image/encoded" not in row


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LOSSLESS)
def test_all_layouts_give_the_same_examples(converted: Callable[..., Path], as_png: Path, name: str) -> None:
    directory = converted(**LOSSLESS[name])
    expected = examples(as_png)
    assert_same(examples(directory), expected)
    batches = loader.load(directory, batch_size=4, shuffle=False, as_dict=True)
    assert batches.element_spec["image"].shape.as_list() == [None, 16, 24, 3]
    assert [int(label) for batch in batches for label in batch["label"]] == [label for _, label in expected]


def test_a_custom_layout_can_be_loaded(converted: Callable[..., Path], as_png: Path, tmp_path: Path) -> None:
    text = "features:\n  pixels: {fill: encoded, tensor: true}\n  what: {fill: label_text}\n"
    (tmp_path / "own.yaml").write_text("pixels: true\n" + text)
    (tmp_path / "file.yaml").write_text("first_label: 5\n" + text.replace("label_text", "label"))
    for name, more in (("own", {}), ("file", {"image_format": "png"})):
        directory = converted(layout=str(tmp_path / f"{name}.yaml"), resize="24x16", **more)
        assert_same(examples(directory), examples(as_png))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("pixels", [True, False])
def test_gray_pictures_have_one_channel(converted: Callable[..., Path], pixels: bool) -> None:
    directory = converted(resize="24x16", color="gray", image_format="raw" if pixels else "jpeg")
    assert loader.load(directory).element_spec[0].shape.as_list() == [None, 16, 24, 1]
    assert all(image.shape == (16, 24, 1) and image.std() > 0 for image, _ in examples(directory))


def test_webp_equals_pillows_pixels(converted: Callable[..., Path]) -> None:
    directory = converted(resize="24x16", image_format="webp")
    rows = [
        tf.train.Example.FromString(record).features.feature["image/encoded"].bytes_list.value[0]
        for record in read_records(sorted(directory.glob("*.tfrecord")))
    ]
    for (image, _), encoded in zip(examples(directory), rows, strict=True):
        assert np.array_equal(image, Image.open(io.BytesIO(encoded)))


def test_originals_of_one_size_need_no_image_size(tmp_path: Path) -> None:
    for i in range(20):
        path = tmp_path / "photos" / "a" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6, 4), (i, 0, 0)).save(path)
    data = loader.load(convert(input=tmp_path / "photos", output=tmp_path / "out").path, shuffle=False)
    assert data.element_spec[0].shape.as_list() == [None, 4, 6, 3]
    pixels = [image[0, 0, 0] for images, _ in data.as_numpy_iterator() for image in images]
    assert sorted(pixels) == list(range(20))


def test_an_image_of_another_size_is_reported_when_it_is_read(tmp_path: Path) -> None:
    for i in range(60):
        path = tmp_path / "photos" / "a" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6, 4)).save(path)
    made = convert(input=tmp_path / "photos", output=tmp_path / "out")
    last = Records(made.path).keys[-1]
    Image.new("RGB", (5, 4)).save(tmp_path / "photos" / last)
    convert(input=tmp_path / "photos", output=tmp_path / "out", overwrite=True)
    data = loader.load(tmp_path / "out", shuffle=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"different sizes.* set image_size="):
        list(data)


def test_originals_of_many_sizes_can_be_loaded(converted: Callable[..., Path]) -> None:
    directory = converted(color="keep")
    with pytest.raises(UsageError, match="different sizes"):
        loader.load(directory)
    assert len({image.shape for image, _ in examples(directory)}) > 3
    data = loader.load(directory, image_size=(20, 30))
    assert data.element_spec[0].shape.as_list() == [None, 20, 30, 3]
    originals = loader.load(directory, batch_size=None, shuffle=False)
    for (small, _), (image, _) in zip(examples(directory, image_size=(20, 30)), originals, strict=True):
        wanted = tf.image.resize(image, (20, 30), antialias=True).numpy()
        # Large JPEGs are decoded at a reduced size.
        assert np.abs(small - wanted).mean() < 2.5


def test_several_classes_are_a_vector(photos: Path, tmp_path: Path) -> None:
    paths = sorted(photos.glob("*/*.jpg"))[:4]
    classes = ["a|b", "b", "", "c|a"]
    lines = ["image,label", *(f"{path},{names}" for path, names in zip(paths, classes))]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    convert(
        input=str(tmp_path / "rows.csv"), output=str(tmp_path / "out"), label_separator="|",
        unlabelled="keep", resize=8, layout="imagenet",
    )  # fmt: skip
    data = loader.load(tmp_path / "out", as_dict=True)
    assert data.class_names == ["a", "b", "c"]
    (batch,) = data
    names = [path.decode() for path in batch["image/filename"].numpy()]
    found = dict(zip(names, batch["label"].numpy().tolist()))
    wanted = ([1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 0, 1])
    assert found == {path.name: row for path, row in zip(paths, wanted)}
    assert loader.load(tmp_path / "out").element_spec[1].shape.as_list() == [None, 3]


def test_a_missing_class_is_minus_one_whatever_the_first_id_is(photos: Path, tmp_path: Path) -> None:
    paths = sorted(photos.glob("*/*.jpg"))[:3]
    (tmp_path / "rows.csv").write_text(f"image,label\n{paths[0]},x\n{paths[1]},\n{paths[2]},y\n")
    for layout in ("imagenet", "raw_with_shape"):
        output = tmp_path / layout
        convert(
            input=str(tmp_path / "rows.csv"), output=str(output), unlabelled="keep", resize=8, layout=layout
        )
        assert sorted(label for _, label in examples(output)) == [-1, 0, 1]


def test_boxes_are_ragged_tensors(photos: Path, tmp_path: Path) -> None:
    birds = sorted((photos / "birds").glob("*.jpg"))
    pictures = [
        {"id": i, "file_name": path.name, "width": Image.open(path).width, "height": Image.open(path).height}
        for i, path in enumerate(birds)
    ]
    boxes = [
        {"id": 10 * i + j, "image_id": i, "category_id": 1 + j % 2, "bbox": [j, 1, 10, 20], "area": 200,
         "iscrowd": 0, "segmentation": []}
        for i in range(len(birds)) for j in range(i)
    ]  # fmt: skip
    categories = [{"id": 1, "name": "wing"}, {"id": 2, "name": "beak"}]
    document = {"images": pictures, "annotations": boxes, "categories": categories}
    (tmp_path / "coco.json").write_text(json.dumps(document))
    for layout in ("detection", "vision"):  # an image without objects gets empty lists, or no lists
        output = tmp_path / layout
        convert(
            input=str(tmp_path / "coco.json"), image_root=str(birds[0].parent), output=str(output),
            resize=40, layout=layout,
        )  # fmt: skip
        data = loader.load(output, shuffle=False, image_size=20, dtype="float32")
        (batch,) = data
        assert batch["image"].shape == [len(birds), 20, 20, 3]
        xmin = batch["image/object/bbox/xmin"]
        assert isinstance(xmin, tf.RaggedTensor)
        count = {path.name: i for i, path in enumerate(birds)}
        names = [name.decode() for name in batch["image/filename"].numpy()]
        assert xmin.row_lengths().numpy().tolist() == [count[name] for name in names]
        assert batch["image/object/class/label"].row_lengths().numpy().tolist() == [count[n] for n in names]
        with pytest.raises(UsageError, match="more than an image and a class"):
            loader.load(output, as_dict=False)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("classes", [3, 300])
def test_masks_come_with_their_pictures(photos: Path, tmp_path: Path, classes: int) -> None:
    pictures, masks = tmp_path / "in", tmp_path / "masks"
    pictures.mkdir()
    masks.mkdir()
    random = np.random.default_rng(0)
    wanted = {}
    for path in sorted((photos / "birds").glob("*.jpg"))[:3]:
        with Image.open(path) as image:
            image.convert("RGB").resize((30, 20)).save(pictures / f"{path.stem}.png")
        ids = random.integers(0, classes, (20, 30)).astype(np.uint8 if classes < 256 else np.uint16)
        Image.fromarray(ids).save(masks / f"{path.stem}.png")
        wanted[f"{path.stem}.png"] = ids
    convert(
        input=str(pictures), mask_dir=str(masks), output=str(tmp_path / "out"), layout="segmentation",
        resize="30x20",
    )  # fmt: skip
    found = loader.load(tmp_path / "out", as_dict=True, batch_size=None)
    for row in found:
        mask = row["image/segmentation/class/encoded"].numpy()
        assert np.array_equal(mask[..., 0], wanted[row["image/filename"].numpy().decode()])
    images, small = next(
        iter(loader.load(tmp_path / "out", image_size=(10, 15), drop_remainder=True, batch_size=3))
    )
    assert images.shape == (3, 10, 15, 3) and small.shape == (3, 10, 15, 1) and small.dtype == tf.int32
    assert set(np.unique(small)) <= set(range(classes))


def test_synsets_give_the_class_if_texts_differ(converted: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("extends: imagenet\ndrop: [image/class/label, image/class/text]\n")
    output = converted(layout=str(tmp_path / "own.yaml"), **SIDES)
    wanted = sorted(label for _, label in examples(output))
    document = json.loads((output / "dataset.json").read_text())
    for feature in document["features"]:
        if feature["name"] == "image/filename":  # no value in a record is the class's name
            feature["fill"] = "label_text"
    (output / "dataset.json").write_text(json.dumps(document))
    assert sorted(label for _, label in examples(output)) == wanted
    records = Records(output)
    assert sorted(int(records.label(i)) for i in range(len(records))) == wanted and min(wanted) == 0
