"""Reading a dataset needs none of the packages that the distribution `shardwright-reader` leaves out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.repository import PHOTOS, ROOT

from shardwright.pipelines.convert import convert

READ = ROOT / "tests" / "helpers" / "without_beam.py"


@pytest.fixture(scope="module")
def dataset_of_format(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Image format -> a finished dataset of some example pictures."""
    root = tmp_path_factory.mktemp("formats")
    for name in ("jpeg", "png", "webp"):
        convert(input=str(PHOTOS), output=str(root / name), resize=32, image_format=name, limit=8)
    return {name: root / name for name in ("jpeg", "png", "webp")}


def test_reading_without_beam(dataset_of_format: dict[str, Path], tmp_path: Path) -> None:
    """Records, batches, `inspect` and the sheet of pictures; other commands say what they need."""
    command = [sys.executable, READ, "read", *dataset_of_format.values()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in dataset_of_format:
        assert (tmp_path / f"{name}.png").stat().st_size > 1000
    assert "shardwright convert needs " in done.stderr
    for need in ("gs:// needs google-cloud-storage", "s3:// needs obstore", "needs Apache Beam"):
        assert need in done.stderr


@pytest.mark.slow  # its process imports TensorFlow; `make package-test` runs it, too
def test_training_without_beam(dataset_of_format: dict[str, Path], tmp_path: Path) -> None:
    """`load`, and `parse.py` in the dataset."""
    command = [sys.executable, READ, "train", dataset_of_format["jpeg"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
