"""The `objects` column of Hugging Face's imagefolder: JSON Lines, CSV, Parquet; units, ids, faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.annotation_sets.objects_column import row_of
from helpers.listing import Photo, listed, put_photos
from helpers.manifests import write_csv, write_jsonl
from helpers.records import balanced, examples, value, values
from pyarrow import parquet

from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.tables.rows import objects_of
from shardwright.pipelines.convert import convert
from shardwright.schemas.errors import UsageError


def check(found: Any, photos: list[Photo], folder: str = "") -> None:
    assert found.input.source == "manifest" and "objects in 'objects'" in found.input.detected_as
    for photo in photos:
        objects = found.annotations_of(folder + photo.name).objects
        assert [(item.label, *item.box) for item in objects] == [*photo.boxes]


@pytest.mark.parametrize("kind", ["jsonl", "list", "csv", "printed", "parquet"])
def test_metadata_beside_its_images_is_read(tmp_path: Path, kind: str) -> None:
    photos = put_photos(tmp_path)
    rows = [row_of(photo) for photo in photos]
    if kind in ("jsonl", "list"):
        for row in rows if kind == "list" else ():
            pairs = zip(row["objects"]["bbox"], row["objects"]["categories"], strict=True)
            row["objects"] = [{"bbox": box, "category": name} for box, name in pairs]
        write_jsonl(tmp_path / "metadata.jsonl", rows)
    elif kind == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "metadata.parquet")
    else:
        write = json.dumps if kind == "csv" else str
        cells = [(row["file_name"], write(row["objects"])) for row in rows]
        write_csv(tmp_path / "metadata.csv", [("file_name", "objects"), *cells])
    check(listed(tmp_path), photos)


def test_images_may_be_in_other_places(tmp_path: Path) -> None:
    photos = put_photos(tmp_path / "in" / "images")
    rows = [row_of(photo) | {"file_name": f"images/{photo.name}"} for photo in photos]
    write_jsonl(tmp_path / "in" / "metadata.jsonl", rows)
    check(listed(tmp_path / "in"), photos, "images/")
    check(listed(tmp_path / "in" / "metadata.jsonl"), photos, "images/")
    for split in ("train", "test"):
        photos = put_photos(tmp_path / "two" / split)
        write_jsonl(tmp_path / "two" / split / "metadata.jsonl", [row_of(photo) for photo in photos])
    found = listed(tmp_path / "two")
    assert {ref.split for ref in found.refs.values()} == {"train", "test"}
    check(found, photos, "test/")


def test_ids_sizes_and_other_fields_are_read(tmp_path: Path) -> None:
    photos = put_photos(tmp_path)
    rows = [row_of(photo, numbers=True) for photo in photos]
    for row, photo in zip(rows, photos, strict=True):
        row |= {"width": photo.size[0], "height": photo.size[1], "split": "train"}
        count = len(photo.boxes)
        row["objects"] |= {"area": [7] * count, "iscrowd": [1] * count, "id": [3] * count}
    write_jsonl(tmp_path / "metadata.jsonl", rows)
    found = listed(tmp_path)
    assert found.ids == {"0": 0, "1": 1}
    annotations = found.annotations_of(photos[3].name)
    objects = {(item.label, item.area, item.crowd) for item in annotations.objects or ()}
    assert annotations.size == photos[3].size and objects == {("0", 7, True), ("1", 7, True)}
    assert {ref.split for ref in found.refs.values()} == {"train"}


def test_messages_about_faults_name_the_line(tmp_path: Path) -> None:
    photos = put_photos(tmp_path)
    rows = [row_of(photo) for photo in photos]
    rows[0]["objects"] = None
    rows[1]["objects"]["categories"] = []
    rows[2]["objects"]["bbox"] = [[0.1, 0.2, 0.3, 0.4]] * 2
    rows[3]["objects"]["bbox"][1] = [1, 2, 3]
    rows.append({"file_name": "gone.jpg", "objects": {"bbox": [], "category": []}})
    write_jsonl(tmp_path / "metadata.jsonl", rows)
    found = listed(tmp_path)
    messages = {Path(key).stem: ref.message for key, ref in found.refs.items()}
    assert messages["eagle"] == "metadata.jsonl, line 1: it has no objects"
    assert messages["apple"] == "metadata.jsonl, line 2: its objects have 1 box and 0 categories"
    assert "line 3: its boxes are shares of the image" in messages["house"]
    assert "the bbox of object 1 is [1, 2, 3] instead of x, y, width, height" in messages["seagull"]
    reasons = found.reasons()
    assert reasons.pop("gone.jpg") == "UNREADABLE" and set(reasons.values()) == {"BAD_ANNOTATION"}


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ("{", "not JSON"), ("", "no objects"), ({"category": []}, "no bbox"), ({"bbox": []}, "no categories"),
        (3, "neither lists nor a list"), ("__import__('os')", "not JSON"),
    ],
)  # fmt: skip
def test_broken_objects_are_faults(objects: Any, why: str) -> None:
    with pytest.raises(AnnotationFault, match=why):
        objects_of(objects)
    assert objects_of([]).objects == () == objects_of({"bbox": [], "categories": []}).objects


def test_layouts_decide_whether_objects_are_read(tmp_path: Path) -> None:
    photos = put_photos(tmp_path)
    write_jsonl(tmp_path / "metadata.jsonl", [row_of(photo) for photo in photos])
    with pytest.raises(UsageError, match="have objects and no class; choose --layout detection"):
        listed(tmp_path, layout="classification")
    write_jsonl(tmp_path / "rows.jsonl", [{"file_name": photo.name, "label": "a"} for photo in photos])
    with pytest.raises(UsageError, match="no column objects"):
        listed(tmp_path / "rows.jsonl")


def test_records_contain_the_objects(tmp_path: Path) -> None:
    photos = {photo.name: photo for photo in put_photos(tmp_path / "in")}
    rows = [row_of(photo) | {"price": 1.5} for photo in photos.values()]
    write_jsonl(tmp_path / "in" / "metadata.jsonl", rows)
    settings = {"layout": "detection", "verify": "full", "extra_columns": "price:float"}
    made = convert(input=tmp_path / "in", output=tmp_path / "out", **settings)
    assert made.dataset.ledger["written"] == 4 and balanced(made.dataset.ledger)
    assert made.dataset.labels == ("bird", "thing")
    for record in examples(tmp_path / "out")["train"]:
        photo = photos[value(record, "image/filename")]
        expected = [box[3] / photo.size[0] for box in photo.boxes]
        np.testing.assert_allclose(values(record, "image/object/bbox/xmax"), expected, atol=1e-6)
        assert value(record, "price") == 1.5
