"""The counts over all references do not depend on their order or on merging."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef
from shardwright.transforms.plan import forecast
from shardwright.transforms.plan.assign import limit_order, shard_order
from shardwright.transforms.plan.estimate import SAMPLE_CANDIDATES, Sample
from shardwright.transforms.plan.forecast import Placement, RefSummary

REFS = [
    ImageRef(
        f"c{i % 7}/{i:05d}.jpg",
        f"/in/c{i % 7}/{i:05d}.jpg",
        f"c{i % 7}",
        size=i,
        outcome="filtered" if i % 11 == 0 else "",
        reason="dotfile" if i % 11 == 0 else "",
    )
    for i in range(6 * SAMPLE_CANDIDATES)
]
BAD = [ImageRef(f"rows.csv:{i}", "/in/rows.csv").quarantined("BAD_ROW") for i in range(500)]
BY_LIMIT = sorted((ref for ref in REFS if ref.is_candidate), key=lambda ref: limit_order(0, ref.key))
BY_ORDER = sorted((ref for ref in REFS if ref.is_candidate), key=lambda ref: shard_order(0, ref.key))


def summarize(
    settings: ConvertSettings, seed: int, parts: int, listed: Sequence[ImageRef] = REFS
) -> RefSummary:
    """Adds all references, shuffled, to this many summaries, and merges these."""
    shuffler = random.Random(seed)
    refs = shuffler.sample(listed, len(listed))
    placement = Placement(settings)
    merged = RefSummary()
    for part in range(parts):
        summary = RefSummary()
        for ref in refs[part::parts]:
            summary.add(ref, settings, placement)
        if shuffler.random() < 0.5:
            summary.trim(settings)
        merged.merge(summary, settings)
    return merged


@pytest.mark.parametrize("parts", [1, 2, 5, 50])
def test_the_sample_has_the_lowest_hashes(parts: int) -> None:
    settings = ConvertSettings(splits="train=0.8,test=0.2")
    summary = summarize(settings, seed=parts, parts=parts)
    assert summary.finish(settings) is None
    assert [ref for _, ref in summary.sample] == BY_ORDER[:SAMPLE_CANDIDATES]
    assert sum(summary.candidates.values()) == len(BY_ORDER)
    assert sum(summary.listed.values()) == len(REFS)


@pytest.mark.parametrize("limit", [1, 100, SAMPLE_CANDIDATES, 2500, len(BY_ORDER), 10**6])
@pytest.mark.parametrize("parts", [1, 7])
def test_a_limit_takes_the_lowest_hashes(limit: int, parts: int) -> None:
    settings = ConvertSettings(splits="train=0.8,test=0.2", limit=limit)
    summary = summarize(settings, seed=limit, parts=parts)
    cut = summary.finish(settings)
    taken = BY_LIMIT[:limit]
    assert cut == (limit_order(0, taken[-1].key) if len(taken) == limit else None)
    assert sum(summary.candidates.values()) == len(taken)
    assert sum(summary.source_bytes.values()) == sum(ref.size for ref in taken)
    assert [ref for _, ref in summary.sample] == taken[:SAMPLE_CANDIDATES]


@pytest.mark.parametrize("limit", [1, 700, 10**6])
@pytest.mark.parametrize("parts", [1, 7])
def test_a_limit_also_leaves_out_bad_rows_beyond_it(
    monkeypatch: pytest.MonkeyPatch, limit: int, parts: int
) -> None:
    monkeypatch.setattr(forecast, "take_sample", lambda *_: Sample(1, {}, 100.0, 100.0))
    settings = ConvertSettings(input=("in",), limit=limit)
    summary = summarize(settings, limit, parts, [*REFS, *BAD])
    made = forecast.make_forecast(summary, settings, {})
    cut = made.limit_cut
    orders = [limit_order(0, ref.key) for ref in (*BAD, *BY_ORDER)]
    assert made.filtered.get("limit", 0) == sum(cut is not None and order > cut for order in orders)
    assert sum(made.candidates.values()) == min(limit, len(BY_ORDER))


@pytest.mark.parametrize(
    "settings",
    [
        ConvertSettings(),
        ConvertSettings(splits="train=0.8,test=0.2", max_bytes="3kB"),
        ConvertSettings(splits="train=0.8,test=0.2", split_by="c[0-3]"),
        ConvertSettings(limit=700),
    ],
)
def test_references_counted_together_give_the_same_summary(settings: ConvertSettings) -> None:
    odd = [
        ImageRef("d/a.jpg", "/in/d/a.jpg", f"c1{LABEL_SEPARATOR}d", "test", size=-1),
        ImageRef("d/b.jpg", "/in/d/b.jpg", "", "train", group="g", size=5),
        ImageRef("e/c.jpg", "/in/e/c.jpg", "e").quarantined("EMPTY_FILE", "it is empty"),
    ]
    listed = random.Random(1).sample([*REFS, *BAD, *odd], len(REFS) + len(BAD) + len(odd))
    placement, one_by_one, together = Placement(settings), RefSummary(), RefSummary()
    for ref in listed:
        one_by_one.add(ref, settings, placement)
    for first in range(0, len(listed), 1000):
        together.add_all(listed[first : first + 1000], settings, placement)
    one_by_one.trim(settings)
    together.trim(settings)
    assert together == one_by_one
