"""`croissant.json`: MLCommons' own library accepts it, and what it states is true."""

from __future__ import annotations

import hashlib
import html.parser
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from helpers.described import HOSTILE_NAMES, KINDS, STATED, described, of_layout, read
from helpers.fewer_imports import late

from shardwright.schemas.dataset import Dataset, Shard
from shardwright.schemas.example import FeatureType
from shardwright.schemas.feature_roles import FEATURE_ROLES, FeatureRole
from shardwright.schemas.layouts import LAYOUTS, FeatureSpec
from shardwright.schemas.sidecars import croissant
from shardwright.schemas.sidecars.croissant import croissant_json

mlc = late("mlcroissant")

#: Properties that the standard recommends, but that only a person knows.
FOR_A_PERSON = ("citeAs", "datePublished", "license")


def loaded(file: Path) -> Any:
    """Returns the dataset as mlcroissant reads it, without errors or unexpected warnings."""
    found = mlc.Dataset(jsonld=file)
    issues = found.metadata.ctx.issues
    assert not issues.errors
    assert len(issues.warnings) == len(FOR_A_PERSON)
    assert all(any(f"/{name}" in warning for name in FOR_A_PERSON) for warning in issues.warnings)
    return found


def written(kind: str) -> Any:
    return loaded(described(kind) / "croissant.json")


def made(dataset: Dataset, folder: Path) -> Any:
    (folder / "croissant.json").write_text(croissant_json(dataset), encoding="ascii")
    return loaded(folder / "croissant.json")


def record_set(found: Any, name: str) -> Any:
    (only,) = [item for item in found.metadata.record_sets if item.uuid == name]
    return only


def fields(found: Any) -> Mapping[str, Any]:
    return {field.name: field for field in record_set(found, "records").fields}


def short(data_types: Any) -> list[str]:
    return [str(item).replace("https://schema.org/", "").split("/")[-1] for item in data_types]


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

    names = [spec.name for spec in dataset.features]
    assert list(fields(found))[:-1] == names
    for name in names:
        field = fields(found)[name]
        assert field.source.extract.column == name
        assert unquote(field.uuid) == f"records/{name}"

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
    assert record_set(found, "records").key == ["records/image/filename"]


def test_stated_provenance_leaves_no_warning(tmp_path: Path) -> None:
    dataset = replace(read(described("photos")), provenance=STATED)
    (tmp_path / "croissant.json").write_text(croissant_json(dataset), encoding="ascii")
    found = mlc.Dataset(jsonld=tmp_path / "croissant.json").metadata
    assert not found.ctx.issues.errors and not found.ctx.issues.warnings
    assert (found.license, found.cite_as, found.url) == ([STATED.license], STATED.citation, STATED.url)
    assert [(type(creator).__name__, creator.name) for creator in found.creators] == [
        ("Person", "Ada Lovelace"),
        ("Organization", "Analytical Society"),
    ]
    assert str(found.date_published).startswith(STATED.date_published)
    assert found.description.startswith(f"{STATED.description}\n\n12 images of 5 classes")


def test_fields_have_types_shapes_and_descriptions() -> None:
    photos = fields(written("photos"))
    assert photos["image/encoded"].data_type == mlc.DataType.IMAGE_OBJECT
    assert short(photos["image/class/label"].data_types) == ["Integer", "Label"]
    assert photos["image/class/label"].references.field == "labels/id"
    assert photos["image/class/text"].references.field == "labels/name"
    assert photos["split"].references.field == "splits/name"
    assert not photos["image/height"].is_array
    objects = fields(written("detection"))
    assert objects["image/object/bbox/xmin"].array_shape_tuple == (-1,)
    assert objects["image/object/class/label"].references.field == "labels/id"
    assert short(objects["image/object/mask"].data_types) == ["SegmentationMask", "ImageObject"]
    assert "left out" in objects["image/object/mask"].description
    raw = fields(written("raw"))["image"]
    assert (short(raw.data_types), raw.array_shape_tuple) == (["UInt8"], (24, 24, 3))
    base64 = fields(written("tfrecorder"))["image"]
    assert (short(base64.data_types), "base64" in base64.description) == (["Text"], True)
    own = fields(written("own"))
    assert (short(own["sizes"].data_types), own["sizes"].array_shape_tuple) == (["Int64"], (2,))
    assert (short(own["pair"].data_types), own["pair"].array_shape_tuple) == (["Int64"], (2,))
    assert short(own["a/./b"].data_types) == ["Boolean"]
    assert own["../odd name"].description == "column tags of the source"


def test_classes_whose_names_are_codes(tmp_path: Path) -> None:
    dataset = read(described("gray"))
    texts = ("bird, fowl", "", *dataset.labels[2:])
    found = made(replace(dataset, plan=replace(dataset.plan, texts=texts)), tmp_path)
    rows = [(row["labels/name"], row["labels/text"]) for row in found.records("labels")]
    assert rows == list(zip(dataset.labels, ("bird, fowl", *dataset.labels[1:])))
    target = {name: field.references.field for name, field in fields(found).items() if field.references}
    assert target["image/class/synset"] == "labels/name" and target["image/class/text"] == "labels/text"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_is_valid_for_every_layout(layout: str, tmp_path: Path) -> None:
    dataset = of_layout(layout)
    found = fields(made(dataset, tmp_path))
    assert list(found)[:-1] == [spec.name for spec in dataset.features]
    for spec in dataset.features:
        shape = found[spec.name].array_shape_tuple or ()
        if not LAYOUTS[layout].pixels or spec.fill is not FeatureRole.ENCODED:
            assert shape == tuple(-1 if size is None else size for size in spec.shape)
        assert spec.fill and FEATURE_ROLES[spec.fill].what in found[spec.name].description


def test_the_name_of_the_shard_gives_the_split() -> None:
    """Also if records have a feature with that name."""
    for kind, name in (("photos", "split"), ("tfrecorder", "shard_split")):
        (transform,) = fields(written(kind))[name].source.transforms
        assert transform.regex == "^(train|test)-[0-9]+-of-[0-9]+"


def test_boxes_have_four_numbers(tmp_path: Path) -> None:
    boxes = FeatureSpec("objects/bbox", FeatureType.FLOAT, (None, 4), FeatureRole.BOXES)
    field = fields(made(replace(read(described("detection")), features=(boxes,)), tmp_path))["objects/bbox"]
    assert field.data_type == mlc.DataType.BOUNDING_BOX
    assert (field.array_shape_tuple, field.source.format) == ((-1,), "REL_YXYX")


def test_hostile_class_names_are_safe_in_a_page() -> None:
    found = written("hostile")
    assert sorted(row["labels/name"] for row in found.records("labels")) == sorted(HOSTILE_NAMES)
    assert [row["splits/records"] for row in found.records("splits")] == [6, 0]
    text = (described("hostile") / "croissant.json").read_text(encoding="ascii")
    page = _Scripts()
    page.feed(f'<html><script type="application/ld+json">{text}</script></html>')
    assert [json.loads(script) for script in page.scripts] == [json.loads(text)]


class _Scripts(html.parser.HTMLParser):
    """Collects the content of the `script` elements of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.scripts.append(data)


ODD_NAMES = [
    "a b", "..", "../x", "a//b", "/a", "a/", "a/./b", "ü", "a:b", "http://x/y", "#x", "?x", "%41", "A",
    "a\nb", '"', "<b>", "{x}", "[0]", "a|b", "split", "shard_split", "\N{FOX FACE}", "\u2028",
]  # fmt: skip


def test_features_of_any_name(tmp_path: Path) -> None:
    features = tuple(FeatureSpec(name, FeatureType.INT64) for name in ODD_NAMES)
    found = made(replace(read(described("photos")), features=features), tmp_path)
    assert list(fields(found)) == [*ODD_NAMES, "shard_shard_split"]
    assert [field.source.extract.column for field in fields(found).values()][:-1] == ODD_NAMES
    assert len({field.uuid for field in fields(found).values()}) == len(ODD_NAMES) + 1


def test_without_classes_and_with_splits_of_other_names(tmp_path: Path) -> None:
    dataset = read(described("photos"))
    splits = {"fold_1": dataset.splits["train"], "test": dataset.splits["test"]}
    found = made(replace(dataset, plan=replace(dataset.plan, labels=()), splits=splits), tmp_path)
    assert [item.uuid for item in found.metadata.record_sets] == ["splits", "records"]
    assert not fields(found)["image/class/label"].references
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


@pytest.mark.parametrize("kind", ["hostile", "own"])
def test_the_same_dataset_gives_the_same_bytes(kind: str) -> None:
    assert croissant_json(read(described(kind))) == (described(kind) / "croissant.json").read_text()
