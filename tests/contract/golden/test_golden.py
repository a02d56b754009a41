"""Datasets keep their bytes between versions of the code: records, their order, and fingerprints.

`regenerate.py` in this folder rewrites the expected values.
"""

from __future__ import annotations

import json
from pathlib import Path

import golden_datasets
import pytest

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
