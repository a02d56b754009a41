"""Kills, interrupts, full disks, full memory and changing sources: nothing is lost, nothing is half done."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import (
    COMMAND,
    at_call,
    check_books,
    ended,
    identity,
    leftovers,
    limit_file_size,
    make_tree,
    outcomes,
    picture,
    run,
    run_command,
    run_forked,
    sentence_of,
    signal_self,
)

from shardwright.core import conversion as shard_convert
from shardwright.core import storage
from shardwright.core.images import read
from shardwright.core.sources import class_folders
from shardwright.schemas.units import counted

Capture = pytest.CaptureFixture[str]
IMAGES = 200
SETTINGS = ("--resize=8", "--splits=train=0.7,test=0.3", "--shards=train=4,test=2", "--max_bad_fraction=0.1")
STORAGE = "shardwright.core.storage"
READ = "shardwright.core.conversion:read_image"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = make_tree(tmp_path_factory.mktemp("source") / "in", IMAGES, ("ant", "bee", "cow"))
    (tree / "ant" / "bad.jpg").write_bytes(b"no image")
    return tree


@pytest.fixture(scope="module")
def clean(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The result of a run without faults."""
    output = tmp_path_factory.mktemp("clean") / "out"
    assert (
        run_forked(output.parent / "log", "convert", "--input", tree, "--output", output, *SETTINGS).code == 0
    )
    return identity(output)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "in")


def argv_of(tree: Path, tmp_path: Path) -> tuple[object, ...]:
    return ("convert", "--input", tree, "--output", tmp_path / "out", *SETTINGS)


def finish(capfd: Capture, argv: tuple[object, ...], output: Path, clean: dict[str, str]) -> int:
    """Resumes and compares with a run without faults; returns the number of reused shards."""
    assert not (output / "dataset.json").exists()
    mtimes = {path.name: path.stat().st_mtime_ns for path in output.glob("*.tfrecord")}
    done = run(capfd, *argv, "--resume")
    assert (done.code, done.err) == (0, ""), done
    assert identity(output) == clean
    assert not leftovers(output)
    check_books(output)
    kept = [name for name, mtime in mtimes.items() if (output / name).stat().st_mtime_ns == mtime]
    found = re.search(r"([0-9]+) shards? reused from the previous run", done.out)
    reused = int(found[1]) if found else 0
    assert len(kept) >= reused
    return reused


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("target", "text", "call", "reused"),
    [
        (READ, "/", 20, 0),  # while the sample is taken
        pytest.param(READ, "/", 64 + 10, 0, marks=pytest.mark.slow),  # in the middle of the first shard
        (READ, "/", 64 + 120, 1),  # in the middle of a later shard
        (f"{STORAGE}:move_into_place", "_work/", 3, 1),  # a shard is written, but not in its place yet
        ("os:replace", "_index/", 3, 1),  # its index has a temporary name
        (f"{STORAGE}:write_bytes", "_shards/", 3, 1),  # a shard is in its place, but has no ledger yet
        # its ledger has a temporary name
        pytest.param("os:replace", "_shards/", 5, 3, marks=pytest.mark.slow),
        pytest.param(f"{STORAGE}:write_bytes", "quarantine.jsonl", 1, 6, marks=pytest.mark.slow),
        pytest.param(f"{STORAGE}:write_bytes", "labels.txt", 1, 6, marks=pytest.mark.slow),
        (f"{STORAGE}:write_bytes", "dataset.json", 1, 6),
        ("os:replace", "dataset.json", 1, 6),  # only the last rename is missing
    ],
)
def test_resume_finishes_a_killed_run(
    capfd: Capture, tmp_path: Path, tree: Path, clean: dict[str, str],
    target: str, text: str, call: int, reused: int,
) -> None:  # fmt: skip
    argv = argv_of(tree, tmp_path)
    kill = partial(at_call, target, text, call, partial(signal_self, signal.SIGKILL))
    assert run_forked(tmp_path / "log", *argv, before=kill).code == -signal.SIGKILL
    found = finish(capfd, argv, tmp_path / "out", clean)
    assert found >= reused and (found == 6) == (reused == 6)


@pytest.mark.parametrize(
    ("number", "target", "text", "call"),
    [
        (signal.SIGINT, READ, "/", 10),
        (signal.SIGTERM, READ, "/", 64 + 70),
        (signal.SIGHUP, f"{STORAGE}:write_bytes", "_shards/", 3),
        (signal.SIGINT, f"{STORAGE}:write_bytes", "quarantine.jsonl", 1),
    ],
)
def test_a_signal_is_reported_in_one_line(
    capfd: Capture, tmp_path: Path, tree: Path, clean: dict[str, str],
    number: signal.Signals, target: str, text: str, call: int,
) -> None:  # fmt: skip
    argv = argv_of(tree, tmp_path)
    interrupt = partial(at_call, target, text, call, partial(signal_self, number))
    done = run_forked(tmp_path / "log", *argv, before=interrupt)
    reason = "" if number == signal.SIGINT else f"it was told to end ({number.name}); "
    assert done == (130, "", f"shardwright: interrupted; {reason}run again with --resume to go on.\n")
    assert not leftovers(tmp_path / "out")
    finish(capfd, argv, tmp_path / "out", clean)


def test_ctrl_c_in_a_command_without_resume_does_not_advise_it(tmp_path: Path, tree: Path) -> None:
    interrupt = partial(at_call, READ, "/", 10, partial(signal_self, signal.SIGINT))
    done = run_forked(tmp_path / "log", "plan", "--input", tree, before=interrupt)
    assert done == (130, "", "shardwright: interrupted; run again.\n")


def test_a_limit_on_file_sizes_stops_the_job_like_a_full_disk(
    capfd: Capture, tmp_path: Path, tree: Path, clean: dict[str, str]
) -> None:
    argv = argv_of(tree, tmp_path)
    done = run_forked(tmp_path / "log", *argv, before=partial(limit_file_size, 10_000))
    sentence = sentence_of(done, 3)
    assert sentence.startswith(f"Cannot write a shard to {tmp_path / 'out'}: ") and "--shard_size" in sentence
    assert not leftovers(tmp_path / "out")
    finish(capfd, argv, tmp_path / "out", clean)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=60k", "tmpfs", str(place)], capture_output=True
    ).returncode:
        pytest.skip("cannot mount here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_stops_the_job(
    capfd: Capture, tiny_disk: Path, tree: Path, clean: dict[str, str]
) -> None:
    output = tiny_disk / "out"
    argv = ("convert", "--input", tree, "--output", output, *SETTINGS)
    sentence = sentence_of(run(capfd, *argv), 3)
    assert "the disk is full; free some space, then run again with --resume" in sentence
    shards = len([*output.glob("_shards/*")])
    assert (f"which keeps the {counted(shards, 'finished shard')} in {output}" in sentence) == (shards > 0)
    sentence_of(run(capfd, *argv, "--resume"), 3)
    subprocess.run(["mount", "-o", "remount,size=4m", str(tiny_disk)], check=True)
    finish(capfd, argv, output, clean)


def test_a_full_disk_on_which_nothing_is_left_needs_no_resume(
    capfd: Capture, tiny_disk: Path, tree: Path
) -> None:
    (tiny_disk / "full").write_bytes(bytes(56_000))
    argv = ("convert", "--input", tree, "--output", tiny_disk / "out", "--shards", "1")
    assert "free some space, then run again." in sentence_of(run(capfd, *argv), 3)
    assert os.listdir(tiny_disk) == ["full"]


def test_the_root_of_a_file_system_can_be_written_but_not_replaced(
    capfd: Capture, tiny_disk: Path, small: Path
) -> None:
    subprocess.run(["mount", "-o", "remount,size=4m", str(tiny_disk)], check=True)
    argv = ("convert", "--input", small, "--output", tiny_disk)
    assert run(capfd, *argv).code == 0
    before = identity(tiny_disk)
    sentence = sentence_of(run(capfd, *argv, "--overwrite"), 2)
    assert "is the root of a file system" in sentence
    assert identity(tiny_disk) == before


@pytest.mark.sampled(1)
@pytest.mark.parametrize("change", ["grow", "touch", "replace"])
def test_a_source_that_changes_stops_the_job(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small: Path, change: str
) -> None:
    victim = small / "bee" / "001.png"
    real = shard_convert.read_image

    def meddle(ref: Any, max_bytes: int) -> bytes:
        if ref.key == "bee/001.png":
            if change == "grow":
                victim.write_bytes(victim.read_bytes() + b"more")
            elif change == "touch":
                os.utime(victim, ns=(1, 1))
            else:
                victim.unlink()
                victim.write_bytes(picture(77))
        return real(ref, max_bytes)

    argv = ("convert", "--input", small, "--output", tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(shard_convert, "read_image", meddle)
        sentence = sentence_of(run(capfd, *argv), 3)
    assert sentence.startswith(f"{victim} changed while the job was reading its input")
    assert not (tmp_path / "out" / "dataset.json").exists()
    # The sample was read before anything was written.
    (tmp_path / "out").mkdir(exist_ok=True)
    assert run(capfd, *argv, "--resume").code == 0
    assert outcomes(tmp_path / "out")["bee/001.png"] == "written"


def test_a_source_that_disappears_is_unreadable(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small: Path
) -> None:
    real = class_folders.list_class_folders

    def listed(*arguments: Any) -> Iterator[Any]:
        yield from list(real(*arguments))
        (small / "bee" / "001.png").unlink(missing_ok=True)

    monkeypatch.setattr(class_folders, "list_class_folders", listed)
    argv = ("convert", "--input", small, "--output", tmp_path / "out", "--max_bad_fraction=0.5")
    assert run(capfd, *argv).code == 0
    found = check_books(tmp_path / "out")["bee/001.png"]
    assert (found["reason"], found["stage"]) == ("UNREADABLE", "read")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("where", ["convert_image", "read_image", "ExampleBuilder.build"])
def test_a_lack_of_memory_stops_the_job(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small: Path, where: str
) -> None:
    def exhausted(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(f"{shard_convert.__name__}.{where}", exhausted)
    monkeypatch.setattr(shard_convert, "WORKING_BYTES", 1 << 62)
    sentence = sentence_of(run(capfd, "convert", "--input", small, "--output", tmp_path / "out"), 3)
    assert sentence.startswith("The machine ran out of memory") and "run again with --resume" in sentence


def test_one_image_that_asks_for_absurd_memory_is_corrupt(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small: Path
) -> None:
    real = shard_convert.convert_image

    def greedy(data: bytes, name: str, *rest: Any) -> Any:
        if name == "bee/001.png":
            raise MemoryError
        return real(data, name, *rest)

    monkeypatch.setattr(shard_convert, "convert_image", greedy)
    argv = ("convert", "--input", small, "--output", tmp_path / "out", "--max_bad_fraction=0.5")
    assert run(capfd, *argv).code == 0
    assert outcomes(tmp_path / "out")["bee/001.png"] == "CORRUPT"


def test_unexpected_errors_are_one_sentence_and_a_traceback_on_demand(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small: Path
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("a bug\nin two lines")

    monkeypatch.setattr(shard_convert.ExampleBuilder, "build", broken)
    argv = ("convert", "--input", small, "--output", tmp_path / "out")
    sentence = sentence_of(run(capfd, *argv), 3)
    assert sentence.startswith("The engine failed with ") and "--verbose" in sentence
    done = run(capfd, *argv, "--verbose", "--overwrite")
    assert done.code == 3 and "Traceback" in done.err and "in broken" in done.err
    assert done.err.splitlines()[-1].startswith("shardwright: The engine failed with ")


def at_every_image(monkeypatch: pytest.MonkeyPatch, tree: Path, act: Callable[[str], None]) -> None:
    """Calls a function before each image of a tree is opened; nothing waits before it is tried again."""
    real = os.open

    def opened(path: Any, *rest: Any, **more: Any) -> int:
        if isinstance(path, str) and path.startswith(f"{tree}/"):
            act(path)
        return real(path, *rest, **more)

    monkeypatch.setattr(read, "RETRY_AFTER", (0.0, 0.0))
    monkeypatch.setattr(os, "open", opened)


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EMFILE, "too many files are open; raise `ulimit -n`"),
        (errno.EIO, "the storage reports an input/output error"),
        (errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_faults_of_the_storage_are_not_faults_of_an_image(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small: Path, number: int, says: str
) -> None:
    def failing(path: str) -> None:
        raise OSError(number, os.strerror(number), path)

    at_every_image(monkeypatch, small, failing)
    sentence = sentence_of(run(capfd, "convert", "--input", small, "--output", tmp_path / "out"), 3)
    assert sentence.startswith(f"Cannot read {small}/") and says in sentence


def test_a_transient_fault_of_the_storage_is_retried(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small: Path
) -> None:
    failed: set[str] = set()

    def flaky(path: str) -> None:
        if path not in failed:
            failed.add(path)
            raise OSError(errno.EIO, "once")

    at_every_image(monkeypatch, small, flaky)
    assert run(capfd, "convert", "--input", small, "--output", tmp_path / "out").code == 0
    assert set(outcomes(tmp_path / "out").values()) == {"written"} and len(failed) == 6


def test_an_unlistable_folder_stops_the_job(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small: Path
) -> None:
    real = os.scandir

    def forbidden(path: Any) -> Any:
        if not isinstance(path, int) and os.fsencode(path).endswith(b"/bee"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", forbidden)
    done = run(capfd, "convert", "--input", small, "--output", tmp_path / "out")
    monkeypatch.undo()
    assert sentence_of(done, 3) == (
        f"Cannot list {small}/bee: permission denied; make it readable or move it out of the input."
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_error_of_a_worker_process_arrives_as_one_sentence(tmp_path: Path, tree: Path) -> None:
    options = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
    output = tmp_path / "out"
    refused = ("convert", "--input", tree, "--output", output, *options, "--max_bad_fraction=0")
    sentence = sentence_of(run_command(*refused), 1)
    assert "1 of 201 images is bad (1 NOT_AN_IMAGE)" in sentence
    double = ("convert", "--input", tree, "--input", tree, "--output", tmp_path / "other", *options)
    sentence = sentence_of(run_command(*double), 2)
    assert "Two images have the key" in sentence and not (tmp_path / "other").exists()
    argv = ("convert", "--input", tree, "--output", tmp_path / "full", *options)
    done = subprocess.run(
        [str(COMMAND), *map(str, argv)], capture_output=True, text=True,
        preexec_fn=partial(limit_file_size, 10_000),
    )  # fmt: skip
    assert "Cannot write a shard to" in sentence_of(ended(done.returncode, done.stdout, done.stderr), 3)


def test_a_run_that_ended_between_a_shard_and_its_ledger_can_be_resumed(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small: Path
) -> None:
    real = storage.write_bytes

    def full(path: str, data: bytes, inside: str = "") -> None:
        if "/_index/" in path or "/_shards/" in path:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, data, inside)

    argv = ("convert", "--input", small, "--output", tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(storage, "write_bytes", full)
        sentence_of(run(capfd, *argv), 3)
    left = [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert left == ["train-00000-of-00001.tfrecord"]
    assert run(capfd, *argv, "--resume").code == 0
    assert len(check_books(tmp_path / "out")) == sum(path.is_file() for path in small.rglob("*"))
