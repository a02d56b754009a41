"""A digest covers every file that a version has in addition to those of a dataset."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.from_nothing import begin, write_bmps
from helpers.hostile import picture

from shardwright.pipelines.cli import main
from shardwright.pipelines.validate import validate
from shardwright.pipelines.versions import versions
from shardwright.schemas.findings import ValidationReport

FILES = (
    "version.json",
    "diff.json",
    "pinned.json",
    "_checks/sha256.json",
    "_checks/train-00000-of-00002.tfrecord.json.gz",
)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output with two versions; the second one is pinned."""
    root = tmp_path_factory.mktemp("versions")
    write_bmps(root / "in")
    rebuilt = begin(root, resize="8", image_format="png", verify="full")
    (root / "in" / "a" / "new.bmp").write_bytes(picture(50, "BMP", 8))
    rebuilt.again(compared=False)
    versions(rebuilt.output, pin=rebuilt.latest.name)
    return rebuilt.output


@pytest.fixture
def version(output: Path, tmp_path: Path) -> Path:
    """A copy of the second version, with its output."""
    copy = shutil.copytree(output, tmp_path / "out")
    return sorted((copy / "versions").iterdir())[-1]


def validated(version: Path) -> ValidationReport:
    beside = version.parents[2]
    return validate(version, mode="fast", report=beside / "findings.json", html=beside / "report.html")


def wrong_files(version: Path) -> list[str]:
    """Returns the files that validation reports as changed since they were written."""
    findings = validated(version).as_json()["findings"]
    return sorted({item["shard"] for item in findings if item["code"] == "REPORT_MISMATCH"})


def test_an_unchanged_version_has_no_findings(version: Path) -> None:
    assert validated(version).counts == {}
    assert sorted(FILES) == sorted(
        str(path.relative_to(version))
        for path in version.rglob("*")
        if str(path.relative_to(version)) in FILES
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("file", FILES)
def test_a_flipped_byte_is_detected(version: Path, file: str) -> None:
    path = version / file
    whole = path.read_bytes()
    ends = (len(whole) // 3, len(whole) // 2, len(whole) - 2)
    for place in (3, *ends):  # in a gzip file, no checksum of its own covers the third byte
        data = bytearray(whole)
        data[place] ^= 1
        path.unlink()
        path.write_bytes(data)
        assert file in wrong_files(version), place
    path.write_bytes(whole)
    assert wrong_files(version) == []


@pytest.mark.parametrize("file", ["diff.json", "_checks/sha256.json", FILES[-1]])
def test_a_missing_file_is_detected(version: Path, file: str) -> None:
    (version / file).unlink()
    assert file in wrong_files(version)


def test_an_additional_check_is_detected(version: Path) -> None:
    shutil.copy(version / FILES[-1], version / "_checks" / "other.json.gz")
    assert wrong_files(version) == ["_checks/other.json.gz"]


@pytest.mark.parametrize(
    ("field", "value"), [("records", 8), ("previous", ""), ("state", "withdrawn"), ("digest", "0" * 64)]
)
def test_versions_marks_a_record_that_somebody_changed(
    version: Path, field: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = version / "version.json"
    document = json.loads(path.read_text())
    assert document[field] != value
    path.write_text(json.dumps({**document, field: value}))
    assert main(["versions", str(version.parents[1])]) == 0
    out = capsys.readouterr().out
    assert "damaged" in out and "its fields are not those that its field 'digest' was made of" in out


def test_the_list_of_versions_keeps_its_fields(version: Path) -> None:
    for row in versions(version.parents[1]).as_json()["versions"]:
        assert not {"digest", "files", "format_version"} & row.keys()


def test_a_version_keeps_its_digests_when_its_record_changes(version: Path) -> None:
    from shardwright.pipelines.rollback import rollback

    rollback(version.parents[1])
    document = json.loads((version / "version.json").read_text())
    assert document["state"] == "withdrawn" and set(document["files"]) == {"diff.json", "_checks/sha256.json"}
    assert wrong_files(version) == []


def test_versions_says_if_the_pointer_states_another_fingerprint(version: Path) -> None:
    output = version.parents[1]
    assert versions(output).problem == ""
    pointer = json.loads((output / "latest.json").read_text())
    (output / "latest.json").write_text(json.dumps({**pointer, "fingerprint": "0" * 64}))
    assert versions(output).problem.startswith(
        f"latest.json and version {version.name} have different fingerprints"
    )
