"""Builds the distributions, installs each in an empty environment with uv, and uses it there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from helpers.repository import PHOTOS, ROOT, copy_source

pytestmark = pytest.mark.slow

READ = ROOT / "tests" / "helpers" / "without_beam.py"


def uv(*arguments: str | Path) -> None:
    found = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if found is None:
        pytest.skip("uv is not installed")
    subprocess.run([found, *arguments], check=True, timeout=600)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution, and the wheel of the reader."""
    folder = tmp_path_factory.mktemp("built")
    tree = copy_source(folder / "tree", "reader")
    pinned = ["--quiet", "--out-dir", folder, "--build-constraints", ROOT / "constraints.txt"]
    uv("build", *pinned, tree)
    uv("build", *pinned, "--wheel", tree / "reader")
    return folder


def distribution(built: Path, pattern: str) -> Path:
    (found,) = built.glob(pattern)
    return found


def installed(environment: Path, *what: str | Path) -> Path:
    """Installs into a new environment; returns its folder of commands."""
    uv("venv", "--quiet", "--python", sys.executable, environment)
    pinned = ["--constraints", ROOT / "constraints.txt", "--build-constraints", ROOT / "constraints.txt"]
    uv("pip", "install", "--quiet", "--python", environment, *pinned, *what)
    uv("pip", "check", "--quiet", "--python", environment)
    return environment / "bin"


def run(folder: Path, *command: str | Path) -> str:
    """Runs a command outside of the repository; returns its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=300
    )
    return done.stdout


def test_the_metadata_can_be_published(built: Path) -> None:
    twine = pytest.importorskip("twine.commands.check")
    files = [str(path) for path in sorted(built.glob("shardwright*"))]
    assert len(files) == 3
    assert twine.check(files, strict=True) is False, "it returns whether anything failed"


def test_both_wheels_have_the_same_files(built: Path) -> None:
    contents = []
    for pattern in ("shardwright-*.whl", "shardwright_reader-*.whl"):
        with zipfile.ZipFile(distribution(built, pattern)) as wheel:
            names = [name for name in wheel.namelist() if ".dist-info/" not in name]
            contents.append({name: wheel.read(name) for name in names})
    assert contents[0] == contents[1] and len(contents[0]) > 250
    assert all(name.startswith("shardwright/") for name in contents[0])


@pytest.mark.parametrize("pattern", ["shardwright-*.whl", "shardwright-*.tar.gz"], ids=["wheel", "sdist"])
def test_the_demo_runs_where_only_the_distribution_is_installed(
    built: Path, pattern: str, tmp_path: Path
) -> None:
    commands = installed(tmp_path / "environment", distribution(built, pattern))
    command = commands / "shardwright"
    options = ["--resize", "224", "--fit", "pad", "--splits", "train=0.8,validation=0.1,test=0.1"]
    run(tmp_path, command, "convert", "--input", PHOTOS, "--output", "out", *options)
    run(tmp_path, command, "validate", "--dataset", "out")
    run(tmp_path, command, "inspect", "out", "--records", "1", "--contact_sheet", "sheet.png")
    assert all((tmp_path / name).stat().st_size > 10_000 for name in ("out/report.html", "sheet.png"))
    code = "import shardwright; print(shardwright.__version__, len(shardwright.Records('out')))"
    version, records = run(tmp_path, commands / "python", "-c", code).split()
    assert f"-{version}" in distribution(built, pattern).name and int(records) > 40


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset that an installation with Beam wrote."""
    from shardwright.pipelines.convert import convert

    output = tmp_path_factory.mktemp("dataset") / "out"
    convert(input=str(PHOTOS), output=str(output), resize=32, limit=8)
    return output


def test_the_reader_reads(built: Path, dataset: Path, tmp_path: Path) -> None:
    """Without an extra: `Records` and `inspect`; other commands say what they need."""
    reader = distribution(built, "shardwright_reader-*.whl")
    commands = installed(tmp_path / "environment", reader)
    packages = {
        path.name.partition("-")[0] for path in (tmp_path / "environment").glob("lib/*/*/*.dist-info")
    }
    assert not packages & {"apache_beam", "pyarrow", "pycocotools", "tensorflow"}
    run(tmp_path, commands / "python", READ, "read", dataset)
    assert (tmp_path / f"{dataset.name}.png").stat().st_size > 10_000


def test_the_reader_trains(built: Path, dataset: Path, tmp_path: Path) -> None:
    """With the extra `tensorflow`: `load` and `parse.py`; with `gcs`, the client of gs:// too."""
    reader = distribution(built, "shardwright_reader-*.whl")
    commands = installed(tmp_path / "environment", f"shardwright-reader[tensorflow,gcs] @ {reader.as_uri()}")
    run(tmp_path, commands / "python", READ, "train", dataset)
    code = (
        "from shardwright.core.storage import gcs\n"
        "import os; os.environ['STORAGE_EMULATOR_HOST'] = 'http://127.0.0.1:9'\n"
        "print(type(gcs.GcsStore().client().bucket('any')).__module__)"
    )
    assert run(tmp_path, commands / "python", "-c", code).strip() == "google.cloud.storage.bucket"
