"""The notebook runs from its first cell to its last, in a kernel as Jupyter starts it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest
from helpers.repository import ROOT
from nbclient import NotebookClient

NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"
_SECONDS = 600


def texts(notebook: nbformat.NotebookNode) -> str:
    """Returns what the cells printed."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "".join(output.text for output in outputs if output.output_type == "stream")


def test_the_notebook_is_stored_without_results() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    assert NOTEBOOK.stat().st_size < 20_000


def test_the_notebook_converts_looks_trains_and_rebuilds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    photos = sorted((ROOT / "examples" / "photos").rglob("*"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(NOTEBOOK.parent)}}
    NotebookClient(notebook, timeout=_SECONDS, kernel_name="python3", resources=place).execute()
    said = texts(notebook)
    assert "sound: True" in said
    assert "'shards': 2" in said and "'converted': 2" in said and "'added': 2" in said
    losses = re.search(r"loss: (.*)", said)
    assert losses is not None
    first, *_, last = map(float, losses[1].split())
    assert last < first
    pictures = [
        o for cell in notebook.cells for o in cell.get("outputs", ()) if "image/png" in o.get("data", {})
    ]
    assert len(pictures) == 2
    assert sorted((ROOT / "examples" / "photos").rglob("*")) == photos
    assert not list(Path(os.environ["TMPDIR"]).glob("shardwright-*"))
