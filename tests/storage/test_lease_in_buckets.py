"""The lease of a rebuild in a bucket: one of several runs gets it, whatever the network does."""

from __future__ import annotations

import threading

import pytest
from helpers.storage.buckets import Bucket

from shardwright.schemas.errors import EngineError
from shardwright.schemas.lease import Lease
from shardwright.transforms.lease import acquire, read_holder, release, renew, still_mine

VERSION = "20261121T020000Z"
TAKERS = 6


def race(output: str) -> list[str]:
    """Returns which of several concurrent runs got the lease."""
    winners: list[str] = []
    start = threading.Barrier(TAKERS)

    def take(holder: str) -> None:
        start.wait()
        try:
            acquire(output, Lease(holder, VERSION), 0.0)
            winners.append(holder)
        except EngineError:
            pass

    threads = [threading.Thread(target=take, args=(f"taker {number}",)) for number in range(TAKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return winners


@pytest.mark.parametrize("before", [None, b"damaged", Lease("old", VERSION, seconds=-1.0).dumps().encode()])
def test_one_of_several_runs_gets_the_lease(bucket: Bucket, before: bytes | None) -> None:
    for number in range(4):
        output = f"pets/{number}"
        if before is not None:
            bucket.put(f"{output}/lease.json", before)
        winners = race(f"{bucket.url}/{output}")
        assert len(winners) == 1
        assert Lease.loads(bucket.get(f"{output}/lease.json")).holder == winners[0]


def test_a_lease_is_renewed_lost_and_returned(bucket: Bucket) -> None:
    output = f"{bucket.url}/pets"
    acquire(output, Lease("ours", VERSION), 0.0)
    first = Lease.loads(bucket.get("pets/lease.json"))
    renew(output, "ours")
    assert still_mine(output, "ours")
    second = Lease.loads(bucket.get("pets/lease.json"))
    assert second.renewed > first.renewed and second.since == first.since
    bucket.put("pets/lease.json", Lease("theirs", VERSION).dumps().encode())
    assert not still_mine(output, "ours") and read_holder(output) == "theirs"
    release(output, "ours")
    assert bucket.names("pets/") == ["lease.json"]
    release(output, "theirs")
    assert bucket.get("pets/lease.json") == b"" and read_holder(output) == ""
