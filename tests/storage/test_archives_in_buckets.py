"""Archives in buckets: one request per member, few requests to list them, and only one generation is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.hostile import check_books, outcomes, picture, shard_hashes
from helpers.packing import PACKERS, by_key, list_refs, read_all, tar_of, tree_members, zip_of
from helpers.storage.buckets import Bucket
from helpers.storage.proxy import Proxy

from shardwright.pipelines.convert import convert
from shardwright.schemas.errors import EngineError
from shardwright.transforms.images.read import read_image


def requests(proxy: Proxy, name: str) -> int:
    """Returns the number of requests for the bytes of an object."""
    return proxy.names("media").count(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
def test_archives_in_a_bucket_give_the_same_dataset_as_on_the_disk(
    bucket: Bucket, tree: Path, tmp_path: Path, name: str
) -> None:
    members = tree_members(tree)
    data = zip_of(members) if name == "a.zip" else PACKERS[name[1:]](tar_of(members))
    bucket.put(f"in/{name}", data)
    (tmp_path / name).write_bytes(data)
    convert(input=str(tmp_path / name), output=str(tmp_path / "local"), shards=2)
    convert(input=f"{bucket.url}/in/{name}", output=str(tmp_path / "remote"), shards=2)
    assert shard_hashes(tmp_path / "remote") == shard_hashes(tmp_path / "local")
    convert(input=f"{bucket.url}/in", output=f"{bucket.url}/out-{name}", shards=2)
    fetched = bucket.fetch(f"out-{name}", tmp_path / "fetched")
    assert shard_hashes(fetched) == shard_hashes(tmp_path / "local")
    assert check_books(fetched).keys() == check_books(tmp_path / "local").keys()
    assert not [item for item in bucket.names() if "_work/spool" in item]


def test_archives_are_listed_and_read_with_few_requests(bucket: Bucket, proxy: Proxy, tmp_path: Path) -> None:
    members = {f"ant/{i}.png": bytes([i]) * 200_000 for i in range(20)}
    for name, data in (("a.zip", zip_of(members, 0)), ("a.tar", tar_of(members))):
        bucket.put(f"{name}", data)
        proxy.requests.clear()
        refs = by_key(list_refs(f"{bucket.url}/{name}"))
        # The directory of a zip is read at once; a tar is read in growing blocks, because its members are
        # small.
        assert requests(proxy, name) <= (4 if name == "a.zip" else 8)
        proxy.requests.clear()
        assert read_all(refs) == {f"{name}!{key}": value for key, value in members.items()}
        assert requests(proxy, name) == len(members)


def test_large_members_are_skipped_when_headers_are_read(bucket: Bucket, proxy: Proxy) -> None:
    members = {f"ant/{i}.png": bytes(3_000_000) for i in range(5)}
    bucket.put("a.tar", tar_of(members))
    proxy.requests.clear()
    assert len(list_refs(f"{bucket.url}/a.tar")) == 5
    assert requests(proxy, "a.tar") <= 8


def test_a_replaced_archive_stops_the_job(bucket: Bucket) -> None:
    bucket.put("a.zip", zip_of({"ant/1.png": picture(1)}))
    (ref,) = list_refs(f"{bucket.url}/a.zip")
    bucket.put("a.zip", zip_of({"ant/1.png": picture(2)}))
    with pytest.raises(EngineError, match="changed while"):
        read_image(ref, 10**6)


def test_webdataset_in_a_bucket_is_read(bucket: Bucket, tmp_path: Path) -> None:
    for shard in range(2):
        members = {
            f"{i}.{name}": data for i in range(3) for name, data in (("png", picture(i)), ("cls", b"1"))
        }
        bucket.put(f"in/{shard}.tar", tar_of(members))
    convert(input=f"{bucket.url}/in", output=str(tmp_path / "out"))
    assert outcomes(tmp_path / "out") == {f"{s}.tar!{i}.png": "written" for s in range(2) for i in range(3)}
