"""Compares a dataset shard by shard with the source that it was made from. Needs no Beam.

Images and records that do not meet in their shard were moved, renamed, or put into another split. They meet
in buckets: first of equal keys, then of equal source checksums.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, repeat
from typing import IO, NamedTuple

from shardwright.core import storage
from shardwright.core.conversion import Converted, ReadImage, ShardRecipe, convert_refs, read_ref
from shardwright.core.hash_buckets import bucket_of, packed_by, unpack_rows
from shardwright.core.images.encode import codec_versions
from shardwright.core.images.map_hook import hook_versions
from shardwright.core.images.read import map_refs
from shardwright.core.plan.assign import Placement, limit_order, shard_order
from shardwright.core.records.build import label_ids
from shardwright.core.records.compression import uncompressed
from shardwright.core.records.encodings import plain_feature
from shardwright.core.records.framing import FRAME_BYTES, HEADER_BYTES, Record, read_records
from shardwright.core.sources.rules import Rules
from shardwright.core.sources.source import Input
from shardwright.core.sources.spool import Spool
from shardwright.core.validation import against_record
from shardwright.schemas import __version__
from shardwright.schemas.codes import FilterReason, FindingCode, Outcome, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.dataset import STATEMENTS_VERSION, Dataset, Shard
from shardwright.schemas.example import ParsedExample
from shardwright.schemas.findings import Finding
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef
from shardwright.schemas.layouts import FeatureRole, FeatureSpec
from shardwright.schemas.ledger import Entry, load_ledger
from shardwright.schemas.plain_text import printable
from shardwright.schemas.plan import ShardPlace, ledger_file


class SoundRecord(NamedTuple):
    """A sound record without its data.

    Attributes:
      number: Number of the record in its shard, from 0.
      offset: Offset of its frame in the uncompressed shard.
      length: Length of its frame.
      digest: sha256 of its data.
      key: Key in the record. None if the record does not say.
    """

    number: int
    offset: int
    length: int
    digest: bytes
    key: str | None = None


def read_rows(file: IO[bytes], key: FeatureSpec | None) -> Iterator[SoundRecord]:
    """Yields a row for every sound record of an open shard.

    Args:
      file: The shard.
      key: Feature with the key of a record. None if records do not state it.
    """
    for item in read_records(file):
        if isinstance(item, Record):
            length, digest = len(item.data) + FRAME_BYTES, hashlib.sha256(item.data).digest()
            yield SoundRecord(item.number, item.offset, length, digest, _key(item.data, key))


def _key(data: bytes, spec: FeatureSpec | None) -> str | None:
    if spec is None:
        return None
    try:
        feature = ParsedExample(data).feature(spec.name)
        if feature.type is not spec.type:
            return None
        values = plain_feature(spec, feature).values
        return str(values[0], "utf-8", "replace") if len(values) == 1 else None
    except (ValueError, TypeError):
        return None


def record_data(file: IO[bytes], row: SoundRecord) -> bytes:
    """Returns the data of a record of an open shard."""
    file.seek(row.offset + HEADER_BYTES)
    return file.read(row.length - FRAME_BYTES)


def rows_by_key(
    rows: Sequence[SoundRecord], entries: Mapping[str, Entry], has_keys: bool, bytes_tell: bool
) -> dict[str, list[SoundRecord]] | None:
    """Returns the rows by the key of their image; None if the key of a row is not known.

    Records that should state their key but do not are under an empty key.

    Args:
      rows: Rows of a shard.
      entries: Entries of its ledger. Empty if there is no ledger.
      has_keys: Whether records state their keys.
      bytes_tell: Whether the bytes of a record are enough to find its image.
    """
    by_offset = {entry.offset: entry for entry in entries.values() if entry.offset is not None}
    if not has_keys and bytes_tell and len(rows) != len(by_offset):
        return None
    by_key: dict[str, list[SoundRecord]] = {}
    for row in rows:
        key = row.key
        entry = by_offset.get(row.offset)
        if entry is not None and entry.length == row.length and key in (None, entry.file_name or None):
            key = entry.key
        elif key is None and not has_keys:
            return None
        by_key.setdefault(key or "", []).append(row)
    return by_key


@dataclass(frozen=True)
class Comparison:
    """A comparison of a dataset with its source.

    Attributes:
      directory: The dataset directory.
      dataset: Its `dataset.json`.
      settings: Settings of the dataset, with the inputs to compare with.
      inputs: The parsed inputs of the source.
      rules: Which listed images are taken, and how class names of the source map to labels.
      spool: Place for copies of sources without random access.
      convert: Whether to convert every image again. Otherwise images are only read.
      same_machine: Whether this machine's processor gives the same pixels as the one that made the dataset.
    """

    directory: str
    dataset: Dataset
    settings: ConvertSettings
    inputs: tuple[Input, ...]
    rules: Rules
    spool: Spool
    convert: bool
    same_machine: bool

    @property
    def images(self) -> dict[str, int]:
        """Number of images in each split, including bad ones; empty if a limit changed it.

        Then the images of the shards that would be empty are not known: they are matched by key. If a hook
        changed it, it is 0, so that the images of all splits are counted.
        """
        ledger = self.dataset.ledger
        if ledger.get("reasons", {}).get(Outcome.FILTERED, {}).get(FilterReason.LIMIT):
            return {}
        if self.settings.map:
            return dict.fromkeys(self.dataset.splits, 0)
        return {
            split: sum(counts.get(outcome, 0) for outcome in (Outcome.WRITTEN, Outcome.QUARANTINED))
            for split, counts in ledger.get("splits", {}).items()
        }

    def facts(self) -> against_record.ComparisonSettings:
        """Returns the settings for comparing records with the software of this process."""
        versions = {"shardwright": __version__, **codec_versions(), **hook_versions(self.settings.map)}
        same = versions.items() <= self.dataset.versions.items()
        return against_record.ComparisonSettings(
            self.dataset.features,
            self.dataset.labels,
            self.dataset.first_label,
            same and self.same_machine,
            bool(self.settings.strip_metadata),
            bool(self.settings.map),
        )

    def recipe(self) -> ShardRecipe:
        """Returns the recipe for converting images."""
        layout = self.settings.record_layout
        if self.dataset.statements_version != STATEMENTS_VERSION:
            # The layout may have had other features in that version.
            layout = replace(layout, features=self.dataset.features)
        plan = self.dataset.plan
        ids = label_ids(plan.labels, layout.first_label)
        return ShardRecipe(self.settings, layout, ids, plan.text_of, self.rules.keys)


class _Item(NamedTuple):
    """An image of the source (or one that `--map` makes of it), its ledger entry, and its records."""

    ref: ImageRef
    entry: Entry | None
    rows: Sequence[SoundRecord]
    key: str


@dataclass
class _Shard:
    """A shard during its comparison.

    Attributes:
      comparison: The comparison.
      facts: Settings for comparing records.
      recipe: Recipe for converting images.
      place: Place of the shard.
      name: Name of the file. None if the dataset has no such shard.
      entries: Entries of its ledger by key. None if there is no usable ledger.
      items: Images to compare.
      lost: Rows without an image.
      limit_cut: Sort key of the first image that the limit left out. None if there is none.
    """

    comparison: Comparison
    facts: against_record.ComparisonSettings
    recipe: ShardRecipe
    place: ShardPlace
    name: str | None = None
    entries: Mapping[str, Entry] = field(default_factory=dict)
    items: list[_Item] = field(default_factory=list)
    lost: list[tuple[str, SoundRecord]] = field(default_factory=list)

    @cached_property
    def limit_cut(self) -> tuple[int, str] | None:
        seed = self.comparison.settings.seed
        what = (Outcome.FILTERED, FilterReason.LIMIT)
        beyond = (key for key, entry in self.entries.items() if (entry.outcome, entry.reason) == what)
        return min((limit_order(seed, key) for key in beyond), default=None)


def compare_shard(
    split: str, number: int, refs: list[ImageRef], comparison: Comparison
) -> Iterator[Finding | Leftover]:
    """Compares a shard with its images in the source.

    Args:
      split: Split of the shard.
      number: Number of the shard in its split.
      refs: Images that the plan places there.
      comparison: The comparison.

    Yields:
      Findings, and images and records that have no partner here but may have one in another shard.

    Raises:
      EngineError: If the storage or the machine failed, or the source changed meanwhile.
    """
    dataset, directory = comparison.dataset, comparison.directory
    shards = dataset.splits.get(split, ())
    place = ShardPlace(split, number, len(shards))
    refs.sort(key=lambda ref: shard_order(comparison.settings.seed, ref.key))
    work = _Shard(comparison, comparison.facts(), comparison.recipe(), place)
    if number >= len(shards):
        _place(work, refs, {})
        yield from _compare(work, None)
        return
    shard: Shard = shards[number]
    work.name = shard.file
    ledger = storage.read_if_exists(storage.join(directory, ledger_file(*place)))
    with contextlib.suppress(ValueError):  # it is missing, damaged or of another build
        work.entries = {entry.key: entry for entry in load_ledger(ledger or b"", shard.sha256)[1]}
    path = storage.join(directory, shard.file)
    try:
        # Other checks report damage.
        with storage.open_local(path) as stored, uncompressed(stored, path) as (file, _, _):
            key = dataset.spec(FeatureRole.KEY)
            rows = list(read_rows(file, key))
            bytes_tell = comparison.convert and work.facts.same_software
            placed = rows_by_key(rows, work.entries, key is not None, bytes_tell)
            if placed is None and bytes_tell:
                yield from _compare_by_bytes(work, refs, rows, file)
                return
            _place(work, refs, _in_order(rows, work.entries, refs) if placed is None else placed)
            yield from _compare(work, file)
    except FileNotFoundError:
        return  # the check of the shard itself reports this
    except OSError as error:
        raise storage.fault(error, "read", path) from error


def _in_order(
    rows: Sequence[SoundRecord], entries: Mapping[str, Entry], refs: Sequence[ImageRef]
) -> dict[str, list[SoundRecord]]:
    """Returns rows by image key, matched by order alone because nothing else identifies them."""
    keys = [key for key, entry in entries.items() if entry.outcome == Outcome.WRITTEN]
    keys = keys or [ref.key for ref in refs if ref.is_candidate]
    keys += [""] * (len(rows) - len(keys))
    placed: dict[str, list[SoundRecord]] = {}
    for key, row in zip(keys, rows):
        placed.setdefault(key, []).append(row)
    return placed


def _place(work: _Shard, refs: Iterable[ImageRef], placed: dict[str, list[SoundRecord]]) -> None:
    """Matches images and rows."""
    by_source: dict[str, list[Entry]] = {}
    for image_entry in work.entries.values():
        if image_entry.source_key:
            by_source.setdefault(image_entry.source_key, []).append(image_entry)
    for ref in refs:
        if ref.key in by_source:
            for image_entry in by_source[ref.key]:
                work.items.append(_Item(ref, image_entry, placed.pop(image_entry.key, ()), image_entry.key))
            continue
        rows = placed.pop(ref.key, ())
        entry = work.entries.get(ref.key)
        if rows:
            if ref.outcome == Outcome.DEDUPLICATED:  # a newer copy now comes before this image
                ref = ref._replace(outcome="", reason="")
            work.items.append(_Item(ref, entry, rows, ref.key))
        elif _is_missing(work, ref, entry):
            work.items.append(_Item(ref, entry, (), ref.key))
    work.lost += ((key, row) for key, rows in placed.items() for row in rows)


def _is_missing(work: _Shard, ref: ImageRef, entry: Entry | None) -> bool:
    """Returns whether an image without a record should have one, judged without reading it."""
    if entry is not None:
        if entry.outcome == Outcome.FILTERED and entry.reason == FilterReason.LIMIT:
            return ref.is_candidate and not work.comparison.settings.limit
        return entry.outcome == Outcome.WRITTEN or ref.is_candidate
    if ref.outcome in (Outcome.FILTERED, Outcome.DEDUPLICATED):
        return False
    cut = work.limit_cut
    return cut is None or limit_order(work.comparison.settings.seed, ref.key) < cut


def _truths(work: _Shard) -> Iterator[against_record.ExpectedRecord]:
    """Yields the present states of the images to compare, in order."""
    groups = [list(items) for _, items in groupby(work.items, key=lambda item: item.ref.key)]
    refs, recipe = [items[0].ref for items in groups], work.recipe
    states: Iterable[Converted | ReadImage]
    if work.comparison.convert:
        states = convert_refs(refs, recipe)
    else:
        states = map_refs(lambda ref: read_ref(ref, recipe), refs)
    for items, state in zip(groups, states, strict=True):
        if isinstance(state, ReadImage):
            yield from repeat(against_record.truth_of(state), len(items))
            continue
        by_key = {image.entry.key: image for image in (state, *state.more)}
        for item in items:
            gone = Converted(Entry(item.key, Outcome.FILTERED, reason=FilterReason.DROPPED_BY_MAP))
            known = item.entry is not None and state.entry.source_key
            yield against_record.truth_of(by_key.get(item.key, gone if known else state))


def _compare(work: _Shard, file: IO[bytes] | None) -> Iterator[Finding | Leftover]:
    for item, truth in zip(work.items, _truths(work), strict=True):
        if not item.rows:
            yield from _missing(work, item, truth)
        for row in item.rows:
            assert file is not None
            if truth.example and hashlib.sha256(truth.example).digest() == row.digest:
                continue
            data = record_data(file, row)
            for code, message in against_record.compare_record(data, item.ref, item.entry, truth, work.facts):
                yield Finding(code, message, work.name, row.number, row.offset, item.key)
    for key, row in work.lost:
        assert file is not None
        yield _lost(work, key, row, file)


def _compare_by_bytes(
    work: _Shard, refs: Sequence[ImageRef], rows: Sequence[SoundRecord], file: IO[bytes]
) -> Iterator[Finding | Leftover]:
    """Compares records without known keys: those with equal bytes belong together.

    The others are matched by order, if there are as many of them as of images without a record.
    """
    by_digest: dict[bytes, list[SoundRecord]] = {}
    for row in reversed(rows):
        by_digest.setdefault(row.digest, []).append(row)
    held: dict[bytes, SoundRecord] = {}
    _place(work, refs, {})  # places none, so that the images that should have a record remain
    open_items: list[tuple[_Item, Entry]] = []
    for item, truth in zip(work.items, _truths(work), strict=True):
        digest = hashlib.sha256(truth.example or b"").digest()
        if truth.example and by_digest.get(digest):
            held[digest] = by_digest[digest].pop()
        elif item.entry is not None or truth.entry.outcome != Outcome.FILTERED:
            open_items.append((item, truth.entry))
    rest = sorted((row for group in by_digest.values() for row in group), key=lambda row: row.offset)
    doubled = [row for row in rest if row.digest in held]
    others = [row for row in rest if row.digest not in held]
    for row in doubled:
        first = held[row.digest].number
        message = f"it equals record {first}, and the source has no second image for it"
        yield Finding(FindingCode.DUPLICATE_KEY, message, work.name, row.number, row.offset)
    if len(others) == len(open_items):
        pairs = zip(others, open_items, strict=True)
        work.items = [_Item(item.ref, item.entry, (row,), item.key) for row, (item, _) in pairs]
        yield from _compare(work, file)
        return
    for item, entry in open_items:
        yield from _missing(work, item, against_record.ExpectedRecord(entry))
    for row in others:
        yield _lost(work, "", row, file)


def _missing(work: _Shard, item: _Item, truth: against_record.ExpectedRecord) -> Iterator[Leftover]:
    """Yields an image that should have a record, if reading it confirms that."""
    ref, entry, now = item.ref, item.entry, truth.entry
    code, convert = FindingCode.RECORD_MISSING, work.comparison.convert
    fault = ""
    if now.outcome == Outcome.QUARANTINED:
        fault = f" (which would be quarantined: {now.reason}, {now.message})"
    if entry is not None and entry.reason == QuarantineReason.DAMAGED_RECORD:
        message = f"salvage could not save its record; convert the source again{fault}"
    elif entry is not None and entry.outcome == Outcome.QUARANTINED:
        if now.outcome != Outcome.WRITTEN or not work.facts.same_software or not convert:
            return
        message = f"it was quarantined as {entry.reason}, but nothing is wrong with it now"
        code = FindingCode.SOURCE_CHANGED
    elif entry is not None and entry.outcome not in (Outcome.DEDUPLICATED, Outcome.FILTERED):
        message = "the ledger lists it as written, but no sound record contains it"
    elif now.outcome == Outcome.FILTERED:
        return
    elif entry is None:
        message = f"neither a record nor the ledger has the image at {printable(ref.location)}{fault}"
    elif entry.outcome == Outcome.DEDUPLICATED:
        message = f"it was left out as a copy of {entry.reason!r}, but it is not a copy"
        code = FindingCode.SOURCE_CHANGED
    elif entry.stage and not convert:
        return  # a setting leaves it out, which only converting it can show
    else:
        message = (
            f"the ledger lists it as filtered ({entry.reason}), but the source has it as an image{fault}"
        )
    settings = work.comparison.settings
    splits = work.comparison.dataset.plan.split_bounds
    by_hash = Placement(settings, splits).split(ref._replace(split=""))
    finding = Finding(code, message, work.name, key=ref.key)
    yield Leftover(False, finding, now.sha256, ref.label, work.place.split, by_hash != work.place.split)


def _lost(work: _Shard, key: str, row: SoundRecord, file: IO[bytes]) -> Leftover:
    """Returns a record whose image is not where the plan places it."""
    entry = work.entries.get(key)
    digest, label, source_key = (entry.sha256, entry.label, entry.source_key) if entry else ("", "", "")
    with contextlib.suppress(ValueError):
        parsed = against_record.ParsedRecord.of(record_data(file, row), work.facts)
        digest = parsed.sha256 or digest
        names = parsed.names(work.facts)
        label = label if names is None else LABEL_SEPARATOR.join(names)
    where = "the source no longer has such an image" if key else "no image of the source converts to it"
    code = FindingCode.SOURCE_MISSING
    finding = Finding(code, where, work.name, row.number, row.offset, key or None)
    label = "" if work.facts.mapped else label  # the function of --map may have changed it
    return Leftover(True, finding, digest, label, work.place.split, source_key=source_key)


#: (what, bucket), packed leftovers.
Packed = tuple[tuple[str, int], bytes]
KEY, SOURCE = "key", "source"


class Leftover(NamedTuple):
    """An image without a record, or a record without an image.

    Attributes:
      is_record: Whether it is a record. Otherwise it is an image.
      finding: The finding if it has no partner.
      sha256: sha256 of the source's bytes. Empty if it is not known.
      label: Class names, as in an `ImageRef`.
      split: Split of the record, or planned split of the image.
      given_split: Whether the source names a split that the hash would not give.
      source_key: Key of the image of which `--map` made the record. Empty if it has the record's own key.
    """

    is_record: bool
    finding: Finding
    sha256: str
    label: str
    split: str
    given_split: bool = False
    source_key: str = ""

    def name(self, what: str) -> str:
        """Returns the value that equal leftovers share, `KEY` or `SOURCE`; empty if it is not known."""
        return (self.source_key or self.finding.key if what == KEY else self.sha256) or ""


def bucket_leftovers(leftovers: Iterable[Leftover], what: str, buckets: int) -> Iterator[Packed]:
    """Returns leftovers packed by bucket, so that equal ones meet.

    Args:
      leftovers: Leftovers of a shard or bucket.
      what: Value that has to be equal: `KEY` or `SOURCE`.
      buckets: Number of buckets.
    """
    return packed_by(((what, bucket_of(item.name(what), buckets)), item) for item in leftovers)


def meet(bucket: tuple[tuple[str, int], Iterable[bytes]]) -> Iterator[Finding | Leftover]:
    """Yields the findings of the pairs in a bucket, and the leftovers without a partner."""
    (what, _), packs = bucket
    groups: defaultdict[str, tuple[list[Leftover], list[Leftover]]] = defaultdict(lambda: ([], []))
    for item in map(Leftover._make, unpack_rows(packs)):
        if name := item.name(what):
            groups[name][item.is_record].append(item)
        else:
            yield item
    for images, records in groups.values():
        yield from _meet(images, records, what)


def _meet(images: list[Leftover], records: list[Leftover], what: str) -> Iterator[Finding | Leftover]:
    """Pairs equal leftovers, those of one class first, and all records of one image with it."""
    by_label: defaultdict[str, list[Leftover]] = defaultdict(list)
    for image in sorted(images, key=_order, reverse=True):
        by_label[image.label].append(image)
    pairs, alone = [], []
    for record in sorted(records, key=_order):
        if same := by_label.get(record.label):
            pairs.append((record, same.pop()))
        else:
            alone.append(record)
    left = sorted((image for group in by_label.values() for image in group), key=_order)
    pairs += zip(alone, left)
    paired = min(len(alone), len(left))
    image_of = {record.source_key: image for record, image in pairs if record.source_key}
    rest = alone[paired:]
    pairs += [(record, image_of[record.source_key]) for record in rest if record.source_key in image_of]
    for record, image in pairs:
        yield from _moved(record, image) if what == KEY else _renamed(record, image)
    yield from (record for record in rest if record.source_key not in image_of)
    yield from left[paired:]


def _order(item: Leftover) -> tuple[str, str, int]:
    return item.finding.key or "", item.finding.shard or "", item.finding.offset or 0


def _moved(record: Leftover, image: Leftover) -> Iterator[Finding]:
    """Yields findings for a record whose image has the same key but is planned in another shard."""
    if record.split != image.split:
        message = f"the source puts it into split {image.split!r}, the record is in {record.split!r}"
        yield replace(record.finding, code=FindingCode.SOURCE_LABEL, message=message)
    if difference := _class_difference(record, image):
        yield replace(record.finding, code=FindingCode.SOURCE_LABEL, message=difference)
    if record.sha256 and image.sha256 and record.sha256 != image.sha256:
        message = against_record.other_source(image.sha256, record.sha256)
        yield replace(record.finding, code=FindingCode.SOURCE_CHANGED, message=message)


def _renamed(record: Leftover, image: Leftover) -> Iterator[Finding]:
    """Yields the finding for a record whose image now has another key."""
    moved, code = f"the source has its image as {image.finding.key!r} now", FindingCode.SOURCE_LABEL
    if difference := _class_difference(record, image):
        yield replace(record.finding, code=code, message=f"{moved}: {difference}")
    elif image.given_split and image.split != record.split:
        message = f"{moved}, in split {image.split!r}; the record is in {record.split!r}"
        yield replace(record.finding, code=code, message=message)
    else:
        yield replace(record.finding, message=moved)


def _class_difference(record: Leftover, image: Leftover) -> str:
    """Returns how the classes differ; empty if they do not, or are not known."""
    if not record.label or not image.label or record.label == image.label:
        return ""
    mine, true = record.label.split(LABEL_SEPARATOR), image.label.split(LABEL_SEPARATOR)
    return f"the source says {against_record.classes(true)}, the record {against_record.classes(mine)}"
