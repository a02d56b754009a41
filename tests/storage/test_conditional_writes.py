"""Writes that succeed only if nobody has written in between, and files that are copied, on every storage."""

from __future__ import annotations

import errno
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers.storage.buckets import Bucket
from helpers.storage.proxy import Fault, Proxy, Request

from shardwright.schemas.errors import EngineError, UsageError
from shardwright.transforms import storage
from shardwright.transforms.storage import local, read_with_etag, remove_if_match, write_if_match


def tag_of(path: str) -> str:
    """Returns the tag of the current content."""
    found = read_with_etag(path)
    assert found is not None
    return found[1]


def test_writes_need_the_current_tag(place: str) -> None:
    path = f"{place}/deep/latest.json"
    assert read_with_etag(path) is None
    assert write_if_match(path, b"one", None)
    assert not write_if_match(path, b"other", None)
    first = tag_of(path)
    assert write_if_match(path, b"two", first)
    assert not write_if_match(path, b"late", first)
    assert read_with_etag(path) == (b"two", tag_of(path))
    assert storage.read_bytes(path) == b"two"
    assert storage.list_files(place) == ["deep/latest.json"]


def test_a_removed_file_is_not_written_again(place: str) -> None:
    path = f"{place}/latest.json"
    assert write_if_match(path, b"one", None)
    tag = tag_of(path)
    assert remove_if_match(path, tag)
    assert not write_if_match(path, b"two", tag)
    assert read_with_etag(path) is None


def test_a_repeated_write_recognizes_its_own_result(place: str) -> None:
    path = f"{place}/latest.json"
    assert write_if_match(path, b"one", None)
    assert write_if_match(path, b"one", None)
    first = tag_of(path)
    assert write_if_match(path, b"two", first)
    assert write_if_match(path, b"two", first)


def test_removals_need_the_current_tag(place: str) -> None:
    path = f"{place}/lease.json"
    assert write_if_match(path, b"one", None)
    first = tag_of(path)
    assert write_if_match(path, b"two", first)
    assert not remove_if_match(path, first)
    assert storage.read_bytes(path) == b"two"
    assert remove_if_match(path, tag_of(path))
    assert remove_if_match(path, first), "a removal that is sent again finds nothing"
    assert read_with_etag(path) is None


def test_odd_names_can_be_written(place: str) -> None:
    path = f"{place}/ü &%41#[x]*?/latest@20260101T000000Z.json"
    assert write_if_match(path, b"", None)
    assert read_with_etag(path) == (b"", tag_of(path))
    assert remove_if_match(path, tag_of(path))


@pytest.mark.parametrize("kind", ["local", "google"])  # moto itself does not always obey the condition
def test_one_of_many_writers_is_first(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = f"{tmp_path if kind == 'local' else request.getfixturevalue('bucket').url}/latest.json"
    for turn in range(5):
        tag = None if turn == 0 else tag_of(path)
        contents = [f"{turn} {number}".encode() for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(lambda data, tag=tag: write_if_match(path, data, tag), contents))
        assert done.count(True) == 1
        assert storage.read_bytes(path) == contents[done.index(True)]


def _count_up(path: str, times: int) -> None:
    for _ in range(times):
        while True:
            data, tag = read_with_etag(path) or (b"0", None)
            if write_if_match(path, str(int(data) + 1).encode() + b" " * os.getpid().bit_count(), tag):
                break


def test_concurrent_processes_lose_no_write(tmp_path: Path) -> None:
    path = str(tmp_path / "counter")
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_count_up, args=(path, 20)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    # Equal bytes count as written, so some may have counted the same step; but no count goes back.
    assert 20 <= int(storage.read_bytes(path)) <= 60
    assert os.listdir(tmp_path) == ["counter"]


def test_a_lost_answer_does_not_repeat_a_write(bucket: Bucket, proxy: Proxy) -> None:
    path = f"{bucket.url}/latest.json"

    def lose_first(request: Request) -> Fault | None:
        return Fault("lose") if request.kind in ("upload", "delete") and not request.attempt else None

    with proxy.watch(lose_first):
        assert write_if_match(path, b"one", None)
    with proxy.watch(lose_first):
        assert write_if_match(path, b"two", tag_of(path))
    with proxy.watch(lose_first):
        assert remove_if_match(path, tag_of(path))
    assert bucket.names() == []


def test_public_pointers_are_not_cached(bucket: Bucket, proxy: Proxy) -> None:
    assert write_if_match(f"{bucket.url}/latest.json", b"{}", None)
    (blob,) = bucket._bucket.list_blobs()
    blob.reload()
    assert blob.cache_control == "no-store"


def test_a_lock_that_is_never_released_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_LOCK_SECONDS", 0.05)
    path = str(tmp_path / "latest.json")
    with (
        local.alone_in(str(tmp_path)),
        pytest.raises(EngineError, match="another process has held its lock"),
    ):
        write_if_match(path, b"one", None)
    assert write_if_match(path, b"one", None)


def test_disks_without_locks_on_directories_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = local.fcntl.flock

    def as_nfs(descriptor: int, operation: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(descriptor, operation)

    monkeypatch.setattr(local.fcntl, "flock", as_nfs)
    path = str(tmp_path / "latest.json")
    assert write_if_match(path, b"one", None)
    assert not write_if_match(path, b"two", None)
    assert remove_if_match(path, tag_of(path))


def test_other_storages_hold_no_versions() -> None:
    for attempt in (
        read_with_etag,
        lambda path: write_if_match(path, b"", None),
        lambda path: remove_if_match(path, ""),
    ):
        with pytest.raises(UsageError, match="versions need a local disk, gs://, s3:// or az://"):
            attempt("hdfs://host/out/latest.json")


def test_files_are_linked_into_another_directory(place: str) -> None:
    files = ["a.tfrecord", "_shards/a.jsonl.gz"]
    for file in files:
        storage.write_bytes(f"{place}/old/{file}", file.encode())
    storage.write_bytes(f"{place}/old/other", b"stays")
    storage.write_bytes(f"{place}/new/a.tfrecord", b"of an abandoned run")
    for _ in range(2):
        storage.link_files(f"{place}/old", f"{place}/new", files)
        assert storage.list_files(f"{place}/new") == sorted(files)
        assert [storage.read_bytes(f"{place}/new/{file}").decode() for file in files] == files
    assert len(storage.list_files(f"{place}/old")) == 3


def test_linked_files_are_hard_links_on_a_disk(tmp_path: Path) -> None:
    storage.write_bytes(str(tmp_path / "old/a"), b"data")
    storage.link_files(str(tmp_path / "old"), str(tmp_path / "new"), ["a"])
    assert os.path.samefile(tmp_path / "old/a", tmp_path / "new/a")


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES])
def test_disks_without_hard_links_get_copies(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(local.os, "link", refuse)
    storage.write_bytes(str(tmp_path / "old/a"), b"data")
    storage.link_files(str(tmp_path / "old"), str(tmp_path / "new"), ["a"])
    made = tmp_path / "new/a"
    assert made.read_bytes() == b"data" and not os.path.samefile(tmp_path / "old/a", made)
    inode = made.stat().st_ino
    storage.link_files(str(tmp_path / "old"), str(tmp_path / "new"), ["a"])
    assert made.stat().st_ino == inode, "it was copied again"
    made.write_bytes(b"what another run left")
    storage.link_files(str(tmp_path / "old"), str(tmp_path / "new"), ["a"])
    assert made.read_bytes() == b"data"
    assert sorted(os.listdir(tmp_path / "new")) == ["a"]


def test_other_failures_of_links_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(FileNotFoundError):
        storage.link_files(str(tmp_path / "old"), str(tmp_path / "new"), ["b"])
    monkeypatch.setattr(local.os, "link", refuse)
    storage.write_bytes(str(tmp_path / "old/a"), b"data")
    with pytest.raises(OSError, match="No space left"):
        storage.link_files(str(tmp_path / "old"), str(tmp_path / "new"), ["a"])
    assert storage.list_files(str(tmp_path / "new")) == []
