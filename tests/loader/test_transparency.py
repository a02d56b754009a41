"""Kept originals with transparent pixels: both readers return white for these."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shardwright import loader
from shardwright.loader import Records
from shardwright.loader.decode import decode_picture
from shardwright.pipelines.convert import convert
from shardwright.schemas.errors import UsageError


def _originals(folder: Path, photo: Path) -> dict[str, np.ndarray]:
    """Writes pictures of many kinds; returns the expected pixels of each."""
    folder.mkdir(parents=True)
    with Image.open(photo) as image:
        rgb = image.convert("RGB").resize((30, 20))
    alpha = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30)).astype(np.uint8))
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    palette, black_and_white = rgb.quantize(8), rgb.convert("1")
    pictures = {
        "rgb.png": rgb, "rgba.png": rgba, "la.png": rgba.convert("LA"), "palette.png": palette,
        "grey.png": rgb.convert("L"),
        "bits.png": black_and_white, "rgba.webp": rgba, "rgb.webp": rgb,
    }  # fmt: skip
    for name, picture in pictures.items():
        picture.save(folder / name, lossless=True)
    rgb.convert("L").save(folder / "key.png", transparency=100)
    pictures["key.png"] = Image.open(folder / "key.png")
    seen = {}
    for name, picture in pictures.items():
        layer = picture.convert("RGBA")
        white = Image.new("RGBA", layer.size, "white")
        white.paste(layer, mask=layer.getchannel("A"))
        seen[f"in/{name}"] = np.asarray(white.convert("RGB"))
    return seen


@pytest.mark.sampled(1)
@pytest.mark.parametrize("only", [".png", ".webp", "g"])  # one format, the other, and both
def test_transparent_pixels_are_white(photos: Path, tmp_path: Path, only: str) -> None:
    expected = _originals(tmp_path / "all" / "in", next((photos / "birds").glob("*.jpg")))
    if only == "g":
        (tmp_path / "all" / "in" / "photo.jpg").write_bytes(
            next((photos / "birds").glob("*.jpg")).read_bytes()
        )
    else:
        for path in (tmp_path / "all" / "in").iterdir():
            if path.suffix != only:
                path.unlink()
    convert(input=str(tmp_path / "all"), output=str(tmp_path / "out"), color="keep")
    records = Records(tmp_path / "out")
    loaded = [
        image
        for image, _ in loader.load(tmp_path / "out", batch_size=None, shuffle=False).as_numpy_iterator()
    ]
    compared = 0
    for i, (key, image) in enumerate(zip(records.keys, loaded, strict=True)):
        if key in expected:
            assert np.array_equal(image, expected[key]), key
            assert np.array_equal(records.image(i), image), key
            compared += 1
    assert compared == len(expected) if only == "g" else compared > 1
    assert next(iter(loader.load(tmp_path / "out", image_size=8)))[0].shape[1:] == [8, 8, 3]


def test_pictures_above_pillows_limit_are_not_damage(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = next((photos / "birds").glob("*.jpg")).read_bytes()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with warnings.catch_warnings(), pytest.raises(UsageError, match="MAX_IMAGE_PIXELS = None"):
        decode_picture(data)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert decode_picture(data).size[0] > 100
