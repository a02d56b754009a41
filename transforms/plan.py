"""Beam transforms for the plan: listing, batches, bounds of splits and folds, the forecast, and shards."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import apache_beam as beam
from apache_beam.utils.windowed_value import WindowedValue

from shardwright.core.plan.assign import (
    FOLD,
    MADE,
    SPLIT,
    Placement,
    PlannedShard,
    ShardId,
    every_shard,
    fill_shards,
    hashes_of_sparse_splits,
    is_beyond_limit,
    shard_hashes,
    shard_of,
    shares_of,
)
from shardwright.core.plan.choose_parts import CollectedHashes, carried_bounds, choose_parts
from shardwright.core.plan.forecast import RefSummary, make_forecast
from shardwright.core.plan.request import ConversionRequest
from shardwright.core.sources.listing import ListingDigest, list_part, split_inputs
from shardwright.core.sources.rules import RuleMatches, unmatched_warnings
from shardwright.core.sources.source import Context, Input, InputSplit, source_by_name, whole
from shardwright.schemas.codes import FilterReason, Outcome
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import (
    EncodedRefs,
    ImageRef,
    decode_refs,
    encode_refs,
    number_text,
    source_id_of,
)
from shardwright.schemas.labels import ClassId
from shardwright.schemas.plan import Forecast, PartBounds, Plan, ShardPlace
from shardwright.transforms.building_blocks import SumOfBundle, composite, in_global_window, merge_all
from shardwright.transforms.runner_features import has_one_worker, report_source

_CLASS_IDS, _DIGESTS, _MATCHES = "class_ids", "digests", "matches"
_REFS_PER_BATCH = 1000
#: Number of references that a worker collects before it emits them, sorted by shard.
BUFFERED_REFS = 100_000
#: Number of characters of annotations and extra columns that count as one reference.
_CHARACTERS_PER_REF = 500
#: Number of buckets for the check of keys, and so of workers that can share it.
_KEY_BUCKETS = 2048
_SPLIT = ImageRef._fields.index("split")


class _ListPart(beam.DoFn):
    def __init__(self, context: Context) -> None:
        self._context = context

    def start_bundle(self) -> None:
        self._matches = RuleMatches()
        self._digest = ListingDigest()

    def process(self, part: InputSplit) -> Iterator[ImageRef | beam.pvalue.TaggedOutput]:
        for item in list_part(part, self._context, self._matches):
            self._digest.add(item, self._context.spool.path)
            yield beam.pvalue.TaggedOutput(_CLASS_IDS, item) if isinstance(item, ClassId) else item

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
    a PCollection of RuleMatches, and the fourth of ListingDigests, whose sum is the digest of all items.

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


def _weight(ref: ImageRef) -> int:
    """Returns the weight of a reference, which grows with the length of its annotations."""
    return 1 + (len(ref.annotations) + len(ref.extra)) // _CHARACTERS_PER_REF


class BatchRefs(beam.DoFn):
    """Packs references for a stage boundary, where the cost per element far exceeds the cost per byte."""

    def start_bundle(self) -> None:
        """Starts an empty batch."""
        self._refs: list[ImageRef] = []
        self._weight = 0

    def process(self, ref: ImageRef) -> Iterator[EncodedRefs]:
        """Adds a reference; yields the batch if it is full."""
        self._refs.append(ref)
        self._weight += _weight(ref)
        if self._weight >= _REFS_PER_BATCH:
            yield encode_refs(self._refs)
            self._refs, self._weight = [], 0

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Yields the last batch."""
        if self._refs:
            yield in_global_window(encode_refs(self._refs))
            self._refs, self._weight = [], 0


def _add_batch(summary: RefSummary, batch: EncodedRefs, splits: PartBounds | None = None) -> None:
    """Counts the references of a batch."""
    placement = Placement(summary.settings, splits)
    for ref in decode_refs(batch):
        summary.add(ref, placement)


@composite
def ChooseParts(
    batches: beam.PCollection,
    settings: ConvertSettings,
    purpose: str,
    carried: beam.pvalue.AsSingleton | Plan | None = None,
    splits: beam.pvalue.AsSingleton | None = None,
) -> beam.PCollection:
    """Chooses the bounds of splits or folds. `PCollection[EncodedRefs] -> [PartBounds]`.

    Args:
      batches: References of images.
      settings: Checked settings; the split mode is not `hash`.
      purpose: `SPLIT` or `FOLD`.
      carried: Plan to carry on, or a side input of it; or None.
      splits: For folds, side input with the bounds of the splits; None if `--splits` alone decides them.
    """

    def collect(collected: CollectedHashes, batch: EncodedRefs, splits: PartBounds | None) -> None:
        placement = Placement(settings, splits)
        for ref in decode_refs(batch):
            if ref.is_candidate:
                collected.add(ref.key, placement.hashed(ref, purpose))

    def choose(collected: CollectedHashes, carried: Plan | None) -> PartBounds:
        shares, bounds = shares_of(settings, purpose), carried_bounds(settings, purpose, carried)
        return choose_parts(collected.finish(), shares, bounds)

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
    batches: beam.PCollection,
    request: ConversionRequest,
    class_ids: beam.PCollection,
    matches: beam.PCollection,
    carried: beam.pvalue.AsSingleton | None = None,
) -> beam.PCollection:
    """Counts all references, samples some and plans. `PCollection[EncodedRefs] -> [Forecast]`.

    Args:
      batches: References of images.
      request: The checked request.
      class_ids: PCollection of the ids that sources give to class names.
      matches: PCollection of what the rules match in the inputs (RuleMatches).
      carried: Side input with the plan to carry on, if the job finds it itself. None for the request's plan.
    """
    settings, splits, folds = request.settings, None, None
    plan = request.carried if carried is None else carried
    chooses = settings.split_mode != "hash"
    if chooses and len(settings.parsed_splits) > 1:
        choose = ChooseParts(settings, SPLIT, plan)
        splits = beam.pvalue.AsSingleton(batches | "ChooseSplits" >> choose)  # PartBounds
    if chooses and settings.folds:
        choose = ChooseParts(settings, FOLD, plan, splits)
        folds = beam.pvalue.AsSingleton(batches | "ChooseFolds" >> choose)  # PartBounds

    def forecast(
        _: bytes,
        summaries: Iterable[RefSummary],
        class_ids: Iterable[ClassId],
        matches: Iterable[RuleMatches],
        carried: Plan | None,
        split_bounds: PartBounds | None,
        fold_bounds: PartBounds | None,
    ) -> Forecast:
        merged = merge_all(partial(RefSummary, settings))(summaries)
        unmatched = unmatched_warnings(matches, settings, request.rules)
        asked = replace(request, carried=carried)
        return make_forecast(asked, merged, [*class_ids], unmatched, split_bounds, fold_bounds)

    # A summary is small, however many references it counts, so one step can add up those of all bundles.
    summarize = SumOfBundle(partial(RefSummary, settings), _add_batch)
    summaries = batches | "SummarizeRefs" >> beam.ParDo(summarize, splits).with_output_types(
        RefSummary
    )  # RefSummary of a bundle
    return (
        batches.pipeline
        | "Once" >> beam.Impulse()  # bytes
        | "MakeForecast"
        >> beam.Map(
            forecast,
            beam.pvalue.AsIter(summaries),
            beam.pvalue.AsIter(class_ids),
            beam.pvalue.AsIter(matches),
            plan,
            splits,
            folds,
        ).with_output_types(Forecast)  # Forecast
    )


class _SortBuffered(beam.DoFn):
    """Sorts references within each worker, so that few and large batches are shuffled."""

    def start_bundle(self) -> None:
        self._sorted: defaultdict[ShardId, list[ImageRef]] = defaultdict(list)
        self._weight = 0

    def _put(self, place: ShardId, ref: ImageRef) -> None:
        self._sorted[place].append(ref)
        self._weight += _weight(ref)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for element in self._flush():
            yield in_global_window(element)

    def _flush(self, at_least: int = 0) -> Iterator[tuple[ShardId, EncodedRefs]]:
        if self._weight < at_least:
            return
        for place, refs in sorted(self._sorted.items()):  # one machine writes them in this order
            yield place, encode_refs(refs)
        self._sorted.clear()
        self._weight = 0


class SortByShard(_SortBuffered):
    """Sorts references by shard."""

    def __init__(self, settings: ConvertSettings) -> None:
        self._settings = settings

    def process(self, batch: EncodedRefs, forecast: Forecast) -> Iterator[tuple[ShardId, EncodedRefs]]:
        """Collects references with their splits and folds; yields them by shard when there are many."""
        plan, folds = forecast.plan, self._settings.folds
        placement = Placement(self._settings, plan.split_bounds, plan.fold_bounds)
        refs = [*decode_refs(batch)]
        hashes = shard_hashes(self._settings.seed, [ref.key for ref in refs])
        for ref, hash_bytes in zip(refs, hashes):
            split, value = placement.split(ref), int.from_bytes(hash_bytes, "big")
            if split != ref.split:  # faster than _replace, which would take a tenth of the time of planning
                ref = ImageRef._make((*ref[:_SPLIT], split, *ref[_SPLIT + 1 :]))
            if folds and ref.is_candidate:
                ref = ref._replace(fold=placement.fold(ref, split))
            if is_beyond_limit(ref, self._settings, forecast):
                ref = ref._replace(outcome=Outcome.FILTERED, reason=FilterReason.LIMIT, message="")
            # Files without their own key are recorded under one number.
            shard = shard_of(value, plan.shards.get(split, 1))
            if split in forecast.moved and ref.is_candidate:
                shard = forecast.moved[split].get(value, shard)
            self._put((split, shard), ref)
        yield from self._flush(at_least=BUFFERED_REFS)


@composite
def AssignShards(
    batches: beam.PCollection, settings: ConvertSettings, forecast: beam.PCollection
) -> beam.PCollection:
    """Groups references by shard. `PCollection[EncodedRefs] -> [(ShardId, Iterable[EncodedRefs])]`.

    A shard is a range of hashes, so it may be empty if a split has few images for its shards. The images that
    fill it depend on all hashes of the split. So the hashes of such splits are collected first.

    Args:
      batches: References of images.
      settings: Checked settings.
      forecast: The single Forecast, with the numbers of images and shards in each split.
    """
    types = tuple[ShardId, EncodedRefs]
    hashes = batches | "HashesOfSparseSplits" >> beam.FlatMap(
        hashes_of_sparse_splits, beam.pvalue.AsSingleton(forecast), settings
    ).with_output_types(tuple[str, bytes])  # (split, hashes)
    filled = forecast | "FillEmptyShards" >> beam.Map(
        fill_shards, beam.pvalue.AsIter(hashes)
    ).with_output_types(Forecast)  # Forecast
    planned = batches | "AssignShard" >> beam.ParDo(
        SortByShard(settings), beam.pvalue.AsSingleton(filled)
    ).with_output_types(types)  # ((split, shard), EncodedRefs)
    every = forecast | "NameEveryShard" >> beam.FlatMap(every_shard).with_output_types(
        types
    )  # ((split, shard), EncodedRefs)
    return (
        (planned, every)
        | "WithEmptyShards" >> beam.Flatten()  # ((split, shard), EncodedRefs)
        | "GroupByShard" >> beam.GroupByKey()  # ((split, shard), [EncodedRefs])
    )


class BucketKeys(_SortBuffered):
    """Groups references by their keys alone, so that equal keys of different splits meet."""

    def process(self, batch: EncodedRefs) -> Iterator[tuple[ShardId, EncodedRefs]]:
        """Collects keys and their locations; yields them by bucket when there are many."""
        for ref in decode_refs(batch):
            bucket = zlib.crc32(ref.key.encode()) % _KEY_BUCKETS
            self._put(("", bucket), ImageRef(ref.key, ref.uri, place=ref.place, message=ref.message))
        yield from self._flush(at_least=BUFFERED_REFS)


class BucketSourceIds(_SortBuffered):
    """Groups images by the ids that their records store, so that equal ids meet."""

    def process(self, batch: EncodedRefs) -> Iterator[tuple[ShardId, EncodedRefs]]:
        """Collects ids and the locations of their images; yields them by bucket when there are many."""
        for ref in decode_refs(batch):
            number = number_text(source_id_of(ref)) if ref.is_candidate else ""
            if number:  # other ids never look like a number
                reason = "" if ref.source_id else MADE
                light = ImageRef(ref.key, ref.uri, reason=reason, message=ref.message, source_id=number)
                self._put(("", int(number) % _KEY_BUCKETS), light)
        yield from self._flush(at_least=BUFFERED_REFS)


def name_planned_shard(
    shard: tuple[ShardId, Iterable[EncodedRefs]], forecast: Forecast, *_checked: Iterable[int]
) -> PlannedShard:
    """Converts a grouped shard to a `PlannedShard`."""
    (split, index), refs = shard
    return PlannedShard(ShardPlace(split, index, forecast.plan.shards.get(split, 1)), refs)
