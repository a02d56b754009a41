"""Which changes to a finished dataset validation detects at each depth; the table in the document."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

import pytest
from helpers.depths import DEPTHS, codes_at, codes_of_command, placed_images
from helpers.mutations import KEPT, MUTATIONS, OBJECTS, RESIZED, Mutation, make_datasets, sources_of

from shardwright.pipelines.cli import main

DOC = Path(__file__).resolve().parents[2] / "docs" / "validating.md"
BEGIN, END = "<!-- mutations -->\n", "<!-- end of mutations -->\n"
#: The mutations that the command is tested with by default.
FEW = (
    ("ledger of a shard", "extra line: filtered"), ("another file", "run.json: input"),
    ("a record", "of resized images: an orientation tag added"), ("a record with objects", "xmin"),
)  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    root = tmp_path_factory.mktemp("mutations")
    make_datasets(root, photos)
    return root


def changed(root: Path, mutation: Mutation, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(root / mutation.dataset, place / "dataset")
    mutation.change(place / "dataset")
    return place / "dataset"


def cells_of(codes: Mapping[str, list[str]]) -> list[str]:
    """Returns the cells of a row: the codes of each depth, or `same` for the codes of the depth before."""
    before: list[str] = []
    cells = []
    for depth in DEPTHS:
        found = codes[depth]
        cells.append("same" if found and found == before else ", ".join(f"`{c}`" for c in found) or "-")
        before = found
    return cells


def stored_rows() -> dict[tuple[str, str], list[str]]:
    """Returns the cells of the table in the document, by group and name of the mutation."""
    table = DOC.read_text().partition(BEGIN)[2].partition(END)[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line.startswith("|") and "---" not in line
    ]
    return {(row[0], row[1]): row[2:] for row in cells[1:] if row[0] != "**noticed**"}


def table_of(rows: list[tuple[Mutation, list[str]]]) -> str:
    """Returns the table in the form of the document."""
    lines = [f"| what | change | {' | '.join(DEPTHS)} |", f"|---|---|{'---|' * len(DEPTHS)}"]
    for group, members in groupby(rows, key=lambda row: row[0].group):
        found = list(members)
        lines += [f"| {group} | {mutation.name} | {' | '.join(cells)} |" for mutation, cells in found]
        numbers = (sum(cells[i] != "-" for _, cells in found) for i in range(len(DEPTHS)))
        total = " | ".join(f"{number} of {len(found)}" for number in numbers)
        lines.append(f"| **noticed** | {group} | {total} |")
    return "\n".join(lines) + "\n"


def test_the_mutations_have_unique_names_and_are_all_in_the_document() -> None:
    names = [(mutation.group, mutation.name) for mutation in MUTATIONS]
    assert len(set(names)) == len(names)
    assert list(stored_rows()) == names
    assert all(name in names for name in FEW)


def test_the_command_detects_some_mutations_as_documented(root: Path, tmp_path: Path) -> None:
    stored = stored_rows()
    for mutation in MUTATIONS:
        if (mutation.group, mutation.name) in FEW:
            path, how = changed(root, mutation, tmp_path / "copy"), sources_of(root, mutation.dataset)
            cells = stored[mutation.group, mutation.name]
            codes = {depth: codes_of_command(path, depth, how, tmp_path) for depth in DEPTHS[1:]}
            assert cells_of({**codes, "frames": _codes_in(cells[0])}) == cells, mutation.name


def _codes_in(cell: str) -> list[str]:
    return [] if cell == "-" else [code.strip("`") for code in cell.split(", ")]


def test_the_command_names_file_and_field(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mutation = next(item for item in MUTATIONS if item.name == "class_counts: a number")
    path = changed(root, mutation, tmp_path / "copy")
    assert main(["validate", str(path), "--fast"]) == 1
    out = capsys.readouterr().out
    assert "COUNT_MISMATCH" in out and "dataset.json" in out and "'class_counts.train.birds'" in out


@pytest.mark.slow
def test_the_table_in_the_document_equals_what_validation_detects(root: Path, tmp_path: Path) -> None:
    """`SHARDWRIGHT_WRITE_TABLES=1` writes the table again."""
    rows, placed = [], {}
    for name in (RESIZED, KEPT, OBJECTS):
        placed[name] = placed_images(root / name, sources_of(root, name), tmp_path)
    for mutation in MUTATIONS:
        path, how = changed(root, mutation, tmp_path / "copy"), sources_of(root, mutation.dataset)
        rows.append((mutation, cells_of(codes_at(path, how, placed[mutation.dataset], tmp_path))))
    table = table_of(rows)
    head, _, rest = DOC.read_text().partition(BEGIN)
    if os.environ.get("SHARDWRIGHT_WRITE_TABLES"):
        DOC.write_text(head + BEGIN + table + END + rest.partition(END)[2])
        return
    assert rest.partition(END)[0] == table
