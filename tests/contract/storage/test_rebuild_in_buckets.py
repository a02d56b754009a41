"""Rebuilds in buckets: the same versions as on a disk, an atomic pointer, and storage failures."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.hostile import identity, picture
from helpers.storage.buckets import Bucket
from helpers.storage.proxy import Fault, Proxy, Request, flaky
from helpers.storage.retries import Retries

from shardwright.core.versions import list_versions
from shardwright.loader import pin
from shardwright.pipelines.convert import convert
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.rollback import rollback
from shardwright.schemas.errors import EngineError
from shardwright.schemas.version import LATEST_JSON, LEASE_JSON, VersionState

NEW = "in/ant/new.jpg"


@pytest.fixture
def source(bucket: Bucket, tree: Path) -> Bucket:
    """A bucket with a dozen images in `in/`."""
    bucket.put_tree(tree, "in/")
    return bucket


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


def gone_from(ending: str, retries: Retries) -> Callable[[Request], Fault | None]:
    """Returns the rule of a storage that answers nothing from the upload of a file of this ending on."""
    gone = threading.Event()

    def rule(request: Request) -> Fault | None:
        if request.kind == "upload" and request.name.endswith(ending):
            gone.set()
            retries.end_soon()
        return Fault("status", 503) if gone.is_set() else None

    return rule


@pytest.mark.slow
def test_a_storage_that_disappears_ends_the_rebuild_and_the_next_one_continues(
    source: Bucket, proxy: Proxy, retries: Retries
) -> None:
    settings = {"input": f"{source.url}/in", "output": f"{source.url}/out", "shards": 3}
    first = rebuild(**settings)
    source.put(NEW, picture(99))
    rule = gone_from("dataset.json", retries)
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
    with proxy.watch(gone_from(".tfrecord", retries)), pytest.raises(EngineError, match="answers with 503"):
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
