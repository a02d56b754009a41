"""The notebook runs from its first cell to its last, in this process and in a kernel as Jupyter starts it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.fewer_imports import late
from helpers.repository import EXAMPLES, PHOTOS, ROOT

nbclient = late("nbclient")
nbformat = late("nbformat")

NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"
_SECONDS = 600


def check_texts(output: str) -> None:
    """Checks what the cells printed: a sound dataset, a falling loss, and a rebuild of two shards."""
    assert "sound: True" in output
    assert "'shards': 2" in output and "'converted': 2" in output and "'added': 2" in output
    losses = re.search(r"loss: (.*)", output)
    assert losses is not None
    first, *_, last = map(float, losses[1].split())
    assert last < first


def test_the_notebook_is_stored_without_results() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    assert NOTEBOOK.stat().st_size < 20_000


@pytest.mark.slow  # the pages of docs/ run the same commands
def test_the_cells_convert_look_train_and_rebuild(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "photos").symlink_to(PHOTOS)
    monkeypatch.chdir(tmp_path)
    photos = sorted(PHOTOS.rglob("*"))
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(nbformat.read(NOTEBOOK, as_version=4).cells):
        if cell.cell_type == "code":
            exec(compile(cell.source, f"cell {number}", "exec"), names)
    check_texts(capsys.readouterr().out)
    assert names["sheet"].getbbox() == (0, 0, 576, 192)
    assert sorted(PHOTOS.rglob("*")) == photos
    assert not names["work"].exists()


@pytest.mark.slow  # its kernel imports Beam and TensorFlow anew
def test_the_notebook_runs_in_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    photos = sorted(EXAMPLES.rglob("*"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(NOTEBOOK.parent)}}
    nbclient.NotebookClient(notebook, timeout=_SECONDS, kernel_name="python3", resources=place).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    check_texts("".join(output.text for output in outputs if output.output_type == "stream"))
    assert len([output for output in outputs if "image/png" in output.get("data", {})]) == 1
    assert sorted(EXAMPLES.rglob("*")) == photos
    assert not list(Path(os.environ["TMPDIR"]).glob("shardwright-*"))
