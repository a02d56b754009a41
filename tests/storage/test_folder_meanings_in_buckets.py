"""The meaning of folders at the top of a bucket is the same as on a disk, however the bucket is listed."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.packing import by_key, list_refs
from helpers.repository import PHOTOS
from helpers.storage.buckets import Bucket

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.labels import ClassId
from shardwright.transforms import storage as storage_of_project
from shardwright.transforms.sources.inputs import check_inputs

JPEG = (PHOTOS / "fruit" / "apple.jpg").read_bytes()
#: Paths -> parts of the message; empty if the paths have one meaning.
TREES = {
    "splits": (("Train/cat/1.jpg", "Train/x.jpg", "val/dog/2.jpg", "docs/a/LICENSE", "docs/b.txt"), ""),
    "classes": (("cat/1.jpg", "dog/a/2.jpg", "test/x.txt"), ""),
    "mixed": (("train/cat/1.jpg", "unlabelled/a/2.jpg"), "and unlabelled, which holds images too, is not"),
    "flat": (("train/1.jpg", "test/2.jpg"), "the images lie directly in train and test"),
    "shards": (("00000/1.jpg", "00001/2.jpg", "more/x.txt"), "named like shards"),
}


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("by_folder", [True, False])
def test_folders_in_a_bucket_mean_the_same_as_on_a_disk(
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
        listed = []
        for place in places:
            try:
                found = by_key(list_refs(place, "class_folders", folders=folders))
            except UsageError as error:
                listed.append(error.message.replace(place, "IN"))
                continue
            listed.append({key: (ref.split, ref.label, ref.reason) for key, ref in found.items()})
        assert listed[0] == listed[1]
        if folders == "auto":
            assert (says in listed[0] and isinstance(listed[0], str)) if says else isinstance(listed[0], dict)
    if says and by_folder:  # the job is refused before it starts
        with pytest.raises(UsageError, match=says):
            check_inputs(ConvertSettings(input=(places[1],)), None)


@pytest.mark.parametrize("by_folder", [True, False])
def test_metadata_files_in_a_bucket_are_found(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_folder: bool
) -> None:
    for number in range(5):
        for extension, data in (("jpg", JPEG), ("json", b'{"label": %d, "n": "x"}' % number)):
            path = f"in/{number // 3:05d}/{number}.{extension}"
            bucket.put(path, data)
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(data)
    bucket.put("in/00000_stats.json", b"{}")
    (tmp_path / "in" / "00000_stats.json").write_bytes(b"{}")
    monkeypatch.setattr(storage_of_project, "has_folders", lambda directory: by_folder)
    listed = []
    for place in (str(tmp_path / "in"), f"{bucket.url}/in"):
        found = list_refs(place, "class_folders", extra_columns="n:string")
        refs = by_key(found)
        listed.append({key: (ref.label, ref.extra, ref.reason) for key, ref in refs.items()})
        assert sum(isinstance(one, ClassId) for one in found) == 5
    assert listed[0] == listed[1] and len(listed[0]) == 6
    assert listed[0]["00001/4.jpg"][0] == "4" and listed[0]["00000_stats.json"][2] == "not_an_image"
