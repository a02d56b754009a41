"""Expectations: what files may contain, and the check of a dataset."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwright.schemas.configuration.expectations import DatasetFacts, Expectations, unmet
from shardwright.schemas.configuration.gate_file import parse_gates

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
