"""Functions work in a notebook, where Beam looks for pipelines of the user."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from apache_beam.utils import interactive_utils
from helpers.hostile import make_tree

from shardwright.pipelines.convert import convert


def test_a_pipeline_is_built_without_the_interactive_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beam's interactive runner needs packages that we do not install, and older ones than we do."""
    asked = []

    def is_in_ipython() -> bool:
        asked.append(True)
        return True

    monkeypatch.setattr(interactive_utils, "is_in_ipython", is_in_ipython)
    photos = make_tree(tmp_path / "in")
    with ThreadPoolExecutor(2) as pool:  # a notebook may convert two folders at once
        runs = [pool.submit(convert, input=photos, output=tmp_path / f"out{number}") for number in range(2)]
        results = [run.result() for run in runs]
    assert results[0].dataset.fingerprint == results[1].dataset.fingerprint
    assert not asked
    assert interactive_utils.is_in_ipython is is_in_ipython
