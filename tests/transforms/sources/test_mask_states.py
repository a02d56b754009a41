"""A mask that changed since it was listed is detected: by `--resume`, and while the job runs."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.annotation_sets.coco import save
from helpers.annotation_sets.coco_panoptic import panoptic_of
from helpers.annotation_sets.semantic_masks import put_set
from helpers.listing import listed, put_photos
from helpers.records import examples
from PIL import Image

from shardwright.pipelines.convert import convert

Put = Callable[[Path], tuple[Path, dict[str, Any]]]


def _semantic(root: Path) -> tuple[Path, dict[str, Any]]:
    put_set(root / "images", root / "masks")
    return root / "masks" / "eagle.png", {
        "input": root / "images",
        "mask_dir": root / "masks",
        "layout": "segmentation",
    }


def _voc(root: Path) -> tuple[Path, dict[str, Any]]:
    put_set(root / "JPEGImages", root / "SegmentationClass")
    (root / "Annotations").mkdir()
    (root / "Annotations" / "eagle.xml").write_text("<annotation></annotation>")
    return root / "SegmentationClass" / "eagle.png", {"input": root, "layout": "segmentation"}


def _panoptic(root: Path) -> tuple[Path, dict[str, Any]]:
    document = panoptic_of(put_photos(root / "val2017"), root / "annotations" / "panoptic_val2017")
    save(root / "annotations" / "panoptic_val2017.json", document)
    return root / "annotations" / "panoptic_val2017" / "eagle.png", {"input": root, "layout": "panoptic"}


SETS: dict[str, Put] = {"semantic_masks": _semantic, "voc": _voc, "coco": _panoptic}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", SETS)
def test_resume_detects_a_changed_mask(tmp_path: Path, kind: str) -> None:
    mask, settings = SETS[kind](tmp_path / "in")
    settings |= {"output": tmp_path / "out", "shards": 1}
    first = convert(**settings).dataset.fingerprint
    assert convert(**settings, resume=True).dataset.fingerprint == first
    with Image.open(mask) as opened:
        pixels = np.array(opened)
    pixels[:50, :50] = 0
    pixels[0, 0] = 1
    Image.fromarray(pixels).save(mask)
    os.utime(mask, ns=(1, 1))
    changed = convert(**settings, resume=True)
    assert changed.dataset.fingerprint != first
    name = {"coco": "image/panoptic/instance_mask"}.get(kind, "image/segmentation/class/encoded")
    found = set()
    for records in examples(tmp_path / "out").values():
        for record in records:
            png = record.features.feature[name].bytes_list.value[0]
            found.add(int(np.asarray(Image.open(io.BytesIO(png)))[10, 10]))
    assert 0 in found


@pytest.mark.parametrize("kind", SETS)
def test_the_state_of_a_mask_is_that_of_its_file(tmp_path: Path, kind: str) -> None:
    mask, settings = SETS[kind](tmp_path / "in")
    found = listed(settings.pop("input"), **settings)
    (key,) = (key for key in found.refs if key.endswith("eagle.jpg"))
    annotations = found.annotations_of(key)
    status = mask.stat()
    assert (annotations.mask_size, annotations.mask_version) == (status.st_size, str(status.st_mtime_ns))
