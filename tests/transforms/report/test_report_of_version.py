"""The report of a version: its state, its gates' verdicts, and the differences from the previous version."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.report_samples import HOSTILE, made_up

from shardwright.pipelines.cli import main
from shardwright.schemas.codes import Severity
from shardwright.schemas.version import VersionRecord, VersionState
from shardwright.schemas.violation import Violation
from shardwright.transforms.report.data import OfVersion
from shardwright.transforms.report.gather import gather
from shardwright.transforms.report.render import render

_VERSION, _BEFORE = "20261121T020000Z", "20261120T020000Z"


def record_of(*refusals: Violation, **fields: Any) -> VersionRecord:
    state = VersionState.REFUSED if refusals else VersionState.PUBLISHED
    return VersionRecord(_VERSION, **{"state": state, "created": 0, "previous": _BEFORE, **fields},
                         refusals=refusals)  # fmt: skip


def drift_of(fingerprint: str) -> dict[str, Any]:
    """Returns the content of a version's `diff.json`, abbreviated."""
    return {
        "datasets": {"old": _BEFORE, "new": _VERSION},
        "fingerprints": {"old": "0" * 64, "new": fingerprint},
        "identical": False,
        "images": {"added": 5_432, "unchanged": 1},
        "refusals": [{"name": "max_added_fraction", "message": "too many came"}],
    }


@pytest.fixture
def version(sound_dataset: Path, tmp_path: Path) -> Callable[..., Path]:
    """Creates the directory of a version."""

    def make(record: VersionRecord | None = None, drift: bool = False) -> Path:
        directory = tmp_path / "pets" / "versions" / _VERSION
        directory.parent.mkdir(parents=True)
        shutil.copytree(sound_dataset, directory)
        path = directory / "dataset.json"
        document = json.loads(path.read_text())
        path.write_text(json.dumps({**document, "name": _VERSION}))
        if record:
            (directory / "version.json").write_text(record.dumps())
        if drift:
            (directory / "diff.json").write_text(json.dumps(drift_of(document["fingerprint"])))
        return directory

    return make


def test_the_report_shows_the_state_of_a_version(version: Callable[..., Path]) -> None:
    directory = version(record_of(), drift=True)
    data = gather(str(directory))
    assert data.name == "pets" and data.place == f"{directory.parent.parent}@{_VERSION}"
    assert data.of_version == OfVersion(_VERSION, record_of(), "../../index.html")
    assert data.drift is not None and data.left_out == ()
    page = render(data)
    assert '<a href="../../index.html">All versions</a>' in page
    assert "Compared with the previous version" in page and "5,432" in page and _BEFORE in page
    assert "✓ published" in page and "Version published" not in page
    assert f"--dataset <bdi>{directory.parent.parent}@{_VERSION}" in page


def test_unwritten_documents_take_precedence_over_stored_ones(version: Callable[..., Path]) -> None:
    directory = version(record_of(), drift=True)
    refused = record_of(Violation("findings", "SPLIT_LEAKAGE", Severity.ERROR, "two are in two"))
    data = gather(str(directory), record=refused, drift={**drift_of("x"), "images": {"added": 77}})
    assert data.of_version is not None and data.of_version.record is refused
    assert data.drift is not None and data.drift["images"]["added"] == 77


def test_a_refused_version_shows_why_and_the_command_to_accept_it(version: Callable[..., Path]) -> None:
    violation = Violation("drift", "max_added_fraction", Severity.ERROR, "max_added_fraction: too many came")
    directory = version(record_of(violation), drift=True)
    page = render(gather(str(directory)))
    assert "✗ Version refused" in page and "max_added_fraction" in page
    assert page.count("too many came") == 1  # diff.json contains the same
    place = f"{directory.parent.parent}@{_VERSION}"
    assert f"shardwright publish {place} --accept max_added_fraction" in page


def test_warnings_and_accepted_refusals_of_a_published_version_are_shown(
    version: Callable[..., Path],
) -> None:
    violations = (
        Violation("drift", "new_classes", Severity.WARNING, "1 new class"),
        Violation("findings", "SPLIT_LEAKAGE", Severity.ERROR, "two are in two"),
    )
    record = replace(record_of(*violations), state=VersionState.PUBLISHED, accepted=("findings",))
    page = render(gather(str(version(record))))
    assert "1 new class" in page and "(<bdi>findings</bdi>, accepted)" in page
    assert "shardwright publish" not in page


def test_the_link_back_exists_only_if_it_has_a_target(version: Callable[..., Path], tmp_path: Path) -> None:
    directory = version(record_of())
    elsewhere = gather(str(directory), page=str(tmp_path / "a.html"))
    assert "index.html" not in render(elsewhere)
    assert "index.html" in render(gather(f"{directory}/", page=str(directory / "report.html")))


def test_a_dataset_that_is_not_a_version_has_a_normal_report(sound_dataset: Path, tmp_path: Path) -> None:
    copied = tmp_path / _VERSION  # named like a version, but not below versions/
    shutil.copytree(sound_dataset, copied)
    (copied / "diff.json").write_text(json.dumps(drift_of("x")))
    data = gather(str(copied))
    assert data.of_version is None and data.drift is None
    assert "index.html" not in render(data)


def test_a_version_without_version_json_has_a_report(version: Callable[..., Path]) -> None:
    directory = version()
    assert "… Version building" in render(gather(str(directory)))
    (directory / "version.json").write_bytes(b"\xff")
    (directory / "diff.json").write_text("[")
    data = gather(str(directory))
    assert data.of_version is not None and data.of_version.record is None and data.drift is None
    assert len(data.left_out) == 2
    assert "? Version damaged" in render(data)


def test_a_diff_of_another_build_is_not_shown(version: Callable[..., Path]) -> None:
    directory = version(record_of())
    (directory / "diff.json").write_text(json.dumps(drift_of("another")))
    data = gather(str(directory))
    assert data.drift is None and data.left_out == ("diff.json is about another build.",)


def test_names_in_refusals_are_shown_as_text() -> None:
    for name in HOSTILE:
        violation = Violation(name, name, Severity.ERROR, name)
        data = replace(made_up(("a",)), of_version=OfVersion(_VERSION, record_of(violation, previous=name)))
        page = render(replace(data, place=f"{name}@{_VERSION}"))
        assert page.count("<script") == 1 and "\u202e" not in page and " onmouseover='" not in page


def test_the_command_shows_a_version_with_its_stored_diff(
    version: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    directory = version(record_of(), drift=True)
    assert main(["report", f"{directory.parent.parent}@{_VERSION}"]) == 0
    page = (directory / "report.html").read_text()
    assert "5,432" in page and "../../index.html" in page
    assert "to be opened in a browser" in capsys.readouterr().out
