"""Rewrites pixels.json, records.json, datasets.json and findings.json.

The first file holds small image files, settings, and the sha256 of the resulting pixels; the second a record
of each layout; the third the digests of datasets from every kind of source; the fourth what validation finds
in changed datasets. Run this, and check the changes, if pixels, records, the order of records or findings are
meant to change. Names of files limit what is written:

    python tests/contract/golden/regenerate.py [findings.json]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

sys.path.append(str(HERE))

import golden_datasets  # noqa: E402
import golden_findings  # noqa: E402
import golden_pixels  # noqa: E402
import golden_records  # noqa: E402
from helpers.repository import PHOTOS  # noqa: E402


def write_pixels() -> None:
    (HERE / "pixels.json").write_text(json.dumps(golden_pixels.document(), indent=1) + "\n")


def write_records() -> None:
    records = golden_records.document()
    (HERE / "records.json").write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n", "utf-8")


def write_datasets() -> None:
    datasets = {}
    for name in golden_datasets.names():
        with tempfile.TemporaryDirectory() as folder:
            datasets[name] = golden_datasets.digests(name, Path(folder))
    stated = {"versions": golden_datasets.versions(), "datasets": datasets}
    (HERE / "datasets.json").write_text(json.dumps(stated, indent=1) + "\n")


def write_findings() -> None:
    with tempfile.TemporaryDirectory() as folder:
        golden = golden_findings.GoldenFindings(Path(folder), PHOTOS)
        found = {golden_findings.name_of(change): golden.of(change) for change in golden_findings.CHANGES}
    # One line per change, so that a difference is easy to read.
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in found.items())
    versions = json.dumps(golden_findings.versions())
    (HERE / "findings.json").write_text(f'{{"versions": {versions},\n"findings": {{\n{lines}\n}}}}\n')


#: File -> function that writes it.
FILES = {
    "pixels.json": write_pixels,
    "records.json": write_records,
    "datasets.json": write_datasets,
    "findings.json": write_findings,
}


def main() -> None:
    for name in sys.argv[1:] or FILES:
        FILES[name]()


if __name__ == "__main__":
    main()
