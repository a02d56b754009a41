"""The rules of the repository: namespace, packaging, imports, docstrings."""

from __future__ import annotations

import ast
import subprocess
import sys
import tarfile
import tokenize
from pathlib import Path

import pytest
from helpers.repository import ROOT

ROOMS = ("package", "pipelines", "loader", "transforms", "schemas")


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
    ("room", "forbidden"), [("schemas", ("apache_beam", "tensorflow")), ("loader", ("apache_beam",))]
)
def test_rooms_without_large_packages_import_none(room: str, forbidden: tuple[str, ...]) -> None:
    """That the rooms import each other one way is a contract of import-linter."""
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
