"""`--depth keep`, `--channels`, `--white` and the `dtype` of layouts, from the command to every reader."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from helpers import pictures
from helpers.annotated import annotated, saved
from helpers.depths import compared, findings_of
from helpers.described import parse_module
from helpers.fewer_imports import late
from helpers.hostile import flip
from helpers.listing import Listed, found_in
from helpers.pictures import file_of, rgb_pixels, tiff_of
from helpers.planting import rewrite, write_ledger, written_lines
from helpers.resealing import put, read_shard, settle
from PIL import Image

from shardwright import loader
from shardwright.core.dedupe import hash_picture
from shardwright.loader import Records
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.salvage import salvage
from shardwright.pipelines.validate import validate
from shardwright.schemas.annotations import Annotations
from shardwright.schemas.configuration.layout_file import parse_layout_file
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.example import parse_example
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.layouts import inline_layout
from shardwright.schemas.ledger import load_ledger

RANDOM = np.random.default_rng(3)
DEEP = RANDOM.integers(0, 65536, (9, 14, 3), np.uint16)
FLOATS = RANDOM.normal(size=(9, 14)).astype(np.float32)
STATED = inline_layout(parse_layout_file("extends: tfds\nfeatures: {t: {fill: dtype}}", "stated.yaml"))
_OF_TENSORS = "pixels: true\nfeatures: {x: {fill: encoded, tensor: true}, y: {fill: label}}"
TENSOR = inline_layout(parse_layout_file(_OF_TENSORS, "t.yaml"))
BANDS = RANDOM.integers(0, 65536, (9, 14, 6), np.uint16)


def png_of(pixels: np.ndarray) -> bytes:
    return bytes(imagecodecs.png_encode(np.ascontiguousarray(np.squeeze(pixels))))


def folder_of(root: Path, files: Mapping[str, Any]) -> str:
    """Writes files of a class: their bytes, or pixels as PNG, or as TIFF with the channels last."""
    for name, data in files.items():
        path = root / "in" / "a" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(data, bytes):
            path.write_bytes(data)
        elif name.endswith(".png"):
            path.write_bytes(png_of(data))
        else:
            photometric = "rgb" if data.shape[2:] == (3,) else "minisblack"
            contiguous = {"planarconfig": "contig"} if data.shape[2:] > (1,) else {}
            path.write_bytes(tiff_of(np.squeeze(data), photometric=photometric, **contiguous))
    return str(root / "in")


def records(dataset: Path) -> dict[str, dict[str, Any]]:
    """Returns the records of a dataset of one shard by the stems of their keys."""
    keys = [Path(line["key"]).stem for line in written_lines(dataset, SHARD)]
    return dict(zip(keys, map(features_of, read_shard(dataset / SHARD)), strict=True))


def features_of(record: bytes) -> dict[str, Any]:
    return {name: item.values[0] for name, item in parse_example(record).items()}


def converted(place: str | Path, spool: Path, layout: str = "classification", **settings: Any) -> list[Any]:
    """Converts images without Beam; returns the features of their records in the order of the keys."""
    item, found = found_in(place, {"layout": layout, **settings}, spool=spool)
    refs = {ref.key: ref for ref in found if isinstance(ref, ImageRef)}
    chosen = ConvertSettings((str(place),), layout=layout, **settings)
    made = Listed(refs, {}, item, chosen).converted()
    return [features_of(made[key].example) for key in sorted(made)]


def test_each_image_keeps_its_type(tmp_path: Path) -> None:
    files = {
        "photo.jpg": file_of(Image.fromarray(rgb_pixels()), "JPEG"),
        "scan.png": DEEP,
        "slide.tif": tiff_of(DEEP, photometric="rgb", compression="zlib"),
        "height.tif": FLOATS,
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
    assert found["scan"]["image/encoded"] == Path(source, "a", "scan.png").read_bytes()
    assert np.array_equal(imagecodecs.png_decode(found["slide"]["image/encoded"]), DEEP)
    assert found["height"]["image/encoded"] == FLOATS.astype("<f4").tobytes()
    assert [found["height"][f"image/{name}"] for name in ("height", "width", "channels")] == [9, 14, 1]
    # A record without a feature for it stores the shape beside the type.
    record, *_ = converted(source, tmp_path, "tfds", depth="keep")
    assert sorted(record) == ["channels", "dtype", "height", "image", "label", "width"]


def test_channels_and_images_with_others(tmp_path: Path) -> None:
    files = {
        "field.tif": BANDS,
        "town.tif": tiff_of(np.moveaxis(BANDS, -1, 0), photometric="minisblack", planarconfig="separate"),
        "photo.jpg": file_of(Image.fromarray(rgb_pixels()), "JPEG"),
    }
    source, out = folder_of(tmp_path, files), tmp_path / "out"
    convert(input=source, output=str(out), max_bad_fraction=0.5, channels=6, depth="keep", verify="none")
    document = json.loads((out / "dataset.json").read_text())
    assert document["dtypes"] == {"uint16": 2} and document["formats"] == {"train": {"raw": 2}}
    # The dataset is read again as a source, with the same pixels.
    found = [*records(out).values(), *converted(out, tmp_path, depth="keep", channels=6)]
    assert len(found) == 4
    for record in found:
        assert record["image/encoded"] == BANDS.astype("<u2").tobytes()
        assert record["image/channels"] == 6
    (line,) = (out / "quarantine.jsonl").read_text().splitlines()
    assert json.loads(line)["reason"] == "WRONG_CHANNELS"


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
    settings = {"depth": "keep", "image_format": "raw", **settings}
    if len(shape) == 3 and shape[0] == 5:
        images = np.moveaxis(images, 1, -1)
    for record, image in zip(converted(tmp_path / "x_train.npy", tmp_path, **settings), images, strict=True):
        assert record["image/dtype"] == stored.encode()
        pixels = image * 255 if dtype == "|b1" else image
        assert record["image/encoded"] == pixels.astype(np.dtype(stored).newbyteorder("<")).tobytes()


def test_near_duplicates_dark_pictures_and_rebuilds(tmp_path: Path) -> None:
    y, x = np.mgrid[:90, :120]
    smooth = (30000 + 25000 * np.sin(x / 9) * np.cos(y / 13)).astype(np.uint16)
    smaller = np.asarray(Image.fromarray(smooth.astype(np.float32)).resize((96, 72))).astype(np.uint16)
    source = folder_of(tmp_path, {"large.tif": smooth, "small.tif": smaller, "dark.tif": smooth // 900})
    settings = {"depth": "keep", "color": "gray", "dedupe": "near", "drop": "DARK", "verify": "none"}
    convert(input=source, output=str(tmp_path / "out"), **settings)
    assert set(records(tmp_path / "out")) == {"large"}
    ledger = json.loads((tmp_path / "out" / "dataset.json").read_text())["ledger"]
    assert (ledger["deduplicated"], ledger["filtered"]) == (1, 1)


def test_masks_follow_the_orientation_and_padding_of_deep_pictures(tmp_path: Path) -> None:
    mask = np.zeros((9, 14), np.uint8)
    mask[:4, :5] = 1
    data = tiff_of(DEEP, photometric="rgb", extratags=[(274, "H", 1, 6, True)])
    of_upright = Annotations(semantic_mask=saved(tmp_path / "x.png", np.rot90(mask, -1)))
    image, result = annotated(data, of_upright, "segmentation", depth="keep", resize="9x18", fit="pad")
    pixels = imagecodecs.png_decode(image.encoded)
    assert np.array_equal(pixels[2:16], np.rot90(DEEP, -1)) and (pixels[:2] == 65535).all()
    stored = imagecodecs.png_decode(result.values["semantic_mask"][0])
    assert np.array_equal(stored[2:16], np.rot90(mask, -1)) and (stored[:2] == 255).all()


#: A 12-bit scan in 16 bits, gray and RGB. 2056 is where rounding twice would differ.
SCAN = RANDOM.integers(0, 3401, (9, 14, 3), np.uint16)
SCAN[0, 0] = 2056, 3400, 0


GRAY_SCAN = SCAN[..., 0].copy()
#: 16-bit pictures of all kinds that can be scaled.
SCANS = {
    "gray_png.png": png_of(GRAY_SCAN),
    "rgb_png.png": png_of(SCAN),
    "gray_tiff.tif": tiff_of(GRAY_SCAN, compression="zlib"),
    "rgb_tiff.tif": tiff_of(SCAN, photometric="rgb", byteorder=">"),
    "rgb_planes.tif": tiff_of(np.moveaxis(SCAN, -1, 0).copy(), photometric="rgb", planarconfig="separate"),
    "gray_signed.tif": tiff_of(GRAY_SCAN.astype(np.int16)),
    "rgb_ppm.ppm": b"P6 14 9 65535\n" + SCAN.astype(">u2").tobytes(),
    "rgb_jp2.jp2": bytes(imagecodecs.jpeg2k_encode(SCAN, level=0, reversible=True)),
}


@pytest.mark.parametrize("command", ["convert", "plan", "rebuild"])
def test_sixteen_bits_that_would_be_dark_stop_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    photo = file_of(Image.fromarray(rgb_pixels()), "JPEG")
    source, out = folder_of(tmp_path, {**SCANS, "small.jpg": photo}), tmp_path / "out"
    output = [] if command == "plan" else ["--output", str(out)]
    assert main([command, "--input", source, *output]) == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "--white" in line)
    assert "8 16-bit images tried run up to 3400 only, but white is 65535" in line
    assert "--depth keep, or state the sample that is white with --white 4095 (--white 65535 if" in line
    assert not list(out.glob("**/*.tfrecord")) and not list(out.glob("**/dataset.json"))


def test_sixteen_bits_are_planned_if_they_are_kept_or_one_scan_is_bright(tmp_path: Path) -> None:
    assert main(["plan", "--input", folder_of(tmp_path, SCANS), "--depth=keep"]) == 0
    for name, highest in (("below", 0xBFFF), ("above", 0xC000)):
        pixels = SCAN.copy()
        pixels[4, 4, 1] = highest
        source = folder_of(tmp_path / name, {"a.png": pixels})
        assert main(["plan", "--input", source]) == (2 if name == "below" else 0)


def test_opaque_alpha_is_not_bright(tmp_path: Path) -> None:
    alpha = np.full((9, 14, 1), 65535, np.uint16)
    pixels = np.concatenate([SCAN, alpha], axis=-1)
    pixels[:, :7, 3] = 0
    source = folder_of(tmp_path, {"a.png": pixels})
    assert main(["plan", "--input", source]) == 2
    out = tmp_path / "out"
    settings = {"white": 4095, "image_format": "png", "background": "#102030", "verify": "none"}
    assert not convert(input=source, output=str(out), **settings).notes  # the background is seen
    assert json.loads((out / "dataset.json").read_text())["settings"]["white"] == 4095
    found = imagecodecs.png_decode(records(out)["a"]["image/encoded"])
    assert (found[:, :7] == (0x10, 0x20, 0x30)).all()
    assert np.array_equal(found[:, 7:], in_8_bits(SCAN, 4095)[:, 7:])


def in_8_bits(pixels: np.ndarray, white: int) -> np.ndarray:
    return np.floor(pixels * (255 / white) + 0.5).astype(np.uint8)


@pytest.mark.parametrize("white", [4095, 3400, 65535])
def test_white_scales_every_kind_of_sixteen_bits(white: int) -> None:
    for name, data in SCANS.items():
        expected = SCAN if name.startswith("rgb") else SCAN[..., :1].repeat(3, -1)
        scaled = in_8_bits(expected, min(white, 32767) if "signed" in name else white)
        assert np.array_equal(pictures.to_png(data, name, white=white), scaled), name


def test_samples_above_white_are_refused() -> None:
    for name, data in SCANS.items():
        if "rgb" in name or (SCAN[..., 0] > 3399).any():
            fault = pictures.fault(data, name, white=3399)
            assert fault.reason == "UNSUPPORTED_FORMAT", name
            assert fault.message.startswith("it has a sample of 3400, but white is 3399; give"), name


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_white_scales_arrays(tmp_path: Path, channels: int) -> None:
    pixels = np.concatenate([SCAN, np.full((9, 14, 1), 65535, np.uint16)], axis=-1)[None, ..., :channels]
    source = tmp_path / "a.npz"
    np.savez(source, x=pixels, y=[0])
    assert main(["plan", "--input", str(source)]) == 2
    settings = {"white": 4095, "image_format": "png"}
    (record,) = converted(source, tmp_path, **settings)
    expected = SCAN[..., :1].repeat(3, -1) if channels == 1 else SCAN
    assert np.array_equal(imagecodecs.png_decode(record["image/encoded"]), in_8_bits(expected, 4095))


def test_white_reaches_channels_and_near_duplicates() -> None:
    bands = RANDOM.integers(0, 4096, (9, 14, 5), np.uint16)
    image = pictures.convert(tiff_of(bands, planarconfig="contig"), "a.tif", channels=5, white=4095)
    assert np.array_equal(np.frombuffer(image.encoded, np.uint8), in_8_bits(bands, 4095).ravel())
    seen = hash_picture(SCANS["rgb_png.png"], "a.png", ConvertSettings(("in",), white=4095))
    assert seen == hash_picture(png_of(in_8_bits(SCAN, 4095)), "a.png", ConvertSettings(("in",)))


tfds = late("tensorflow_datasets")

RGB_FLOATS = RANDOM.normal(size=(9, 14, 3)).astype(np.float32)
EIGHT = RANDOM.integers(0, 256, (9, 14, 3), np.uint8)
SHARD = "train-00000-of-00001.tfrecord"


def layout_of(dtype: str, extra: str = "", more: str = "") -> str:
    features = f"{{x: {{fill: encoded, dtype: {dtype}{extra}}}, y: {{fill: label}}{more}}}"
    return inline_layout(parse_layout_file(f"pixels: true\nfeatures: {features}", "bare.yaml"))


#: Name -> dtype, further keys of the feature, further features, sources, and what is stored of them.
CASES: dict[str, tuple[str, str, str, dict[str, np.ndarray], list[np.ndarray]]] = {
    "8 bits become 16": (
        "uint16", "", "",
        {"0.png": DEEP, "1.png": EIGHT, "2.tif": DEEP[::-1]}, [DEEP, EIGHT * np.uint16(257), DEEP[::-1]],
    ),
    "floats with a shape": (
        "float32", "", ", size: {fill: shape}",
        {"0.tif": RGB_FLOATS, "1.tif": -RGB_FLOATS}, [RGB_FLOATS, -RGB_FLOATS],
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
    convert(input=source, output=str(out), verify="none", **settings)
    document = json.loads((out / "dataset.json").read_text())
    assert document["dtypes"] == {dtype: len(files)}
    encoded, *others = document["features"]
    assert encoded["dtype"] == dtype and "dtype" not in {feature["fill"] for feature in others}
    assert not findings_of(out) and not compared(out, source)

    opened = Records(out)
    expected = [stored[int(Path(key).stem)] for key in opened.keys]
    for number, pixels in enumerate(expected):
        assert opened.image(number).dtype == dtype
        np.testing.assert_array_equal(opened.image(number), pixels)
    readers = [
        loader.load(out, batch_size=None, shuffle=False, as_dict=True).as_numpy_iterator(),
        parse_module(out).load("train").as_numpy_iterator(),
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
    # The dataset is read again as a source.
    again = converted(out, tmp_path, **settings)
    assert sorted(record["x"] for record in again) == sorted(record["x"] for record in records(out).values())


@pytest.mark.parametrize("stored", ["uint8", "uint16", "float32"])
def test_images_that_would_lose_information_are_refused(stored: str) -> None:
    images = {
        "uint8": png_of(EIGHT),
        "uint16": png_of(DEEP),
        "float32": tiff_of(RGB_FLOATS, photometric="rgb"),
    }
    settings = {"depth": "keep", "resize": "14x9", "layout": layout_of(stored)}
    for dtype, data in images.items():
        if stored == dtype or (dtype, stored) == ("uint8", "uint16"):
            assert pictures.convert(data, "a", **settings).dtype == stored
            continue
        fault = pictures.fault(data, "a", **settings)
        assert fault.reason == "WRONG_DTYPE"
        assert fault.message.startswith(f"its samples are {dtype}, and the layout stores {stored};")


def test_many_channels() -> None:
    bands = RANDOM.integers(0, 256, (9, 14, 5), np.uint8)
    for depth, dtype, factor in (("8", "uint8", 1), ("keep", "uint16", 257)):
        text = f"pixels: true\nneeds: image\nfeatures: {{x: {{fill: encoded, dtype: {dtype}}}}}"
        image = pictures.convert(
            tiff_of(bands, planarconfig="contig"), "a.tif", channels=5, depth=depth, resize="14x9",
            layout=inline_layout(parse_layout_file(text, "b.yaml")),
        )  # fmt: skip
        expected = bands.astype(dtype) * np.dtype(dtype).type(factor)
        assert image.dtype == dtype and image.encoded == expected.tobytes()


def test_validation_finds_pixels_of_another_type(tmp_path: Path) -> None:
    source = folder_of(tmp_path, {"0.png": DEEP, "1.png": EIGHT})
    out = tmp_path / "out"
    settings = {"depth": "keep", "resize": "14x9", "layout": layout_of("uint16"), "shards": 1}
    convert(input=source, output=str(out), verify="none", **settings)
    rewrite(out, put("x", EIGHT.tobytes()), 0, SHARD)
    (finding,) = findings_of(out)
    assert finding.code == "SIZE_MISMATCH"
    assert "378 raw bytes are not 9 x 14 x 3 of uint16" in finding.message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": "keep", "image_format": "jpeg"}, "stores 8 bits per channel"),
        ({"depth": "keep", "image_format": "webp"}, "stores 8 bits per channel"),
        ({"channels": 4, "image_format": "png"}, "stored as raw pixels; choose --image_format raw.$"),
        ({"layout": "raw", "image_format": "png"}, "stores bare pixels; choose --image_format raw, or a lay"),
        ({"channels": 1}, "--color gray"),
        ({"channels": 17}, "--channels 17"),
        ({"drop": "DARK", "map": "mine:crop"}, "let the function return DroppedImage"),
        ({"depth": "keep", "map": "a:b"}, "leave --depth keep out"),
        ({"channels": 4, "map": "a:b"}, "leave --channels 4 out"),
        ({"depth": "keep", "layout": TENSOR}, "tensor: true"),
        ({"depth": "16"}, "choose one of 8, keep"),
        ({"depth": "keep", "white": 4095}, "leave one of them out"),
        ({"white": 65536}, "--white 65536"),
        ({"layout": layout_of("uint16")}, "have the type uint16, but .* add --depth keep.$"),
        ({"layout": layout_of("uint8")}, "add --depth keep, or leave dtype out"),
        ({"layout": layout_of("uint16"), "channels": 4}, "have the type uint16, but .* add --depth keep.$"),
        ({"layout": STATED}, "Layout stated stores the type .* add --depth keep"),
    ],
    ids=str,
)
def test_settings_that_contradict_each_other(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ConvertSettings(input=("in",), resize="8", **settings).check()


SIDES = (12, 10)
CHANNELS = 5


def smooth(number: int, dtype: str, channels: int) -> np.ndarray:
    """Returns samples of a picture that looks like no other."""
    coarse = np.random.default_rng(number).integers(0, 256, (4, 4, channels), np.uint8)
    planes = [Image.fromarray(coarse[..., i]).resize(SIDES[::-1]) for i in range(channels)]
    pixels = np.stack([np.asarray(plane) for plane in planes], axis=-1)
    if dtype == "float32":
        return (pixels * np.float32(13.5) - 900).astype(np.float32)
    return pixels.astype(dtype) * (257 if dtype == "uint16" else 1)


DEEP_FILES = {f"deep{i}.png": smooth(i, "uint16", 3) for i in range(4)}
GRAY_FILES = {f"gray{i}.png": smooth(10 + i, "uint16", 1) for i in range(2)}
EIGHT_FILES = {f"eight{i}.png": smooth(20 + i, "uint8", 3) for i in range(2)}
FLOAT_FILES = {f"float{i}.tif": smooth(30 + i, "float32", 1) for i in range(3)}
FLOAT_FILES["float0.tif"][2:4, 5] = np.nan
FLOAT_FILES["float1.tif"][0, 0] = np.inf


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of images of all types, each stored as it is."""
    root = tmp_path_factory.mktemp("mixed")
    source = folder_of(root, DEEP_FILES | GRAY_FILES | EIGHT_FILES | FLOAT_FILES)
    convert(input=source, output=str(root / "out"), depth="keep", color="keep", shards="1", verify="none")
    return root / "out"


def number_of(dataset: Path, name: str) -> int:
    return [Path(line["key"]).name for line in written_lines(dataset, SHARD)].index(name)


def test_types_are_counted_again(mixed: Path, tmp_path: Path) -> None:
    document = json.loads((mixed / "dataset.json").read_text())
    assert document["dtypes"] == {"float32": 3, "uint16": 6, "uint8": 2}
    dataset = Path(shutil.copytree(mixed, tmp_path / "dataset"))
    document["dtypes"] = {"float32": 3, "uint16": 8}
    (dataset / "dataset.json").write_text(json.dumps(document))
    found = findings_of(dataset, "fast")
    assert {(item.code.value, item.shard) for item in found} == {("COUNT_MISMATCH", "dataset.json")}
    assert [item.message for item in found] == [
        "field 'dtypes.uint16' says 8, but should say 6",
        "field 'dtypes.uint8' is missing; it should be 2",
    ]


def test_a_type_that_only_the_ledger_states_is_found(mixed: Path, tmp_path: Path) -> None:
    dataset = Path(shutil.copytree(mixed, tmp_path / "dataset"))
    lines = written_lines(dataset, SHARD)
    lines[number_of(dataset, "deep0.png")]["dtype"] = "uint8"
    write_ledger(dataset, SHARD, lines)
    settle(dataset)
    (finding,) = findings_of(dataset, "fast")
    assert finding.code == "LEDGER_MISMATCH"
    assert finding.message == "its samples are uint16, the shard's ledger says uint8"


def moments(files: dict[str, np.ndarray]) -> dict[str, Any]:
    channels = next(iter(files.values())).shape[-1]
    every = np.concatenate([pixels.reshape(-1, channels) for pixels in files.values()]).astype(float)
    kept = [every[np.isfinite(every[:, i]), i] for i in range(channels)]
    return {name: [getattr(values, name)() for values in kept] for name in ("mean", "std", "min", "max")}


def test_samples_are_measured_in_their_own_units(mixed: Path, tmp_path: Path) -> None:
    dataset, gate = Path(shutil.copytree(mixed, tmp_path / "dataset")), tmp_path / "gate.yaml"
    gate.write_text("allowed_dtypes: [uint16, uint8]\n")
    report = validate(dataset, mode="quality", expect=gate)
    (finding,) = [item for item in report.findings if item.code == "EXPECTATION"]
    assert report.errors == 1
    assert finding.message == "allowed_dtypes: 3 images have samples of type float32"
    statistics = json.loads((dataset / "statistics.json").read_text())["total"]["all"]
    for kind, number, files in (
        ("uint16", "3", DEEP_FILES), ("uint16", "1", GRAY_FILES),
        ("uint8", "3", EIGHT_FILES), ("float32", "1", FLOAT_FILES),
    ):  # fmt: skip
        found = statistics["samples"][kind][number]
        assert found["images"] == len(files)
        for name, values in moments(files).items():
            assert found[name] == pytest.approx(values, rel=1e-5), (kind, name)
    assert (found["nan"], found["infinite"]) == ([2], [1])
    assert statistics["channels"] == {"1": 5, "3": 6}
    page = (dataset / "report.html").read_text()
    assert "Stored samples, in their own units" in page and "Types of samples" in page
    assert page.count("data:image/jpeg") >= len(DEEP_FILES | GRAY_FILES | EIGHT_FILES | FLOAT_FILES)


def test_multispectral_images_are_measured_and_compared_with_their_source(tmp_path: Path) -> None:
    files = {f"{i}.tif": smooth(50 + i, "uint16", CHANNELS) for i in range(4)}
    source, dataset = folder_of(tmp_path, files), tmp_path / "dataset"
    convert(input=source, output=str(dataset), depth="keep", channels=CHANNELS, shards="1", verify="none")
    changed = Path(written_lines(dataset, SHARD)[0]["key"]).name
    files[changed] += np.uint16(40)
    rewrite(dataset, put("image/encoded", files[changed].astype("<u2").tobytes()), 0, SHARD)
    report = validate(dataset, mode="quality", against=source)
    assert report.run.counts == {"SOURCE_CHANGED": 1, "TINY_CLASS": 1}
    statistics = json.loads((dataset / "statistics.json").read_text())
    found = statistics["total"]["all"]["samples"]["uint16"][str(CHANNELS)]
    for name, values in moments(files).items():
        assert found[name] == pytest.approx(values, rel=1e-5), name
    assert len(statistics["normalize"]["train"]["mean"]) == CHANNELS
    assert (dataset / "report.html").read_text().count("data:image/jpeg") >= len(files)


def test_files_without_a_dataset_are_checked_by_their_types(mixed: Path, tmp_path: Path) -> None:
    shutil.copy(mixed / SHARD, tmp_path / SHARD)
    report = validate(str(tmp_path / "*.tfrecord"), mode="quality", report=tmp_path / "findings.json")
    assert report.sound, report.findings
    statistics = json.loads((tmp_path / "statistics.json").read_text())
    assert sorted(statistics["total"]["all"]["samples"]) == ["float32", "uint16", "uint8"]


@pytest.mark.parametrize("with_ledger", [True, False])
def test_salvage_knows_the_types(mixed: Path, tmp_path: Path, with_ledger: bool) -> None:
    dataset = Path(shutil.copytree(mixed, tmp_path / "dataset"))
    lines = written_lines(dataset, SHARD)
    lost = lines[number_of(dataset, "float2.tif")]
    flip(dataset / SHARD, lost["offset"] + 40)
    if not with_ledger:
        (dataset / "_shards" / SHARD.replace(".tfrecord", ".jsonl.gz")).unlink()
    salvage(dataset, tmp_path / "saved")
    document = json.loads((tmp_path / "saved" / "dataset.json").read_text())
    assert document["dtypes"] == {"float32": 2, "uint16": 6, "uint8": 2}
    assert not findings_of(tmp_path / "saved")
