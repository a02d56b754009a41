"""Kept originals with private metadata: a warning, an error for a gate, and gone after stripping."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

from shardwright.pipelines import cli
from shardwright.pipelines.convert import convert
from shardwright.pipelines.validate import validate
from shardwright.schemas.codes import FindingCode, Severity
from shardwright.schemas.ledger import load_ledger


def test_private_metadata_are_reported_until_they_are_stripped(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif.get_ifd(0x8825).update({1: "N", 2: (47.0, 22.0, 30.0), 3: "E", 4: (8.0, 32.0, 0.0)})
    for name, options in (("cat/home.jpg", {"exif": exif}), ("cat/plain.jpg", {}), ("dog/plain.png", {})):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.linear_gradient("L").convert("RGB").save(tmp_path / "in" / name, **options)
    out, stripped = tmp_path / "out", tmp_path / "stripped"
    result = convert(input=str(tmp_path / "in"), output=str(out), shards=1)
    assert result.outcome["warnings"] == [
        "The metadata of kept originals have a GPS position (1); --strip_metadata removes them."
    ]
    header, entries = load_ledger((out / "_shards" / "train-00000-of-00001.jsonl.gz").read_bytes())
    assert header.private == {"position": 1}
    assert {entry.key: entry.private for entry in entries if entry.private} == {"cat/home.jpg": "position"}
    fast = validate(out, mode="fast")
    assert fast.run.counts == {}
    report = validate(out)
    assert report.passed and report.counts == {"PRIVATE_METADATA": 1}
    (finding,) = report.findings
    assert (finding.key, finding.message) == ("cat/home.jpg", "the metadata of its image has a GPS position")
    assert report.gates.severity(FindingCode.PRIVATE_METADATA) is Severity.WARNING
    assert cli.main(["validate", str(out), "--fail_on", "PRIVATE_METADATA"]) == 1
    assert json.loads((out / "findings.json").read_text())["errors"] == 1
    result = convert(input=str(tmp_path / "in"), output=str(stripped), strip_metadata=True, verify="full")
    assert result.outcome["warnings"] == []
    assert validate(stripped).counts == {}
