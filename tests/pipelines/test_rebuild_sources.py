"""Rebuilds of all kinds of sources: only changes are converted, and the result equals a full build."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.from_nothing import (
    Rebuilt,
    alter_in_secret,
    begin,
    entries_of,
    unchanged,
    work,
    write_bmps,
)
from helpers.hostile import make_tree, picture
from helpers.packing import tar_info, tar_of, zip_of
from PIL import Image

Make = Callable[..., Rebuilt]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Returns a function that starts an output with a first version."""
    return partial(begin, tmp_path)


def test_only_what_changed_in_an_archive_is_decoded(make: Make, tmp_path: Path) -> None:
    members = {f"{'ab'[i % 2]}/{i}.png": picture(i) for i in range(8)}
    for packed, suffix in ((zip_of, "zip"), (tar_of, "tar")):
        source = tmp_path / f"in.{suffix}"
        source.write_bytes(packed(members))
        rebuilt = Rebuilt(tmp_path / suffix, input=str(source), shards="2")
        rebuilt.again(compared=False)
        first, *others = members.items()
        changed = [(first[0], picture(50)), *others, ("a/new.png", picture(51))]
        if suffix == "tar":
            changed = [(tar_info(name, len(data)), data) for name, data in changed]
            changed[0][0].mtime += 1  # type: ignore[union-attr]
        source.write_bytes(packed(changed))
        assert work(rebuilt)[2] == 2
        assert unchanged(rebuilt)


@pytest.mark.slow
def test_a_compressed_tar_that_is_packed_again_changes_nothing(make: Make, tmp_path: Path) -> None:
    import gzip

    data = tar_of({f"{'ab'[i % 2]}/{i}.png": picture(i) for i in range(6)})
    source = tmp_path / "in.tar.gz"
    source.write_bytes(gzip.compress(data, 1))
    rebuilt = make(input=str(source))
    assert unchanged(rebuilt)
    source.write_bytes(gzip.compress(data, 9))
    assert unchanged(rebuilt)


def test_changed_rows_of_a_manifest_are_converted(make: Make, tmp_path: Path) -> None:
    write_bmps(tmp_path / "images", 6)
    rows = [[f"images/{'ab'[i % 2]}/{i}.bmp", f"c{i % 3}|d", "train" if i < 4 else "test"] for i in range(6)]
    manifest = tmp_path / "list.csv"

    def write() -> None:
        manifest.write_text("\n".join(",".join(row) for row in [["image", "label", "split"], *rows]))

    write()
    rebuilt = make(input=str(manifest), label_separator="|")
    rows[0][1] = "c2"
    rows.reverse()
    write()
    assert work(rebuilt)[2] == 1
    rows[0][2] = "train"  # a record does not contain its split
    write()
    assert work(rebuilt)[2] == 0
    rows[1][0] = ""
    write()
    assert work(rebuilt)[2] == 0


@pytest.mark.slow
def test_a_layout_with_the_split_converts_moved_images(make: Make, tmp_path: Path) -> None:
    layout = tmp_path / "own.yaml"
    layout.write_text(
        "name: own\nfeatures:\n"
        "  image: {fill: encoded}\n  label: {fill: label}\n  part: {fill: split}\n  name: {fill: key}\n"
    )
    make_tree(tmp_path / "in", 8)
    rebuilt = make(layout=str(layout), splits="train=0.5,test=0.5")
    before = entries_of(rebuilt.latest)
    converted = work(rebuilt, splits="train=0.8,test=0.2")[2]
    after = entries_of(rebuilt.latest)
    moved = sum(before[key].digest != after[key].digest for key in before)
    assert 0 < converted == moved < 8


@pytest.mark.slow
def test_arrays_are_read_completely_and_only_changes_are_decoded(make: Make, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pixels = np.arange(6 * 8 * 8 * 3, dtype=np.uint32).reshape(6, 8, 8, 3).astype(np.uint8)
    labels = np.array([0, 1, 0, 1, 2, 2])

    def write() -> None:
        np.save(tmp_path / "in" / "x_train.npy", pixels)
        np.save(tmp_path / "in" / "y_train.npy", labels)

    write()
    rebuilt = make()
    pixels[2] ^= 0x55
    labels[5] = 1
    write()
    assert work(rebuilt)[2] == 2
    assert unchanged(rebuilt)


def test_changed_boxes_convert_only_their_image(make: Make, tmp_path: Path) -> None:
    photos = write_bmps(tmp_path / "in", 4)
    names = [str(path.relative_to(tmp_path / "in")) for path in photos]
    document: dict[str, Any] = {
        "images": [{"id": i, "file_name": name, "width": 8, "height": 8} for i, name in enumerate(names)],
        "categories": [{"id": 1, "name": "ant"}, {"id": 2, "name": "bee"}],
        "annotations": [
            {"id": i, "image_id": i, "category_id": 1 + i % 2, "bbox": [1, 1, 3, 3]} for i in range(4)
        ],
    }
    file = tmp_path / "in" / "annotations.json"
    file.write_text(json.dumps(document))
    rebuilt = make(layout="detection", source="coco")
    assert unchanged(rebuilt)
    document["annotations"][1]["bbox"] = [2, 2, 3, 3]
    file.write_text(json.dumps(document))
    assert work(rebuilt)[2] == 1
    document["images"].append({"id": 9, "file_name": "gone.png", "width": 8, "height": 8})
    file.write_text(json.dumps(document))
    work(rebuilt)
    assert unchanged(rebuilt)
    document["categories"] = [{"id": 1, "name": "ant"}, {"id": 2, "name": "cat"}]
    file.write_text(json.dumps(document))
    assert work(rebuilt)[2] == 2


@pytest.fixture
def masked(tmp_path: Path) -> Iterator[Path]:
    """Images in `in` and masks in `masks`."""
    for i, path in enumerate(write_bmps(tmp_path / "in", 4)):
        mask = tmp_path / "masks" / path.relative_to(tmp_path / "in")
        mask.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), i).save(mask.with_suffix(".png"))
    yield tmp_path / "masks"


@pytest.mark.slow
def test_a_changed_mask_converts_only_its_image(make: Make, masked: Path) -> None:
    rebuilt = make(layout="segmentation", source="semantic_masks", mask_dir=str(masked))
    mask = masked / "b" / "1.png"
    Image.new("L", (8, 8), 7).save(mask)
    assert work(rebuilt)[2] == 1
    other = masked.parent / "other.png"
    Image.new("L", (8, 8), 9).save(other)
    alter_in_secret(mask, other.read_bytes())
    assert work(rebuilt, verify_sources=True)[2] == 1
    mask.unlink()
    assert work(rebuilt)[2] == 0
    assert unchanged(rebuilt, verify_sources=True)
