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
    make_versions,
    point_to,
)

from shardwright.core.versions import located
from shardwright.loader import Records, pin, selection
from shardwright.pipelines.diff import diff
from shardwright.pipelines.inspect import inspect
from shardwright.pipelines.plan import plan
from shardwright.schemas.errors import UsageError


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
