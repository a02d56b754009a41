"""The rules of the repository: namespace, imports, what the reader needs, and benchmarks that run."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from helpers.described import described
from helpers.hostile import make_tree
from helpers.repository import PHOTOS, ROOT, ran

from shardwright.pipelines.cli import COMMANDS
from shardwright.pipelines.convert import convert

#: Runs commands in one process: first those that need no Beam, because the process would keep it.
_PROGRAM = """
import runpy, sys
import shardwright
assert not {"apache_beam", "tensorflow", "numpy", "PIL"} & set(sys.modules)
from shardwright.pipelines.cli import COMMANDS, main

def run(*line, code=0, command=main):
    sys.argv[1:] = line
    try:
        ended = command([*line])
    except SystemExit as end:
        ended = end.code or 0
    assert ended == code, line

def convert(line):
    runpy.run_module("shardwright.pipelines.convert", run_name="__main__", alter_sys=True)

run("layouts", "raw")
assert "numpy" not in sys.modules
for line, code in (
    (["--help"], 0), (["--version"], 0), *(([name, "--help"], 0) for name in COMMANDS),
    (["completion", "bash"], 0), (["layouts"], 0), (["report", "made"], 0),
    (["inspect", "made", "--contact_sheet", "sheet.png"], 0), (["diff", "made", "made"], 0),
    (["versions", "made"], 2), (["rollback", "made"], 2),
    (["convert", "in", "no", "--resize=x"], 2), (["convert", "none", "o"], 2),
    (["init", "in", "pets", "--file", "job.yaml"], 0),
):
    run(*line, code=code)
    assert not {"apache_beam", "google.cloud.storage", "grpc", "tensorflow"} & set(sys.modules), line
run("in", "out", "--resize=32", command=convert)
run("validate", "out", "--pool=threads")
assert "apache_beam" in sys.modules
assert "tensorflow" not in sys.modules
"""


def test_commands_import_only_what_they_need_and_no_user_modules_of_the_same_names_as_ours(
    tmp_path: Path,
) -> None:
    """Only those with a job need Beam, and none needs TensorFlow."""
    make_tree(tmp_path / "in")
    shutil.copytree(described("photos"), tmp_path / "made")
    (tmp_path / "transforms.py").write_text("raise SystemExit('the wrong transforms')")
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "__init__.py").write_text("raise SystemExit('the wrong schemas')")
    (tmp_path / "pipelines.py").write_text("raise SystemExit('the wrong pipelines')")
    done = ran(sys.executable, "-c", _PROGRAM, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: ") == len(COMMANDS) + 1
    assert (tmp_path / "sheet.png").exists()


_HERE = Path(__file__).parents[2] / "benchmarks"


def _run(*words: str) -> str:
    return ran(sys.executable, *words, cwd=_HERE, check=True).stdout


@pytest.mark.slow
def test_a_quick_benchmark_gives_a_table_and_a_line_of_the_history(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    assert "| references |" in _run("bench.py", "--quick", "--only=references", f"--history={history}")
    assert len(history.read_text().splitlines()) == 1


def test_the_pages_are_what_the_benchmarks_generate() -> None:
    assert not _run(
        "-c", "import page; assert page.PAGE.read_text() == page.generate(), 'run make bench-docs'"
    )
    page = (_HERE.parent / "docs" / "scale.md").read_text().splitlines()
    missing = [line for line in _run("job_model.py", "1e9").splitlines() if line not in page]
    assert not missing, "run python benchmarks/job_model.py 1e9 and correct docs/scale.md"


def test_reading_without_beam(tmp_path: Path) -> None:
    """Records, batches, `inspect` and the sheet of pictures; other commands say what they need."""
    datasets = [tmp_path / name for name in ("jpeg", "png", "webp")]
    datasets[0].symlink_to(described("photos"))
    datasets[1].symlink_to(described("hostile"))
    convert(input=PHOTOS, output=datasets[2], resize=32, image_format="webp", limit=8, verify="none")
    done = ran(sys.executable, ROOT / "tests/helpers/without_beam.py", "read", *datasets, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for output in datasets:
        assert output.with_suffix(".png").stat().st_size > 1000
    assert "shardwright convert needs " in done.stderr
    for need in ("gs:// needs google-cloud-storage", "s3:// needs obstore", "needs Apache Beam"):
        assert need in done.stderr
