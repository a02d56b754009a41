"""A decoder that crashes costs its image; one that is killed or hangs ends the command with its name."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from helpers.hostile import COMMAND, check_books, document, make_tree, run

#: Python runs this in each new process. Worker processes of the pool meet the image `BAD` with an accident.
_ACCIDENT = """
import os, sys
if any("worker_main" in word for word in sys.orig_argv):
    import ctypes, signal, time
    import shardwright.transforms.conversion.convert as module
    right = module.convert_image

    def convert_image(data, key, *more):
        if key == os.environ["BAD"]:
            open(os.environ["BAD_MARK"], "a").write("met\\n")
            {accident}
        return right(data, key, *more)

    module.convert_image = convert_image
"""
#: Sleeps in C code without giving up Python's lock.
_HANG = "ctypes.PyDLL(None).sleep(600)"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "in", 200)


def accident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> Path:
    """Lets an image meet an accident in worker processes; returns a file that then exists."""
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "sitecustomize.py").write_text(_ACCIDENT.replace("{accident}", what))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "start"))
    monkeypatch.setenv("BAD", "ant/044.png")
    monkeypatch.setenv("BAD_MARK", str(tmp_path / "met"))
    return tmp_path / "met"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGSEGV, 0), (signal.SIGABRT, 1)])
def test_a_crash_quarantines_its_image_and_the_run_goes_on(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    number: signal.Signals, code: int,
) -> None:  # fmt: skip
    met = accident(tmp_path, monkeypatch, f"os.kill(os.getpid(), {int(number)})")
    out = tmp_path / "out"
    fraction = 0.01 if code == 0 else 0.001
    done = run(capfd, "convert", images, out, "--pool=processes", f"--max_bad_fraction={fraction}")
    assert done.code == code and met.exists()
    if code == 0:
        books = check_books(out)
        (bad,) = [entry for entry in books.values() if entry["outcome"] == "quarantined"]
        assert document(out)["ledger"]["written"] == 199
        assert (bad["key"], bad["reason"], bad["stage"]) == ("ant/044.png", "DECODER_CRASHED", "decode")
        assert bad["message"] == f"the decoder crashed ({number.name})" and len(bad["sha256"]) == 64
        assert run(capfd, "validate", out).code == 0


def test_a_killed_process_ends_the_command_which_can_be_resumed(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    accident(tmp_path, monkeypatch, "os.kill(os.getpid(), signal.SIGKILL)")
    argv = ("convert", images, tmp_path / "out", "--shards=4", "--pool=processes")
    done = run(capfd, *argv)
    assert done.code == 3
    assert f"SIGKILL) while it worked on {images}/ant/044.png (decode)" in done.err
    assert "memory" in done.err and "--resume" in done.err
    monkeypatch.setenv("BAD", "")
    assert run(capfd, *argv, "--resume").code == 0
    assert run(capfd, "convert", images, tmp_path / "whole", "--shards=4").code == 0
    assert document(tmp_path / "out")["fingerprint"] == document(tmp_path / "whole")["fingerprint"]


def test_an_exit_in_a_hook_is_a_failure_of_the_hook(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "leaving.py").write_text(
        "import os\n"
        "def leave(item):\n"
        "    if item.key == 'bee/007.png':\n"
        "        os._exit(0)\n"
        "    return item.image\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    argv = ("convert", images, tmp_path / "out", "--map=leaving:leave", "--pool=processes")
    assert run(capfd, *argv).code == 0
    (bad,) = [entry for entry in check_books(tmp_path / "out").values() if entry["outcome"] == "quarantined"]
    assert (bad["key"], bad["reason"], bad["stage"]) == ("bee/007.png", "MAP_FAILED", "map")
    assert bad["message"] == "leaving:leave or the decoder ended the process (exit code 0)"


@pytest.mark.parametrize("number", [None, signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_decoder_that_hangs_ends_with_its_command(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals | None
) -> None:
    met = accident(tmp_path, monkeypatch, _HANG)
    argv = [COMMAND, "convert", images, tmp_path / "out", "--pool=processes"]
    argv += ["--stuck_after=0.05"] * (number is None)
    with subprocess.Popen([*map(str, argv)], stderr=subprocess.PIPE, text=True) as command:
        while not met.exists():
            assert command.poll() is None
            time.sleep(0.02)
        workers = psutil.Process(command.pid).children(recursive=True)
        assert workers
        if number is not None:
            command.send_signal(number)
        _, err = command.communicate(timeout=60)
    assert command.returncode == (3 if number is None else 130)
    last = err.splitlines()[-1]
    if number is None:
        assert f"stuck: {images}/ant/044.png has taken" in last and "(decode)" in last
    else:
        assert "interrupted; " in last and "--resume" in last
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive
