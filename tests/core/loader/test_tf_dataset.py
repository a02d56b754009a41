"""`load` for training: every record once, the pixels of TensorFlow and known sizes, for every layout."""

from __future__ import annotations

import io
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.described import described, parse_module
from helpers.fewer_imports import late
from helpers.pictures import file_of
from helpers.tfds_reading import made
from PIL import Image

from shardwright import loader
from shardwright.loader import Records, open_dataset, select
from shardwright.loader.decode import decode_picture
from shardwright.schemas.configuration.layout_file import parse_layout_file
from shardwright.schemas.errors import UsageError
from shardwright.schemas.example import FeatureType, serialize_tensor
from shardwright.schemas.layouts import Encoding, FeatureRole, FeatureSpec
from shardwright.schemas.sidecars.parse_module import parse_py

tf = late("tensorflow")


def rows(data: tf.data.Dataset) -> list[tuple[bytes, int]]:
    """(pixels, label) of all examples of batches, in order."""
    return [
        (pixels.tobytes(), int(label))
        for images, labels in data.as_numpy_iterator()
        for pixels, label in zip(images, labels, strict=True)
    ]


def test_sizes_are_known(sound_dataset: Path) -> None:
    count = open_dataset(sound_dataset).records("train")
    data = loader.load(sound_dataset, batch_size=8)
    assert data.num_examples == count and data.class_names == list(open_dataset(sound_dataset).labels)
    assert int(data.cardinality()) == -(-count // 8) == len(list(data))
    image, label = data.element_spec
    assert image.shape.as_list() == [None, 64, 64, 3] and image.dtype == tf.uint8
    assert label.shape.as_list() == [None] and label.dtype == tf.int64
    whole = loader.load(sound_dataset, batch_size=8, drop_remainder=True)
    assert whole.element_spec[0].shape.as_list() == [8, 64, 64, 3]
    assert int(whole.cardinality()) == count // 8 == len(list(whole))
    single = loader.load(sound_dataset, batch_size=None)
    assert single.element_spec[0].shape.as_list() == [64, 64, 3] and int(single.cardinality()) == count
    assert int(loader.load(sound_dataset, repeat=True).cardinality()) == tf.data.INFINITE_CARDINALITY
    assert len(rows(loader.load(sound_dataset, batch_size=8, repeat=3))) == 3 * count


def test_slices_and_divisions_contain_the_selected_records(sound_dataset: Path) -> None:
    everything = rows(loader.load(sound_dataset, "all"))
    assert len(everything) == 61
    halves = [
        rows(loader.load(sound_dataset, part)) for part in ("train[:50%]", "train[50%:]+validation+test")
    ]
    assert Counter(halves[0]) + Counter(halves[1]) == Counter(everything)
    in_order = Records(sound_dataset).keys
    for options in (
        {"keep": lambda key, label: sum(key.encode()) % 2 == 0},
        {"resplit": {"train": 0.5, "rest": 0.5}},
        {"keep": open_dataset(sound_dataset).labels[:2], "resplit": {"train": 0.5, "rest": 0.5}},
    ):
        data = loader.load(sound_dataset, shuffle=False, as_dict=True, **options)
        keys = [key.decode() for batch in data for key in batch["image/filename"].numpy()]
        numbers = [n for item in select(sound_dataset, "train", **options) for n in item.numbers]
        assert len(keys) == len(numbers) == data.num_examples and 0 < len(keys) < len(in_order)
        # In the order of the shards, with gaps.
        assert keys == [key for key in in_order if key in set(keys)]
    assert len(rows(loader.load(sound_dataset, **options))) == len(keys)


def test_the_order_depends_on_the_seed(sound_dataset: Path) -> None:
    data, again = (loader.load(sound_dataset, seed=7) for _ in range(2))
    first, second = rows(data), rows(data)
    assert [first, second] == [rows(again), rows(again)]
    in_order = rows(loader.load(sound_dataset, shuffle=False))
    assert Counter(first) == Counter(second) == Counter(in_order)
    epochs = [in_order, first, second]
    epochs += [rows(loader.load(sound_dataset, **options)) for options in ({"seed": 8}, {"shuffle": 3})]
    assert len(set(map(tuple, epochs))) == len(epochs)
    # Only a split named train is shuffled by default.
    held_out = [rows(loader.load(sound_dataset, "validation", **more)) for more in ({}, {"shuffle": False})]
    assert held_out[0] == held_out[1]
    unordered = rows(loader.load(sound_dataset, shuffle=False, deterministic=False))
    assert Counter(unordered) == Counter(first)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("in_memory", [True, False])
def test_a_cache_gives_the_same_examples_in_another_order_each_epoch(
    sound_dataset: Path, tmp_path: Path, in_memory: bool
) -> None:
    cache = True if in_memory else tmp_path / "new" / "cache"
    data = loader.load(sound_dataset, cache=cache)
    first, second = rows(data), rows(data)
    assert first != second and Counter(first) == Counter(second) == Counter(rows(loader.load(sound_dataset)))
    if not in_memory:
        assert any(cache.iterdir())
        # Other files in the cache's folder are not used.
        test = loader.load(sound_dataset, "test", cache=cache)
        assert test.num_examples == len(rows(loader.load(sound_dataset, "test", cache=cache)))
        assert Counter(rows(loader.load(sound_dataset, cache=cache))) == Counter(first)
        # Neither are files whose order the machine decided.
        assert rows(loader.load(sound_dataset, cache=cache, deterministic=False))
        assert len(list(cache.glob("*.index"))) == 3


def test_a_function_changes_pictures_after_the_cache(sound_dataset: Path) -> None:
    data = loader.load(sound_dataset, batch_size=None, augment=lambda image: image // 2, shuffle=False)
    originals = loader.load(sound_dataset, batch_size=None, shuffle=False)
    for (changed, _), (image, _) in zip(data, originals, strict=True):
        assert np.array_equal(changed, image // 2)

    def flip(image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.image.stateless_random_flip_left_right(image, seed)

    options: dict[str, Any] = {"augment": flip, "cache": True, "shuffle": False}
    data = loader.load(sound_dataset, **options)
    first, second = rows(data), rows(data)
    assert first != second and [first, second] == [
        rows(again := loader.load(sound_dataset, **options)),
        rows(again),
    ]
    assert first != rows(loader.load(sound_dataset, **options, seed=1))
    from tensorflow.python.data.experimental.ops.distribute import _AutoShardDataset

    data = loader.load(sound_dataset, batch_size=8, augment=flip)
    parts = [rows(_AutoShardDataset(data, 2, worker)) for worker in range(2)]
    assert len(parts[0] + parts[1]) == data.num_examples  # as if two workers trained with tf.distribute
    as_dict = loader.load(
        sound_dataset, batch_size=4, as_dict=True, augment=lambda row: {"dark": row["image"] // 4}
    )
    assert set(as_dict.element_spec) == {"dark"}


def test_a_storage_that_tensorflow_cannot_read_is_refused(
    sound_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = open_dataset(sound_dataset)
    monkeypatch.setattr("shardwright.loader.tf_dataset.located", lambda path: path)
    monkeypatch.setattr("shardwright.loader.tf_dataset.read_dataset", lambda path: dataset)
    with pytest.raises(UsageError) as error:
        loader.load("s3://bucket/out")
    assert "cannot read s3://" in error.value.message


def test_a_shard_with_too_few_records_is_an_error(sound_dataset: Path, tmp_path: Path) -> None:
    dataset = open_dataset(sound_dataset)
    for path in sound_dataset.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    victim = dataset.splits["train"][-1].file
    first, second, *others = tf.data.TFRecordDataset(str(sound_dataset / victim)).as_numpy_iterator()
    with tf.io.TFRecordWriter(str(tmp_path / victim)) as writer:
        # Two records are merged into one, and an unknown field pads the file to its old size.
        for record in (first + second + b"\x7a\x0e" + bytes(14), *others):
            writer.write(record)
    with pytest.raises(tf.errors.OpError, match="expected"):
        rows(loader.load(tmp_path))


IMAGE = FeatureSpec("image", FeatureType.BYTES, (), FeatureRole.ENCODED)
LABEL = FeatureSpec("label", FeatureType.INT64, (), FeatureRole.LABEL)
MASK = FeatureSpec("mask", FeatureType.BYTES, (), FeatureRole.SEMANTIC_MASK)


def png(size: tuple[int, int] = (6, 4), red: int = 0) -> bytes:
    return file_of(Image.new("RGB", size, (red, 0, 0)), "PNG")


def examples(directory: Path, **options: Any) -> list[tuple[np.ndarray, int]]:
    """Pixels and labels of all pictures, in the order of the shards."""
    data = loader.load(directory, batch_size=None, shuffle=False, **options)
    return [(image, int(label)) for image, label in data.as_numpy_iterator()]


@pytest.mark.parametrize("is_file", [False, True])
def test_tensors_of_a_custom_layout_can_be_loaded(tmp_path: Path, is_file: bool) -> None:
    pixels = np.arange(3 * 4 * 6 * 3, dtype=np.uint8).reshape(3, 4, 6, 3)
    stored = [file_of(Image.fromarray(one), "PNG") if is_file else tf.constant(one) for one in pixels]
    what, labels = ("label", (6, 5, 6)) if is_file else ("label_text", (b"b", b"a", b"b"))
    text = f"features: {{image: {{fill: encoded, tensor: true}}, what: {{fill: {what}}}}}"
    features = parse_layout_file(f"pixels: {'false' if is_file else 'true'}\n{text}", "own.yaml").features
    records = [
        {"image": [tf.io.serialize_tensor(one).numpy()], "what": [label]}
        for one, label in zip(stored, labels, strict=True)
    ]
    form = {"image_format": "png" if is_file else "raw", "resize": "6x4"}
    directory, _ = made(tmp_path / "out", features, records, first_label=5, **form)
    found = examples(directory)
    assert [label for _, label in found] == [1, 0, 1]
    np.testing.assert_array_equal([image for image, _ in found], pixels)


def test_originals_of_one_size_need_no_image_size(tmp_path: Path) -> None:
    """Another size after the first images is reported when it is read."""
    features, records = (IMAGE, LABEL), [{"image": [png(red=i)], "label": [0]} for i in range(20)]
    directory, _ = made(tmp_path / "one", features, records)
    data = loader.load(directory, shuffle=False)
    assert data.element_spec[0].shape.as_list() == [None, 4, 6, 3]
    assert [image[0, 0, 0] for images, _ in data.as_numpy_iterator() for image in images] == list(range(20))
    directory, _ = made(tmp_path / "two", features, [*records, {"image": [png((5, 4))], "label": [0]}])
    data = loader.load(directory, shuffle=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"different sizes.* set image_size="):
        list(data)


def test_originals_of_many_sizes_can_be_loaded() -> None:
    directory = described("originals")
    with pytest.raises(UsageError, match="different sizes"):
        loader.load(directory)
    originals = examples(directory)
    assert len({image.shape for image, _ in originals}) > 3
    data = loader.load(directory, image_size=(20, 30))
    assert data.element_spec[0].shape.as_list() == [None, 20, 30, 3]
    for (small, _), (image, _) in zip(examples(directory, image_size=(20, 30)), originals, strict=True):
        wanted = tf.image.resize(image, (20, 30), antialias=True).numpy()
        # Large JPEGs are decoded at a reduced size.
        assert np.abs(small - wanted).mean() < 2.5


def labels_of(directory: Path) -> list[Any]:
    """Returns the classes of all records, which `load` and `Records` read alike."""
    (batch,) = loader.load(directory, shuffle=False)
    return batch[1].numpy().tolist()


def test_several_classes_are_a_vector(tmp_path: Path) -> None:
    features = IMAGE, replace(LABEL, shape=(None,))
    records = [{"image": [png()], "label": ids} for ids in ([1, 2], [2], [], [3, 1])]
    directory, _ = made(tmp_path / "out", features, records, "abc", first_label=1)
    data = loader.load(directory)
    assert data.element_spec[1].shape.as_list() == [None, 3] and data.class_names == ["a", "b", "c"]
    assert labels_of(directory) == [[1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 0, 1]]
    assert [Records(directory).label(i).tolist() for i in range(4)] == [[0, 1], [1], [], [2, 0]]
    of_table = loader.load(described("several"), "all", as_dict=True, batch_size=None)
    found = list(of_table.as_numpy_iterator())
    for row in found:
        assert row["label"].nonzero()[0].tolist() == sorted(row["image/class/label"])
    assert of_table.class_names == ["air", "land", "sea"] and {sum(row["label"]) for row in found} == {1, 2}


def test_a_missing_class_is_minus_one_whatever_the_first_id_is(tmp_path: Path) -> None:
    text = FeatureSpec("label", FeatureType.BYTES, (), FeatureRole.LABEL_TEXT)
    tensor = replace(LABEL, type=FeatureType.BYTES, encoding=Encoding.TENSOR, dtype="int64")
    ids = (1, -1, 2)
    tensors = [serialize_tensor([number], "int64", ()) for number in ids]
    kinds = ((LABEL, 1, ids), (text, 0, (b"a", b"", b"b")), (tensor, 1, tensors))
    for number, (feature, first_label, values) in enumerate(kinds):
        records = [{"image": [png()], "label": [value]} for value in values]
        directory, _ = made(tmp_path / str(number), (IMAGE, feature), records, first_label=first_label)
        _, labels = next(Records(directory).batches(3))
        assert labels_of(directory) == np.asarray(labels).tolist() == [0, -1, 1]
        assert isinstance(labels, np.ndarray)


def test_synsets_give_the_class_if_texts_differ(tmp_path: Path) -> None:
    features = (
        IMAGE,
        FeatureSpec("text", FeatureType.BYTES, (), FeatureRole.LABEL_TEXT),
        FeatureSpec("synset", FeatureType.BYTES, (), FeatureRole.SYNSET),
    )
    records = [{"image": [png()], "text": [b"a bird"], "synset": [name]} for name in (b"n2", b"n1")]
    directory, _ = made(tmp_path / "out", features, records, ("n1", "n2"))
    assert labels_of(directory) == [Records(directory).label(i) for i in range(2)] == [1, 0]


def test_lists_of_objects_are_ragged_tensors(tmp_path: Path) -> None:
    """An image without objects has empty lists, or lacks them."""
    features = (
        IMAGE,
        FeatureSpec("xmin", FeatureType.FLOAT, (None,), FeatureRole.BOX_XMIN),
        FeatureSpec("id", FeatureType.INT64, (None,), FeatureRole.OBJECT_LABEL, optional=True),
        FeatureSpec("rows", FeatureType.BYTES, (2, None), FeatureRole.EXTRA, encoding=Encoding.BASE64),
    )
    rows = [b"MA==", b"MQ==", b"Mg==", b"Mw=="]
    records = [
        {"image": [png()], "xmin": [0.5] * n, **({"id": [1] * n} if n else {}), "rows": rows[: 2 * n]}
        for n in (2, 0, 1)
    ]
    directory, _ = made(tmp_path / "out", features, records)
    (batch,) = loader.load(directory, shuffle=False, image_size=20, dtype="float32")
    assert batch["image"].shape == [3, 20, 20, 3]
    for name in ("xmin", "id"):
        assert isinstance(batch[name], tf.RaggedTensor)
        assert batch[name].row_lengths().numpy().tolist() == [2, 0, 1]
    shaped = [record["rows"].tolist() for record in Records(directory)]
    assert batch["rows"].to_list() == shaped == [[[b"0", b"1"], [b"2", b"3"]], [[], []], [[b"0"], [b"1"]]]
    with pytest.raises(UsageError, match="more than an image and a class"):
        loader.load(directory, as_dict=False)


@pytest.mark.parametrize(("classes", "in_tensor"), [(3, True), (300, False)])
def test_masks_come_with_their_pictures(tmp_path: Path, classes: int, in_tensor: bool) -> None:
    dtype = np.uint8 if classes < 256 else np.uint16
    masks = np.random.default_rng(0).integers(0, classes, (3, 20, 30)).astype(dtype)
    stored = [file_of(Image.fromarray(ids), "PNG") for ids in masks]
    spec = MASK
    if in_tensor:
        spec = replace(MASK, encoding=Encoding.TENSOR, dtype="object")
        stored = [serialize_tensor([data], "object", ()) for data in stored]
    made(tmp_path / "out", (IMAGE, spec), [{"image": [png((30, 20))], "mask": [data]} for data in stored])
    found = loader.load(tmp_path / "out", as_dict=True, batch_size=None, shuffle=False)
    for row, ids in zip(found, masks, strict=True):
        assert np.array_equal(row["mask"][..., 0], ids)
    images, whole = next(iter(loader.load(tmp_path / "out", batch_size=3)))
    assert images.shape == (3, 20, 30, 3) and whole.shape == (3, 20, 30, 1)
    images, small = next(
        iter(loader.load(tmp_path / "out", image_size=(10, 15), drop_remainder=True, batch_size=3))
    )
    assert images.shape == (3, 10, 15, 3) and small.shape == (3, 10, 15, 1) and small.dtype == tf.int32
    assert set(np.unique(small)) <= set(range(classes))


@pytest.mark.parametrize("optional", [True, False])  # missing, or empty
def test_masks_may_have_no_pixels(tmp_path: Path, optional: bool) -> None:
    records = [{"image": [png()], "mask": [png()]}, {"image": [png()], "mask": [b""]}]
    if optional:
        del records[1]["mask"]
    made(tmp_path / "out", (IMAGE, replace(MASK, optional=optional)), records, unlabelled="keep")
    for size in ((4, 6), (2, 3)):
        (batch,) = loader.load(tmp_path / "out", image_size=size, as_dict=True, shuffle=False)
        assert [mask.to_tensor().shape.as_list()[:2] for mask in batch["mask"]] == [[*size], [0, 0]]


def _originals(photo: Path) -> dict[str, tuple[bytes, np.ndarray]]:
    """Returns pictures of many kinds, and the expected pixels of each."""
    with Image.open(photo) as image:
        rgb = image.convert("RGB").resize((30, 20))
    alpha = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30)).astype(np.uint8))
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    pictures = {
        "rgb.png": rgb, "rgba.png": rgba, "la.png": rgba.convert("LA"), "palette.png": rgb.quantize(8),
        "grey.png": rgb.convert("L"), "bits.png": rgb.convert("1"), "rgba.webp": rgba, "rgb.webp": rgb,
    }  # fmt: skip
    files = {
        name: file_of(picture, Path(name).suffix[1:].upper(), lossless=True)
        for name, picture in pictures.items()
    }
    files["key.png"] = file_of(rgb.convert("L"), "PNG", transparency=100)
    seen = {}
    for name, data in files.items():
        layer = Image.open(io.BytesIO(data)).convert("RGBA")
        white = Image.new("RGBA", layer.size, "white")
        white.paste(layer, mask=layer.getchannel("A"))
        seen[name] = data, np.asarray(white.convert("RGB"))
    return seen


@pytest.mark.sampled(1)
@pytest.mark.parametrize("only", ["png", "webp", ""])  # one format, the other, and both
def test_transparent_pixels_are_white(photos: Path, tmp_path: Path, only: str) -> None:
    originals = _originals(next((photos / "birds").glob("*.jpg")))
    chosen = {name: pair for name, pair in originals.items() if name.endswith(only)}
    records = [{"image": [data], "label": [0]} for data, _ in chosen.values()]
    directory, _ = made(tmp_path / "out", (IMAGE, LABEL), records, format=only, color="keep")
    stored = Records(directory)
    rows = zip(chosen.items(), examples(directory), strict=True)
    for i, ((name, (_, expected)), (image, _)) in enumerate(rows):
        assert np.array_equal(image, expected), name
        assert np.array_equal(stored.image(i), image), name
    assert next(iter(loader.load(directory, image_size=8)))[0].shape[1:] == [8, 8, 3]


def test_a_truncated_jpeg_of_damaged_keep_is_loaded(photos: Path, tmp_path: Path) -> None:
    with Image.open(next((photos / "birds").glob("*.jpg"))) as photo:
        data = file_of(photo, "JPEG")
    records = [{"image": [data[: len(data) * 3 // 4]], "label": [0]}]
    settings = {"format": "jpeg", "damaged": "keep"}
    directory, dataset = made(tmp_path / "out", (IMAGE, LABEL), records, **settings)
    (directory / "parse.py").write_text(parse_py(dataset))
    ((image, _),), (example,) = examples(directory), parse_module(directory).load("train")
    for pixels in (image, example["image"].numpy()):  # its lower rows are missing
        assert np.array_equal(Records(directory).image(0)[:20], pixels[:20])


def test_pictures_above_pillows_limit_are_not_damage(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = next((photos / "birds").glob("*.jpg")).read_bytes()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with warnings.catch_warnings(), pytest.raises(UsageError, match="MAX_IMAGE_PIXELS = None"):
        decode_picture(data)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert decode_picture(data).size[0] > 100
