"""Rebuilds with faults, signals and jumping clocks, and engines that repeat steps: the result is the same."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from helpers.cloud import BUCKET, storage_emulator
from helpers.depths import findings_of
from helpers.hostile import at_call, make_tree, run_forked, signal_self, start, wait
from helpers.packing import tree_members
from helpers.repository import PHOTOS
from helpers.trees import put_files
from PIL import Image

from shardwright.core import lease as leases
from shardwright.core import storage, versions
from shardwright.core.lease import Lease
from shardwright.core.rebuild import begin
from shardwright.core.rebuild.begin import MAX_ABANDONED
from shardwright.core.rebuild.task import outcome_file
from shardwright.core.shards.write import ShardWriter
from shardwright.core.storage.local import LocalStore
from shardwright.core.versions import list_versions, read_pointer
from shardwright.pipelines import cli
from shardwright.pipelines.convert import convert
from shardwright.pipelines.publish_version import publish as accept
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.results import RebuildResult
from shardwright.pipelines.rollback import rollback
from shardwright.pipelines.run import exit_code_of, run_pipeline
from shardwright.schemas.dataset import WRITER_JSON
from shardwright.schemas.errors import DataRefused, EngineError, ShardwrightError, UsageError
from shardwright.schemas.version import INPUT_JSON, LEASE_JSON, VersionState
from shardwright.transforms import commit
from shardwright.transforms import rebuild as transforms

PUBLISHED, REFUSED, WITHDRAWN = VersionState.PUBLISHED, VersionState.REFUSED, VersionState.WITHDRAWN


#: Part of the job -> the module and the name by which its function is found.
STEPS = {
    "BeginRebuild": (begin, "begin"),
    "CommitVersion": (transforms, "commit_version"),
    "GateVersion": (transforms, "gate_version"),
    "PublishVersion": (transforms, "publish"),
    "FinishRebuild": (transforms, "finish"),
}
ORIGINAL: dict[str, Callable[..., Any]] = {
    step: getattr(module, name) for step, (module, name) in STEPS.items()
}
#: The last arguments of each step.
GIVEN: dict[str, tuple[Any, ...]] = {}
#: Number of runs of each step.
TIMES: dict[str, int] = {}
#: Steps whose worker dies after they have done their work, and how often it dies.
DIES: dict[str, int] = {}


def _run(step: str, *arguments: Any) -> Any:
    """Runs a step several times, whatever its results."""
    GIVEN[step] = arguments
    for _ in range(TIMES.get(step, 1) - 1):
        try:
            ORIGINAL[step](*arguments)
        except DataRefused:  # an engine retries this exception
            continue
    made = ORIGINAL[step](*arguments)
    if DIES.get(step, 0):
        DIES[step] -= 1
        raise EngineError("the worker died")
    return made


@pytest.fixture(autouse=True)
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    for state in (GIVEN, TIMES, DIES):
        state.clear()
    for step, (module, name) in STEPS.items():
        # Workers find the function by name, and not as a copy with copies of the tables above.
        monkeypatch.setattr(module, name, partial(_run, step))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a source of a dozen images and the first version of its dataset."""
    folder = tmp_path_factory.mktemp("first")
    make_tree(folder / "in", 12)
    _rebuild(folder)
    return folder


@pytest.fixture
def folder(first: Path, tmp_path: Path) -> Path:
    """A copy of it, with one more image in its source."""
    folder = Path(shutil.copytree(first, tmp_path / "data"))
    _add(folder, "new")
    return folder


def _add(folder: Path, name: str) -> None:
    shutil.copy(folder / "in" / "ant" / "000.jpg", folder / "in" / "ant" / f"{name}.jpg")


def _rebuild(folder: Path, gates: str = "") -> RebuildResult:
    job = folder / "job.yaml"
    job.write_text(
        f"input: {folder}/in\noutput: {folder}/out\nshards: 4\nresize: 16\nverify: none\n{gates}\n"
        f"hooks:\n  on_any: {{command: [sh, -c, 'echo $SHARDWRIGHT_EVENT >> {folder}/told']}}\n"
    )
    return rebuild(job, beam_options=["--runner=FnApiRunner"])


def _outcomes(folder: Path) -> list[str]:
    return (folder / "told").read_text().split()


def _states(folder: Path) -> list[VersionState]:
    return [record.state for record in list_versions(str(folder / "out"))]


def _latest(folder: Path) -> str:
    pointer, _ = read_pointer(str(folder / "out"))
    assert pointer is not None
    return pointer.version


def _outcome(folder: Path) -> Path:
    """Returns the outcome file of the last run."""
    return folder / "out" / outcome_file(GIVEN["BeginRebuild"][0])


def _again(step: str) -> str:
    """Runs a step again, like a worker that the engine has given up; returns its error message."""
    try:
        ORIGINAL[step](*GIVEN[step])
    except ShardwrightError as error:
        return error.message
    return ""


def _check_sound(folder: Path, versions: int) -> None:
    assert not (folder / "out" / LEASE_JSON).exists()
    assert _states(folder) == [PUBLISHED] * versions
    assert not findings_of(folder / "out")


def _check(folder: Path, made: str, versions: int) -> None:
    """Checks that a version of thirteen images was published, and that no temporary files are left."""
    _check_sound(folder, versions)
    records = list_versions(str(folder / "out"))
    assert all(record.finished for record in records)
    assert (records[-1].version, records[-1].records, _latest(folder)) == (made, 13, made)
    assert not list((folder / "out").rglob("*.tmp")) and (folder / "out" / "index.html").exists()


def test_repeated_steps_change_nothing(folder: Path) -> None:
    """A step may run several times at once, and again after its rebuild or a later one has ended."""
    before = _latest(folder)
    TIMES.update(dict.fromkeys(STEPS, 2))
    made = _rebuild(folder)
    assert made.outcome["state"] == "success" and made.outcome["records"] == 13
    assert made.outcome["work"]["converted"] == 1 and made.outcome["previous"] == before
    assert _outcomes(folder) == ["success", "success"]
    _check(folder, made.version, 2)
    changed = dict(GIVEN)
    (folder / "out" / INPUT_JSON).unlink()  # otherwise the next run would end before these steps
    assert not _rebuild(folder).changed
    unchanged = dict(GIVEN)
    assert unchanged["FinishRebuild"] != changed["FinishRebuild"]
    _run_steps_again(folder, unchanged)
    assert _outcomes(folder) == ["success", "success", "no_change"]
    TIMES.clear()
    _add(folder, "newer")
    assert _rebuild(folder).outcome["previous"] == made.version
    for held in (changed, unchanged):
        _run_steps_again(folder, held)
    (task,) = changed["BeginRebuild"]
    (folder / "out" / outcome_file(task)).unlink()  # as if that run had died before its end
    with pytest.raises(EngineError, match="run again"):
        ORIGINAL["BeginRebuild"](task)
    assert not (folder / "out" / LEASE_JSON).exists()


def _run_steps_again(folder: Path, given: dict[str, tuple[Any, ...]]) -> None:
    """Runs each step of a rebuild again, which changes nothing."""
    GIVEN.update(given)
    before = tree_members(folder / "out")
    for step in STEPS:
        assert _again(step) == ""
        assert tree_members(folder / "out") == before, step


def test_a_rebuild_does_not_begin_where_a_conversion_writes(tmp_path: Path) -> None:
    make_tree(tmp_path / "in", 3)
    lease = tmp_path / "out" / WRITER_JSON
    lease.parent.mkdir(parents=True)
    lease.write_text(Lease("converting", "", renewed=time.time()).dumps())
    with pytest.raises(EngineError, match="Another run writes to"):
        _rebuild(tmp_path)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["_work"]
    lease.write_bytes(b"")  # given back
    _rebuild(tmp_path)
    assert _states(tmp_path) == [PUBLISHED]


def test_a_shard_that_is_written_again_is_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, old = ShardWriter.write, tree_members(folder / "out")

    def write(*arguments: Any) -> Any:
        for _ in range(2):  # the engine lost the result of the first run
            real(*arguments)
        return real(*arguments)

    monkeypatch.setattr(ShardWriter, "write", write)
    made = _rebuild(folder)
    assert made.outcome["work"]["reused_shards"] == 4  # its own shards are among them
    _check(folder, made.version, 2)
    now = tree_members(folder / "out")  # shards of both versions are hard links on this disk
    changing = ("index.html", "latest.json", "metrics.prom", "_work/input.json")
    assert {name: now[name] for name in old if name not in changing} == {
        name: data for name, data in old.items() if name not in changing
    }


def test_an_abandoned_worker_disturbs_neither_the_next_rebuild_nor_a_rollback(folder: Path) -> None:
    old, made = _latest(folder), _rebuild(folder).version
    _outcome(folder).unlink()  # as if it had died before the end
    lease = folder / "out" / LEASE_JSON
    lease.write_text(Lease("next", "20990101T000000Z", renewed=time.time()).dumps())
    before = tree_members(folder / "out")
    for step in STEPS:
        message = _again(step)
        after = tree_members(folder / "out")
        changed = {name for name in before if before[name] != after.get(name)}
        assert changed <= {"index.html", "metrics.prom"}, step
        assert step != "BeginRebuild" or "is running" in message
    lease.unlink()
    _outcome(folder).unlink()
    rollback(folder / "out")
    for step in STEPS:
        _again(step)
        assert _states(folder) == [PUBLISHED, WITHDRAWN] and _latest(folder) == old, step
    rollback(folder / "out", made)
    assert _latest(folder) == made and not findings_of(folder / "out")


def test_an_abandoned_worker_does_not_refuse_an_accepted_version(folder: Path) -> None:
    with pytest.raises(DataRefused):
        _rebuild(folder, "gates: {max_count_drop: 0.1, max_images: 5}")
    made = list_versions(str(folder / "out"))[-1]
    assert made.state is REFUSED and _outcomes(folder)[-1] == "refused"
    accept(f"{folder}/out@{made.version}", accept="all")
    for _ in range(2):
        for step in STEPS:
            _again(step)
        _outcome(folder).unlink(missing_ok=True)
    assert _states(folder) == [PUBLISHED] * 2 and _latest(folder) == made.version
    assert made.records == 13 and not findings_of(folder / "out")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "step",
    [
        "BeginRebuild",
        "PublishVersion",
        *(
            pytest.param(step, marks=pytest.mark.slow)
            for step in ("CommitVersion", "GateVersion", "FinishRebuild")
        ),
    ],
)
def test_a_job_that_is_repeated_after_a_workers_death_publishes_once(
    step: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flink repeats all steps of a job, and its launcher notices nothing."""
    old = _latest(folder)
    DIES[step] = 1

    def run(build: Callable[[Any], None], options: Any) -> Any:
        try:
            return run_pipeline(build, options)
        except EngineError:
            _add(folder, "meanwhile")  # this makes shards that already exist differ
            return run_pipeline(build, options)

    monkeypatch.setattr("shardwright.pipelines.rebuild.run_pipeline", run)
    made = _rebuild(folder)
    assert not DIES[step] and made.changed and made.outcome["previous"] == old
    assert _outcomes(folder) == ["success", "success"] and _states(folder) == [PUBLISHED] * 2
    late = step in ("BeginRebuild", "CommitVersion")
    assert made.outcome["records"] == 13 + late and not findings_of(folder / "out")
    assert _latest(folder) == made.version and not (folder / "out" / "lease.json").exists()
    assert _rebuild(folder).changed is not late


def test_a_refused_job_that_is_repeated_is_refused_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def run(build: Callable[[Any], None], options: Any) -> Any:
        with pytest.raises(DataRefused):
            run_pipeline(build, options)
        return run_pipeline(build, options)

    monkeypatch.setattr("shardwright.pipelines.rebuild.run_pipeline", run)
    with pytest.raises(DataRefused, match="was refused"):
        _rebuild(folder, "gates: {max_images: 5}")
    assert _states(folder) == [PUBLISHED, REFUSED] and _outcomes(folder) == ["success", "refused"]
    assert 'outcome="refused"} 1' in (folder / "out" / "metrics.prom").read_text()


def test_the_next_run_continues_after_a_death_before_the_pointer_and_at_it(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _latest(folder)
    DIES["GateVersion"] = 1
    with pytest.raises(EngineError, match="the worker died"):
        _rebuild(folder)
    (unseen,) = [record for record in list_versions(str(folder / "out")) if record.is_unseen]
    assert _latest(folder) == old and unseen.state is PUBLISHED
    assert cli.main(["versions", f"{folder}/out"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if unseen.version in line]
    assert "passed, not published" in line

    with monkeypatch.context() as patch:
        patch.setattr(versions, "mark_published", mock.Mock(side_effect=EngineError("the worker died")))
        with pytest.raises(EngineError, match="the worker died"):
            _rebuild(folder)
    *_, made = list_versions(str(folder / "out"))
    assert _latest(folder) == made.version != unseen.version and made.is_unseen
    assert made.work["reused_shards"] == 4 and made.previous == old
    assert not _rebuild(folder).changed
    _check(folder, made.version, 2)


COMMIT = commit.commit
#: Results of all runs of a commit but the last.
NOTES: list[Any] = []


def again(times: int, *arguments: Any) -> Any:
    """Commits several times, whatever the results. Workers find this by name, too."""
    NOTES.clear()
    for _ in range(times - 1):
        try:
            NOTES.append(COMMIT(*arguments))
        except DataRefused as error:
            NOTES.append(error.message)
    return COMMIT(*arguments)


@pytest.fixture(params=["local", "bucket"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "local":
        yield str(tmp_path / "out")
        return
    with storage_emulator():
        yield f"gs://{BUCKET}/out"


def build(output: str, **settings: Any) -> Any:
    values = {"input": str(PHOTOS), "output": output, "resize": 16, "limit": 12, **settings}
    return convert(**values, beam_options=["--runner=FnApiRunner", "--no_auth"])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("overwrite", [False, True], ids=["fresh", "overwrite"])
def test_a_repeated_commit_publishes_the_same(overwrite: bool, output: str) -> None:
    if overwrite:
        build(output, shards=3)
    with mock.patch.object(commit, "commit", partial(again, 3)):
        made = build(output, shards=2, overwrite=overwrite)
    assert [note["fingerprint"] for note in NOTES] == [made.dataset.fingerprint] * 2
    assert not findings_of(output)
    assert not [file for file in storage.list_files(output) if "replacement" in file or "of-00003" in file]


def test_a_repeated_refusal_is_the_same_refusal(output: str, tmp_path: Path) -> None:
    put_files(tmp_path / "in", {"a/1.jpg": b"no picture"})
    with mock.patch.object(commit, "commit", partial(again, 4)), pytest.raises(DataRefused) as refused:
        build(output, input=str(tmp_path / "in"))
    assert [refused.value.message] * 3 == NOTES
    assert "dataset.json" not in storage.list_files(output)
    assert b'"exit_code": 1' in storage.read_bytes(storage.join(output, "_work", "outcome.json"))


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
    assert "--resume" not in caught.value.message and _outcomes(folder)[-1] == "failure"
    assert (folder / "out" / "latest.json").read_bytes() == pointer
    assert not (folder / "out" / LEASE_JSON).exists()
    result = _rebuild(folder)
    assert result.changed and result.outcome["records"] == 13
    _check_sound(folder, 2)


def test_a_job_that_is_refused_before_it_begins_is_a_failure_for_hooks(folder: Path) -> None:
    (folder / "in").rename(folder / "away")
    (folder / "out" / "README.md").touch()  # which is no reason to refuse
    with pytest.raises(UsageError, match="/in does not exist"):
        _rebuild(folder)
    assert _outcomes(folder) == ["success", "failure"]
    (folder / "away").rename(folder / "in")
    assert _rebuild(folder).changed


def test_a_first_rebuild_that_is_refused_leaves_no_folders(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("image,label\na.jpg,x\na.jpg,y\n")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    (tmp_path / "existed").mkdir()
    for output in (tmp_path / "existed", tmp_path / "existed" / "new" / "out"):
        with pytest.raises(UsageError, match="they are one image: list it once"):
            rebuild(input=str(tmp_path / "rows.csv"), output=str(output))
        assert not [*(tmp_path / "existed").iterdir()]


def _look_often() -> None:
    """Looks often for a free lease; a command looks every five seconds in the end."""
    leases.POLL_SECONDS = 0.4


def test_concurrent_rebuilds_publish_one_version(folder: Path, tmp_path: Path) -> None:
    argv = ("rebuild", "--input", folder / "in", "--output", folder / "out", "--shards=4", "--wait=5")
    logs = [tmp_path / f"log{number}" for number in range(2)]
    processes = [start(log, *argv, "--log_format=json", before=_look_often) for log in logs]
    assert [wait(process, log).code for process, log in zip(processes, logs)] == [0, 0]
    _check_sound(folder, 2)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_rebuild_in_order(folder: Path, tmp_path: Path, number: signal.Signals) -> None:
    argv = ("rebuild", "--input", folder / "in", "--output", folder / "out", "--shards=4")
    during = "shardwright.core.storage:move_into_place", "", 1, partial(signal_self, number)
    done = run_forked(tmp_path / "log", *argv, before=partial(at_call, *during))
    assert done.code == 130
    assert "shardwright: interrupted; " in done.err and "run again" in done.err and "--resume" not in done.err
    lease = folder / "out" / LEASE_JSON
    assert not lease.exists()
    dead = Lease("dead", "", "another-host", pid=7, renewed=1.0, seconds=60.0)
    lease.write_text(dead.dumps())  # nor does that of a machine that died keep the next run away
    os.utime(lease, (1.0, 1.0))
    assert _rebuild(folder).changed
    _check_sound(folder, 2)


@pytest.mark.slow
def test_failed_runs_do_not_pile_up(folder: Path) -> None:
    for path in (folder / "in").rglob("*.*"):
        path.write_bytes(b"no picture")
    for _ in range(MAX_ABANDONED + 3):
        with pytest.raises(DataRefused):
            _rebuild(folder)
    assert len(_states(folder)) <= 1 + MAX_ABANDONED + 1


def test_the_name_of_the_interrupted_step_is_not_in_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    told = KeyboardInterrupt("it was told to end (SIGTERM); run again. [while running 'Write/Shard']")
    assert exit_code_of(mock.Mock(side_effect=told)) == 130
    assert capsys.readouterr().err == "shardwright: interrupted; it was told to end (SIGTERM); run again.\n"
