"""Expectations: what files may contain, messages about wrong files, and the check of a dataset."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwright.schemas.configuration.expectations import DatasetFacts, Expectations, unmet
from shardwright.schemas.configuration.gate_file import parse_gates
from shardwright.schemas.errors import UsageError

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


def parsed(name: str, value: object) -> Expectations:
    return parse_gates(f"{name}: {value!r}\n".replace("'", '"'), "--expect", "e.yaml").alone


@pytest.mark.parametrize(("name", "met", "missed", "message"), CASES, ids=[case[0] for case in CASES])
def test_each_expectation_is_met_up_to_its_limit_and_no_further(
    name: str, met: object, missed: object, message: str
) -> None:
    assert list(unmet(parsed(name, met), FACTS)) == []
    (violation,) = unmet(parsed(name, missed), FACTS)
    assert (violation.name, violation.message) == (name, f"{name}: {message}")
    assert (violation.gate, violation.severity) == ("expectations", "error")
    assert parsed(name, met).names == (name,)


def test_every_expectation_has_a_case() -> None:
    assert [case[0] for case in CASES] == list(Expectations.__dataclass_fields__)


def test_unknown_facts_miss_no_expectation() -> None:
    unknown = replace(FACTS, widths=None, heights=None, aspect_ratio=None, bad_fraction=None)
    expected = Expectations(min_width=1000, min_height=1000, max_aspect_ratio=1.0, max_bad_fraction=0.0)
    assert list(unmet(expected, unknown)) == []
    assert expected.measured_names() == ("min_width", "min_height", "max_aspect_ratio")
    assert Expectations(max_fraction={"DATA_CRC": 0.0}).measured_names() == ()
    assert Expectations(min_classes=2).measured_names() == ()
    assert Expectations(min_classes=2).measured_names(counted=False) == ("min_classes",)
    assert Expectations(max_fraction={"DARK": 0.0}).measured_names() == ("max_fraction",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("min_imagse: 3", "line 1, column 1: there is no gate 'min_imagse'; did you mean min_images?"),
        (
            "# one\n\nmin_images: many",
            "line 3, column 1: min_images: write a whole number from 0 on, not 'many'.",
        ),
        ("min_images: true", "min_images: write a whole number from 0 on, not 'true'."),
        ("min_images: -1", "write a whole number from 0 on"),
        (
            "max_bad_fraction: 2",
            "max_bad_fraction: a limit of 2 is above 1 and never refuses anything; write a share",
        ),
        ("max_aspect_ratio: .nan", "write a number from 1 on"),
        ("max_aspect_ratio: .inf", "write a number from 1 on"),
        ("allowed_formats: [gif]", "allowed_formats: choose formats from jpeg, png, webp, raw, not"),
        ("allowed_dtypes: [int8]", "allowed_dtypes: choose types from uint8, uint16, float32, not"),
        ("required_classes: cat", "write a list of names"),
        ("min_images_per_split: 5", "write a number for each split"),
        (
            "max_fraction: {DRK: 0.1}",
            "line 1, column 16: max_fraction: there is no finding 'DRK'; did you mean DARK?",
        ),
        ("max_fraction: {DARK: 3}", "write a share from 0 to 1, such as 0.03 for 3%"),
        ("min_width: 9\nmax_width: 8", "line 1, column 1: min_width 9 is above max_width 8."),
        ("min_images: 1\nmin_images: 2", "'min_images' occurs twice"),
        ("- min_images", "write one `gate: value` on each line"),
        ("min_images:", "min_images has no value; write one or take it out."),
        ("a: [", "it is not YAML in line"),
    ],
)
def test_wrong_files_are_refused_with_the_line_and_what_to_write(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_gates(text, "--expect", "e.yaml")
    assert str(refused.value).startswith("--expect e.yaml")
    assert message in str(refused.value)
