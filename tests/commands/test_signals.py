"""Signals, killed workers and stuck files end a command in order, and the message names the file."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from helpers.hostile import COMMAND, Done, make_tree, picture, run_forked, start, wait

from shardwright.core.concurrency.pool import ByteBudget
from shardwright.core.concurrency.underway import Underway
from shardwright.core.concurrency.watchdog import (
    STUCK_AFTER_MINUTES,
    STUCK_EXPERIMENT,
    Watchdog,
)
from shardwright.core.concurrency.workers import experiment, values_of
from shardwright.pipelines import cli
from shardwright.pipelines.process import ENDING, WATCHDOG, graceful_shutdown
from shardwright.pipelines.run import exit_code_of
from shardwright.schemas.errors import DataRefused, EngineError

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.signal(number, signal.default_int_handler) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
def test_every_signal_to_end_ends_in_order(capsys: Capture, number: signal.Signals) -> None:
    def command() -> int:
        os.kill(os.getpid(), number)
        time.sleep(60)
        return 0

    assert exit_code_of(command, resumable=True) == 130
    reason = "" if number == signal.SIGINT else f"it was told to end ({number.name}); "
    assert capsys.readouterr().err == (
        f"shardwright: interrupted; {reason}run again with --resume to go on.\n"
    )
    assert signal.getsignal(number) is signal.default_int_handler


def test_errors_at_the_end_are_interruptions_but_refusals_stay(capsys: Capture) -> None:
    def broken() -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            raise EngineError("The engine failed; look.") from None
        return 0

    def refused() -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            raise DataRefused("Too many images are bad.") from None
        return 0

    assert exit_code_of(broken) == 130
    assert capsys.readouterr().err == "shardwright: interrupted; it was told to end (SIGTERM); run again.\n"
    assert exit_code_of(refused) == 1


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

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()


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
def job(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A conversion with two worker processes that has written a few shards."""
    make_tree(tmp_path / "in", 600)
    command = [str(COMMAND), "convert", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    command += ["--direct_running_mode=multi_processing", "--direct_num_workers=2", "--shards=40"]
    command += ["--resize=500", "--image_format=png"]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not list((tmp_path / "out" / "_shards").glob("*.gz")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        yield process
        process.kill()


def _workers_of(job: subprocess.Popen[str]) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line, status = (folder / "cmdline").read_bytes(), (folder / "stat").read_text()
        except OSError:
            continue
        group = int(status.rpartition(")")[2].split()[2])
        if group == job.pid and b"sdk_worker_main" in line and not line.startswith(b"/bin/sh"):
            found.append(int(folder.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", ENDING)
def test_a_conversion_ends_with_its_worker_processes(
    job: subprocess.Popen[str], number: signal.Signals
) -> None:
    assert len(_workers_of(job)) == 2
    job.send_signal(number)
    assert job.wait(60) == 130
    err = job.stderr.read() if job.stderr else ""
    reason = "" if number == signal.SIGINT else f"it was told to end ({number.name}); "
    assert err.endswith(f"shardwright: interrupted; {reason}run again with --resume to go on.\n")
    assert not _workers_of(job)


@pytest.mark.slow
def test_a_killed_worker_process_is_reported(job: subprocess.Popen[str]) -> None:
    os.kill(_workers_of(job)[0], signal.SIGKILL)
    assert job.wait(60) == 3
    err = job.stderr.read() if job.stderr else ""
    assert "shardwright: A worker process ended unexpectedly" in err and "Traceback" not in err
    assert "Channel closed" not in err and not _workers_of(job)


def _watchdog(board: Underway) -> tuple[Watchdog, list[str], list[str]]:
    lines: list[str] = []
    ends: list[str] = []
    return Watchdog(board.tasks, lines.append, ends.append), lines, ends


def test_a_slow_file_is_named_once() -> None:
    board = Underway()
    dog, lines, ends = _watchdog(board)
    with board.working_on("a/slow.gif", "decode"):
        started = board.tasks()[0].started
        dog.look(started + 29)
        assert not lines
        for seconds in (31, 45, 599):
            dog.look(started + seconds)
    assert lines == ["a/slow.gif has taken 31 seconds so far (decode)"] and not ends
    dog.look(started + 10_000)
    assert not ends, "it was finished"


def test_a_stuck_file_ends_the_command_and_is_named() -> None:
    board = Underway()
    dog, _, ends = _watchdog(board)
    dog.stuck_after = 120.0
    with board.working_on("a/stuck.gif", "decode"):
        dog.look(board.tasks()[0].started + 121)
    assert ends == [
        "stuck: a/stuck.gif has taken 2.0 minutes (decode); to leave it out, move it out of the input, or "
        "else raise --stuck_after, then run again."
    ]


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
time.sleep(1.5)
"""


def test_a_program_goes_on_after_a_command_that_ended_during_a_look() -> None:
    program = [sys.executable, "-c", _COMMAND_THAT_ENDS_DURING_A_LOOK]
    assert subprocess.run(program, capture_output=True, text=True).stderr == ""


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
    module = importlib.import_module("shardwright.core.conversion")

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


def test_a_stuck_command_ends_with_3(tmp_path: Path) -> None:
    done = _ended_by(tmp_path, lambda pid: None, "--stuck_after=0.02")
    assert done.code == 3
    assert "stuck: " in done.err and f"{tmp_path}/in" in done.err and "(decode)" in done.err


def test_a_stuck_command_with_json_prints_its_object(tmp_path: Path) -> None:
    done = _ended_by(tmp_path, lambda pid: None, "--stuck_after=0.02", "--json", "--quiet")
    value = json.loads(done.out)
    assert done.code == value["exit_code"] == 3 and value["error"].startswith("stuck: ")
    assert done.err == f"shardwright: {value['error']}\n"


def test_a_stuck_command_ends_its_log_of_json_lines(tmp_path: Path) -> None:
    done = _ended_by(tmp_path, lambda pid: None, "--stuck_after=0.02", "--log_format=json")
    lines = [json.loads(line) for line in done.err.splitlines()]
    assert done.code == lines[-1]["exit_code"] == 3
    assert lines[-1]["level"] == "ERROR" and lines[-1]["error"].startswith("stuck: ")


def test_workers_of_a_cluster_learn_of_stuck_after() -> None:
    from shardwright.pipelines.options import beam_options

    argv = ["--runner=PortableRunner"]
    try:
        WATCHDOG.stuck_after = 150.0
        options = beam_options(argv, [])
    finally:
        WATCHDOG.stuck_after = 60 * STUCK_AFTER_MINUTES
    assert experiment(values_of(options), STUCK_EXPERIMENT) == "2.5"
    assert experiment(values_of(beam_options(argv, [])), STUCK_EXPERIMENT) is None


def test_workers_of_a_cluster_have_the_options_that_beam_lacks() -> None:
    """They do not import the launcher's modules, so Beam does not know these options there."""
    given = ["--pool=processes", "--gcs_user_project=payer", "--sdk_worker_parallelism=0"]
    program = (
        "from apache_beam.options.pipeline_options import PipelineOptions\n"
        "from shardwright.core.concurrency.workers import values_of\n"
        f"values = values_of(PipelineOptions({given}))\n"
        "print(values['pool'], values['gcs_user_project'], values['sdk_worker_parallelism'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["processes", "payer", "0"]


def endless_function(module: str, name: str) -> None:
    """Makes a function of a source take forever."""

    def stuck(*args: object, **more: object) -> None:
        while True:
            time.sleep(60)

    vars(importlib.import_module(f"shardwright.core.sources.{module}"))[name] = stuck


def put_tar(folder: Path) -> None:
    with tarfile.open(folder / "a.tar.gz", "w:gz") as archive:
        archive.add(make_tree(folder.parent / "tree", 2), "tree")


def put_yolo(folder: Path) -> None:
    for name, data in (
        ("images/a.png", picture(1)), ("labels/a.txt", b"0 0.5 0.5 0.5 0.5\n"),
        ("data.yaml", b"path: .\ntrain: images\nnames: [ant]\n"),
    ):  # fmt: skip
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)


@pytest.mark.parametrize(
    ("put", "function", "place", "stage"),
    [
        (put_tar, ("archives.files", "unpack_tar"), "/a.tar.gz", "unpack); to leave it out"),
        (put_yolo, ("yolo", "parse_labels"), "/labels/a.txt", "parse); to leave it out"),
        (partial(make_tree, images=2), ("class_folders", "find_tree"), "", "recognize)"),
        (partial(make_tree, images=2), ("class_folders", "list_class_folders"), "", "list)"),
    ],
    ids=["unpack", "parse", "recognize", "list"],
)
def test_a_source_that_hangs_is_named(
    tmp_path: Path, put: Callable[[Path], object], function: tuple[str, str], place: str, stage: str
) -> None:
    (tmp_path / "in").mkdir()
    put(tmp_path / "in")
    layout = "detection" if put is put_yolo else "classification"
    argv = ("convert", tmp_path / "in", tmp_path / "out", "--stuck_after=0.02", f"--layout={layout}")
    done = run_forked(tmp_path / "log", *argv, before=partial(endless_function, *function))
    line = done.err.splitlines()[-1]
    assert done.code == 3
    assert f"stuck: {tmp_path}/in{place} has taken " in line and f"minutes ({stage}" in line
