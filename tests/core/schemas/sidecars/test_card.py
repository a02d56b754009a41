"""`README.md`: readers give back what the dataset states; what it may state about its origin."""

from __future__ import annotations

import html
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.described import HOSTILE_NAMES, STATED, described, of_layout, read
from helpers.fewer_imports import late
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.errors import UsageError
from shardwright.schemas.plain_text import escape_controls
from shardwright.schemas.provenance import Creator, Provenance, parse_creators
from shardwright.schemas.sidecars import card
from shardwright.schemas.sidecars.card import readme_md, size_category

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


def test_provenance_is_stored_and_read(tmp_path: Path) -> None:
    dataset = replace(read(described("photos")), provenance=STATED)
    assert Dataset.from_bytes(json.dumps(dataset.as_json()).encode(), "x").provenance == STATED
    assert dataset.fingerprint == read(described("photos")).fingerprint
    assert "provenance" not in replace(dataset, provenance=Provenance()).as_json()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("license", "a\nb", "one line"),
        ("license", "  ", "blank"),
        ("license", "\udcff", "not valid UTF-8"),
        ("url", "example.com", "a web address such as"),
        ("url", "https://a b", "a web address such as"),
        ("url", "javascript:alert(1)", "a web address such as"),
        ("creator", "a;;b", "a name is empty"),
        ("creator", "org:", "a name is empty"),
        ("description", "\x1b[31m", "control character"),
        ("date_published", "31.3.2026", "a date such as"),
        ("date_published", "2026-02-30", "a date such as"),
    ],
)
def test_wrong_values_are_refused(name: str, value: str, message: str) -> None:
    settings = replace(ConvertSettings(input=("in",)), **{name: value})
    with pytest.raises(UsageError, match=f"(?s)--{name} .*{message}"):
        settings.check()


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
