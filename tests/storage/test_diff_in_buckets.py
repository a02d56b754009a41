"""Datasets on Google Cloud Storage are compared with each other and with local datasets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.storage.buckets import Bucket

from shardwright.pipelines.convert import convert
from shardwright.pipelines.diff import diff
from shardwright.schemas.errors import UsageError


def test_a_dataset_in_a_bucket_is_compared(
    bucket: Bucket, small_local: Path, tree: Path, tmp_path: Path
) -> None:
    output = f"{bucket.url}/out"
    convert(input=str(tree), output=output, shards=2, limit=10)
    report = f"{bucket.url}/reports/diff.json"
    found = diff(str(small_local), output, report=report)
    assert found.drift.all_records == (12, 10)
    stored = json.loads(bucket.get("reports/diff.json"))
    assert (stored["images"]["removed"], stored["images"]["unchanged"]) == (2, 10)
    assert {change["new"] for change in stored["images"]["listed"]["removed"]} == {"filtered: limit"}
    backwards = diff(output, str(small_local)).drift
    assert [change.old for change in backwards.changes.listed["added"]] == ["filtered: limit"] * 2
    bucket.delete("out/_shards/train-00001-of-00002.jsonl.gz")
    with pytest.raises(UsageError, match=f"^{output}/_shards/train-00001-of-00002.jsonl.gz is missing"):
        diff(output, str(small_local))
