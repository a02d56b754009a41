"""The tables of files, fields and codes list what the code has: no more and no less."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from helpers.repository import ROOT

from shardwright.pipelines.validate import validate
from shardwright.schemas.codes import ExitCode, FilterReason, FindingCode, QuarantineReason
from shardwright.schemas.ledger import Entry, ShardHeader
from shardwright.schemas.side_files import SIDE_FILES

TEXT = (ROOT / "docs" / "dataset.md").read_text()
#: Files of the first table that are not at the top of a dataset, and the shards.
DEEPER = {
    "train-00000-of-00016.tfrecord",
    "_card/.samples.jpg",
    "_index/train-00000-of-00016.idx",
    "_shards/train-00000-of-00016.jsonl.gz",
    "_work/outcome.json",
    "_work/lease.json",
}


def first_cells(text: str) -> set[str]:
    """Returns the words in code in the first cells of the tables of a text."""
    cells = re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def section(heading: str) -> str:
    """Returns a section of the page, with those below it."""
    level = heading.partition(" ")[0]
    found = re.search(
        rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", TEXT, re.DOTALL | re.MULTILINE
    )
    assert found is not None, heading
    return found[1]


def test_every_file_of_a_dataset_is_listed() -> None:
    listed = first_cells(TEXT.partition("\n### ")[0]) | first_cells(section("## A directory of versions"))
    listed = {name.removeprefix(".../").rstrip("/") for name in listed}
    assert {
        name for name in SIDE_FILES if not name.startswith(("_card", "_index", "_shards", "_work"))
    } <= listed
    known = set(SIDE_FILES) | DEEPER
    assert first_cells(TEXT.partition("\n### ")[0]) <= known


def test_a_real_dataset_has_only_listed_files(sound_dataset: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    shutil.copytree(sound_dataset, dataset)
    validate(dataset, mode="quality")
    listed = first_cells(TEXT.partition("\n### ")[0])
    shard = re.compile(r"(train|validation|test)-\d{5}-of-\d{5}")
    for path in dataset.rglob("*"):
        name = shard.sub("train-00000-of-00016", path.relative_to(dataset).as_posix())
        assert path.is_dir() or name in listed, name


def test_the_fields_of_the_files_are_listed(sound_dataset: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    shutil.copytree(sound_dataset, dataset)
    validate(dataset, mode="quality")
    for file, heading in (("dataset.json", "## dataset.json"), ("findings.json", "## findings.json")):
        fields = first_cells(section(heading).partition("\n### ")[0])
        # A dataset has provenance only if the user states it, and types of samples only with some settings.
        left_out = {"format_version", "provenance", "dtypes"}
        assert set(json.loads((dataset / file).read_text())) - left_out == fields - left_out, file


def test_the_fields_of_a_ledger_are_listed() -> None:
    header, lines = section("## A shard's ledger").split("Each further line")
    assert first_cells(header) == {*ShardHeader.__dataclass_fields__, "ledger_version"}
    assert first_cells(lines) | {"key", "outcome"} == set(Entry._fields)


def test_every_code_is_in_its_table() -> None:
    filtered, quarantined = section("## Reasons").split("Quarantined, because", 1)
    assert first_cells(filtered) == set(FilterReason)
    assert first_cells(quarantined) - {"TOO_MANY_..."} == set(QuarantineReason)
    findings = section("## Findings of a validation")
    assert first_cells(findings) | {FindingCode.EXPECTATION} == set(FindingCode)
    assert f"`{FindingCode.EXPECTATION}`" in findings


def test_every_exit_code_is_in_its_table() -> None:
    text = (ROOT / "docs" / "converting.md").read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)] == sorted(ExitCode)
