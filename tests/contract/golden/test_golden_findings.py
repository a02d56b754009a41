"""Validation finds the same in changed datasets as earlier versions of the code, at each depth.

`regenerate.py` in this folder rewrites the expected findings.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import golden_findings
import pytest
from golden_findings import CHANGES, GoldenFindings, name_of
from helpers.mutations import Mutation

EXPECTED = json.loads((Path(__file__).parent / "findings.json").read_bytes())
#: Every change of this number is made by default; `make test-all` makes them all.
STEP = 12


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> GoldenFindings:
    if golden_findings.versions() != EXPECTED["versions"]:
        pytest.skip(f"recorded with {EXPECTED['versions']}")
    return GoldenFindings(tmp_path_factory.mktemp("golden"), photos)


def test_every_change_is_recorded() -> None:
    assert list(EXPECTED["findings"]) == [name_of(change) for change in CHANGES]
    assert len(set(EXPECTED["findings"])) == len(CHANGES)


def compare(golden: GoldenFindings, changes: Sequence[Mutation]) -> None:
    for change in changes:
        assert golden.of(change) == EXPECTED["findings"][name_of(change)], name_of(change)


def test_some_changes_have_the_recorded_findings(golden: GoldenFindings) -> None:
    compare(golden, CHANGES[::STEP])


@pytest.mark.slow
def test_all_changes_have_the_recorded_findings(golden: GoldenFindings) -> None:
    compare(golden, CHANGES)
