"""An output has one writer: a second one ends at once, and a writer without its lease writes nothing more."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import (
    at_call,
    document,
    identity,
    make_tree,
    run,
    run_forked,
    sentence_of,
    signal_self,
    start,
    state_of,
    wait,
)

from shardwright.core import commit, lease, overwrite, storage
from shardwright.core.commit import ConversionSpec, begin_conversion, remove_commit
from shardwright.core.lease import HeldLease, Lease
from shardwright.pipelines import convert as conversion
from shardwright.pipelines.convert import build_convert, convert
from shardwright.pipelines.places import one_writer
from shardwright.pipelines.prepare import as_beam_options, make_request, run_facts, software_versions
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.run import run_pipeline, workers_of
from shardwright.pipelines.validate import validate
from shardwright.schemas.errors import EngineError
from shardwright.transforms import conversion as commit_step

Capture = pytest.CaptureFixture[str]
STORAGE = "shardwright.core.storage"
LEASE = "_work/lease.json"
STOP = partial(signal_self, signal.SIGSTOP)
KILL = partial(signal_self, signal.SIGKILL)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree, and a finished dataset of it."""
    root = tmp_path_factory.mktemp("originals")
    make_tree(root / "in")
    convert(input=str(root / "in"), output=str(root / "out"), shards=2)
    return root


@pytest.fixture
def tree(originals: Path) -> Path:
    return originals / "in"


@pytest.fixture
def made(tmp_path: Path, originals: Path) -> Path:
    """A copy of the dataset."""
    return Path(shutil.copytree(originals / "out", tmp_path / "out"))


def put(output: Path, held: Lease, age: float = 0.0) -> None:
    (output / "_work").mkdir(parents=True, exist_ok=True)
    (output / LEASE).write_text(held.dumps())
    now = time.time()
    os.utime(output / LEASE, (now - age, now - age))


def parent_process() -> tuple[str, int, str]:
    """Returns the part of a lease that describes a process which lives as long as this one."""
    return os.uname().nodename, os.getppid(), lease._beginning_of(os.getppid())


def stopped(process: Any) -> None:
    """Waits until a process has stopped itself."""
    deadline = time.monotonic() + 60
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline and process.is_alive(), "it does not come to that"
        time.sleep(0.02)


@pytest.mark.parametrize("option", ["", "--overwrite", "--resume", "salvage"])
def test_a_second_writer_ends_at_once_and_names_the_first(
    capfd: Capture, tmp_path: Path, tree: Path, made: Path, option: str
) -> None:
    if option == "salvage":
        argv = ["salvage", made, "--output", tmp_path / "saved"]
    else:
        argv = ["convert", "--input", tree, "--output", made, *filter(None, [option])]
    output = argv[-1] if option == "salvage" else made
    put(Path(str(output)), Lease("theirs", "", *parent_process(), since=1.0, renewed=time.time()))
    before = state_of(tmp_path)
    sentence = sentence_of(run(capfd, *argv), 3)
    who = f"process {os.getppid()} on {os.uname().nodename}"
    assert f"{who} has been writing there since 1970-01-01 00:00:01 UTC" in sentence
    assert str(output) in sentence
    assert state_of(tmp_path) == before


@pytest.mark.sampled(1)
@pytest.mark.parametrize("option", ["", "--resume"])
def test_a_running_conversion_keeps_others_away_and_a_killed_one_does_not(
    capfd: Capture, tmp_path: Path, tree: Path, option: str
) -> None:
    output = tmp_path / "out"
    argv = ("convert", "--input", tree, "--output", output, "--shards=2")
    before = partial(at_call, f"{STORAGE}:move_into_place", "_work/", 2, STOP)
    first = start(tmp_path / "log", *argv, before=before)
    stopped(first)
    sentence = sentence_of(run(capfd, *argv, *filter(None, [option])), 3)
    assert f"process {first.pid} on" in sentence and "since 20" in sentence
    first.kill()
    assert wait(first, tmp_path / "log").code == -signal.SIGKILL
    assert (output / LEASE).exists()
    assert run(capfd, *argv, "--resume").code == 0
    assert validate(str(output)).sound and not (output / LEASE).exists()


@pytest.mark.parametrize(
    ("held", "age", "code"),
    [
        (Lease("theirs", "", "elsewhere", 7, seconds=1800.0), 0.0, 3),
        (Lease("theirs", "", "elsewhere", 7, since=1e9, renewed=1e9, seconds=1800.0), 0.0, 3),
        (Lease("theirs", "", "elsewhere", 7, seconds=1e300), 15 * 86400.0, 0),
        (Lease("theirs", "", "elsewhere", 7, renewed=time.time() + 1e6, seconds=1800.0), 1801.0, 0),
    ],
    ids=["live", "its clock is slow", "a million years", "its clock is fast"],
)
def test_a_lease_of_another_machine_is_valid_for_its_time_by_the_storages_clock(
    capfd: Capture, tmp_path: Path, tree: Path, held: Lease, age: float, code: int
) -> None:
    put(tmp_path / "out", held, age)
    done = run(capfd, "convert", "--input", tree, "--output", tmp_path / "out")
    assert done.code == code, done
    assert (tmp_path / "out" / LEASE).exists() == (code == 3)


#: Action of another run -> the call before which this run is stopped, and its options.
_STOPS = {
    "shard": ("shardwright.transforms.write_shards:finish_shard", "train-", ()),
    "file beside": ("shardwright.core.dataset_files:write_held", "labels.txt", ()),
    "commit": ("shardwright.core.dataset_files:write_held", "dataset.json", ()),
    "swap": (f"{STORAGE}:remove_tree", "shardwright-old", ("--overwrite",)),
    "before the swap": ("shardwright.core.commit:swap", "out", ("--overwrite",)),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("option", ["--overwrite", "--resume"])
@pytest.mark.parametrize("moment", _STOPS)
def test_a_run_that_lost_its_lease_writes_nothing_more(
    capfd: Capture, tmp_path: Path, tree: Path, made: Path, moment: str, option: str
) -> None:
    target, text, options = _STOPS[moment]
    if not options:
        shutil.rmtree(made)
    argv = ("convert", "--input", tree, "--output", made)
    before = partial(at_call, target, text, 1, STOP)
    zombie = start(tmp_path / "log", *argv, "--shards=1", *options, before=before)
    stopped(zombie)
    os.utime(made / LEASE, (1e9, 1e9))  # the lease was not renewed for a long time
    assert run(capfd, *argv, "--shards=3", option).code == 0
    expected = identity(made)
    os.kill(zombie.pid, signal.SIGCONT)
    assert "lost its lease" in sentence_of(wait(zombie, tmp_path / "log"), 3)
    assert identity(made) == expected and len(document(made)["splits"]["train"]["shards"]) == 3
    assert validate(str(made)).sound


@pytest.mark.parametrize(
    ("function", "file", "message"),
    [
        ("temporary_path", ".tfrecord", "No such file"),
        ("write_bytes", "/dataset.json", "20990101T000000Z"),
        ("write_bytes", "/version.json", "20990101T000000Z"),
        pytest.param("write_bytes", "/labels.txt", "20990101T000000Z", marks=pytest.mark.slow),
        pytest.param("write_bytes", "/report.html", "20990101T000000Z", marks=pytest.mark.slow),
    ],
)
def test_a_rebuild_that_lost_its_lease_does_not_recreate_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tree: Path, function: str, file: str, message: str
) -> None:
    output, real = tmp_path / "out", getattr(storage, function)
    lost: list[Path] = []

    def taken_over(*args: Any, **named: Any) -> Any:
        if not lost and any(isinstance(item, str) and item.endswith(file) for item in args):
            lost.extend((output / "versions").iterdir())
            (output / "lease.json").write_text(Lease("theirs", "20990101T000000Z").dumps())
            shutil.rmtree(lost[0])
        return real(*args, **named)

    monkeypatch.setattr(storage, function, taken_over)
    with pytest.raises(EngineError, match=message):
        rebuild(input=str(tree), output=str(output), shards=1)
    assert lost and not lost[0].exists() and not (output / "latest.json").exists()
    assert json.loads((output / "lease.json").read_text())["holder"] == "theirs"


def test_dataset_json_is_removed_once_and_only_if_a_shard_changes(
    monkeypatch: pytest.MonkeyPatch, tree: Path, made: Path
) -> None:
    removed: Counter[str] = Counter()
    real = storage.remove

    def noting(path: str) -> None:
        removed[Path(path).name] += 1
        real(path)

    monkeypatch.setattr(storage, "remove", noting)
    before = identity(made)
    convert(input=str(tree), output=str(made), shards=2, resume=True)
    (shard, *_) = sorted(made.glob("*.tfrecord"))
    shard.write_bytes(shard.read_bytes()[:-1])
    convert(input=str(tree), output=str(made), shards=2, resume=True)  # the bytes stay the same
    assert identity(made) == before and not removed["dataset.json"]
    convert(input=str(tree), output=str(made), shards=2, resume=True, image_format="webp")
    assert removed["dataset.json"] == removed["dataset_info.json"] == 1


def test_a_worker_that_returns_after_the_end_removes_nothing(
    monkeypatch: pytest.MonkeyPatch, tree: Path, made: Path
) -> None:
    jobs: list[ConversionSpec] = []
    real = conversion.build_convert
    monkeypatch.setattr(
        conversion,
        "build_convert",
        lambda pipeline, job, request: jobs.append(job) or real(pipeline, job, request),
    )
    convert(input=str(tree), output=str(made), shards=2, resume=True, image_format="png")
    before = state_of(made)
    (job,) = jobs
    assert remove_commit(job.hold, True, job) is job.hold
    assert begin_conversion(job.hold, job) is job.hold
    assert state_of(made) == before
    assert job.hold is not None
    with pytest.raises(EngineError, match="nobody has it now"):
        job.hold.check()


@pytest.mark.parametrize("option", ["", "overwrite", "resume"])
def test_a_commit_lists_the_dataset_once(
    monkeypatch: pytest.MonkeyPatch, tree: Path, made: Path, option: str
) -> None:
    if not option:
        shutil.rmtree(made)
    listed: list[str] = []
    original, real = commit.commit, storage.list_files

    def counted(job: ConversionSpec, *args: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(commit, "swap", lambda *_: patch.undo() or overwrite.swap(job.output, job.hold))
            patch.setattr(storage, "list_files", lambda path: listed.append(path) or real(path))
            return original(job, *args)

    monkeypatch.setattr(commit_step, "commit", counted)
    convert(input=str(tree), output=str(made), shards=2, **({option: True} if option else {}))
    assert len(listed) == 1


def test_a_job_that_is_launched_twice_takes_a_lease_each_time(tmp_path: Path, tree: Path) -> None:
    output = tmp_path / "out"
    options = as_beam_options(None)
    request = make_request({"input": (str(tree),), "output": str(output), "shards": 2}, with_output=True)
    with one_writer(str(output), options, described=True) as hold:
        pass
    facts = run_facts(request, options, workers_of(options))
    job = ConversionSpec(
        str(output), str(output), request.settings, software_versions(), facts, 1.0, hold=hold, described=True
    )
    holders = set()
    for _ in range(2):
        run_pipeline(lambda pipeline: build_convert(pipeline, job, request), options)
        holders.add(json.loads((output / "_work" / "outcome.json").read_text())["holder"])
        assert validate(str(output)).sound and not (output / LEASE).exists()
    assert len(holders) == 2
    before = state_of(output)
    put(output, Lease("theirs", "", "elsewhere", 7))
    with pytest.raises(EngineError, match="process 7 on elsewhere"):
        run_pipeline(lambda pipeline: build_convert(pipeline, job, request), options)
    (output / LEASE).unlink()
    assert state_of(output) == before


def test_another_command_during_a_swap_does_not_disturb_it(tmp_path: Path, made: Path) -> None:
    new, old = Path(overwrite.staging_path(str(made))), tmp_path / ".out.shardwright-old"
    shutil.copytree(made, new)
    (new / "mark").write_text("new")
    made.rename(old)
    put(made, Lease("theirs", "", *parent_process()))  # between two renames
    assert overwrite.is_being_replaced(str(made))
    overwrite.repair_swap(str(made))
    assert old.is_dir() and new.is_dir()
    overwrite._move_in(str(new), str(made))
    assert (made / "mark").exists() and not (made / LEASE).exists()
    with pytest.raises(EngineError, match="nobody has it now"):
        HeldLease(str(made), Lease("theirs", ""), LEASE).check()


def test_an_interrupted_swap_is_repaired_after_both_runs_have_ended(tmp_path: Path, made: Path) -> None:
    old, before = tmp_path / ".out.shardwright-old", identity(made)
    made.rename(old)
    put(made, Lease("theirs", "", "elsewhere", 7, seconds=60.0), age=61.0)
    overwrite.repair_swap(str(made))
    assert identity(made) == before and not old.exists()


def test_an_earlier_run_of_this_process_blocks_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tree: Path
) -> None:
    output = tmp_path / "out"
    with monkeypatch.context() as patch, pytest.raises(EngineError, match="gone"):
        write = storage.write_if_match
        patch.setattr(storage, "write_if_match", lambda *args: write(*args) if args[1] else fail())
        patch.setattr(storage, "move_into_place", lambda *_: fail())
        convert(input=str(tree), output=str(output))
    assert (output / LEASE).exists()
    convert(input=str(tree), output=str(output), resume=True)
    assert not (output / LEASE).exists()


def fail() -> None:
    raise EngineError("The storage is gone.")


def test_a_failed_conversion_returns_its_lease(capfd: Capture, tmp_path: Path, tree: Path) -> None:
    argv = ("convert", "--input", tree, "--output", tmp_path / "out")
    full = partial(at_call, f"{STORAGE}:move_into_place", "_work/", 1, partial(signal_self, signal.SIGINT))
    assert run_forked(tmp_path / "log", *argv, before=full).code == 130
    assert not (tmp_path / "out" / LEASE).exists()
    sentence_of(run(capfd, "convert", "--input", tree, tree, "--output", tmp_path / "none"), 2)
    assert not (tmp_path / "none").exists()
    assert lease.read_holder(str(tmp_path)) == ""
