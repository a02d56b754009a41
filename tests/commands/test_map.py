"""`--map` in whole runs: books, validation, rebuilds and worker processes."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.fewer_imports import late
from helpers.hostile import check_books
from helpers.records import by_key
from helpers.repository import PHOTOS, ROOT
from PIL import Image, ImageOps

from shardwright.core.dataset_files import read_dataset
from shardwright.core.images.map_hook import hook_versions, load_hook
from shardwright.pipelines.convert import convert
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.results import RebuildResult
from shardwright.pipelines.validate import validate
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.errors import DataRefused

tf = late("tensorflow")

HOOKS = """
from shardwright.transforms import DroppedImage, MappedImage

def chosen(item):
    if item.labels == ("birds",):
        return DroppedImage("no birds")
    if item.labels == ("fruit",):
        raise ValueError("no fruit")
    if item.labels == ("flowers",):
        item.image.putpixel((0, 0), (1, 2, 3))
    return item.image

def halves(item):
    middle = item.image.width // 2
    for suffix, left, right in (("left", 0, middle), ("right", middle, item.image.width)):
        image = item.image.crop((left, 0, right, item.image.height))
        yield MappedImage(image, suffix, labels=[f"{item.labels[0]} {suffix}"], columns={"half": [left]})
"""


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two photos of each class, in a folder that also holds the modules with hooks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "hooks_of_test.py").write_text(HOOKS)
    text = (ROOT / "docs" / "custom-code.md").read_text()
    for name, content in re.findall(r"```python title=\"(\S+)\"\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(content)
    for folder in PHOTOS.iterdir():
        (tmp_path / "photos" / folder.name).mkdir(parents=True)
        for photo in sorted(folder.iterdir())[:2]:
            shutil.copy2(photo, tmp_path / "photos" / folder.name)
    yield tmp_path / "photos"
    for name in ("hooks_of_test", "tiling", "embedding", "blurring"):
        sys.modules.pop(name, None)
    hook_versions.cache_clear()
    load_hook.cache_clear()


def dataset_of(made: RebuildResult) -> Dataset:
    return read_dataset(made.path)


def test_a_hook_drops_fails_and_changes_images(photos: Path, tmp_path: Path) -> None:
    made = convert(
        input=photos, output=tmp_path / "out", map="hooks_of_test:chosen", max_bad_fraction=1, verify="full"
    )
    total = made.dataset.ledger
    assert (total["listed"], total["written"], total["quarantined"], total["filtered"]) == (10, 6, 2, 2)
    assert total["reasons"] == {"filtered": {"dropped_by_map": 2}, "quarantined": {"MAP_FAILED": 2}}
    lines = check_books(Path(made.path))
    for key, line in lines.items():
        folder = key.partition("/")[0]
        if folder == "birds":
            assert (line["stage"], line["message"]) == ("map", "no birds")
        elif folder == "fruit":
            assert (line["stage"], line["message"]) == ("map", "ValueError: no fruit")
        elif folder == "flowers":
            assert line["stored"] == "encoded"
        elif key.endswith(".jpg") and Image.open(photos / key).mode == "RGB":
            assert line["stored"] == "kept"
    assert not validate(made.path, against=str(photos)).findings


def test_several_images_of_one_source(photos: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text(
        "".join(f"{p.name} {side}\n" for p in sorted(photos.iterdir()) for side in ("left", "right"))
    )
    made = convert(
        input=photos, output=tmp_path / "out", map="hooks_of_test:halves", image_format="png",
        extra_columns="half:int64[]", class_names=names, splits="train=0.5,test=0.5", verify="full",
    )  # fmt: skip
    assert made.dataset.ledger["listed"] == made.dataset.ledger["written"] == 20
    found = by_key(made.path)
    lines = check_books(Path(made.path))
    for path in photos.glob("*/*"):
        key = path.relative_to(photos).as_posix()
        whole = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
        middle = whole.width // 2
        for side, box in (("left", (0, 0, middle)), ("right", (middle, 0, whole.width))):
            features = found[f"{key}#{side}"].features.feature
            pixels = tf.io.decode_png(features["image/encoded"].bytes_list.value[0]).numpy()
            part = whole.crop((box[0], 0, box[2], whole.height))
            if Image.open(path).mode == "RGB":
                assert np.array_equal(pixels, np.asarray(part))
            assert pixels.shape == (part.height, part.width, 3)
            assert features["half"].int64_list.value == [box[0]]
            assert lines[f"{key}#{side}"]["source_key"] == key
            text = features["image/class/text"].bytes_list.value[0].decode()
            assert text == f"{path.parent.name} {side}"
    assert not validate(made.path, against=str(photos)).findings


def test_a_rebuild_copies_what_hooks_made(photos: Path, tmp_path: Path) -> None:
    settings = {"map": "tiling:tiles", "resize": "32", "shards": "2", "splits": "train=0.8,test=0.2"}
    versions = tmp_path / "versions"
    first = rebuild(input=photos, output=versions, **settings)
    before = dataset_of(first).all_records
    assert not rebuild(input=photos, output=versions, **settings).changed
    shutil.copy(PHOTOS / "birds" / "owl.jpg", photos / "birds" / "one more.jpg")
    second = rebuild(input=photos, output=versions, **settings)
    wide, high = Image.open(PHOTOS / "birds" / "owl.jpg").size
    new_tiles = -(-wide // 256) * -(-high // 256)
    assert dataset_of(second).all_records == before + new_tiles
    full = convert(input=photos, output=tmp_path / "full", plan_from=Path(second.path) / "dataset.json")
    assert dataset_of(second).fingerprint == full.dataset.fingerprint
    work = second.outcome["work"]
    assert work["copied"] > 0 and work["converted"] == new_tiles
    assert not validate(str(versions)).findings


def test_a_changed_hook_converts_everything_again(photos: Path, tmp_path: Path) -> None:
    settings = {"map": "blurring:blur_faces", "resize": "32"}
    rebuild(input=photos, output=tmp_path / "versions", **settings)
    module = tmp_path / "blurring.py"
    module.write_text(module.read_text().replace("GaussianBlur(8)", "GaussianBlur(2)"))
    sys.modules.pop("blurring")
    hook_versions.cache_clear()
    load_hook.cache_clear()
    again = rebuild(input=photos, output=tmp_path / "versions", **settings)
    assert again.changed and again.outcome["work"]["copied"] == 0


def test_a_refusal_names_the_hook_and_what_it_raised(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(DataRefused) as found:
        convert(input=str(photos), output=str(tmp_path / "out"), map="hooks_of_test:chosen")
    assert "fix the function hooks_of_test:chosen (ValueError: no fruit), or allow more" in str(found.value)
    (photos / "birds" / "empty.jpg").touch()
    with pytest.raises(DataRefused, match=r"\(ValueError: no fruit\) and fix or remove the others, or allow"):
        convert(input=str(photos), output=str(tmp_path / "out"), map="hooks_of_test:chosen", resume=True)
