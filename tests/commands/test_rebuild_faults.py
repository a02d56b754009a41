"""Rebuilds with faults: full disks, changing or missing sources, clocks that jump, two at once, Ctrl-C."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import at_call, make_tree, run_forked, signal_self, start, wait
from PIL import Image

from shardwright.core import lease as leases
from shardwright.core.lease import Lease
from shardwright.core.rebuild.begin import MAX_ABANDONED
from shardwright.core.sources import class_folders
from shardwright.core.storage.local import LocalStore
from shardwright.core.versions import list_versions
from shardwright.pipelines import cli
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.results import RebuildResult
from shardwright.pipelines.run import exit_code_of
from shardwright.pipelines.validate import validate
from shardwright.schemas.errors import DataRefused, EngineError, UsageError
from shardwright.schemas.version import LEASE_JSON, VersionState


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a source of a dozen images and the first version of its dataset."""
    folder = tmp_path_factory.mktemp("first")
    make_tree(folder / "in", 12)
    _rebuild(folder)
    return folder


@pytest.fixture
def folder(first: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it, with one more image in its source."""
    folder = Path(shutil.copytree(first, tmp_path / "data"))
    (folder / "in" / "ant" / "new.jpg").write_bytes((folder / "in" / "ant" / "000.jpg").read_bytes())
    yield folder


def _rebuild(folder: Path, **settings: Any) -> RebuildResult:
    return rebuild(input=str(folder / "in"), output=str(folder / "out"), shards=4, **settings)


def _check_sound(folder: Path, versions: int) -> None:
    output = folder / "out"
    assert not (output / LEASE_JSON).exists()
    assert [record.state for record in list_versions(str(output))] == [VersionState.PUBLISHED] * versions
    assert validate(output).sound


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "place", [0, 3, 10, pytest.param(1, marks=pytest.mark.slow), pytest.param(6, marks=pytest.mark.slow)]
)
def test_a_full_disk_ends_the_rebuild_and_the_next_one_continues(
    folder: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    pointer = (folder / "out" / "latest.json").read_bytes()
    real, left = LocalStore.write, [place]

    def full(store: LocalStore, path: str, data: bytes, inside: str = "") -> None:
        left[0] -= 1
        if left[0] < 0 and "/versions/" in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        real(store, path, data, inside)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "write", full)
        with pytest.raises(EngineError, match="the disk is full; free some space, then run again") as caught:
            _rebuild(folder)
    assert "--resume" not in caught.value.message
    assert (folder / "out" / "latest.json").read_bytes() == pointer
    result = _rebuild(folder)
    assert result.changed and result.outcome["records"] == 13
    _check_sound(folder, 2)


def test_a_source_changed_during_the_rebuild_ends_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, victim = class_folders.list_class_folders, folder / "in" / "ant" / "new.jpg"

    def listed(*arguments: Any) -> Iterator[Any]:
        yield from list(real(*arguments))
        victim.write_bytes(victim.read_bytes() + b"more")

    with monkeypatch.context() as patch:
        patch.setattr(class_folders, "list_class_folders", listed)
        with pytest.raises(EngineError, match="changed while the job was reading its input; run again when"):
            _rebuild(folder)
    assert _rebuild(folder).changed
    _check_sound(folder, 2)


@pytest.mark.parametrize("existed", [False, True])
def test_a_first_rebuild_that_is_refused_leaves_no_folders(tmp_path: Path, existed: bool) -> None:
    (tmp_path / "rows.csv").write_text("image,label\na.jpg,x\na.jpg,y\n")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    output = tmp_path / "out"
    if existed:
        output.mkdir()
    with pytest.raises(UsageError, match="Two images have the key"):
        rebuild(input=str(tmp_path / "rows.csv"), output=str(output))
    assert output.exists() == existed and not [*tmp_path.glob("out/*")]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("jump", [-(10**8), 10**9, pytest.param(-3600, marks=pytest.mark.slow)])
def test_a_clock_that_jumps_does_not_matter(folder: Path, monkeypatch: pytest.MonkeyPatch, jump: int) -> None:
    before, real = list_versions(str(folder / "out"))[-1].version, time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: real() + jump)
        second = _rebuild(folder)
    assert second.version > before
    (folder / "in" / "ant" / "new.jpg").unlink()
    third = _rebuild(folder)
    assert third.version > second.version and third.outcome["previous"] == second.version
    _check_sound(folder, 3)


def _look_often() -> None:
    """Looks often for a free lease; a command looks every five seconds in the end."""
    leases._POLL_SECONDS = 0.4


def test_concurrent_rebuilds_publish_one_version(folder: Path, tmp_path: Path) -> None:
    argv = ("rebuild", "--input", folder / "in", "--output", folder / "out", "--shards=4", "--wait=5")
    logs = [tmp_path / f"log{number}" for number in range(3)]
    processes = [start(log, *argv, "--log_format=json", before=_look_often) for log in logs]
    assert [wait(process, log).code for process, log in zip(processes, logs)] == [0, 0, 0]
    _check_sound(folder, 2)


def test_the_second_rebuild_names_the_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lease = Lease("somebody", "20990101T000000Z", "another-host", pid=7, renewed=time.time(), seconds=3600.0)
    (folder / "out" / LEASE_JSON).write_text(lease.dumps())
    argv = ["rebuild", "--input", str(folder / "in"), "--output", str(folder / "out"), "--shards=4"]
    assert cli.main(argv) == 3
    err = capsys.readouterr().err
    assert "another-host" in err and "20990101T000000Z" in err and "Traceback" not in err
    assert json.loads((folder / "out" / LEASE_JSON).read_text())["holder"] == "somebody"
    silent = Lease("dead", "", "another-host", pid=7, renewed=1.0, seconds=60.0)
    (folder / "out" / LEASE_JSON).write_text(silent.dumps())
    os.utime(folder / "out" / LEASE_JSON, (1.0, 1.0))
    assert _rebuild(folder).changed


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_rebuild_in_order(folder: Path, tmp_path: Path, number: signal.Signals) -> None:
    argv = ("rebuild", "--input", folder / "in", "--output", folder / "out", "--shards=4")
    during = "shardwright.core.storage:move_into_place", "", 1, partial(signal_self, number)
    done = run_forked(tmp_path / "log", *argv, before=partial(at_call, *during))
    assert done.code == 130
    assert "shardwright: interrupted; " in done.err and "run again" in done.err and "--resume" not in done.err
    assert not (folder / "out" / LEASE_JSON).exists()
    assert _rebuild(folder).changed
    _check_sound(folder, 2)


def versions(folder: Path) -> list[Path]:
    return list((folder / "out" / "versions").glob("*"))


@pytest.mark.slow
def test_failed_runs_do_not_pile_up(folder: Path) -> None:
    for path in (folder / "in").rglob("*.*"):
        path.write_bytes(b"no picture")
    for _ in range(MAX_ABANDONED + 3):
        with pytest.raises(DataRefused):
            _rebuild(folder)
    assert len(versions(folder)) <= 1 + MAX_ABANDONED + 1


def test_hooks_are_called_for_each_event(folder: Path) -> None:
    posted = folder / "told.json"
    job = folder / "job.yaml"
    job.write_text(
        f"input: {folder}/in\noutput: {folder}/out\nshards: 4\nhooks:\n"
        f"  on_any: {{command: [sh, -c, 'cat > {posted}']}}\n"
    )
    rebuild(job)
    assert json.loads(posted.read_text())["event"] == "success"
    rebuild(job)
    assert json.loads(posted.read_text())["event"] == "no_change"
    (folder / "in" / "ant" / "new.jpg").write_bytes(b"")
    with pytest.raises(Exception, match="refused"):
        rebuild(job)
    assert json.loads(posted.read_text())["event"] == "refused"
    shutil.rmtree(folder / "in")
    with pytest.raises(UsageError):
        rebuild(job)
    metrics = (folder / "out" / "metrics.prom").read_text()
    assert 'outcome="refused"} 1' in metrics


def test_an_output_inside_the_versions_is_refused(folder: Path) -> None:
    output = folder / "out"
    (version,) = (record.version for record in list_versions(str(output)))
    for place in (f"{output}/versions/{version}", f"{output}@{version}"):
        with pytest.raises(
            UsageError, match=f"is a version, which only rebuilds write.* rebuild --output {output}\\.$"
        ):
            rebuild(input=str(folder / "in"), output=place)
        assert not Path(f"{output}@{version}").exists()
    with pytest.raises(
        UsageError, match=f"is the folder of the versions; name the directory above it, {output}\\.$"
    ):
        rebuild(input=str(folder / "in"), output=f"{output}/versions")


def test_the_line_of_a_wrong_option_for_beam_is_named(folder: Path) -> None:
    job = folder / "job.yaml"
    job.write_text(f"input: {folder}/in\noutput: {folder}/out\nrunner:\n  runner: DirectRuner\n")
    with pytest.raises(
        UsageError, match=f"^--job {job}, line 4: runner DirectRuner: Beam has no such runner"
    ):
        rebuild(job)
    with pytest.raises(UsageError, match=r"^--runner DirectRnner: Beam"):
        rebuild(job, beam_options=["--runner=DirectRnner"])


def test_the_name_of_the_interrupted_step_is_not_in_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        raise KeyboardInterrupt("it was told to end (SIGTERM); run again. [while running 'Write/Shard']")

    assert exit_code_of(command) == 130
    message = "shardwright: interrupted; it was told to end (SIGTERM); run again.\n"
    assert capsys.readouterr().err == message
