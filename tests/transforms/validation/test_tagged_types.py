"""The types of a step's outputs, in Beam versions with and without types of tagged outputs."""

from __future__ import annotations

import apache_beam as beam
import pytest

from shardwright.transforms.validation import tagged_types
from shardwright.transforms.validation.tagged_types import with_tagged_types


class _Split(beam.DoFn):
    def process(self, element: int):
        yield element
        yield beam.pvalue.TaggedOutput("words", str(element))


def outputs(pipeline: beam.Pipeline) -> beam.pvalue.DoOutputsTuple:
    step = with_tagged_types(beam.ParDo(_Split()), int, {"words": str})
    return pipeline | beam.Create([1, 2]) | step.with_outputs("words", main="numbers")


def test_each_output_has_its_type() -> None:
    if not tagged_types._ACCEPTS_TAGS:
        pytest.skip("this Beam has no types of tagged outputs")
    made = outputs(beam.Pipeline())
    assert made.numbers.element_type is int and made.words.element_type is str


def test_older_versions_get_the_type_of_the_main_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagged_types, "_ACCEPTS_TAGS", False)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        made = outputs(pipeline)
        assert made.numbers.element_type is int and made.words.element_type is not str
        words = made.words | beam.combiners.ToList()
        _ = words | beam.Map(lambda found: _check(found))


def _check(found: list[str]) -> None:
    assert sorted(found) == ["1", "2"]
