"""`ListSources`: lists the inputs as a PCollection of references."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import apache_beam as beam

from shardwright.core.sources.listing import ListingDigest, list_part, split_inputs
from shardwright.core.sources.rules import RuleMatches
from shardwright.core.sources.source import Context, Input, InputSplit, source_by_name, whole
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId
from shardwright.transforms.composite import composite
from shardwright.transforms.merging import in_global_window
from shardwright.transforms.runners import has_one_worker, report_source

_CLASS_IDS, _DIGESTS, _MATCHES = "class_ids", "digests", "matches"


class _ListPart(beam.DoFn):
    def __init__(self, context: Context) -> None:
        self._context = context

    def start_bundle(self) -> None:
        self._matches = RuleMatches()
        self._digest = ListingDigest()

    def process(self, part: InputSplit) -> Iterator[ImageRef | beam.pvalue.TaggedOutput]:
        for found in list_part(part, self._context, self._matches):
            self._digest.add(found, self._context.spool.path)
            yield beam.pvalue.TaggedOutput(_CLASS_IDS, found) if isinstance(found, ClassId) else found

    def finish_bundle(self) -> Iterator[beam.pvalue.TaggedOutput]:
        yield beam.pvalue.TaggedOutput(_MATCHES, in_global_window(self._matches))
        yield beam.pvalue.TaggedOutput(_DIGESTS, in_global_window(self._digest))


@composite
def ListSources(
    begin: beam.pvalue.PBegin | beam.PCollection,
    inputs: Sequence[Input],
    context: Context,
) -> tuple[beam.PCollection, beam.PCollection, beam.PCollection, beam.PCollection]:
    """Lists the inputs. `PBegin -> (PCollection[ImageRef], PCollection[ClassId], ...)`.

    The second result contains the ids that sources give to class names; it may have duplicates. The third is
    a PCollection of RuleMatches, and the fourth of ListingDigests, which together are that of all items.

    Args:
      begin: The pipeline, or a PCollection of one element, to list the inputs once that element is ready.
      inputs: Checked inputs.
      context: Settings, rules and a directory for spool files.
    """
    inputs = tuple(inputs)
    context = replace(context, one_worker=has_one_worker(begin.pipeline.options))
    if isinstance(begin, beam.pvalue.PBegin):
        begin = begin | "Begin" >> beam.Impulse()  # bytes

    def split(_: object) -> Iterator[InputSplit]:
        for item in inputs:
            report_source(item.path)
        return split_inputs(inputs, context)

    parts = begin | "SplitInputs" >> beam.FlatMap(split).with_output_types(InputSplit)  # InputSplit
    # A single worker would only pay for it.
    if not context.one_worker and (len(inputs) > 1 or source_by_name(inputs[0].source).split is not whole):
        parts = parts | "SpreadOut" >> beam.Reshuffle()  # InputSplit
    listed = parts | "ListPart" >> beam.ParDo(_ListPart(context)).with_outputs(
        _CLASS_IDS, _MATCHES, _DIGESTS, main="refs"
    )  # ImageRef; ClassId; RuleMatches; ListingDigest
    return listed.refs, listed[_CLASS_IDS], listed[_MATCHES], listed[_DIGESTS]
