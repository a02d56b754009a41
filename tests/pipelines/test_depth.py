"""`--depth keep` and `--channels` from the command to the records, the ledgers and `dataset.json`."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from helpers.pictures import file_of, rgb_pixels
from PIL import Image

from shardwright.pipelines.convert import convert
from shardwright.pipelines.rebuild import rebuild
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.example import parse_example
from shardwright.schemas.layouts import inline_layout
from shardwright.schemas.layouts.layout_file import parse_layout_file
from shardwright.schemas.ledger import load_ledger

RANDOM = np.random.default_rng(3)
DEEP = RANDOM.integers(0, 65536, (9, 14, 3), np.uint16)
FLOATS = RANDOM.normal(size=(9, 14)).astype(np.float32)
TENSOR = inline_layout(
    parse_layout_file(
        "pixels: true\nfeatures: {x: {fill: encoded, tensor: true}, y: {fill: label}}", "t.yaml"
    )
)
BANDS = RANDOM.integers(0, 65536, (9, 14, 6), np.uint16)


def tiff_of(pixels: np.ndarray, **options: Any) -> bytes:
    out = io.BytesIO()
    tifffile.imwrite(out, pixels, **options)
    return out.getvalue()


def folder_of(root: Path, files: dict[str, bytes]) -> str:
    for name, data in files.items():
        path = root / "in" / "a" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return str(root / "in")


def records(dataset: Path) -> dict[str, dict[str, Any]]:
    """Returns the records of a dataset of one shard by the stems of their keys, or by keys with an !."""
    shard = (dataset / "train-00000-of-00001.tfrecord").read_bytes()
    _, entries = load_ledger((dataset / "_shards" / "train-00000-of-00001.jsonl.gz").read_bytes())
    found = {}
    for entry in entries:
        if entry.offset is not None and entry.length is not None:
            example = parse_example(shard[entry.offset + 12 : entry.offset + entry.length - 4])
            name = entry.key if "!" in entry.key else Path(entry.key).stem
            found[name] = {feature: item.values[0] for feature, item in example.items()}
    return found


def test_each_image_keeps_its_type(tmp_path: Path) -> None:
    files = {
        "photo.jpg": file_of(Image.fromarray(rgb_pixels()), "JPEG"),
        "scan.png": bytes(imagecodecs.png_encode(DEEP)),
        "slide.tif": tiff_of(DEEP, photometric="rgb", compression="zlib"),
        "height.tif": tiff_of(FLOATS),
    }
    source, out = folder_of(tmp_path, files), tmp_path / "out"
    convert(input=source, output=str(out), depth="keep", color="keep", verify="none")
    document = json.loads((out / "dataset.json").read_text())
    assert document["dtypes"] == {"float32": 1, "uint16": 2, "uint8": 1}
    assert document["settings"]["depth"] == "keep" and "channels" not in document["settings"]
    header, entries = load_ledger((out / "_shards" / "train-00000-of-00001.jsonl.gz").read_bytes())
    assert header.dtypes == document["dtypes"]
    assert {entry.key: entry.dtype for entry in entries}["a/height.tif"] == "float32"
    found = records(out)
    types = {name: (record["image/format"], record["image/dtype"]) for name, record in found.items()}
    assert types == {
        "photo": (b"jpg", b"uint8"),
        "scan": (b"png", b"uint16"),
        "slide": (b"png", b"uint16"),
        "height": (b"raw", b"float32"),
    }
    assert found["scan"]["image/encoded"] == files["scan.png"]
    assert np.array_equal(imagecodecs.png_decode(found["slide"]["image/encoded"]), DEEP)
    assert found["height"]["image/encoded"] == FLOATS.astype("<f4").tobytes()
    assert [found["height"][f"image/{name}"] for name in ("height", "width", "channels")] == [9, 14, 1]
    # A record without a feature for it stores the shape beside the type.
    convert(input=source, output=str(tmp_path / "tfds"), depth="keep", layout="tfds", verify="none")
    names = json.loads((tmp_path / "tfds" / "dataset.json").read_text())["features"]
    assert [item["name"] for item in names] == ["image", "label", "dtype", "channels", "height", "width"]


def test_channels_and_images_with_others(tmp_path: Path) -> None:
    files = {
        "field.tif": tiff_of(BANDS, photometric="minisblack", planarconfig="contig"),
        "town.tif": tiff_of(np.moveaxis(BANDS, -1, 0), photometric="minisblack", planarconfig="separate"),
        "photo.jpg": file_of(Image.fromarray(rgb_pixels()), "JPEG"),
    }
    source, out = folder_of(tmp_path, files), tmp_path / "out"
    settings = {"input": source, "channels": 6, "max_bad_fraction": 0.5, "verify": "none"}
    convert(**settings, output=str(out), depth="keep")
    document = json.loads((out / "dataset.json").read_text())
    assert document["dtypes"] == {"uint16": 2} and document["formats"] == {"train": {"raw": 2}}
    found = records(out)
    for name in ("field", "town"):
        assert found[name]["image/encoded"] == BANDS.astype("<u2").tobytes()
        assert found[name]["image/channels"] == 6
    (line,) = (out / "quarantine.jsonl").read_text().splitlines()
    assert json.loads(line)["reason"] == "WRONG_CHANNELS"
    convert(**settings, output=str(tmp_path / "narrow"), resize=8)
    record = records(tmp_path / "narrow")["town"]
    assert record["image/dtype"] == b"uint8" and len(record["image/encoded"]) == 8 * 8 * 6


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("shape", "dtype", "settings", "stored"),
    [
        ((9, 14, 3), ">u2", {}, "uint16"),
        ((9, 14), "<f8", {"color": "gray"}, "float32"),
        ((9, 14), "<i2", {"color": "gray"}, "float32"),
        ((9, 14), "|b1", {"color": "gray"}, "uint8"),
        ((9, 14, 5), "<f2", {"channels": 5}, "float32"),
        ((5, 9, 14), "<u2", {"channels": 5}, "uint16"),
        ((9, 14, 4), "|u1", {"channels": 4}, "uint8"),
    ],
    ids=str,
)
def test_arrays(
    tmp_path: Path, shape: tuple[int, ...], dtype: str, settings: dict[str, Any], stored: str
) -> None:
    images = (RANDOM.random((3, *shape)) * 200 - 100 * (dtype[1] in "if")).astype(dtype)
    np.save(tmp_path / "x_train.npy", images)
    np.save(tmp_path / "y_train.npy", np.arange(3))
    settings = {"depth": "keep", "image_format": "raw", "splits": "train=1", "verify": "none", **settings}
    convert(input=str(tmp_path / "x_train.npy"), output=str(tmp_path / "out"), shards=1, **settings)
    if len(shape) == 3 and shape[0] == 5:
        images = np.moveaxis(images, 1, -1)
    for number, name in enumerate(sorted(found := records(tmp_path / "out"))):
        assert found[name]["image/dtype"] == stored.encode()
        pixels = images[number] * 255 if dtype == "|b1" else images[number]
        assert found[name]["image/encoded"] == pixels.astype(np.dtype(stored).newbyteorder("<")).tobytes()
    # The dataset is read again as a source, with the same pixels.
    again = {name: value for name, value in settings.items() if name != "splits"}
    convert(input=str(tmp_path / "out"), output=str(tmp_path / "again"), shards=1, **again)
    copied = {record["image/encoded"] for record in records(tmp_path / "again").values()}
    assert copied == {record["image/encoded"] for record in found.values()}


def test_near_duplicates_dark_pictures_and_rebuilds(tmp_path: Path) -> None:
    y, x = np.mgrid[:90, :120]
    smooth = (30000 + 25000 * np.sin(x / 9) * np.cos(y / 13)).astype(np.uint16)
    smaller = np.asarray(Image.fromarray(smooth.astype(np.float32)).resize((96, 72))).astype(np.uint16)
    files = {"large.tif": tiff_of(smooth), "small.tif": tiff_of(smaller), "dark.tif": tiff_of(smooth // 900)}
    source = folder_of(tmp_path, files)
    settings = {"depth": "keep", "color": "gray", "dedupe": "near", "drop": "DARK", "verify": "none"}
    convert(input=source, output=str(tmp_path / "out"), **settings)
    assert set(records(tmp_path / "out")) == {"large"}
    ledger = json.loads((tmp_path / "out" / "dataset.json").read_text())["ledger"]
    assert (ledger["deduplicated"], ledger["filtered"]) == (1, 1)


@pytest.mark.slow
def test_rebuilds_copy_unchanged_records_and_equal_a_full_build(tmp_path: Path) -> None:
    files = {f"{number}.tif": tiff_of(DEEP + number, photometric="rgb") for number in range(6)}
    source = folder_of(tmp_path, {**files, "height.tif": tiff_of(FLOATS)})
    settings = {"input": source, "depth": "keep", "resize": "8", "shards": 2, "verify": "full"}
    rebuild(**settings, output=str(tmp_path / "versions"))
    folder_of(tmp_path, {"3.tif": tiff_of(DEEP * 2, photometric="rgb"), "new.tif": tiff_of(FLOATS * 2)})
    made = rebuild(**settings, output=str(tmp_path / "versions"))
    convert(**settings, output=str(tmp_path / "whole"), plan_from=str(Path(made.path) / "dataset.json"))
    names = ["dataset.json", *(path.name for path in (tmp_path / "whole").glob("*.tfrecord"))]
    assert len(names) == 3
    for name in names[1:]:
        assert (Path(made.path) / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    documents = [json.loads((path / names[0]).read_text()) for path in (Path(made.path), tmp_path / "whole")]
    assert documents[0]["dtypes"] == documents[1]["dtypes"] == {"float32": 2, "uint16": 6}
    assert documents[0]["fingerprint"] == documents[1]["fingerprint"]


def test_masks_follow_the_orientation_and_padding_of_deep_pictures(tmp_path: Path) -> None:
    mask = np.zeros((9, 14), np.uint8)
    mask[:4, :5] = 1
    orientation = [(274, "H", 1, 6, True)]
    folder_of(tmp_path, {"x.tif": tiff_of(DEEP, photometric="rgb", extratags=orientation)})
    (tmp_path / "masks" / "a").mkdir(parents=True)
    # The mask is that of the upright picture.
    Image.fromarray(np.rot90(mask, -1)).save(tmp_path / "masks" / "a" / "x.png")
    convert(
        input=str(tmp_path / "in"), output=str(tmp_path / "out"), mask_dir=str(tmp_path / "masks"),
        source="semantic_masks", layout="segmentation", depth="keep", resize="9x18", fit="pad", verify="full",
    )  # fmt: skip
    record = records(tmp_path / "out")["x"]
    pixels = imagecodecs.png_decode(record["image/encoded"])
    assert np.array_equal(pixels[2:16], np.rot90(DEEP, -1)) and (pixels[:2] == 65535).all()
    stored = imagecodecs.png_decode(record["image/segmentation/class/encoded"])
    assert np.array_equal(stored[2:16], np.rot90(mask, -1)) and (stored[:2] == 255).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": "keep", "image_format": "jpeg"}, "stores 8 bits per channel"),
        ({"depth": "keep", "image_format": "webp"}, "stores 8 bits per channel"),
        ({"channels": 4, "image_format": "png"}, "stored as raw pixels"),
        ({"channels": 1}, "--color gray"),
        ({"channels": 17}, "--channels 17"),
        ({"depth": "keep", "map": "a:b"}, "leave --depth keep out"),
        ({"channels": 4, "map": "a:b"}, "leave --channels 4 out"),
        ({"depth": "keep", "layout": TENSOR}, "tensor: true"),
        ({"depth": "16"}, "choose one of 8, keep"),
    ],
    ids=str,
)
def test_settings_that_contradict_each_other(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ConvertSettings(input=("in",), **settings).check()


def test_datasets_without_the_settings_do_not_mention_them(tmp_path: Path) -> None:
    source = folder_of(tmp_path, {"scan.png": bytes(imagecodecs.png_encode(DEEP))})
    convert(input=source, output=str(tmp_path / "out"))
    document = json.loads((tmp_path / "out" / "dataset.json").read_text())
    assert "dtypes" not in document and not {"depth", "channels"} & document["settings"].keys()
    (ledger,) = (tmp_path / "out" / "_shards").glob("*.jsonl.gz")
    header, entries = load_ledger(ledger.read_bytes())
    assert "dtypes" not in header.as_json() and "dtype" not in next(iter(entries)).as_json()
