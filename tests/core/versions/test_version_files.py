"""Versions: names, documents, the meaning of paths, the pointer to the latest one, and which are kept."""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from unittest import mock

import pytest
from helpers.versioned import V1, V2, V3, V4, add_version, make_versions, point_to
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.core import storage
from shardwright.core.lease import MAX_SECONDS, Lease
from shardwright.core.versions import (
    list_versions,
    located,
    read_pointer,
    remove_version,
    surplus,
    switch_pointer,
)
from shardwright.schemas.codes import Severity
from shardwright.schemas.configuration.settings import DEFAULT_SCRUB, RebuildSettings
from shardwright.schemas.dataset import Shard
from shardwright.schemas.errors import UsageError
from shardwright.schemas.findings import Violation
from shardwright.schemas.version import (
    Acceptance,
    Pointer,
    ScrubState,
    VersionRecord,
    VersionState,
    choose_shards,
    created_at,
    is_version,
    next_version,
    split_version,
    state_after,
    version_name,
    version_path,
)


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
    assert read_pointer(out) == (None, None)
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
        assert surplus(listed, name_of(latest), rules, NOW) == [name_of(day) for day in gone]


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

    with monkeypatch.context() as patch:
        patch.setattr(storage, "remove", dying)
        patch.setattr(storage, "remove_tree", mock.Mock(side_effect=Killed))
        with pytest.raises(Killed):
            remove_version(out, V1)
    (state,) = [record.state for record in list_versions(out) if record.version == V1]
    whole = {path.name for path in sound_dataset.iterdir()} <= set(os.listdir(f"{out}/versions/{V1}"))
    assert state is (PUBLISHED if after == 0 else BUILDING)
    assert whole == os.path.exists(f"{out}/versions/{V1}/dataset.json")
    assert remove_version(out, V1)
    assert V1 not in os.listdir(f"{out}/versions")


V = "20261121T020000Z"
RECORD = VersionRecord(
    version=V,
    state=VersionState.REFUSED,
    created=1.5,
    finished=2.5,
    previous="20261120T020000Z",
    fingerprint="ab",
    records=7,
    total_bytes=700,
    work={"shards": 3},
    changes={"added": 2},
    refusals=(Violation("drift", "max_count_drop", Severity.ERROR, "é"),),
    accepted=("drift",),
    acceptances=(Acceptance(("drift",), "ana@trainer", 1790000000.5, "the shoes are gone for good"),),
)

#: Whole milliseconds, because a float rounds the last microsecond of a second up in a distant year.
moments = st.datetimes(datetime(1970, 1, 1), datetime(9990, 1, 1)).map(
    lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000, tzinfo=UTC)
)


@given(moments)
@example(datetime(9989, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC))
def test_version_names_are_times(moment: datetime) -> None:
    name = next_version(moment.timestamp(), [])
    assert name == moment.strftime("%Y%m%dT%H%M%SZ").rjust(16, "0") and is_version(name)
    assert created_at(name) == int(moment.timestamp())


@given(moments, st.lists(moments, max_size=5))
def test_version_names_ascend(now: datetime, before: list[datetime]) -> None:
    names = [next_version(at.timestamp(), []) for at in before]
    name = next_version(now.timestamp(), [*names, "notes", "latest", "99999999T999999Z"[:-1]])
    assert is_version(name) and all(name > other for other in names)


def test_other_names_are_not_versions() -> None:
    for name in ("", "20261121", f"{V} ", f"{V}\n", "٢٠٢٦١١٢١T٠٢٠٠٠٠Z", f"x{V}", V.lower()):
        assert not is_version(name), name
    assert created_at("20269999T999999Z") == 0.0


@pytest.mark.parametrize("name", ["99991231T235959Z", "20269999T999999Z"])
def test_names_without_a_successor_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is named after a time"):
        next_version(0.0, [V, name])


def test_paths_are_split_at_the_version() -> None:
    assert split_version(f"gs://b/pets@{V}") == ("gs://b/pets", V)
    assert split_version(f"a@b/pets@{V}/") == ("a@b/pets", V)
    for path in ("pets", "pets@latest", f"@{V}", f"pets@{V}/x", f"pets/{V}", "", "user@host:pets"):
        assert split_version(path) == (path, "")
    for output in ("pets", "/data/pets", "gs://b/pets", "s3://b/versions/pets"):
        assert version_name(version_path(output, V)) == f"{output}@{V}"
        assert version_name(version_path(output + "/", V) + "/") == f"{output}@{V}"
        assert version_name(output) == output
    assert version_name("pets/versions/old") == "pets/versions/old"


def test_documents_are_stored_without_what_other_files_state() -> None:
    for document in (RECORD, Pointer(V, "ab", 1790000000.25, "20261120T020000Z")):
        assert type(document).loads(document.dumps().encode()) == document
    assert replace(RECORD, pinned=True).dumps() == RECORD.dumps()


@pytest.mark.parametrize("kind", [VersionRecord, Pointer, ScrubState])
@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"7", b"null", b"{}", b'{"format_version": 2}', b"\xff", b"[" * 99_999,
        b'{"format_version": 1, "run": 1, "shards": [1]}',
    ],
)  # fmt: skip
def test_other_documents_are_refused(kind: type[VersionRecord | Pointer | ScrubState], data: bytes) -> None:
    with pytest.raises(ValueError):
        kind.loads(data)


POINTER = Pointer(V, "ab", 1.0)


@pytest.mark.parametrize(
    ("document", "change"),
    [
        *((RECORD, change) for change in (
            {"state": "new"}, {"records": None}, {"changes": {"added": "2"}}, {"changes": []},
            {"created": "today"}, {"refusals": [1]}, {"refusals": [{"gate": "drift"}]}, {"more": 1},
            {"accepted": 3}, {"fingerprint": 3}, {"acceptances": [{"who": "x"}]},
        )),
        *((POINTER, change) for change in (
            {"version": "../x"}, {"version": 7}, {"published": "x"}, {"published": 10**400},
            {"previous": None},
        )),
    ],
)  # fmt: skip
def test_damaged_documents_are_refused(document: VersionRecord | Pointer, change: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        type(document).loads(json.dumps({**json.loads(document.dumps()), **change}).encode())


def test_an_acceptance_is_one_line() -> None:
    assert str(RECORD.acceptances[0]) == (
        "drift accepted by ana@trainer, 2026-09-21 14:13 UTC: the shoes are gone for good"
    )
    assert str(Acceptance(("a", "b"), "x@y", float("inf"))) == "a, b accepted by x@y"


def made(count: int, generation: str = "0") -> list[Shard]:
    return [Shard(f"train-{i:05d}", 1, 1, f"{generation}{i:063d}") for i in range(count)]


def night(shards: list[Shard], state: ScrubState, fraction: float) -> tuple[list[str], ScrubState]:
    """Reads the chosen shards, and returns the state as the next run reads it."""
    read = [shard.file for shard in choose_shards(shards, state, fraction)]
    return read, ScrubState.loads(state_after(shards, state, dict.fromkeys(read, True)).dumps().encode())


@given(st.integers(1, 60), st.integers(1, 20))
@example(29, 30)
@example(30, 30)
@example(1000, 30)
def test_each_shard_has_its_turn(count: int, nights: int) -> None:
    shards, state, seen = made(count), ScrubState(), []
    for _ in range(nights):
        read, state = night(shards, state, 1 / nights)
        assert len(read) == math.ceil(Fraction(count, nights))
        seen += read
    assert set(seen) == {shard.file for shard in shards}
    assert len(seen) - len(set(seen)) < nights, "nothing is read twice before all else was read"


def test_the_share_decides_the_number_of_shards() -> None:
    shards = made(100)
    for fraction, count in ((0.0, 0), (0.001, 1), (0.07, 7), (0.071, 8), (1.0, 100)):
        assert len(choose_shards(shards, ScrubState(), fraction)) == count
    assert choose_shards([], ScrubState(), 1.0) == []


def test_new_shards_do_not_delay_old_ones() -> None:
    assert DEFAULT_SCRUB == 1 / 30
    shards, state, seen = made(30), ScrubState(), set()
    for number in range(40):
        read, state = night(shards, state, DEFAULT_SCRUB)
        seen.update(read)
        shards = [*made(30)[:25], *made(30, str(number % 9 + 1))[25:]]  # each night writes five of them
    assert seen >= {shard.file for shard in shards[:25]}


def test_a_damaged_shard_is_read_again_in_the_next_run() -> None:
    shards = made(10)
    state = state_after(shards, ScrubState(), {"train-00000": True, "train-00001": False})
    assert [shard.file for shard in choose_shards(shards, state, 0.1)] == ["train-00001"]


LEASE = Lease("run", "20261121T020000Z", "host", 41, "boot 7", since=900.0, renewed=1000.0, seconds=60.0)
texts = st.text(max_size=20)
times = st.floats(0, 1e12)
leases = st.builds(
    Lease, texts, texts, texts, st.integers(0, 2**31), texts, times, times, st.floats(0.1, 1e6)
)  # fmt: skip


@given(leases)
def test_a_lease_is_read_as_it_was_written(lease: Lease) -> None:
    assert Lease.loads(lease.dumps().encode()) == lease


def test_a_stored_lease_is_valid_for_two_weeks_at_most() -> None:
    stored = replace(LEASE, seconds=1e300).dumps().encode()
    assert Lease.loads(stored).seconds == MAX_SECONDS == 14 * 24 * 3600
