"""`--depth keep`, `--channels` and `--white` from the command to the records, ledgers and `dataset.json`."""

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

from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.schemas.configuration.layout_file import parse_layout_file
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.example import parse_example
from shardwright.schemas.layouts import inline_layout
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
        ({"depth": "keep", "white": 4095}, "leave one of them out"),
        ({"white": 65536}, "--white 65536"),
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


#: A 12-bit scan in 16 bits, gray and RGB. 2056 is where rounding twice would differ.
SCAN = RANDOM.integers(0, 3401, (9, 14, 3), np.uint16)
SCAN[0, 0] = 2056, 3400, 0


def scans(root: Path, pixels: np.ndarray = SCAN) -> str:
    """Writes 16-bit pictures of all kinds that can be scaled, and one of 8 bits."""
    gray = np.ascontiguousarray(pixels[..., 0])
    planes = np.moveaxis(pixels, -1, 0).copy()
    return folder_of(
        root,
        {
            "gray_png.png": bytes(imagecodecs.png_encode(gray)),
            "rgb_png.png": bytes(imagecodecs.png_encode(pixels)),
            "gray_tiff.tif": tiff_of(gray, photometric="minisblack", compression="zlib"),
            "rgb_tiff.tif": tiff_of(pixels, photometric="rgb", byteorder=">"),
            "rgb_planes.tif": tiff_of(planes, photometric="rgb", planarconfig="separate"),
            "gray_signed.tif": tiff_of(gray.astype(np.int16), photometric="minisblack"),
            "rgb_ppm.ppm": b"P6 14 9 65535\n" + pixels.astype(">u2").tobytes(),
            "rgb_jp2.jp2": bytes(imagecodecs.jpeg2k_encode(pixels, level=0, reversible=True)),
            "small.jpg": file_of(Image.fromarray(rgb_pixels()), "JPEG"),
        },
    )


@pytest.mark.parametrize("command", ["convert", "plan", "rebuild"])
def test_sixteen_bits_that_would_be_dark_stop_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    source, out = scans(tmp_path), tmp_path / "out"
    output = [] if command == "plan" else ["--output", str(out)]
    assert main([command, "--input", source, *output]) == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "--white" in line)
    assert "8 16-bit images tried run up to 3400 only, but white is 65535" in line
    assert "--depth keep, or state the sample that is white with --white 4095 (--white 65535 if" in line
    assert not list(out.glob("**/*.tfrecord")) and not list(out.glob("**/dataset.json"))
    for option in ("--white=4095", "--depth=keep", "--white=65535"):
        assert main(["plan", "--input", source, option]) == 0


def test_one_bright_scan_shows_that_the_range_is_used(tmp_path: Path) -> None:
    for name, highest in (("below", 0xBFFF), ("above", 0xC000)):
        pixels = SCAN.copy()
        pixels[4, 4, 1] = highest
        source = folder_of(tmp_path / name, {"a.png": bytes(imagecodecs.png_encode(pixels))})
        assert main(["plan", "--input", source]) == (2 if name == "below" else 0)


def test_opaque_alpha_is_not_bright(tmp_path: Path) -> None:
    alpha = np.full((9, 14, 1), 65535, np.uint16)
    pixels = np.concatenate([SCAN, alpha], axis=-1)
    pixels[:, :7, 3] = 0
    source = folder_of(tmp_path, {"a.png": bytes(imagecodecs.png_encode(pixels))})
    assert main(["plan", "--input", source]) == 2
    out = tmp_path / "out"
    convert(input=source, output=str(out), white=4095, image_format="png", background="#102030")
    found = imagecodecs.png_decode(records(out)["a"]["image/encoded"])
    assert (found[:, :7] == (0x10, 0x20, 0x30)).all()
    assert np.array_equal(found[:, 7:], in_8_bits(SCAN, 4095)[:, 7:])


def in_8_bits(pixels: np.ndarray, white: int) -> np.ndarray:
    return np.floor(pixels * (255 / white) + 0.5).astype(np.uint8)


@pytest.mark.parametrize("white", [4095, 3400, 65535])
def test_white_scales_every_kind_of_sixteen_bits(tmp_path: Path, white: int) -> None:
    source, out = scans(tmp_path), tmp_path / "out"
    convert(input=source, output=str(out), white=white, image_format="png", verify="full")
    found = records(out)
    assert len(found) == 9
    assert json.loads((out / "dataset.json").read_text())["settings"]["white"] == white
    for name, record in found.items():
        pixels = imagecodecs.png_decode(record["image/encoded"])
        if name == "small":
            continue
        expected = SCAN if name.startswith("rgb") else SCAN[..., :1].repeat(3, -1)
        assert np.array_equal(
            pixels, in_8_bits(expected, min(white, 32767) if "signed" in name else white)
        ), name


def test_samples_above_white_are_quarantined(tmp_path: Path) -> None:
    source, out = scans(tmp_path), tmp_path / "out"
    convert(input=source, output=str(out), white=3399, image_format="png", max_bad_fraction=1)
    assert records(out).keys() >= {"small"}
    lines = [json.loads(line) for line in (out / "quarantine.jsonl").read_text().splitlines()]
    assert {line["reason"] for line in lines} == {"UNSUPPORTED_FORMAT"}
    assert len(lines) == sum((SCAN[..., 0] > 3399).any() or "rgb" in line["key"] for line in lines)
    rgb = [line for line in lines if "rgb" in line["key"]]
    assert len(rgb) == 5
    assert all(line["message"].startswith("it has a sample of 3400, but white is 3399; give") for line in rgb)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_white_scales_arrays(tmp_path: Path, channels: int) -> None:
    pixels = np.concatenate([SCAN, np.full((9, 14, 1), 65535, np.uint16)], axis=-1)[None, ..., :channels]
    (tmp_path / "in").mkdir()
    np.savez(tmp_path / "in" / "a.npz", x=pixels, y=[0])
    source, out = str(tmp_path / "in" / "a.npz"), tmp_path / "out"
    assert main(["plan", "--input", source]) == 2
    convert(input=source, output=str(out), white=4095, image_format="png")
    (record,) = records(out).values()
    expected = SCAN[..., :1].repeat(3, -1) if channels == 1 else SCAN
    assert np.array_equal(imagecodecs.png_decode(record["image/encoded"]), in_8_bits(expected, 4095))


def test_white_reaches_channels_and_near_duplicates(tmp_path: Path) -> None:
    bands = RANDOM.integers(0, 4096, (9, 14, 5), np.uint16)
    source = folder_of(tmp_path, {"a.tif": tiff_of(bands, photometric="minisblack", planarconfig="contig")})
    convert(input=source, output=str(tmp_path / "out"), channels=5, white=4095)
    (record,) = records(tmp_path / "out").values()
    found = np.frombuffer(record["image/encoded"], np.uint8).reshape(bands.shape)
    assert np.array_equal(found, in_8_bits(bands, 4095))
    convert(input=scans(tmp_path / "b"), output=str(tmp_path / "near"), white=4095, dedupe="near")
    ledger = json.loads((tmp_path / "near" / "dataset.json").read_text())["ledger"]
    assert ledger["deduplicated"] > 0
