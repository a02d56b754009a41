"""The rules of the repository: namespace, packaging, imports, docstrings."""

from __future__ import annotations

import ast
import subprocess
import sys
import tarfile
import tokenize
from pathlib import Path

import pytest
from helpers.repository import PHOTOS, ROOT

ROOMS = ("package", "pipelines", "loader", "transforms", "schemas")
COMMAND = Path(sys.executable).with_name("shardwright")


#: Runs `python -m shardwright.pipelines.convert` and other commands in one process: each imports Beam.
_COMMANDS = f"""
import runpy, sys
from shardwright.pipelines.cli import main
sys.argv = ["convert", "--input", {str(PHOTOS)!r}, "--output", "out", "--resize", "16", "--limit", "6",
            "--runner=FnApiRunner", "--direct_num_workers=1"]
try:
    runpy.run_module("shardwright.pipelines.convert", run_name="__main__", alter_sys=True)
except SystemExit as ended:
    assert not ended.code, ended
assert main(["validate", "--dataset", "out"]) == 0
assert main(["plan", "--input", {str(PHOTOS)!r}]) == 0
assert main(["inspect", "out"]) == 0
assert "apache_beam" in sys.modules
assert "tensorflow" not in sys.modules, "tensorflow was imported"
"""


def test_commands_import_no_tensorflow_and_no_user_modules_of_the_same_names_as_ours(tmp_path: Path) -> None:
    (tmp_path / "transforms.py").write_text("raise SystemExit('the wrong transforms')")
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "__init__.py").write_text("raise SystemExit('the wrong schemas')")
    (tmp_path / "pipelines.py").write_text("raise SystemExit('the wrong pipelines')")
    subprocess.run([sys.executable, "-c", _COMMANDS], cwd=tmp_path, check=True, timeout=120)
    subprocess.run([COMMAND, "inspect", "out"], cwd=tmp_path, check=True, timeout=60)


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


def imported(text: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize(
    ("room", "forbidden"),
    [
        (
            "schemas",
            (
                "apache_beam",
                "tensorflow",
                "shardwright.transforms",
                "shardwright.pipelines",
                "shardwright.loader",
            ),
        ),
        ("transforms", ("shardwright.pipelines", "shardwright.loader")),
        ("loader", ("apache_beam", "shardwright.pipelines")),
        ("pipelines", ("shardwright.loader",)),
    ],
)
def test_imports_point_one_way(room: str, forbidden: tuple[str, ...]) -> None:
    for path in (ROOT / room).rglob("*.py"):
        text = path.read_text()
        if any(name in text for name in forbidden):
            wrong = {name for name in imported(text) if name.startswith(forbidden)}
            assert not wrong, f"{path} imports {wrong}"


def begins_with_docstring(path: Path) -> bool:
    """Returns whether the first statement of a file is a string with a text."""
    before = (tokenize.ENCODING, tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE)
    with path.open("rb") as file:
        first = next(token for token in tokenize.tokenize(file.readline) if token.type not in before)
    return first.type == tokenize.STRING and bool(ast.literal_eval(first.string).strip())


def test_files_have_docstrings() -> None:
    for room in (*ROOMS, "tests", "benchmarks", "deploy", "examples"):
        for path in (ROOT / room).rglob("*.py"):
            if path.stat().st_size:
                assert begins_with_docstring(path), f"{path} has no docstring"
