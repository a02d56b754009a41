"""Decides whether a rebuild makes a new version: compares each shard with its ledger, and the plans.

Meanwhile it reads a part of the latest version's shards again.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from shardwright.core import storage
from shardwright.core.conversion import ShardRecipe, read_ref
from shardwright.core.images.encode import HEIF_DECODER
from shardwright.core.images.read import map_refs
from shardwright.core.lease import read_holder
from shardwright.core.plan.assign import ShardId
from shardwright.core.rebuild.begin import PreviousState, Warn, touched_files, warned
from shardwright.core.rebuild.task import RebuildTask, read_document, stage
from shardwright.core.shards import reuse
from shardwright.core.shards.shard_plan import ShardPlan
from shardwright.core.sources.listing import ListingDigest
from shardwright.schemas.codes import FindingCode, Outcome, QuarantineReason
from shardwright.schemas.configuration.settings import SUFFIXES
from shardwright.schemas.dataset import Shard
from shardwright.schemas.findings import Finding
from shardwright.schemas.image_ref import NO_SPLIT, ImageRef
from shardwright.schemas.ledger import Entry, load_ledger
from shardwright.schemas.plain_text import printable
from shardwright.schemas.plan import Forecast, index_file, ledger_file
from shardwright.schemas.provenance import Provenance
from shardwright.schemas.units import counted, is_or_are, listed
from shardwright.schemas.version import (
    MAX_NAMED_SHARDS,
    SCRUB_JSON,
    InputState,
    ScrubState,
    choose_shards,
    scrub_text,
    state_after,
    version_path,
)

#: Error codes of a disk that cannot read a part of a file any more.
_BROKEN = frozenset((errno.EIO, getattr(errno, "EBADMSG", errno.EIO), getattr(errno, "EUCLEAN", errno.EIO)))


class ScrubbedShard(NamedTuple):
    """A shard that was read again.

    Attributes:
      file: Name of the shard file.
      bytes: Size of the file in `dataset.json`.
      damage: Description of the damage. Empty if the bytes are intact.
    """

    file: str
    bytes: int
    damage: str = ""


class Decision(NamedTuple):
    """Whether a new version is built, and why.

    Attributes:
      build: Whether a new version is built.
      changed: Number of shards that changed.
      content_changed: Shards whose change shows only in the bytes of their sources.
      reasons: Reasons for the decision, one text each.
      scrubbed: Shards of the latest version that were read again.
      input: State of the input, without a version. None if images may change although it is equal.
    """

    build: bool
    changed: int
    content_changed: frozenset[ShardId] = frozenset()
    reasons: tuple[str, ...] = ()
    scrubbed: tuple[ScrubbedShard, ...] = ()
    input: InputState | None = None

    @property
    def damaged(self) -> frozenset[str]:
        """Files of the latest version that were read again and are damaged."""
        return frozenset(shard.file for shard in self.scrubbed if shard.damage)


def scrub_shard(shard: Shard, previous: PreviousState, task: RebuildTask) -> ScrubbedShard:
    """Reads a shard of the latest version and compares it with its sha256. Renews the lease meanwhile.

    Raises:
      EngineError: If the lease was lost, or the storage failed. An unreadable part of a file counts as damage
        instead.
    """
    task.hold.renew()
    path = storage.join(version_path(task.output, previous.version), shard.file)
    with storage.translated_errors("read", path):
        try:
            with storage.open_local(path) as opened:
                intact = storage.sha256_of(opened) == shard.sha256
            damage = "" if intact else "its bytes do not match its sha256"
        except FileNotFoundError:
            damage = "it is missing"
        except OSError as error:
            if error.errno not in _BROKEN:
                raise
            damage = "the disk cannot read it any more"
    return ScrubbedShard(shard.file, shard.bytes, damage)


def chosen_shards(task: RebuildTask, previous: PreviousState) -> list[Shard]:
    """Returns the shards of the latest version that this run reads again."""
    if previous.dataset is None or previous.ended or task.rules.scrub <= 0:
        return []
    there = [shard for shard in previous.dataset.shards if shard.file not in previous.missing]
    return choose_shards(there, read_state(task.output), task.rules.scrub)


def scrub_facts(previous: PreviousState, scrubbed: Iterable[ScrubbedShard]) -> dict[str, Any]:
    """Returns how much of the latest version was read again, for the outcome of a run."""
    read = sorted(scrubbed)
    every = previous.dataset.shards if previous.dataset is not None else []
    return {
        "version": previous.version,
        "shards": len(read),
        "of_shards": len(every),
        "bytes": sum(shard.bytes for shard in read),
        "of_bytes": sum(shard.bytes for shard in every),
        "damaged": [shard.file for shard in read if shard.damage],
    }


def repaired_shards(version: str, rejected: Iterable[str]) -> Iterator[Finding]:
    """Yields a finding for each damaged shard of the previous version.

    Args:
      version: The previous version.
      rejected: Its damaged shards. Nothing was copied from them.
    """
    for file in sorted(rejected):
        message = (
            f"this shard of version {version} was damaged (its bytes did not match its sha256), so nothing "
            "was copied from it and its images were converted again from the source"
        )
        yield Finding(FindingCode.SHARD_REPAIRED, message, file)


def read_state(output: str) -> ScrubState:
    """Returns when each shard was last read. A damaged or missing file restarts the rotation.

    Raises:
      EngineError: If the storage failed.
    """
    return read_document(output, SCRUB_JSON, ScrubState) or ScrubState()


def remember(
    task: RebuildTask, previous: PreviousState, scrubbed: Iterable[ScrubbedShard], warn: Warn
) -> None:
    """Writes `scrub.json` after a run. If it cannot, it warns; then the rotation only repeats."""
    intact = {shard.file: not shard.damage for shard in scrubbed}
    if previous.dataset is None or not intact:
        return
    path = storage.join(task.output, SCRUB_JSON)
    with warned(warn, f"{printable(path)} could not be written, so the same shards are read again"):
        if read_holder(task.output) == task.holder:  # else another rebuild counts its own runs
            state = state_after(previous.dataset.shards, read_state(task.output), intact)
            storage.write_bytes(path, state.dumps().encode())


def report_decision(task: RebuildTask, previous: PreviousState, decision: Decision, seen: InputState) -> None:
    """Logs the plan, how much was read again, and the decision."""
    message = (
        f"{counted(seen.images, 'image')} of {counted(seen.classes, 'class')} in "
        f"{counted(sum(seen.shards.values()), 'shard')}"
    )
    stage(task, "planned", message, images=seen.images, classes=seen.classes, shards=dict(seen.shards))
    facts = scrub_facts(previous, decision.scrubbed)
    if facts["shards"]:
        stage(task, "scrubbed", scrub_text(facts), **facts)
    message = "; ".join(decision.reasons) or "nothing changed"
    stage(task, "compared", message, changed=decision.changed, why=decision.reasons)


def previous_build(task: RebuildTask, previous: PreviousState) -> reuse.PreviousBuild | None:
    """Returns the latest version as a build whose records can be copied, if there is one."""
    if previous.dataset is None:
        return None
    plan, directory = previous.dataset.plan, version_path(task.output, previous.version)
    suffix = SUFFIXES[str(plan.settings.get("compression", "none"))]
    digests = {shard.file: shard.sha256 for shard in previous.dataset.shards}
    return reuse.PreviousBuild(directory, plan.shards, suffix, digests)


def reusable_builds(task: RebuildTask, previous: PreviousState, decision: Decision) -> reuse.ReusableBuilds:
    """Returns what earlier builds offer to the shards of the new one."""
    touched = touched_files(task, previous)
    unfinished = [(directory, replace(touched, since=started)) for directory, started in previous.offering]
    finished, trust_mtime = previous_build(task, previous), not task.rules.verify_sources
    changed, damaged = decision.content_changed, decision.damaged
    return reuse.ReusableBuilds(unfinished, finished, trust_mtime, changed, damaged, touched)


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


def compare_shard(task: RebuildTask, previous: PreviousState, plan: ShardPlan) -> Compared:
    """Compares a shard with its ledger in the latest version.

    Sources are read if their listing does not identify their state.

    Raises:
      EngineError: If the storage failed, or a source changed meanwhile.
    """
    place, latest = plan.place[:2], version_path(task.output, previous.version)
    try:
        data = storage.read_bytes(storage.join(latest, ledger_file(*plan.place)))
        header, lines = load_ledger(data)
    except (OSError, ValueError):
        return Compared(place, True)
    if header.plan_digest != plan.digest:
        return Compared(place, True)
    is_missing = not previous.missing.isdisjoint((header.file, index_file(*plan.place)))
    every, touched = task.rules.verify_sources, touched_files(task, previous)
    candidates = (ref for ref in plan.refs if ref.is_candidate)
    doubtful = {ref.key for ref in candidates if every or not ref.has_known_state or touched.has(ref)}
    unread = header.reasons.get(Outcome.QUARANTINED, {}).keys() & _MAY_BE_READABLE
    listed_bytes = reuse.lists_may_decide(header, plan.recipe)
    if not doubtful and not unread and not listed_bytes:
        return Compared(place, is_missing)
    try:
        entries = {entry.source: entry for entry in lines}
    except (ValueError, TypeError):
        return Compared(place, True)
    if listed_bytes and any(reuse.lists_decide_otherwise(entry, plan.recipe) for entry in entries.values()):
        return Compared(place, True)
    refs = [
        ref
        for ref in plan.refs
        if ref.key in doubtful
        or (ref.is_candidate and ref.key in entries and not reuse.can_stay(entries[ref.key]))
    ]
    content_changed = any([*map_refs(partial(_has_other_content, plan.recipe, entries), refs)])
    return Compared(place, content_changed or is_missing, content_changed)


def _has_other_content(recipe: ShardRecipe, entries: Mapping[str, Entry], ref: ImageRef) -> bool:
    """Returns whether a source has other bytes, or another reason to be left out, than its ledger states."""
    entry = entries.get(ref.key)
    if entry is None:
        return True
    read = read_ref(ref, recipe, (entry.sha256, entry.mask_sha256))
    if read.problem is not None:
        outcome = read.problem.reason, read.problem.message, read.sha256
        return outcome != (entry.reason, entry.message, entry.sha256)
    return not read.same


def decide(
    previous: PreviousState,
    forecast: Forecast,
    compared: Sequence[Compared],
    versions: Mapping[str, str],
    provenance: Provenance,
    scrubbed: Sequence[ScrubbedShard],
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
        return Decision(False, 0, reasons=("its version was already built",))
    changed = [shard.place for shard in compared if shard.changed]
    count = sum(split != NO_SPLIT for split, _ in changed)
    content_changed = frozenset(shard.place for shard in compared if shard.content_changed)
    if previous.dataset is None:
        return Decision(True, count, content_changed, ("it is the first version",))
    reasons = list(_reasons(previous, forecast, versions))
    # Statements about the origin may be long, so they are not shown.
    before, after = previous.dataset.provenance.as_json(), provenance.as_json()
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            change = "is new" if name not in before else "differs" if name in after else "was removed"
            reasons.append(f"--{name} {change}")
    if count:
        reasons.append(f"{count:,} of {counted(sum(forecast.plan.shards.values()), 'shard')} changed")
    elif changed and not reasons:
        reasons.append("the files without a key differ")
    read = tuple(sorted(scrubbed))
    damaged = [shard.file for shard in read if shard.damage]
    if damaged:
        damage = f"{counted(len(damaged), 'shard')} of {previous.version} {is_or_are(len(damaged))} damaged"
        reasons.append(f"{damage} and rebuilt from the source: {listed(damaged, MAX_NAMED_SHARDS)}")
    return Decision(bool(reasons), count, content_changed, tuple(reasons), read)


def _reasons(previous: PreviousState, forecast: Forecast, versions: Mapping[str, str]) -> Iterator[str]:
    """Yields the differences other than those of the shards."""
    assert previous.dataset is not None
    old, new = previous.dataset.plan, forecast.plan
    for name in sorted({*old.settings, *new.settings}):
        was, now = old.settings.get(name), new.settings.get(name)
        if was != now:
            is_long = name == "layout" and any(str(value).startswith("{") for value in (was, now))
            yield f"--{name} {'differs' if is_long else f'is {now!r}, was {was!r}'}"
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
