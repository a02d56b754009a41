"""Archives and tables of images in buckets: few requests, one per member, and only one generation is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.embedded import png, table_of, write_arrow, write_parquet
from helpers.packing import PACKERS, by_key, list_refs, read_all, tar_of, tree_members, zip_of
from helpers.storage.buckets import Bucket
from helpers.storage.proxy import Proxy

from shardwright.pipelines.convert import convert
from shardwright.pipelines.validate import validate


def requests(proxy: Proxy, name: str) -> int:
    """Returns the number of requests for the bytes of an object."""
    return proxy.names("media").count(name)


@pytest.mark.slow
def test_what_was_unpacked_is_gone_again(bucket: Bucket, tree: Path) -> None:
    bucket.put("in/a.tar.gz", PACKERS[".tar.gz"](tar_of(tree_members(tree))))
    convert(input=f"{bucket.url}/in", output=f"{bucket.url}/out")
    before = set(bucket.names())
    assert not [name for name in before if "spool" in name]
    assert validate(f"{bucket.url}/out", against=f"{bucket.url}/in").counts == {}
    assert set(bucket.names()) - before <= {"out/findings.json", "out/report.html"}


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("in_bucket", [False, True])
def test_images_of_rows_are_copied_into_the_output_bucket_and_removed(
    bucket: Bucket, tmp_path: Path, kind: str, in_bucket: bool
) -> None:
    table = table_of([png(number) for number in range(12)], label=["ant", "bee"] * 6)
    path = (write_arrow if kind == "arrow" else write_parquet)(tmp_path / f"rows.{kind}", table)
    source = str(path)
    if in_bucket:
        bucket.put(f"in/rows.{kind}", path.read_bytes())
        source = f"{bucket.url}/in"
    made = convert(input=source, output=f"{bucket.url}/out")
    assert made.dataset.ledger["written"] == 12
    assert not [name for name in bucket.names() if "spool" in name]


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
