"""Whether a rebuild makes a new version, and why."""

from __future__ import annotations

from typing import NamedTuple

from shardwright.core.plan.planned_shard import ShardId
from shardwright.core.rebuild.begin import PreviousState
from shardwright.core.rebuild.events import stage
from shardwright.core.rebuild.scrub import ScrubbedShard, scrub_facts, tell
from shardwright.core.rebuild.task import RebuildTask
from shardwright.schemas.input_state import InputState
from shardwright.schemas.units import counted


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
    tell(task, scrub_facts(previous, decision.scrubbed))
    message = "; ".join(decision.reasons) or "nothing changed"
    stage(task, "compared", message, changed=decision.changed, why=decision.reasons)
