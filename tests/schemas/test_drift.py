"""Differences between two datasets: distances of distributions, and the report on both."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.fewer_imports import late
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.changes import MAX_LISTED, Change, Changes, Kind
from shardwright.schemas.dataset import Dataset, Shard
from shardwright.schemas.drift import Described, Pair, distance, drift_between, numbers_in
from shardwright.schemas.layouts import LAYOUTS
from shardwright.schemas.plan import Plan

distances = late("scipy.spatial.distance")

COUNTS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 10**7), min_size=1)


def vectors(old: dict[str, int], new: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    names = sorted({*old, *new})
    return np.array([old.get(name, 0) for name in names]), np.array([new.get(name, 0) for name in names])


@given(COUNTS, COUNTS)
def test_the_jensen_shannon_distance_equals_scipys(old: dict[str, int], new: dict[str, int]) -> None:
    expected = np.nan_to_num(distances.jensenshannon(*vectors(old, new), base=2))
    assert distance(old, new).jensen_shannon == pytest.approx(expected, abs=1e-6)


@given(COUNTS, COUNTS)
def test_l_infinity_is_the_largest_difference_of_shares(old: dict[str, int], new: dict[str, int]) -> None:
    p, q = vectors(old, new)
    difference = np.abs(p / p.sum() - q / q.sum())
    found = distance(old, new)
    assert found.l_infinity == pytest.approx(difference.max(), abs=1e-12)
    if found.name:
        at = sorted({*old, *new}).index(found.name)
        assert difference[at] == pytest.approx(difference.max(), abs=1e-12)


@given(COUNTS, st.integers(1, 50))
def test_only_shares_count(counts: dict[str, int], factor: int) -> None:
    found = distance(counts, {name: count * factor for name, count in counts.items()})
    assert found.l_infinity == pytest.approx(0, abs=1e-12)
    assert found.jensen_shannon == pytest.approx(0, abs=1e-6)


def test_known_distances() -> None:
    assert distance({"a": 1}, {"b": 5}) == (1.0, "a", 1.0)
    assert distance({"a": 1, "b": 1}, {"a": 2, "b": 2}) == (0.0, "", 0.0)
    # By hand: M = (3/4, 1/4), D(P||M) = log2(4/3), D(Q||M) = log2(2/3)/2 + log2(2)/2.
    expected = math.sqrt((math.log2(4 / 3) + math.log2(2 / 3) / 2 + 0.5) / 2)
    assert distance({"a": 7}, {"a": 1, "b": 1}) == (0.5, "a", pytest.approx(expected))


def test_an_empty_distribution_has_the_largest_distance() -> None:
    assert distance({}, {}) == distance({"a": 0}, {}) == (0.0, "", 0.0)
    assert distance({}, {"a": 1}) == distance({"a": 1}, {}) == (1.0, "", 1.0)


def test_many_changes_are_listed_by_smallest_keys() -> None:
    total = Changes()
    for start in (1, 0):
        part = Changes()
        for number in range(start, 6000, 2):
            part.note(Kind.ADDED, "train", Change(f"{number:05d}", "", "train"))
        total.merge(part)
    assert total.total(Kind.ADDED) == 6000
    assert [change.key for change in total.listed["added"]] == [f"{n:05d}" for n in range(MAX_LISTED)]


def test_changes_survive_json() -> None:
    changes = Changes(unchanged=3, moves=Counter({("a", "b"): 2}), pairs=7)
    changes.relabels["cat\x1fdog", ""] = 4
    changes.note(Kind.RELABELLED, "b", Change("k", "cat\x1fdog", ""))
    changes.note(Kind.ADDED, "a", Change("é\n<script>", "quarantined: CORRUPT", "a"))
    stored = json.loads(json.dumps(changes.as_json()))
    assert stored["listed"]["relabelled"] == [{"key": "k", "old": ["cat", "dog"], "new": []}]
    assert stored["label_changes"]["pairs"] == 7
    assert Changes.from_json(stored) == changes


@pytest.fixture(scope="module")
def described() -> Described:
    features = LAYOUTS["classification"].features
    counts = {"written": 61, "quarantined": 3, "deduplicated": 2}
    dataset = Dataset(
        name="old",
        layout="classification",
        features=features,
        plan=Plan(("cat",), {"train": 1, "test": 1}, {"train": 600, "test": 10}, {"quality": 95}),
        versions={"codec": "pillow"},
        splits={
            "train": (Shard("train-00000-of-00001.tfrecord", 60, 600, "a"),),
            "test": (Shard("test-00000-of-00001.tfrecord", 1, 10, "b"),),
        },
        ledger={**counts, "reasons": {"quarantined": {"CORRUPT": 3}}},
        class_counts={"train": {"cat": 60}, "test": {"cat": 1}},
    )
    return Described("old", dataset)


def with_classes(described: Described, **splits: dict[str, int]) -> Described:
    names = tuple(dict.fromkeys(name for counts in splits.values() for name in counts))
    dataset = described.dataset
    plan = replace(dataset.plan, labels=names)
    return described._replace(dataset=replace(dataset, plan=plan, class_counts=splits))


def test_a_dataset_does_not_differ_from_itself(described: Described) -> None:
    drift = drift_between(described, described, Changes(unchanged=61))
    assert drift.identical
    assert drift.all_records == (61, 61)
    assert not any(drift.made.values())
    assert not drift.classes.shifts
    assert drift.left_out["quarantined"] == {"CORRUPT": (3, 3)}
    assert drift.left_out["deduplicated"] == {"copy": (2, 2)}
    assert drift.bad_fraction == (3 / 64, 3 / 64)


def test_classes_are_compared_by_name_not_by_id(described: Described) -> None:
    old = with_classes(described, train={"cat": 3, "dog": 1, "emu": 0}, test={"cat": 1})
    new = with_classes(described, train={"dog": 2, "cat": 2, "emu": 0, "fox": 0}, test={"fox": 1})
    found = drift_between(old, new, Changes()).classes
    assert (found.new, found.vanished) == (("fox",), ())
    assert found.renumbered == {"cat": Pair(0, 1), "dog": Pair(1, 0)}
    assert found.splits["test"] == (1.0, "cat", 1.0)
    assert found.overall.l_infinity == pytest.approx(4 / 5 - 2 / 5)
    assert list(found.shifts) == ["cat", "dog", "fox"]
    backwards = drift_between(new, old, Changes()).classes
    assert (backwards.new, backwards.vanished) == ((), ("fox",))


def test_findings_are_compared_only_if_a_check_looked_for_them(described: Described) -> None:
    def validated(mode: str, **counts: int) -> Described:
        return described._replace(validation={"mode": mode, "counts": counts})

    def quality(old: Described, new: Described) -> Any:
        return drift_between(old, new, Changes()).quality

    found = quality(validated("quality", DARK=61), validated("full", UNDECODABLE=2))
    assert found["DARK"] == (1.0, None)
    assert found["UNDECODABLE"] == (0.0, pytest.approx(2 / 61))
    assert "SOURCE_MISSING" not in found
    assert quality(validated("quality"), validated("quality"))["DARK"] == (0.0, 0.0)
    assert quality(validated("fast"), described) == {}


def test_numbers_are_named_by_their_path() -> None:
    document = {
        "format_version": 3,
        "splits": {
            "train": {
                "all": {"mean": [1, 2.5, 3], "histogram": {"counts": [3]}, "long": [1] * 17, "name": "x"}
            }
        },
        "classes": {"cat": {"mean": 3}},
        "odd": [True, None, {"a": 1}],
        "infinite": math.inf,
    }
    assert numbers_in(document) == {
        "splits.train.all.mean.0": 1,
        "splits.train.all.mean.1": 2.5,
        "splits.train.all.mean.2": 3,
    }
    assert numbers_in({"a": [{"b": 1}]}) == numbers_in(None) == numbers_in("7") == {}


def test_settings_versions_and_features_are_compared(described: Described) -> None:
    dataset = described.dataset
    settings = {**dataset.plan.settings, "quality": 5}
    other = replace(
        dataset,
        layout="another",
        features=dataset.features[1:],
        plan=replace(dataset.plan, settings=settings),
        versions={**dataset.versions, "codec": "none"},
    )
    made = drift_between(described, Described("new", other), Changes()).made
    assert made["settings"] == {"quality": Pair(dataset.plan.settings["quality"], 5)}
    assert list(made["features"]) == [dataset.features[0].name]
    assert made["features"][dataset.features[0].name].new is None
    assert list(made["layout"]) == ["layout"] and list(made["versions"]) == ["codec"]


def test_a_report_is_plain_json(described: Described) -> None:
    drift = drift_between(described, described, Changes())
    assert json.loads(json.dumps(drift.as_json(), allow_nan=False))["format_version"] == 1
