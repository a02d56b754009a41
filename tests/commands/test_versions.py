"""Versions: every command reads them, none but a rebuild writes; `versions`, `rollback` and `publish`."""

from __future__ import annotations

import io
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from helpers.depths import compared, findings_of
from helpers.from_nothing import begin, write_bmps
from helpers.hostile import make_tree, picture, run, sentence_of
from helpers.listing import listed
from helpers.versioned import (
    DAY,
    FIRST,
    V1,
    V2,
    V3,
    V4,
    add_version,
    latest_of,
    make_versions,
    point_to,
    refusal,
    state_of,
)
from rich.console import Console

from shardwright.core import storage
from shardwright.core import versions as pointers
from shardwright.core.dataset_files import read_dataset
from shardwright.core.validation.directory import check_version_files
from shardwright.core.versions import list_versions, read_version_record, remove_version, surplus
from shardwright.pipelines import prepare
from shardwright.pipelines.convert import convert
from shardwright.pipelines.diff import diff
from shardwright.pipelines.publish_version import publish, this_account
from shardwright.pipelines.report import report
from shardwright.pipelines.rollback import rollback
from shardwright.pipelines.salvage import salvage
from shardwright.pipelines.versions import print_versions, versions
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.configuration.settings import RebuildSettings
from shardwright.schemas.errors import DataRefused, EngineError, UsageError

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, sound_dataset: Path) -> Path:
    output = tmp_path_factory.mktemp("published") / "out"
    make_versions(output, sound_dataset)
    return output


@pytest.fixture
def out(tmp_path: Path, published: Path) -> Path:
    """Three published versions."""
    return Path(shutil.copytree(published, tmp_path / "out"))


REFUSALS = [
    refusal("drift", "max_count_drop"), refusal("drift", "max_class_l_infinity"),
    refusal("findings", "SPLIT_LEAKAGE"), refusal("findings", "EMPTY_SPLIT", "warning"),
]  # fmt: skip


@pytest.fixture
def refused(out: Path, sound_dataset: Path) -> Path:
    """The same with a fourth version, which gates refused."""
    add_version(out, sound_dataset, V4, "refused", refusals=REFUSALS)
    return out


def test_versions_are_listed(capfd: Capture, out: Path, sound_dataset: Path) -> None:
    drift = refusal("drift", "max_count_drop")
    changes = {"added": 12, "removed": 3}
    add_version(out, sound_dataset, V4, "refused", previous=V3, changes=changes, refusals=[drift])
    (out / "versions" / "20261125T020000Z").mkdir()
    (out / "versions" / "notes").mkdir()
    (out / "versions" / "20261126T020000Z").write_text("a file")
    done = run(capfd, "versions", out)
    assert done.code == 0 and not done.err
    rows = [line for line in done.out.splitlines() if "Z " in line]
    assert [row.split()[0] for row in rows] == ["20261125T020000Z", V4, V3, V2, V1]
    assert "building" in rows[0] and "latest" in rows[2] and "published, latest" in rows[2]
    assert "12 added, 3 removed" in rows[1] and "refused: max_count_drop" in done.out
    assert "2026-11-21 02:01" in rows[4] and "the first version" in rows[4]
    found = json.loads(run(capfd, "versions", out, "--json").out)
    assert found["latest"] == V3
    assert [row["version"] for row in found["versions"] if row["latest"]] == [V3]
    assert found["versions"][1]["refusals"] == [drift]
    days = [(row["created"] - FIRST) / 86_400 for row in found["versions"]]
    assert days == [4, 3, 2, 1, 0]


def test_versions_can_be_pinned(capfd: Capture, out: Path) -> None:
    assert run(capfd, "versions", out, "--pin", V1).code == 0
    assert (out / "versions" / V1 / "pinned.json").exists()
    assert [record.pinned for record in versions(out).versions] == [False, False, True]
    assert "pinned" in run(capfd, "versions", out).out
    assert "pinned" in (out / "index.html").read_text()
    both = sentence_of(run(capfd, "versions", out, "--pin", V1, "--unpin", V1), 2)
    assert f"{V1} is in both --pin and --unpin" in both
    done = run(capfd, "versions", out, "--unpin", V1)
    assert done.code == 0 and "pinned" not in done.out
    assert not (out / "versions" / V1 / "pinned.json").exists()
    assert "did you mean" in sentence_of(run(capfd, "versions", out, "--pin", "20261121T020001Z"), 2)
    add_version(out, None, V4, "building")
    assert "is not complete" in sentence_of(run(capfd, "versions", out, "--pin", V4), 2)


def test_of_a_version_that_was_moved_elsewhere_only_the_link_is_removed(out: Path, tmp_path: Path) -> None:
    link = out / "versions" / V1
    moved = link.rename(tmp_path / "moved")
    link.symlink_to(moved)
    assert remove_version(str(out), V1) and not link.is_symlink() and (moved / "dataset.json").exists()


def test_directories_without_versions_are_refused(
    capfd: Capture, tmp_path: Path, sound_dataset: Path, out: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for command in ("versions", "rollback"):
        assert "does not exist" in sentence_of(run(capfd, command, tmp_path / "nowhere"), 2)
        assert "holds no versions" in sentence_of(run(capfd, command, tmp_path / "empty"), 2)
        assert "without versions" in sentence_of(run(capfd, command, sound_dataset), 2)
        assert "need a local disk" in sentence_of(run(capfd, command, "hdfs://host/out"), 2)
        assert "required: OUT" in sentence_of(run(capfd, command), 2)
        assert "Unknown option --jsn" in sentence_of(run(capfd, command, out, "--jsn"), 2)
    assert "is one version" in sentence_of(run(capfd, "versions", f"{out}@{V1}"), 2)
    (tmp_path / "job.yaml").touch()
    assert "is not a directory" in sentence_of(run(capfd, "versions", tmp_path / "job.yaml"), 2)


def test_a_damaged_pointer_is_reported(capfd: Capture, out: Path) -> None:
    (out / "latest.json").write_text("{")
    done = run(capfd, "versions", out, "--pin", V1)
    assert done.code == 0 and "latest.json cannot be used" in done.out
    assert "pinned" in (out / "index.html").read_text()
    assert f"shardwright rollback {out} V" in sentence_of(run(capfd, "rollback", out), 2)
    assert run(capfd, "rollback", out, V2).code == 0
    assert latest_of(out)["version"] == V2 and latest_of(out)["previous"] == V1


def test_a_damaged_version_is_marked_and_skipped(capfd: Capture, out: Path, sound_dataset: Path) -> None:
    damaged = out / "versions" / V2 / "version.json"
    damaged.write_text('{"format_version": 1, "version": "x", "state": "damaged"}')
    done = run(capfd, "versions", out)
    (row,) = (line for line in done.out.splitlines() if f" {V2} " in line)
    assert done.code == 0 and "damaged" in row and "restore it, or remove that version" in done.out
    listed = json.loads(run(capfd, "versions", out, "--json").out)["versions"]
    assert [version["state"] for version in listed] == ["published", "damaged", "published"]
    assert "cannot be used" in listed[1]["problem"] and "problem" not in listed[0]
    for command in (("rollback", out, V2), ("publish", f"{out}@{V2}", "--accept", "all")):
        assert f"{V2}/version.json cannot be used" in sentence_of(run(capfd, *command), 2)
    assert rollback(out).version == V1, "the damaged one is skipped"
    assert "damaged" in (out / "index.html").read_text()
    assert V2 not in surplus(list_versions(str(out)), V1, RebuildSettings(keep=1), FIRST + 400 * DAY)
    add_version(out, sound_dataset, V4, "refused", refusals=REFUSALS)
    assert publish(f"{out}@{V4}", accept="all").version == V4
    assert damaged.exists()


def test_a_damaged_version_is_never_overwritten(capfd: Capture, out: Path) -> None:
    (out / "versions" / V3 / "version.json").write_text("{")
    done = run(capfd, "rollback", out)
    assert done.code == 0 and f"from {V3} to {V2}" in done.out and "is not marked as withdrawn" in done.out
    assert (out / "versions" / V3 / "version.json").read_text() == "{"
    assert run(capfd, "rollback", out).code == 0 and latest_of(out)["version"] == V2


def test_rollback_works_in_both_directions(capfd: Capture, out: Path, sound_dataset: Path) -> None:
    done = run(capfd, "rollback", out)
    assert done.code == 0 and f"{V2} is the latest from now on; {V3} is withdrawn" in done.out
    assert f"shardwright rollback {out} {V3}" in done.out
    fingerprint = json.loads((sound_dataset / "dataset.json").read_text())["fingerprint"]
    assert latest_of(out) | {"published": 0} == {
        "format_version": 1, "version": V2, "fingerprint": fingerprint, "published": 0, "previous": V2,
    }  # fmt: skip
    assert [state_of(out, version) for version in (V1, V2, V3)] == ["published", "published", "withdrawn"]
    assert V2 in (out / "index.html").read_text()
    before = (out / "latest.json").read_bytes()
    done = run(capfd, "rollback", out)
    assert done.code == 0 and f"since the rollback from {V3}" in done.out, "done again, it changes nothing"
    assert f"shardwright rollback {out} --to {V1}" in done.out
    assert (out / "latest.json").read_bytes() == before and state_of(out, V2) == "published"
    done = run(capfd, "rollback", out, "--to", V1)
    assert done.code == 0 and f"from {V2} to {V1}" in done.out
    assert state_of(out, V2) == "withdrawn" and rollback(out).left == ""
    assert rollback(out, V3) == (str(out), V3, V1, False, "")
    assert [state_of(out, version) for version in (V1, V2, V3)] == ["published", "withdrawn", "published"]
    assert rollback(out) == (str(out), V1, V3, True, ""), "what was rolled back is passed over"
    assert rollback(out, V1) == (str(out), V1, "", False, "")
    assert "is the latest" in run(capfd, "rollback", f"{out}@{V1}").out
    assert "name one version" in sentence_of(run(capfd, "rollback", out, V1, "--to", V2), 2)
    point_to(out, V1)
    with pytest.raises(UsageError, match=f"no published version before {V1}"):
        rollback(out)
    rollback(out, V3)
    point_to(out, V1, V3)
    assert rollback(out) == (str(out), V3, V1, True, ""), "readers had this newer version"


def test_a_rollback_that_failed_after_the_switch_can_be_repeated(
    capfd: Capture, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    located = pointers.located

    def failing(path: str) -> str:
        asked.append(path)
        if len(asked) > 1:
            raise EngineError("the network is gone")
        return located(path)

    with monkeypatch.context() as patch:
        patch.setattr("shardwright.core.versions.located", failing)
        assert run(capfd, "rollback", out).code == 3 and latest_of(out)["version"] == V2
    for _ in range(2):
        assert run(capfd, "rollback", out).code == 0 and latest_of(out)["version"] == V2
    assert [state_of(out, version) for version in (V1, V2, V3)] == ["published", "published", "withdrawn"]


def test_rollback_refuses_versions_that_cannot_be_latest(
    capfd: Capture, out: Path, sound_dataset: Path
) -> None:
    add_version(out, sound_dataset, V4, "refused", refusals=[refusal("drift", "max_count_drop")])
    message = sentence_of(run(capfd, "rollback", out, V4), 2)
    assert f"shardwright publish {out}@{V4} --accept max_count_drop" in message
    add_version(out, sound_dataset, V1, "building")  # its gates have not judged it yet
    assert "is not complete" in sentence_of(run(capfd, "publish", f"{out}@{V1}"), 2)
    for version, message in (
        (V1, "is not complete"),
        ("20301121T020000Z", "has no version 20301121T020000Z"),
        ("yesterday", "has no version yesterday; its newest are"),
    ):
        assert message in sentence_of(run(capfd, "rollback", out, version), 2)
    assert latest_of(out)["version"] == V3
    (out / "latest.json").unlink()
    assert "is published yet" in sentence_of(run(capfd, "rollback", out), 2)
    assert rollback(out, V2).version == V2


#: The process ends here.
killed = mock.Mock(side_effect=KeyboardInterrupt)


@pytest.mark.parametrize(
    ("function", "way", "states"),
    [
        ("core.storage.write_if_match", [()], ["published", "published", "withdrawn"]),
        ("core.storage.write_if_match", [(V2,)], ["published", "published", "withdrawn"]),
        ("core.versions.write_version_record", [(), (V3,)], ["published"] * 3),  # there and back
    ],
)
def test_a_killed_rollback_can_be_repeated(
    out: Path, monkeypatch: pytest.MonkeyPatch, function: str, way: list[tuple[str, ...]], states: list[str]
) -> None:
    *before, arguments = way
    for given in before:
        rollback(out, *given)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(f"shardwright.{function}", killed)
        rollback(out, *arguments)
    assert latest_of(out)["version"] == V3 and state_of(out, V3) == "withdrawn"
    rollback(out, *arguments)
    assert latest_of(out)["version"] == (V3 if before else V2)
    assert [state_of(out, version) for version in (V1, V2, V3)] == states


def racing(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Runs a function right before the pointer is written."""
    write = storage.write_if_match

    def late(path: str, data: bytes, tag: str | None) -> bool:
        act()
        return write(path, data, tag)

    monkeypatch.setattr(pointers.storage, "write_if_match", late)


@pytest.mark.parametrize("command", [("rollback", "{}"), ("publish", "{}@" + V4, "--accept=all")])
def test_a_command_fails_if_a_rebuild_switches_the_pointer(
    capfd: Capture, refused: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    racing(monkeypatch, lambda: point_to(refused, V1))
    argv = (word.format(refused) for word in command)
    assert "was changed by another process" in sentence_of(run(capfd, *argv), 3)
    assert latest_of(refused)["version"] == V1
    assert [state_of(refused, version) for version in (V1, V2, V3, V4)] == [*["published"] * 3, "refused"]


def test_two_equal_rollbacks_at_once_succeed(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    racing(monkeypatch, lambda: point_to(out, V2, V1))
    assert rollback(out).version == V2
    assert state_of(out, V3) == "withdrawn"


@pytest.mark.parametrize("version", [V2, V4])
def test_a_version_removed_meanwhile_is_reported(
    refused: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    racing(monkeypatch, lambda: shutil.rmtree(refused / "versions" / version))
    with pytest.raises(UsageError, match=f"has no version {version}"):
        publish(f"{refused}@{V4}", accept="all") if version == V4 else rollback(refused)
    assert not (refused / "versions" / version).exists()


@pytest.mark.parametrize(
    ("accept", "command"),
    [
        ((), "max_count_drop,max_class_l_infinity,SPLIT_LEAKAGE"),
        (("drift",), "drift,SPLIT_LEAKAGE"),
        (("SPLIT_LEAKAGE", "bad_images"), "SPLIT_LEAKAGE,bad_images,max_count_drop,max_class_l_infinity"),
        (("EMPTY_SPLIT", "findings"), "EMPTY_SPLIT,findings,max_count_drop,max_class_l_infinity"),
    ],
)  # fmt: skip
def test_publish_names_the_refusals_that_are_not_accepted(
    capfd: Capture, refused: Path, accept: tuple[str, ...], command: str
) -> None:
    options = [option for word in accept for option in ("--accept", word)]
    message = sentence_of(run(capfd, "publish", f"{refused}@{V4}", *options), 1)
    assert message.endswith(f"run shardwright publish {refused}@{V4} --accept {command}.")
    assert latest_of(refused)["version"] == V3 and state_of(refused, V4) == "refused"
    done = run(capfd, *message.rpartition("run shardwright ")[2].rstrip(".").split())
    assert done.code == 0, done
    assert latest_of(refused)["version"] == V4 and latest_of(refused)["previous"] == V3
    document = json.loads((refused / "versions" / V4 / "version.json").read_text())
    assert document["state"] == "published" and document["accepted"] == command.split(",")
    assert document["refusals"] == REFUSALS
    assert rollback(refused).version == V3


@pytest.mark.parametrize(
    "accept", ["all", "drift,findings", ["drift", "SPLIT_LEAKAGE"], " drift , findings,"]
)
def test_refusals_can_be_accepted(refused: Path, accept: str | list[str]) -> None:
    assert publish(f"{refused}@{V4}", accept=accept)[:3] == (str(refused), V4, V3)
    assert state_of(refused, V4) == "published"
    assert publish(f"{refused}@{V4}").left == "", "done again, nothing happens"
    again = publish(f"{refused}@{V4}", accept="bad_images", reason="too late")
    assert again.acceptance is None and "bad_images" not in again.accepted
    assert again.warning == f"--accept has no effect, because version {V4} is not refused"


def test_the_person_and_reason_of_an_acceptance_are_recorded_and_shown(capfd: Capture, refused: Path) -> None:
    options = ["--accept", "all", "--reason", " the shoes\nwere deleted "]
    result = run(capfd, "publish", f"{refused}@{V4}", *options)
    assert result.code == 0 and f"all accepted by {this_account()}" in result.out
    (stored,) = json.loads((refused / "versions" / V4 / "version.json").read_text())["acceptances"]
    assert stored["names"] == ["all"] and stored["reason"] == "the shoes\nwere deleted"
    assert stored["who"] == this_account() and abs(stored["when"] - time.time()) < 600
    listed = run(capfd, "versions", str(refused)).out
    assert f"{V4}: all accepted by {this_account()}" in listed and "the shoes\\nwere deleted" in listed
    assert run(capfd, "report", f"{refused}@{V4}").code == 0
    for page in (refused / "index.html", refused / "versions" / V4 / "report.html"):
        assert "were deleted" in page.read_text()


def test_a_reason_alone_and_other_names_are_refused(capfd: Capture, refused: Path) -> None:
    for option, message in (
        ("--reason=why not", "name the refusal with --accept"),
        ("--accept=SPLIT_LEAKAGES", "did you mean SPLIT_LEAKAGE?"),
        ("--accept=x", "it was refused because of max_count_drop"),
    ):
        assert message in sentence_of(run(capfd, "publish", f"{refused}@{V4}", option), 2)
    assert state_of(refused, V4) == "refused"


def test_publish_refuses_versions_that_need_no_acceptance(
    capfd: Capture, out: Path, sound_dataset: Path
) -> None:
    assert "none is refused" in sentence_of(run(capfd, "publish", out), 2)
    add_version(out, sound_dataset, V4, "refused", refusals=REFUSALS)
    assert f"refused are {V4}" in sentence_of(run(capfd, "publish", out), 2)
    assert f"rollback {out} {V2}" in sentence_of(run(capfd, "publish", f"{out}@{V2}"), 2)
    rollback(out)
    assert "was rolled back" in sentence_of(run(capfd, "publish", f"{out}@{V3}"), 2)
    (out / "versions" / V4 / "dataset.json").unlink()
    assert "is not complete" in sentence_of(run(capfd, "publish", f"{out}@{V4}", "--accept", "all"), 2)
    assert "did you mean" in sentence_of(run(capfd, "publish", f"{out}@{V4[:-2]}9Z"), 2)
    assert latest_of(out)["version"] == V2


def test_the_first_version_and_one_of_a_rebuild_that_died_before_the_switch_can_be_published(
    out: Path, sound_dataset: Path, tmp_path: Path
) -> None:
    add_version(out, sound_dataset, V4, finished=0.0)
    assert publish(f"{out}@{V4}")[:3] == (str(out), V4, V3)
    assert not read_version_record(str(out), V4).is_unseen  # otherwise the next rebuilds may remove it
    add_version(tmp_path / "new", sound_dataset, V1, "refused", refusals=REFUSALS)
    with pytest.raises(DataRefused, match="was not published"):
        publish(f"{tmp_path}/new@{V1}")
    assert publish(f"{tmp_path}/new@{V1}", accept="all").left == ""
    assert latest_of(tmp_path / "new")["previous"] == ""


@pytest.mark.parametrize(
    "command", [lambda out: rollback(out, V2), lambda out: publish(f"{out}@{V4}", accept="all")]
)
def test_a_latest_version_whose_rebuild_died_after_the_switch_stays_published(
    refused: Path, sound_dataset: Path, command: Callable[[Path], object]
) -> None:
    add_version(refused, sound_dataset, V2, "withdrawn")
    add_version(refused, sound_dataset, V3, finished=0.0)
    command(refused)
    assert latest_of(refused)["version"] != V3
    assert not read_version_record(str(refused), V3).is_unseen


def test_a_killed_publish_can_be_repeated(refused: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("shardwright.core.versions.write_version_record", killed)
        with pytest.raises(KeyboardInterrupt):
            publish(f"{refused}@{V4}", accept="all")
    assert publish(f"{refused}@{V4}", accept="all").version == V4
    assert state_of(refused, V4) == "published" and latest_of(refused)["previous"] == V3


def test_a_page_that_cannot_be_written_is_a_warning(capfd: Capture, out: Path) -> None:
    (out / "index.html").mkdir()
    done = run(capfd, "rollback", out)
    assert done.code == 0 and "index.html could not be updated" in done.out
    assert latest_of(out)["version"] == V2


@pytest.mark.parametrize("columns", [60, 80, 100, 120])
def test_a_narrow_terminal_does_not_break_names(
    out: Path, sound_dataset: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    names = ("max_count_drop", "max_class_l_infinity", "vanished_classes")
    add_version(out, sound_dataset, V4, "refused", refusals=[refusal("drift", name) for name in names])
    screen = io.StringIO()
    narrow = Console(file=screen, width=columns)
    monkeypatch.setattr("shardwright.pipelines.versions.console", lambda: narrow)
    print_versions(versions(out))
    shown = screen.getvalue()
    assert all(name in shown for name in (V1, V2, V3, V4, "published, latest", "what changed"))
    assert ("fingerprint" in shown) == (columns == 120)
    assert columns < 80 or all(name in shown for name in names)


def test_accepting_a_version_that_passed_changes_nothing(capfd: Capture, out: Path) -> None:
    done = run(capfd, "publish", f"{out}@{V3}", "--accept", "all")
    assert done.code == 0 and "let pass" not in done.out
    message = sentence_of(run(capfd, "publish", f"{out}@{V3}", "--accept", "nonsense"), 2)
    assert message.endswith("for that reason; it was not refused, so leave --accept out.")


def test_a_missing_latest_version_is_reported_with_a_rollback(capfd: Capture, out: Path) -> None:
    shutil.rmtree(out / "versions" / V3)
    text = run(capfd, "versions", out).out
    assert f"latest.json names version {V3}, which is missing; return" in text
    done = run(capfd, *text.rpartition("shardwright ")[2].strip().rstrip(".").split())
    assert done.code == 0 and f"{V2} is the latest" in done.out
    assert V3 not in done.out, "nobody can go back to it"
    assert latest_of(out)["version"] == V2


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


def wrong_files(version: Path) -> list[str]:
    """Returns the files that were changed since they were written."""
    directory = str(version)
    found = list(check_version_files(directory, read_dataset(directory), storage.list_files(directory)))
    assert {finding.code for finding in found} <= {FindingCode.REPORT_MISMATCH}
    return sorted({str(finding.shard) for finding in found})


def test_a_validation_reports_the_changed_files_of_a_version(version: Path) -> None:
    (version / "diff.json").unlink()
    assert [finding.code for finding in findings_of(version, "fast")] == [FindingCode.REPORT_MISMATCH]


@pytest.mark.parametrize("file", FILES)
def test_a_flipped_byte_and_a_missing_file_are_detected(version: Path, file: str) -> None:
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
    path.unlink()
    assert (file in wrong_files(version)) == (file not in ("version.json", "pinned.json"))


def test_an_additional_check_is_detected(version: Path) -> None:
    shutil.copy(version / FILES[-1], version / "_checks" / "other.json.gz")
    assert wrong_files(version) == ["_checks/other.json.gz"]


def test_a_version_keeps_its_digests_when_its_record_changes(version: Path) -> None:
    rollback(version.parents[1])
    document = json.loads((version / "version.json").read_text())
    assert document["state"] == "withdrawn" and set(document["files"]) == {"diff.json", "_checks/sha256.json"}
    assert wrong_files(version) == []


def test_versions_says_if_the_pointer_states_another_fingerprint(version: Path) -> None:
    output = version.parents[1]
    assert versions(output).problem == ""
    for row in versions(output).as_json()["versions"]:
        assert not {"digest", "files", "format_version"} & row.keys()
    pointer = json.loads((output / "latest.json").read_text())
    (output / "latest.json").write_text(json.dumps({**pointer, "fingerprint": "0" * 64}))
    message = f"latest.json and version {version.name} have different fingerprints"
    assert versions(output).problem.startswith(message)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Datasets of 6 and 8 pictures, with their sources."""
    root = tmp_path_factory.mktemp("datasets")
    for images in (6, 8):
        tree = make_tree(root / f"in{images}", images)
        convert(input=str(tree), output=str(root / str(images)), shards=images // 2, verify="none")
    return [root / "6", root / "8"]


@pytest.fixture
def two(tmp_path: Path, datasets: list[Path]) -> Path:
    """Versions of 6 and 8 pictures; the second one is the latest."""
    for version, dataset in zip((V1, V2), datasets):
        add_version(tmp_path / "out", dataset, version)
    point_to(tmp_path / "out", V2, V1)
    return tmp_path / "out"


def test_validate_and_report_read_versions(capfd: Capture, two: Path) -> None:
    assert run(capfd, "validate", f"{two}@{V1}", "--previous", f"{two}@{V2}").code == 0
    found = json.loads((two / "versions" / V1 / "findings.json").read_text())
    assert found["dataset"] == f"{two}@{V1}"
    assert not (two / "findings.json").exists()
    made = report(two, previous=f"{two}@{V1}")
    assert made.path == f"{two}/versions/{V2}/report.html"
    page = Path(made.path).read_text()
    assert f"{two}@{V1}" in page and "Compared with the previous version" in page


def test_diff_reads_versions(capfd: Capture, two: Path) -> None:
    found = diff(f"{two}@{V1}", two)
    assert found.drift.changes.as_json()["added"] == 2
    assert found.as_json()["datasets"] == {"old": f"{two}@{V1}", "new": f"{two}@{V2}"}
    assert diff(two, f"{two}@{V2}").drift.changes.unchanged == 8
    assert "has no version" in sentence_of(run(capfd, "diff", f"{two}@{V3}", two), 2)


def test_plan_from_accepts_versions(two: Path) -> None:
    for name, shards in ((two, 4), (f"{two}@{V1}", 3)):
        assert prepare.read_plan(str(name)).shards == {"train": shards}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("source", ["auto", "tfrecord"])
def test_a_version_can_be_a_source_and_compared_with_a_dataset(
    two: Path, tmp_path: Path, source: str
) -> None:
    old = f"old={two}@{V1}"
    made = convert(input=old, output=str(tmp_path / "made"), source=source, verify="none")
    assert made.dataset.all_records == 6
    assert json.loads((tmp_path / "made" / "run.json").read_text())["input"] == [old]
    assert not compared(tmp_path / "made", old)
    assert len(listed(two, "classification").refs) == 8


def test_salvage_reads_versions(two: Path, tmp_path: Path) -> None:
    saved = salvage(f"{two}@{V1}", tmp_path / "saved")
    assert saved.dataset is not None and saved.dataset.all_records == 6


def test_the_version_is_chosen_once(capfd: Capture, two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pointer is switched while the command works, and before it reads the statistics."""
    run_pipeline = prepare.run_pipeline
    for version in (V1, V2):
        (two / "versions" / version / "findings.json").unlink(missing_ok=True)

    def moved_meanwhile(*arguments: Any) -> Any:
        point_to(two, V1)
        return run_pipeline(*arguments)

    monkeypatch.setattr(prepare, "run_pipeline", moved_meanwhile)
    done = run(capfd, "validate", two, "--quality")
    assert done.code == 0
    assert f"{V2}/report.html" in done.out and f"{V1}/report.html" not in done.out
    assert [line.split()[1] for line in done.out.splitlines() if line.split()[:1] == ["train"]] == ["8"]
    assert json.loads((two / "versions" / V2 / "findings.json").read_text())["dataset"] == f"{two}@{V2}"
    assert not (two / "versions" / V1 / "findings.json").exists()


def test_no_command_overwrites_versions(
    capfd: Capture, two: Path, tmp_path: Path, datasets: list[Path]
) -> None:
    tree = datasets[0].parent / "in6"
    before = sorted(path.relative_to(two) for path in two.rglob("*"))
    for command in ("convert", "convert --overwrite", "convert --resume", "rebuild"):
        argv = (*command.split(), "--input", tree, "--output")
        if command != "rebuild":
            assert "holds versions" in sentence_of(run(capfd, *argv, two), 2)
        for version in (f"{two}@{V1}", f"{two}@{V4}", f"{two}/versions/{V1}", f"{two}/versions/{V1}/"):
            sentence = sentence_of(run(capfd, *argv, version), 2)
            assert "only rebuilds write" in sentence and sentence.endswith(f"rebuild --output {two}.")
    message = f"is the folder of the versions; name the directory above it, {two}."
    assert sentence_of(run(capfd, *argv, f"{two}/versions"), 2).endswith(message)
    (two / "latest.json").unlink()
    done = run(capfd, "convert", "--input", tree, "--output", two, "--overwrite")
    assert "holds versions" in sentence_of(done, 2)
    point_to(two, V2)
    assert sorted(path.relative_to(two) for path in two.rglob("*")) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    assert "is not empty" in sentence_of(run(capfd, "salvage", datasets[0], "--output", two), 2)


def test_a_pointer_to_a_missing_version_is_reported(capfd: Capture, two: Path) -> None:
    shutil.rmtree(two / "versions" / V2)
    commands = [(name, two) for name in ("inspect", "validate", "report")]
    for argv in (*commands, ("diff", two, two), ("salvage", two, "--output", "x")):
        assert f"rollback {two} V" in sentence_of(run(capfd, *argv), 2)
    assert latest_of(two)["version"] == V2
