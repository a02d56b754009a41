"""The table of sources: every source has a row, and its example has the files that the source reads."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest
from helpers.annotation_sets.formats import FORMATS
from helpers.repository import ROOT

from shardwright.core.sources.source import SOURCES

_ROW = re.compile(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|$", re.MULTILINE)
_EXAMPLES = dict(_ROW.findall((ROOT / "docs" / "sources.md").read_text().partition("\n## ")[0]))


def test_every_source_has_an_example() -> None:
    assert _EXAMPLES.keys() == SOURCES.keys()


def _kinds(paths: list[str]) -> set[tuple[str, str]]:
    """Returns the folder and the extension of each path."""
    return {(str(PurePosixPath(path).parent), PurePosixPath(path).suffix) for path in paths}


@pytest.mark.parametrize("source", sorted({form.source for form in FORMATS.values()}))
def test_the_example_has_the_files_of_the_suite(tmp_path: Path, source: str) -> None:
    next(form for form in FORMATS.values() if form.source == source).put(tmp_path)
    files = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert _kinds(re.findall(r"`([^`]+)`", _EXAMPLES[source])) <= _kinds(files)
