"""What folders at the top of a bucket mean: as on a disk, however the bucket is listed."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import PHOTOS
from packing import by_key, list_refs

from shardwright.schemas.errors import UsageError
from shardwright.schemas.settings import ConvertSettings
from shardwright.transforms import storage as storage_of_project
from shardwright.transforms.sources.inputs import check_inputs
from storage.buckets import Bucket

JPEG = (PHOTOS / "fruit" / "apple.jpg").read_bytes()
#: Paths -> what is said of them; empty if they mean one thing.
TREES = {
    "splits": (("Train/cat/1.jpg", "Train/x.jpg", "val/dog/2.jpg", "docs/a/LICENSE", "docs/b.txt"), ""),
    "classes": (("cat/1.jpg", "dog/a/2.jpg", "test/x.txt"), ""),
    "mixed": (("train/cat/1.jpg", "unlabelled/a/2.jpg"), "and unlabelled, which holds images too, is not"),
    "flat": (("train/1.jpg", "test/2.jpg"), "the images lie directly in train and test"),
    "shards": (("00000/1.jpg", "00001/2.jpg", "more/x.txt"), "named like shards"),
}


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("by_folder", [True, False])
def test_folders_in_a_bucket(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree: str, by_folder: bool
) -> None:
    paths, says = TREES[tree]
    for path in paths:
        data = JPEG if path.endswith(".jpg") else b"text"
        bucket.put(f"in/{path}", data)
        (tmp_path / "in" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / path).write_bytes(data)
    monkeypatch.setattr(storage_of_project, "has_folders", lambda directory: by_folder)
    places = [str(tmp_path / "in"), f"{bucket.url}/in"]
    for folders in ("auto", "splits", "classes", "ignore"):
        told = []
        for place in places:
            try:
                found = by_key(list_refs(place, "class_folders", folders=folders))
            except UsageError as error:
                told.append(error.message.replace(place, "IN"))
                continue
            told.append({key: (ref.split, ref.label, ref.reason) for key, ref in found.items()})
        assert told[0] == told[1]
        if folders == "auto":
            assert (says in told[0] and isinstance(told[0], str)) if says else isinstance(told[0], dict)
    if says and by_folder:  # refused before a job starts
        with pytest.raises(UsageError, match=says):
            check_inputs(ConvertSettings(input=(places[1],)), None)
