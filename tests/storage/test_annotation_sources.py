"""Images with annotations in a bucket give the same dataset as on a local disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.annotation_sets.coco import save
from helpers.annotation_sets.each_format import SETS
from helpers.annotation_sets.json_exports import export
from helpers.hostile import outcomes, shard_hashes
from helpers.listing import listed, put_photos
from helpers.storage.buckets import Bucket

from shardwright.pipelines.convert import convert
from shardwright.schemas.annotations import decode_annotations

#: Those that read more from the bucket than images and texts: masks, data inside JSON, several folders.
_CONVERTED = ("coco", "panoptic", "yolo", "cityscapes", "labelme", "semantic_masks")
_SLOW_KINDS = [pytest.param(kind, marks=pytest.mark.slow) for kind in SETS if kind not in _CONVERTED]


def _references(root: str, kind: str, name: str) -> dict[str, tuple[Any, ...]]:
    """Returns what is listed under each key, without what depends on the storage."""
    masks = {"mask_dir": f"{root}/masks"} if kind == "semantic_masks" else {}
    refs = listed(f"{root}/{name}".rstrip("/"), SETS[kind][1], **masks).refs
    return {
        key: (
            ref.split,
            ref.labels,
            ref.reason,
            decode_annotations(ref.annotations).objects if ref.annotations else (),
        )
        for key, ref in refs.items()
    }


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", SETS)
def test_references_equal_those_of_a_local_disk(bucket: Bucket, tmp_path: Path, kind: str) -> None:
    name = SETS[kind][0](tmp_path / "in")
    bucket.put_tree(tmp_path / "in", "in/")
    local = _references(str(tmp_path / "in"), kind, name)
    assert len(local) >= 3 and _references(f"{bucket.url}/in", kind, name) == local


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "kind",
    [*_CONVERTED, *_SLOW_KINDS],
)
def test_annotated_images_give_the_same_dataset_as_on_a_disk(
    bucket: Bucket, tmp_path: Path, kind: str
) -> None:
    put, layout = SETS[kind]
    name = put(tmp_path / "in")
    bucket.put_tree(tmp_path / "in", "in/")
    settings: dict[str, Any] = {"layout": layout, "max_bad_fraction": 1, "splits": "train=0.5,test=0.5"}

    def made(root: str, output: Path) -> Path:
        masks = {"mask_dir": f"{root}/masks"} if kind == "semantic_masks" else {}
        convert(input=f"{root}/{name}".rstrip("/"), output=output, **settings, **masks)
        return output

    local = made(str(tmp_path / "in"), tmp_path / "local")
    remote = made(f"{bucket.url}/in", tmp_path / "remote")
    assert shard_hashes(remote) == shard_hashes(local)
    assert outcomes(remote) == outcomes(local)


def test_a_missing_image_is_an_annotation_fault(bucket: Bucket, tmp_path: Path) -> None:
    name = SETS["coco file"][0](tmp_path / "in")
    bucket.put_tree(tmp_path / "in", "in/")
    bucket.delete("in/val2017/apple.jpg")
    convert(input=f"{bucket.url}/in/{name}", output=tmp_path / "out", layout="detection", max_bad_fraction=1)
    found = outcomes(tmp_path / "out")
    assert found["apple.jpg"] == "BAD_ANNOTATION" and found["eagle.jpg"] == "written"


def test_tasks_of_label_studio_may_name_objects_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    photos = put_photos(tmp_path / "in")
    bucket.put_tree(tmp_path / "in", "sets/photos/")
    tasks = export(photos)
    for item, photo in zip(tasks, photos):
        item["data"]["image"] = f"{bucket.url}/sets/photos/{photo.name}"
    path = save(tmp_path / "alone" / "tasks.json", tasks)
    made = convert(input=path, output=tmp_path / "out", layout="detection", verify="full")
    assert made.dataset.ledger["written"] == len(photos)
    bucket.delete(f"sets/photos/{photos[1].name}")
    missing = listed(path).refs[f"sets/photos/{photos[1].name}"]
    assert missing.reason == "BAD_ANNOTATION"
