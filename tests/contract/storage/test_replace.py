"""`--overwrite` and `--resume` on object storage: readers see the old dataset, none, or the new one."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

import pytest
from helpers.depths import findings_of
from helpers.hostile import document, run, sentence_of
from helpers.packing import tree_members
from helpers.storage.buckets import Bucket
from helpers.storage.proxy import Fault, Proxy, Request
from helpers.storage.retries import Retries

from shardwright.pipelines.convert import convert

Capture = pytest.CaptureFixture[str]
MARK = "_work/replacement/"


@pytest.fixture(scope="module")
def old_local(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of more shards, built on the local disk."""
    return Path(convert(input=tree, output=tmp_path_factory.mktemp("old") / "out", shards=5).path)


def state_of(bucket: Bucket) -> str:
    """Returns what a reader sees: the fingerprint of a whole dataset, or nothing; never a mixture."""
    generations = bucket.generations()
    if "out/dataset.json" not in generations:
        return _tfds_sees(bucket)
    made = bucket.document("out")
    shards = [shard for split in made["splits"].values() for shard in split["shards"]]
    files = made["sidecars"] | {shard["file"]: shard["sha256"] for shard in shards}
    for name, sha256 in files.items():
        assert _sha256_of(bucket, f"out/{name}", generations.get(f"out/{name}")) == sha256, name
    return str(made["fingerprint"])


@functools.cache
def _sha256_of(bucket: Bucket, name: str, generation: int | None) -> str:
    return hashlib.sha256(bucket.get(name)).hexdigest()


def _tfds_sees(bucket: Bucket) -> str:
    """Checks that TFDS, which ignores dataset.json, opens a whole dataset or none; returns ""."""
    names = bucket.names("out/")
    if "dataset_info.json" in names:
        (split,) = json.loads(bucket.get("out/dataset_info.json"))["splits"]
        shards = len(split["shardLengths"])
        files = {f"{split['name']}-{number:05d}-of-{shards:05d}.tfrecord" for number in range(shards)}
        assert files == {name for name in names if name.endswith(".tfrecord") and MARK not in name}
    return ""


def test_overwriting_removes_all_old_files(
    shared: Bucket, bucket: Bucket, proxy: Proxy, small_local: Path, old_local: Path
) -> None:
    output, old = f"{bucket.url}/out", document(old_local)["fingerprint"]
    bucket.put_tree(old_local, "out/")
    bucket.put("out/train.labels.txt", b"of a version before")
    bucket.put("outside.txt", b"")
    bucket.put("out-other/file", b"")
    seen = {old: 0}
    mixtures = []

    def rule(request: Request) -> None:
        if request.kind in ("delete", "copy", "upload") and request.bucket == bucket.name:
            proxy.rule = None
            try:
                state = state_of(bucket)
                seen[state] = seen.get(state, 0) + 1
            except AssertionError as error:  # raising it here would only end the proxy's answer
                mixtures.append(error)
            finally:
                proxy.rule = rule

    with proxy.watch(rule):
        new = convert(
            input=f"{shared.url}/small", output=output, shards=2, overwrite=True
        ).dataset.fingerprint
        finals = [r for r in proxy.requests if r.kind == "copy" and r.name.startswith("out/")]
    assert not mixtures, mixtures[0]
    assert set(seen) == {old, "", new} or set(seen) == {old, ""}
    assert finals[-1].name == "out/dataset.json"
    assert new == document(small_local)["fingerprint"]
    assert set(bucket.names("out/")) == tree_members(small_local).keys() | {"_work/lease.json"}, (
        "a lease that was given back stays, empty"
    )
    assert {"outside.txt", "out-other/file"} <= set(bucket.names())
    assert not findings_of(output)


@pytest.mark.parametrize(
    "cut",
    [
        "copy out/dataset.json",
        pytest.param("delete out/dataset.json", marks=pytest.mark.slow),
        pytest.param("copy out/train", marks=pytest.mark.slow),
        pytest.param("delete out/_work", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_replacement_never_shows_a_mixture(
    capfd: Capture, retries: Retries, shared: Bucket, bucket: Bucket, proxy: Proxy,
    small_local: Path, old_local: Path, cut: str,
) -> None:  # fmt: skip
    output = f"{bucket.url}/out"
    bucket.put_tree(old_local, "out/")
    old, new = (document(path)["fingerprint"] for path in (old_local, small_local))
    kind, name = cut.split()
    down = []

    def rule(request: Request) -> Fault | None:
        if request.kind == kind and request.name.startswith(name) and "probe" not in request.name:
            down.append(request)
            retries.end_soon()
        return Fault("drop") if down else None

    argv = ("convert", "--input", f"{shared.url}/small", "--output", output, "--shards=2")
    with proxy.watch(rule):
        sentence = sentence_of(run(capfd, *argv, "--overwrite"), 3)
    assert "Google Cloud Storage does not answer" in sentence and "--resume" in sentence
    assert state_of(bucket) in (old, "", new)
    retries.as_usual()
    assert run(capfd, *argv, "--resume").code == 0
    assert state_of(bucket) == new
    assert not [item for item in bucket.names() if MARK in item]
    stale = [item for item in bucket.names("out/") if "of-00005" in item]
    assert not stale
