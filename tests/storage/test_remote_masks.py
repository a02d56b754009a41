"""Masks in a bucket: read ahead with their images, in the listed generation; missing ones are found."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from helpers.repository import PHOTOS
from helpers.storage.buckets import Bucket
from PIL import Image

from shardwright.pipelines.convert import convert
from shardwright.schemas.annotations import Annotations
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, ImageFault
from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms import storage
from shardwright.transforms.images.annotate import read_mask

BIRDS = sorted((PHOTOS / "birds").glob("*.jpg"))


def mask_of(path: Path) -> bytes:
    with Image.open(path) as image:
        size = image.size
    out = io.BytesIO()
    Image.fromarray(np.full(size[::-1], 4, np.uint8)).save(out, "PNG")
    return out.getvalue()


@pytest.mark.slow
def test_masks_in_a_bucket_give_the_same_shards(bucket: Bucket, tmp_path: Path) -> None:
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    for path in BIRDS:
        (tmp_path / "images" / path.name).write_bytes(path.read_bytes())
        (tmp_path / "masks" / f"{path.stem}.png").write_bytes(mask_of(path))
    bucket.put_tree(tmp_path / "images", "images/")
    bucket.put_tree(tmp_path / "masks", "masks/")
    made = [
        convert(
            input=f"{root}/images", mask_dir=f"{root}/masks", output=str(tmp_path / f"out{number}"),
            layout="segmentation", resize=48,
        )
        for number, root in enumerate((tmp_path, bucket.url))
    ]  # fmt: skip
    assert made[0].dataset.ledger["written"] == len(BIRDS)
    assert made[0].dataset.fingerprint == made[1].dataset.fingerprint


SETTINGS = ConvertSettings(input=("in",), output="out", layout="segmentation")


def test_a_mask_that_changed_since_its_listing_stops_the_job(bucket: Bucket) -> None:
    bucket.put("mask.png", mask_of(BIRDS[0]))
    uri = f"{bucket.url}/mask.png"
    found = storage.stat(uri)
    assert found is not None
    annotations = Annotations(semantic_mask=uri, mask_size=found.size, mask_version=found.version)
    ref = ImageRef("a.jpg", "a.jpg", annotations=annotations.encode())
    assert read_mask(ref, SETTINGS) == mask_of(BIRDS[0])
    bucket.put("mask.png", mask_of(BIRDS[1]))
    with pytest.raises(EngineError, match="changed"):
        read_mask(ref, SETTINGS)


def test_a_missing_mask_is_a_fault_of_its_image(bucket: Bucket, tmp_path: Path) -> None:
    annotations = Annotations(semantic_mask=f"{bucket.url}/none.png")
    with pytest.raises(ImageFault, match=r"its mask none\.png: no such object"):
        read_mask(ImageRef("a.jpg", "a.jpg", annotations=annotations.encode()), SETTINGS)
