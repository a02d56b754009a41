"""The gate language of `validate --expect`, `diff --thresholds` and job files; older forms are still read."""

from __future__ import annotations

import pytest

from shardwright.schemas.configuration.expectations import Expectations
from shardwright.schemas.configuration.gate_file import gate_names, gates_from, parse_gates
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
    assert gates.notes == ()
    assert gates.alone.max_bad_fraction == 0.1 and gates.alone.min_images == 5
    assert gates.limits.names == ("max_count_drop", "max_bad_fraction", "vanished_classes")


def test_every_expectation_and_every_limit_is_a_gate() -> None:
    known = {*Expectations.__dataclass_fields__, *Thresholds.__dataclass_fields__}
    assert set(gate_names()) == known | {"fail_on", "warn_on", "expect"}


def test_older_forms_are_read_with_a_note() -> None:
    older = gates_from({"min_records": 7, "expect": {"min_images": 5, "max_bad_fraction": 0.2}})
    assert older.limits == Thresholds(min_records=7)
    assert older.expectations == Expectations(min_images=5, max_bad_fraction=0.2)
    assert older.notes == (
        "expect: its gates can now stand directly below gates:, without expect:",
        "min_records: write min_images instead",
    )
    assert gates_from({"min_records": {"train": 1}}).notes == (
        "min_records: write min_images_per_split instead",
    )
    assert older == JobGates(Gates(), older.expectations, older.limits), "notes are not part of the gates"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "min_images: 3\nexpect: {min_images: 5}",
            "line 1, column 1: min_images occurs twice, here and below",
        ),
        (
            "expect:\n  min_images: x",
            "line 2, column 3: min_images: write a whole number from 0 on, not 'x'.",
        ),
        ("expect:\n  max_count_drop: 1", "line 2, column 3: there is no gate 'max_count_drop'"),
        ("expect: other.yaml", "line 1, column 1: expect: write the gates of the dataset below it."),
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
