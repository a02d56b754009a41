"""Compares a dataset with the expectations of the user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from shardwright.core.validation.shard import ShardCheck
from shardwright.schemas.codes import FindingCode, Outcome
from shardwright.schemas.configuration.expectations import DatasetFacts, Expectations, unmet
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.findings import Finding, FindingSummary
from shardwright.schemas.statistics.dataset_statistics import Statistics


def unmet_findings(
    expectations: Expectations,
    dataset: Dataset | None,
    checks: Sequence[ShardCheck],
    findings: FindingSummary,
    statistics: Statistics | None,
) -> Iterator[Finding]:
    """Yields a finding for each expectation that is not met; its message begins with the expectation's name.

    Args:
      expectations: The expectations.
      dataset: Contents of `dataset.json`. None for foreign files.
      checks: Checks of the shards.
      findings: All other findings.
      statistics: Statistics of the images. None if no image was decoded.
    """
    if not expectations.names:
        return
    facts = facts_of(dataset, checks, findings, statistics)
    for violation in unmet(expectations, facts):
        yield Finding(FindingCode.EXPECTATION, violation.message)


def facts_of(
    dataset: Dataset | None,
    checks: Sequence[ShardCheck],
    findings: FindingSummary,
    statistics: Statistics | None,
) -> DatasetFacts:
    """Returns the facts about a dataset: what was read, and the counts in its `dataset.json`."""
    records: Counter[str] = Counter()
    for check in checks:
        records[check.split] += check.records
    classes: Counter[str] = Counter()
    formats: Counter[str] = Counter()
    dtypes: Counter[str] = Counter()
    bad_fraction = None
    if dataset is not None:
        classes.update(dict.fromkeys(dataset.classes.values(), 0))
        for counts in dataset.class_counts.values():
            classes.update(counts)
        for counts in dataset.formats.values():
            formats.update({"jpeg" if name == "jpg" else name: count for name, count in counts.items()})
        dtypes.update(dataset.dtypes or {"uint8": dataset.all_records})
        bad = dataset.ledger.get(Outcome.QUARANTINED.value, 0)
        tried = bad + dataset.ledger.get(Outcome.WRITTEN.value, 0)
        bad_fraction = bad / tried if tried else 0.0
    facts = DatasetFacts(records, classes, formats, dtypes, bad_fraction, findings.by_code())
    if statistics is None:
        return facts
    total = statistics.total()
    if dataset is None:
        classes.update({name.decode("utf-8", "replace"): n for name, n in total.labels.most_common()})
        formats.update({"jpeg" if name == "jpg" else name: n for name, n in total.pictures.formats.items()})
        for kind, sums in total.pictures.samples.stated.items():
            dtypes[kind.dtype] += sums.images
    spreads = total.pictures.spreads
    if not spreads:
        return facts
    widths, heights, ratios = (spreads[name] for name in ("width", "height", "aspect_ratio"))
    return replace(
        facts,
        widths=(int(widths.low), int(widths.high)),
        heights=(int(heights.low), int(heights.high)),
        aspect_ratio=max(ratios.high, 1 / ratios.low),
    )
