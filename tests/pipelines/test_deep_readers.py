"""Real files of 16 bits, floats and many channels, converted and read by every reader, bit for bit."""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from helpers.deep_datasets import Pixels, widened
from helpers.fewer_imports import late
from PIL import Image

from shardwright import loader
from shardwright.loader import Records
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.schemas.layouts import FeatureRole

tf = late("tensorflow")
tfds = late("tensorflow_datasets")
mlc = late("mlcroissant")

RANDOM = np.random.default_rng(7)
SIDES = (9, 14)


def integers(dtype: str, *channels: int) -> Pixels:
    return RANDOM.integers(0, np.iinfo(dtype).max, (*SIDES, *channels), dtype, endpoint=True)


def floats(*channels: int) -> Pixels:
    pixels = RANDOM.normal(300, 5000, (*SIDES, *channels)).astype(np.float32)
    pixels.flat[:2] = np.nan, np.inf
    return pixels


def png(pixels: Pixels) -> tuple[str, bytes]:
    return "png", bytes(imagecodecs.png_encode(pixels))


def jpeg(pixels: Pixels) -> tuple[str, bytes]:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG")
    return "jpg", out.getvalue()


def tiff(**options: Any) -> Callable[[Pixels], tuple[str, bytes]]:
    def write(pixels: Pixels) -> tuple[str, bytes]:
        out = io.BytesIO()
        kind = "rgb" if pixels.shape[2:] == (3,) else "minisblack"
        planes = {"planarconfig": "contig"} if pixels.ndim == 3 else {}
        by_plane = options.get("planarconfig") == "separate"
        stored = np.moveaxis(pixels, -1, 0) if by_plane else pixels
        tifffile.imwrite(out, stored, photometric=kind, **{**planes, **options})
        return "tif", out.getvalue()

    return write


#: Name -> the pictures with the writers of their files, and the settings.
CASES: dict[str, tuple[list[tuple[Pixels, Any]], dict[str, Any]]] = {
    "16 bits": (
        [
            (integers("uint16", 3), png),
            (integers("uint16", 3), tiff(compression="zlib", predictor=True)),
            (integers("uint16", 3), tiff(planarconfig="separate", byteorder=">")),
        ],
        {"depth": "keep"},
    ),
    "8 and 16 bits of gray": (
        [(integers("uint16"), png), (integers("uint8"), png), (integers("uint16"), tiff(tile=(16, 16)))],
        {"depth": "keep", "color": "gray"},
    ),
    "floats": ([(floats(), tiff()), (floats(), tiff(compression="lzw"))], {"depth": "keep", "color": "gray"}),
    "floats of one size": (
        [(floats(), tiff()), (floats(), tiff())],
        {"depth": "keep", "color": "gray", "resize": "14x9", "image_format": "raw"},
    ),
    "six channels": (
        [(integers("uint16", 6), tiff()), (integers("uint16", 6), tiff(compression="zlib"))],
        {"depth": "keep", "channels": 6, "resize": "14x9"},
    ),
    "one of each": (
        [(floats(3), tiff()), (integers("uint16", 3), png), (integers("uint8", 3), png)],
        {"depth": "keep", "layout": "minimal"},
    ),
    "16 bits as base64": (
        [(integers("uint16", 3), tiff()), (integers("uint16", 3), png)],
        {"depth": "keep", "layout": "tfrecorder", "resize": "14x9"},
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Case -> its dataset. The folder `in` next to it has the files."""
    found = {}
    for name, (pictures, settings) in CASES.items():
        root = tmp_path_factory.mktemp("deep")
        for number, (pixels, write) in enumerate(pictures):
            ending, data = write(pixels)
            path = root / "in" / "ab"[number % 2] / f"{number}.{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        convert(input=str(root / "in"), output=str(root / "out"), verify="none", **settings)
        found[name] = root / "out"
    return found


def source_pixels(dataset: Path, key: str) -> Pixels:
    """Returns a source image as tifffile or TensorFlow reads it: height x width x channels."""
    data = (dataset.parent / "in" / key).read_bytes()
    if key.endswith("tif"):
        pixels = tifffile.imread(io.BytesIO(data))
        if pixels.shape[0] == 3 < pixels.shape[2]:  # separate planes
            pixels = np.moveaxis(pixels, 0, -1)
        return pixels[:, :, None] if pixels.ndim == 2 else pixels
    deep: Pixels = tf.io.decode_png(data, dtype=tf.uint16 if data[24] == 16 else tf.uint8).numpy()
    return deep


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CASES)
def test_the_loader_returns_the_pixels_of_the_sources(made: dict[str, Path], name: str) -> None:
    dataset = made[name]
    records = Records(dataset)
    assert len(records) == len(CASES[name][0])
    types = {pixels.dtype.name for pixels, _ in CASES[name][0]}
    widest = next(dtype for dtype in ("float32", "uint16", "uint8") if dtype in types)
    options = {"dtype": widest} if len(types) > 1 and "float32" in types else {}
    data = loader.load(dataset, batch_size=None, shuffle=False, as_dict=True, **options)
    for number, (key, example) in enumerate(zip(records.keys, data, strict=True)):
        pixels = source_pixels(dataset, key)
        image = records.image(number)
        assert image.dtype == pixels.dtype
        np.testing.assert_array_equal(image, pixels)
        loaded = example["image"].numpy()
        assert loaded.dtype.name == widest
        np.testing.assert_allclose(loaded, widened(pixels, widest), rtol=2e-7 if options else 0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CASES)
def test_parse_py_and_tfds_return_the_pixels_of_the_sources(made: dict[str, Path], name: str) -> None:
    dataset = made[name]
    keys = Records(dataset).keys
    features = Records(dataset).dataset.features
    (picture,) = [spec.name for spec in features if spec.fill is FeatureRole.ENCODED]
    place = importlib.util.spec_from_file_location("parse_deep_readers", dataset / "parse.py")
    assert place is not None and place.loader is not None
    module: Any = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    for key, example in zip(keys, module.load("train").as_numpy_iterator(), strict=True):
        pixels = source_pixels(dataset, key)
        found = example[picture]
        scaled = found.dtype == np.float32 != pixels.dtype
        np.testing.assert_allclose(found, widened(pixels, found.dtype.name), rtol=2e-7 if scaled else 0)
    builder = tfds.builder_from_directory(dataset)
    config = tfds.ReadConfig(interleave_cycle_length=1)
    rows = tfds.as_numpy(builder.as_dataset(split="train", read_config=config))
    for key, example in zip(keys, rows, strict=True):
        found = example[picture]
        assert isinstance(found, bytes) == (name in ("floats", "one of each", "16 bits as base64"))
        if not isinstance(found, bytes):
            np.testing.assert_array_equal(found, widened(source_pixels(dataset, key), found.dtype.name))


@pytest.mark.parametrize("name", CASES)
def test_croissant_is_valid(made: dict[str, Path], name: str) -> None:
    found = mlc.Dataset(jsonld=made[name] / "croissant.json")
    assert not found.metadata.ctx.issues.errors
    names = {row["features/name"] for row in found.records("features")}
    assert names == {
        feature["name"] for feature in json.loads((made[name] / "dataset.json").read_text())["features"]
    }


def test_inspect_counts_the_types(made: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(made["one of each"])]) == 0
    assert "1 image of float32, 1 image of uint16, 1 image of uint8" in capsys.readouterr().out
    assert main(["inspect", str(made["one of each"]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dtypes"] == {"float32": 1, "uint16": 1, "uint8": 1}
