"""Endless files, such as pipes and devices, are not read as files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shardwright.transforms import storage

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="this system has no such device")


def _open(path: str) -> bytes:
    with storage.open_local(path) as file:
        return file.read(10)


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
    try:
        assert storage.read_text("--class_names", f"/dev/fd/{reading}") == "cat\ndog\n"
    finally:
        os.close(reading)
