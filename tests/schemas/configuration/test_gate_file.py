"""The gate language of `validate --expect`, `diff --thresholds` and job files; older forms are still read."""

from __future__ import annotations

import pytest

from shardwright.schemas.configuration.expectations import Expectations
from shardwright.schemas.configuration.gate_file import parse_gates
from shardwright.schemas.configuration.job import JobGates
from shardwright.schemas.configuration.thresholds import Policy, Thresholds
from shardwright.schemas.errors import UsageError
from shardwright.schemas.findings import Gates

WHOLE = """
fail_on: [SPLIT_LEAKAGE, box_range]
warn_on: count_mismatch
min_images: 5
required_classes: [ant]
max_bad_fraction: 0.1
max_fraction: {dark: 1e-3}
max_count_drop: 0.2
vanished_classes: refuse
"""


def test_a_file_holds_gates_on_findings_the_dataset_and_its_difference() -> None:
    gates = parse_gates(WHOLE, "--expect", "gates.yaml")
    assert gates == JobGates(
        Gates(("SPLIT_LEAKAGE", "BOX_RANGE"), ("COUNT_MISMATCH",)),
        Expectations(min_images=5, required_classes=("ant",), max_fraction={"DARK": 0.001}),
        Thresholds(max_count_drop=0.2, max_bad_fraction=0.1, vanished_classes=Policy.REFUSE),
    )
    assert gates.alone.max_bad_fraction == 0.1 and gates.alone.min_images == 5
    assert gates.limits.names == ("max_count_drop", "max_bad_fraction", "vanished_classes")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("expect: other.yaml", "line 1, column 1: there is no gate 'expect'"),
        ("a: 1\nmin_images: x", "line 1, column 1: there is no gate 'a'"),
        (
            "min_width: x\nmin_images: x",
            "line 1, column 1: min_width: write a whole number from 0 on, not 'x'.",
        ),
        ("fail_on: [DRAK]", "line 1, column 1: fail_on: there is no finding 'DRAK'; did you mean DARK?"),
        (
            "fail_on: DARK\nwarn_on: dark",
            "line 1, column 1: DARK is in both fail_on and warn_on; choose one.",
        ),
        ("new_classes: deny", "new_classes: write refuse, warn or allow, not 'deny'."),
    ],
)
def test_messages_name_the_line_the_value_and_what_to_write(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_gates(text, "--expect", "gates.yaml")
    assert caught.value.message.startswith("--expect gates.yaml, ") and says in caught.value.message
