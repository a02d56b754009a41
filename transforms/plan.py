"""Beam transforms for the plan: batches of references, the forecast, and the references of each shard."""

from __future__ import annotations

import logging
import unicodedata
import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import apache_beam as beam
import numpy as np
from apache_beam.utils.windowed_value import WindowedValue

from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.plan.assign import (
    NEVER_EMPTY,
    fill_empty_shards,
    limit_order,
    shard_hashes,
    shard_of,
    shard_order,
)
from shardwright.core.plan.forecast import Placement, RefSummary, make_forecast
from shardwright.core.plan.parts import FOLD, SPLIT
from shardwright.core.plan.planned_shard import PlannedShard, ShardId
from shardwright.core.sources.label_rules import LabelRules, RuleMatches, unmatched_warnings
from shardwright.core.sources.selection import ListingRules
from shardwright.core.sources.unused_settings import ConversionFacts, without_effect
from shardwright.schemas.codes import FilterReason, Outcome
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import (
    EncodedRefs,
    ImageRef,
    decode_refs,
    encode_refs,
    is_image,
    printable,
)
from shardwright.schemas.labels import ClassId, check_numbering, merge_class_ids, merge_class_texts
from shardwright.schemas.part_bounds import PartBounds
from shardwright.schemas.plan import Forecast, Plan
from shardwright.schemas.source_ids import number_text, source_id_of
from shardwright.transforms.merging import in_global_window

_LOG = logging.getLogger(__name__)


_REFS_PER_BATCH = 1000
#: Number of references that a worker collects before it emits them, sorted by shard.
_REFS_IN_HAND = 100_000
#: Number of characters of annotations and extra columns that count as one reference.
_CHARACTERS_PER_REF = 500
#: Number of buckets for the check of keys, and so of workers that can share it.
_KEY_BUCKETS = 2048
_SPLIT = ImageRef._fields.index("split")
#: Marks an id that was made from its image's key.
_MADE = "made"
#: Settings that determine the number of shards.
_SHARD_COUNTS = ("shards", "shard_size")


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


class _SummarizeRefs(beam.DoFn):
    """Sums up the batches of a bundle."""

    def __init__(self, settings: ConvertSettings) -> None:
        self._settings = settings

    def start_bundle(self) -> None:
        self._summary = RefSummary()
        self._placement: Placement | None = None

    def process(self, batch: EncodedRefs, splits: PartBounds | None = None) -> Iterator[RefSummary]:
        if self._placement is None:
            self._placement = Placement(self._settings, splits)
        self._summary.add_all([*decode_refs(batch)], self._settings, self._placement)
        yield from ()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        self._summary.trim(self._settings)
        yield in_global_window(self._summary)


def merged_summaries(summaries: Iterable[RefSummary], settings: ConvertSettings) -> RefSummary:
    """Returns the sum of summaries, without changing them."""
    merged = RefSummary()
    for summary in summaries:
        merged.merge(summary, settings)
    return merged


class _MakeForecast(beam.DoFn):
    def __init__(
        self,
        settings: ConvertSettings,
        rules: LabelRules,
        carried: Plan | None,
        class_names: Sequence[str],
        explicit_shards: bool,
        given: frozenset[str],
        facts: ConversionFacts | None,
        selection: ListingRules,
    ) -> None:
        self._selection = selection
        self._given = given
        self._facts = facts or ConversionFacts(settings, frozenset())
        self._settings = settings
        self._rules = rules
        self._carried = carried
        self._class_names = tuple(class_names)
        self._explicit_shards = explicit_shards

    def process(
        self,
        _: bytes,
        summaries: Iterable[RefSummary],
        class_ids: Iterable[ClassId],
        matches: Iterable[RuleMatches],
        found: Plan | None = None,
        split_bounds: PartBounds | None = None,
        fold_bounds: PartBounds | None = None,
    ) -> Iterator[Forecast]:
        summary = merged_summaries(summaries, self._settings)
        carried = found or self._carried
        class_ids = list(class_ids)
        unmatched = unmatched_warnings(matches, self._settings, self._rules, self._selection)
        explicit = self._explicit_shards
        if carried is not None:  # unchanged shard settings do not choose the numbers of shards again
            identity = self._settings.identity()
            explicit = any(carried.settings.get(name) != identity[name] for name in _SHARD_COUNTS)
        forecast = make_forecast(
            summary,
            self._settings,
            self._rules.apply_to_ids(merge_class_ids(class_ids)),
            carried,
            self._class_names,
            explicit,
            self._rules.apply_to_texts(merge_class_texts(class_ids)),
            split_bounds,
            self._selection.keys,
            fold_bounds,
            unmatched,
        )
        forecast = self._with_numbering_checked(forecast, class_ids)
        facts = replace(self._facts, splits_from=forecast.splits_from)
        notes = tuple(without_effect(self._given, facts, self._facts))
        PROGRESS.tell(*notes)
        forecast = replace(forecast, warnings=(*forecast.warnings, *notes))
        PROGRESS.tree = forecast.tree
        _LOG.info("The input holds %s", forecast.tree)
        PROGRESS.total_images = forecast.total
        PROGRESS.total_shards = sum(forecast.plan.shards.values())
        yield forecast

    def _with_numbering_checked(self, forecast: Forecast, class_ids: Iterable[ClassId]) -> Forecast:
        """Adds a warning to a forecast if no image has the number of the first class name.

        Raises:
          UsageError: if the source counts its classes from 1, but the class names are counted from 0.
        """
        names, seen = self._rules.names, forecast.class_counts
        if not names or self._rules.first_number or names[0] in seen:
            return forecast
        first_label = self._settings.record_layout.first_label
        check_numbering(seen, names, first_label, self._settings.class_names)
        if not any(item.name == str(item.id) for item in class_ids):
            return forecast
        warning = (
            f"No image has the class number 0 ({names[0]!r}); check that the source does not count "
            "its classes from 1."
        )
        return replace(forecast, warnings=(*forecast.warnings, warning))


class ForecastDataset(beam.PTransform):
    """Counts all references, samples some and plans. `PCollection[EncodedRefs] -> [Forecast]`.

    Args:
      settings: checked settings.
      class_ids: ids that sources give to class names.
      matches: what the rules match in the inputs (RuleMatches).
      rules: rules that map class names.
      carried: plan to carry on.
      class_names: the allowed class names, in id order; empty to allow all.
      explicit_shards: whether the shard settings were given. If a plan is carried on, they are compared with
        those of the plan instead.
      found: side input with the plan to carry on, if the job finds it itself; or None.
      given: names of the settings that were given.
      facts: facts about the conversion; None to use the settings alone.
      selection: rules that leave out images; None to take all images.
    """

    def __init__(
        self,
        settings: ConvertSettings,
        class_ids: beam.PCollection,
        matches: beam.PCollection,
        rules: LabelRules,
        carried: Plan | None = None,
        class_names: Sequence[str] = (),
        explicit_shards: bool = False,
        found: beam.pvalue.AsSingleton | None = None,
        given: frozenset[str] = frozenset(),
        facts: ConversionFacts | None = None,
        selection: ListingRules | None = None,
    ) -> None:
        super().__init__()
        self._selection = selection or ListingRules()
        self._given = given
        self._facts = facts
        self._found = found
        self._settings = settings
        self._class_ids = class_ids
        self._matches = matches
        self._rules = rules
        self._carried = carried
        self._class_names = class_names
        self._explicit_shards = explicit_shards

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        settings, splits, folds = self._settings, None, None
        if settings.chooses_splits or settings.chooses_folds:
            from shardwright.transforms.choose import ChooseParts  # needs NumPy

        if settings.chooses_splits:
            choose = ChooseParts(settings, SPLIT, self._carried, self._found)
            splits = beam.pvalue.AsSingleton(batches | "ChooseSplits" >> choose)  # PartBounds
        if settings.chooses_folds:
            choose = ChooseParts(settings, FOLD, self._carried, self._found, splits)
            folds = beam.pvalue.AsSingleton(batches | "ChooseFolds" >> choose)  # PartBounds
        # A summary is small, however many references it counts, so one step can add up those of all bundles.
        summaries = batches | "SummarizeRefs" >> beam.ParDo(
            _SummarizeRefs(settings), splits
        ).with_output_types(RefSummary)  # RefSummary of a bundle
        return (
            batches.pipeline
            | "Once" >> beam.Impulse()  # bytes
            | "MakeForecast"
            >> beam.ParDo(
                _MakeForecast(
                    self._settings,
                    self._rules,
                    self._carried,
                    self._class_names,
                    self._explicit_shards,
                    self._given,
                    self._facts,
                    self._selection,
                ),
                beam.pvalue.AsIter(summaries),
                beam.pvalue.AsIter(self._class_ids),
                beam.pvalue.AsIter(self._matches),
                self._found,
                splits,
                folds,
            ).with_output_types(Forecast)  # Forecast
        )


class _SortInHand(beam.DoFn):
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
        for place, refs in sorted(self._sorted.items()):  # the order of `converting_early`
            yield place, encode_refs(refs)
        self._sorted.clear()
        self._weight = 0


def _is_beyond(ref: ImageRef, settings: ConvertSettings, forecast: Forecast) -> bool:
    """Returns whether a limit leaves out an image, good or bad."""
    if forecast.limit_cut is None or not is_image(ref):
        return False
    return limit_order(settings.seed, ref.key) > forecast.limit_cut


class _CarriedPlacement:
    """The placement by a plan; only another plan gets a new one."""

    def __init__(self, settings: ConvertSettings) -> None:
        self._settings = settings
        self._made: tuple[Plan, Placement] | None = None

    def of(self, plan: Plan) -> Placement:
        """Returns the placement by a plan."""
        if self._made is None or self._made[0] is not plan:
            self._made = plan, Placement(self._settings, plan.split_bounds, plan.fold_bounds)
        return self._made[1]


class _HashesOfSparseSplits(beam.DoFn):
    """Yields the hashes of the images in each split that is so small that a shard may be empty."""

    def __init__(self, settings: ConvertSettings) -> None:
        self._settings = settings
        self._placement = _CarriedPlacement(settings)

    def start_bundle(self) -> None:
        self._hashes: defaultdict[str, array[int]] = defaultdict(lambda: array("Q"))

    def process(self, batch: EncodedRefs, forecast: Forecast) -> Iterator[tuple[str, bytes]]:
        shards = forecast.plan.shards
        sparse = {
            split
            for split, images in forecast.candidates.items()
            if shards.get(split, 1) > 1 and images < NEVER_EMPTY * shards[split]
        }
        if not sparse:
            return
        placement = self._placement.of(forecast.plan)
        for ref in decode_refs(batch):
            split = placement.split(ref)
            if split in sparse and ref.is_candidate and not _is_beyond(ref, self._settings, forecast):
                self._hashes[split].append(shard_order(self._settings.seed, ref.key)[0])
        yield from ()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for split, hashes in self._hashes.items():
            yield in_global_window((split, hashes.tobytes()))


def _fill(forecast: Forecast, packed: Iterable[tuple[str, bytes]]) -> Forecast:
    """Adds to a forecast the images that fill shards that would be empty."""
    hashes: defaultdict[str, array[int]] = defaultdict(lambda: array("Q"))
    for split, data in packed:
        hashes[split].frombytes(data)
    shards = forecast.plan.shards
    moved = {split: fill_empty_shards(values, shards[split]) for split, values in hashes.items()}
    return replace(forecast, moved={split: moves for split, moves in moved.items() if moves})


class _AssignShard(_SortInHand):
    """Sorts references by shard."""

    def __init__(self, settings: ConvertSettings) -> None:
        self._settings = settings
        self._placement = _CarriedPlacement(settings)

    def process(self, batch: EncodedRefs, forecast: Forecast) -> Iterator[tuple[ShardId, EncodedRefs]]:
        placement, folds = self._placement.of(forecast.plan), self._settings.folds
        refs = [*decode_refs(batch)]
        hashes = shard_hashes(self._settings.seed, [ref.key for ref in refs])
        for ref, hash_bytes in zip(refs, hashes):
            split, value = placement.split(ref), int.from_bytes(hash_bytes, "big")
            if split != ref.split:  # faster than _replace, which would take a tenth of the time of planning
                ref = ImageRef._make((*ref[:_SPLIT], split, *ref[_SPLIT + 1 :]))
            if folds and ref.is_candidate:
                ref = ref._replace(fold=placement.fold(ref, split))
            if _is_beyond(ref, self._settings, forecast):
                ref = ref._replace(outcome=Outcome.FILTERED, reason=FilterReason.LIMIT, message="")
            # Files without their own key are recorded under one number.
            shard = shard_of(value, forecast.plan.shards.get(split, 1))
            if ref.is_candidate and split in forecast.moved:
                shard = forecast.moved[split].get(value, shard)
            self._put((split, shard), ref)
        yield from self._flush(at_least=_REFS_IN_HAND)


def _all_shards(forecast: Forecast) -> Iterator[tuple[ShardId, EncodedRefs]]:
    """Yields every shard of the plan without references, so that empty shards are written too."""
    for split, count in forecast.plan.shards.items():
        for shard in range(count):
            yield (split, shard), encode_refs(())


class AssignShards(beam.PTransform):
    """Groups references by shard. `PCollection[EncodedRefs] -> [(ShardId, Iterable[EncodedRefs])]`.

    A shard is a range of hashes, so it may be empty if a split has few images for its shards. The images that
    fill it depend on all hashes of the split. So the hashes of such splits are collected first.

    Args:
      settings: checked settings.
      forecast: the single Forecast, with the numbers of images and shards in each split.
    """

    def __init__(self, settings: ConvertSettings, forecast: beam.PCollection) -> None:
        super().__init__()
        self._settings = settings
        self._forecast = forecast

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        types = tuple[ShardId, EncodedRefs]
        hashes = batches | "HashesOfSparseSplits" >> beam.ParDo(
            _HashesOfSparseSplits(self._settings), beam.pvalue.AsSingleton(self._forecast)
        ).with_output_types(tuple[str, bytes])  # (split, hashes)
        filled = self._forecast | "FillEmptyShards" >> beam.Map(
            _fill, beam.pvalue.AsIter(hashes)
        ).with_output_types(Forecast)  # Forecast
        planned = batches | "AssignShard" >> beam.ParDo(
            _AssignShard(self._settings), beam.pvalue.AsSingleton(filled)
        ).with_output_types(types)  # ((split, shard), EncodedRefs)
        every = self._forecast | "NameEveryShard" >> beam.FlatMap(_all_shards).with_output_types(
            types
        )  # ((split, shard), EncodedRefs)
        return (
            (planned, every)
            | "WithEmptyShards" >> beam.Flatten()  # ((split, shard), EncodedRefs)
            | "GroupByShard" >> beam.GroupByKey()  # ((split, shard), [EncodedRefs])
        )


class BucketKeys(_SortInHand):
    """Groups references by their keys alone, so that equal keys of different splits meet."""

    def process(self, batch: EncodedRefs) -> Iterator[tuple[ShardId, EncodedRefs]]:
        """Collects keys and their locations; yields them by bucket when there are many."""
        for ref in decode_refs(batch):
            bucket = zlib.crc32(ref.key.encode()) % _KEY_BUCKETS
            self._put(("", bucket), ImageRef(ref.key, ref.uri, place=ref.place, message=ref.message))
        yield from self._flush(at_least=_REFS_IN_HAND)


def _stands_twice(key: str, first: str, second: str) -> UsageError:
    advice = "rename one, or give each --input a name (a=PATH)"
    if first != second and unicodedata.normalize("NFC", first) == unicodedata.normalize("NFC", second):
        advice = "they differ only in their Unicode form: rename one"
    return UsageError(
        f"Two images have the key {key!r}: {printable(first)} and {printable(second)}; {advice}."
    )


def check_keys(shard: tuple[ShardId, Iterable[EncodedRefs]]) -> Iterator[int]:
    """Checks that no key occurs twice in a shard or bucket.

    Equal keys in one split always meet in one shard. If the sources name splits, equal keys may be in
    different splits; then use `BucketKeys` first.

    Yields:
      The number of references, so that writing can wait for the check of every shard.

    Raises:
      UsageError: if a key occurs twice; the message names it and both places.
    """
    hashes = array("q")  # a key takes 8 bytes here, and 300 in a dictionary with its location
    for batch in shard[1]:
        hashes.extend(hash(ref.key) for ref in decode_refs(batch))
    found, counts = np.unique(np.frombuffer(hashes, np.int64), return_counts=True)
    repeated = set(found[counts > 1].tolist())
    seen: dict[str, str] = {}
    for batch in shard[1] if repeated else ():
        for ref in decode_refs(batch):
            if hash(ref.key) not in repeated:
                continue
            where = f"{ref.location} ({ref.message})" if ref.message else ref.location
            if ref.key in seen:
                raise _stands_twice(ref.key, *sorted((seen[ref.key], where)))
            seen[ref.key] = where
    yield len(hashes)


class BucketSourceIds(_SortInHand):
    """Groups images by the ids that their records store, so that equal ids meet."""

    def process(self, batch: EncodedRefs) -> Iterator[tuple[ShardId, EncodedRefs]]:
        """Collects ids and the locations of their images; yields them by bucket when there are many."""
        for ref in decode_refs(batch):
            number = number_text(source_id_of(ref)) if ref.is_candidate else ""
            if number:  # other ids never look like a number
                reason = "" if ref.source_id else _MADE
                light = ImageRef(ref.key, ref.uri, reason=reason, message=ref.message, source_id=number)
                self._put(("", int(number) % _KEY_BUCKETS), light)
        yield from self._flush(at_least=_REFS_IN_HAND)


def check_source_ids(bucket: tuple[ShardId, Iterable[EncodedRefs]]) -> Iterator[int]:
    """Checks that no id made from a key is also the id of another image.

    Ids from sources may be equal, because exports often number the images of each split from 0.

    Args:
      bucket: contents of a bucket from `BucketSourceIds`.

    Yields:
      The number of ids, so that writing can wait for every bucket's check.

    Raises:
      UsageError: if ids are equal; the message names the id and both images.
    """
    seen: dict[str, ImageRef] = {}
    for batch in bucket[1]:
        for ref in decode_refs(batch):
            other = seen.setdefault(ref.source_id, ref)
            if other is not ref and _MADE in (ref.reason, other.reason):
                first, second = sorted((other.key, ref.key))
                raise UsageError(
                    f"The images {first!r} and {second!r} would both get the image/source_id "
                    f"{ref.source_id}; rename one of them."
                )
    yield len(seen)


def name_planned_shard(
    shard: tuple[ShardId, Iterable[EncodedRefs]], forecast: Forecast, *_checked: Iterable[int]
) -> PlannedShard:
    """Converts a grouped shard to a `PlannedShard`."""
    (split, number), refs = shard
    return PlannedShard(split, number, forecast.plan.shards.get(split, 1), refs)
