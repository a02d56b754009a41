"""`README.md`, its samples and `croissant.json`: libraries read them, and what they state is true."""

from __future__ import annotations

import hashlib
import html
import io
import json
import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from helpers.described import HOSTILE_NAMES, KINDS, STATED, described, of_layout, read
from helpers.fewer_imports import late
from helpers.hostile import flip
from helpers.listing import listed
from helpers.repository import PHOTOS
from helpers.trees import put_files
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from PIL import Image

from shardwright.core import preview
from shardwright.core.preview import SIDE, draw_card_samples
from shardwright.pipelines.convert import convert
from shardwright.pipelines.salvage import salvage
from shardwright.schemas.dataset import SAMPLES_JPG, Dataset, Shard
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.example import FeatureType
from shardwright.schemas.layouts import LAYOUTS, FeatureSpec
from shardwright.schemas.plain_text import escape_controls
from shardwright.schemas.provenance import Creator, Provenance, parse_creators
from shardwright.schemas.sidecars import card, croissant
from shardwright.schemas.sidecars.card import readme_md, size_category
from shardwright.schemas.sidecars.croissant import croissant_json

pytestmark = pytest.mark.usefixtures("drawn")

hub = late("datasets")

URL = "https://example.com/license"


def stated(dataset: Dataset, **texts: str) -> str:
    return readme_md(replace(dataset, provenance=Provenance(**texts)))


def front_matter(text: str) -> Any:
    begin, yaml_text, rest = text.split("---\n", 2)
    assert begin == "" and rest.startswith("\n# ")
    return yaml.safe_load(yaml_text)


def cells(text: str, section: str) -> list[list[str]]:
    """Returns the table of a section as a Markdown reader shows it, without its head."""
    page = MarkdownIt("commonmark").enable("table").render(text.split("---\n", 2)[2])
    part = page.partition(f"<h2>{section}</h2>")[2].partition("<h2>")[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in part.split("<tr>")[1:]]
    return [[html.unescape(re.sub("</?code>", "", cell)) for cell in row] for row in rows if row]


def test_the_tables_have_all_splits_classes_and_features() -> None:
    dataset = read(described("photos"))
    text = (described("photos") / "README.md").read_text()
    assert text == readme_md(dataset)
    assert [row[:2] for row in cells(text, "Splits")] == [["train", "10"], ["test", "2"]]
    assert cells(text, "Classes") == [
        [str(number), name, *(str(dataset.class_counts[split].get(name, 0)) for split in dataset.splits)]
        for number, name in dataset.classes.items()
    ]
    assert [row[0] for row in cells(text, "Features of a record")] == [s.name for s in dataset.features]
    assert dataset.fingerprint in text and "## Citation" not in text and "License" not in text


@given(name=st.text(min_size=1, max_size=30).filter(str.strip) | st.sampled_from(HOSTILE_NAMES))
def test_any_name_is_shown_as_it_is(name: str) -> None:
    name = name.encode("utf-8", "replace").decode()
    dataset = read(described("photos"))
    labels = (name, *(label for label in dataset.labels[1:] if label != name))
    made = replace(dataset, name=name, plan=replace(dataset.plan, labels=labels))
    text = readme_md(made)
    assert front_matter(text)["pretty_name"] == name
    assert cells(text, "Classes")[0][1] == escape_controls(name).strip()


def test_the_hub_gets_license_tasks_and_size() -> None:
    dataset = read(described("photos"))
    files = [{"split": name, "path": f"{name}-*-of-00002.tfrecord"} for name in ("train", "test")]
    assert front_matter(readme_md(replace(dataset, provenance=STATED))) == {
        "pretty_name": "out", "license": "cc-by-4.0", "task_categories": ["image-classification"],
        "size_categories": ["n<1K"], "tags": ["image", "tfrecord"],
        "configs": [{"config_name": "default", "data_files": files}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("license", "lines"),
    [
        ("MIT", {"license": "mit"}),
        ("https://creativecommons.org/licenses/by-nc-sa/4.0/", {"license": "cc-by-nc-sa-4.0"}),
        ("http://creativecommons.org/publicdomain/zero/1.0/deed.de", {"license": "cc0-1.0"}),
        ("ours: 'no' #1", {"license": "other", "license_name": "ours: 'no' #1"}),
        (URL, {"license": "other", "license_name": URL, "license_link": URL}),
    ],
)
def test_licenses_that_the_hub_does_not_know_keep_their_name(license: str, lines: dict[str, str]) -> None:
    found = front_matter(stated(read(described("photos")), license=license))
    assert {name: text for name, text in found.items() if name.startswith("license")} == lines


def test_tasks_follow_from_the_features() -> None:
    tasks = ["object-detection", "image-segmentation"]
    found = front_matter(readme_md(of_layout("detection")))["task_categories"]
    assert [task for task in found if task in tasks] == tasks


def test_the_library_of_the_hub_takes_no_ledger_for_data(tmp_path: Path) -> None:
    """It does not read TFRecords, so it must end with an error instead of loading other files."""
    dataset, cache = shutil.copytree(described("photos"), tmp_path / "out"), str(tmp_path / "cache")
    with pytest.raises(hub.exceptions.DataFilesNotFoundError, match="No \\(supported\\) data files"):
        hub.load_dataset(str(dataset), cache_dir=cache)


@pytest.mark.parametrize("kind", ["photos", "shapes"])
def test_the_files_of_a_split_are_its_shards(kind: str) -> None:
    configs = front_matter((described(kind) / "README.md").read_text())["configs"]
    patterns = {item["split"]: item["path"] for item in configs[0]["data_files"]}
    for split, shards in read(described(kind)).splits.items():
        found = sorted(path.name for path in described(kind).glob(patterns[split]))
        assert found == [shard.file for shard in shards]


def test_a_citation_cannot_end_its_block() -> None:
    text = stated(read(described("photos")), citation="a\n```\n# b\n````\nc")
    page = MarkdownIt("commonmark").render(text.partition("## Citation")[2])
    assert html.unescape(page) == "<pre><code>a\n```\n# b\n````\nc\n</code></pre>\n"


def test_only_some_of_many_classes_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card, "MAX_CLASSES", 3)
    text = readme_md(read(described("photos")))
    assert len(cells(text, "Classes")) == 3 and "`labels.txt` lists 2 more classes." in text


@pytest.mark.parametrize(
    ("records", "word"),
    [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (10**12 - 1, "100B<n<1T"), (10**12, "n>1T")],
)
def test_sizes(records: int, word: str) -> None:
    assert size_category(records) == word


def test_compressed_datasets_do_not_promise_tfds() -> None:
    assert "tensorflow_datasets" in (described("photos") / "README.md").read_text()
    assert "tensorflow_datasets" not in (described("shapes") / "README.md").read_text()


def test_provenance_is_stored_and_read() -> None:
    dataset = replace(read(described("photos")), provenance=STATED)
    assert Dataset.from_bytes(json.dumps(dataset.as_json()).encode(), "x").provenance == STATED
    assert dataset.fingerprint == read(described("photos")).fingerprint
    assert "provenance" not in replace(dataset, provenance=Provenance()).as_json()


def test_creators_are_persons_and_organizations() -> None:
    assert parse_creators("Ada; org: A & B ;Bo") == [
        Creator("Ada", False), Creator("A & B", True), Creator("Bo", False),
    ]  # fmt: skip
    assert parse_creators("") == []


@pytest.mark.parametrize("value", [{"url": 1}, ["url"], None])
def test_a_damaged_document_is_not_read(value: object) -> None:
    document = read(described("photos")).as_json()
    with pytest.raises(UsageError, match="x is damaged"):
        Dataset.from_bytes(json.dumps({**document, "provenance": value}).encode(), "x")


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


STEP_X, STEP_Y = SIDE + 8, SIDE + 28
PURE = {"red": (220, 20, 20), "green": (20, 180, 20), "blue": (20, 20, 220)}


def pictures_in(card: Path) -> list[Path]:
    tokens = MarkdownIt("commonmark").parse(card.read_text().split("---\n", 2)[2])
    inner = (child for token in tokens for child in token.children or ())
    return [card.parent / str(child.attrs["src"]) for child in inner if child.type == "image"]


def tile_colors(data: bytes) -> list[tuple[int, ...]]:
    """Returns the color in the middle of each tile that is not white."""
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    middles = pixels[8 + SIDE // 2 :: STEP_Y, 8 + SIDE // 2 :: STEP_X].reshape(-1, 3)
    return [tuple(map(int, color)) for color in middles if color.min() < 200]


@pytest.fixture(scope="module")
def colors(drawn: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty red, two green and one blue image, in two splits."""
    root = tmp_path_factory.mktemp("colors")
    for name, count in (("red", 30), ("green", 2), ("blue", 1)):
        (root / "in" / name).mkdir(parents=True)
        for number in range(count):
            color = tuple(min(255, value + number) for value in PURE[name])
            Image.new("RGB", (24, 24), color).save(root / "in" / name / f"{number}.png")
    shares = {"splits": "train=0.6,test=0.4", "image_format": "png", "verify": "none"}
    convert(input=str(root / "in"), output=str(root / "out"), **shares)
    return root / "out"


def test_the_card_links_a_picture_that_the_dataset_lists() -> None:
    out = described("photos")
    (picture,) = pictures_in(out / "README.md")
    assert picture == out / SAMPLES_JPG
    data = picture.read_bytes()
    assert read(out).sidecars[SAMPLES_JPG] == hashlib.sha256(data).hexdigest()
    assert data == draw_card_samples(str(out), read(out))
    with Image.open(picture) as image:
        assert image.format == "JPEG" and image.size == (4 * STEP_X + 8, 3 * STEP_Y + 8)
        assert not image.getexif()


def test_rare_classes_are_shown_too(colors: Path) -> None:
    shown = [
        max(PURE, key=lambda name: -sum(abs(a - b) for a, b in zip(color, PURE[name])))
        for color in tile_colors((colors / SAMPLES_JPG).read_bytes())
    ]
    assert shown.count("blue") == 1 and shown.count("green") == 2 and shown.count("red") == 22


def test_only_some_of_many_records_are_read(colors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "MAX_LINES", 4)
    assert len(tile_colors(draw_card_samples(str(colors), read(colors)))) == 4
    monkeypatch.setattr(preview, "MAX_BYTES", 10)
    assert draw_card_samples(str(colors), read(colors)) == b""


@pytest.mark.parametrize("kind", ["raw", "gray", "detection", "own", "webp", "hostile"])
def test_all_kinds_of_records_are_drawn(kind: str) -> None:
    out = described(kind)
    with Image.open(out / SAMPLES_JPG) as image:
        histogram = image.convert("L").histogram()
    assert sum(count > 0 for count in histogram) > 100, "the sheet has only captions"


def test_a_damaged_ledger_or_record_leaves_a_gap(colors: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(colors, out)
    dataset = read(out)
    before = len(tile_colors(draw_card_samples(str(out), dataset)))
    shard = next(out.glob("test-*.tfrecord"))
    shard.write_bytes(shard.read_bytes()[:200])
    fewer = len(tile_colors(draw_card_samples(str(out), dataset)))
    assert 0 < fewer < before
    for ledger in (out / "_shards").glob("*.gz"):
        ledger.write_bytes(ledger.read_bytes()[:20])
    assert draw_card_samples(str(out), dataset) == b""
    shutil.rmtree(out / "_shards")
    with pytest.raises(EngineError, match="_shards"):
        draw_card_samples(str(out), dataset)


def test_a_dataset_without_records_has_no_samples(colors: Path) -> None:
    dataset = read(colors)
    empty = {split: tuple(replace(it, records=0) for it in its) for split, its in dataset.splits.items()}
    assert draw_card_samples(str(colors), replace(dataset, splits=empty)) == b""


def test_a_salvaged_dataset_has_samples_of_what_is_left(colors: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(colors, damaged)
    flip(next(damaged.glob("test-*.tfrecord")))
    saved = tmp_path / "saved"
    salvage(str(damaged), output=str(saved))
    assert read(saved).all_records == 32
    assert pictures_in(saved / "README.md") == [saved / SAMPLES_JPG]
    assert (saved / SAMPLES_JPG).read_bytes() == draw_card_samples(str(saved), read(saved))


def test_the_samples_of_a_dataset_are_not_images_to_convert(tmp_path: Path) -> None:
    photo = next((PHOTOS / "birds").glob("*.jpg")).read_bytes()
    put_files(tmp_path / "in", {"birds/a.jpg": photo, "cats/b.jpg": photo})
    shutil.copytree(described("photos"), tmp_path / "in" / "cats" / "made")
    found = listed(tmp_path / "in", "classification", source="class_folders")
    assert sum(ref.is_candidate for ref in found.refs.values()) == 2
    assert list(found.reasons().values()).count("dotfile") == 1
