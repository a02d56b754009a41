"""What only the local disk does: locks, hard links, and files that never end."""

from __future__ import annotations

import errno
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from shardwright.core import storage
from shardwright.core.storage import local, read_with_etag, write_if_match
from shardwright.pipelines.places import check_versioned_output, files_of_output
from shardwright.schemas.errors import EngineError


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


def test_a_lock_that_is_never_released_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "LOCK_SECONDS", 0.05)
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
    check_versioned_output(str(tmp_path))
    assert write_if_match(str(tmp_path / "out/_work/lease.json"), b"", None)
    assert files_of_output(str(tmp_path / "out"), "") == []


def test_linked_files_are_hard_links_on_a_disk(tmp_path: Path) -> None:
    storage.write_bytes(str(tmp_path / "old/a"), b"data")
    storage.link_files(str(tmp_path / "old"), str(tmp_path / "new"), ["a"])
    assert os.path.samefile(tmp_path / "old/a", tmp_path / "new/a")


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES])
def test_disks_without_hard_links_get_copies(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local.os, "link", mock.Mock(side_effect=OSError(number, os.strerror(number))))
    storage.write_bytes(str(tmp_path / "old/a"), b"data")
    storage.link_files(str(tmp_path / "old"), str(tmp_path / "new"), ["a"])
    made = tmp_path / "new/a"
    assert made.read_bytes() == b"data" and not os.path.samefile(tmp_path / "old/a", made)
    made.write_bytes(b"what another run left")
    storage.link_files(str(tmp_path / "old"), str(tmp_path / "new"), ["a"])
    assert made.read_bytes() == b"data"
    assert sorted(os.listdir(tmp_path / "new")) == ["a"]


def test_other_failures_of_links_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError):
        storage.link_files(str(tmp_path / "old"), str(tmp_path / "new"), ["b"])
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(local.os, "link", mock.Mock(side_effect=full))
    storage.write_bytes(str(tmp_path / "old/a"), b"data")
    with pytest.raises(OSError, match="No space left"):
        storage.link_files(str(tmp_path / "old"), str(tmp_path / "new"), ["a"])
    assert storage.list_files(str(tmp_path / "new")) == []


def _open(path: str) -> bytes:
    with storage.open_local(path) as file:
        return file.read(10)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="this system has no such device")
@pytest.mark.parametrize("read", [storage.read_bytes, _open, lambda path: storage.read_range(path, 0, 10)])
def test_pipes_and_devices_are_not_files(tmp_path: Path, read: Callable[[str], bytes]) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("pipe", "device"):
        with pytest.raises(OSError, match="a pipe or a device"):
            read(str(tmp_path / name))
    (tmp_path / "file").write_bytes(b"content")
    assert read(str(tmp_path / "file")) == b"content"
    with pytest.raises(IsADirectoryError):
        read(str(tmp_path))


def test_an_option_may_name_a_pipe() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"cat\ndog\n")
    os.close(writing)
    with os.fdopen(reading):
        assert storage.read_text("--class_names", f"/dev/fd/{reading}") == "cat\ndog\n"
