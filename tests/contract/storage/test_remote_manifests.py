"""Manifests in a bucket: read in ranges, in one generation, with images beside them or anywhere."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow
import pytest
from helpers.annotation_sets.coco import save
from helpers.annotation_sets.json_exports import export
from helpers.listing import listed, put_photos
from helpers.packing import tree_members
from helpers.storage.buckets import Bucket
from pyarrow import parquet

from shardwright.core.sources.tables import files


def as_csv(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def test_all_ways_to_name_objects_give_the_same_images(
    bucket: Bucket, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "STRETCH", 100)
    bucket.put_tree(tree, "set/")
    rows = [(path, path.partition("/")[0]) for path in tree_members(tree)]
    header = ("path", "label")
    columns = {name: list(column) for name, column in zip(header, zip(*rows))}
    table = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), table, row_group_size=5)
    absolute = [(f"{bucket.url}/set/{path}", label) for path, label in rows]
    bucket.put("set/rows.csv", as_csv([header, *rows]))
    bucket.put("set/absolute.csv", as_csv([header, *absolute]))
    bucket.put("set/automl.csv", as_csv([("TRAIN", *row) for row in absolute]))
    bucket.put("set/rows.parquet", table.getvalue())
    bucket.put("lists/a.csv", as_csv([header, *((f"../set/{path}", label) for path, label in rows)]))
    bucket.put("many/1.csv", as_csv([header, *rows[:5]]))
    bucket.put("many/2.csv", as_csv([header, *rows[5:]]))
    (tmp_path / "local.csv").write_bytes(as_csv([header, *rows]))
    root = f"{bucket.url}/set"
    expected = {path: (f"{root}/{path}", (label,)) for path, label in rows}
    for path, image_root in (
        (f"{root}/rows.csv", ""),
        (f"{root}/absolute.csv", ""),
        (f"{root}/automl.csv", ""),
        (f"{root}/rows.parquet", ""),
        (f"{bucket.url}/lists/a.csv", root),
        (f"{bucket.url}/many/", root),
        (str(tmp_path / "local.csv"), root),
    ):
        refs = listed(path, "classification", image_root=image_root).refs.values()
        assert {ref.key: (ref.uri, ref.labels) for ref in refs if ref.is_candidate} == expected, path


def test_tasks_of_label_studio_may_name_objects_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    photos = put_photos(tmp_path / "in")
    bucket.put_tree(tmp_path / "in", "sets/photos/")
    tasks = export(photos)
    for item, photo in zip(tasks, photos):
        item["data"]["image"] = f"{bucket.url}/sets/photos/{photo.name}"
    path = save(tmp_path / "alone" / "tasks.json", tasks)
    refs = listed(path).refs
    assert refs.keys() == {f"sets/photos/{photo.name}" for photo in photos}
    assert all(ref.is_candidate and ref.size > 0 for ref in refs.values())
    bucket.delete(f"sets/photos/{photos[1].name}")
    assert listed(path).refs[f"sets/photos/{photos[1].name}"].reason == "BAD_ANNOTATION"
