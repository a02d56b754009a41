"""The first look at an input in a bucket takes few requests, and finds what a look at a disk finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storage.buckets import Bucket
from helpers.storage.proxy import Fault, Proxy

from shardwright.core import storage
from shardwright.core.sources import input_probe
from shardwright.core.sources.input_probe import InputProbe, look_at
from shardwright.core.sources.source import all_sources
from shardwright.schemas.configuration.settings import ConvertSettings

FOLDERS = 10


def _put(bucket: Bucket, root: Path, names: list[str]) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    bucket.put_tree(root, "in/")


def test_class_folders_are_listed_once_and_at_the_same_time(
    bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    _put(bucket, tmp_path, [f"{name}/{number}.jpg" for name in range(FOLDERS) for number in range(3)])

    def slow(request: object) -> Fault | None:
        return Fault("delay", 0.1) if request.kind == "list" else None

    probe = InputProbe(f"{bucket.url}/in", is_file=False)
    with proxy.watch(slow):
        accepted = [source.name for source in all_sources() if source.accepts(probe, ConvertSettings())]
    assert accepted and accepted[0] == "class_folders"
    prefixes = proxy.names("list")
    assert sorted(prefixes) == sorted({"in/", *(f"in/{name}/" for name in range(FOLDERS))})
    assert proxy.max_in_flight["list"] >= FOLDERS // 2


@pytest.mark.parametrize("listed", [1, 3, 4, 20_000])
def test_a_look_at_a_bucket_finds_what_a_look_at_a_disk_finds(
    bucket: Bucket, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: int
) -> None:
    names = ["a.json", "b/1.jpg", "b/c/2.jpg", "d.jpg", "e.jpg", "f.csv", "g/3.jpg", "h/i/4.jpg"]
    _put(bucket, tmp_path, names)
    monkeypatch.setattr(input_probe, "LISTED", listed)
    disk, remote = look_at(str(tmp_path)), InputProbe(f"{bucket.url}/in", is_file=False)
    with proxy.watch(lambda _: None, page_size=2):
        assert remote.folders == disk.folders == ("b", "g", "h")
        assert remote.files == disk.files[:listed]
        inside = remote.folders_inside(["b", "g", "h"])
    with proxy.watch(lambda _: None):
        assert [(probe.files, probe.folders) for probe in inside] == [
            (probe.files[:listed], probe.folders) for probe in disk.folders_inside(["b", "g", "h"])
        ]
        assert remote.folders_inside(["g", "b"]) == [inside[1], inside[0]]
    assert not proxy.names("list")


def test_a_file_with_the_name_of_a_folder_is_not_the_folder(bucket: Bucket) -> None:
    for name in ("in/a", "in/a/1.jpg"):
        bucket.put(name, b"x")
    probe = InputProbe(f"{bucket.url}/in", is_file=False)
    assert (probe.files, probe.folders) == (("a",), ("a",))
    assert probe.inside("a").files == ("1.jpg",)


def test_a_listing_that_ends_early_knows_no_folders(bucket: Bucket, proxy: Proxy) -> None:
    for name in ("in/a.jpg", "in/b.jpg", "in/c/1.jpg", "in/d.jpg"):
        bucket.put(name, b"x")
    with proxy.watch(lambda _: None, page_size=1):
        assert storage.list_level(f"{bucket.url}/in/", 2) == (["a.jpg", "b.jpg"], None)
    assert storage.list_level(f"{bucket.url}/in", 2) == (["a.jpg", "b.jpg"], ["c"])
