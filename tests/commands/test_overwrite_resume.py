"""`--resume` repeats only unsound work, `--overwrite` never loses a dataset, and an output has one writer.

A second writer ends at once, and a writer without its lease writes nothing more.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from helpers.depths import findings_of
from helpers.hostile import (
    at_call,
    check_books,
    document,
    flip,
    identity,
    leftovers,
    make_tree,
    picture,
    refused,
    run,
    run_forked,
    sentence_of,
    signal_self,
    start,
    state_of,
    wait,
)
from helpers.ledgers import dump_ledger

from shardwright.core import lease, overwrite, storage
from shardwright.core.commit import ConversionJob, begin_conversion, remove_commit
from shardwright.core.lease import HeldLease, Lease
from shardwright.core.overwrite import staging_path
from shardwright.pipelines import convert as conversion
from shardwright.pipelines.convert import build_convert, convert
from shardwright.pipelines.places import one_writer
from shardwright.pipelines.prepare import as_beam_options, make_request, run_facts, software_versions
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.run import run_pipeline, workers_of
from shardwright.schemas.errors import EngineError
from shardwright.schemas.ledger import load_ledger
from shardwright.schemas.sidecars import SIDECARS

Capture = pytest.CaptureFixture[str]
#: Settings of the finished dataset, for the function and for the command line.
MADE: dict[str, Any] = {"shards": 4, "image_format": "png", "verify": "none"}
SETTINGS = ("--shards=4", "--image_format=png", "--verify=none")
STORAGE = "shardwright.core.storage"
LEASE = "_work/lease.json"
STOP = partial(signal_self, signal.SIGSTOP)
KILL = partial(signal_self, signal.SIGKILL)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree, and a finished dataset of it in four shards."""
    root = tmp_path_factory.mktemp("originals")
    tree = make_tree(root / "in", images=24)
    convert(input=str(tree), output=str(root / "out"), **MADE)
    return root


@pytest.fixture
def tree(tmp_path: Path, originals: Path) -> Path:
    return Path(shutil.copytree(originals / "in", tmp_path / "in"))


@pytest.fixture
def made(tmp_path: Path, originals: Path) -> Path:
    """A copy of the dataset."""
    return Path(shutil.copytree(originals / "out", tmp_path / "out"))


def resume(capfd: Capture, tree: Path, output: Path, *options: object) -> set[str]:
    """Resumes; returns the names of the shards that were written again."""
    before = {path.name: path.stat().st_mtime_ns for path in output.glob("*.tfrecord")}
    done = run(capfd, "convert", "--input", tree, "--output", output, "--resume", *(options or SETTINGS))
    assert (done.code, done.err) == (0, ""), done
    check_books(output)
    assert not leftovers(output)
    return {p.name for p in output.glob("*.tfrecord") if before.get(p.name) != p.stat().st_mtime_ns}


def shard(number: int) -> str:
    return f"train-{number:05d}-of-00004"


DAMAGE: dict[str, Callable[[Path], object]] = {
    "bit flipped": lambda output: flip(output / f"{shard(1)}.tfrecord"),
    "dataset.json gone": lambda output: (output / "dataset.json").unlink(),
    "ledger gone": lambda output: (output / "_shards" / f"{shard(1)}.jsonl.gz").unlink(),
    "ledger of another": lambda output: shutil.copy(
        output / "_shards" / f"{shard(2)}.jsonl.gz", output / "_shards" / f"{shard(1)}.jsonl.gz"
    ),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("damage", DAMAGE)
def test_resume_repeats_only_damaged_shards(capfd: Capture, tree: Path, made: Path, damage: str) -> None:
    before = identity(made)
    DAMAGE[damage](made)
    redone = resume(capfd, tree, made)
    assert redone == (set() if damage == "dataset.json gone" else {f"{shard(1)}.tfrecord"})
    assert identity(made) == before


def test_resume_detects_changed_new_and_removed_sources(capfd: Capture, tree: Path, made: Path) -> None:
    (tree / "ant" / "new0.png").write_bytes(picture(501))  # its hash assigns it to the last shard
    # And one source of each other shard.
    ledgers = sorted((made / "_shards").iterdir())[:3]
    altered, touched, removed = (tree / next(load_ledger(path.read_bytes())[1]).key for path in ledgers)
    altered.write_bytes(picture(500))
    os.utime(touched, ns=(1, 1))
    removed.unlink()
    (made / "lost.jsonl").touch()  # what it names is no longer lost
    assert resume(capfd, tree, made) == {f"{shard(number)}.tfrecord" for number in range(4)}
    assert resume(capfd, tree, made) == set() and not (made / "lost.jsonl").exists()
    assert document(made)["ledger"]["written"] == 24


def test_resume_with_other_settings_repeats_all_and_leaves_no_stale_shard(
    capfd: Capture, tree: Path, made: Path
) -> None:
    assert len(resume(capfd, tree, made, "--shards=3", "--image_format=webp")) == 3
    assert len(list(made.glob("*.tfrecord"))) == len(list((made / "_shards").iterdir())) == 3
    assert len(list((made / "_index").iterdir())) == 3
    assert len(resume(capfd, tree, made, "--shards=3", "--compression=gzip")) == 0
    assert not list(made.glob("*.tfrecord")) and len(list(made.glob("*.tfrecord.gz"))) == 3
    assert not list((made / "_index").iterdir())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("next_file", ["parse.py", "dataset.json"])
def test_resume_works_after_a_kill_between_the_files_beside_the_shards(
    capfd: Capture, tmp_path: Path, tree: Path, made: Path, next_file: str
) -> None:
    before = document(made)["sidecars"]
    argv = ("convert", "--input", tree, "--output", made, "--resume", *SETTINGS, "--layout=minimal")
    kill = partial(at_call, f"{STORAGE}:write_bytes", next_file, 1, KILL)
    assert run_forked(tmp_path / "log", *argv, before=kill).code == -signal.SIGKILL
    assert not (made / "dataset.json").exists()
    assert resume(capfd, tree, made) == {f"{shard(i)}.tfrecord" for i in range(4)}
    assert document(made)["sidecars"] == before and not findings_of(made)


def test_resume_works_without_an_earlier_run(capfd: Capture, tmp_path: Path, tree: Path, made: Path) -> None:
    """An empty folder is no obstacle."""
    output = tmp_path / ("x" * 250)  # an overwrite would need a longer name
    output.mkdir()
    assert len(resume(capfd, tree, output)) == 4
    assert document(output)["splits"] == document(made)["splits"]


def test_overwrite_replaces_all_files_of_an_unfinished_output_and_keeps_a_symbolic_link_to_them(
    capfd: Capture, tmp_path: Path, tree: Path, made: Path
) -> None:
    link = tmp_path / "links" / "out"
    link.parent.mkdir()
    link.symlink_to("../out")
    (made / "stale-00000-of-00001.tfrecord").write_bytes(b"old")
    (made / "dataset.json").unlink()
    (tree / "bee" / "001.png").unlink()
    argv = ("convert", "--input", tree, "--output", link, "--overwrite", "--shards=2", "--compression=zlib")
    assert run(capfd, *argv).code == 0
    assert link.is_symlink() and [path.name for path in link.parent.iterdir()] == ["out"]
    assert document(made)["ledger"]["written"] == 23 and len(list(made.glob("*.tfrecord.zlib"))) == 2
    beside = {path.name for path in made.iterdir() if path.name in SIDECARS}
    beside |= {f"{path.parent.name}/{path.name}" for path in made.glob("_[ci]*/*")}
    assert beside == set(document(made)["sidecars"]) and not (made / "features.json").exists()
    assert document(made)["name"] == "out" and not findings_of(made)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "links", "out"]


def test_overwrite_is_refused_from_inside_the_output_and_without_room_for_the_name_of_a_sibling(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tree: Path, made: Path
) -> None:
    argv = ("convert", "--input", tree, "--overwrite", "--output")
    monkeypatch.chdir(made / "_shards")
    for output in ("..", made):
        assert "run from another directory" in refused(capfd, tmp_path, *argv, output)
    monkeypatch.chdir(tmp_path)
    long = made.rename(tmp_path / ("x" * 250))
    assert "the name is too long" in refused(capfd, tmp_path, *argv, long)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fault", ["duplicate key", "bad images", "changed"])
def test_a_failing_overwrite_leaves_the_old_dataset(  # and explains how to continue
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tree: Path, made: Path, fault: str
) -> None:
    before = identity(made)
    argv: tuple[object, ...] = ("convert", "--input", tree, "--output", made, "--overwrite", "--shards=2")
    code = 2
    if fault == "duplicate key":
        argv += ("--input", tree)
    elif fault == "bad images":
        (tree / "bee" / "bad.jpg").write_bytes(b"no image")
        code = 1
    else:
        code, full = 3, OSError(28, "No space left on device")
        monkeypatch.setattr(storage, "move_into_place", mock.Mock(side_effect=full))
    sentence = sentence_of(run(capfd, *argv), code)
    monkeypatch.undo()
    assert identity(made) == before and not findings_of(made)
    if code == 2:
        assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out"]
        return
    # A full disk on which nothing was written leaves nothing to resume.
    assert ("run again with --resume" if code == 1 else "run again.") in sentence
    staging = Path(staging_path(str(made)))
    if code == 1:
        assert str(staging / "quarantine.jsonl") in sentence and (staging / "quarantine.jsonl").is_file()
    argv = ("convert", "--input", tree, "--output", made, "--resume", "--shards=2", "--max_bad_fraction=1")
    done = run(capfd, *argv)
    assert done.code == 0 and ("2 shards reused from the previous run" in done.out) == (code == 1)
    assert len(list(made.glob("*.tfrecord"))) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


MOMENTS = [
    ("shardwright.core.conversion:read_image", "/", 30),
    (f"{STORAGE}:write_bytes", "_shards/", 2),
    (f"{STORAGE}:write_bytes", "dataset.json", 1),
    ("os:rename", "out", 1),
    ("os:rename", "shardwright-new", 1),
    ("shutil:rmtree", "shardwright-old", 1),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("target", "text", "call", "command"),
    [(*moment, "validate") for moment in MOMENTS]
    + [(*MOMENTS[1], "resume"), (*MOMENTS[3], "overwrite")]
    + [
        pytest.param(*MOMENTS[place], command, marks=pytest.mark.slow)
        for place, command in ((1, "overwrite"), (3, "resume"), (5, "resume"), (5, "overwrite"))
    ],
)
def test_an_overwrite_can_be_killed_at_any_moment(
    capfd: Capture, tmp_path: Path, tree: Path, made: Path, target: str, text: str, call: int, command: str
) -> None:
    old = identity(made)
    settings = ("--shards=2", "--image_format=png", "--verify=none")
    argv = ("convert", "--input", tree, "--output", made, *settings)
    kill = partial(at_call, target, text, call, KILL)
    assert run_forked(tmp_path / "log", *argv, "--overwrite", before=kill).code == -signal.SIGKILL
    if command != "validate":
        assert run(capfd, *argv, f"--{command}").code == 0
    done = run(capfd, "validate", "--dataset", made)
    assert (done.code, done.err) == (0, ""), done
    swapped = command != "validate" or target == "shutil:rmtree" or text == "shardwright-new"
    assert (identity(made) != old) == swapped
    assert len(document(made)["splits"]["train"]["shards"]) == (2 if swapped else 4)
    left = {path.name for path in tmp_path.iterdir() if not path.name.startswith("log")}
    assert left <= {"in", "out", ".out.shardwright-new"}
    assert swapped == (left == {"in", "out"})


#: The output, the old place and the new place when a swap is interrupted, and which dataset survives.
STATES = {
    "built": ("old", "", "new", "old"),
    "moved away": ("", "old", "new", "new"),
    "moved in": ("new", "old", "", "new"),
    "half discarded": ("new", "half old", "", "new"),
    "no successor": ("", "old", "", "old"),
    "unfinished successor": ("", "old", "half new", "old"),
}
COMMANDS = {
    "validate": ("validate", "--dataset", "out"),
    "inspect": ("inspect", "--dataset", "out"),
    "plan": ("plan", "--input", "in", "--plan_from", "out"),
    "plan of the file": ("plan", "--input", "in", "--plan_from", "out/dataset.json"),
    "convert": ("convert", "--input", "in", "--output", "out"),
    "overwrite": ("convert", "--input", "in", "--output", "out", "--overwrite", "--shards=3"),
}


@pytest.fixture(scope="module")
def versions(originals: Path) -> Path:
    """A tree, and an old and a new dataset of it."""
    (originals / "old").symlink_to(originals)
    convert(input=str(originals / "in"), output=str(originals / "new" / "out"), shards=2, verify="none")
    return originals


@pytest.mark.sampled(11)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("state", STATES)
def test_every_command_repairs_an_interrupted_swap(
    capfd: Capture, workplace: Path, versions: Path, state: str, command: str
) -> None:
    (workplace / "in").symlink_to(versions / "in")
    *contents, survivor = STATES[state]
    for place, content in zip(("out", ".out.shardwright-old", ".out.shardwright-new"), contents, strict=True):
        if content:
            shutil.copytree(versions / content.split()[-1] / "out", place)
        if content.startswith("half"):
            (workplace / place / "dataset.json").unlink()
    done = run(capfd, *COMMANDS[command])
    if command == "convert":
        assert "holds a dataset" in sentence_of(done, 2)
    else:
        assert (done.code, done.err) == (0, ""), done
    if command == "overwrite":
        assert len(list((workplace / "out").glob("*.tfrecord"))) == 3
    else:
        assert identity(workplace / "out") == identity(versions / survivor / "out")
    assert not (workplace / ".out.shardwright-old").exists()


def test_a_new_conversion_discards_an_abandoned_successor(
    capfd: Capture, tmp_path: Path, tree: Path, made: Path
) -> None:
    staging = Path(staging_path(str(made)))
    shutil.copytree(made, staging)
    shutil.rmtree(made)
    assert run(capfd, "convert", "--input", tree, "--output", made, "--shards=1").code == 0
    assert not staging.exists() and len(list(made.glob("*.tfrecord"))) == 1


def put(output: Path, held: Lease, age: float = 0.0) -> None:
    (output / "_work").mkdir(parents=True, exist_ok=True)
    (output / LEASE).write_text(held.dumps())
    now = time.time()
    os.utime(output / LEASE, (now - age, now - age))


def parent_process() -> tuple[str, int, str]:
    """Returns the part of a lease that describes a process which lives as long as this one."""
    with mock.patch.object(os, "getpid", os.getppid):
        return lease.this_process()


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
    argv = ("convert", "--input", tree, "--output", output, "--shards=2", "--verify=none")
    before = partial(at_call, f"{STORAGE}:move_into_place", "_work/", 2, STOP)
    first = start(tmp_path / "log", *argv, before=before)
    stopped(first)
    sentence = sentence_of(run(capfd, *argv, *filter(None, [option])), 3)
    assert f"process {first.pid} on" in sentence and "since 20" in sentence
    first.kill()
    assert wait(first, tmp_path / "log").code == -signal.SIGKILL
    assert (output / LEASE).exists()
    assert run(capfd, *argv, "--resume").code == 0
    assert not findings_of(output) and not (output / LEASE).exists()


#: Action of another run -> the call before which this run is stopped, and its options.
_STOPS = {
    "shard": ("shardwright.core.shards.write:finish_shard", "train-", ()),
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
    argv = ("convert", "--input", tree, "--output", made, "--verify=none")
    before = partial(at_call, target, text, 1, STOP)
    zombie = start(tmp_path / "log", *argv, "--shards=1", *options, before=before)
    stopped(zombie)
    os.utime(made / LEASE, (1e9, 1e9))  # the lease was not renewed for a long time
    assert run(capfd, *argv, "--shards=3", option).code == 0
    expected = identity(made)
    os.kill(zombie.pid, signal.SIGCONT)
    assert "lost its lease" in sentence_of(wait(zombie, tmp_path / "log"), 3)
    assert identity(made) == expected and len(document(made)["splits"]["train"]["shards"]) == 3
    assert not findings_of(made)


@pytest.mark.parametrize(
    ("function", "file", "message"),
    [
        ("temporary_path", ".tfrecord", "no such file or directory; .* find out what removed it"),
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
        rebuild(input=tree, output=output, shards=1, verify="none")
    assert lost and not lost[0].exists() and not (output / "latest.json").exists()
    assert json.loads((output / "lease.json").read_text())["holder"] == "theirs"


def test_dataset_json_is_removed_only_before_a_shard_changes_or_goes(
    monkeypatch: pytest.MonkeyPatch, tree: Path, made: Path
) -> None:
    removed: Counter[str] = Counter()
    beside: list[bool] = []
    remove, move = storage.remove, storage.move_into_place

    def look(path: str) -> None:
        if path.endswith(".tfrecord"):
            beside.append((made / "dataset.json").exists() or (made / "dataset_info.json").exists())

    def noting(path: str) -> None:
        removed[Path(path).name] += 1
        look(path)
        remove(path)

    def moving(temporary: str, path: str) -> None:
        look(path)
        move(temporary, path)

    monkeypatch.setattr(storage, "remove", noting)
    monkeypatch.setattr(storage, "move_into_place", moving)
    before = identity(made)
    (made / "test-00000-of-00001.tfrecord").touch()  # as if its split were gone from the source
    convert(input=str(tree), output=str(made), **MADE, resume=True)
    assert identity(made) == before and removed["dataset.json"] == 1 and beside == [False]
    (shard, *_) = sorted(made.glob("*.tfrecord"))
    shard.write_bytes(shard.read_bytes()[:-1])
    convert(input=str(tree), output=str(made), **MADE, resume=True)  # the bytes stay the same
    assert identity(made) == before and removed["dataset.json"] == 1 and beside == [False, True]
    ledger = made / "_shards" / f"{shard.stem}.jsonl.gz"
    header, (first, *others) = load_ledger(ledger.read_bytes())
    unread = first._replace(outcome="quarantined", reason="UNREADABLE", stage="read", offset=None)
    counts = {"written": len(others), "quarantined": 1}
    ledger.write_bytes(dump_ledger(replace(header, counts=counts), [unread, *others]))
    convert(input=str(tree), output=str(made), **MADE, resume=True)  # the image may be readable now
    assert identity(made) == before and removed["dataset.json"] == 2 and beside == [False, True, False]
    convert(input=str(tree), output=str(made), **{**MADE, "image_format": "webp"}, resume=True)
    assert removed["dataset.json"] == removed["dataset_info.json"] == 3
    assert beside == [False, True, *[False] * 5]


def test_a_worker_that_returns_after_the_end_removes_nothing(
    monkeypatch: pytest.MonkeyPatch, tree: Path, made: Path
) -> None:
    build = mock.Mock(wraps=conversion.build_convert)
    monkeypatch.setattr(conversion, "build_convert", build)
    convert(input=str(tree), output=str(made), **{**MADE, "image_format": "webp"}, resume=True)
    before = state_of(made)
    _, job, _ = build.call_args.args
    assert remove_commit(job.hold, True, job) is job.hold
    assert begin_conversion(job.hold, job) is job.hold
    assert state_of(made) == before
    assert job.hold is not None
    with pytest.raises(EngineError, match="nobody has it now"):
        job.hold.check()


def test_a_job_that_is_launched_twice_takes_a_lease_each_time(tmp_path: Path, tree: Path) -> None:
    output, options = tmp_path / "launched", as_beam_options(None)
    with one_writer(str(output), options, described=True) as hold:
        assert hold is not None
    request = make_request({"input": (str(tree),), "output": str(output), "shards": 2}, with_output=True)
    facts = run_facts(request, options, workers_of(options))
    converted = ConversionJob(
        str(output), str(output), request.settings, software_versions(), facts, 1.0, hold=hold, described=True
    )

    def launch() -> None:
        run_pipeline(lambda pipeline: build_convert(pipeline, converted, request), options)

    holders = {hold.holder}
    for _ in range(2):
        launch()
        outcome = json.loads((output / "_work" / "outcome.json").read_text())
        assert not (output / LEASE).exists()
        assert not findings_of(output)
        holders.add(outcome["holder"])
    assert len(holders) == 3
    before = state_of(output)
    put(output, Lease("theirs", "", "elsewhere", 7))
    with pytest.raises(EngineError, match="process 7 on elsewhere"):
        launch()
    (output / LEASE).unlink()
    assert state_of(output) == before


def test_another_command_during_a_swap_does_not_disturb_it(tmp_path: Path, made: Path) -> None:
    new, old = Path(staging_path(str(made))), tmp_path / ".out.shardwright-old"
    shutil.copytree(made, new)
    (new / "mark").write_text("new")
    made.rename(old)
    put(made, Lease("theirs", "", *parent_process()))  # between two renames
    assert overwrite.is_being_replaced(str(made))
    overwrite.repair_swap(str(made))
    assert old.is_dir() and new.is_dir()
    overwrite.move_in(str(new), str(made))
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
    output, fail = tmp_path / "out", mock.Mock(side_effect=EngineError("The storage is gone."))
    with monkeypatch.context() as patch, pytest.raises(EngineError, match="gone"):
        write = storage.write_if_match
        patch.setattr(storage, "write_if_match", lambda *args: write(*args) if args[1] else fail())
        patch.setattr(storage, "move_into_place", fail)
        convert(input=tree, output=output, verify="none")
    assert (output / LEASE).exists()
    convert(input=tree, output=output, verify="none", resume=True)
    assert not (output / LEASE).exists()


def test_a_failed_conversion_returns_its_lease(capfd: Capture, tmp_path: Path, tree: Path) -> None:
    argv = ("convert", "--input", tree, "--output", tmp_path / "out")
    full = partial(at_call, f"{STORAGE}:move_into_place", "_work/", 1, partial(signal_self, signal.SIGINT))
    assert run_forked(tmp_path / "log", *argv, before=full).code == 130
    assert not (tmp_path / "out" / LEASE).exists()
    sentence_of(run(capfd, "convert", "--input", tree, tree, "--output", tmp_path / "none"), 2)
    assert not (tmp_path / "none").exists()
    assert lease.read_holder(str(tmp_path)) == ""
