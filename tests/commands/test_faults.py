"""Kills, signals, full disks, full memory, stuck files, changing sources: nothing is lost or half done."""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.annotation_sets.yolo import put_set
from helpers.hostile import (
    COMMAND,
    Done,
    at_call,
    check_books,
    identity,
    leftovers,
    limit_file_size,
    make_tree,
    mounted,
    picture,
    run,
    run_command,
    run_forked,
    sentence_of,
    signal_self,
    start,
    wait,
)
from helpers.listing import listed
from helpers.repository import ran

from shardwright.core import conversion as shard_convert
from shardwright.core import storage
from shardwright.core.concurrency.resources import experiment, values_of
from shardwright.core.concurrency.thread_pool import ByteBudget
from shardwright.core.concurrency.underway import UNDERWAY, Task, Underway
from shardwright.core.concurrency.watchdog import STUCK_AFTER_MINUTES, STUCK_EXPERIMENT, Watchdog
from shardwright.core.images import read
from shardwright.pipelines import cli
from shardwright.pipelines import run as engine
from shardwright.pipelines.options import beam_options
from shardwright.pipelines.places import launcher_of
from shardwright.pipelines.plan import plan
from shardwright.pipelines.process import ENDING, WATCHDOG, graceful_shutdown
from shardwright.pipelines.run import as_shardwright_error, exit_code_of
from shardwright.schemas.errors import DataRefused, EngineError
from shardwright.schemas.units import counted
from shardwright.schemas.version import LEASE_JSON
from shardwright.transforms.runner_features import WorkerOptions

Capture = pytest.CaptureFixture[str]
Convert = Callable[..., Done]
IMAGES = 130
SETTINGS = (
    "--resize=8", "--splits=train=0.7,test=0.3", "--shards=train=4,test=2", "--max_bad_fraction=0.1",
    "--verify=none",
)  # fmt: skip
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
    assert cli.main([*map(str, argv_of(tree, output.parent))]) == 0
    return identity(output)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "in")


@pytest.fixture
def convert_small(capfd: Capture, tmp_path: Path, small: Path) -> Convert:
    """Converts the small tree to `out` in the temporary folder."""
    return partial(run, capfd, "convert", "--input", small, "--output", tmp_path / "out", "--verify=none")


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


@pytest.mark.parametrize(
    ("number", "target", "text", "call", "reused"),
    [
        (signal.SIGINT, READ, "/", 20, 0),  # while the sample is taken
        (signal.SIGTERM, READ, "/", 64 + 70, 0),
        (signal.SIGHUP, f"{STORAGE}:write_bytes", "_shards/", 3, 1),  # a shard has no ledger yet
        (signal.SIGINT, f"{STORAGE}:write_bytes", "quarantine.jsonl", 1, 6),
        (signal.SIGKILL, "os:replace", "_index/", 3, 1),  # the index of a shard has a temporary name
        (signal.SIGKILL, "os:replace", "dataset.json", 1, 6),  # only the last rename is missing
        *(
            pytest.param(signal.SIGKILL, *moment, marks=pytest.mark.slow)
            for moment in (
                (READ, "/", 20, 0),
                (READ, "/", 64 + 10, 0),  # in the middle of the first shard
                (READ, "/", 64 + 120, 1),  # in the middle of a later shard
                (f"{STORAGE}:move_into_place", "_work/", 3, 1),  # a shard is not in its place yet
                (f"{STORAGE}:write_bytes", "_shards/", 3, 1),
                ("os:replace", "_shards/", 5, 3),  # the ledger of a shard has a temporary name
                (f"{STORAGE}:write_bytes", "quarantine.jsonl", 1, 6),
                (f"{STORAGE}:write_bytes", "labels.txt", 1, 6),
                (f"{STORAGE}:write_bytes", "dataset.json", 1, 6),
            )
        ),
    ],
)
def test_resume_finishes_a_run_that_was_killed_or_told_to_end(
    capfd: Capture, tmp_path: Path, tree: Path, clean: dict[str, str],
    number: signal.Signals, target: str, text: str, call: int, reused: int,
) -> None:  # fmt: skip
    argv = argv_of(tree, tmp_path)
    end = partial(at_call, target, text, call, partial(signal_self, number))
    done = run_forked(tmp_path / "log", *argv, before=end)
    if number == signal.SIGKILL:
        assert done.code == -number
    else:
        reason = "" if number == signal.SIGINT else f"it was told to end ({number.name}); "
        assert done == (130, "", f"shardwright: interrupted; {reason}run again with --resume to go on.\n")
        assert not leftovers(tmp_path / "out")
    count = finish(capfd, argv, tmp_path / "out", clean)
    assert count >= reused and (count == 6) == (reused == 6)


def test_a_limit_on_file_sizes_stops_the_job_like_a_full_disk(tmp_path: Path, tree: Path) -> None:
    done = run_forked(tmp_path / "log", *argv_of(tree, tmp_path), before=partial(limit_file_size, 10_000))
    sentence = sentence_of(done, 3)
    assert sentence.startswith(f"Cannot write a shard to {tmp_path / 'out'}: ") and "--shard_size" in sentence
    assert not leftovers(tmp_path / "out")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "size=60k") as place:
        yield place


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
    assert "is the root of a file system" in sentence_of(run(capfd, *argv, "--overwrite"), 2)
    assert identity(tiny_disk) == before


@pytest.mark.parametrize("change", ["grow", "touch", "replace"])
def test_a_source_that_changes_stops_the_job(small: Path, change: str) -> None:
    found, victim = listed(small, "classification"), small / "bee" / "001.png"
    if change == "grow":
        victim.write_bytes(victim.read_bytes() + b"more")
    elif change == "touch":
        os.utime(victim, ns=(1, 1))
    else:
        victim.unlink()
        victim.write_bytes(picture(77))
    with pytest.raises(EngineError, match=f"^{victim} changed while the job was reading its input"):
        found.entries()
    assert listed(small, "classification").entries()["bee/001.png"].outcome == "written"


def test_a_source_that_disappears_is_unreadable(small: Path) -> None:
    found = listed(small, "classification")
    (small / "bee" / "001.png").unlink()
    gone = found.entries()["bee/001.png"]
    assert (gone.reason, gone.stage) == ("UNREADABLE", "read")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("where", ["convert.convert_image", "read_image", "build_example"])
def test_a_lack_of_memory_stops_the_job(
    monkeypatch: pytest.MonkeyPatch, convert_small: Convert, where: str
) -> None:
    monkeypatch.setattr(f"{shard_convert.__name__}.{where}", mock.Mock(side_effect=MemoryError))
    monkeypatch.setattr(shard_convert, "WORKING_BYTES", 1 << 62)
    sentence = sentence_of(convert_small(), 3)
    assert sentence.startswith("The machine ran out of memory") and "run again with --resume" in sentence
    no_thread = as_shardwright_error(RuntimeError("can't start new thread"))
    assert "ran out of memory, or of the threads that `ulimit -u`" in no_thread.message


def test_one_image_that_asks_for_absurd_memory_is_corrupt(
    monkeypatch: pytest.MonkeyPatch, small: Path
) -> None:
    real = shard_convert.convert.convert_image

    def greedy(data: bytes, name: str, *rest: Any) -> Any:
        if name == "bee/001.png":
            raise MemoryError
        return real(data, name, *rest)

    monkeypatch.setattr(shard_convert.convert, "convert_image", greedy)
    assert listed(small, "classification").entries()["bee/001.png"].reason == "CORRUPT"


def test_unexpected_errors_are_one_sentence_and_a_traceback_on_demand(
    monkeypatch: pytest.MonkeyPatch, convert_small: Convert
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("a bug\nin two lines")

    monkeypatch.setattr(shard_convert, "build_example", broken)
    sentence = sentence_of(convert_small(), 3)
    assert sentence.startswith("The engine failed with ") and "--verbose" in sentence
    done = convert_small("--verbose", "--overwrite")
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
    monkeypatch: pytest.MonkeyPatch, small: Path, number: int, says: str
) -> None:
    at_every_image(monkeypatch, small, mock.Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(EngineError, match=f"^Cannot read {small}/.*{says}"):
        listed(small, "classification").entries()


def test_a_transient_fault_of_the_storage_is_retried(monkeypatch: pytest.MonkeyPatch, small: Path) -> None:
    failed: set[str] = set()

    def flaky(path: str) -> None:
        if path not in failed:
            failed.add(path)
            raise OSError(errno.EIO, "once")

    at_every_image(monkeypatch, small, flaky)
    entries = listed(small, "classification").entries().values()
    assert {entry.outcome for entry in entries} == {"written"} and len(failed) == 6


@pytest.mark.slow
def test_an_error_of_a_worker_process_arrives_as_one_sentence(tmp_path: Path, tree: Path) -> None:
    # On a busy machine, these commands would print lines of progress.
    options = ("--direct_running_mode=multi_processing", "--direct_num_workers=2", "--quiet")
    output = tmp_path / "out"
    refused = ("convert", "--input", tree, "--output", output, *options, "--max_bad_fraction=0")
    sentence = sentence_of(run_command(*refused), 1)
    assert f"1 of {IMAGES + 1} images is bad (1 NOT_AN_IMAGE)" in sentence
    double = ("convert", "--input", tree, "--input", tree, "--output", tmp_path / "other", *options)
    sentence = sentence_of(run_command(*double), 2)
    assert "Two images have the key" in sentence and not (tmp_path / "other").exists()
    argv = ("convert", "--input", tree, "--output", tmp_path / "full", *options)
    done = run_command(*argv, preexec_fn=partial(limit_file_size, 10_000))
    assert "Cannot write a shard to" in sentence_of(done, 3)


def test_a_disk_that_is_full_after_a_shard_stops_the_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, convert_small: Convert
) -> None:
    real = storage.write_bytes

    def full(path: str, data: bytes, inside: str = "") -> None:
        if "/_index/" in path or "/_shards/" in path:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, data, inside)

    monkeypatch.setattr(storage, "write_bytes", full)
    assert "the disk is full; free some space, then run again" in sentence_of(convert_small(), 3)
    left = [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert left == ["train-00000-of-00001.tfrecord"]


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.signal(number, signal.default_int_handler) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_errors_at_the_end_are_interruptions_but_refusals_stay(capsys: Capture) -> None:
    def ended_with(error: Exception) -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            raise error from None
        return 0

    assert exit_code_of(partial(ended_with, EngineError("The engine failed; look."))) == 130
    assert capsys.readouterr().err == "shardwright: interrupted; it was told to end (SIGTERM); run again.\n"
    assert exit_code_of(partial(ended_with, DataRefused("Too many images are bad."))) == 1
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # like nohup
    with graceful_shutdown() as ending:
        os.kill(os.getpid(), signal.SIGHUP)
    assert not ending.received


def test_a_repeated_signal_does_not_disturb_the_end() -> None:
    with graceful_shutdown() as ending:
        with pytest.raises(KeyboardInterrupt):
            ending.receive(signal.SIGTERM, None)
        ending.receive(signal.SIGTERM, None)
        ending.received -= 60
        with pytest.raises(KeyboardInterrupt):
            ending.receive(signal.SIGINT, None)
    assert ending.reason == "it was told to end (SIGTERM); "


def test_outside_the_main_thread_signal_handlers_are_not_changed() -> None:
    def enter() -> None:
        with graceful_shutdown() as ending:
            assert not ending.received

    ThreadPoolExecutor(1).submit(enter).result()


def test_processes_of_the_command_end_with_it_and_others_go_on() -> None:
    with subprocess.Popen(["sleep", "60"]) as other, contextlib.ExitStack() as stack:
        time.sleep(0.1)  # start times have a resolution of 10 ms
        with pytest.raises(KeyboardInterrupt), graceful_shutdown():
            own = stack.enter_context(subprocess.Popen(["sh", "-c", "sleep 60; true"]))
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        assert own.wait(30) == -signal.SIGKILL
        assert other.poll() is None
        other.kill()


@pytest.fixture
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A conversion, or another command, with two worker processes that has written a few shards."""
    make_tree(tmp_path / "in", 600)
    name = getattr(request, "param", "convert")
    command = [str(COMMAND), name, "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    command += ["--direct_running_mode=multi_processing", "--direct_num_workers=2", "--shards=40"]
    command += ["--resize=500", "--image_format=png"]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not list((tmp_path / "out").glob("**/_shards/*.gz")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        yield process
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "number"),
    [*(("convert", number) for number in ENDING), ("rebuild", signal.SIGINT)],
    indirect=["job"],
)
def test_a_command_ends_with_its_worker_processes(
    job: subprocess.Popen[str], number: signal.Signals, tmp_path: Path
) -> None:
    children = psutil.Process(job.pid).children(recursive=True)
    assert sum("apache_beam.runners.worker.sdk_worker_main" in child.cmdline() for child in children) == 2
    job.send_signal(number)
    assert job.wait(60) == 130
    err = job.stderr.read() if job.stderr else ""
    reason = "" if number == signal.SIGINT else f"it was told to end ({number.name}); "
    assert f"shardwright: interrupted; {reason}run again" in err and "Traceback" not in err
    assert err.endswith("run again with --resume to go on.\n" if "convert" in job.args else "run again.\n")
    assert not psutil.wait_procs(children, timeout=30)[1] and not (tmp_path / "out" / LEASE_JSON).exists()


_COMMAND_THAT_ENDS_DURING_A_LOOK = """
import threading, time
from shardwright.core.concurrency.watchdog import Watchdog

looking = threading.Event()

def tasks():
    looking.set()
    time.sleep(0.2)
    return []

watchdog = Watchdog(tasks, print, print)
watchdog.stuck_after = -59.5  # Python ends the process half a second after a look
with watchdog.watching():
    looking.wait()
time.sleep(1.0)
"""


def test_a_program_goes_on_after_a_command_that_ended_during_a_look() -> None:
    assert ran(sys.executable, "-c", _COMMAND_THAT_ENDS_DURING_A_LOOK).stderr == ""


_COMMAND_THAT_IS_STOPPED = """
import time
from shardwright.pipelines import process

process.WATCHDOG.stuck_after = -58.5  # Python ends the process a second and a half after a look
with process.graceful_shutdown(), process.WATCHDOG.watching():
    time.sleep(1.2)
    print("running", flush=True)
    time.sleep(2)
"""


def test_a_command_goes_on_after_it_was_stopped_for_long() -> None:
    program = [sys.executable, "-c", _COMMAND_THAT_IS_STOPPED]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    # The system stops no group of processes that has no parent in its session.
    with subprocess.Popen(program, **output, process_group=0) as process:
        assert process.stdout is not None and process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGTSTP)  # as Ctrl-Z does
        time.sleep(2.5)
        process.send_signal(signal.SIGCONT)
        assert (process.stdout.read(), process.wait()) == ("", 0)


def test_waiting_for_memory_is_not_being_stuck() -> None:
    board = Underway()
    with board.working_on("a.jpg", "decode"):
        with board.waiting():
            assert not board.tasks()
        (task,) = board.tasks()
        with board.working_on("a.jpg", "annotate"):
            assert [item.stage for item in board.tasks()] == ["annotate"]
        assert board.tasks()[0].started >= task.started
    assert not board.tasks()
    with ByteBudget(10).reserve(100):
        assert not board.tasks()


@pytest.mark.parametrize("minutes", ["0", "-1", "soon", "inf", "nan"])
def test_wrong_minutes_are_a_usage_error(tmp_path: Path, minutes: str) -> None:
    assert cli.main(["convert", str(tmp_path), str(tmp_path / "out"), f"--stuck_after={minutes}"]) == 2


def endless_decoder(mark: str) -> None:
    """Makes decoding an image take forever, as in a decoder that never checks for signals."""
    importlib.import_module("shardwright.pipelines.process").FORCE_SECONDS = 0.5
    module = importlib.import_module("shardwright.core.images.convert")

    def stuck(*args: object) -> None:
        Path(mark).touch()
        while True:
            time.sleep(60)

    vars(module)["convert_image"] = stuck


def _ended_by(tmp_path: Path, act: Callable[[int], None], *more: str) -> Done:
    """Converts with such a decoder, and calls a function once it is reached."""
    mark = tmp_path / "mark"
    argv = ("convert", make_tree(tmp_path / "in", 2), tmp_path / "out", *more)
    process = start(tmp_path / "log", *argv, before=partial(endless_decoder, str(mark)))
    while not mark.exists():
        assert process.is_alive()
        time.sleep(0.01)
    act(process.pid)
    return wait(process, tmp_path / "log")


def test_ctrl_c_ends_a_command_whose_decoder_never_ends(tmp_path: Path) -> None:
    done = _ended_by(tmp_path, lambda pid: os.kill(pid, signal.SIGINT))
    assert done.code == 130
    assert done.err.endswith("shardwright: interrupted; run again with --resume to go on.\n")


def test_a_stuck_command_names_the_file_in_its_object_and_ends_its_log(tmp_path: Path) -> None:
    options = ("--stuck_after=0.02", "--json", "--log_format=json")
    done = _ended_by(tmp_path, lambda pid: None, *options)
    value, last = json.loads(done.out), json.loads(done.err.splitlines()[-1])
    assert done.code == value["exit_code"] == last["exit_code"] == 3 and last["level"] == "ERROR"
    assert value["error"] == last["error"] and value["error"].startswith(f"stuck: {tmp_path}/in")
    assert "(decode)" in value["error"]


@pytest.mark.parametrize("name", ["", "FnApiRunner", "direct", "DIRECTRUNNER", "a.module.of.DirectRunner"])
def test_a_runner_of_this_process_has_many_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "usable_cpus", lambda: 3)
    options = PipelineOptions(["--pool=processes", *([f"--runner={name}"] if name else [])])
    assert engine.workers_of(options).processes == 3 and launcher_of(options)[1]


def test_workers_of_a_cluster_learn_of_stuck_after() -> None:
    argv = ["--runner=PortableRunner"]
    try:
        WATCHDOG.stuck_after = 150.0
        options = beam_options(argv, [])
    finally:
        WATCHDOG.stuck_after = 60 * STUCK_AFTER_MINUTES
    assert experiment(values_of(options), STUCK_EXPERIMENT) == "2.5"
    assert experiment(values_of(beam_options(argv, [])), STUCK_EXPERIMENT) is None


def test_workers_of_a_cluster_have_the_options_that_beam_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not import the launcher's modules, so Beam does not know these options there."""
    monkeypatch.setattr(WorkerOptions, "_add_argparse_args", PipelineOptions._add_argparse_args)
    given = {"pool": "processes", "gcs_user_project": "payer", "sdk_worker_parallelism": "0"}
    options = PipelineOptions([f"--{name}={value}" for name, value in given.items()])
    assert given.items() <= values_of(options).items()


def put_tar(folder: Path) -> None:
    with tarfile.open(folder / "a.tar.gz", "w:gz") as archive:
        archive.add(make_tree(folder.parent / "tree", 2), "tree")


def put_yolo(folder: Path) -> None:
    yaml = "path: .\ntrain: images/train\nnames: [thing, no, bird]\n"
    put_set(folder, {"train": ("eagle", "apple")}, yaml)


@pytest.mark.parametrize(
    ("put", "function", "place", "stage"),
    [
        (put_tar, ("archives.files", "unpack_tar"), "/a.tar.gz", "unpack); to leave it out"),
        (put_yolo, ("yolo", "parse_labels"), "/labels/train/apple.txt", "parse); to leave it out"),
        (partial(make_tree, images=2), ("class_folders", "find_tree"), "", "recognize)"),
        (partial(make_tree, images=2), ("class_folders", "walk"), "", "list)"),
    ],
    ids=["unpack", "parse", "recognize", "list"],
)
def test_a_source_that_hangs_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    put: Callable[[Path], object],
    function: tuple[str, str],
    place: str,
    stage: str,
) -> None:
    (tmp_path / "in").mkdir()
    put(tmp_path / "in")
    module, tasks = importlib.import_module(f"shardwright.core.sources.{function[0]}"), list[Task]()
    real = getattr(module, function[1])
    monkeypatch.setattr(module, function[1], lambda *args: tasks.extend(UNDERWAY.tasks()) or real(*args))
    plan(input=str(tmp_path / "in"), layout="detection" if put is put_yolo else "classification")
    ends: list[str] = []
    Watchdog(lambda: tasks, print, ends.append).look(tasks[0].started + 60 * STUCK_AFTER_MINUTES + 1)
    assert f"stuck: {tmp_path}/in{place} has taken " in ends[0] and f"minutes ({stage}" in ends[0]
