"""Chooses the shards of the latest version that a rebuild reads again, and stores when it read them.

The rotation counts runs, so it does not depend on a clock: the shards that were read longest ago come first.
A shard that was written since the last run counts as read then, because it was verified when it was written.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardwright.schemas.dataset import Document, Shard
from shardwright.schemas.units import counted, format_size

#: Default share of the shards that a run reads again: all of them in 30 runs.
DEFAULT_SCRUB = 1 / 30
#: Maximum number of damaged shards that a sentence names.
_SHOWN = 3
#: Number of digits of a shard's sha256 that identify the shard.
_DIGITS = 16
#: Tolerance for rounding: 0.07 of 100 shards are 7, although the product is slightly larger.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ScrubState(Document):
    """The contents of `scrub.json`.

    Attributes:
      run: Number of runs that have read shards again.
      shards: File -> the first digits of the shard's sha256, and the number of the run that read it last; 0
        for a shard that no run has read or that was damaged.
    """

    run: int = 0
    shards: Mapping[str, tuple[str, int]] = field(default_factory=dict)


def choose_shards(shards: Sequence[Shard], state: ScrubState, fraction: float) -> list[Shard]:
    """Returns the shards to read now, in the order of the dataset: those that were read longest ago.

    Args:
      shards: All shards of the latest version.
      state: The runs that last read each shard.
      fraction: Share of the shards to read, from 0 to 1. Above 0 this is at least one shard.
    """
    count = min(len(shards), math.ceil(len(shards) * fraction - _ROUNDING))
    oldest_first = sorted(range(len(shards)), key=lambda i: (_last_read(shards[i], state), i))
    return [shards[i] for i in sorted(oldest_first[: max(count, 0)])]


def state_after(
    shards: Sequence[Shard], state: ScrubState, sound: Collection[str], damaged: Collection[str]
) -> ScrubState:
    """Returns the state after a run.

    Args:
      shards: All shards of the version that the run read.
      state: State before the run.
      sound: Files that the run read and found undamaged.
      damaged: Files that it found damaged. They are read again first, in case their repair is refused.
    """
    run = state.run + 1
    last: dict[str, tuple[str, int]] = {}
    for shard in shards:
        when = run if shard.file in sound else 0 if shard.file in damaged else _last_read(shard, state)
        last[shard.file] = shard.sha256[:_DIGITS], when
    return ScrubState(run, last)


def _last_read(shard: Shard, state: ScrubState) -> int:
    digest, run = state.shards.get(shard.file, ("", 0))
    return run if digest == shard.sha256[:_DIGITS] else state.run


def scrub_text(facts: Mapping[str, Any]) -> str:
    """Returns one line: how much was read again, and how much of it was damaged.

    Args:
      facts: `version`, `shards`, `of_shards`, `bytes`, `of_bytes`, and the `damaged` files.
    """
    share = f"{format_size(facts['bytes'])} of {format_size(facts['of_bytes'])}"
    read = f"{facts['shards']:,} of {counted(facts['of_shards'], 'shard')} of {facts['version']} read again"
    damaged = facts["damaged"]
    found = f"{len(damaged):,} damaged: {listed(damaged)}" if damaged else "none is damaged"
    return f"{read} ({share}), {found}"


def listed(files: Sequence[str]) -> str:
    """Returns the first names of a list in words."""
    more = f" and {len(files) - _SHOWN:,} more" if len(files) > _SHOWN else ""
    return ", ".join(files[:_SHOWN]) + more
