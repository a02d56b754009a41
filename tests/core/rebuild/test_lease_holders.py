"""The holder of a rebuild's lease: processes that race for it, are killed, stop renewing, and wait."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from shardwright.core import lease as leases
from shardwright.core import storage
from shardwright.core.lease import HeldLease, Lease, may_live, read_holder, this_process
from shardwright.schemas.errors import EngineError

VERSION = "20261121T020000Z"
#: A process that tries to get the lease of each given directory, prints the result, and stays alive.
RACER = """
import sys
from shardwright.schemas.errors import EngineError
from shardwright.core.lease import HeldLease, Lease, this_process
print("ready", flush=True)
for line in sys.stdin:
    try:
        HeldLease(line.strip(), Lease(sys.argv[1], "20261121T020000Z", *this_process())).acquire()
        print("mine", flush=True)
    except EngineError:
        print("another's", flush=True)
"""


@contextmanager
def racer(name: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", RACER, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert hear(process) == "ready"
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[str], directory: Path) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{directory}\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def stored(directory: Path) -> Lease:
    return Lease.loads((directory / "lease.json").read_bytes())


def held(directory: Path, holder: str) -> HeldLease:
    return HeldLease(str(directory), Lease(holder, VERSION))


def is_kept(directory: Path, holder: str) -> bool:
    """Returns whether a holder still has the lease, and renews it."""
    try:
        held(directory, holder).keep()
    except EngineError as error:
        if "lost its lease" not in error.message:
            raise
        return False
    return True


def put(directory: Path, lease: Lease) -> None:
    """Stores a lease as if at its time of renewal."""
    (directory / "lease.json").write_text(lease.dumps())
    os.utime(directory / "lease.json", (lease.renewed, lease.renewed))


class Clocks:
    """A wall clock and a monotonic clock; sleeping advances both."""

    def __init__(self) -> None:
        self.wall, self.steady, self.runs = 1e9, 5.0, True
        #: File -> the time at which it was written, by the storage's clock.
        self.written: dict[str, float] = {}
        #: Offset of this machine's clock from the storage's.
        self.ahead = 0.0

    def now(self) -> float:
        return self.wall + self.ahead

    def noting(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def written(path: str, *args: Any) -> Any:
            done = write(path, *args)
            if done is not False:
                self.written[path] = self.wall
            return done

        return written

    def monotonic(self) -> float:
        return self.steady

    def sleep(self, seconds: float) -> None:
        self.steady += seconds
        self.wall += seconds if self.runs else 0.0

    def take(self, directory: Path, lease: Lease, wait: float) -> None:
        HeldLease(str(directory), lease).acquire(wait)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    """Clocks, also for renewals and for the storage."""
    made = Clocks()
    for name in ("write_bytes", "write_if_match"):
        monkeypatch.setattr(storage, name, made.noting(getattr(storage, name)))
    monkeypatch.setattr(storage, "modified_at", lambda path: made.written.get(path))
    fake_time = SimpleNamespace(
        time=made.now, monotonic=made.monotonic, sleep=made.sleep, strftime=time.strftime, gmtime=time.gmtime
    )
    monkeypatch.setattr(leases, "time", fake_time)
    return made


def test_one_of_two_concurrent_processes_gets_the_lease(tmp_path: Path) -> None:
    with racer("one") as one, racer("two") as two:
        for number in range(12):
            directory = tmp_path / str(number)
            if number % 3:
                directory.mkdir()
            if number % 3 == 1:  # both see that the lease is void
                put(directory, Lease("old", VERSION, renewed=1.0, seconds=1.0))
            first, second = (one, two) if number % 2 else (two, one)
            say(first, directory)
            say(second, directory)
            answers = {"one": hear(one), "two": hear(two)}
            assert sorted(answers.values()) == ["another's", "mine"], number
            assert answers[stored(directory).holder] == "mine"


def test_the_message_states_the_age_by_the_clock_of_the_storage(tmp_path: Path) -> None:
    host, pid, _ = this_process()
    wrong_clock = time.time() - 86_400
    lease = Lease("theirs", VERSION, host, pid, renewed=wrong_clock, seconds=3600.0)
    (tmp_path / "lease.json").write_text(lease.dumps())
    os.utime(tmp_path / "lease.json", (time.time() - 150, time.time() - 150))
    told: list[str] = []
    with pytest.raises(EngineError) as caught:
        held(tmp_path, "ours").acquire(0.01, told.append)
    for text in (caught.value.message, *told):
        assert "last heard of 2 minutes ago by the clock of the storage" in text
    assert len(told) == 1


def test_a_killed_holder_blocks_nobody(tmp_path: Path) -> None:
    lease = Lease("ours", VERSION, *this_process())
    with racer("theirs") as process:
        say(process, tmp_path)
        assert hear(process) == "mine"
        with pytest.raises(EngineError) as caught:
            HeldLease(str(tmp_path), lease).acquire()
        for part in (
            f"process {process.pid} on {os.uname().nodename}",
            VERSION,
            "since 20",
            "--wait MINUTES",
        ):
            assert part in caught.value.message
        assert caught.value.message.count(". ") == 0
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, but not reaped yet
        HeldLease(str(tmp_path), lease).acquire()
    assert stored(tmp_path).holder == "ours"


def test_a_pid_with_another_owner_is_not_the_holder(tmp_path: Path) -> None:
    host, pid, began = this_process()
    assert may_live(pid, began)
    realm, _, ticks = began.rpartition(" ")
    assert not may_live(pid, f"{realm} {int(ticks) - 1}")
    put(tmp_path, Lease("theirs", VERSION, host, pid, f"{realm} 1", renewed=time.time()))
    held(tmp_path, "ours").acquire()


@pytest.mark.parametrize("other", ["", "boot pid:[1] 7", "{boot} pid:[1] 7"])
def test_a_process_that_cannot_be_seen_from_here_may_live(other: str) -> None:
    boot = this_process()[2].split()[0]
    # Another container, or another machine with the same name.
    assert may_live(2**22 + 1, other.format(boot=boot))
    with pytest.raises(ProcessLookupError):
        os.kill(2**22 + 1, 0)


def test_a_process_of_another_user_counts_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    realm = this_process()[2].rpartition(" ")[0]
    monkeypatch.setattr(os, "kill", mock.Mock(side_effect=PermissionError))
    assert may_live(2**22 + 1, f"{realm} 7")  # /proc may hide it


def test_a_live_holder_is_waited_for(tmp_path: Path, clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks.take(tmp_path, Lease("theirs", VERSION, seconds=600.0), 0.0)
    messages: list[str] = []
    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        clocks.sleep(seconds)
        if len(naps) == 8:
            held(tmp_path, "theirs").release()

    monkeypatch.setattr(leases.time, "sleep", sleep)
    lease = Lease("ours", VERSION)
    HeldLease(str(tmp_path), lease).acquire(300.0, messages.append)
    assert stored(tmp_path).holder == "ours" and len(naps) == 8 and max(naps) <= 5.0
    assert len(messages) == 1 and VERSION in messages[0]


def test_waiting_ends_on_time(tmp_path: Path, clocks: Clocks) -> None:
    clocks.take(tmp_path, Lease("theirs", VERSION, seconds=600.0), 0.0)
    with pytest.raises(EngineError, match="Another rebuild"):
        clocks.take(tmp_path, Lease("ours", VERSION), 33.0)
    assert clocks.steady == pytest.approx(5.0 + 33.0)
    assert stored(tmp_path).holder == "theirs"


@pytest.mark.parametrize("runs", [True, False])
def test_a_holder_that_does_not_renew_is_replaced_even_if_the_clock_stands_still(
    tmp_path: Path, clocks: Clocks, runs: bool
) -> None:
    clocks.take(tmp_path, Lease("theirs", VERSION, seconds=60.0), 0.0)
    clocks.runs = runs
    clocks.take(tmp_path, Lease("ours", VERSION), 100.0)
    assert clocks.steady < 5.0 + 70.0 and stored(tmp_path).holder == "ours"


def test_a_holder_that_renews_is_not_replaced(
    tmp_path: Path, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks.take(tmp_path, Lease("theirs", VERSION, seconds=60.0), 0.0)

    def sleep(seconds: float) -> None:
        clocks.sleep(seconds)
        held(tmp_path, "theirs").renew()

    monkeypatch.setattr(leases.time, "sleep", sleep)
    with pytest.raises(EngineError):
        held(tmp_path, "ours").acquire(900.0)
    assert stored(tmp_path).holder == "theirs"


@pytest.mark.parametrize(
    ("theirs", "age", "valid"),
    [
        (Lease("theirs", VERSION, "elsewhere", 7, seconds=1800.0), 0.0, True),
        (Lease("theirs", VERSION, "elsewhere", 7, since=1e9, renewed=1e9, seconds=1800.0), 0.0, True),
        (Lease("theirs", VERSION, "elsewhere", 7, seconds=1e300), 15 * 86400.0, False),
        (Lease("theirs", VERSION, "elsewhere", 7, renewed=time.time() + 1e6, seconds=1800.0), 1801.0, False),
    ],
    ids=["live", "its clock is slow", "a million years", "its clock is fast"],
)
def test_a_lease_of_another_machine_is_valid_for_its_time_by_the_storages_clock(
    tmp_path: Path, theirs: Lease, age: float, valid: bool
) -> None:
    put(tmp_path, theirs)
    os.utime(tmp_path / "lease.json", (time.time() - age, time.time() - age))
    if valid:
        with pytest.raises(EngineError, match="process 7 on elsewhere"):
            held(tmp_path, "ours").acquire()
    else:
        held(tmp_path, "ours").acquire()
    assert stored(tmp_path).holder == ("theirs" if valid else "ours")


@pytest.mark.parametrize("ahead", [-1e6, 1e6])
def test_a_machine_with_a_wrong_clock_takes_no_valid_lease_and_renews_its_own(
    tmp_path: Path, clocks: Clocks, ahead: float
) -> None:
    clocks.take(tmp_path, Lease("theirs", VERSION, seconds=60.0), 0.0)
    clocks.ahead = ahead
    with pytest.raises(EngineError):
        clocks.take(tmp_path, Lease("ours", VERSION, seconds=60.0), 0.0)
    clocks.wall += 61.0
    clocks.take(tmp_path, Lease("ours", VERSION, seconds=60.0), 0.0)
    for _ in range(12):  # a worker's clock differs from the launcher's, but it renews anyway
        clocks.sleep(10.0)
        clocks.ahead = -clocks.ahead
        held(tmp_path, "ours").renew()
        clocks.ahead = -clocks.ahead
        assert clocks.wall - clocks.written[str(tmp_path / "lease.json")] <= 30.0


@pytest.mark.parametrize("jump", [-1e6, 1e6])
def test_a_lease_stored_with_a_wrong_clock_of_the_storage_is_void(
    tmp_path: Path, clocks: Clocks, jump: float
) -> None:
    clocks.take(tmp_path, Lease("theirs", VERSION, seconds=60.0), 0.0)
    clocks.wall += jump
    clocks.take(tmp_path, Lease("ours", VERSION), 0.0)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b'{"holder": "a"}', b"\xff\xfe\x00", b"\x00" * 512, b"[" * 100_000,
        b'{"holder": "a", "version": "v", "pid": 1.5}', b'{"holder": 1, "version": "v"}',
        b'{"holder": "a", "version": "v", "renewed": NaN}',
        b'{"holder": "a", "version": "v", "seconds": true}',
    ],
)  # fmt: skip
def test_a_damaged_lease_is_taken_over(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "lease.json").write_bytes(data)
    assert not is_kept(tmp_path, "") and read_holder(str(tmp_path)) == ""
    held(tmp_path, "ours").acquire()
    assert stored(tmp_path).holder == read_holder(str(tmp_path)) == "ours"


def test_the_holder_may_take_its_lease_again(tmp_path: Path, clocks: Clocks) -> None:
    clocks.take(tmp_path, Lease("ours", VERSION), 0.0)
    before = stored(tmp_path)
    clocks.sleep(10)
    clocks.take(tmp_path, Lease("ours", VERSION), 0.0)
    assert stored(tmp_path) == before  # it is fresh
    clocks.sleep(before.seconds / 2)
    clocks.take(tmp_path, Lease("ours", VERSION), 0.0)
    assert stored(tmp_path) == replace(before, renewed=before.renewed + 10 + before.seconds / 2)


def test_renewing_needs_few_requests(tmp_path: Path, clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks.take(tmp_path, Lease("ours", VERSION, seconds=100.0), 0.0)
    asked: list[str] = []
    read = storage.read_with_etag
    monkeypatch.setattr(storage, "read_with_etag", lambda path: asked.append(path) or read(path))
    for _ in range(1000):  # 500 seconds
        clocks.sleep(0.5)
        held(tmp_path, "ours").renew()
        assert clocks.wall - stored(tmp_path).renewed <= 50.0
    assert 10 <= len(asked) <= 2 * 500 / 25


def test_a_failing_storage_does_not_end_a_rebuild(
    tmp_path: Path, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks.take(tmp_path, Lease("ours", VERSION, seconds=100.0), 0.0)
    clocks.sleep(40.0)
    for error in (OSError("gone"), EngineError("The storage does not answer.")):
        with monkeypatch.context() as patch:
            patch.setattr(storage, "read_with_etag", mock.Mock(side_effect=error))
            held(tmp_path, "ours").renew()
            held(tmp_path, "ours").release()
            with pytest.raises(EngineError):
                is_kept(tmp_path, "ours")
            with pytest.raises(EngineError):
                clocks.take(tmp_path, Lease("theirs", VERSION), 0.0)
        clocks.sleep(20.0)
    held(tmp_path, "ours").renew()
    assert stored(tmp_path).renewed == clocks.wall


def test_a_lost_lease_is_detected_each_time(tmp_path: Path, clocks: Clocks) -> None:
    clocks.take(tmp_path, Lease("ours", VERSION, seconds=60.0), 0.0)
    held(tmp_path, "ours").renew()
    clocks.sleep(61.0)
    clocks.take(tmp_path, Lease("theirs", "20261121T030000Z", "host", 7), 0.0)
    for _ in range(3):
        with pytest.raises(EngineError, match=r"lost its lease .process 7 on host .* 20261121T030000Z"):
            held(tmp_path, "ours").renew()
    assert not is_kept(tmp_path, "ours") and is_kept(tmp_path, "theirs")
    held(tmp_path, "ours").release()
    assert stored(tmp_path).holder == "theirs"
    held(tmp_path, "theirs").release()
    assert not (tmp_path / "lease.json").exists()
    with pytest.raises(EngineError, match="nobody has it now"):
        held(tmp_path, "ours").renew()
    held(tmp_path, "ours").release()
    assert not (tmp_path / "lease.json").exists()


def test_the_check_before_the_pointer_guarantees_the_full_time(tmp_path: Path, clocks: Clocks) -> None:
    clocks.take(tmp_path, Lease("ours", VERSION, seconds=60.0), 0.0)
    clocks.sleep(59.0)
    assert is_kept(tmp_path, "ours")
    clocks.sleep(59.0)
    with pytest.raises(EngineError):
        clocks.take(tmp_path, Lease("theirs", VERSION), 0.0)


def test_many_threads_of_the_holder_renew_at_once(tmp_path: Path) -> None:
    held(tmp_path, "ours").acquire()
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(is_kept, [tmp_path] * 8, ["ours"] * 8))


def test_the_launcher_renews_once_the_job_has_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LOOK_SECONDS", 0.01)
    threads = set(threading.enumerate())
    with held(tmp_path, "ours").heartbeat():
        put(tmp_path, Lease("theirs", VERSION, renewed=1.0))
        HeldLease(str(tmp_path), Lease("ours", VERSION, seconds=0.2)).acquire()
        first, deadline = stored(tmp_path).renewed, time.monotonic() + 60
        while stored(tmp_path).renewed == first:
            assert time.monotonic() < deadline, "it does not renew"
            time.sleep(0.01)
        (tmp_path / "lease.json").write_text(json.dumps(None))
    assert set(threading.enumerate()) <= threads  # threads of other tests may end meanwhile
