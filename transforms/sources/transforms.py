"""`ListSources`: lists the inputs as a PCollection of references."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import apache_beam as beam

from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId
from shardwright.transforms.concurrency.progress import PROGRESS
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.sources.confinement import Confinement
from shardwright.transforms.sources.label_rules import LabelRules
from shardwright.transforms.sources.selection import ListingRules
from shardwright.transforms.sources.skipped_formats import without_skipped
from shardwright.transforms.sources.source import Context, Input, InputSplit, source_by_name, whole

_CLASS_IDS = "class_ids"


def split_inputs(inputs: Sequence[Input], context: Context) -> Iterator[InputSplit]:
    """Yields the splits of the inputs, which workers list in parallel."""
    for item in inputs:
        yield from UNDERWAY.each(source_by_name(item.source).split(item, context), item.path, "list")


def list_part(
    part: InputSplit, context: Context, rules: LabelRules, selection: ListingRules | None = None
) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for every item in a split, in any order, with all rules applied."""
    selection = selection or ListingRules()
    confinement = Confinement(part.item, context) if context.settings.confine else None
    listed = source_by_name(part.item.source).list_part(part, context)
    for found in UNDERWAY.each(listed, part.path, "list"):
        if isinstance(found, ClassId):
            if rules.class_stored:
                yield found
            continue
        PROGRESS.add(listed=1)
        if confinement is not None:
            found = confinement.check(found)
        found = without_skipped(found, context.settings.skipped_formats)
        yield rules.apply(selection.apply(found))


class _ListPart(beam.DoFn):
    def __init__(self, context: Context, rules: LabelRules, selection: ListingRules) -> None:
        self._context = context
        self._rules = rules
        self._selection = selection

    def process(self, part: InputSplit) -> Iterator[ImageRef | beam.pvalue.TaggedOutput]:
        for found in list_part(part, self._context, self._rules, self._selection):
            yield beam.pvalue.TaggedOutput(_CLASS_IDS, found) if isinstance(found, ClassId) else found


class ListSources(beam.PTransform):
    """Lists the inputs. `PBegin -> (PCollection[ImageRef], PCollection[ClassId])`.

    The second result contains the ids that sources give to class names; it may have duplicates. Applied to
    a PCollection of one element, it lists the inputs once that element is ready.

    Args:
      inputs: Checked inputs.
      context: Settings and a directory for spool files.
      rules: Rules for class names.
      selection: Rules that leave out images. None to take all.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        context: Context,
        rules: LabelRules,
        selection: ListingRules | None = None,
    ) -> None:
        super().__init__()
        self._selection = selection or ListingRules()
        self._inputs = tuple(inputs)
        self._context = context
        self._rules = rules

    def expand(
        self, begin: beam.pvalue.PBegin | beam.PCollection
    ) -> tuple[beam.PCollection, beam.PCollection]:
        """Applies the transform."""
        inputs, context = self._inputs, self._context
        if isinstance(begin, beam.pvalue.PBegin):
            begin = begin | "Begin" >> beam.Impulse()  # bytes
        parts = begin | "SplitInputs" >> beam.FlatMap(
            lambda _: split_inputs(inputs, context)
        ).with_output_types(InputSplit)  # InputSplit
        if len(self._inputs) > 1 or source_by_name(self._inputs[0].source).split is not whole:
            parts = parts | "SpreadOut" >> beam.Reshuffle()  # InputSplit
        listed = parts | "ListPart" >> beam.ParDo(
            _ListPart(self._context, self._rules, self._selection)
        ).with_outputs(_CLASS_IDS, main="refs")  # ImageRef; ClassId
        return listed.refs, listed[_CLASS_IDS]
