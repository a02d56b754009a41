"""The bytes that a rebuild uploads are proportional to the changes, measured in the requests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from helpers.storage.buckets import Bucket
from helpers.storage.proxy import Proxy
from PIL import Image

from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.results import RebuildResult

_IMAGES, _SHARDS, _SIDE = 36, 6, 64
#: Size of the pixels in an image's record.
_RECORD = 3 * _SIDE * _SIDE
_ALTERED = "in/a/000.png"


def _picture(scratch: Path, number: int) -> bytes:
    Image.new("RGB", (_SIDE, _SIDE), (number, 0, 255 - number)).save(scratch / "one.png")
    return (scratch / "one.png").read_bytes()


@pytest.fixture
def source(bucket: Bucket, tmp_path: Path) -> Bucket:
    """A bucket with images in `in/`."""
    for number in range(_IMAGES):
        bucket.put(f"in/{'ab'[number % 2]}/{number:03d}.png", _picture(tmp_path, number))
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
def test_uploaded_bytes_are_proportional_to_the_changes(source: Bucket, proxy: Proxy, tmp_path: Path) -> None:
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

    source.put(_ALTERED, _picture(tmp_path, 255))
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
