"""The computed needs of a large job, and the page that shows them."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_model import compute, print_model

_PAGE = Path(__file__).parents[2] / "docs" / "scale.md"


def test_the_page_shows_what_the_model_prints(capsys: pytest.CaptureFixture[str]) -> None:
    print_model(10**9, {})
    page = _PAGE.read_text().splitlines()
    missing = [line for line in capsys.readouterr().out.splitlines() if line not in page]
    assert not missing, "run python benchmarks/job_model.py 1e9 and correct docs/scale.md"


def test_more_workers_than_class_folders_do_not_list_faster() -> None:
    def hours(**given: float) -> float:
        return compute(10**6, given)["hours to list, each class on a vCPU"][0]

    assert hours(classes=10, cores=1000) == hours(classes=10, cores=10)
    assert hours(classes=10, cores=5) == 2 * hours(classes=10, cores=10)
    assert hours(classes=1) == compute(10**6, {})["hours to list, one class folder"][0]
