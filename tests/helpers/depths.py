"""Checks small datasets at each depth with the functions of the checks alone, without an engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from helpers.duplicate_search import compare_rows
from shardwright.core.dataset_files import read_dataset
from shardwright.core.plan import assign
from shardwright.core.sources.listing import input_parts, list_part
from shardwright.core.sources.source import Context
from shardwright.core.validation.against import (
    KEY,
    SOURCE,
    Comparison,
    Leftover,
    bucket_leftovers,
    compare_shard,
    meet,
)
from shardwright.core.validation.shard import check_shard
from shardwright.pipelines import validate
from shardwright.pipelines.places import Target, resolve_target, schema_of
from shardwright.schemas.codes import CheckDepth
from shardwright.schemas.errors import UsageError
from shardwright.schemas.findings import Finding, FindingSummary
from shardwright.schemas.image_ref import NO_SPLIT, ImageRef, encode_refs
from shardwright.schemas.plan import Forecast

DEPTHS = ("frames", "fast", "full", "against")
#: Split and number of a shard -> the images that the plan assigns to it.
Placed = list[tuple[str, int, list[ImageRef]]]


def compared(dataset: Path, source: Path | str, mode: str = "full", **listing: Any) -> list[Finding]:
    """Returns the findings of a comparison, without those from reading the dataset alone."""
    target = resolve_target(str(dataset))
    with validate.prepared_comparison(target, [str(source)], listing, mode) as comparison:
        assert comparison is not None
        found = FindingSummary().add(_differences(comparison, _placed(comparison)))
    return list(found.by_place())


def placed_images(dataset: Path, how: Mapping[str, Any]) -> Placed:
    """Returns the source images of a sound dataset by shard, in the form that `--against` uses."""
    target, listing = resolve_target(str(dataset)), how.get("listing", {})
    with validate.prepared_comparison(target, [how["against"]], listing, "fast") as comparison:
        assert comparison is not None
        return _placed(comparison)


def _placed(comparison: Comparison) -> Placed:
    """Lists the source, and assigns its images to shards as the plan of the dataset says."""
    settings, plan = comparison.settings, comparison.dataset.plan
    assert settings.dedupe == "none" and not settings.max_per_class, "an engine leaves out such images"
    context = Context(settings, comparison.spool, comparison.rules)
    items = [item for part in input_parts(comparison.inputs, context) for item in list_part(part, context)]
    refs = [item for item in items if isinstance(item, ImageRef)]
    forecast = Forecast(plan, comparison.images, {}, {}, 0, 0, {}, 0, {})
    filled = assign.fill_shards(
        forecast, assign.hashes_of_sparse_splits(encode_refs(refs), forecast, settings)
    )
    shards: dict[assign.ShardId, list[ImageRef]] = {place: [] for place, _ in assign.every_shard(forecast)}
    for place, ref in assign.refs_by_shard(settings, refs, filled):
        shards.setdefault(place, []).append(ref)
    return [(split, number, refs) for (split, number), refs in shards.items() if split != NO_SPLIT]


def findings_of(dataset: Path | str, depth: str = "full") -> list[Finding]:
    """Returns the findings of a check of a dataset that can be read, without its sources."""
    return list(_findings(resolve_target(str(dataset)), depth, {}, []))


def findings_at(dataset: Path, depth: str, how: Mapping[str, Any], placed: Placed) -> list[Finding] | str:
    """Returns the findings of a check; `refused` if the dataset cannot be read."""
    try:
        return list(_findings(resolve_target(str(dataset)), depth, how, placed))
    except UsageError:
        return "refused"


def _findings(target: Target, depth: str, how: Mapping[str, Any], placed: Placed) -> Iterator[Finding]:
    level = {"frames": CheckDepth.FRAMES, "fast": CheckDepth.FAST}.get(depth, CheckDepth.FULL)
    yield from validate.directory_findings(target).by_place()
    checks = [check_shard(task, schema_of(target), level) for task in validate.list_tasks(target)]
    for check in checks:
        yield from check.findings
    if level is CheckDepth.FRAMES:
        return
    assert target.directory is not None
    yield from validate.statement_findings(target, read_dataset(target.directory), checks).by_place()
    yield from compare_rows(check.rows for check in checks)
    if depth == "against":
        listing = how.get("listing", {})
        with validate.prepared_comparison(target, [how["against"]], listing, "full") as against:
            assert against is not None
            yield from _differences(against, placed)


def _differences(comparison: Comparison, placed: Placed) -> Iterator[Finding]:
    """Compares the shards of a dataset with the images that the plan assigns to them."""
    return _met(
        item
        for split, number, refs in placed
        for item in compare_shard(split, number, list(refs), comparison)
    )


def _met(items: Iterable[Finding | Leftover]) -> Iterator[Finding]:
    """Yields findings about records that have the same key, then about those that have the same source."""
    left = list(items)
    for what in (KEY, SOURCE):
        yield from (item for item in left if isinstance(item, Finding))
        packed = defaultdict(list)
        for bucket, pack in bucket_leftovers((item for item in left if isinstance(item, Leftover)), what, 1):
            packed[bucket].append(pack)
        left = [item for bucket in packed.items() for item in meet(bucket)]
    yield from (item.finding if isinstance(item, Leftover) else item for item in left)
