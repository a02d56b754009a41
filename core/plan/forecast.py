"""Forecasts a dataset from all references: what will be written, and to which shards."""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.conversion import ShardRecipe, map_reads, measure_read
from shardwright.core.images.convert import Brightness
from shardwright.core.plan.assign import Lowest, Placement, shard_order
from shardwright.core.plan.request import ConversionRequest
from shardwright.core.records.build import label_ids
from shardwright.core.sources.unused_settings import without_effect
from shardwright.schemas import units
from shardwright.schemas.codes import BY_LISTING, Outcome, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, UsageError, nearest
from shardwright.schemas.image_ref import NO_SPLIT, ImageRef
from shardwright.schemas.labels import (
    ClassId,
    check_numbering,
    in_name_order,
    merge_class_ids,
    merge_class_texts,
    order_labels,
    unused_ids,
)
from shardwright.schemas.layouts import FeatureRole, Layout, Needs
from shardwright.schemas.plan import MAX_SHARDS, Forecast, PartBounds, Plan, SplitsFrom
from shardwright.schemas.sidecars import check_split_names
from shardwright.schemas.sketches import Sums
from shardwright.schemas.splits import in_split_order, totals_of
from shardwright.schemas.units import counted, is_or_are

_LOG = logging.getLogger(__name__)
#: Settings that determine the number of shards.
_SHARD_COUNTS = ("shards", "shard_size")
_EXAMPLES = 3
#: Number of readable images in the sample for the mean encoded size.
SAMPLE_IMAGES = 64
#: Number of images with the lowest hashes that may be tried for the sample.
SAMPLE_CANDIDATES = 1024
#: Largest mean number of records per shard.
MAX_RECORDS_PER_SHARD = 100_000
#: Faults of a file that are found when it is listed. Its class still exists, so that the ids of classes do
#: not depend on whether their images can be read.
_FAULTS_OF_FILES = frozenset(
    (QuarantineReason.EMPTY_FILE, QuarantineReason.NOT_AN_IMAGE, QuarantineReason.UNSUPPORTED_FORMAT)
)


@dataclass(frozen=True)
class Sample:
    """Results of the sample.

    Attributes:
      tried: Number of images read.
      faults: Quarantine reason -> number of images.
      mean_bytes: Mean size of a framed record in bytes; 0 without a readable image.
      mean_source_bytes: Mean size of the readable images' sources in bytes.
      rejected: The faulty images.
      brightnesses: Brightness of each readable image of 16 bits, unless the settings state what is white.
    """

    tried: int
    faults: Mapping[str, int]
    mean_bytes: float
    mean_source_bytes: float
    rejected: Sequence[ImageRef] = ()
    brightnesses: Sequence[Brightness] = ()


@dataclass
class Examples:
    """A few texts, the same ones for any order of adding and merging."""

    texts: list[str] = field(default_factory=list)

    def add(self, *texts: str) -> None:
        """Adds texts."""
        self.texts = sorted({*self.texts, *texts})[:_EXAMPLES]

    def merge(self, other: Self) -> Self:
        """Adds other examples; returns itself."""
        self.add(*other.texts)
        return self


@dataclass
class RefSummary(Sums):
    """Counts over all references; summaries can be merged in any order.

    Attributes:
      listed: Split -> number of files; `NO_SPLIT` for files without their own key.
      outcomes: (outcome, reason) -> number of files decided before reading; copies have one reason.
      candidates: Split -> number of images to convert.
      source_bytes: Split -> bytes of their sources, without those that are too large to be read.
      classes: Number of images to convert per split and class name; 0 for a class with only bad images.
      origins: Whether they are images to convert, and whether the source names their split, which otherwise
        a hash chooses -> number of references.
      sample: The candidates with the lowest hashes.
      examples: Quarantine reason -> a few references that their source quarantined.
      ungrouped: Number of keys that `--split_by` does not match.
      ungrouped_examples: A few of these keys.
    """

    listed: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    candidates: Counter[str] = field(default_factory=Counter)
    source_bytes: Counter[str] = field(default_factory=Counter)
    classes: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    origins: Counter[tuple[bool, bool]] = field(default_factory=Counter)
    sample: Lowest[ImageRef] = field(default_factory=lambda: Lowest(SAMPLE_CANDIDATES))
    ungrouped: int = 0
    ungrouped_examples: Examples = field(default_factory=Examples)
    examples: defaultdict[str, Examples] = field(default_factory=lambda: defaultdict(Examples))

    def add(self, ref: ImageRef, placement: Placement) -> None:
        """Counts a reference."""
        split, settings = placement.split(ref), placement.settings
        self.listed[split] += 1
        self.origins[not ref.outcome, bool(ref.split)] += 1
        if ref.outcome:  # it is not converted
            self.outcomes[ref.outcome, "" if ref.outcome == Outcome.DEDUPLICATED else ref.reason] += 1
            if ref.outcome == Outcome.QUARANTINED:
                self.examples[ref.reason].add(f"{ref.location}: {ref.message}")
                if ref.reason in _FAULTS_OF_FILES:
                    self.classes[split].update(dict.fromkeys(ref.labels, 0))
            return
        if placement.misses_group(ref):
            self.ungrouped += 1
            self.ungrouped_examples.add(ref.key)
        self.candidates[split] += 1
        self.source_bytes[split] += _source_bytes(ref, settings)
        self.classes[split].update(ref.labels)
        self.sample.add(shard_order(settings.seed, ref.key), ref)


def _source_bytes(ref: ImageRef, settings: ConvertSettings) -> int:
    """Returns the bytes of a source that may be stored; 0 if it is too large to be read."""
    return max(ref.size, 0) if ref.size <= settings.max_source_bytes else 0


def make_forecast(
    request: ConversionRequest,
    summary: RefSummary,
    class_ids: Sequence[ClassId] = (),
    unmatched: Sequence[str] = (),
    split_bounds: PartBounds | None = None,
    fold_bounds: PartBounds | None = None,
) -> Forecast:
    """Chooses labels and numbers of shards, after converting a sample of the images.

    It notes in the forecast, and on a terminal, which settings have no effect.

    Args:
      request: The request, with the plan to carry on.
      summary: Summary of all references.
      class_ids: Ids that sources give to class names.
      unmatched: Sentences about names and lists of settings that match no image.
      split_bounds: Chosen bounds of the splits, if `--splits` alone does not decide them.
      fold_bounds: Chosen bounds of the folds, if `--folds` alone does not decide them.

    Raises:
      UsageError: If there is nothing to convert, or the source counts its classes from 1.
    """
    settings, class_names = request.settings, request.class_names
    carried = request.carried or Plan((), {}, {}, {})
    _check_something_to_do(summary, settings, unmatched)
    layout, keys = settings.record_layout, request.rules.keys
    own_ids = request.rules.apply_to_ids(merge_class_ids(class_ids))
    classes = totals_of(summary.classes)
    if class_names:
        labels = tuple(name or str(class_id) for class_id, name in enumerate(class_names, layout.first_label))
    else:
        labels = order_labels(classes, carried.labels, own_ids, layout.first_label)
    recipe = ShardRecipe(settings, layout, label_ids(labels, layout.first_label), keys=keys)
    sample = take_sample([ref for _, ref in summary.sample.items], recipe)
    _check_brightness(sample, settings)
    placement, rejected = Placement(settings, split_bounds), Counter[str]()
    for ref in sample.rejected:
        rejected[placement.split(ref)] += _source_bytes(ref, settings)
    # Carried numbers of shards stay unless the settings of shards change.
    identity = settings.identity()
    same = [carried.settings.get(name) == identity[name] for name in _SHARD_COUNTS]
    stays = request.carried is not None and all(same)
    shards: dict[str, int] = {}
    estimates: dict[str, int] = {}
    splits = _checked_splits(summary, settings, carried.shards)
    fixed = _fixed_counts(splits, settings, stays)
    for split in splits:
        records, size = summary.candidates[split], summary.source_bytes[split] - rejected[split]
        estimate = estimate_bytes(sample, records, size, settings)
        count = fixed.get(split) or shard_count(estimate, records, units.parse_size(settings.shard_size))
        if stays and split in carried.shards:
            before, old = carried.shards[split], carried.estimate.get(split, 0)
            count = carried_count(before, old, estimate, count)
            estimate = old if count == before else estimate
        shards[split], estimates[split] = count, estimate
    splits_from = SplitsFrom.BOTH if (True, False) in summary.origins else SplitsFrom.SOURCE
    splits_from = splits_from if (True, True) in summary.origins else SplitsFrom.HASH
    facts = replace(request.facts, splits_from=splits_from)
    notes = tuple(without_effect(request.given, facts, request.facts))
    texts = _texts(labels, layout, request.rules.apply_to_texts(merge_class_texts(class_ids)), carried)
    named = {*classes, *own_ids, *class_names}
    unused = unused_ids(labels, layout.first_label, named, carried.labels, carried.unused_ids)
    forecast = Forecast(
        plan=Plan(labels, shards, estimates, identity, texts, unused, split_bounds, fold_bounds),
        candidates={split: summary.candidates[split] for split in shards},
        listed={split: summary.listed[split] for split in (*shards, *({NO_SPLIT} & summary.listed.keys()))},
        filtered={
            reason: count
            for (outcome, reason), count in sorted(summary.outcomes.items())
            if outcome == Outcome.FILTERED
        },
        deduplicated=summary.outcomes[Outcome.DEDUPLICATED, ""],
        source_bytes=sum(summary.source_bytes.values()),
        class_counts=in_name_order(classes),
        sampled=sample.tried,
        sample_faults=sample.faults,
        warnings=(*unmatched, *_warnings(request, summary, classes, labels, shards, class_ids), *notes),
        split_class_counts={split: in_name_order(summary.classes.get(split, {})) for split in shards},
        splits_from=splits_from,
        keys=keys,
    )
    PROGRESS.tell(*notes)
    PROGRESS.tree = forecast.tree
    _LOG.info("The input holds %s", forecast.tree)
    PROGRESS.total_images = forecast.total
    PROGRESS.total_shards = sum(shards.values())
    return forecast


def take_sample(candidates: Sequence[ImageRef], recipe: ShardRecipe) -> Sample:
    """Converts the first `SAMPLE_IMAGES` readable images of `candidates`, in their order.

    Raises:
      EngineError: If no image can be read.
    """
    # Bytes of the record and of the source, and the brightness, of each readable image.
    readable: list[tuple[int, int, Brightness | None]] = []
    faults: Counter[str] = Counter()
    rejected: list[ImageRef] = []
    tried = 0
    while tried < len(candidates) and len(readable) < SAMPLE_IMAGES:
        # Exactly the number that is missing, so that the result does not depend on the threads.
        batch = candidates[tried : tried + SAMPLE_IMAGES - len(readable)]
        tried += len(batch)
        measured = map_reads(partial(measure_read, recipe), batch, recipe)
        for ref, (size, entry, bright) in zip(batch, measured, strict=True):
            if size:
                readable.append((size, max(ref.size, 0), bright))
            elif entry.outcome == Outcome.QUARANTINED:
                faults[entry.reason] += 1
                rejected.append(ref)
    if faults[QuarantineReason.UNREADABLE] == tried > 1:
        raise EngineError(
            f"None of the {counted(tried, 'image')} tried can be read, such as "
            f"{candidates[0].uri}: check the permissions of the account that reads them."
        )
    count = max(len(readable), 1)
    return Sample(
        tried=tried,
        faults=dict(sorted(faults.items())),
        mean_bytes=sum(size for size, _, _ in readable) / count,
        mean_source_bytes=sum(source for _, source, _ in readable) / count,
        rejected=rejected,
        brightnesses=[bright for _, _, bright in readable if bright is not None],
    )


def _check_brightness(sample: Sample, settings: ConvertSettings) -> None:
    """Checks that 16-bit images would not all become dark in 8 bits, as images of 12-bit cameras do.

    Raises:
      UsageError: If no sample of any of them is in the upper quarter of its range. Black images do not count.
    """
    bright = [item for item in sample.brightnesses if item.highest > 0]
    if not bright or any(4 * item.highest >= 3 * item.white for item in bright):
        return
    top = max(bright)
    # The usual depths of cameras and scanners that store their samples in 16 bits.
    likely = next(value for value in (255, 1023, 4095, 16383, 65535) if value >= top.highest)
    stated = "" if likely >= top.white else f", or state the sample that is white with --white {likely}"
    raise UsageError(
        f"--input {', '.join(settings.input)}: the samples of {counted(len(bright), '16-bit image')} tried "
        f"run up to {top.highest} only, but white is {top.white}, so all would be dark in 8 bits; keep 16 "
        f"bits with --depth keep{stated} (--white 65535 if they are meant to be so dark)."
    )


def estimate_bytes(sample: Sample, records: int, source_bytes: int, settings: ConvertSettings) -> int:
    """Returns the estimated number of bytes in a split.

    If source bytes are kept, this is the size of the sources plus the mean overhead of a record in the
    sample. Otherwise it is based on the mean size of a record in the sample.
    """
    if settings.stored_format == "keep" and settings.target is None and sample.mean_source_bytes:
        return round(source_bytes * sample.mean_bytes / sample.mean_source_bytes)
    return round(records * sample.mean_bytes)


def shard_count(estimate: int, records: int, shard_size: int) -> int:
    """Returns the number of shards of a split.

    ceil(estimate / shard_size), at most one per record, at least enough for a mean of 100,000 records per
    shard, and at least one.
    """
    by_size = -(-estimate // shard_size)
    by_records = -(-records // MAX_RECORDS_PER_SHARD)
    return max(1, min(max(by_size, by_records), records, MAX_SHARDS))


def carried_count(old_count: int, old_estimate: int, new_estimate: int, fresh: int) -> int:
    """Returns the number of shards of a split with a carried plan.

    It changes only if the estimate reaches twice or half of the one from which it was chosen.
    """
    if old_estimate <= 0:
        return old_count if new_estimate <= 0 else fresh
    grown, shrunk = new_estimate >= 2 * old_estimate, 2 * new_estimate <= old_estimate
    return fresh if grown or shrunk else old_count


def _checked_splits(summary: RefSummary, settings: ConvertSettings, carried: Iterable[str]) -> list[str]:
    """Returns the splits of the dataset, from the settings, the source and a carried plan.

    Args:
      summary: Summary of all references.
      settings: Checked settings.
      carried: Splits of the carried plan.

    Raises:
      UsageError: If a split cannot have its name.
    """
    hashed = any(not is_named for _, is_named in summary.origins)
    names = list(settings.parsed_splits) if hashed else []
    own = {*summary.listed, *carried} - {NO_SPLIT, *names}
    splits = in_split_order([*names, *sorted(own)])
    try:
        check_split_names(splits)
    except ValueError as error:
        raise UsageError(f"The {error}; rename it in the source.") from None
    return splits


def _fixed_counts(splits: Sequence[str], settings: ConvertSettings, stays: bool) -> Mapping[str, int]:
    """Returns split -> number of shards, for the splits that `--shards` names.

    Args:
      splits: Splits of the dataset.
      settings: Checked settings.
      stays: Whether carried numbers apply, which were given for the splits of an earlier build.

    Raises:
      UsageError: If it names a split that does not exist.
    """
    counts = units.parse_shards(settings.shards) if settings.shards else {}
    if isinstance(counts, int):
        return dict.fromkeys(splits, counts)
    unknown = sorted(set(counts) - set(splits))
    if unknown and not stays:
        raise UsageError(
            f"--shards {settings.shards}: there is no split {unknown[0]!r}; the splits are "
            f"{', '.join(splits)}."
        )
    return counts


def _texts(
    labels: Sequence[str], layout: Layout, values: Mapping[str, str], carried: Plan
) -> tuple[str, ...]:
    """Returns the readable names of the classes, if the layout stores them besides a code."""
    text_of = {**carried.text_of, **values}
    texts = tuple(text_of.get(name, "") if text_of.get(name) != name else "" for name in labels)
    stored = {FeatureRole.SYNSET, FeatureRole.LABEL_TEXT} <= layout.by_role.keys()
    return texts if stored and any(texts) else ()


def _check_something_to_do(summary: RefSummary, settings: ConvertSettings, unmatched: Sequence[str]) -> None:
    """Checks that there is an image to convert.

    Raises:
      UsageError: If there is none.
    """
    if sum(summary.candidates.values()):
        return
    listed = sum(summary.listed.values())
    unlabelled = summary.outcomes[Outcome.QUARANTINED, QuarantineReason.UNKNOWN_LABEL]
    kinds = ", ".join(
        f"{count:,} {reason}" for (_, reason), count in sorted(summary.outcomes.items()) if reason
    )
    chosen = {reason.value for reason in BY_LISTING}
    if not listed:
        why = " is empty; name a folder that holds images, or a table of images."
    elif unlabelled:
        why = (
            f": none of its {counted(unlabelled, 'image')} has a class, such as "
            f"{summary.examples[QuarantineReason.UNKNOWN_LABEL].texts[0]}; put the images of each class into "
            "a sub-folder of its own, name the class with --label_regex or --label_column, or keep images "
            "without a class with --unlabelled keep."
        )
    elif summary.examples:
        reason = min(summary.examples)
        why = (
            f" holds no image that could be converted: {counted(listed, 'entry')} listed, "
            f"the first bad one is {summary.examples[reason].texts[0]} ({reason})."
        )
    elif unmatched:
        why = f": no image is left ({kinds}). {' '.join(unmatched)}"
    elif any(reason in chosen for _, reason in summary.outcomes):
        why = f": no image is left ({kinds}); check --include, --exclude and --min_bytes."
    else:
        why = (
            f" holds no images: none of its {counted(listed, 'file')} is an image"
            f"{f' ({kinds})' if kinds else ''}; check the path, or unpack archives."
        )
    raise UsageError(f"--input {', '.join(settings.input)}{why}")


def _warnings(
    request: ConversionRequest,
    summary: RefSummary,
    classes: Mapping[str, int],
    labels: Sequence[str],
    shards: Mapping[str, int],
    class_ids: Iterable[ClassId],
) -> Iterator[str]:
    """Yields warnings about the images and their classes.

    Args:
      request: The request.
      summary: Summary of all references.
      classes: Class name -> number of images to convert.
      labels: Class names in the order of their ids.
      shards: Split -> number of shards.
      class_ids: Ids that sources give to class names.

    Raises:
      UsageError: If the source counts its classes from 1, but the class names are counted from 0.
    """
    settings = request.settings
    needs_label = settings.record_layout.needs is Needs.LABEL
    allowed = labels if request.class_names else ()
    unlisted = [name for name, count in in_name_order(classes).items() if count and name not in allowed]
    if allowed and unlisted and needs_label:
        count = sum(classes[name] for name in unlisted)
        hint = nearest(unlisted[0], allowed) or "; add a line for it."
        others = len(unlisted) - 1
        more = f" and {counted(others, 'other class', 'other classes')}" if others else ""
        yield (
            f"{counted(count, 'image')} {is_or_are(count)} bad, because --class_names {settings.class_names} "
            f"does not list the class {unlisted[0]!r}{more}{hint}"
        )
    crowded = ((split, count) for split, count in shards.items() if 0 < summary.candidates[split] < count)
    if settings.shards and (split_of_few := next(crowded, None)):
        split, count = split_of_few
        images = summary.candidates[split]
        yield (
            f"--shards {settings.shards}: split {split} has {counted(images, 'image')}, so "
            f"{counted(count - images, 'shard')} will be empty; write --shards {images} or fewer."
        )
    if len(labels) == 1 and needs_label:
        yield (
            f"There is only one class, {labels[0]!r}, but a classifier needs two; "
            "is the input one folder too deep?"
        )
    forms = {unicodedata.normalize("NFC", name): name for name in labels}
    pairs = ((name, forms[unicodedata.normalize("NFC", name)]) for name in labels)
    if alike := [f"{name!a} and {other!a}" for name, other in pairs if name != other]:
        more = f", and so do {counted(len(alike) - 1, 'other pair')}" if len(alike) > 1 else ""
        yield (
            f"The classes {alike[0]} differ only in their Unicode form{more}; give both one name with a file "
            "for --rename_labels."
        )
    objects = {split: summary.classes[split].total() for split, count in summary.candidates.items() if count}
    if settings.record_layout.needs is Needs.OBJECTS and not all(objects.values()):
        without = units.listed(in_split_order(split for split, count in objects.items() if not count))
        yield (
            f"No image of {without} has an object with a class; check the names and places of the annotation "
            "files."
        )
    if summary.ungrouped:
        yield (
            f"--split_by does not match {counted(summary.ungrouped, 'key')}, such as "
            f"{', '.join(map(repr, summary.ungrouped_examples.texts))}: each is a group of its own."
        )
    for reason in sorted(summary.examples):
        count = summary.outcomes[Outcome.QUARANTINED, reason]
        yield (
            f"{counted(count, 'entry')} of the input {is_or_are(count)} left out as {reason}, "
            f"such as {'; '.join(summary.examples[reason].texts)}."
        )
    names = request.rules.names
    if names and not request.rules.first_number and names[0] not in classes:
        check_numbering(classes, names, settings.record_layout.first_label, settings.class_names)
        if any(item.name == str(item.id) for item in class_ids):
            yield (
                f"No image has the class number 0 ({names[0]!r}); check that the source does not count "
                "its classes from 1."
            )
