"""The rules of the repository: namespace, packaging, imports, and benchmarks that run."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from helpers.hostile import make_tree
from helpers.repository import ROOT

import shardwright
from shardwright.pipelines.cli import COMMANDS

ROOMS = ("package", "pipelines", "loader", "transforms", "core", "schemas")


def test_the_source_distribution_holds_every_module(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", tmp_path,
         "sdist", "--dist-dir", tmp_path / "dist"],
        cwd=ROOT, check=True, timeout=120, capture_output=True,
    )  # fmt: skip
    (archive,) = (tmp_path / "dist").iterdir()
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    modules = {path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert modules - names == set()
    assert {f"{room}/py.typed" for room in ROOMS} <= names


#: Runs commands that need no Beam in one process, which would keep it.
_WITHOUT_BEAM = """
import sys
from shardwright.pipelines.cli import COMMANDS, main
dataset, images, folder = sys.argv[1:]
assert main(["layouts", "raw"]) == 0 and "numpy" not in sys.modules
for line, code in (
    (["--help"], 0), (["--version"], 0), *(([name, "--help"], 0) for name in COMMANDS),
    (["completion", "bash"], 0), (["layouts"], 0), (["report", dataset], 0),
    (["inspect", dataset, "--contact_sheet", f"{folder}/sheet.png"], 0), (["diff", dataset, dataset], 0),
    (["versions", dataset], 2), (["rollback", dataset], 2),
    (["convert", images, f"{folder}/no", "--resize=x"], 2), (["convert", f"{folder}/none", f"{folder}/o"], 2),
    (["init", images, f"{folder}/pets", "--file", f"{folder}/job.yaml"], 0),
):
    try:
        ended = main(line)
    except SystemExit as end:
        ended = end.code or 0
    assert ended == code, line
    assert not {"apache_beam", "google.cloud.storage", "grpc", "tensorflow"} & set(sys.modules), line
"""
#: Converts with `python -m shardwright.pipelines.convert` and runs other commands, in one process.
_PROGRAM = """
import runpy, sys
from shardwright.pipelines.cli import main
images, output = sys.argv[1:]

def convert():
    try:
        runpy.run_module("shardwright.pipelines.convert", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        return ended.code or 0

for run, line in (
    (convert, [images, output, "--resize=32"]), (main, ["validate", output]),
    (main, ["plan", "--input", images]), (main, ["inspect", output]),
):
    sys.argv[1:] = line
    assert run() == 0, line
assert "apache_beam" in sys.modules
assert "tensorflow" not in sys.modules, "tensorflow was imported"
"""


def test_commands_that_run_no_job_need_no_beam(tmp_path: Path) -> None:
    images = make_tree(tmp_path / "in", 4)
    shardwright.convert(input=images, output=tmp_path / "out")
    command = [sys.executable, "-c", _WITHOUT_BEAM, str(tmp_path / "out"), str(images), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: ") == len(COMMANDS) + 1
    assert (tmp_path / "sheet.png").exists()


def test_commands_import_no_tensorflow_and_no_user_modules_of_the_same_names_as_ours(tmp_path: Path) -> None:
    (tmp_path / "transforms.py").write_text("raise SystemExit('the wrong transforms')")
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "__init__.py").write_text("raise SystemExit('the wrong schemas')")
    (tmp_path / "pipelines.py").write_text("raise SystemExit('the wrong pipelines')")
    make_tree(tmp_path / "in", 6)
    command = [sys.executable, "-c", _PROGRAM, "in", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


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
