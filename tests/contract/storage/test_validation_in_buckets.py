"""Validation in a bucket during failures: retries, or one message, but never a false finding."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from helpers.hostile import run, sentence_of
from helpers.storage.buckets import Bucket
from helpers.storage.proxy import Fault, Proxy, Request, before_reading, flaky
from helpers.storage.retries import Retries
from helpers.timeless import without_times

from shardwright.pipelines.validate import validate

Capture = pytest.CaptureFixture[str]
SHARD = "out/train-00001-of-00002.tfrecord"
WRITTEN = ("findings.json", "statistics.json", "stats.pb")
BEFORE = b'{"the report": "before"}'


@pytest.fixture
def stored(bucket: Bucket, small_local: Path) -> Bucket:
    """The small dataset in a bucket, with the report of an earlier validation."""
    bucket.put_tree(small_local, "out/")
    bucket.put("out/findings.json", BEFORE)
    return bucket


@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_a_flaky_storage_does_not_change_the_findings(stored: Bucket, proxy: Proxy, seed: int) -> None:
    stored.put("out/labels.txt", b"bee\n")  # so that there is a finding
    found = []
    for rule in (None, flaky(seed)):
        stored.put("out/findings.json", BEFORE)
        with proxy.watch(rule):
            report = validate(f"{stored.url}/out", mode="quality")
            failed = Counter(request.status for request in proxy.requests)[503]
        assert bool(failed) == bool(rule)
        assert report.counts["SIDECAR_MISMATCH"] == 1
        found.append([without_times(stored.get("out/findings.json"))])
        found[-1] += (stored.get(f"out/{name}") for name in WRITTEN[1:])
    assert found[0] == found[1]


_REQUESTS = [
    ("upload", "out/findings.json"),
    ("media", "out/dataset.json"),
    ("list", "out/"),
    ("media", "out/labels.txt"),
    ("media", SHARD),
    ("media", "out/_shards/train-00001-of-00002.jsonl.gz"),
    ("media", "out/_index/train-00001-of-00002.idx"),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("fault", [Fault("status", 503), Fault("status", 403), Fault("drop")])
@pytest.mark.parametrize("request_", _REQUESTS)
def test_a_failing_storage_is_not_a_finding(
    capfd: Capture, retries: Retries, stored: Bucket, proxy: Proxy, request_: tuple[str, str], fault: Fault
) -> None:  # fmt: skip
    def rule(request: Request) -> Fault | None:
        if (request.kind, request.name) != request_:
            return None
        retries.end_soon()
        return fault

    with proxy.watch(rule):
        sentence = sentence_of(run(capfd, "validate", "--dataset", f"{stored.url}/out"), 3)
    assert sentence.startswith("Cannot ") and f"{stored.url}/{request_[1]}".rstrip("/") in sentence
    messages = {503: "answers with 503", 403: "permission denied", 0: "does not answer"}
    assert messages[int(fault.value)] in sentence and "--resume" not in sentence
    assert stored.get("out/findings.json") == BEFORE


def test_a_shard_that_disappears_is_missing(stored: Bucket, proxy: Proxy) -> None:
    with proxy.watch(before_reading(SHARD, lambda: stored.delete(SHARD))):
        report = validate(f"{stored.url}/out")
    assert not report.sound
    # One more finding is about the text in place of the previous report.
    findings = [(found.code, found.shard) for found in report.findings if found.shard != "findings.json"]
    assert findings == [("SHARD_MISSING", "train-00001-of-00002.tfrecord")]
