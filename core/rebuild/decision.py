"""Reads a part of the latest version's shards again, and says whether a rebuild makes a new version."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from shardwright.core import storage
from shardwright.core.lease import read_holder
from shardwright.core.plan.planned_shard import ShardId
from shardwright.core.rebuild.begin import PreviousState, touched_files, warned
from shardwright.core.rebuild.events import stage
from shardwright.core.rebuild.task import RebuildTask
from shardwright.core.shards.reuse import PreviousBuild, ReusableBuilds
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.configuration.settings import SUFFIXES
from shardwright.schemas.dataset import Dataset, Shard
from shardwright.schemas.findings import Finding
from shardwright.schemas.image_ref import printable
from shardwright.schemas.input_state import InputState
from shardwright.schemas.scrub import ScrubState, choose_shards, scrub_text, state_after
from shardwright.schemas.units import counted
from shardwright.schemas.version import SCRUB_JSON, version_path

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
      shards: Number of shards.
      changed: Number of shards that changed.
      content_changed: Shards whose change shows only in the bytes of their sources.
      reasons: Reasons for the decision, one text each.
      scrubbed: Shards of the latest version that were read again.
      input: State of the input, without a version. None if images may change although it is equal.
    """

    build: bool
    shards: int
    changed: int
    content_changed: frozenset[ShardId] = frozenset()
    reasons: tuple[str, ...] = ()
    scrubbed: tuple[ScrubbedShard, ...] = ()
    input: InputState | None = None

    @property
    def damaged(self) -> frozenset[str]:
        """Files of the latest version that were read again and are damaged."""
        return frozenset(shard.file for shard in self.scrubbed if shard.damage)


def shards_of(made: Dataset) -> list[Shard]:
    """Returns all shards of a dataset in the order of its `dataset.json`."""
    return [shard for shards in made.splits.values() for shard in shards]


def scrub_shard(directory: str, file: str, sha256: str) -> str:
    """Reads a shard and compares it with its sha256.

    Args:
      directory: Directory of the version.
      file: Name of the shard file.
      sha256: Hex digest from `dataset.json`.

    Returns:
      Description of the damage. Empty if the bytes are intact.

    Raises:
      EngineError: If the storage failed. An unreadable part of a file counts as damage instead.
    """
    path = storage.join(directory, file)
    with storage.translated_errors("read", path):
        try:
            with storage.open_local(path) as opened:
                found = storage.sha256_of(opened)
        except FileNotFoundError:
            return "it is missing"
        except OSError as error:
            if error.errno not in _BROKEN:
                raise
            return "the disk cannot read it any more"
    return "" if found == sha256 else "its bytes do not match its sha256"


def chosen_shards(task: RebuildTask, previous: PreviousState) -> list[Shard]:
    """Returns the shards of the latest version that this run reads again."""
    if previous.dataset is None or previous.ended or task.rules.scrub <= 0:
        return []
    there = [shard for shard in shards_of(previous.dataset) if shard.file not in previous.missing]
    return choose_shards(there, read_state(task.output), task.rules.scrub)


def scrub_facts(previous: PreviousState, scrubbed: Iterable[ScrubbedShard]) -> dict[str, Any]:
    """Returns how much of the latest version was read again, for the outcome of a run."""
    read = sorted(scrubbed)
    every = shards_of(previous.dataset) if previous.dataset is not None else []
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
    data = storage.read_if_exists(storage.join(output, SCRUB_JSON))
    try:
        return ScrubState.loads(data) if data is not None else ScrubState()
    except ValueError:
        return ScrubState()


def remember(task: RebuildTask, previous: PreviousState, scrubbed: Iterable[ScrubbedShard]) -> list[str]:
    """Writes `scrub.json` after a run. If it cannot, it returns a warning; then the rotation only repeats."""
    read = list(scrubbed)
    warnings: list[str] = []
    if previous.dataset is None or not read:
        return warnings
    sound = {shard.file for shard in read if not shard.damage}
    damaged = {shard.file for shard in read if shard.damage}
    path = storage.join(task.output, SCRUB_JSON)
    with warned(warnings, f"{printable(path)} could not be written, so the same shards are read again"):
        if read_holder(task.output) == task.holder:  # else another rebuild counts its own runs
            state = state_after(shards_of(previous.dataset), read_state(task.output), sound, damaged)
            storage.write_bytes(path, state.dumps().encode())
    return warnings


def report_decision(task: RebuildTask, previous: PreviousState, decision: Decision, seen: InputState) -> None:
    """Logs the plan, how much was read again, and the decision.

    Args:
      task: The rebuild.
      previous: State at the beginning.
      decision: The decision.
      seen: Counts of the input.
    """
    message = (
        f"{counted(seen.images, 'image')} of {counted(seen.classes, 'class')} in "
        f"{counted(decision.shards, 'shard')}"
    )
    stage(task, "planned", message, images=seen.images, classes=seen.classes, shards=dict(seen.shards))
    facts = scrub_facts(previous, decision.scrubbed)
    if facts["shards"]:
        stage(task, "scrubbed", scrub_text(facts), **facts)
    message = "; ".join(decision.reasons) or "nothing changed"
    stage(task, "compared", message, changed=decision.changed, why=decision.reasons)


def previous_build(task: RebuildTask, previous: PreviousState) -> PreviousBuild | None:
    """Returns the latest version as a build whose records can be copied, if there is one."""
    if previous.dataset is None:
        return None
    plan, directory = previous.dataset.plan, version_path(task.output, previous.version)
    suffix = SUFFIXES[str(plan.settings.get("compression", "none"))]
    digests = {shard.file: shard.sha256 for shard in shards_of(previous.dataset)}
    return PreviousBuild(directory, plan.shards, suffix, digests, previous.dataset.files)


def reusable_builds(task: RebuildTask, previous: PreviousState, decision: Decision) -> ReusableBuilds:
    """Returns what earlier builds offer to the shards of the new one."""
    return ReusableBuilds(
        previous.offering,
        previous_build(task, previous),
        not task.rules.verify_sources,
        decision.content_changed,
        decision.damaged,
        touched_files(task, previous),
    )
