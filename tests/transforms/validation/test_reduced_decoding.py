"""A JPEG that is decoded only for a check is reduced, with the same verdict as the full size."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from PIL import Image

from shardwright.transforms.validation.image import DeclaredImage, check_image

PHOTOS = Path(__file__).resolve().parents[3] / "examples" / "photos"


def jpegs() -> list[bytes]:
    """JPEGs of every kind: plain, progressive, gray, CMYK, tiny, with restart markers."""
    made = []
    for place, path in enumerate(sorted(PHOTOS.glob("*/*"))[:12]):
        with Image.open(path) as image:
            shown = image.convert("RGBA").convert(("RGB", "L", "CMYK")[place % 3]).resize((61 + place, 47))
        for options in ({}, {"progressive": True}, {"restart_marker_blocks": 1}, {"subsampling": 0}):
            file = io.BytesIO()
            shown.save(file, "JPEG", **options)
            made.append(file.getvalue())
    file = io.BytesIO()
    Image.new("RGB", (3, 9)).save(file, "JPEG")
    return [*made, file.getvalue()]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("damage", ["none", "flip", "cut", "remove", "insert"])
def test_reduced_and_full_decoding_agree(damage: str) -> None:
    chance = random.Random(damage)
    bad = 0
    for data in jpegs():
        for _ in range(1 if damage == "none" else 8):
            broken = bytearray(data)
            place = chance.randrange(len(broken))
            if damage == "flip":
                broken[place] ^= 1 << chance.randrange(8)
            elif damage == "cut":
                del broken[place:]
            elif damage == "remove":
                del broken[place : place + chance.randrange(1, 40)]
            elif damage == "insert":
                broken[place:place] = chance.randbytes(chance.randrange(1, 40))
            declared = DeclaredImage([(47, None, None), (None, None, 3)], "jpeg", b"RGB")
            whole, reduced = (check_image(bytes(broken), declared, whole=whole) for whole in (True, False))
            assert (whole.problems, whole.format, whole.size) == (
                reduced.problems, reduced.format, reduced.size,
            )  # fmt: skip
            bad += whole.image is None
    assert bool(bad) == (damage != "none")
