"""Cityscapes: polygons of things with groups, class masks, splits, missing annotations, faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.annotation_sets.cityscapes import put_city
from helpers.listing import listed, put_photos
from helpers.records import balanced, examples, picture

from shardwright.core.sources.cityscapes import CLASSES
from shardwright.pipelines.convert import convert

SPLITS = {"train": ("eagle", "apple"), "val": ("house",)}


@pytest.fixture
def city(tmp_path: Path) -> Path:
    for split, names in SPLITS.items():
        put_city(tmp_path / "in", split, names)
    put_city(tmp_path / "in", "train_extra", ("seagull",), "gtCoarse")
    put_photos(tmp_path / "in" / "leftImg8bit" / "demoVideo" / "stuttgart", ("rose",))
    return tmp_path / "in"


def key_of(split: str, name: str) -> str:
    return f"leftImg8bit/{split}/aachen/aachen_{name}_000019_leftImg8bit.png"


def test_objects_are_listed(city: Path) -> None:
    found = listed(city)
    assert found.input.source == "cityscapes" and "polygons of things" in found.input.detected_as
    assert set(found.reasons().values()) == {"not_listed"} and len(found.reasons()) == 1
    candidates = {key: ref.split for key, ref in found.refs.items() if ref.is_candidate}
    assert candidates == {
        key_of("train", "eagle"): "train",
        key_of("train", "apple"): "train",
        key_of("val", "house"): "val",
        key_of("train_extra", "seagull"): "train_extra",
    }
    car, group = found.annotations_of(key_of("train", "eagle")).objects or ()
    assert (car.label, car.box, car.crowd) == ("car", (10, 20, 110, 70), False)
    assert (group.label, group.box, group.crowd) == ("person", (0, 5, 40, 60), True)
    assert car.segmentation == [[10, 20, 110, 20, 110, 70, 10, 70]]


def test_class_masks_are_listed(city: Path, tmp_path: Path) -> None:
    made = convert(input=city, output=tmp_path / "out", layout="segmentation", verify="full")
    assert made.dataset.ledger["written"] == 4 and balanced(made.dataset.ledger)
    assert made.dataset.labels[:3] == CLASSES[:3] and len(made.dataset.labels) == len(CLASSES)
    (record,) = examples(tmp_path / "out")["val"]
    mask = picture(record, "image/segmentation/class/encoded")
    assert set(np.unique(mask[:50])) == {CLASSES.index("sky")} and mask[60, 5] == CLASSES.index("car")
