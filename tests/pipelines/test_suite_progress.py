"""The suite shows its progress in readable lines."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).resolve().parents[1]
_MODULE = """
import pytest

@pytest.mark.parametrize("number", range(96))
def test_sound(number): pass
def test_broken(): assert not "seen"
def test_left_out(): pytest.skip("not here")
@pytest.fixture
def missing(): raise ValueError
def test_without(missing): pass
@pytest.mark.xfail
def test_known(): assert 0
"""


def _run(folder: Path, *options: str) -> str:
    (folder / "pytest.ini").write_text("[pytest]\nconsole_output_style = classic\n")
    (folder / "test_some.py").write_text(_MODULE)
    command = [sys.executable, "-m", "pytest", "-p", "helpers.progress", *options, "test_some.py"]
    environment = {"PYTHONPATH": str(_TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done
    return done.stdout


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")], ids=["one process", "workers"])
def test_progress_is_a_few_lines_with_counts(tmp_path: Path, workers: tuple[str, ...]) -> None:
    printed = _run(tmp_path, "-q", *workers)
    lines = re.findall(r"^ *\d+%  \d+ of 100 tests, .*$", printed, re.M)
    assert len(lines) == 20
    assert re.fullmatch(r"  5%  5 of 100 tests, 0 failed, 0 skipped  \d+:\d\d  test_some\.py", lines[0])
    assert re.fullmatch(r"100%  100 of 100 tests, 2 failed, 1 skipped  \d+:\d\d  test_some\.py", lines[-1])
    while_running = printed.partition("= ERRORS =")[0]
    assert not re.search(r"^[.sxFE]+( |$)", while_running, re.M), "no dots"
    before, _, after = printed.partition("short test summary info")
    for line in ("FAILED test_some.py::test_broken", "ERROR test_some.py::test_without"):
        assert line in before and line in after
    assert "1 failed, 96 passed, 1 skipped, 1 xfailed, 1 error" in after


def test_v_names_every_test(tmp_path: Path) -> None:
    printed = _run(tmp_path, "-v")
    assert "test_some.py::test_sound[95] PASSED" in printed and " of 100 tests" not in printed
