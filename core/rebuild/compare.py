"""Finds what changed since the latest version, by comparing each shard with its ledger, and the plans."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from shardwright.core import storage
from shardwright.core.conversion.convert import ShardRecipe, read_ref
from shardwright.core.conversion.reusable import SourceDigests
from shardwright.core.images.encode import HEIF_DECODER
from shardwright.core.images.read import map_refs
from shardwright.core.plan.planned_shard import ShardId
from shardwright.core.rebuild.begin import PreviousState
from shardwright.core.rebuild.decision import Decision, ScrubbedShard
from shardwright.core.rebuild.task import RebuildTask
from shardwright.core.shards.finish import ShardPlace
from shardwright.core.shards.reuse import can_stay, lists_decide_otherwise, lists_may_decide
from shardwright.core.shards.shard_plan import ShardPlan
from shardwright.core.sources.file_states import TouchedFiles
from shardwright.core.sources.listing import ListingDigest
from shardwright.schemas.codes import Outcome, QuarantineReason
from shardwright.schemas.image_ref import NO_SPLIT, ImageRef
from shardwright.schemas.input_state import InputState
from shardwright.schemas.ledger import Entry, is_whole, ledger_header, load_ledger
from shardwright.schemas.plan import Forecast, index_file, ledger_file
from shardwright.schemas.provenance import Provenance
from shardwright.schemas.scrub import listed
from shardwright.schemas.units import counted, is_or_are

_SHOWN = 3

#: Reasons with which the ledger records images that could not be read.
_MAY_BE_READABLE = frozenset((QuarantineReason.UNREADABLE, QuarantineReason.BAD_ANNOTATION))


class Compared(NamedTuple):
    """Result of comparing one shard.

    Attributes:
      place: Split and number of the shard.
      changed: Whether the shard differs from the latest version.
      content_changed: Whether the change shows only in the bytes of the sources.
    """

    place: ShardId
    changed: bool
    content_changed: bool = False


def compare_shard(
    shard: ShardPlace,
    plan: ShardPlan,
    latest: str,
    missing: Container[str],
    verify_sources: bool,
    touched: TouchedFiles,
) -> Compared:
    """Compares a shard with its ledger in the latest version.

    Sources are read if their listing does not identify their state.

    Args:
      shard: Place of the shard.
      plan: Its plan.
      latest: Dataset directory of the latest version.
      missing: Files that do not exist any more.
      verify_sources: Whether to read every source.
      touched: Files whose states are not trusted.

    Raises:
      EngineError: If the storage failed, or a source changed meanwhile.
    """
    place = shard.split, shard.shard
    try:
        data = storage.read_bytes(storage.join(latest, ledger_file(*shard)))
        header = ledger_header(data)
    except (OSError, ValueError):
        return Compared(place, True)
    if header.file in missing or index_file(*shard) in missing:
        return Compared(place, True)
    if header.plan_digest != plan.digest or not is_whole(data):
        return Compared(place, True)
    candidates = (ref for ref in plan.refs if ref.is_candidate)
    doubtful = {
        ref.key for ref in candidates if verify_sources or not ref.has_known_state or touched.has(ref)
    }
    unread = header.reasons.get(Outcome.QUARANTINED, {}).keys() & _MAY_BE_READABLE
    listed_bytes = lists_may_decide(header, plan.recipe)
    if not doubtful and not unread and not listed_bytes:
        return Compared(place, False)
    try:
        entries = {entry.source: entry for entry in load_ledger(data)[1]}
    except (ValueError, TypeError):
        return Compared(place, True)
    if listed_bytes and lists_decide_otherwise(entries.values(), plan.recipe):
        return Compared(place, True)
    refs = [
        ref
        for ref in plan.refs
        if ref.key in doubtful or (ref.is_candidate and ref.key in entries and not can_stay(entries[ref.key]))
    ]
    content_changed = bool(refs) and _have_other_content(refs, plan.recipe, entries)
    return Compared(place, content_changed, content_changed)


def _have_other_content(refs: Sequence[ImageRef], recipe: ShardRecipe, entries: Mapping[str, Entry]) -> bool:
    """Returns whether any source has other bytes, or another fault, than its ledger states."""

    def has_other_content(ref: ImageRef) -> bool:
        entry = entries.get(ref.key)
        if entry is None:
            return True
        read = read_ref(ref, recipe, SourceDigests(entry.sha256, entry.mask_sha256))
        if read.fault is not None:
            outcome = read.fault.reason, read.fault.message, read.sha256
            return outcome != (entry.reason, entry.message, entry.sha256)
        return not read.same

    return any([*map_refs(has_other_content, refs, recipe.settings.max_source_bytes)])


def decide(
    previous: PreviousState,
    forecast: Forecast,
    compared: Sequence[Compared],
    versions: Mapping[str, str],
    provenance: Provenance,
    scrubbed: Sequence[ScrubbedShard] = (),
) -> Decision:
    """Decides whether a new version is built.

    Args:
      previous: State at the beginning.
      forecast: Forecast of the current input.
      compared: Result for each shard.
      versions: Software versions that affect bytes.
      provenance: What the new version would state about its origin.
      scrubbed: Shards of the latest version that were read again.
    """
    if previous.ended:
        return Decision(False, len(compared), 0, reasons=("its version was already built",))
    count = sum(shard.changed for shard in compared)
    content_changed = frozenset(shard.place for shard in compared if shard.content_changed)
    if previous.dataset is None:
        return Decision(True, len(compared), count, content_changed, ("it is the first version",))
    reasons = list(_reasons(previous, forecast, versions))
    reasons += _provenance_reasons(previous.dataset.provenance, provenance)
    if count:
        reasons.append(f"{count:,} of {counted(len(compared), 'shard')} changed")
    read = tuple(sorted(scrubbed))
    damaged = [shard.file for shard in read if shard.damage]
    if damaged:
        damage = f"{counted(len(damaged), 'shard')} of {previous.version} {is_or_are(len(damaged))} damaged"
        reasons.append(f"{damage} and rebuilt from the source: {listed(damaged)}")
    return Decision(bool(reasons), len(compared), count, content_changed, tuple(reasons), read)


def _provenance_reasons(old: Provenance, new: Provenance) -> Iterator[str]:
    """Yields the statements about the origin that differ. Their texts may be long, so they are not shown."""
    before, after = old.as_json(), new.as_json()
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            change = "is new" if name not in before else "differs" if name in after else "was removed"
            yield f"--{name} {change}"


def _reasons(previous: PreviousState, forecast: Forecast, versions: Mapping[str, str]) -> Iterator[str]:
    """Yields the differences other than those of the shards."""
    assert previous.dataset is not None
    old, new = previous.dataset.plan, forecast.plan
    for name in sorted({*old.settings, *new.settings}):
        if old.settings.get(name) != new.settings.get(name):
            yield f"--{name} is {new.settings.get(name)!r}, was {old.settings.get(name)!r}"
    before = previous.dataset.versions
    for name in sorted({*before, *versions}):
        if name != HEIF_DECODER and before.get(name) != versions.get(name):
            yield f"{name} is {versions.get(name)}, was {before.get(name)}: its output is rebuilt"
    if old.labels != new.labels:
        added = [name for name in new.labels if name not in old.labels]
        more = ", ..." if len(added) > _SHOWN else ""
        yield f"new classes: {', '.join(added[:_SHOWN])}{more}" if added else "the classes differ"
    elif old.unused_ids != new.unused_ids:
        yield "the ids without a class differ"
    if dict(old.shards) != dict(new.shards):
        yield f"shards are {dict(new.shards)}, were {dict(old.shards)}"
    if old.split_bounds != new.split_bounds:
        yield "the bounds of the splits differ"
    if old.fold_bounds != new.fold_bounds:
        yield "the bounds of the folds differ"
    if old.texts != new.texts:
        yield "the display names of classes differ"
    was = {split: counts["listed"] for split, counts in previous.dataset.ledger["splits"].items()}
    if was.get(NO_SPLIT, 0) != forecast.listed.get(NO_SPLIT, 0):
        yield "the number of files without a key differs"
    if previous.missing:
        count = len(previous.missing)
        files = f"{counted(count, 'file')} of the latest version {is_or_are(count)} missing"
        yield f"{files}, such as {min(previous.missing)}"


def input_state(task: RebuildTask, forecast: Forecast, planned: int, listing: ListingDigest) -> InputState:
    """Returns the state of the input, without a version.

    Args:
      task: The rebuild.
      forecast: Forecast of the input.
      planned: Number of planned shards.
      listing: Digest of the listing. If an image may change without a change of it, it is left out.
    """
    return InputState(
        version="",
        fingerprint="",
        request=task.request,
        listing="" if listing.untrusted else listing.text,
        images=forecast.total,
        classes=len(forecast.plan.labels) - len(forecast.plan.unused_ids),
        planned=planned,
        shards=dict(forecast.plan.shards),
        tree=forecast.tree,
        splits_from=str(forecast.splits_from),
        checked=task.started,
    )
