"""The benchmarks run, and the pages show what they measured and computed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).parents[2] / "benchmarks"


def _run(*words: str) -> str:
    return subprocess.run(
        [sys.executable, *words], cwd=_HERE, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.slow
def test_a_quick_benchmark_gives_a_table_and_a_line_of_the_history(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    table = _run("bench.py", "--quick", "--only=references", f"--history={history}")
    assert "| references |" in table
    assert len(history.read_text().splitlines()) == 1


def test_the_pages_are_what_the_benchmarks_generate() -> None:
    assert not _run(
        "-c", "import page; assert page.PAGE.read_text() == page.generate(), 'run make bench-docs'"
    )
    page = (_HERE.parent / "docs" / "scale.md").read_text().splitlines()
    missing = [line for line in _run("job_model.py", "1e9").splitlines() if line not in page]
    assert not missing, "run python benchmarks/job_model.py 1e9 and correct docs/scale.md"
