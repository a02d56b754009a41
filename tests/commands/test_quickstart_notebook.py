"""The notebook runs from its first cell to its last, in this process and in a kernel as Jupyter starts it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from helpers.fewer_imports import late
from helpers.repository import PHOTOS, ROOT

nbclient = late("nbclient")
nbformat = late("nbformat")

NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"


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
