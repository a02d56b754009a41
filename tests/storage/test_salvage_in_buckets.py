"""Salvages a damaged dataset in a bucket into the bucket."""

from __future__ import annotations

import json
from pathlib import Path

from helpers.storage.buckets import Bucket

from shardwright.pipelines.salvage import salvage
from shardwright.pipelines.validate import validate


def test_a_damaged_dataset_in_a_bucket_is_salvaged_there(
    bucket: Bucket, small_local: Path, tmp_path: Path
) -> None:
    bucket.put_tree(small_local, "damaged/")
    first, second = sorted(item.name for item in small_local.glob("*.tfrecord"))
    data = bytearray(bucket.get(f"damaged/{first}"))
    data[40] ^= 1
    bucket.put(f"damaged/{first}", bytes(data))
    result = salvage(f"{bucket.url}/damaged", f"{bucket.url}/saved")
    assert result.lost == 1
    assert not validate(f"{bucket.url}/saved").findings
    assert bucket.get(f"saved/{second}") == bucket.get(f"damaged/{second}")
    document = bucket.document("saved")
    old = json.loads((small_local / "dataset.json").read_text())
    assert document["ledger"]["written"] == old["ledger"]["written"] - 1
    lost = json.loads(bucket.get("saved/lost.jsonl"))
    assert (lost["shard"], lost["record"], lost["code"]) == (first, 0, "DATA_CRC")
    assert not [name for name in bucket.names() if name.endswith(".tmp")]
    # and the same from the bucket to this machine, while the shards have each other's names
    bucket.put(f"damaged/{first}", (small_local / second).read_bytes())
    bucket.put(f"damaged/{second}", (small_local / first).read_bytes())
    restored = salvage(f"{bucket.url}/damaged", str(tmp_path / "restored"))
    assert restored.lost == 0 and restored.outcome["misplaced"] == 2
    for name in (first, second):
        assert (tmp_path / "restored" / name).read_bytes() == (small_local / name).read_bytes()
    bucket.put(f"damaged/{first}", bytes(data))
    bucket.put(f"damaged/{second}", (small_local / second).read_bytes())
    local = salvage(f"{bucket.url}/damaged", str(tmp_path / "saved"))
    assert local.dataset is not None
    assert result.dataset is not None
    assert local.dataset.fingerprint == result.dataset.fingerprint
