"""`croissant.json`: MLCommons' own library accepts it, and what it states is true."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from helpers.described import HOSTILE_NAMES, KINDS, STATED, described, of_layout, read
from helpers.fewer_imports import late

from shardwright.schemas.dataset import Dataset, Shard
from shardwright.schemas.example import FeatureType
from shardwright.schemas.layouts import LAYOUTS, FeatureSpec
from shardwright.schemas.sidecars import croissant
from shardwright.schemas.sidecars.croissant import croissant_json

mlc = late("mlcroissant")

#: Properties that the standard recommends, but that only a person knows.
FOR_A_PERSON = ("citeAs", "datePublished", "license")


def loaded(file: Path, missing: Sequence[str] = FOR_A_PERSON) -> Any:
    """Returns the dataset as mlcroissant reads it, without errors; it warns only of missing properties."""
    found = mlc.Dataset(jsonld=file)
    issues = found.metadata.ctx.issues
    assert not issues.errors and len(issues.warnings) == len(missing)
    assert all(any(f"/{name}" in warning for name in missing) for warning in issues.warnings)
    return found


def written(kind: str) -> Any:
    return loaded(described(kind) / "croissant.json")


def made(dataset: Dataset, folder: Path, missing: Sequence[str] = FOR_A_PERSON) -> Any:
    (folder / "croissant.json").write_text(croissant_json(dataset), encoding="ascii")
    return loaded(folder / "croissant.json", missing)


def record_set(found: Any, name: str) -> Any:
    (only,) = [item for item in found.metadata.record_sets if item.uuid == name]
    return only


def features(found: Any) -> Mapping[str, tuple[str, str, str]]:
    """Returns type, shape and description of each feature, as mlcroissant reads them."""
    columns = ("name", "type", "shape", "description")
    rows = ([row[f"features/{column}"] for column in columns] for row in found.records("features"))
    return {name: (type_, shape, description) for name, type_, shape, description in rows}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_it_lists_files_fields_classes_and_splits(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    directory = described(kind)
    with caplog.at_level(logging.WARNING):
        found, dataset = written(kind), read(directory)
    assert not [message for message in caplog.messages if "@context" in message]

    files = {item.uuid: item for item in found.metadata.file_objects}
    assert set(files) == {shard.file for shards in dataset.splits.values() for shard in shards}
    for name, item in files.items():
        content = (directory / item.content_url).read_bytes()
        assert (item.uuid, item.content_url) == (name, name)
        assert item.sha256 == hashlib.sha256(content).hexdigest()
        assert item.content_size == f"{len(content)} B"
    (shards,) = found.metadata.file_sets
    on_disk = [path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()]
    assert {file for file in on_disk if any(fnmatch(file, it) for it in shards.includes)} == set(files)

    names = [item.uuid for item in found.metadata.record_sets]
    assert names == ["splits", "labels", "features"] and all(list(found.records(name)) for name in names)
    assert list(features(found)) == [spec.name for spec in dataset.features]

    labels = dataset.classes.items()
    assert list(found.records("labels")) == [{"labels/id": i, "labels/name": name} for i, name in labels]
    assert [(row["splits/name"], row["splits/records"]) for row in found.records("splits")] == [
        (split, dataset.records(split)) for split in dataset.splits
    ]


def test_it_describes_the_whole_dataset() -> None:
    found, dataset = written("photos"), read(described("photos"))
    assert found.metadata.name == dataset.name == "out"
    assert "12 images of 5 classes (splits: train 10, test 2)" in found.metadata.description
    assert found.metadata.version == f"1.0.0+{dataset.fingerprint[:12]}"
    assert found.metadata.ctx.conforms_to.value == croissant.CONFORMS_TO
    assert [row["splits/url"] for row in found.records("splits")] == ["cr:TrainingSplit", "cr:TestSplit"]
    assert mlc.DataType.SPLIT in record_set(found, "splits").data_types
    assert record_set(found, "features").key == ["features/name"]


def test_stated_provenance_leaves_no_warning(tmp_path: Path) -> None:
    found = made(replace(read(described("photos")), provenance=STATED), tmp_path, missing=()).metadata
    assert (found.license, found.cite_as, found.url) == ([STATED.license], STATED.citation, STATED.url)
    assert [(type(creator).__name__, creator.name) for creator in found.creators] == [
        ("Person", "Ada Lovelace"),
        ("Organization", "Analytical Society"),
    ]
    assert str(found.date_published).startswith(STATED.date_published)
    assert found.description.startswith(f"{STATED.description}\n\n12 images of 5 classes")


def test_features_have_types_shapes_and_descriptions() -> None:
    photos = features(written("photos"))
    assert photos["image/class/label"] == ("int64", "[]", "the class id; -1 without a class")
    objects = features(written("detection"))
    assert objects["image/object/bbox/xmin"][:2] == ("float", "[null]")
    assert "left out" in objects["image/object/mask"][2]
    assert "base64" in features(written("tfrecorder"))["image"][2]
    own = features(written("own"))
    assert own["../odd name"][2] == "column tags of the source"


def test_classes_whose_names_are_codes(tmp_path: Path) -> None:
    dataset = read(described("gray"))
    texts = ("bird, fowl", "", *dataset.labels[2:])
    found = made(replace(dataset, plan=replace(dataset.plan, texts=texts)), tmp_path)
    rows = [(row["labels/name"], row["labels/text"]) for row in found.records("labels")]
    assert rows == list(zip(dataset.labels, ("bird, fowl", *dataset.labels[1:])))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_is_valid_for_every_layout(layout: str, tmp_path: Path) -> None:
    dataset = of_layout(layout)
    found = features(made(dataset, tmp_path))
    assert list(found) == [spec.name for spec in dataset.features]
    for spec in dataset.features:
        type_, shape, description = found[spec.name]
        assert (type_, json.loads(shape)) == (spec.type.value, list(spec.shape))
        assert spec.fill and spec.fill.what in description


def test_hostile_class_names_are_safe_in_a_page() -> None:
    found = written("hostile")
    assert sorted(row["labels/name"] for row in found.records("labels")) == sorted(HOSTILE_NAMES)
    assert [row["splits/records"] for row in found.records("splits")] == [6, 0]
    text = (described("hostile") / "croissant.json").read_text(encoding="ascii")
    assert "<" not in text  # so it cannot end an element of a page


ODD_NAMES = [
    "a b", "..", "../x", "a//b", "/a", "a/", "a/./b", "ü", "a:b", "http://x/y", "#x", "?x", "%41", "A",
    "a\nb", '"', "<b>", "{x}", "[0]", "a|b", "split", "shard_split", "\N{FOX FACE}", "\u2028",
]  # fmt: skip


def test_features_of_any_name(tmp_path: Path) -> None:
    odd = tuple(FeatureSpec(name, FeatureType.INT64) for name in ODD_NAMES)
    found = made(replace(read(described("photos")), features=odd), tmp_path)
    assert list(features(found)) == ODD_NAMES


def test_without_classes_and_with_splits_of_other_names(tmp_path: Path) -> None:
    dataset = read(described("photos"))
    splits = {"fold_1": dataset.splits["train"], "test": dataset.splits["test"]}
    found = made(replace(dataset, plan=replace(dataset.plan, labels=()), splits=splits), tmp_path)
    assert [item.uuid for item in found.metadata.record_sets] == ["splits", "features"]
    assert [set(row) for row in found.records("splits")] == [{"splits/name", "splits/records"}] * 2
    assert "12 images (splits: fold_1 10, test 2)" in found.metadata.description


def test_many_shards_are_listed_as_a_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(croissant, "MAX_LISTED_SHARDS", 3)
    dataset = read(described("photos"))

    def split_in(number: int) -> Any:
        files = [f"train-{i:05d}-of-{number:05d}.tfrecord" for i in range(number)]
        return made(replace(dataset, splits={"train": [Shard(f, 1, 1, "0" * 64) for f in files]}), tmp_path)

    assert len(split_in(3).metadata.file_objects) == 3
    found = split_in(4)
    assert found.metadata.file_objects == []
    assert found.metadata.file_sets[0].includes == ["train-*-of-00004.tfrecord"]
