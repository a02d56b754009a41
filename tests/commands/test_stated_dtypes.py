"""Layouts that state the `dtype` of bare pixels: every record has it, and every reader uses it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from helpers.fewer_imports import late
from helpers.planting import rewrite, set_text

from shardwright import loader
from shardwright.loader import Records
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.validate import validate
from shardwright.schemas.codes import NOTES
from shardwright.schemas.configuration.layout_file import parse_layout_file
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.layouts import inline_layout

tfds = late("tensorflow_datasets")

RANDOM = np.random.default_rng(11)
DEEP = RANDOM.integers(0, 65536, (9, 14, 3), np.uint16)
EIGHT = RANDOM.integers(0, 256, (9, 14, 3), np.uint8)
FLOATS = RANDOM.normal(size=(9, 14, 3)).astype(np.float32)
SHARD = "train-00000-of-00001.tfrecord"


def layout_of(dtype: str, extra: str = "", more: str = "") -> str:
    features = f"{{x: {{fill: encoded, dtype: {dtype}{extra}}}, y: {{fill: label}}{more}}}"
    return inline_layout(parse_layout_file(f"pixels: true\nfeatures: {features}", "bare.yaml"))


def folder_of(root: Path, files: dict[str, np.ndarray]) -> str:
    (root / "in" / "a").mkdir(parents=True)
    for name, pixels in files.items():
        path = root / "in" / "a" / name
        if name.endswith("png"):
            path.write_bytes(imagecodecs.png_encode(pixels))
        else:
            tifffile.imwrite(path, pixels, photometric="rgb")
    return str(root / "in")


#: Name -> dtype, further keys of the feature, further features, sources, and what is stored of them.
CASES: dict[str, tuple[str, str, str, dict[str, np.ndarray], list[np.ndarray]]] = {
    "8 bits become 16": (
        "uint16", "", "",
        {"0.png": DEEP, "1.png": EIGHT, "2.tif": DEEP[::-1]}, [DEEP, EIGHT * np.uint16(257), DEEP[::-1]],
    ),
    "floats with a shape": (
        "float32", "", ", size: {fill: shape}", {"0.tif": FLOATS, "1.tif": -FLOATS}, [FLOATS, -FLOATS],
    ),
    "base64": ("uint16", ", base64: true", "", {"0.png": DEEP}, [DEEP]),
    "8 bits": ("uint8", "", "", {"0.png": EIGHT}, [EIGHT]),
}  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CASES)
def test_every_reader_takes_the_type_from_the_layout(tmp_path: Path, name: str) -> None:
    dtype, extra, more, files, stored = CASES[name]
    source, out = folder_of(tmp_path, files), tmp_path / "out"
    settings: dict[str, Any] = {"depth": "keep", "layout": layout_of(dtype, extra, more), "shards": 1}
    if "fill: shape" not in more:
        settings["resize"] = "14x9"
    convert(input=source, output=str(out), verify="full", **settings)
    document = json.loads((out / "dataset.json").read_text())
    assert document["dtypes"] == {dtype: len(files)}
    encoded, *others = document["features"]
    assert encoded["dtype"] == dtype and "dtype" not in {feature["fill"] for feature in others}
    assert main(["validate", "--dataset", str(out), "--against", source]) == 0

    opened = Records(out)
    expected = [stored[int(Path(key).stem)] for key in opened.keys]
    for number, pixels in enumerate(expected):
        assert opened.image(number).dtype == dtype
        np.testing.assert_array_equal(opened.image(number), pixels)
    readers = [
        loader.load(out, batch_size=None, shuffle=False, as_dict=True).as_numpy_iterator(),
        module_of(out / "parse.py").load("train").as_numpy_iterator(),
    ]
    for reader, feature in zip(readers, ("image", "x")):
        for example, pixels in zip(reader, expected, strict=True):
            assert example[feature].dtype == dtype
            np.testing.assert_array_equal(example[feature], pixels)
    builder = tfds.builder_from_directory(out)
    if "resize" in settings and not extra:
        assert builder.info.features["x"].np_dtype == dtype
        config = tfds.ReadConfig(interleave_cycle_length=1)
        for example, pixels in zip(builder.as_dataset("train", read_config=config), expected, strict=True):
            np.testing.assert_array_equal(example["x"].numpy(), pixels)
    # The dataset is read again as a source, and its reports are drawn.
    convert(input=str(out), output=str(tmp_path / "again"), verify="none", **settings)
    assert (tmp_path / "again" / SHARD).stat().st_size == (out / SHARD).stat().st_size
    np.testing.assert_array_equal(Records(tmp_path / "again").image(0), opened.image(0))
    assert main(["report", "--dataset", str(out), "--output", str(tmp_path / "report.html")]) == 0


def module_of(path: Path) -> Any:
    place = importlib.util.spec_from_file_location("parse_of_stated_dtype", path)
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("dtype", "kept", "lost"),
    [("uint8", "eight.png", {"uint16", "float32"}), ("uint16", "deep.png", {"float32"}),
     ("float32", "floats.tif", {"uint8", "uint16"})],
)  # fmt: skip
def test_images_that_would_lose_information_are_quarantined(
    tmp_path: Path, dtype: str, kept: str, lost: set[str]
) -> None:
    source = folder_of(tmp_path, {"eight.png": EIGHT, "deep.png": DEEP, "floats.tif": FLOATS})
    convert(
        input=source, output=str(tmp_path / "out"), depth="keep", resize="14x9", max_bad_fraction=0.9,
        layout=layout_of(dtype), verify="full",
    )  # fmt: skip
    lines = (tmp_path / "out" / "quarantine.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert {item["reason"] for item in found} == {"WRONG_DTYPE"}
    messages = {f"its samples are {other}, and the layout stores {dtype}" for other in lost}
    assert {item["message"].partition(";")[0] for item in found} == messages
    assert f"a/{kept}" in Records(tmp_path / "out").keys


def test_many_channels(tmp_path: Path) -> None:
    bands = RANDOM.integers(0, 256, (9, 14, 5), np.uint8)
    np.save(tmp_path / "x_train.npy", bands[None])
    for depth, dtype, factor in (("8", "uint8", 1), ("keep", "uint16", 257)):
        out = tmp_path / dtype
        convert(
            input=str(tmp_path / "x_train.npy"), output=str(out), channels=5, depth=depth, resize="14x9",
            layout=inline_layout(parse_layout_file(
                f"pixels: true\nneeds: image\nfeatures: {{x: {{fill: encoded, dtype: {dtype}}}}}", "b.yaml"
            )), verify="full", splits="train=1",
        )  # fmt: skip
        np.testing.assert_array_equal(
            Records(out).image(0), bands.astype(dtype) * np.dtype(dtype).type(factor)
        )


def test_validation_finds_pixels_of_another_type(tmp_path: Path) -> None:
    source = folder_of(tmp_path, {"0.png": DEEP, "1.png": EIGHT})
    out = tmp_path / "out"
    convert(input=source, output=str(out), depth="keep", resize="14x9", layout=layout_of("uint16"), shards=1)
    rewrite(out, set_text("x", EIGHT.tobytes()), 0, SHARD)
    found = [item for item in validate(out, mode="full").findings if item.code not in NOTES]
    assert [item.code.value for item in found] == ["SIZE_MISMATCH"]
    assert "378 raw bytes are not 9 x 14 x 3 of uint16" in found[0].message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layout": layout_of("uint16")}, "have the type uint16, but .* add --depth keep.$"),
        ({"layout": layout_of("uint8")}, "add --depth keep, or leave dtype out"),
        ({"layout": layout_of("uint16"), "channels": 4}, "have the type uint16, but .* add --depth keep.$"),
    ],
)
def test_a_type_needs_the_depth_of_the_images(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ConvertSettings(input=("in",), resize="8", **settings).check()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("features: {x: {fill: encoded, dtype: uint16}, y: {fill: label}}", "with pixels: true"),
        (
            "pixels: true\nfeatures: {x: {fill: encoded}, y: {fill: label, dtype: uint16}}",
            "with pixels: true",
        ),
        ("pixels: true\nfeatures: {x: {fill: encoded, dtype: int16}}", "'int16' is not one of uint8, uint16"),
        (
            "pixels: true\nfeatures: {x: {fill: encoded, dtype: uint16, tensor: true}}",
            "leave tensor or dtype",
        ),
        (
            "extends: raw\nfeatures: {x: {fill: encoded, dtype: uint16}}",
            "state different types; give all of them the same dtype",
        ),
    ],
)
def test_wrong_layout_files(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_layout_file(text, "bare.yaml")
