"""The dataset card shows samples: images of all classes, drawn from the written records."""

from __future__ import annotations

import hashlib
import io
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.described import described, read
from helpers.listing import listed
from helpers.repository import PHOTOS
from markdown_it import MarkdownIt
from PIL import Image

from shardwright.core import preview
from shardwright.core.preview import SIDE, draw_card_samples
from shardwright.pipelines.convert import convert
from shardwright.pipelines.salvage import salvage
from shardwright.schemas.dataset import SAMPLES_JPG
from shardwright.schemas.errors import EngineError

pytestmark = pytest.mark.usefixtures("drawn")
STEP_X, STEP_Y = SIDE + 8, SIDE + 28
PURE = {"red": (220, 20, 20), "green": (20, 180, 20), "blue": (20, 20, 220)}


def pictures_in(card: Path) -> list[Path]:
    tokens = MarkdownIt("commonmark").parse(card.read_text().split("---\n", 2)[2])
    inner = (child for token in tokens for child in token.children or ())
    return [card.parent / str(child.attrs["src"]) for child in inner if child.type == "image"]


def tile_colors(data: bytes) -> list[tuple[int, ...]]:
    """Returns the color in the middle of each tile that is not white."""
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    middles = pixels[8 + SIDE // 2 :: STEP_Y, 8 + SIDE // 2 :: STEP_X].reshape(-1, 3)
    return [tuple(map(int, color)) for color in middles if color.min() < 200]


@pytest.fixture(scope="module")
def colors(drawn: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty red, two green and one blue image, in two splits."""
    root = tmp_path_factory.mktemp("colors")
    for name, count in (("red", 30), ("green", 2), ("blue", 1)):
        (root / "in" / name).mkdir(parents=True)
        for number in range(count):
            color = tuple(min(255, value + number) for value in PURE[name])
            Image.new("RGB", (24, 24), color).save(root / "in" / name / f"{number}.png")
    shares = {"splits": "train=0.6,test=0.4", "image_format": "png", "verify": "none"}
    convert(input=str(root / "in"), output=str(root / "out"), **shares)
    return root / "out"


def test_the_card_links_a_picture_that_the_dataset_lists() -> None:
    out = described("photos")
    (picture,) = pictures_in(out / "README.md")
    assert picture == out / SAMPLES_JPG
    data = picture.read_bytes()
    assert read(out).sidecars[SAMPLES_JPG] == hashlib.sha256(data).hexdigest()
    assert data == draw_card_samples(str(out), read(out))
    with Image.open(picture) as image:
        assert image.format == "JPEG" and image.size == (4 * STEP_X + 8, 3 * STEP_Y + 8)
        assert not image.getexif()


def test_rare_classes_are_shown_too(colors: Path) -> None:
    shown = [
        max(PURE, key=lambda name: -sum(abs(a - b) for a, b in zip(color, PURE[name])))
        for color in tile_colors((colors / SAMPLES_JPG).read_bytes())
    ]
    assert shown.count("blue") == 1 and shown.count("green") == 2 and shown.count("red") == 22


def test_only_some_of_many_records_are_read(colors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "MAX_LINES", 4)
    assert len(tile_colors(draw_card_samples(str(colors), read(colors)))) == 4
    monkeypatch.setattr(preview, "MAX_BYTES", 10)
    assert draw_card_samples(str(colors), read(colors)) == b""


@pytest.mark.parametrize("kind", ["raw", "gray", "detection", "own", "webp", "hostile"])
def test_all_kinds_of_records_are_drawn(kind: str) -> None:
    out = described(kind)
    with Image.open(out / SAMPLES_JPG) as image:
        histogram = image.convert("L").histogram()
    assert sum(count > 0 for count in histogram) > 100, "the sheet has only captions"


def test_a_damaged_ledger_or_record_leaves_a_gap(colors: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(colors, out)
    dataset = read(out)
    before = len(tile_colors(draw_card_samples(str(out), dataset)))
    shard = next(out.glob("test-*.tfrecord"))
    shard.write_bytes(shard.read_bytes()[:200])
    fewer = len(tile_colors(draw_card_samples(str(out), dataset)))
    assert 0 < fewer < before
    for ledger in (out / "_shards").glob("*.gz"):
        ledger.write_bytes(ledger.read_bytes()[:20])
    assert draw_card_samples(str(out), dataset) == b""
    shutil.rmtree(out / "_shards")
    with pytest.raises(EngineError, match="_shards"):
        draw_card_samples(str(out), dataset)


def test_a_dataset_without_records_has_no_samples(colors: Path) -> None:
    dataset = read(colors)
    empty = {split: tuple(replace(it, records=0) for it in its) for split, its in dataset.splits.items()}
    assert draw_card_samples(str(colors), replace(dataset, splits=empty)) == b""


def test_a_salvaged_dataset_has_samples_of_what_is_left(colors: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(colors, damaged)
    shard = next(damaged.glob("test-*.tfrecord"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    saved = tmp_path / "saved"
    salvage(str(damaged), output=str(saved))
    assert read(saved).all_records == 32
    assert pictures_in(saved / "README.md") == [saved / SAMPLES_JPG]
    assert (saved / SAMPLES_JPG).read_bytes() == draw_card_samples(str(saved), read(saved))


def test_the_samples_of_a_dataset_are_not_images_to_convert(tmp_path: Path) -> None:
    for kind in ("birds", "cats"):
        (tmp_path / "in" / kind).mkdir(parents=True)
    shutil.copy(next((PHOTOS / "birds").glob("*.jpg")), tmp_path / "in" / "birds" / "a.jpg")
    shutil.copy(next((PHOTOS / "birds").glob("*.jpg")), tmp_path / "in" / "cats" / "b.jpg")
    shutil.copytree(described("photos"), tmp_path / "in" / "cats" / "made")
    found = listed(tmp_path / "in", "classification", source="class_folders")
    assert sum(ref.is_candidate for ref in found.refs.values()) == 2
    assert list(found.reasons().values()).count("dotfile") == 1
