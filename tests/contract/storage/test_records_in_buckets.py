"""`Records` of a dataset in a bucket: the same records, read in ranges, many records per request."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.storage.buckets import Bucket

from shardwright.core import storage
from shardwright.loader import Records


def test_records_in_a_bucket_equal_those_on_the_disk(bucket: Bucket, sound_dataset: Path) -> None:
    bucket.put_tree(sound_dataset, "own/")
    local, remote = (Records(place, "all") for place in (sound_dataset, f"{bucket.url}/own"))
    expected = [local.raw(i) for i in range(len(local))]
    assert [remote.raw(i) for i in range(len(remote))] == expected
    assert [record["image/encoded"] for record in remote] == [record["image/encoded"] for record in local]
    assert remote.keys == local.keys
    (ours, theirs) = (list(item.batches(16, shuffle=True, seed=5, threads=4)) for item in (remote, local))
    assert all(
        np.array_equal(a, b) and np.array_equal(c, d) for (a, c), (b, d) in zip(ours, theirs, strict=True)
    )


def test_reading_a_shard_in_order_takes_one_request(
    bucket: Bucket, sound_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put_tree(sound_dataset, "own/")
    records = Records(f"{bucket.url}/own", "train")
    asked: list[str] = []
    read_range = storage.read_range
    monkeypatch.setattr(
        storage, "read_range", lambda path, *rest: asked.append(path) or read_range(path, *rest)
    )
    assert len(list(records)) == len(records) > len(asked) == 3
    assert len(list(records[::2])) == len(records[::2]) and len(asked) == 6
