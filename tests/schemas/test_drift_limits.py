"""Limits on drift: what a file may contain, and what exceeds the limits."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.changes import Change, Changes, Kind
from shardwright.schemas.codes import Severity
from shardwright.schemas.configuration import thresholds as limits
from shardwright.schemas.configuration.gate_file import gate_names, parse_gates
from shardwright.schemas.configuration.thresholds import Policy, Thresholds, check
from shardwright.schemas.drift import ClassDrift, Distance, Drift, Pair
from shardwright.schemas.errors import UsageError

SAME = Drift(
    datasets=Pair("old", "new"),
    fingerprints=Pair("a", "b"),
    changes=Changes(unchanged=100),
    records={"train": Pair(80, 80), "test": Pair(20, 20)},
    bytes={"train": Pair(800, 800), "test": Pair(200, 200)},
    classes=ClassDrift(Distance(0, "", 0), {"train": Distance(0, "", 0)}, (), (), {}, {}),
    left_out={},
    bad_fraction=Pair(0.0, 0.0),
)


def with_changes(**counts: int) -> Drift:
    changes = Changes()
    for name, count in counts.items():
        for number in range(count):
            changes.note(Kind(name), "train", Change(f"{number}", "", ""))
    return replace(SAME, changes=changes)


POLICIES = [item.name for item in fields(Thresholds) if isinstance(item.default, Policy)]


def parse_thresholds(text: str) -> Thresholds:
    return parse_gates(text, "--thresholds", "limits.yaml").limits


def names(drift: Drift, **wanted: Any) -> list[str]:
    return [refusal.name for refusal in check(drift, Thresholds(**wanted))]


@pytest.mark.parametrize(
    ("limit", "kind"),
    [
        ("max_added_fraction", "added"),
        ("max_removed_fraction", "removed"),
        ("max_renamed_fraction", "renamed"),
        ("max_changed_fraction", "changed"),
        ("max_re_encoded_fraction", "re_encoded"),
        ("max_label_change_fraction", "relabelled"),
        ("max_split_move_fraction", "moved"),
    ],
)
def test_each_kind_of_change_has_its_limit(limit: str, kind: str) -> None:
    drift = with_changes(**{kind: 5})
    assert names(drift, **{limit: 0.05}) == []
    assert names(drift, **{limit: 0.049}) == [limit]
    others = {name: 0.0 for name in limits.IMAGE_LIMITS if name != limit}
    assert names(drift, **others) == []
    (refusal,) = check(drift, Thresholds(**{limit: 0.01}))
    assert (refusal.value, refusal.limit, refusal.severity) == (0.05, 0.01, Severity.ERROR)
    assert "5 images" in refusal.message and "\n" not in refusal.message


def test_every_change_of_an_empty_dataset_exceeds_a_limit() -> None:
    drift = replace(with_changes(added=1), records={"train": Pair(0, 1)})
    assert names(drift, max_added_fraction=0.99) == ["max_added_fraction"]


def test_the_number_of_records_may_fall_and_grow_to_its_limits() -> None:
    drift = replace(SAME, records={"train": Pair(80, 100), "test": Pair(20, 10), "new": Pair(None, 7)})
    assert names(drift, max_count_jump=0.25, max_count_drop=0.5) == []
    assert names(drift, max_count_jump=0.2) == ["max_count_jump"]
    (refusal,) = check(drift, Thresholds(max_count_drop=0.1))
    assert refusal.value == 0.5
    assert refusal.message == "max_count_drop: split 'test' fell 50% (20 to 10 records; limit 10%)"
    gone = replace(SAME, records={"train": Pair(80, 80), "test": Pair(20, None)})
    assert [refusal.value for refusal in check(gone, Thresholds(max_count_drop=0.3))] == [1.0]


def test_distances_of_classes_have_limits() -> None:
    classes = replace(SAME.classes, splits={"train": Distance(0.2, "cat\n", 0.3)})
    drift = replace(SAME, classes=classes)
    assert names(drift, max_class_l_infinity=0.2, max_class_jensen_shannon=0.3) == []
    wanted = {"max_class_l_infinity": 0.19, "max_class_jensen_shannon": 0.29}
    assert names(drift, **wanted) == list(wanted)
    assert "'cat\\n'" in check(drift, Thresholds(max_class_l_infinity=0.0))[0].message


def test_faults_and_findings_have_limits() -> None:
    quality = {"DARK": Pair(0.1, 0.15), "BLURRY": Pair(None, 0.1)}
    drift = replace(SAME, bad_fraction=Pair(0.0, 0.02), quality=quality)
    assert names(drift, max_bad_fraction=0.02, max_rise={"DARK": 0.06}) == []
    assert names(drift, max_bad_fraction=0.01, max_rise={"DARK": 0.04}) == ["max_bad_fraction", "max_rise"]
    (refusal,) = check(drift, Thresholds(max_rise={"BLURRY": 1.0}))
    assert refusal.value is None and "the old dataset was not validated" in refusal.message
    assert names(replace(drift, fingerprints=Pair("a", "a")), max_rise={"BLURRY": 1.0}) == []


def test_statistics_are_found_by_the_end_of_their_name() -> None:
    statistics = {
        "splits.train.brightness.mean": Pair(100.0, 90.0),
        "splits.test.brightness.mean": Pair(100.0, 70.0),
        "splits.test.darkbrightness.mean": Pair(1.0, 9.0),
        "splits.test.zero": Pair(0, 4),
        "splits.new.brightness.mean": Pair(None, 4),
    }
    drift = replace(SAME, statistics=statistics)
    assert names(drift, max_statistics_change={"brightness.mean": 0.3}) == []
    (refusal,) = check(drift, Thresholds(max_statistics_change={"brightness.mean": 0.2}))
    assert "splits.test.brightness.mean" in refusal.message and refusal.value == pytest.approx(0.3)
    for unknown in ("zero", "nothing", "splits.new.brightness.mean"):
        (refusal,) = check(drift, Thresholds(max_statistics_change={unknown: 9.0}))
        assert refusal.value is None


@pytest.mark.parametrize(
    ("name", "drift"),
    [
        ("new_classes", replace(SAME, classes=replace(SAME.classes, new=("cat",)))),
        ("vanished_classes", replace(SAME, classes=replace(SAME.classes, vanished=("cat",)))),
        ("renumbered_classes", replace(SAME, classes=replace(SAME.classes, renumbered={"cat": Pair(1, 2)}))),
        ("changed_features", replace(SAME, made={"layout": {"cat": Pair(1, 2)}})),
        ("changed_settings", replace(SAME, made={"settings": {"cat": Pair(1, 2)}})),
        ("changed_versions", replace(SAME, made={"versions": {"cat": Pair(1, 2)}})),
    ],
)
def test_policies_allow_warn_or_refuse(name: str, drift: Drift) -> None:
    for policy, severities in (("allow", []), ("warn", [Severity.WARNING]), ("refuse", [Severity.ERROR])):
        found = check(drift, parse_thresholds(f"{name}: {policy}"))
        assert [refusal.severity for refusal in found] == severities
        assert all("'cat'" in refusal.message for refusal in found)


def test_by_default_only_a_class_with_another_id_is_refused() -> None:
    everything = replace(
        with_changes(**{kind.value: 50 for kind in Kind}),
        records={"train": Pair(80, 1)},
        classes=ClassDrift(Distance(1, "a", 1), {}, ("a",), ("b",), {"c": Pair(1, 2)}, {}),
        bad_fraction=Pair(0.0, 1.0),
        made={"settings": {"a": Pair(1, 2)}},
    )
    assert [refusal.name for refusal in check(everything, Thresholds())] == ["renumbered_classes"]


def test_a_file_may_contain_every_limit_or_none() -> None:
    text = "\n".join(
        {
            "max_rise": "max_rise:\n  DARK: 0.01\n  UNDECODABLE: 0",
            "max_statistics_change": "max_statistics_change: {brightness.mean: 1e-1}",
        }.get(item.name, f"{item.name}: {'warn' if item.name in POLICIES else 0.5}")
        for item in fields(Thresholds)
    )
    found = parse_thresholds(text)
    assert found.max_rise == {"DARK": 0.01, "UNDECODABLE": 0.0}
    assert found.vanished_classes is Policy.WARN
    assert found.as_json().keys() == {item.name for item in fields(Thresholds)}
    for empty in ("", "# nothing\n", "{}"):
        assert parse_thresholds(empty) == Thresholds()


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.floats(), st.booleans())))
def test_any_file_gives_limits_or_a_message(document: dict[str, Any]) -> None:
    import yaml

    try:
        parse_thresholds(yaml.safe_dump(document, allow_unicode=True))
    except UsageError:
        return
    assert document.keys() <= set(gate_names())
