"""`load` for training: every record once, the same pixels as in TensorFlow, and known sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.fewer_imports import late
from helpers.tensorflow_records import read_records

from shardwright import loader
from shardwright.loader import open_dataset, select
from shardwright.pipelines.convert import convert
from shardwright.schemas.errors import UsageError

tf = late("tensorflow")

SHARES = "train=0.7,validation=0.15,test=0.15"
Row = tuple[bytes, bytes, int]


@pytest.fixture(scope="module")
def made(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Returns a function that converts the photos with some settings, once each."""
    root = tmp_path_factory.mktemp("loaded")
    done: dict[str, Path] = {}

    def make(**settings: Any) -> Path:
        name = repr(sorted(settings.items()))
        if name not in done:
            done[name] = root / str(len(done))
            convert(input=str(photos), output=str(done[name]), **{"shards": 2, "resize": "24x16", **settings})
        return done[name]

    return make


@pytest.fixture(scope="module")
def small(made: Callable[..., Path]) -> Path:
    return made(splits=SHARES, shards=3)


def plain_reading(directory: Path, split: str = "train") -> dict[str, tuple[np.ndarray, int]]:
    """Returns key -> pixels and stored id, by TensorFlow's own readers without our code."""
    found = {}
    for record in read_records(sorted(directory.glob(f"{split}-*.tfrecord"))):
        feature = tf.train.Example.FromString(record).features.feature
        data = feature["image/encoded"].bytes_list.value[0]
        pixels = tf.io.decode_jpeg(data, dct_method="INTEGER_ACCURATE").numpy()
        key = feature["image/filename"].bytes_list.value[0].decode()
        found[key] = pixels, feature["image/class/label"].int64_list.value[0]
    return found


def rows(data: tf.data.Dataset) -> list[tuple[bytes, int]]:
    """(pixels, label) of all examples of batches, in order."""
    return [
        (pixels.tobytes(), int(label))
        for images, labels in data.as_numpy_iterator()
        for pixels, label in zip(images, labels, strict=True)
    ]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_image_equals_tensorflows(small: Path, shuffle: bool) -> None:
    expected = [(pixels.tobytes(), label) for pixels, label in plain_reading(small).values()]
    found = rows(loader.load(small, batch_size=5, shuffle=shuffle))
    assert Counter(found) == Counter(expected)
    assert (found == expected) is not shuffle


def test_every_image_equals_those_of_other_readers(small: Path) -> None:
    """Programs that train with `load` and predict with `Records` or Pillow get the same pixels."""
    records = loader.Records(small)
    for i, (pixels, _) in enumerate(loader.load(small, shuffle=False, batch_size=None)):
        assert np.array_equal(pixels.numpy(), records.image(i))
        assert np.array_equal(pixels.numpy(), np.asarray(records.pil(i)))


def test_sizes_are_known(small: Path) -> None:
    count = open_dataset(small).records("train")
    data = loader.load(small, batch_size=8)
    assert data.num_examples == count and data.class_names == list(open_dataset(small).labels)
    assert int(data.cardinality()) == -(-count // 8) == len(list(data))
    image, label = data.element_spec
    assert image.shape.as_list() == [None, 16, 24, 3] and image.dtype == tf.uint8
    assert label.shape.as_list() == [None] and label.dtype == tf.int64
    whole = loader.load(small, batch_size=8, drop_remainder=True)
    assert whole.element_spec[0].shape.as_list() == [8, 16, 24, 3]
    assert int(whole.cardinality()) == count // 8 == len(list(whole))
    single = loader.load(small, batch_size=None)
    assert single.element_spec[0].shape.as_list() == [16, 24, 3] and int(single.cardinality()) == count
    assert int(loader.load(small, repeat=True).cardinality()) == tf.data.INFINITE_CARDINALITY
    assert len(rows(loader.load(small, batch_size=8, repeat=3))) == 3 * count


def test_slices_and_divisions_contain_the_selected_records(small: Path) -> None:
    everything = rows(loader.load(small, "all"))
    assert len(everything) == 61
    halves = [rows(loader.load(small, part)) for part in ("train[:50%]", "train[50%:]+validation+test")]
    assert Counter(halves[0]) + Counter(halves[1]) == Counter(everything)
    pixels = plain_reading(small)
    for options in (
        {"keep": lambda key, label: sum(key.encode()) % 2 == 0},
        {"resplit": {"train": 0.5, "rest": 0.5}},
        {"keep": open_dataset(small).labels[:2], "resplit": {"train": 0.5, "rest": 0.5}},
    ):
        data = loader.load(small, shuffle=False, as_dict=True, **options)
        keys = [key.decode() for batch in data for key in batch["image/filename"].numpy()]
        numbers = [n for item in select(small, "train", **options) for n in item.numbers]
        assert len(keys) == len(numbers) == data.num_examples and 0 < len(keys) < len(pixels)
        # In the order of the shards, with gaps.
        assert keys == [key for key in pixels if key in set(keys)]
        assert sum(len(batch["image"]) for batch in loader.load(small, as_dict=True, **options)) == len(keys)


def test_the_order_depends_on_the_seed(small: Path) -> None:
    def epochs(**options: Any) -> list[list[tuple[bytes, int]]]:
        data = loader.load(small, **options)
        return [rows(data), rows(data)]

    first, second = epochs(seed=7)
    assert [first, second] == epochs(seed=7)
    assert first != second and Counter(first) == Counter(second)
    assert epochs(seed=8)[0] not in (first, second)
    assert epochs(shuffle=3)[0] != epochs(shuffle=False)[0]
    # Only a split named train is shuffled by default.
    assert rows(loader.load(small, "validation")) == rows(loader.load(small, "validation", shuffle=False))
    assert rows(loader.load(small, "train")) != rows(loader.load(small, "train", shuffle=False))
    unordered = rows(loader.load(small, shuffle=False, deterministic=False))
    assert Counter(unordered) == Counter(first)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("in_memory", [True, False])
def test_a_cache_gives_the_same_examples_in_another_order_each_epoch(
    made: Callable[..., Path], tmp_path: Path, in_memory: bool
) -> None:
    directory = made(splits=SHARES, shards=3)
    cache = True if in_memory else tmp_path / "new" / "cache"
    data = loader.load(directory, cache=cache)
    first, second = rows(data), rows(data)
    assert first != second and Counter(first) == Counter(second) == Counter(rows(loader.load(directory)))
    if not in_memory:
        assert any(cache.iterdir())
        # Other files in the cache's folder are not used.
        assert loader.load(directory, "test", cache=cache).num_examples == len(
            rows(loader.load(directory, "test", cache=cache))
        )
        assert Counter(rows(loader.load(directory, cache=cache))) == Counter(first)


def test_a_function_changes_pictures_after_the_cache(small: Path) -> None:
    data = loader.load(small, batch_size=None, augment=lambda image: image // 2, shuffle=False)
    originals = loader.load(small, batch_size=None, shuffle=False)
    for (changed, _), (image, _) in zip(data, originals, strict=True):
        assert np.array_equal(changed, image // 2)

    def flip(image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.image.stateless_random_flip_left_right(image, seed)

    options: dict[str, Any] = {"augment": flip, "cache": True, "shuffle": False}
    data = loader.load(small, **options)
    first, second = rows(data), rows(data)
    assert first != second and [first, second] == [rows(again := loader.load(small, **options)), rows(again)]
    assert first != rows(loader.load(small, **options, seed=1))
    as_dict = loader.load(small, batch_size=4, as_dict=True, augment=lambda row: {"dark": row["image"] // 4})
    assert set(as_dict.element_spec) == {"dark"}


def test_float_pixels_are_between_zero_and_one(small: Path) -> None:
    whole, shares = (next(iter(loader.load(small, dtype=dtype)))[0] for dtype in ("uint8", "float32"))
    assert shares.dtype == tf.float32
    np.testing.assert_allclose(shares, whole.numpy() / np.float32(255), rtol=1e-6)


@pytest.mark.slow  # tests of the documents train models, too
def test_a_model_trains(small: Path) -> None:
    import keras

    train, validation = loader.load(small, batch_size=16), loader.load(small, "validation")
    model = keras.Sequential([
        keras.layers.Input((16, 24, 3)), keras.layers.Rescaling(1 / 255), keras.layers.Conv2D(4, 3, 2),
        keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(len(train.class_names)),
    ])  # fmt: skip
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    history = model.fit(train, validation_data=validation, epochs=2, verbose=0).history
    assert np.isfinite(history["loss"] + history["val_loss"]).all()
    assert model.optimizer.iterations == 2 * int(train.cardinality())


def test_a_storage_that_tensorflow_cannot_read_is_refused(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = open_dataset(small)
    monkeypatch.setattr("shardwright.loader.tf_dataset.located", lambda path: path)
    monkeypatch.setattr("shardwright.loader.tf_dataset.read_dataset", lambda path: dataset)
    with pytest.raises(UsageError) as error:
        loader.load("s3://bucket/out")
    assert "cannot read s3://" in error.value.message


def test_a_shard_with_too_few_records_is_an_error(small: Path, tmp_path: Path) -> None:
    dataset = open_dataset(small)
    for path in small.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    victim = dataset.splits["train"][-1].file
    first, second, *others = tf.data.TFRecordDataset(str(small / victim)).as_numpy_iterator()
    with tf.io.TFRecordWriter(str(tmp_path / victim)) as writer:
        # Two records are merged into one, and an unknown field pads the file to its old size.
        for record in (first + second + b"\x7a\x0e" + bytes(14), *others):
            writer.write(record)
    with pytest.raises(tf.errors.OpError, match="expected"):
        rows(loader.load(tmp_path))
