"""A storage that fails, lies, refuses or disappears: the same dataset, or one message and no leftovers."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from helpers.hostile import document, outcomes, run, sentence_of
from helpers.storage.buckets import Bucket
from helpers.storage.proxy import Fault, Proxy, Request, Retries, always, before_reading, flaky, for_good

from shardwright.core import storage
from shardwright.pipelines.convert import convert
from shardwright.pipelines.inspect import inspect
from shardwright.pipelines.validate import validate

Capture = pytest.CaptureFixture[str]
VICTIM = "small/ant/000.jpg"


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_flaky_storage_changes_nothing(
    shared: Bucket, bucket: Bucket, proxy: Proxy, small_local: Path, tmp_path: Path, seed: int
) -> None:
    with proxy.watch(flaky(seed), page_size=5):
        made = convert(input=f"{shared.url}/small", output=f"{bucket.url}/out", shards=2)
        statuses = Counter(request.status for request in proxy.requests)
    assert statuses[503] >= 3 and statuses[429] and statuses[0], statuses
    assert made.dataset.fingerprint == document(small_local)["fingerprint"]
    assert made.dataset.ledger["written"] == made.dataset.ledger["listed"]
    fetched = bucket.fetch("out", tmp_path)
    assert outcomes(fetched) == outcomes(small_local)


def test_bytes_that_were_damaged_once_are_sent_again(
    shared: Bucket, bucket: Bucket, proxy: Proxy, small_local: Path
) -> None:
    flipped = set()

    def rule(request: Request) -> Fault | None:
        action = "flip" if request.kind == "media" else "flip_upload"
        is_shard = request.kind == "upload" and request.name.endswith(".tfrecord")
        if (request.kind != "media" and not is_shard) or (action, request.name) in flipped:
            return None
        flipped.add((action, request.name))
        return Fault(action)

    with proxy.watch(rule):
        made = convert(input=f"{shared.url}/small", output=f"{bucket.url}/out", shards=2)
    assert made.dataset.fingerprint == document(small_local)["fingerprint"]
    shards = [f"out/train-0000{number}-of-00002.tfrecord" for number in range(2)]
    assert {("flip", "out/dataset.json"), *(("flip_upload", name) for name in shards)} <= flipped
    flipped.clear()
    with proxy.watch(rule):
        assert validate(f"{bucket.url}/out").sound
        assert {("flip", name) for name in shards} <= flipped
        flipped.clear()
        assert inspect(f"{bucket.url}/out")["fingerprint"] == made.dataset.fingerprint
    assert ("flip", shards[0]) in flipped


def test_images_that_cannot_be_read_are_quarantined(
    bucket: Bucket, proxy: Proxy, tree: Path, tmp_path: Path
) -> None:
    """The bytes of one are always damaged, one may not be read, and one was deleted since its listing."""
    bucket.put_tree(tree, "small/")
    damaged, forbidden, deleted = (f"small/ant/{name}" for name in ("000.jpg", "002.png", "004.png"))
    rules = (
        always(Fault("flip"), "media", damaged),
        always(Fault("status", 403), "media", forbidden),
        before_reading(deleted, lambda: bucket.delete(deleted)),
    )
    with proxy.watch(lambda request: next(filter(None, (rule(request) for rule in rules)), None)):
        settings = {"max_bad_fraction": 0.3, "verify": "none"}
        convert(input=f"{bucket.url}/small", output=f"{bucket.url}/out", **settings)
    found = outcomes(bucket.fetch("out", tmp_path))
    reasons = {key: outcome for key, outcome in found.items() if outcome != "written"}
    assert len(found) == 12 and reasons == {
        "ant/000.jpg": "CHECKSUM_MISMATCH",
        "ant/002.png": "UNREADABLE",
        "ant/004.png": "UNREADABLE",
    }


def test_a_dataset_that_is_always_damaged_is_reported(
    capfd: Capture, bucket: Bucket, proxy: Proxy, small_local: Path
) -> None:
    bucket.put_tree(small_local, "out/")
    for name in ("dataset.json", ".tfrecord"):
        with proxy.watch(always(Fault("flip"), "media", name)):
            for command in ("validate", "inspect"):
                sentence = sentence_of(run(capfd, command, "--dataset", f"{bucket.url}/out"), 3)
                assert "checksum" in sentence and name in sentence


def test_an_object_replaced_since_its_listing_stops_the_job(
    capfd: Capture, bucket: Bucket, proxy: Proxy, tree: Path
) -> None:
    bucket.put_tree(tree, "small/")
    argv = ("convert", "--input", f"{bucket.url}/small", "--output", f"{bucket.url}/out")
    with proxy.watch(before_reading(VICTIM, lambda: bucket.put(VICTIM, b"another"))):
        sentence = sentence_of(run(capfd, *argv), 3)
    assert sentence == (
        f"{bucket.url}/{VICTIM} changed while the job was reading its input; "
        "run again with --resume when nothing writes there."
    )
    assert "out/dataset.json" not in bucket.names()


@pytest.mark.parametrize(
    ("kind", "status", "message"),
    [
        ("list", 403, "^Cannot list gs://.*permission denied"),
        ("upload", 403, "^Cannot write to gs://.*permission denied"),
        ("delete", 403, "^Cannot write to gs://.*permission denied"),
        ("list", 401, "no valid credentials"),
        ("list", 400, "the proxy says 400"),
    ],
)
def test_a_refusal_is_reported_before_an_image_is_read(
    capfd: Capture, shared: Bucket, bucket: Bucket, proxy: Proxy, kind: str, status: int, message: str
) -> None:
    argv = ("convert", "--input", f"{shared.url}/small", "--output", f"{bucket.url}/out")
    with proxy.watch(always(Fault("status", status), kind)):
        sentence = sentence_of(run(capfd, *argv), 3)
    assert re.search(message, sentence) and "again and again" not in sentence
    assert kind != "list" or len(proxy.requests) == 1
    assert set(proxy.names("media")) <= {"out/_work/lease.json"}, "images were read first"
    assert set(bucket.names()) <= {"out/_work/probe"}


def test_a_missing_object_is_not_reported_as_a_missing_bucket(google_client: object, proxy: Proxy) -> None:
    bucket = Bucket(google_client, "my-bucket-of-buckets")
    with pytest.raises(FileNotFoundError):
        storage.read_bytes(f"{bucket.url}/bucket.jpg")
    with pytest.raises(FileNotFoundError):
        storage.read_bytes(f"{bucket.url}/specified bucket.jpg", "17")


@pytest.mark.usefixtures("short_pauses")
def test_missing_credentials_are_reported(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith(("GOOGLE", "STORAGE_"))]:
        monkeypatch.delenv(name)
    for name, value in {"HOME": tmp_path, "CLOUDSDK_CONFIG": tmp_path, "NO_GCE_CHECK": "true"}.items():
        monkeypatch.setenv(name, str(value))
    sentence = sentence_of(run(capfd, "inspect", "gs://some-bucket/out"), 3)
    assert "there are no valid credentials for Google Cloud Storage; run `gcloud auth" in sentence


@pytest.mark.parametrize(
    ("place", "named_by", "options"),
    [
        ("s3://bucket/out", "AWS_CA_BUNDLE", ()),
        ("s3://bucket/out", "--s3_verify", ("--s3_verify", "nowhere.pem")),
        ("gs://bucket/out", "REQUESTS_CA_BUNDLE", ("--no_auth",)),
    ],
)
def test_certificates_that_cannot_be_read_are_reported(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, place: str, named_by: str, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv(named_by, "nowhere.pem")
    sentence = sentence_of(run(capfd, "inspect", place, *options), 3)
    assert f"{named_by} names nowhere.pem (no such file or directory); correct it." in sentence


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("media", "00001-of-00002"),
        ("upload", "out/findings.json"),
        ("upload", "00001-of-00002"),
        ("upload", "out/_index/"),
    ],
)
def test_a_storage_that_disappears_ends_the_job_and_resume_continues(
    capfd: Capture, retries: Retries, shared: Bucket, bucket: Bucket, proxy: Proxy,
    small_local: Path, kind: str, name: str,
) -> None:  # fmt: skip
    """The last case is the moment in which a shard is there, but neither its index nor its ledger."""

    def rule(request: Request) -> Fault | None:
        again = kind == "media" and request.attempt
        return Fault("drop") if request.kind == kind and (name in request.name or again) else None

    argv = ("convert", "--input", f"{shared.url}/small", "--output", f"{bucket.url}/out", "--shards=2")
    with proxy.watch(for_good(rule, retries)):
        sentence = sentence_of(run(capfd, *argv), 3)
    assert "Google Cloud Storage does not answer" in sentence and sentence.endswith(
        "run again with --resume."
    )
    retries.as_usual()
    assert re.match(r"Cannot \w+( to)? gs://", sentence)
    assert "out/dataset.json" not in bucket.names()
    assert run(capfd, *argv, "--resume").code == 0
    if name == "out/findings.json":  # all shards are finished then
        assert json.loads(bucket.get("out/_work/outcome.json"))["reused_shards"] == 2
    assert bucket.document("out")["fingerprint"] == document(small_local)["fingerprint"]
