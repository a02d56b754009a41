"""Between versions of the code, datasets, pixels and records of every layout stay, and so do findings.

`regenerate.py` in this folder rewrites the expected values.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path

import golden_datasets
import golden_findings
import golden_pixels
import golden_records
import pytest
from golden_findings import CHANGES, GoldenFindings, name_of
from helpers.mutations import Mutation

EXPECTED = json.loads((Path(__file__).parent / "datasets.json").read_bytes())
#: One case for each kind of reader and writer; `make test-all` runs all cases.
DEFAULT = (
    "class_folders_pad", "class_folders_gzip", "manifest_groups", "coco_vision_padded", "yolo", "webdataset",
    "arrays_raw", "layout_tfds", "class_folders_splits+rebuild", "deep_resized",
)  # fmt: skip
NAMES = [
    name if name in DEFAULT else pytest.param(name, marks=pytest.mark.slow) for name in EXPECTED["datasets"]
]


def test_every_case_is_recorded() -> None:
    assert set(EXPECTED["datasets"]) == set(golden_datasets.names()) >= set(DEFAULT)
    assert len(EXPECTED["datasets"]) >= 40


@pytest.mark.parametrize("name", NAMES)
def test_a_dataset_keeps_its_bytes(name: str, tmp_path: Path) -> None:
    if golden_datasets.versions() != EXPECTED["versions"]:
        pytest.skip(f"recorded with {EXPECTED['versions']}")
    assert golden_datasets.digests(name, tmp_path) == EXPECTED["datasets"][name]


FINDINGS = json.loads((Path(__file__).parent / "findings.json").read_bytes())
#: Every change of this number is made by default; `make test-all` makes them all.
STEP = 12


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> GoldenFindings:
    if golden_findings.versions() != FINDINGS["versions"]:
        pytest.skip(f"recorded with {FINDINGS['versions']}")
    return GoldenFindings(tmp_path_factory.mktemp("golden"), photos)


def test_every_change_is_recorded() -> None:
    assert list(FINDINGS["findings"]) == [name_of(change) for change in CHANGES]
    assert len(set(FINDINGS["findings"])) == len(CHANGES)


def compare(golden: GoldenFindings, changes: Sequence[Mutation]) -> None:
    for change in changes:
        assert golden.of(change) == FINDINGS["findings"][name_of(change)], name_of(change)


def test_some_changes_have_the_recorded_findings(golden: GoldenFindings) -> None:
    compare(golden, CHANGES[::STEP])


@pytest.mark.slow
def test_all_changes_have_the_recorded_findings(golden: GoldenFindings) -> None:
    compare(golden, CHANGES)


PIXELS = json.loads((Path(__file__).parent / "pixels.json").read_text())


@pytest.mark.parametrize("name", sorted(PIXELS))
def test_pixels_equal_those_of_the_first_release(name: str) -> None:
    case = PIXELS[name]
    assert golden_pixels.digest(base64.b64decode(case["file"]), case["settings"]) == case["sha256"]


def test_every_picture_is_recorded_with_its_settings() -> None:
    made = golden_pixels.cases()
    assert set(PIXELS) == set(made)
    assert all(PIXELS[name]["settings"] == settings for name, (_, settings) in made.items())


RECORDS = json.loads((Path(__file__).parent / "records.json").read_text("utf-8"))


@pytest.mark.parametrize("name", RECORDS)
def test_records_equal_those_of_the_golden_file(name: str) -> None:
    made = golden_records.record(golden_records.layouts()[name])
    assert golden_records.shown(made) == RECORDS[name]["features"]
    assert made.hex() == RECORDS[name]["record"]


def test_every_layout_has_a_golden_record() -> None:
    assert [*RECORDS] == [*golden_records.layouts()]
