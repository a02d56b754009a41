"""`metrics.prom`, read with Prometheus' own client: names, values, and what survives a failed run."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from shardwright.core import storage
from shardwright.core.rebuild.notify import OUTCOMES, Value, metrics_text, run_values, write_metrics

WORK = {"shards": 16, "reused_shards": 15, "converted": 40, "copied": 400, "quarantined": 2}
SCRUB = {"shards": 3, "damaged": ["a"], "bytes": 99}
RECORDS, FINDINGS = "shardwright_dataset_records", "shardwright_rebuild_findings"


def ended(state: str, at: float = 1.7e9 + 3600) -> dict[str, Value]:
    """Returns the values that a run knows that ended in this way."""
    return run_values({"state": state, "seconds": 2.0}, at)


RUN: dict[str, Value] = {
    **run_values({"state": "success", "seconds": 12.5, "work": WORK, "scrub": SCRUB}, 1.7e9),
    FINDINGS: {"SPLIT_LEAKAGE": 3},
    RECORDS: 7000,
    "shardwright_dataset_size_bytes": 123456789,
    "shardwright_dataset_classes": 12,
    "shardwright_dataset_versions": 5,
    "shardwright_dataset_latest_version_info": {("abc", "20261121T020000Z"): 1.0},
}
FAILED = ended("failure")
texts = st.text(max_size=12)
counts = st.dictionaries(texts, st.integers(0, 2**53), max_size=4)
runs = st.builds(
    lambda state, at, more: {**ended(state, at), **more}, st.sampled_from(OUTCOMES), st.floats(0, 1e12),
    st.fixed_dictionaries({}, optional={RECORDS: st.integers(0, 2**53), FINDINGS: counts}),
)  # fmt: skip


def read(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Returns (metric, labels without the dataset) -> value, read with Prometheus' own parser."""
    values = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge" and family.documentation
        for sample in family.samples:
            labels = frozenset(item for item in sample.labels.items() if item[0] != "dataset")
            assert (sample.name, labels) not in values
            values[sample.name, labels] = sample.value
    return values


def one(text: str, name: str, **labels: str) -> float:
    return read(text)[f"shardwright_{name}", frozenset(labels.items())]


def test_the_work_of_a_run_is_exported() -> None:
    text = metrics_text("pets", RUN)
    values = read(text)
    info = frozenset({("version", "20261121T020000Z"), ("fingerprint", "abc")})
    assert values.pop(("shardwright_dataset_latest_version_info", info)) == 1
    assert {(name, tuple(labels)): value for (name, labels), value in values.items()} == {
        ("shardwright_rebuild_last_run_timestamp_seconds", ()): 1.7e9,
        ("shardwright_rebuild_last_run_duration_seconds", ()): 12.5,
        ("shardwright_rebuild_last_run_outcome", (("outcome", "success"),)): 1,
        ("shardwright_rebuild_last_run_outcome", (("outcome", "no_change"),)): 0,
        ("shardwright_rebuild_last_run_outcome", (("outcome", "refused"),)): 0,
        ("shardwright_rebuild_last_run_outcome", (("outcome", "failure"),)): 0,
        ("shardwright_rebuild_last_success_timestamp_seconds", ()): 1.7e9,
        ("shardwright_rebuild_last_publication_timestamp_seconds", ()): 1.7e9,
        ("shardwright_rebuild_shards", (("result", "written"),)): 1,
        ("shardwright_rebuild_shards", (("result", "reused"),)): 15,
        ("shardwright_rebuild_images", (("result", "converted"),)): 40,
        ("shardwright_rebuild_images", (("result", "copied"),)): 400,
        ("shardwright_rebuild_images", (("result", "quarantined"),)): 2,
        ("shardwright_rebuild_findings", (("code", "SPLIT_LEAKAGE"),)): 3,
        ("shardwright_rebuild_scrubbed_shards", (("result", "sound"),)): 2,
        ("shardwright_rebuild_scrubbed_shards", (("result", "damaged"),)): 1,
        ("shardwright_rebuild_scrubbed_bytes", ()): 99,
        ("shardwright_dataset_records", ()): 7000,
        ("shardwright_dataset_size_bytes", ()): 123456789,
        ("shardwright_dataset_classes", ()): 12,
        ("shardwright_dataset_versions", ()): 5,
    }
    assert text.count('dataset="pets"') == len(read(text)) and text.endswith("\n")


def test_a_failed_run_is_exported_and_keeps_unknown_values() -> None:
    before = metrics_text("pets", RUN)
    after = metrics_text("pets", FAILED, before)
    assert one(after, "rebuild_last_run_outcome", outcome="failure") == 1
    assert one(after, "rebuild_last_run_outcome", outcome="success") == 0
    assert one(after, "rebuild_last_run_timestamp_seconds") == 1.7e9 + 3600
    changed = {key for key, value in read(before).items() if read(after)[key] != value}
    assert {name.removeprefix("shardwright_rebuild_") for name, _ in changed} == {
        "last_run_timestamp_seconds", "last_run_duration_seconds", "last_run_outcome"
    }  # fmt: skip
    assert metrics_text("pets", FAILED, after) == after


def test_how_a_run_ends_decides_which_times_move() -> None:
    before = metrics_text("pets", RUN)
    moved = {"success": (True, True), "no_change": (True, False), "refused": (False, False)}
    for outcome, (success, publication) in {**moved, "failure": (False, False)}.items():
        after = metrics_text("pets", ended(outcome), before)
        assert (one(after, "rebuild_last_success_timestamp_seconds") > 1.7e9) is success
        assert (one(after, "rebuild_last_publication_timestamp_seconds") > 1.7e9) is publication


def test_a_dataset_that_never_succeeded_has_no_time_of_success() -> None:
    assert not [
        name for name, _ in read(metrics_text("pets", FAILED)) if "success_t" in name or "publication" in name
    ]


def test_resolved_findings_are_not_exported() -> None:
    after = metrics_text("pets", {**RUN, FINDINGS: {}}, metrics_text("pets", RUN))
    assert not [name for name, _ in read(after) if name.endswith("findings")]


@given(runs, runs, texts)
def test_any_sequence_of_runs_can_be_read_back(
    first: dict[str, Any], second: dict[str, Any], dataset: str
) -> None:
    before = metrics_text("before", first)
    text = metrics_text(dataset, second, before)
    values = read(text)
    for value in (first, second):
        read(metrics_text("alone", value))
    known = {**first, **second}
    if RECORDS in known:
        assert values[RECORDS, frozenset()] == known[RECORDS]
    for code, count in known.get(FINDINGS, {}).items():
        assert values[FINDINGS, frozenset({("code", code)})] == count
    families = list(text_string_to_metric_families(text))
    assert {sample.labels["dataset"] for family in families for sample in family.samples} == {dataset}


@given(st.text(), st.integers(0, 3000), st.integers(0, 3000))
def test_a_damaged_file_is_tolerated(noise: str, start: int, length: int) -> None:
    before = metrics_text("pets", RUN)
    damaged = before[:start] + noise + before[start + length :]
    after = read(metrics_text("pets", FAILED, damaged))
    assert after["shardwright_rebuild_last_run_timestamp_seconds", frozenset()] == 1.7e9 + 3600
    assert read(metrics_text("\udc80\ud800", RUN, damaged))


def test_the_file_is_replaced_and_readable_by_others(tmp_path: Path) -> None:
    assert write_metrics(str(tmp_path / "pets"), RUN) == []
    path, umask = tmp_path / "pets" / "metrics.prom", os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    assert write_metrics(str(tmp_path / "pets"), FAILED) == []
    assert len({name for name, _ in read(path.read_text())}) == 15
    assert [item.name for item in path.parent.iterdir()] == ["metrics.prom"]


def test_an_unwritable_file_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metrics.prom").mkdir()
    (warning,) = write_metrics(str(tmp_path), RUN)
    assert str(tmp_path / "metrics.prom") in warning and warning.endswith(".")
    (tmp_path / "metrics.prom").rmdir()

    def full(path: str, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "write_bytes", full)
    assert "No space left" in write_metrics(str(tmp_path), RUN)[0]
