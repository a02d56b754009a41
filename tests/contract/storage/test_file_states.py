"""Images that annotations name in a bucket have the states of their objects, so changes are detected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.annotation_sets.formats import FORMATS
from helpers.listing import listed
from helpers.storage.buckets import Bucket

from shardwright.core import storage
from shardwright.core.images.annotate import read_mask
from shardwright.core.sources import file_states
from shardwright.core.sources.file_states import FileStates, with_states
from shardwright.schemas.annotations import Annotations
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, ImageFault
from shardwright.schemas.image_ref import ImageRef


@pytest.mark.parametrize("kind", ["coco", "panoptic", "open_images"])
def test_an_image_and_its_mask_have_the_states_of_their_objects(
    bucket: Bucket, tmp_path: Path, kind: str
) -> None:
    FORMATS[kind].put(tmp_path / "in")
    bucket.put_tree(tmp_path / "in", "in/")
    found = listed(f"{bucket.url}/in", FORMATS[kind].layout)
    (ref,) = (ref for ref in found.refs.values() if ref.key.endswith("house.jpg"))
    state = storage.stat(ref.uri)
    assert state is not None and ref.version and (ref.size, ref.version) == (state.size, state.version)
    if kind == "panoptic":
        annotations = found.annotations_of("eagle.jpg")
        state = storage.stat(annotations.panoptic_mask)
        assert state is not None
        assert (annotations.mask_size, annotations.mask_version) == (state.size, state.version)


@pytest.mark.parametrize("most", [10_000, 3])
def test_a_folder_is_listed_unless_it_has_far_more_files(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(file_states, "MIN_LISTED", most)
    monkeypatch.setattr(file_states, "LISTED_FOR_EACH", 1)
    names = ["a.jpg", "b/\u00e4 c.jpg", "b/d.jpg", "e", "f"]
    for number, name in enumerate(names):
        bucket.put(f"in/{name}", b"x" * number)
    bucket.put("other.jpg", b"other")
    drawn = []
    list_objects = storage.list_objects

    def counted(folder: str) -> Iterator[storage.StoredObject]:
        for item in list_objects(folder):
            drawn.append(item)
            yield item

    monkeypatch.setattr(storage, "list_objects", counted)
    root = f"{bucket.url}/in"
    uris = [*(f"{root}/{name}" for name in names[:3]), f"{root}/gone.jpg", f"{bucket.url}/other.jpg"]
    refs = [ImageRef(uri, uri) for uri in uris] + [ImageRef("k", f"{root}/a.jpg").filtered("dotfile")]
    found = list(with_states(refs, FileStates(root, 3)))
    assert [ref.key for ref in found] == [ref.key for ref in refs]
    assert [ref.size for ref in found] == [0, 1, 2, -1, 5, -1]
    assert [ref.reason for ref in found] == ["", "", "", "BAD_ANNOTATION", "", "dotfile"]
    for ref in (*found[:3], found[4]):
        assert (ref.uri, ref.size, ref.version, ref.crc32c) == storage.state_of(ref.uri)[:4]
    assert len(drawn) == min(len(names), most + 1)


SETTINGS = ConvertSettings(input=("in",), output="out", layout="segmentation")


def test_a_mask_that_changed_since_its_listing_stops_the_job(bucket: Bucket) -> None:
    bucket.put("mask.png", b"first")
    uri = f"{bucket.url}/mask.png"
    found = storage.stat(uri)
    assert found is not None
    annotations = Annotations(semantic_mask=uri, mask_size=found.size, mask_version=found.version)
    ref = ImageRef("a.jpg", "a.jpg", annotations=annotations.encode())
    assert read_mask(ref, SETTINGS) == b"first"
    bucket.put("mask.png", b"other")
    with pytest.raises(EngineError, match="changed"):
        read_mask(ref, SETTINGS)


def test_a_missing_mask_is_a_fault_of_its_image(bucket: Bucket) -> None:
    annotations = Annotations(semantic_mask=f"{bucket.url}/none.png")
    with pytest.raises(ImageFault, match=r"its mask none\.png: no such object"):
        read_mask(ImageRef("a.jpg", "a.jpg", annotations=annotations.encode()), SETTINGS)
