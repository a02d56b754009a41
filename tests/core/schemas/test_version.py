"""Names of versions, and the documents beside them: versions, the latest one, leases, scrubbing."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.core.lease import MAX_SECONDS, Lease
from shardwright.schemas.codes import Severity
from shardwright.schemas.configuration.settings import DEFAULT_SCRUB
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


def test_version_records_are_stored() -> None:
    assert VersionRecord.loads(RECORD.dumps().encode()) == RECORD
    assert VersionRecord.loads(replace(RECORD, pinned=True).dumps().encode()) == RECORD
    assert "pinned" not in json.loads(RECORD.dumps())


def test_pointers_are_stored() -> None:
    pointer = Pointer(V, "ab", time.time(), "20261120T020000Z")
    assert Pointer.loads(pointer.dumps().encode()) == pointer


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
            {"state": "new"}, {"records": "7"}, {"records": None}, {"changes": {"added": "2"}},
            {"changes": []}, {"created": "today"}, {"refusals": [1]}, {"refusals": [{"gate": "drift"}]},
            {"more": 1}, {"accepted": 3}, {"fingerprint": 3}, {"acceptances": [1]},
            {"acceptances": [{"who": "x"}]},
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
    return read, ScrubState.loads(state_after(shards, state, read, ()).dumps().encode())


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
    state = state_after(shards, ScrubState(), {"train-00000"}, {"train-00001"})
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


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"null", b"7", b'"holder"', b"{}", b'{"holder": "a"}', b"\xff\xfe\x00",
        b"[" * 100_000, b'{"holder": 1, "version": "v"}', b'{"holder": "a", "version": "v", "pid": "1"}',
        b'{"holder": "a", "version": "v", "pid": 1.5}', b'{"holder": "a", "version": "v", "renewed": NaN}',
        b'{"holder": "a", "version": "v", "seconds": Infinity}',
        b'{"holder": "a", "version": "v", "seconds": true}',
        b'{"holder": "a", "version": "v", "renewed": null}',
    ],
)  # fmt: skip
def test_a_damaged_lease_is_none(data: bytes) -> None:
    assert Lease.loads(data) is None


def test_a_stored_lease_is_valid_for_two_weeks_at_most() -> None:
    stored = replace(LEASE, seconds=1e300).dumps().encode()
    assert Lease.loads(stored).seconds == MAX_SECONDS == 14 * 24 * 3600
