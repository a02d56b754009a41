"""Images with masks of the same names in a separate folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.annotation_sets.semantic_masks import put_set
from helpers.listing import listed
from PIL import Image

from shardwright.schemas.errors import UsageError


def test_splits_and_nested_folders_are_read(tmp_path: Path) -> None:
    for folder in ("train/a", "train", "val"):
        put_set(tmp_path / "images" / folder, tmp_path / "masks" / folder)
    (tmp_path / "images" / "docs").mkdir()  # a folder without images does not count
    found = listed(tmp_path / "images", "segmentation", mask_dir=f"{tmp_path}/masks/")
    assert ", splits train and val)" in found.input.detected_as
    assert len(found.refs) == 9 and not found.reasons()
    assert {key: ref.split for key, ref in found.refs.items()} == {
        key: key.partition("/")[0] for key in found.refs
    }
    assert found.annotations_of("train/a/apple.jpg").semantic_mask == str(
        tmp_path / "masks/train/a/apple.png"
    )
    assert {ref.label for ref in found.refs.values()} == {""}


def test_folders_that_are_not_splits_are_ignored(tmp_path: Path) -> None:
    put_set(tmp_path / "images" / "train", tmp_path / "masks" / "train")
    put_set(tmp_path / "images" / "berlin", tmp_path / "masks" / "berlin")
    found = listed(tmp_path / "images", "segmentation", mask_dir=tmp_path / "masks")
    assert {ref.split for ref in found.refs.values()} == {""} and not found.reasons()


def test_missing_partners_are_reported(tmp_path: Path) -> None:
    put_set(tmp_path / "images", tmp_path / "masks", ("eagle", "apple", "house", "rose"))
    (tmp_path / "masks" / "eagle.png").unlink()
    (tmp_path / "images" / "apple.jpg").unlink()
    (tmp_path / "masks" / "notes.txt").write_text("x")
    (tmp_path / "masks" / ".hidden.png").touch()
    (tmp_path / "images" / "notes.txt").write_text("x")
    (tmp_path / "masks" / "rose.png").rename(tmp_path / "masks" / "rose.bmp.png")
    with Image.open(tmp_path / "images" / "rose.jpg") as rose:
        Image.new("L", rose.size).save(tmp_path / "masks" / "rose.bmp")
    (tmp_path / "masks" / "house.bmp").touch()  # PNG takes precedence
    found = listed(tmp_path / "images", "segmentation", mask_dir=tmp_path / "masks")
    assert found.reasons() == {
        "eagle.jpg": "BAD_ANNOTATION",
        "masks/apple.png": "BAD_ANNOTATION",
        "masks/rose.bmp.png": "BAD_ANNOTATION",
        "notes.txt": "not_an_image",
    }
    for name, mask in (("rose.jpg", "rose.bmp"), ("house.jpg", "house.png")):
        assert found.annotations_of(name).semantic_mask == f"{tmp_path}/masks/{mask}"


@pytest.mark.parametrize("relative", [False, True])
def test_masks_among_the_images_are_recognized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: bool
) -> None:
    put_set(tmp_path / "images", tmp_path / "images" / "masks")
    monkeypatch.chdir(tmp_path)
    masks = Path("images/masks") if relative else tmp_path / "images" / "masks"
    found = listed(tmp_path / "images", "segmentation", mask_dir=masks)
    assert found.refs.keys() == {"eagle.jpg", "apple.jpg", "house.jpg"} and not found.reasons()


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    put_set(tmp_path / "images", tmp_path / "masks")
    with pytest.raises(UsageError, match=r"--mask_dir .* is not a folder"):
        listed(tmp_path / "images", "segmentation", mask_dir=tmp_path / "gone")
    with pytest.raises(UsageError, match="needs --mask_dir"):
        listed(tmp_path / "images", "segmentation", source="semantic_masks")
    with pytest.raises(UsageError, match="choose --layout segmentation"):
        listed(tmp_path / "images", "detection", source="semantic_masks", mask_dir=tmp_path / "masks")
