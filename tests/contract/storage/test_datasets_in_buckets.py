"""Datasets in a bucket: rebuilt, versioned, validated and read, also while the storage fails."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.hostile import identity, picture, run, sentence_of, without_times
from helpers.storage.buckets import Bucket, Place
from helpers.storage.proxy import Fault, Proxy, Request, Retries, always, before_reading, flaky, for_good
from helpers.versioned import (
    V1,
    V2,
    V3,
    V4,
    add_version,
    latest_of,
    make_versions,
    point_to,
    refusal,
    state_of,
)

from shardwright.core import storage
from shardwright.core.versions import list_versions, located, remove_version, version_names
from shardwright.loader import Records, pin, selection
from shardwright.pipelines.convert import convert
from shardwright.pipelines.diff import diff
from shardwright.pipelines.inspect import inspect
from shardwright.pipelines.plan import plan
from shardwright.pipelines.publish_version import publish
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.rollback import rollback
from shardwright.pipelines.validate import validate
from shardwright.pipelines.versions import versions
from shardwright.schemas.errors import DataRefused, EngineError, UsageError
from shardwright.schemas.version import LATEST_JSON, LEASE_JSON, VersionState

NEW = "in/ant/new.jpg"


@pytest.fixture
def source(bucket: Bucket, tree: Path) -> Bucket:
    """A bucket with a dozen images in `in/`."""
    return bucket.put_tree(tree, "in/")


def _pointer(bucket: Bucket) -> dict[str, str]:
    pointer: dict[str, str] = json.loads(bucket.get(f"out/{LATEST_JSON}"))
    return pointer


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 4))])
def test_versions_equal_a_full_build(source: Bucket, proxy: Proxy, tmp_path: Path, seed: int) -> None:
    """Each seed is another flaky storage; 0 is one that does not fail."""
    output = f"{source.url}/out"
    settings = {"input": f"{source.url}/in", "shards": 2}
    with proxy.watch(flaky(seed) if seed else None, page_size=5):
        first = rebuild(output=output, **settings)
        assert not rebuild(output=output, **settings).changed
        source.put(NEW, picture(99))
        second = rebuild(output=output, **settings)
    assert second.outcome["work"]["reused_shards"] == 1 and second.outcome["work"]["converted"] == 1
    assert [record.state for record in list_versions(output)] == [VersionState.PUBLISHED] * 2
    made = convert(output=tmp_path / "fresh", plan_from=f"{first.path}/dataset.json", **settings)
    assert made.dataset.fingerprint == second.outcome["fingerprint"] == _pointer(source)["fingerprint"]
    assert pin(output).endswith(second.version)
    fetched = source.fetch(f"out/versions/{second.version}", tmp_path / "fetched")
    assert identity(fetched) | {"dataset.json": ""} == identity(tmp_path / "fresh") | {"dataset.json": ""}
    rollback(output)
    assert _pointer(source)["version"] == first.version
    assert source.get(f"out/{LEASE_JSON}") == b""


@pytest.mark.slow
def test_a_storage_that_disappears_ends_the_rebuild_and_the_next_one_continues(
    source: Bucket, proxy: Proxy, retries: Retries
) -> None:
    settings = {"input": f"{source.url}/in", "output": f"{source.url}/out", "shards": 3}
    first = rebuild(**settings)
    source.put(NEW, picture(99))
    rule = for_good(always(Fault("status", 503), "upload", "/dataset.json"), retries)
    with proxy.watch(rule), pytest.raises(EngineError, match="answers with 503"):
        rebuild(**settings)
    retries.as_usual()
    assert _pointer(source)["version"] == first.version
    # The lease was not returned; its holder is this very process, but an earlier run in it.
    source.delete(f"out/{LEASE_JSON}")
    second = rebuild(**settings)
    assert second.outcome["work"]["converted"] == 0
    versions = [record.version for record in list_versions(f"{source.url}/out")]
    assert versions == [first.version, second.version]


def test_a_lost_storage_is_reported(source: Bucket, proxy: Proxy, tmp_path: Path, retries: Retries) -> None:
    job, posted = tmp_path / "job.yaml", tmp_path / "told.json"
    job.write_text(
        f"input: {source.url}/in\noutput: {source.url}/out\n"
        f"hooks:\n  on_failure: {{command: [sh, -c, 'cat > {posted}']}}\n"
    )
    rule = for_good(always(Fault("status", 503), "upload", ".tfrecord"), retries)
    with proxy.watch(rule), pytest.raises(EngineError, match="answers with 503"):
        rebuild(job)
    assert json.loads(posted.read_text())["event"] == "failure"


@pytest.mark.slow
def test_a_pointer_that_somebody_switched_is_not_switched_again(source: Bucket, proxy: Proxy) -> None:
    settings = {"input": f"{source.url}/in", "output": f"{source.url}/out", "shards": 3}
    first = rebuild(**settings)
    source.put(NEW, picture(99))
    other = json.dumps({**_pointer(source), "published": 1.0}).encode()

    def rule(request: Request) -> Fault | None:
        if request.kind == "upload" and request.name.endswith("version.json"):
            source.put(f"out/{LATEST_JSON}", other)
        return None

    with proxy.watch(rule), pytest.raises(EngineError, match="was changed meanwhile, as by a rollback"):
        rebuild(**settings)
    assert source.get(f"out/{LATEST_JSON}") == other
    assert rebuild(**settings).version > first.version


@pytest.fixture
def out(versioned: Place, small_local: Path) -> Iterator[str]:
    """Three published versions."""
    make_versions(versioned.url, small_local)
    yield versioned.url
    selection.pinned_versions.clear()


@pytest.mark.sampled(1)
def test_versions_can_be_read(out: str, small_local: Path) -> None:
    assert located(out) == f"{out}/versions/{V3}" and located(f"{out}@{V1}") == f"{out}/versions/{V1}"
    assert inspect(out)["dataset"] == f"{out}@{V3}"
    assert diff(f"{out}@{V1}", out).drift.changes.unchanged == 12
    assert plan(input=f"{out}@{V2}", plan_from=out).total == 12
    assert pin(out) == f"{out}@{V3}"
    point_to(out, V1)
    records = Records(f"{out}/")
    assert len(records) == 12 and records.directory == f"{out}/versions/{V3}"
    with pytest.raises(UsageError, match="has no version"):
        located(f"{out}@{V4}")
    make_versions(odd := f"{out}/[a]?*", small_local)  # which looks like a pattern
    assert located(odd) == f"{odd}/versions/{V3}" and located(f"{odd}.tfrecord") == f"{odd}.tfrecord"


@pytest.mark.slow
def test_rollback_and_publish_work(out: str, small_local: Path) -> None:
    assert rollback(out) == (out, V2, V3, True, "")
    assert latest_of(out)["version"] == V2 and state_of(out, V3) == "withdrawn"
    add_version(out, small_local, V4, "refused", refusals=[refusal("drift", "max_count_drop")])
    with pytest.raises(DataRefused, match=f"shardwright publish {out}@{V4} --accept max_count_drop"):
        publish(f"{out}@{V4}")
    done = publish(f"{out}@{V4}", accept="drift", reason="looked at")
    assert done[:4] == (out, V4, V2, ("drift",)) and done.warning == ""
    assert done.acceptance is not None and done.acceptance.reason == "looked at"
    assert latest_of(out)["version"] == V4 and state_of(out, V4) == "published"
    assert V4.encode() in storage.read_bytes(f"{out}/index.html")


@pytest.mark.slow
def test_versions_can_be_pinned_and_removed(out: str) -> None:
    assert [record.pinned for record in versions(out, pin=V1).versions] == [False, False, True]
    assert not remove_version(out, V1) and not remove_version(out, V3)
    assert remove_version(out, V2)
    assert version_names(out) == [V1, V3]
    versions(out, unpin=V1)
    assert remove_version(out, V1) and remove_version(out, V1)
    assert [record.version for record in list_versions(out)] == [V3]
    assert all(
        file.startswith((f"versions/{V3}/", "latest.json", "index.html")) for file in storage.list_files(out)
    )


def test_versions_need_few_requests(bucket: Bucket, proxy: Proxy, small_local: Path, shared: Bucket) -> None:
    """A dataset without versions needs little more than before; one with versions does not list them."""
    out = f"{bucket.url}/out"
    make_versions(out, small_local)
    with proxy.watch():
        assert located(out) == f"{out}/versions/{V3}"
        assert located(f"{out}@{V1}") == located(f"{out}/versions/{V1}") == f"{out}/versions/{V1}"
        assert dict(proxy.counts()) == {"stat": 3, "media": 1}
    with proxy.watch():
        plan(input=f"{shared.url}/small")
        assert not [request for request in proxy.requests if "latest.json" in request.name]
    for name in bucket.names(f"out/versions/{V1}/"):
        bucket.put(f"plain/{name}", bucket.get(f"out/versions/{V1}/{name}"))
    with proxy.watch():
        assert located(f"{bucket.url}/plain") == f"{bucket.url}/plain"
        assert dict(proxy.counts()) == {"stat": 1}
    assert json.loads(bucket.get("out/latest.json"))["version"] == V3


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
