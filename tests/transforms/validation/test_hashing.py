"""Files that are hashed while they are read have the checksums of plain code."""

from __future__ import annotations

import base64
import hashlib
import os
import threading
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.transforms.validation import hashing
from shardwright.transforms.validation.hashing import HashedFile, leaves_idle_processor


@pytest.mark.parametrize("aside", [True, False])
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 5000), st.integers(0, 3000), st.booleans(), st.booleans()), max_size=8
    )
)
def test_a_file_is_hashed_whatever_parts_are_read(
    tmp_path_factory: pytest.TempPathFactory, aside: bool, steps: list[tuple[int, int, bool, bool]]
) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "hashed"
    if not path.exists():
        path.write_bytes(os.urandom(500_000))
    data = path.read_bytes()
    with path.open("rb") as opened:
        file = HashedFile(opened, aside)
        buffers = [bytearray(300_000), bytearray(300_000)]
        for offset, size, large, into in steps:
            if large:
                offset, size = offset * 100, size * 100
            file.seek(offset)
            if into:
                buffer = buffers.pop(0)
                assert file.readinto(memoryview(buffer)[:size]) == len(data[offset : offset + size])
                assert data[offset : offset + size] == buffer[: len(data[offset : offset + size])]
                buffers.append(buffer)
            else:
                assert file.read(size) == data[offset : offset + size]
        crc32c = base64.b64encode(google_crc32c.Checksum(data).digest()).decode()
        assert file.checksums() == (hashlib.sha256(data).hexdigest(), crc32c)


def test_a_buffer_is_filled_again_only_after_it_was_hashed(tmp_path: Path) -> None:
    data = os.urandom(100_000)
    (tmp_path / "hashed").write_bytes(data)
    late = threading.Event()
    with open(tmp_path / "hashed", "rb") as opened:
        file = HashedFile(opened)
        large, small = bytearray(len(data)), bytearray(10)
        hashing._executor().submit(late.wait)  # keeps the hashing thread from the first part
        threading.Timer(0.05, late.set).start()
        file.readinto(memoryview(large))
        for offset, buffer in ((0, small), (50_000, large)):  # parts that need no hashing any more
            file.seek(offset)
            file.readinto(memoryview(buffer)[:10])
        assert file.checksums()[0] == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(("workers", "idle"), [(1, True), (3, True), (4, False)])
def test_files_are_hashed_aside_if_workers_leave_a_processor_idle(
    monkeypatch: pytest.MonkeyPatch, workers: int, idle: bool
) -> None:
    monkeypatch.setattr(hashing, "usable_cpus", lambda: 4)
    monkeypatch.setattr(hashing, "worker_processes", lambda: workers)
    assert leaves_idle_processor() is idle
