"""The content of a lease file, and when a lease no longer keeps other runs away."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.lease import MAX_SECONDS, Lease, is_void

LEASE = Lease("run", "20261121T020000Z", "host", 41, "boot 7", since=900.0, renewed=1000.0, seconds=60.0)
texts = st.text(max_size=20)
times = st.floats(0, 1e12)
leases = st.builds(
    Lease, texts, texts, texts, st.integers(0, 2**31), texts, times, times, st.floats(0.1, 1e6)
)  # fmt: skip


def lives(pid: int, began: str) -> bool:
    return True


def ended(pid: int, began: str) -> bool:
    return False


@given(leases)
def test_a_lease_is_read_as_it_was_written(lease: Lease) -> None:
    assert Lease.loads(lease.dumps().encode()) == lease


def test_fields_of_later_versions_are_ignored() -> None:
    document = {**json.loads(LEASE.dumps()), "zone": "europe-west1-b"}
    assert Lease.loads(json.dumps(document).encode()) == LEASE


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
def test_invalid_leases_are_reported_as_damaged(data: bytes) -> None:
    with pytest.raises(ValueError):
        Lease.loads(data)


def test_a_stored_lease_is_valid_for_two_weeks_at_most() -> None:
    stored = replace(LEASE, seconds=1e300).dumps().encode()
    assert Lease.loads(stored).seconds == MAX_SECONDS == 14 * 24 * 3600


@pytest.mark.parametrize(
    ("age", "void"),
    [(0.0, False), (60.0, False), (61.0, True), (-59.0, False), (-61.0, True), (-1e10, True), (1e10, True)],
)
def test_a_lease_is_void_after_its_time_or_far_in_the_future(age: float, void: bool) -> None:
    assert is_void(LEASE, age, "host", lives) is void
    assert is_void(LEASE, age, "elsewhere", ended) is void


def test_the_end_of_the_holder_is_seen_at_once_on_its_host() -> None:
    assert is_void(LEASE, 1.0, "host", ended)
    assert not is_void(LEASE, 1.0, "elsewhere", ended)
    asked = []
    is_void(LEASE, 1.0, "host", lambda pid, began: bool(asked.append((pid, began))))
    assert asked == [(41, "boot 7")]


def test_without_a_launcher_only_the_time_of_a_lease_counts() -> None:
    assert not is_void(replace(LEASE, pid=0), 1.0, "host", ended)
