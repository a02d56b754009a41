"""`--depth keep` with `--resume`, boxes and key points, `--strip_metadata`, and images inside Parquet."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from helpers.embedded import table_of, write_parquet
from helpers.planting import records_of
from PIL import Image, PngImagePlugin

from shardwright.loader import Records
from shardwright.pipelines.convert import convert
from shardwright.pipelines.validate import validate
from shardwright.schemas.example import Feature, parse_example
from shardwright.schemas.layouts import inline_layout
from shardwright.schemas.layouts.layout_file import parse_layout_file

RANDOM = np.random.default_rng(17)
BARE = inline_layout(
    parse_layout_file("extends: raw\nfeatures: {image: {fill: encoded, dtype: uint16}}", "bare.yaml")
)


def deep(*shape: int) -> np.ndarray:
    return RANDOM.integers(0, 65536, shape, np.uint16)


def png(pixels: np.ndarray) -> bytes:
    return bytes(imagecodecs.png_encode(pixels))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", ["classification", BARE], ids=["classification", "bare"])
def test_a_resumed_run_makes_only_the_missing_shard(tmp_path: Path, layout: str) -> None:
    (tmp_path / "in" / "a").mkdir(parents=True)
    for number in range(12):
        (tmp_path / "in" / "a" / f"{number}.png").write_bytes(png(deep(9, 14, 3)))
    settings: dict[str, Any] = {"depth": "keep", "layout": layout, "resize": "8x6", "shards": 4}
    out = tmp_path / "out"
    convert(input=str(tmp_path / "in"), output=str(out), **settings)
    shards = {path: path.read_bytes() for path in out.glob("*.tfrecord")}
    document = json.loads((out / "dataset.json").read_text())
    lost = max(shards, key=lambda path: len(shards[path]))
    lost.unlink()
    again = convert(input=str(tmp_path / "in"), output=str(out), resume=True, verify="full", **settings)
    assert again.outcome["reused_shards"] == 3
    assert {path: path.read_bytes() for path in out.glob("*.tfrecord")} == shards
    assert json.loads((out / "dataset.json").read_text())["dtypes"] == document["dtypes"] == {"uint16": 12}


def records(dataset: Path) -> list[dict[str, Feature]]:
    return [parse_example(data) for path in dataset.glob("*.tfrecord") for data in records_of(path)]


def coco_of(folder: Path, bits: int) -> Path:
    """Writes pictures of 16 bits, or the same of 8 bits, one of them rotated, with their annotations."""
    folder.mkdir()
    pictures, annotations = [], []
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 30, 3), np.uint8)
        stored = pixels * np.uint16(257) if bits == 16 else pixels
        width, height = 30, 20
        if number == 2:
            name, (width, height) = "2.tif", (height, width)
            tifffile.imwrite(folder / name, stored, photometric="rgb", extratags=[(274, "H", 1, 6, True)])
        else:
            name = f"{number}.png"
            (folder / name).write_bytes(png(stored))
        pictures.append({"id": number, "file_name": name, "width": width, "height": height})
        for box in ([2, 3, 12, 9], [0, 0, 4, 18], [width - 5, 1, 5, 6]):
            x, y, w, h = box
            annotations.append(
                {"id": len(annotations) + 1, "image_id": number, "category_id": 1, "bbox": box, "area": w * h,
                 "iscrowd": 0, "num_keypoints": 2, "keypoints": [x, y, 2, x + w / 2, y + h / 2, 1]}
            )  # fmt: skip
    category = {"id": 1, "name": "bird", "keypoints": ["beak", "tail"], "skeleton": []}
    path = folder / "person_keypoints.json"
    path.write_text(json.dumps({"images": pictures, "annotations": annotations, "categories": [category]}))
    return path


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fit", ["contain", "pad", "fit"])
def test_boxes_and_key_points_are_those_of_8_bits(tmp_path: Path, fit: str) -> None:
    found = []
    for bits in (8, 16):
        coco = coco_of(tmp_path / str(bits), bits)
        convert(
            input=str(coco), image_root=str(coco.parent), output=str(tmp_path / f"out{bits}"), verify="full",
            layout="keypoints", resize="12x12", fit=fit, image_format="png", shards=1,
            depth="8" if bits == 8 else "keep",
        )  # fmt: skip
        found.append(
            {
                bytes(record["image/filename"].values[0]): {
                    name: list(feature.values)
                    for name, feature in record.items()
                    if name.startswith("image/object/") or name in ("image/height", "image/width")
                }
                for record in records(tmp_path / f"out{bits}")
            }
        )
    assert found[0] == found[1] and len(found[0]) == 3
    assert all(any(record["image/object/keypoint/visibility"]) for record in found[1].values())
    if fit == "pad":  # 30 x 20 pixels become 12 x 8, with 2 rows above
        first = found[1][b"0.png"]
        assert first["image/object/keypoint/x"][0] == pytest.approx(2 / 30)
        assert first["image/object/keypoint/y"][0] == pytest.approx((3 * 0.4 + 2) / 12)
        assert first["image/object/bbox/ymax"][0] == pytest.approx((12 * 0.4 + 2) / 12)
    assert json.loads((tmp_path / "out16" / "dataset.json").read_text())["dtypes"] == {"uint16": 3}


def test_metadata_of_kept_originals_is_removed(tmp_path: Path) -> None:
    (tmp_path / "in" / "a").mkdir(parents=True)
    scan = deep(9, 14)
    exif, text, out = Image.Exif(), PngImagePlugin.PngInfo(), io.BytesIO()
    exif[0x010F] = "Maker"
    exif.get_ifd(0x8825)[1] = "N"
    exif.get_ifd(0x8825)[2] = (48.0, 8.0, 30.0)
    text.add_text("Author", "somebody")
    Image.fromarray(scan).save(out, "PNG", exif=exif, pnginfo=text)
    (tmp_path / "in" / "a" / "scan.png").write_bytes(out.getvalue())
    found = {}
    for strip in (False, True):
        dataset = tmp_path / f"strip_{strip}"
        convert(
            input=str(tmp_path / "in"), output=str(dataset), depth="keep", color="gray", strip_metadata=strip,
            verify="none",
        )  # fmt: skip
        (record,) = records(dataset)
        found[strip] = bytes(record["image/encoded"].values[0])
        assert record["image/dtype"].values[0] == b"uint16"
        np.testing.assert_array_equal(Records(dataset).image(0)[..., 0], scan)
        codes = {item.code.value for item in validate(dataset, mode="full").findings}
        assert ("PRIVATE_METADATA" in codes) is not strip
    assert found[False] == out.getvalue()
    assert b"eXIf" not in found[True] and b"tEXt" not in found[True] and len(found[True]) < len(found[False])


def test_images_inside_parquet_keep_16_bits(tmp_path: Path) -> None:
    pictures = [deep(9, 14, 3), deep(9, 14, 3), deep(7, 8)]
    table = table_of([png(pixels) for pixels in pictures], label=["cat", "dog", "cat"])
    source = write_parquet(tmp_path / "rows.parquet", table)
    convert(
        input=str(source), output=str(tmp_path / "out"), depth="keep", color="keep", verify="full",
        splits="train=1", shards=1,
    )  # fmt: skip
    document = json.loads((tmp_path / "out" / "dataset.json").read_text())
    assert document["dtypes"] == {"uint16": 3}
    opened = Records(tmp_path / "out")
    for number, key in enumerate(opened.keys):
        pixels = pictures[int(key.rpartition("!")[2])]
        if pixels.ndim == 2:  # among colors, readers repeat gray
            pixels = np.stack([pixels] * 3, axis=-1)
        np.testing.assert_array_equal(opened.image(number), pixels)
