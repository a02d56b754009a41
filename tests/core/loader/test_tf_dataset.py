"""`load` for training: every record once, the pixels of TensorFlow, known sizes, and every depth."""

from __future__ import annotations

import io
import pickle
import shutil
import sys
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from helpers.deep_datasets import KINDS, OF_ONE_SCALE, SIDES, deep_dataset, random_pixels, widened
from helpers.described import described, parse_module
from helpers.fewer_imports import late
from helpers.pictures import file_of
from helpers.resealing import read_document, write_document
from helpers.tfds_reading import made
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from shardwright import loader
from shardwright.loader import Records, open_dataset, select
from shardwright.loader.decode import converted, decode_deep_png, decode_picture
from shardwright.schemas.configuration.layout_file import parse_layout_file
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.example import FeatureType, serialize_tensor
from shardwright.schemas.layouts import Encoding, FeatureRole, FeatureSpec
from shardwright.schemas.missing_packages import MissingPackage
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
    monkeypatch.setattr("shardwright.loader.selection.located", lambda path: path)
    monkeypatch.setattr("shardwright.loader.selection.read_dataset", lambda path: dataset)
    with pytest.raises(UsageError, match="cannot read s3://"):
        loader.load("s3://bucket/out")


def test_a_shard_with_too_few_records_is_an_error(sound_dataset: Path, copied: Path) -> None:
    victim = open_dataset(sound_dataset).splits["train"][-1].file
    first, second, *others = tf.data.TFRecordDataset(str(sound_dataset / victim)).as_numpy_iterator()
    with tf.io.TFRecordWriter(str(copied / victim)) as writer:
        # Two records are merged into one, and an unknown field pads the file to its old size.
        for record in (first + second + b"\x7a\x0e" + bytes(14), *others):
            writer.write(record)
    with pytest.raises(tf.errors.OpError, match="expected"):
        rows(loader.load(copied))


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


tf_images = late("shardwright.loader.tf_images")

#: Pixels of any integer or float type.
PIXELS = st.sampled_from(["uint8", "uint16", "float32"]).flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=3, max_dims=3, max_side=5))
)


def loaded(name: str, **options: Any) -> list[np.ndarray[Any, Any]]:
    return [image for image, _ in examples(deep_dataset(name)[0], **options)]


@pytest.mark.parametrize("name", KINDS)
def test_records_have_the_stored_pixels(name: str) -> None:
    directory, pictures = deep_dataset(name)
    records = Records(directory)
    for number, pixels in enumerate(pictures):
        image = records.image(number)
        assert image.dtype == pixels.dtype and image.flags.writeable
        np.testing.assert_array_equal(image, pixels)
        again, label = pickle.loads(pickle.dumps(records)).image_and_label(number)
        np.testing.assert_array_equal(again, pixels)
        assert label == number % 2
        shown = records.pil(number)  # with 8 bits
        assert shown.mode == ("L" if KINDS[name].channels < 3 else "RGB")
        assert shown.size == pixels.shape[1::-1]
        if pixels.dtype == np.uint16:
            wanted = np.rint(pixels[:, :, : 3 if KINDS[name].channels > 2 else 1] / 257)
            np.testing.assert_array_equal(np.asarray(shown).reshape(wanted.shape), wanted)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", OF_ONE_SCALE)
def test_load_keeps_the_type_of_the_dataset(name: str) -> None:
    _, pictures = deep_dataset(name)
    widest = KINDS[name].types[-1]
    for image, pixels in zip(loaded(name), pictures, strict=True):
        assert image.dtype.name == widest
        np.testing.assert_array_equal(image, widened(pixels, widest))


@pytest.mark.sampled(13)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float16"])
@pytest.mark.parametrize("name", KINDS)
def test_load_and_records_convert_alike(name: str, dtype: str) -> None:
    directory, pictures = deep_dataset(name)
    if dtype.startswith("uint") and "float32" in KINDS[name].types:
        for read in (loaded, lambda name, dtype: Records(directory, dtype=dtype)):
            with pytest.raises(UsageError, match="no fixed range; choose dtype='float32'"):
                read(name, dtype=dtype)
        return
    records = Records(directory, dtype=dtype)
    with np.errstate(over="ignore"):  # random floats beyond the range of float16
        for number, image in enumerate(loaded(name, dtype=dtype)):
            assert image.dtype.name == dtype == records.image(number).dtype.name
            np.testing.assert_array_equal(image, records.image(number))
            pixels = pictures[number].astype(np.float64)
            if pictures[number].dtype == np.uint16 and dtype == "uint8":
                np.testing.assert_array_equal(image, np.rint(pixels / 257))
            elif dtype.startswith("float") and pictures[number].dtype != np.float32:
                shares = pixels / np.iinfo(pictures[number].dtype).max
                np.testing.assert_allclose(image, shares, atol=1e-3 if dtype == "float16" else 1e-7)


@pytest.mark.parametrize("name", [name for name in KINDS if name not in OF_ONE_SCALE])
def test_floats_next_to_integers_need_a_type(name: str) -> None:
    directory, _ = deep_dataset(name)
    with pytest.raises(UsageError, match=r"uint8 and uint16 and float32, which have no common scale"):
        loader.load(directory)
    assert loaded(name, dtype="bfloat16")[0].dtype.name == "bfloat16"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.one_size])
def test_batches_have_a_static_shape(name: str) -> None:
    directory, pictures = deep_dataset(name)
    data = loader.load(directory, batch_size=2, shuffle=False, dtype="float32")
    assert data.element_spec[0].shape.as_list() == [None, *SIDES, KINDS[name].channels]
    assert next(iter(data))[0].shape == (2, *pictures[0].shape)
    first = next(Records(directory, dtype="float32").batches(2))[0]
    np.testing.assert_array_equal(first, next(iter(data))[0])


def test_batches_of_several_types_are_refused() -> None:
    directory, _ = deep_dataset("jpeg next to png of 16 bits")
    with pytest.raises(UsageError, match="are uint16 and uint8; open the records with one type"):
        next(Records(directory).batches(2))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["png of 16 bits", "png of 8 and 16 bits", "floats"])
def test_resizing_keeps_the_type(name: str) -> None:
    _, pictures = deep_dataset(name)
    for image, pixels in zip(loaded(name, image_size=(3, 4)), pictures, strict=True):
        pixels = tf_images.converted(tf.constant(pixels), KINDS[name].types[-1])
        wanted = tf.image.resize(pixels, (3, 4), antialias=True).numpy()
        assert image.shape == wanted.shape and image.dtype == pixels.dtype
        rounded = wanted if image.dtype == np.float32 else np.rint(wanted)
        np.testing.assert_array_equal(image, rounded.astype(image.dtype))


def test_the_cache_holds_the_type_of_the_dataset(tmp_path: Path) -> None:
    directory, pictures = deep_dataset("png of 16 bits")
    for _ in range(2):
        seen: list[tf.DType] = []
        data = loader.load(
            directory, batch_size=None, shuffle=False, cache=tmp_path, dtype="float32",
            augment=lambda image, seen=seen: seen.append(image.dtype) or image,
        )  # fmt: skip
        for (image, _), pixels in zip(data.as_numpy_iterator(), pictures, strict=True):
            np.testing.assert_array_equal(image, converted(pixels, "float32"))
        assert set(seen) == {tf.uint16}


@given(PIXELS, st.sampled_from(["uint8", "uint16", "float32", "float16"]))
def test_numpy_and_tensorflow_convert_alike(pixels: np.ndarray[Any, Any], dtype: str) -> None:
    if pixels.dtype == np.float32 and dtype.startswith("uint"):
        return
    with np.errstate(over="ignore", invalid="ignore"):
        found = converted(pixels, dtype)
    assert found.dtype.name == dtype
    np.testing.assert_array_equal(found, tf_images.converted(tf.constant(pixels), dtype).numpy())


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_a_png_of_16_bits_equals_tensorflows(channels: int) -> None:
    pixels = random_pixels("uint16", (5, 7, channels), channels)
    data = bytes(imagecodecs.png_encode(pixels[:, :, 0] if channels == 1 else pixels))
    found = decode_deep_png(data)
    if channels % 2:
        np.testing.assert_array_equal(found, tf.io.decode_png(data, dtype=tf.uint16))
        return
    shares = pixels.astype(np.float64) / 0xFFFF
    on_white = shares[:, :, :-1] * shares[:, :, -1:] + 1 - shares[:, :, -1:]
    np.testing.assert_array_equal(found, np.rint(on_white * 0xFFFF))
    if channels == 4:
        np.testing.assert_array_equal(found, tf_images.on_white(tf.constant(pixels)))


def test_another_picture_is_not_taken_for_16_bits() -> None:
    jpeg = file_of(Image.new("RGB", (4, 4)), "JPEG")
    png = bytes(imagecodecs.png_encode(random_pixels("uint8", (5, 7, 3), 1)))
    whole = bytes(imagecodecs.png_encode(random_pixels("uint16", (5, 7, 3), 1)))
    gray = bytes(imagecodecs.png_encode(random_pixels("uint16", (50, 70), 1)))
    for data, what in ((jpeg, "decoded"), (png, "8 bits"), (whole[:90], "decoded"), (gray[:900], "decoded")):
        with pytest.raises(ValueError, match=what):
            decode_deep_png(data)


def test_a_record_of_another_type_or_size_is_damaged(tmp_path: Path) -> None:
    directory, _ = deep_dataset("raw of all types")
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    shard = tmp_path / "train-00000-of-00001.tfrecord"
    shard.write_bytes(shard.read_bytes().replace(b"float32", b"float33").replace(b"uint16", b"uint8\0"))
    records = Records(tmp_path, verify=False)
    for number, stated in enumerate((r"uint8\\x00", "float33")):
        message = f"'{stated}' is not one of the dataset: uint8, uint16, float32"
        with pytest.raises(EngineError, match=message):
            records.image(number)
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    write_document(tmp_path, {**read_document(tmp_path), "dtypes": {"float32": 3}})
    with pytest.raises(EngineError, match="480 bare bytes are not 6 x 8 x 5 pixels of float32"):
        Records(tmp_path).image(0)


def test_gray_16_bits_need_no_further_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    directory, pictures = deep_dataset("gray png of 16 bits")
    np.testing.assert_array_equal(Records(directory).image(0), pictures[0])
    with pytest.raises(MissingPackage, match="A PNG with 16 bits a sample in color needs imagecodecs"):
        Records(deep_dataset("png of 16 bits")[0]).image(0)


def test_a_missing_package_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    translucent = Image.new("RGBA", (4, 3), (200, 0, 0, 128))
    assert decode_picture(file_of(translucent, "PNG")).getpixel((0, 0)) == (227, 127, 127)
    with pytest.raises(MissingPackage, match="An image of the format webp needs imagecodecs; install it"):
        decode_picture(file_of(translucent, "WEBP", lossless=True))


def test_an_unknown_type_needs_another_version(tmp_path: Path) -> None:
    shutil.copytree(deep_dataset("floats")[0], tmp_path, dirs_exist_ok=True)
    write_document(tmp_path, {**read_document(tmp_path), "dtypes": {"float64": 2}})
    for read in (Records, loader.load):
        with pytest.raises(UsageError, match="images of the type float64, which this version"):
            read(tmp_path)
