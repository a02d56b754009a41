"""The report of a dataset in a bucket is the same as on a disk, and needs few requests."""

from __future__ import annotations

from pathlib import Path

from helpers.storage.buckets import Bucket

from shardwright.pipelines.convert import convert
from shardwright.pipelines.validate import validate
from shardwright.transforms.report.gather import gather


def test_a_dataset_in_a_bucket_has_a_report(shared: Bucket, bucket: Bucket, tmp_path: Path) -> None:
    output = f"{bucket.url}/out"
    convert(input=f"{shared.url}/photos", output=output, resize=32, limit=12, shards=2)
    validate(output, mode="fast", junit=f"{output}/ci/junit.xml")
    fetched = bucket.fetch("out", tmp_path)
    assert b"<testsuites" in (fetched / "ci" / "junit.xml").read_bytes()
    assert (fetched / "report.html").read_text().count("<img") == 12
    remote, local = gather(output), gather(str(fetched))
    pictures = [
        [(sample.key, sample.picture) for sheet in data.sheets for sample in sheet.samples]
        for data in (remote, local)
    ]
    assert pictures[0] == pictures[1]
    assert remote.fingerprint == local.fingerprint
