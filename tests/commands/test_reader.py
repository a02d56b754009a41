"""Reading a dataset needs none of the packages that the distribution `shardwright-reader` leaves out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from helpers.described import described
from helpers.repository import PHOTOS, ROOT

from shardwright.pipelines.convert import convert

READ = ROOT / "tests" / "helpers" / "without_beam.py"


def test_reading_without_beam(tmp_path: Path) -> None:
    """Records, batches, `inspect` and the sheet of pictures; other commands say what they need."""
    datasets = [tmp_path / name for name in ("jpeg", "png", "webp")]
    datasets[0].symlink_to(described("photos"))
    datasets[1].symlink_to(described("hostile"))
    convert(input=PHOTOS, output=datasets[2], resize=32, image_format="webp", limit=8, verify="none")
    command = [sys.executable, READ, "read", *datasets]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for output in datasets:
        assert output.with_suffix(".png").stat().st_size > 1000
    assert "shardwright convert needs " in done.stderr
    for need in ("gs:// needs google-cloud-storage", "s3:// needs obstore", "needs Apache Beam"):
        assert need in done.stderr
