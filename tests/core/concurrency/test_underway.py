"""A step that makes progress is not stuck, however long it takes; one without progress is, and is named."""

from __future__ import annotations

import gzip
import io
import itertools
import os
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from shardwright.core import storage
from shardwright.core.concurrency import underway as underway_module
from shardwright.core.concurrency.underway import UNDERWAY, Underway
from shardwright.core.concurrency.watchdog import Watchdog
from shardwright.core.records import framing
from shardwright.core.records.compression import decompress_into
from shardwright.core.sources.annotation_files import XmlItems, stream_object
from shardwright.core.sources.archives.files import GZIP, OpenArchive, unpack_tar
from shardwright.core.sources.arrays.files import IDX, ArrayFile, FileSlice
from shardwright.core.sources.box_table import BoxColumns, BoxTable
from shardwright.core.sources.image_files import walk
from shardwright.core.sources.source import Input, InputPart
from shardwright.core.sources.spool import Spool
from shardwright.core.sources.tables.image_tables import TableHead
from shardwright.core.storage import local
from shardwright.core.storage.faults import Contact, Operation
from shardwright.core.storage.local import read_fully
from shardwright.core.storage.ranges import RandomAccessFile, RangeReader
from shardwright.core.storage.store import ListedPage, RemoteStore
from shardwright.schemas.image_ref import ImageRef


class Clock:
    """A clock that stands still until a test moves it; the watchdog checks each time."""

    def __init__(self, board: Underway) -> None:
        self.now = 1000.0
        self.lines: list[str] = []
        self.ends: list[str] = []
        self._dog = Watchdog(board.tasks, self.lines.append, self.ends.append)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        self._dog.look(self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(UNDERWAY)
    monkeypatch.setattr(underway_module, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def test_progress_restarts_the_clock(clock: Clock) -> None:
    with UNDERWAY.working_on("a.tar.gz", "unpack") as step:
        for _ in range(100):
            clock.pass_by(25)
            step.progress()
        clock.pass_by(29)
        assert not clock.lines
        for seconds in (2, 14, 500):  # it is named once
            clock.pass_by(seconds)
        assert clock.lines == ["a.tar.gz has taken 31 seconds so far (unpack)"]
        step.progress()
        clock.pass_by(32)
        assert clock.lines[1:] == ["a.tar.gz has taken 32 seconds so far (unpack)"] and not clock.ends
        clock.pass_by(600)
    clock.pass_by(10_000)  # it was finished
    assert clock.ends == [
        "stuck: a.tar.gz has taken 10.5 minutes (unpack); to leave it out, move it out of the input, or "
        "else raise --stuck_after, then run again."
    ]


def test_the_step_of_the_thread_makes_progress_without_a_holder(clock: Clock) -> None:
    UNDERWAY.progress()
    with UNDERWAY.working_on("folder", "list"), UNDERWAY.working_on("a.xml", "parse"):
        clock.pass_by(20)
        UNDERWAY.progress()
        clock.pass_by(20)
        assert not clock.lines
    assert not UNDERWAY.tasks()


def test_only_getting_an_item_counts_as_progress_of_a_listing(clock: Clock) -> None:
    def items() -> Iterator[int]:
        for number in range(3):
            clock.pass_by(20)
            yield number
        clock.pass_by(40)

    for _ in UNDERWAY.each(items(), "folder", "list"):
        clock.pass_by(10_000)
        UNDERWAY.progress()  # progress of the work on the item, not of the listing
        clock.pass_by(10_000)
    assert clock.lines == ["folder has taken 40 seconds so far (list)"] and not clock.ends
    assert not UNDERWAY.tasks()


def test_an_abandoned_listing_leaves_no_task(clock: Clock) -> None:
    with UNDERWAY.working_on("a", "read"):
        listing = UNDERWAY.each(itertools.count(), "folder", "list")
        next(listing)
        assert [task.place for task in UNDERWAY.tasks()] == ["a"]
    assert not UNDERWAY.tasks()
    with UNDERWAY.working_on("b", "read"):
        listing.close()  # type: ignore[attr-defined]
        assert [task.place for task in UNDERWAY.tasks()] == ["b"]
    assert not UNDERWAY.tasks()


class SlowFile(io.BytesIO):
    """A file in which each piece takes ten seconds."""

    def __init__(self, data: bytes, clock: Clock, most: int) -> None:
        super().__init__(data)
        self._clock, self._most = clock, most

    def read(self, size: int | None = -1) -> bytes:
        self._clock.pass_by(10)
        return super().read(self._most if size is None or size < 0 else min(size, self._most))

    def read1(self, size: int | None = -1) -> bytes:
        return self.read(size)

    def readline(self, size: int | None = -1) -> bytes:
        self._clock.pass_by(0.02)
        return super().readline(size)


def _unpack_tar(clock: Clock, tmp_path: Path) -> None:
    packed = gzip.compress(os.urandom(70 << 16))
    file = SlowFile(packed, clock, len(packed))

    def read_at(offset: int, length: int) -> bytes:
        file.seek(offset)
        return file.read(length)

    unpack_tar(RandomAccessFile(read_at, len(packed)), GZIP, io.BytesIO())


def _unpack_records(clock: Clock, tmp_path: Path) -> None:
    assert (
        decompress_into(io.BytesIO(), SlowFile(zlib.compress(os.urandom(8000)), clock, 100), "zlib") is None
    )


def _unpack_array(clock: Clock, tmp_path: Path) -> None:
    count = 80 << 13
    path = tmp_path / "labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(b"\0\0\x08\1" + count.to_bytes(4, "big") + os.urandom(count)))
    array = ArrayFile(IDX, str(tmp_path), path.name)
    assert array.header.shape == (count,)
    context = SimpleNamespace(spool=Spool(str(tmp_path)))
    with path.open("rb") as file, pytest.MonkeyPatch.context() as patch:
        slow = io.BufferedReader(SlowDisk(file, clock), 1 << 13)  # type: ignore[type-var]
        patch.setattr(FileSlice, "open", lambda self: slow)
        assert array.rows(context).whole == count  # type: ignore[arg-type]


def _index_rows(clock: Clock, tmp_path: Path) -> None:
    file = SlowFile(b"a,1\n" * 40_000, clock, 2_000)
    table = BoxTable(TableHead("a.csv", ",", [], file), BoxColumns(), has_header=False)
    assert [*table.scan()] == ["a"]


def _stream_json(clock: Clock, tmp_path: Path) -> None:
    data = b'{"images": [' + b",".join([b'{"id": 12345}'] * 2000) + b"]}"
    assert len(list(stream_object(SlowFile(data, clock, 300)))) == 2000


def _parse_xml(clock: Clock, tmp_path: Path) -> None:
    data = b"<annotations><version>1.1</version>" + b"<meta>x</meta>" * 600 + b"</annotations>"
    assert not [*XmlItems(SlowFile(data, clock, 100), "annotations", "image", {}).scan()]


def _search_records(clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "rubbish").write_bytes(b"x" * (400 << 10))
    with open(tmp_path / "rubbish", "rb") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(framing, "LAST_STEP", 4096)
        slow = SlowDisk(file, clock)
        assert [item.number for item in framing.read_records(slow)] == [0]  # type: ignore[arg-type]


class SlowDisk:
    """A real file in which each piece takes ten seconds."""

    def __init__(self, file: IO[bytes], clock: Clock) -> None:
        self._file, self._clock = file, clock

    def __getattr__(self, name: str) -> object:
        self._clock.pass_by(10 if name in ("read", "readinto") else 0)
        return getattr(self._file, name)


def _read_members(clock: Clock, tmp_path: Path) -> None:
    opened = OpenArchive(InputPart(Input("", ""), ""))
    for number in range(50_000):
        opened.add(ImageRef(str(number), ""))
    for _ in opened.members():
        clock.pass_by(0.015)


def _list_folders(clock: Clock, tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / str(number)).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        scan = os.scandir

        def slow_scan(folder: bytes) -> Iterator[os.DirEntry[bytes]]:
            clock.pass_by(20)
            return scan(folder)

        (tmp_path / "39" / "a.jpg").touch()
        patch.setattr(os, "scandir", slow_scan)
        assert [name for name, _ in walk(str(tmp_path))] == ["39/a.jpg"]


def _list_objects(clock: Clock, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:

        def pages(*_: object) -> Iterator[ListedPage]:
            for number in range(40):
                clock.pass_by(20)
                names = (f"gs://b/{number:02}/{file:03}" for file in range(1000))
                yield ListedPage([storage.StoredObject(name, 1, "1") for name in names], [], f"{number}")

        store: Any = SimpleNamespace(run=lambda doing, path, send: send(), list_pages=pages)
        store.pages = partial(RemoteStore.pages, store)
        patch.setattr(storage, "store_for", lambda scheme: store)
        assert sum(1 for _ in storage.list_objects("gs://b/")) == 40_000


def _read_ranges(clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(bytes(4096 * 40))
    with pytest.MonkeyPatch.context() as patch:

        def slow_read(descriptor: int, offset: int, length: int) -> bytes:
            clock.pass_by(20)
            return read_fully(descriptor, offset, length)

        patch.setattr(local, "read_fully", slow_read)
        with RangeReader(str(tmp_path / "a.tar"), 4096 * 40) as reader:
            for offset in range(0, 4096 * 40, 512):
                assert reader.read_at(offset, 512)


def _receive_bytes(clock: Clock, tmp_path: Path) -> None:
    operation = Operation(Contact(), "gs://b/large.json")
    for part in range(40):
        clock.pass_by(20)
        operation.reached(part + 1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "work",
    [
        _unpack_tar, _unpack_records, _unpack_array, _index_rows, _stream_json, _parse_xml, _search_records,
        _read_members, _list_folders, _list_objects, _read_ranges, _receive_bytes,
    ],
)  # fmt: skip
def test_a_long_loop_over_a_source_is_not_stuck(
    work: Callable[[Clock, Path], None], clock: Clock, tmp_path: Path
) -> None:
    started = clock.now
    with UNDERWAY.working_on("source", "list"):
        work(clock, tmp_path)
    assert clock.now - started > 600, "it would have been stuck"
    assert not clock.lines and not clock.ends
