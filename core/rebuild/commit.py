"""Commits the shards of a new version as a dataset, unless nothing changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from shardwright.core.commit import ConversionSpec, commit
from shardwright.core.dataset_files import dataset_name
from shardwright.core.rebuild.begin import PreviousState
from shardwright.core.rebuild.compare import Decision, scrub_facts
from shardwright.core.rebuild.events import stage
from shardwright.core.rebuild.task import RebuildTask
from shardwright.core.validation.shard import ShardCheck
from shardwright.core.versions import read_version_record
from shardwright.schemas.codes import Outcome
from shardwright.schemas.ledger import ShardResult
from shardwright.schemas.plan import Forecast
from shardwright.schemas.units import counted
from shardwright.schemas.version import VersionState


def commit_version(
    task: RebuildTask,
    previous: PreviousState,
    decision: Decision,
    forecast: Forecast,
    results: Sequence[ShardResult],
    checks: Sequence[ShardCheck],
) -> dict[str, Any] | None:
    """Writes the `dataset.json` of a new version and its side files.

    The gates, not this step, limit the count of bad images, so that a version with too many can be inspected.

    Returns:
      The outcome of the commit, the counts of the work, and the damaged shards of the previous version. None
      if nothing changed.

    Raises:
      DataRefused: If there is no record.
      EngineError: If the totals do not balance, the lease was lost or the storage failed.
    """
    if not decision.build:
        return None
    if read_version_record(task.output, task.version).state is not VersionState.BUILDING:
        return {"work": work_of(results)}  # the engine ran this step again after the gates
    settings = replace(task.settings, max_bad_fraction=1.0)
    rejected = decision.damaged.union(*(result.rejected for result in results))
    facts = scrub_facts(previous, decision.scrubbed)
    run = {**task.run, "scrub": facts} if facts["shards"] else task.run
    job = ConversionSpec(
        task.directory, task.directory, settings, task.versions, run, task.started,
        called=dataset_name(task.output), hold=task.hold,
    )  # fmt: skip
    outcome = {
        **commit(job, forecast, results, checks), "work": work_of(results), "rejected": sorted(rejected),
    }  # fmt: skip
    stage(task, "committed", work_text(outcome["work"]), **outcome["work"])
    return outcome


def work_of(results: Sequence[ShardResult]) -> dict[str, int]:
    """Returns counts of the work done for a version."""
    counts: Counter[str] = Counter()
    for result in results:
        if result.reused:
            counts["reused_shards"] += bool(result.header.file)
            continue
        counts["copied"] += result.copied
        counts["converted"] += result.header.records - result.copied
        counts["quarantined"] += result.header.counts.get(Outcome.QUARANTINED, 0)
    names = ("reused_shards", "copied", "converted", "quarantined")
    return {
        "shards": sum(bool(result.header.file) for result in results),
        **{name: counts[name] for name in names},
    }


def work_text(work: Mapping[str, int]) -> str:
    """Returns the work done for a version, in words."""
    return (
        f"{work['reused_shards']:,} of {counted(work['shards'], 'shard')} reused, "
        f"{counted(work['copied'], 'record')} copied, {counted(work['converted'], 'image')} converted, "
        f"{work['quarantined']:,} quarantined"
    )
