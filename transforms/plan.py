"""Beam transforms for the plan: listing, batches, bounds of splits and folds, the forecast, and shards.

`PlanDataset` and `PlanShards` are the planning of every command; the others are their steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.utils.windowed_value import WindowedValue

from shardwright.core.plan import assign
from shardwright.core.plan.choose_parts import CollectedHashes, carried_bounds, choose_parts
from shardwright.core.plan.forecast import RefSummary, make_forecast
from shardwright.core.plan.request import ConversionRequest
from shardwright.core.sources.listing import ListingDigest, input_parts, list_part
from shardwright.core.sources.rules import RuleMatches, unmatched_warnings
from shardwright.core.sources.source import Context, Input, InputPart, source_by_name, whole
from shardwright.core.sources.spool import Spool
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.image_ref import EncodedRefs, ImageRef, decode_refs, encode_refs
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plan import Forecast, PartBounds, Plan, ShardPlace
from shardwright.transforms.building_blocks import (
    CallOnce,
    SumOfBundle,
    composite,
    in_global_window,
    merge_all,
)
from shardwright.transforms.dedupe import DedupeExact, DedupeNear, LimitImages, LimitPerClass
from shardwright.transforms.runner_features import has_one_worker, report_source

#: References of one place: of a shard, or of the keys or ids in a bucket.
_PlacedRefs = tuple[assign.ShardId, EncodedRefs]
#: What `ListSources` returns besides references.
_Listed = tuple[beam.PCollection[ClassId], beam.PCollection[RuleMatches], beam.PCollection[ListingDigest]]
_CLASS_IDS, _DIGESTS, _MATCHES = "class_ids", "digests", "matches"
_REFS_PER_BATCH = 1000
#: Number of references that a worker collects before it emits them, sorted by shard.
BUFFERED_REFS = 100_000
#: Number of characters of annotations and extra columns that count as one reference.
_CHARACTERS_PER_REF = 500


class _ListPart(beam.DoFn):
    def __init__(self, context: Context) -> None:
        self._context = context

    def start_bundle(self) -> None:
        self._matches = RuleMatches()
        self._digest = ListingDigest()

    def process(self, part: InputPart) -> Iterator[ImageRef | beam.pvalue.TaggedOutput]:
        for item in list_part(part, self._context, self._matches):
            self._digest.add(item, self._context.spool.path)
            yield beam.pvalue.TaggedOutput(_CLASS_IDS, item) if isinstance(item, ClassId) else item

    def finish_bundle(self) -> Iterator[beam.pvalue.TaggedOutput]:
        yield beam.pvalue.TaggedOutput(_MATCHES, in_global_window(self._matches))
        yield beam.pvalue.TaggedOutput(_DIGESTS, in_global_window(self._digest))


@composite
def ListSources(
    begin: beam.pvalue.PBegin | beam.PCollection[Any],
    inputs: Sequence[Input],
    context: Context,
) -> tuple[beam.PCollection[ImageRef], *_Listed]:
    """Lists the inputs. `PBegin -> (PCollection[ImageRef], PCollection[ClassId], ...)`.

    The second result contains the ids that sources give to class names; it may have duplicates. The sum of
    the ListingDigests is the digest of all items.

    Args:
      begin: The pipeline, or a PCollection of one element, to list the inputs once that element is ready.
      inputs: Checked inputs.
      context: Settings, rules and a directory for spool files.
    """
    inputs = tuple(inputs)
    context = replace(context, one_worker=has_one_worker(begin.pipeline.options))
    if isinstance(begin, beam.pvalue.PBegin):
        begin = begin | "Begin" >> beam.Impulse()  # bytes

    def split(_: object) -> Iterator[InputPart]:
        for item in inputs:
            report_source(item.path)
        return input_parts(inputs, context)

    parts = begin | "SplitInputs" >> beam.FlatMap(split).with_output_types(InputPart)  # InputPart
    # A single worker would only pay for it.
    if not context.one_worker and (len(inputs) > 1 or source_by_name(inputs[0].source).parts is not whole):
        parts = parts | "SpreadOut" >> beam.Reshuffle()  # InputPart
    listed = parts | "ListPart" >> beam.ParDo(_ListPart(context)).with_outputs(
        _CLASS_IDS, _MATCHES, _DIGESTS, main="refs"
    )  # ImageRef; ClassId; RuleMatches; ListingDigest
    return listed.refs, listed[_CLASS_IDS], listed[_MATCHES], listed[_DIGESTS]


class BatchRefs(beam.DoFn):
    """Packs references for a stage boundary, where the cost per element far exceeds the cost per byte."""

    def start_bundle(self) -> None:
        """Starts an empty batch."""
        self._refs: list[ImageRef] = []
        self._weight = 0

    def process(self, ref: ImageRef) -> Iterator[EncodedRefs]:
        """Adds a reference; yields the batch if it is full."""
        self._refs.append(ref)
        self._weight += 1 + (len(ref.annotations) + len(ref.extra)) // _CHARACTERS_PER_REF
        if self._weight >= _REFS_PER_BATCH:
            yield encode_refs(self._refs)
            self.start_bundle()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Yields the last batch."""
        if self._refs:
            yield in_global_window(encode_refs(self._refs))


@composite
def ChooseParts(
    batches: beam.PCollection[EncodedRefs],
    settings: ConvertSettings,
    purpose: str,
    carried: beam.pvalue.AsSingleton | Plan | None = None,
    splits: beam.pvalue.AsSingleton | None = None,
) -> beam.PCollection[PartBounds]:
    """Chooses the bounds of splits or folds. `PCollection[EncodedRefs] -> PCollection[PartBounds]`.

    Args:
      batches: References of images.
      settings: Checked settings; the split mode is not `hash`.
      purpose: `SPLIT` or `FOLD`.
      carried: Plan to carry on, or a side input of it; or None.
      splits: For folds, side input with the bounds of the splits; None if `--splits` alone decides them.
    """

    def collect(collected: CollectedHashes, batch: EncodedRefs, splits: PartBounds | None) -> None:
        placement = assign.Placement(settings, splits)
        for ref in decode_refs(batch):
            if ref.is_candidate and (purpose == assign.FOLD or not ref.split):
                scope = placement.split(ref) if purpose == assign.FOLD else ""
                collected.add(scope, ref.label, placement.hash(ref, purpose))

    def choose(collected: CollectedHashes, carried: Plan | None) -> PartBounds:
        shares, bounds = assign.shares_of(settings, purpose), carried_bounds(settings, purpose, carried)
        return choose_parts(collected, shares, bounds)

    empty = partial(CollectedHashes, settings)
    return (
        batches
        | "CollectHashes"
        >> beam.ParDo(SumOfBundle(empty, collect), splits).with_output_types(CollectedHashes)
        # CollectedHashes of a bundle
        | "MergeHashes" >> beam.CombineGlobally(merge_all(empty)).with_output_types(CollectedHashes)
        # CollectedHashes of all bundles
        | "ChooseBounds" >> beam.Map(choose, carried).with_output_types(PartBounds)  # PartBounds
    )


@composite
def ForecastDataset(
    batches: beam.PCollection[EncodedRefs],
    request: ConversionRequest,
    class_ids: beam.PCollection[ClassId],
    matches: beam.PCollection[RuleMatches],
    carried: beam.PCollection[Plan | None] | None = None,
) -> beam.PCollection[Forecast]:
    """Counts all references, samples some and plans. `PCollection[EncodedRefs] -> PCollection[Forecast]`.

    Args:
      batches: References of images.
      request: The checked request.
      class_ids: PCollection of the ids that sources give to class names.
      matches: PCollection of what the rules match in the inputs (RuleMatches).
      carried: PCollection of the one plan to carry on, if the job finds it itself. None for that of the
        request.
    """
    settings, splits, folds = request.settings, None, None
    plan = request.carried if carried is None else beam.pvalue.AsSingleton(carried)
    chooses = settings.split_mode != "hash"
    if chooses and len(settings.parsed_splits) > 1:
        choose = ChooseParts(settings, assign.SPLIT, plan)
        splits = beam.pvalue.AsSingleton(batches | "ChooseSplits" >> choose)  # PartBounds
    if chooses and settings.folds:
        choose = ChooseParts(settings, assign.FOLD, plan, splits)
        folds = beam.pvalue.AsSingleton(batches | "ChooseFolds" >> choose)  # PartBounds

    def add(summary: RefSummary, batch: EncodedRefs, splits: PartBounds | None) -> None:
        placement = assign.Placement(settings, splits)
        for ref in decode_refs(batch):
            summary.add(ref, placement)

    def forecast(
        summaries: Iterable[RefSummary],
        class_ids: Iterable[ClassId],
        matches: Iterable[RuleMatches],
        carried: Plan | None,
        split_bounds: PartBounds | None,
        fold_bounds: PartBounds | None,
    ) -> Forecast:
        merged = merge_all(RefSummary)(summaries)
        unmatched = unmatched_warnings(matches, settings, request.rules)
        asked = replace(request, carried=carried)
        return make_forecast(asked, merged, [*class_ids], unmatched, split_bounds, fold_bounds)

    # A summary is small, however many references it counts, so one step can add up those of all bundles.
    summarize = SumOfBundle(RefSummary, add)
    summaries = batches | "SummarizeRefs" >> beam.ParDo(summarize, splits).with_output_types(
        RefSummary
    )  # RefSummary of a bundle
    sides = map(beam.pvalue.AsIter, (summaries, class_ids, matches))
    return batches.pipeline | "MakeForecast" >> CallOnce(
        forecast, *sides, plan, splits, folds
    ).with_output_types(Forecast)  # Forecast


class SortBuffered(beam.DoFn):
    """Sorts references by place within each worker, so that few and large batches are shuffled.

    `EncodedRefs -> (place, EncodedRefs)`.

    Args:
      placed: Returns references with their places, given references and the side input of the step, if any.
    """

    def __init__(self, placed: Callable[..., Iterable[tuple[assign.ShardId, ImageRef]]]) -> None:
        self._placed = placed

    def start_bundle(self) -> None:
        """Starts without references."""
        self._sorted: defaultdict[assign.ShardId, list[ImageRef]] = defaultdict(list)
        self._weight = 0

    def process(self, batch: EncodedRefs, side: Any = None) -> Iterator[tuple[assign.ShardId, EncodedRefs]]:
        """Collects references; yields them by place when there are many."""
        sides = () if side is None else (side,)
        for place, ref in self._placed(decode_refs(batch), *sides):
            self._sorted[place].append(ref)
            self._weight += 1 + (len(ref.annotations) + len(ref.extra)) // _CHARACTERS_PER_REF
        if self._weight >= BUFFERED_REFS:
            yield from self._flush()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Yields the last references."""
        yield from map(in_global_window, self._flush())

    def _flush(self) -> Iterator[tuple[assign.ShardId, EncodedRefs]]:
        for place, refs in sorted(self._sorted.items()):  # one machine writes them in this order
            yield place, encode_refs(refs)
        self.start_bundle()


@composite
def AssignShards(
    batches: beam.PCollection[EncodedRefs], settings: ConvertSettings, forecast: beam.PCollection[Forecast]
) -> beam.PCollection[tuple[assign.ShardId, Iterable[EncodedRefs]]]:
    """Groups references by shard. `PCollection[EncodedRefs] -> PCollection[((split, shard), [EncodedRefs])]`.

    A shard is a range of hashes, so it may be empty if a split has few images for its shards. The images that
    fill it depend on all hashes of the split. So the hashes of such splits are collected first.

    Args:
      batches: References of images.
      settings: Checked settings.
      forecast: The single Forecast, with the numbers of images and shards in each split.
    """
    hashes = batches | "HashesOfSparseSplits" >> beam.FlatMap(
        assign.hashes_of_sparse_splits, beam.pvalue.AsSingleton(forecast), settings
    ).with_output_types(tuple[str, bytes])  # (split, hashes)
    filled = forecast | "FillEmptyShards" >> beam.Map(
        assign.fill_shards, beam.pvalue.AsIter(hashes)
    ).with_output_types(Forecast)  # Forecast
    planned = batches | "AssignShard" >> beam.ParDo(
        SortBuffered(partial(assign.refs_by_shard, settings)), beam.pvalue.AsSingleton(filled)
    ).with_output_types(_PlacedRefs)  # ((split, shard), EncodedRefs)
    every = forecast | "NameEveryShard" >> beam.FlatMap(assign.every_shard).with_output_types(
        _PlacedRefs
    )  # ((split, shard), EncodedRefs)
    return (
        (planned, every)
        | "WithEmptyShards" >> beam.Flatten()  # ((split, shard), EncodedRefs)
        | "GroupByShard" >> beam.GroupByKey()  # ((split, shard), [EncodedRefs])
    )


@composite
def ListImages(
    begin: beam.pvalue.PBegin | beam.PCollection[Any],
    inputs: Sequence[Input],
    context: Context,
    class_names: Sequence[str],
) -> tuple[beam.PCollection[EncodedRefs], *_Listed]:
    """Lists the inputs as `ListSources` does, and packs the references.

    `PBegin -> (PCollection[EncodedRefs], PCollection[ClassId], ...)`. Copies of images, and images beyond the
    limit of a class, are marked as left out, if the settings say so.

    Args:
      begin: The pipeline, or a PCollection of one element, to list the inputs once that element is ready.
      inputs: Checked inputs.
      context: Settings, rules and a directory for spool files.
      class_names: Class names that are allowed. Empty to allow any.
    """
    refs, *others = begin | "ListSources" >> ListSources(inputs, context)
    # ImageRef; ClassId; RuleMatches; ListingDigest
    batches = refs | "BatchRefs" >> beam.ParDo(BatchRefs()).with_output_types(EncodedRefs)  # EncodedRefs
    settings, keys = context.settings, context.rules.keys
    if settings.dedupe == "exact":
        exact = DedupeExact(settings.max_source_bytes, keys, class_names)
        batches = batches | "DedupeExact" >> exact  # EncodedRefs
    elif settings.dedupe == "near":
        batches = batches | "DedupeNear" >> DedupeNear(settings, keys, class_names)  # EncodedRefs
    if settings.max_per_class:
        limit = LimitPerClass(settings.max_per_class, settings.seed)
        batches = batches | "LimitPerClass" >> limit  # EncodedRefs
    return batches, *others


@composite
def PlanDataset(
    begin: beam.pvalue.PBegin | beam.PCollection[Any],
    request: ConversionRequest,
    spool: Spool,
    carried: beam.PCollection[Plan | None] | None = None,
) -> tuple[beam.PCollection[EncodedRefs], beam.PCollection[Forecast], beam.PCollection[ListingDigest]]:
    """Lists the inputs of a conversion and plans its dataset.

    `PBegin -> (PCollection[EncodedRefs], PCollection of the one Forecast, PCollection[ListingDigest])`.

    Args:
      begin: The pipeline, or a PCollection of one element, to list the inputs once that element is ready.
      request: The checked request.
      spool: Place for copies of sources without random access.
      carried: PCollection of the one plan to carry on, if the job finds it itself. None for that of the
        request.
    """
    settings = request.settings
    # Otherwise an unknown class is an error of one object, not of the image.
    class_names = request.class_names if settings.record_layout.needs is Needs.LABEL else ()
    batches, class_ids, matches, digests = begin | "ListImages" >> ListImages(
        request.inputs, Context(settings, spool, request.rules), class_names
    )  # EncodedRefs; ClassId; RuleMatches; ListingDigest
    if settings.limit:
        batches = batches | "LimitImages" >> LimitImages(settings.limit, settings.seed)  # EncodedRefs
    forecast = batches | "ForecastDataset" >> ForecastDataset(
        request, class_ids, matches, carried
    )  # Forecast
    return batches, forecast, digests


@composite
def PlanShards(
    batches: beam.PCollection[EncodedRefs], request: ConversionRequest, forecast: beam.PCollection[Forecast]
) -> beam.PCollection[assign.PlannedShard]:
    """Assigns references to shards. `PCollection[EncodedRefs] -> PCollection[PlannedShard]`.

    Equal keys and equal ids are refused before any shard is written.

    Args:
      batches: References of images.
      request: The checked request.
      forecast: PCollection of the one Forecast.
    """
    grouped = batches | "AssignShards" >> AssignShards(
        request.settings, forecast
    )  # ((split, shard), [EncodedRefs])
    keys = grouped
    if len(request.inputs) > 1 or not source_by_name(request.inputs[0].source).unique_keys:
        keys = (
            batches
            | "BucketKeys" >> beam.ParDo(SortBuffered(assign.keys_by_bucket)).with_output_types(_PlacedRefs)
            # (("", bucket), EncodedRefs)
            | "GroupKeys" >> beam.GroupByKey()  # (("", bucket), [EncodedRefs])
        )
    checked = [keys | "CheckKeys" >> beam.FlatMap(assign.check_keys).with_output_types(int)]  # int
    if FeatureRole.SOURCE_ID in request.settings.record_layout.by_role:
        checked.append(
            batches
            | "BucketSourceIds"
            >> beam.ParDo(SortBuffered(assign.source_ids_by_bucket)).with_output_types(_PlacedRefs)
            # (("", bucket), EncodedRefs)
            | "GroupSourceIds" >> beam.GroupByKey()  # (("", bucket), [EncodedRefs])
            | "CheckSourceIds" >> beam.FlatMap(assign.check_source_ids).with_output_types(int)  # int
        )
    return grouped | "NamePlannedShards" >> beam.Map(
        name_planned_shard,
        beam.pvalue.AsSingleton(forecast),
        *map(beam.pvalue.AsIter, checked),  # all keys and ids are checked before anything is written
    ).with_output_types(assign.PlannedShard)  # PlannedShard


def name_planned_shard(
    shard: tuple[assign.ShardId, Iterable[EncodedRefs]], forecast: Forecast, *_checked: Iterable[int]
) -> assign.PlannedShard:
    """Converts a grouped shard to a `PlannedShard`."""
    (split, index), refs = shard
    return assign.PlannedShard(ShardPlace(split, index, forecast.plan.shards.get(split, 1)), refs)
