"""Versions on every storage that supports them: listed, read, switched, pinned and removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.storage.buckets import Bucket, Place
from helpers.storage.proxy import Proxy
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
from shardwright.pipelines.diff import diff
from shardwright.pipelines.inspect import inspect
from shardwright.pipelines.plan import plan
from shardwright.pipelines.publish_version import publish
from shardwright.pipelines.rollback import rollback
from shardwright.pipelines.versions import versions
from shardwright.schemas.errors import DataRefused, UsageError


@pytest.fixture
def out(versioned: Place, small_local: Path) -> Iterator[str]:
    """Three published versions."""
    make_versions(versioned.url, small_local)
    yield versioned.url
    selection._pinned.clear()


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
