"""The report that commands write, and private metadata in kept originals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from shardwright.pipelines import cli
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.report import report
from shardwright.pipelines.validate import validate
from shardwright.schemas.codes import FindingCode, Severity
from shardwright.schemas.ledger import load_ledger


@pytest.fixture(scope="module")
def validated(sound_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A validated copy of a dataset."""
    directory = tmp_path_factory.mktemp("validated") / "dataset"
    shutil.copytree(sound_dataset, directory)
    validate(str(directory))
    return directory


def test_a_validation_writes_the_report_and_it_is_written_again(validated: Path, tmp_path: Path) -> None:
    page = (validated / "report.html").read_text()
    assert "✓ Sound" in page and "every image decoded" in page
    assert page.count("<img") >= 20
    assert "shardwright validate --dataset" in page  # --quality would measure this
    before = sorted(path.name for path in validated.rglob("*"))
    assert main(["report", str(validated), "--output", str(tmp_path / "a.html")]) == 0
    assert (tmp_path / "a.html").read_text().count("✓ Sound") == 1
    assert sorted(path.name for path in validated.rglob("*")) == before
    made = report(str(validated))
    assert made.path == str(validated / "report.html")
    assert made.bytes == (validated / "report.html").stat().st_size


def test_the_report_says_if_a_dataset_is_not_validated_or_unsound(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copied / "findings.json").unlink()  # the findings of the conversion's own verification
    assert main(["report", "--dataset", str(copied)]) == 0
    assert "not validated yet" in capsys.readouterr().out
    assert "Not validated" in (copied / "report.html").read_text()
    shard = next(copied.glob("train-*.tfrecord"))
    body = bytearray(shard.read_bytes())
    body[200] ^= 1
    shard.write_bytes(body)
    assert main(["validate", "--dataset", str(copied)]) == 1
    page = (copied / "report.html").read_text()
    assert "✗ Not sound" in page and "DATA_CRC" in page and shard.name in page


def test_the_report_of_a_validation_can_go_elsewhere_or_nowhere(copied: Path, tmp_path: Path) -> None:
    validate(str(copied), mode="fast", report=str(tmp_path / "v.json"))
    assert not list(tmp_path.rglob("*.html"))
    validate(str(copied), mode="fast", report=str(tmp_path / "v.json"), html=str(tmp_path / "p.html"))
    assert "without decoding images" in (tmp_path / "p.html").read_text()
    assert not (copied / "report.html").exists()


def test_foreign_files_have_a_report_if_a_path_is_given(sound_dataset: Path, tmp_path: Path) -> None:
    pattern = str(sound_dataset / "*.tfrecord")
    made = report(pattern, output=str(tmp_path / "a.html"))
    assert made.data.dataset is None and "<img" in (tmp_path / "a.html").read_text()
    validate(pattern, mode="fast", html=str(tmp_path / "b.html"), report=str(tmp_path / "b.json"))
    assert "Sound" in (tmp_path / "b.html").read_text()


def test_the_report_can_compare_with_a_previous_dataset(validated: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(validated, other)
    document = json.loads((other / "dataset.json").read_text())
    document["class_counts"]["train"].pop(sorted(document["class_counts"]["train"])[0])
    (other / "dataset.json").write_text(json.dumps(document))
    made = report(str(validated), previous=str(other), output=str(tmp_path / "a.html"))
    assert made.data.drift is not None
    page = (tmp_path / "a.html").read_text()
    assert "Compared with the previous dataset" in page and "Jensen-Shannon" in page


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
