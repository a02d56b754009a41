"""`import shardwright` and `python -m shardwright`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.hostile import make_tree

import shardwright
from shardwright import loader, schemas, transforms


@pytest.mark.parametrize("module", [shardwright, loader, transforms], ids=lambda module: module.__name__)
def test_every_public_name_exists(module: object) -> None:
    names = module.__all__  # type: ignore[attr-defined]
    assert names == sorted(names) and set(names) <= set(dir(module))
    for name in names:
        assert getattr(module, name) is not None, name


def test_a_missing_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'shardwright' has no attribute 'convrt'"):
        _ = shardwright.convrt
    assert shardwright.__version__ == schemas.__version__


def test_import_is_light_and_the_module_is_the_command(tmp_path: Path) -> None:
    script = (
        "import sys, shardwright\nassert not {'apache_beam', 'tensorflow', 'numpy', 'PIL'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "shardwright", "--version"], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (0, f"shardwright {shardwright.__version__}\n")


def test_the_package_converts_and_reads(tmp_path: Path) -> None:
    made = shardwright.convert(
        input=str(make_tree(tmp_path / "in")), output=str(tmp_path / "out"), resize="8"
    )
    records = shardwright.Records(str(tmp_path / "out"), split="train")
    assert len(records) == made.dataset.all_records > 0
