"""The records of every layout equal those of the golden file, so a change of them is deliberate."""

from __future__ import annotations

import json
from pathlib import Path

import golden_records
import pytest

RECORDS = json.loads((Path(__file__).parent / "records.json").read_text("utf-8"))


@pytest.mark.parametrize("name", RECORDS)
def test_records_equal_those_of_the_golden_file(name: str) -> None:
    made = golden_records.record(golden_records.layouts()[name])
    assert golden_records.shown(made) == RECORDS[name]["features"]
    assert made.hex() == RECORDS[name]["record"]


def test_every_layout_has_a_golden_record() -> None:
    assert [*RECORDS] == [*golden_records.layouts()]
