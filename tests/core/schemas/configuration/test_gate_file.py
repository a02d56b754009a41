"""The gate language of `validate --expect`, `diff --thresholds` and job files."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from shardwright.schemas.configuration.gates import (
    DatasetFacts,
    Expectations,
    GateFile,
    Policy,
    Thresholds,
    parse_gates,
    unmet,
)
from shardwright.schemas.errors import UsageError

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
    assert gates == GateFile(
        fail_on=("SPLIT_LEAKAGE", "BOX_RANGE"), warn_on=("COUNT_MISMATCH",),
        min_images=5, required_classes=("ant",), max_bad_fraction=0.1, max_fraction={"DARK": 0.001},
        max_count_drop=0.2, vanished_classes=Policy.REFUSE,
    )  # fmt: skip
    assert gates.named(Thresholds) == ("max_bad_fraction", "max_count_drop", "vanished_classes")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("expect: other.yaml", "line 1, column 1: there is no gate 'expect'"),
        ("zzz: 1", r"line 1, column 1: there is no gate 'zzz'; choose from fail_on, warn_on, min_images, "),
        ("\n  max_aded_fraction: 1", r"line 2, column 3: .*did you mean max_added_fraction\?$"),
        ("# one\n\nmin_images: many", "line 3, column 1: min_images: write a whole number from 0 on, not"),
        ("min_width: x\nmin_images: x", "line 1, column 1: min_width: write a whole number from 0 on"),
        ("min_images: true", "min_images: write a whole number from 0 on, not 'true'."),
        ("min_images_per_split: 5", "write a number for each split"),
        ("min_images_per_split: {train: 1.5}", "write a whole number"),
        ("min_images_per_split: {train: -1}", "column 24: .*whole number"),
        ("min_width: 9\nmax_width: 8", "line 1, column 1: min_width 9 is above max_width 8."),
        *(
            (f"{name}: 5", r"a limit of 5 is above 1 and never refuses anything; .* 0\.05 for 5%\.$")
            for name in ("max_count_drop", "max_removed_fraction", "max_bad_fraction", "max_class_l_infinity")
        ),
        ("max_fraction: {DARK: 3}", "write a share from 0 to 1, such as 0.03 for 3%"),
        ("max_fraction: {DRK: 0.1}", r"column 16: max_fraction: .* 'DRK'; did you mean DARK\?$"),
        ("max_aspect_ratio: .nan", "write a number from 1 on"),
        ("max_added_fraction: .inf", "write a number"),
        ("max_added_fraction: true", "write a number"),
        ("max_added_fraction: 5%", "not '5%'"),
        ("max_rise: 0.1", r"write a limit for each name, such as \{DARK"),
        ("max_rise:\n  DARKK: 1", r"line 2, column 3: max_rise: .*did you mean DARK\?$"),
        ("max_rise:\n  {DARK: -1}", r"line 2, column 4: max_rise: write a number such as 0.05, not '-1'\.$"),
        ("max_statistics_change: 0.1", r"such as \{brightness"),
        ("max_statistics_change: {1: 0.1}", "column 25: .*in quotes"),
        ("allowed_formats: [pgn]", r"'pgn' is not one of jpeg, png, webp, raw; did you mean png\?$"),
        ("allowed_formats: []", r"allowed_formats: write a list of formats, such as \[jpeg, png\], not"),
        ("allowed_dtypes: int8", r"allowed_dtypes: write a list of types, such as \[uint8\], not 'int8'"),
        ("required_classes: cat", "write a list of names"),
        ("fail_on: [DRAK]", r"column 1: fail_on: there is no finding 'DRAK'; did you mean DARK\?"),
        ("fail_on: [DARK: 0.1]", r"column 1: fail_on: there is no finding .\{.DARK.: 0.1\}.; see"),
        ("fail_on: DARK\nwarn_on: dark", "column 1: fail_on: DARK is also in warn_on; choose one."),
        ("new_classes: deny", "new_classes: write refuse, warn or allow, not 'deny'."),
        ("new_classes: no", "write refuse, warn or allow, not 'false'"),
        ("min_images:", "min_images has no value; write one or take it out."),
        ("min_images: 1\nmin_images: 2", "'min_images' occurs twice"),
        ("- min_images", "write one `gate: value` on each line"),
        ("max_rise: {a", "it is not YAML in line 1"),
    ],
)
def test_messages_name_the_line_the_value_and_what_to_write(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_gates(text, "--expect", "gates.yaml")
    message = caught.value.message
    assert message.startswith("--expect gates.yaml") and "\n" not in message
    assert re.search(says, message), message


def test_shares_may_be_one_and_limits_on_growth_more() -> None:
    text = "max_count_drop: 1\nmax_count_jump: 5\nmax_added_fraction: 5\n"
    limits = GateFile(max_count_drop=1.0, max_count_jump=5.0, max_added_fraction=5.0)
    assert parse_gates(text, "--thresholds", "limits.yaml") == limits


FACTS = DatasetFacts(
    records={"train": 80, "test": 20},
    classes={"cat": 70, "dog": 30, "yak": 0},
    formats={"jpeg": 90, "png": 10},
    dtypes={"uint8": 100},
    bad_fraction=0.02,
    findings={"DARK": 5},
    widths=(32, 640),
    heights=(48, 480),
    aspect_ratio=3.5,
)

#: A value that the facts meet exactly, the closest value that they miss, and the message then.
CASES = [
    ("min_images", 100, 101, "it has 100 images, less than 101"),
    ("max_images", 100, 99, "it has 100 images, more than 99"),
    ("min_images_per_split", {"test": 20}, {"test": 21}, "split 'test' has 20 images, less than 21"),
    ("min_images_per_class", 0, 1, "class 'yak' (0) has less than 1 image"),
    ("max_images_per_class", 70, 69, "class 'cat' (70) has more than 69 images"),
    ("min_classes", 2, 3, "2 classes have images, less than 3"),
    ("max_classes", 2, 1, "2 classes have images, more than 1"),
    ("required_classes", ["cat"], ["cat", "yak"], "class 'yak' is without images"),
    ("allowed_classes", ["cat", "dog"], ["cat"], "class 'dog' is not among those that are allowed"),
    ("allowed_formats", ["jpeg", "png"], ["jpeg"], "10 images are stored as png"),
    ("allowed_dtypes", ["uint8", "uint16"], ["uint16"], "100 images have samples of type uint8"),
    ("min_width", 32, 33, "the smallest width is 32, less than 33"),
    ("max_width", 640, 639, "the largest width is 640, more than 639"),
    ("min_height", 48, 49, "the smallest height is 48, less than 49"),
    ("max_height", 480, 479, "the largest height is 480, more than 479"),
    ("max_aspect_ratio", 3.5, 3.4, "the largest aspect ratio is 3.5 (limit 3.4)"),
    ("max_bad_fraction", 0.02, 0.019, "2% of the images are quarantined (limit 1.9%)"),
    ("max_fraction", {"DARK": 0.05}, {"DARK": 0.04}, "5% of the records are DARK (5 of 100; limit 4%)"),
]


def parsed(name: str, value: object) -> GateFile:
    return parse_gates(f"{name}: {value!r}\n".replace("'", '"'), "--expect", "e.yaml")


@pytest.mark.parametrize(("name", "met", "missed", "message"), CASES, ids=[case[0] for case in CASES])
def test_each_expectation_is_met_up_to_its_limit_and_no_further(
    name: str, met: object, missed: object, message: str
) -> None:
    assert list(unmet(parsed(name, met), FACTS)) == []
    (violation,) = unmet(parsed(name, missed), FACTS)
    assert (violation.name, violation.message) == (name, f"{name}: {message}")
    assert (violation.gate, violation.severity) == ("expectations", "error")
    assert parsed(name, met).named(Expectations) == (name,)


def test_a_share_of_findings_is_met_exactly() -> None:
    facts = replace(FACTS, findings={"DARK": 29})  # 0.29 * 100 is below 29
    assert list(unmet(GateFile(max_fraction={"DARK": 0.29}), facts)) == []


def test_every_expectation_has_a_case() -> None:
    assert [case[0] for case in CASES] == list(Expectations.model_fields)


def test_unknown_facts_miss_no_expectation() -> None:
    unknown = replace(FACTS, widths=None, heights=None, aspect_ratio=None, bad_fraction=None)
    expected = GateFile(min_width=1000, min_height=1000, max_aspect_ratio=1.0, max_bad_fraction=0.0)
    assert list(unmet(expected, unknown)) == []
    assert expected.measured_names() == ("min_width", "min_height", "max_aspect_ratio")
    assert GateFile(max_fraction={"DATA_CRC": 0.0}).measured_names() == ()
    assert GateFile(min_classes=2).measured_names() == ()
    assert GateFile(allowed_formats=("png",)).measured_names(counted=False) == ("allowed_formats",)
    assert GateFile(max_fraction={"DARK": 0.0}).measured_names() == ("max_fraction",)
