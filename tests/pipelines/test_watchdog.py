"""Files that take long are named, stuck commands end, and Ctrl-C ends a command inside of a decoder."""

from __future__ import annotations

import importlib
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hostile import Done, make_tree, run_forked, start, wait

from shardwright.pipelines.watchdog import Watchdog
from shardwright.transforms.concurrency.pool import ByteBudget
from shardwright.transforms.concurrency.underway import Underway


def _watchdog(board: Underway) -> tuple[Watchdog, list[str], list[int]]:
    lines: list[str] = []
    codes: list[int] = []
    return Watchdog(board, lines.append, codes.append), lines, codes


def test_a_slow_file_is_named_once() -> None:
    board = Underway()
    dog, lines, codes = _watchdog(board)
    with board.working_on("a/slow.gif", "decode"):
        begun = board.tasks()[0].begun
        dog.look(begun + 29)
        assert not lines
        for seconds in (31, 45, 599):
            dog.look(begun + seconds)
    assert lines == ["a/slow.gif has taken 31 seconds so far (decode)"] and not codes
    dog.look(begun + 10_000)
    assert not codes, "it was finished"


def test_a_stuck_file_ends_the_command_and_is_named() -> None:
    board = Underway()
    dog, lines, codes = _watchdog(board)
    dog.stuck_after = 120.0
    with board.working_on("a/stuck.gif", "decode"):
        dog.look(board.tasks()[0].begun + 121)
    assert codes == [3]
    assert (
        "a/stuck.gif" in lines[-1]
        and "move it out of the input" in lines[-1]
        and "--stuck_after" in lines[-1]
    )


def test_who_waits_for_memory_is_not_stuck() -> None:
    board = Underway()
    with board.working_on("a.jpg", "decode"):
        with board.waiting():
            assert not board.tasks()
        (task,) = board.tasks()
        with board.working_on("a.jpg", "annotate"):
            assert [item.stage for item in board.tasks()] == ["annotate"]
        assert board.tasks()[0].begun >= task.begun
    assert not board.tasks()
    with ByteBudget(10).reserve(100):
        assert not board.tasks()


@pytest.mark.parametrize("minutes", ["0", "-1", "soon", "inf", "nan"])
def test_wrong_minutes_are_a_usage_error(tmp_path: Path, minutes: str) -> None:
    argv = ("convert", tmp_path, tmp_path / "out", f"--stuck_after={minutes}")
    assert run_forked(tmp_path / "log", *argv).code == 2


def endless_decoder(mark: str) -> None:
    """Makes decoding an image take forever, as a decoder does that never looks at signals."""
    module = importlib.import_module("shardwright.transforms.conversion.convert")

    def stuck(*args: object) -> None:
        Path(mark).touch()
        while True:
            time.sleep(60)

    vars(module)["convert_image"] = stuck


def _ended_by(tmp_path: Path, act: Callable[[int], None], *more: str) -> Done:
    """Converts with such a decoder and does something once it is reached."""
    mark = tmp_path / "mark"
    argv = ("convert", make_tree(tmp_path / "in", 2), tmp_path / "out", *more)
    process = start(tmp_path / "log", *argv, before=partial(endless_decoder, str(mark)))
    while not mark.exists():
        assert process.is_alive()
        time.sleep(0.01)
    act(process.pid)
    return wait(process, tmp_path / "log")


def test_ctrl_c_ends_a_command_whose_decoder_never_does(tmp_path: Path) -> None:
    done = _ended_by(tmp_path, lambda pid: os.kill(pid, signal.SIGINT))
    assert done.code == 130
    assert done.err.endswith("shardwright: interrupted; run again with --resume to go on.\n")


def test_a_stuck_command_ends_with_3(tmp_path: Path) -> None:
    done = _ended_by(tmp_path, lambda pid: None, "--stuck_after=0.02")
    assert done.code == 3
    assert "stuck: " in done.err and f"{tmp_path}/in" in done.err and "(decode)" in done.err
