"""The records of every layout equal those of the golden file, so a change of them is deliberate."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parents[2] / "contract" / "golden"
RECORDS = json.loads((GOLDEN / "records.json").read_text("utf-8"))


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("golden_records", GOLDEN / "golden_records.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", RECORDS)
def test_records_equal_those_of_the_golden_file(name: str) -> None:
    script = _script()
    made = script.record(script.layouts()[name])
    assert script.shown(made) == RECORDS[name]["features"]
    assert made.hex() == RECORDS[name]["record"]


def test_every_layout_has_a_golden_record() -> None:
    assert [*RECORDS] == [*_script().layouts()]
