"""`load` and `Records` for pictures with 8 and 16 bits, floats and many channels."""

from __future__ import annotations

import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from helpers.deep_datasets import KINDS, OF_ONE_SCALE, SIDES, deep_dataset, random_pixels, widened
from helpers.fewer_imports import late
from helpers.pictures import file_of
from helpers.resealing import read_document, write_document
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from shardwright import loader
from shardwright.loader import Records
from shardwright.loader.decode import converted, decode_deep_png, decode_picture
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.missing_packages import MissingPackage

tf = late("tensorflow")
tf_images = late("shardwright.loader.tf_images")

#: Pixels of any integer or float type.
PIXELS = st.sampled_from(["uint8", "uint16", "float32"]).flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=3, max_dims=3, max_side=5))
)


def loaded(name: str, **options: Any) -> list[np.ndarray[Any, Any]]:
    directory, _ = deep_dataset(name)
    data = loader.load(directory, batch_size=None, shuffle=False, **options)
    return [image for image, _ in data.as_numpy_iterator()]


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
