"""Objects appear whole: one upload for each final name, the commit last, and only what a rebuild changes."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from pathlib import Path

import pytest
from helpers.hostile import picture
from helpers.sketched_drawings import drawing
from helpers.storage.buckets import Bucket
from helpers.storage.proxy import Fault, Proxy, Request, flaky
from PIL import Image

from shardwright.core import storage
from shardwright.pipelines.convert import convert
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.results import RebuildResult

_MULTIPART_BYTES = 8 << 20


def test_each_object_is_written_once_and_the_commit_last(
    shared: Bucket, bucket: Bucket, proxy: Proxy
) -> None:
    with proxy.watch(), drawing():
        convert(input=f"{shared.url}/small", output=f"{bucket.url}/out", shards=2)
        lease = "out/_work/lease.json"
        requests = [request for request in proxy.requests if request.bucket == bucket.name]
        kinds = [request.kind for request in requests if request.name != lease]
        written = [name for name in proxy.names("upload") if name != lease]
        leases = [request.kind for request in requests if request.name == lease]
    assert leases.count("upload") <= 4, "taken, taken by the job, renewed for the commit, and given back"
    assert bucket.get(lease) == b"", "given back"
    assert Counter(written) == Counter({*bucket.names(), "out/_work/probe"} - {lease}), (
        "something was written twice"
    )
    assert written[-1] == "out/dataset.json"
    after = kinds[len(kinds) - kinds[::-1].index("upload") :]
    assert set(after) == {"media"}, "the commit comes last, then it is read"
    assert not {"begin", "chunk", "copy"} & set(kinds)


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures whose pixels take 9 MB."""
    root = tmp_path_factory.mktemp("noise")
    (root / "ant").mkdir()
    for number in range(3):
        pixels = os.urandom(1000 * 1000 * 3)
        Image.frombytes("RGB", (1000, 1000), pixels).save(root / "ant" / f"{number}.bmp")
    return root


@pytest.mark.sampled(1)
@pytest.mark.parametrize("bad", [False, True])
def test_a_large_shard_is_uploaded_in_parts(bucket: Bucket, proxy: Proxy, noise: Path, bad: bool) -> None:
    with proxy.watch(flaky(3) if bad else None):
        made = convert(input=noise, output=f"{bucket.url}/out", shards=1, image_format="raw")
    name, data = "out/train-00000-of-00001.tfrecord", bucket.get("out/train-00000-of-00001.tfrecord")
    (shard,) = made.dataset.splits["train"]
    assert len(data) > _MULTIPART_BYTES and hashlib.sha256(data).hexdigest() == shard.sha256
    assert name not in proxy.names("upload")
    if not bad:
        assert proxy.names("begin") == [name] and proxy.names("chunk") == [name]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "fault", [Fault("flip_upload"), Fault("lose"), Fault("status", 410), Fault("status", 404)]
)
def test_a_large_upload_survives_a_fault(
    monkeypatch: pytest.MonkeyPatch, bucket: Bucket, proxy: Proxy, tmp_path: Path, fault: Fault
) -> None:
    monkeypatch.setattr("shardwright.core.storage.gcs.PART_BYTES", 1 << 20)
    data = os.urandom(_MULTIPART_BYTES + 100_000)
    file = tmp_path / "shard.tmp"
    file.write_bytes(data)
    chunks = iter(range(1000))

    def rule(request: Request) -> Fault | None:
        return fault if request.kind == "chunk" and next(chunks) == 4 else None

    with proxy.watch(rule):
        storage.move_into_place(str(file), f"{bucket.url}/shard")
    assert hashlib.sha256(bucket.get("shard")).digest() == hashlib.sha256(data).digest()
    assert not file.exists()


_IMAGES, _SHARDS, _SIDE = 36, 6, 64
#: Size of the pixels in an image's record.
_RECORD = 3 * _SIDE * _SIDE
_ALTERED = "in/a/000.png"


@pytest.fixture
def source(bucket: Bucket) -> Bucket:
    """A bucket with images in `in/`."""
    for number in range(_IMAGES):
        bucket.put(f"in/{'ab'[number % 2]}/{number:03d}.png", picture(number, size=_SIDE))
    return bucket


def _rebuild(source: Bucket) -> RebuildResult:
    return rebuild(
        input=f"{source.url}/in", output=f"{source.url}/out", shards=_SHARDS, image_format="raw", resize=_SIDE
    )


def _uploaded(proxy: Proxy) -> Counter[str]:
    """Returns the number of bytes uploaded for each file, in any version."""
    sent: Counter[str] = Counter()
    for request in proxy.requests:
        if request.kind in ("upload", "begin", "chunk"):
            sent[request.name.rpartition("/")[2]] += request.sent
    return sent


def _of_shards(sent: Counter[str]) -> Counter[str]:
    return Counter({name: size for name, size in sent.items() if name.endswith(".tfrecord")})


@pytest.mark.slow
def test_uploaded_bytes_are_proportional_to_the_changes(source: Bucket, proxy: Proxy) -> None:
    with proxy.watch():
        first = _rebuild(source)
        whole = _uploaded(proxy)
    assert len(_of_shards(whole)) == _SHARDS
    assert sum(_of_shards(whole).values()) > _IMAGES * _RECORD
    names = {name for name in source.names(f"out/versions/{first.version}/") if name.endswith(".tfrecord")}

    with proxy.watch():
        assert not _rebuild(source).changed
        unchanged = _uploaded(proxy)
    assert not _of_shards(unchanged) and not proxy.names("copy")
    assert sum(unchanged.values()) < _RECORD, "a lease, a pointer, what was done: no more than that"

    source.put(_ALTERED, picture(255, size=_SIDE))
    with proxy.watch():
        second = _rebuild(source)
        sent = _uploaded(proxy)
        copied = set(proxy.names("copy"))
    work = second.outcome["work"]
    assert (work["reused_shards"], work["converted"]) == (_SHARDS - 1, 1)
    (shard,) = _of_shards(sent)
    assert sent[shard] <= whole[shard] * 1.01, "the shard that changed goes up once"
    made = {f"out/versions/{second.version}/{name}" for name in names - {shard}}
    assert made <= copied, "the storage copies the others by itself"
    # Each shard has other files with it; the number of documents of a version does not depend on its size.
    ledgers = {name for name in sent if name.endswith((".jsonl.gz", ".idx", ".index")) and "-of-" in name}
    assert ledgers and all(name.startswith(shard.removesuffix(".tfrecord")) for name in ledgers), ledgers
    documents = sum(whole.values()) - sum(_of_shards(whole).values())
    assert sum(sent.values()) - sent[shard] < 1.5 * documents, "the same documents, and a diff"
