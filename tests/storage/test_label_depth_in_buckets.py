"""Class names of several folders in a bucket are the same as on a disk, however the bucket is listed."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.packing import by_key, list_refs
from helpers.storage.buckets import Bucket

from shardwright.transforms import storage as storage_of_project

PATHS = ("animals/cat/1.jpg", "animals/cat/old/2.jpg", "animals/3.jpg", "plants/a/b/4.jpg")


@pytest.mark.slow
@pytest.mark.parametrize("top", ["", "train/"])
@pytest.mark.parametrize("by_folder", [True, False])
def test_class_names_of_several_folders_are_the_same_as_on_a_disk(
    bucket: Bucket, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, top: str, by_folder: bool
) -> None:
    data = (photos / "fruit" / "apple.jpg").read_bytes()
    for path in PATHS:
        bucket.put(f"in/{top}{path}", data)
        file = tmp_path / "in" / top / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    monkeypatch.setattr(storage_of_project, "has_folders", lambda directory: by_folder)
    for depth, named in {"1": "animals", "2": "animals/cat", "all": "animals/cat/old", "last": "old"}.items():
        here = by_key(list_refs(tmp_path / "in", "class_folders", label_depth=depth))
        there = by_key(list_refs(f"{bucket.url}/in", "class_folders", label_depth=depth))
        assert there[f"{top}{PATHS[1]}"].label == named
        places = {key: (ref.split, ref.label) for key, ref in here.items()}
        assert {key: (ref.split, ref.label) for key, ref in there.items()} == places
