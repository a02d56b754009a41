"""The general image, as far as it can be checked without a container engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.dockerfiles import allowed_files, copied_files, instructions, steps_of
from helpers.repository import PHOTOS, ROOT

DOCKERFILE = ROOT / "docker" / "Dockerfile"


def test_the_image_copies_files_that_exist_and_are_not_ignored() -> None:
    assert copied_files(DOCKERFILE) == allowed_files(DOCKERFILE)
    for source in copied_files(DOCKERFILE):
        assert (ROOT / source).exists(), source
    rooms = {path.parent.name for path in ROOT.glob("*/py.typed")}
    assert rooms <= copied_files(DOCKERFILE)


def test_the_image_has_the_tested_versions() -> None:
    (python,) = re.findall(r"^PYTHON \?= python([\d.]+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {words[0] for words in instructions(DOCKERFILE, "FROM")} == {f"python:{python}-slim"}
    installs = [rest for name, rest in steps_of(DOCKERFILE) if name == "RUN" and "uv pip install" in rest]
    assert len(installs) == 2 and all("constraints constraints.txt" in rest for rest in installs)


def test_the_image_has_bytecode() -> None:
    steps = steps_of(DOCKERFILE)
    compiles = steps.index(("ENV", "UV_COMPILE_BYTECODE=1"))
    assert compiles < min(number for number, (_, rest) in enumerate(steps) if "uv pip install" in rest)


def test_the_image_runs_the_command_as_an_ordinary_user() -> None:
    final = steps_of(DOCKERFILE)[[name for name, _ in steps_of(DOCKERFILE)].index("FROM", 1) :]
    settings = dict(final)
    assert json.loads(settings["ENTRYPOINT"]) == ["shardwright"]
    user, group = settings["USER"].split(":")
    assert int(user) > 0 and int(group) > 0
    assert "RUN" not in settings, "the last image contains no tool that built it"


@pytest.mark.slow
def test_the_steps_of_the_build_give_a_command_that_converts(tmp_path: Path) -> None:
    """Runs the build's steps in a folder that stands for the root of the image."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "python"], check=True)
    place, search = tmp_path, os.pathsep.join([str(tmp_path / "python" / "bin"), "/usr/bin", "/bin"])
    environment = {**os.environ, "PATH": search, "EXTRAS": "--extra heif"}
    steps = steps_of(DOCKERFILE)
    for name, rest in steps[1 : [name for name, _ in steps].index("FROM", 1)]:
        here = re.sub(r"(?<![\w.])/(src|opt)\b", f"{tmp_path}/\\1", rest)
        if name == "WORKDIR":
            place = Path(here)
        elif name == "COPY":
            *sources, target = here.split()
            for source in sources:
                copy_to(ROOT / source, place / target, target)
        elif name == "ENV":
            environment.update(word.split("=", 1) for word in here.split())
        elif name == "RUN":
            subprocess.run(["sh", "-c", here], cwd=place, env=environment, check=True)
    command = tmp_path / "opt" / "shardwright" / "bin" / "shardwright"
    (packages,) = command.parents[1].glob("lib/python*/site-packages")
    for module in ("shardwright/pipelines/convert", "apache_beam/pipeline"):
        folder, name = (packages / module).parent, (packages / module).name
        assert list(folder.glob(f"__pycache__/{name}.*.pyc")), "every start would compile it"
    options = ["--input", PHOTOS, "--output", "out", "--resize", "16", "--limit", "6"]
    data = tmp_path / "data"
    data.mkdir()
    subprocess.run([command, "convert", *options], cwd=data, env={"HOME": "/tmp"}, check=True, timeout=300)
    assert (data / "out" / "dataset.json").exists()
    subprocess.run([command.with_name("python"), "-c", "import pillow_heif"], check=True)


def copy_to(source: Path, target: Path, written: str) -> None:
    """Copies like COPY: a file into a folder (its name ends with `/` or `.`), or the content of a folder."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        return
    folder = target if written.endswith(("/", ".")) else target.parent
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, folder)
