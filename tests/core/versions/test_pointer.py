"""The meaning of paths if there are versions, the pointer to the latest one, and which are kept."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.versioned import V1, V2, V3, V4, add_version, make_versions, point_to
from hypothesis import given
from hypothesis import strategies as st

from shardwright.core import storage
from shardwright.core.versions import (
    list_versions,
    located,
    read_pointer,
    remove_version,
    surplus,
    switch_pointer,
)
from shardwright.schemas.configuration.settings import RebuildSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.version import Pointer, VersionRecord, VersionState


@pytest.fixture
def out(tmp_path: Path, sound_dataset: Path) -> str:
    """Three published versions."""
    make_versions(tmp_path / "out", sound_dataset)
    return str(tmp_path / "out")


def test_paths_with_versions_are_resolved(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (out, f"{out}/", f"{out}@{V3}", f"{out}/@{V3}", f"{out}@{V3}/"):
        assert os.path.samefile(located(path), f"{out}/versions/{V3}"), path
    assert located(f"{out}@{V1}") == located(f"{out}/versions/{V1}") == f"{out}/versions/{V1}"
    point_to(out, V1)
    assert located(out) == f"{out}/versions/{V1}"
    monkeypatch.chdir(os.path.dirname(out))
    assert located("out") == f"out/versions/{V1}" and located(f"./out@{V2}") == f"./out/versions/{V2}"


def test_paths_without_versions_stay_the_same(tmp_path: Path, sound_dataset: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    for path in (
        "", "/", str(sound_dataset), f"{sound_dataset}/", f"{sound_dataset}/*.tfrecord", f"{tmp_path}/folder",
        f"{tmp_path}/file", f"{tmp_path}/file/below", f"{tmp_path}/nowhere", "nul\0", "x" * 5000, "a@b", "@",
        "hdfs://host/out", f"{tmp_path}/folder@latest",
    ):  # fmt: skip
        assert located(path) == path


def test_missing_versions_are_reported(out: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"has no version {V1[:-2]}9Z; did you mean {V1}\?"):
        located(f"{out}@{V1[:-2]}9Z")
    with pytest.raises(UsageError, match="holds no versions"):
        located(f"{tmp_path}/nowhere@{V1}")
    with pytest.raises(UsageError, match="versions need a local disk"):
        located(f"hdfs://host/out@{V1}")
    add_version(out, None, V4, "building")
    with pytest.raises(UsageError, match=f"{V4} is not complete"):
        located(f"{out}@{V4}")


def test_a_directory_without_a_published_version_is_reported(tmp_path: Path, sound_dataset: Path) -> None:
    add_version(tmp_path, sound_dataset, V1, "refused")
    with pytest.raises(UsageError, match=f"none is published.*{tmp_path}@{V1}"):
        located(str(tmp_path))


@pytest.mark.parametrize(
    "data", ["", "{", "[]", '{"format_version": 1}', '{"format_version": 2, "version": "x"}']
)
def test_damaged_pointers_are_reported(out: str, data: str) -> None:
    Path(out, "latest.json").write_text(data)
    for read in (located, read_pointer):
        with pytest.raises(UsageError, match=f"latest.json cannot be used: .*shardwright rollback {out} V"):
            read(out)
    assert located(f"{out}@{V1}")


def test_a_version_removed_during_the_search_is_reported(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exists = storage.exists

    def rebuilt_meanwhile(path: str) -> bool:
        if V3 in path:
            shutil.rmtree(os.path.dirname(path), ignore_errors=True)
            point_to(out, V2)
        return exists(path)

    monkeypatch.setattr(storage, "exists", rebuilt_meanwhile)
    assert located(out) == f"{out}/versions/{V2}"


def test_the_pointer_can_be_created(tmp_path: Path) -> None:
    out = str(tmp_path / "new")
    assert read_pointer(out) is None
    assert switch_pointer(out, Pointer(V1, "f", 1.0), None)
    assert not switch_pointer(out, Pointer(V2, "f", 1.0), None)
    Path(out, "latest.json").write_text("{")
    assert not switch_pointer(out, Pointer(V1, "f", 2.0), None)


NOW = 100 * 86_400.0
PUBLISHED, REFUSED, WITHDRAWN, BUILDING = (
    VersionState.PUBLISHED, VersionState.REFUSED, VersionState.WITHDRAWN, VersionState.BUILDING,
)  # fmt: skip


def name_of(day: int) -> str:
    """Returns the name of the version of a day."""
    return f"202601{day:02}T000000Z"


def records_of(*states: VersionState) -> list[VersionRecord]:
    """Returns one version per day, the oldest 100 days old."""
    return [
        VersionRecord(name_of(day), state, (day - 1) * 86_400.0 + 1) for day, state in enumerate(states, 1)
    ]


def days_of(names: list[str]) -> list[int]:
    """Returns the days of versions."""
    return [int(name[6:8]) for name in names]


@pytest.mark.parametrize(
    ("states", "latest", "rules", "gone"),
    [
        ([PUBLISHED] * 8, 8, RebuildSettings(5), [1, 2, 3]),
        ([PUBLISHED] * 8, 8, RebuildSettings(1), [*range(1, 8)]),
        ([PUBLISHED] * 8, 8, RebuildSettings(0), []),
        ([], 0, RebuildSettings(1), []),
        ([PUBLISHED] * 8, 2, RebuildSettings(2), [1, *range(3, 8)]),  # the latest always stays
        ([PUBLISHED] * 6, 6, RebuildSettings(1, 97.5), [1, 2, 3]),  # young ones stay
        # Refused versions displace nothing, and do not accumulate.
        ([PUBLISHED, PUBLISHED, *[REFUSED] * 6], 2, RebuildSettings(2), [3, 4, 5, 6]),
        # A newer version that was rolled back stays.
        ([WITHDRAWN, PUBLISHED, WITHDRAWN, *[REFUSED] * 6], 2, RebuildSettings(1), [1, *range(4, 9)]),
        ([BUILDING, *[PUBLISHED] * 3, BUILDING], 4, RebuildSettings(1), [2, 3]),
    ],
)
def test_old_versions_are_removed(
    states: list[VersionState], latest: int, rules: RebuildSettings, gone: list[int]
) -> None:
    records = records_of(*states)
    for listed in (records, records[::-1]):
        assert days_of(surplus(listed, name_of(latest), rules, NOW)) == gone


@given(
    st.lists(st.sampled_from(list(VersionState)), max_size=28),
    st.integers(0, 28),
    st.sets(st.integers(1, 28)),
    st.integers(0, 6),
    st.sampled_from([0.0, 5.0, 90.0]),
)
def test_no_rule_removes_too_much(
    states: list[VersionState], latest: int, pinned: set[int], keep: int, keep_days: float
) -> None:
    names = [name_of(day) for day in pinned]
    records = [replace(record, pinned=record.version in names) for record in records_of(*states)]
    latest = min(latest, len(records))
    gone = surplus(records, name_of(latest) if latest else "", RebuildSettings(keep, keep_days), NOW)
    stays = [record for record in records if record.version not in gone]
    assert gone == sorted(gone) and not set(gone) & {name_of(latest), *names}
    published = [record.version for record in records if record.state is PUBLISHED]
    kept = {
        record.version for record in stays if record.state is PUBLISHED or record.version == name_of(latest)
    }
    assert len(kept) >= min(len({*published, name_of(latest)} if latest else published), keep or len(records))
    others = [name for name in published if name != name_of(latest)][::-1]
    assert kept >= set(others[: keep - bool(latest)] if keep else others)
    assert all(record.state is not BUILDING for record in records if record.version in gone)
    ages = {record.version: NOW - record.created for record in records}
    assert all(ages[name] >= keep_days * 86_400 for name in gone)


def test_versions_are_removed_completely_but_not_shards_of_others(out: str, sound_dataset: Path) -> None:
    shard = "train-00000-of-00003.tfrecord"
    storage.link_files(f"{out}/versions/{V1}", f"{out}/versions/{V2}", [shard])
    Path(out, "versions", V2, "pinned.json").write_text("{}")
    assert remove_version(out, V1)
    assert not remove_version(out, V2), "it is pinned"
    assert not remove_version(out, V3), "it is the latest"
    assert remove_version(out, V1), "a step that is done again"
    assert sorted(os.listdir(f"{out}/versions")) == [V2, V3]
    assert located(f"{out}@{V2}") == f"{out}/versions/{V2}"
    assert Path(out, "versions", V2, shard).read_bytes() == (sound_dataset / shard).read_bytes()


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("after", range(4))
def test_a_killed_removal_is_continued(
    after: int, out: str, sound_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []
    remove = storage.remove

    def dying(path: str) -> None:
        if len(removed) == after:
            raise Killed
        removed.append(path)
        remove(path)

    def dying_tree(path: str) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(storage, "remove", dying)
        patch.setattr(storage, "remove_tree", dying_tree)
        with pytest.raises(Killed):
            remove_version(out, V1)
    (state,) = [record.state for record in list_versions(out) if record.version == V1]
    whole = {path.name for path in sound_dataset.iterdir()} <= set(os.listdir(f"{out}/versions/{V1}"))
    assert state is (PUBLISHED if after == 0 else BUILDING)
    assert whole == os.path.exists(f"{out}/versions/{V1}/dataset.json")
    assert remove_version(out, V1)
    assert V1 not in os.listdir(f"{out}/versions")
