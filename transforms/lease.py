"""The lease of an output, taken, renewed and given back: of several writers, one is at work.

A rebuild has it in `lease.json`, a conversion or salvage in `_work/lease.json`. All of it goes by conditional
writes of that file. A holder whose lease ran out, or whose process ended on this machine, is succeeded. If it
lives all the same, it finds that out at its next renewal, and at the latest before it commits anything
(`HeldLease.check`). How old a lease is, the storage's own clock says.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from shardwright.schemas.errors import EngineError, ShardwrightError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.lease import Lease, is_void
from shardwright.schemas.version import LEASE_JSON
from shardwright.transforms import storage

_LOGGER = logging.getLogger(__name__)
#: How often somebody who waits looks again.
_POLL_SECONDS = 5.0
#: A lease is renewed when this part of its time is over.
_RENEW_AFTER = 1 / 4
#: How often the launcher looks whether its job has taken the lease.
_LOOK_SECONDS = 5.0
#: When a renewal that failed is tried again, and for how long others leave it to the one that tries.
_AGAIN_SECONDS = 15.0
#: How often the storage is asked for its time.
_PROBES = 5
#: How long somebody pauses who was not the first.
_BEATEN_SECONDS = 0.1
#: How long the end of a block waits for a renewal under way.
_END_SECONDS = 5.0

_next_renewal: dict[tuple[str, str], float] = {}
#: The renewal that this process saw last, and when it saw it first, by a clock that nobody sets.
_seen: dict[tuple[str, str], tuple[float, float]] = {}
#: Holders that are at work in this process.
_at_work: set[str] = set()
_lock = threading.Lock()


@dataclass(frozen=True)
class HeldLease:
    """The lease that a run works under; it travels with the job's description.

    Attributes:
      output: the directory that has one writer at a time.
      lease: what the run writes into the lease's file.
      file: the lease's file, relative to the output.
    """

    output: str
    lease: Lease
    file: str = LEASE_JSON

    @property
    def holder(self) -> str:
        """What tells the run from any other."""
        return self.lease.holder

    def acquire(self) -> None:
        """Takes the lease at once, as `acquire` does."""
        acquire(self.output, self.lease, 0.0, file=self.file)

    def renew(self) -> None:
        """Says that the run still works, as `renew` does."""
        renew(self.output, self.holder, self.file)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Checks that the run has the lease, which on a disk nobody takes over while the block runs.

        Write each file of a commit in such a block, and nothing else.

        Raises:
          EngineError: if it does not have it, or the storage fails.
        """
        path = storage.join(self.output, self.file)
        with contextlib.ExitStack() as stack:
            try:
                with storage.translated_errors("lock the lease", path):
                    stack.enter_context(storage.alone_with(path))
            except EngineError:
                self.check()  # says so if the lease is gone with its folder
                raise
            self.check()
            try:
                yield
            except FileNotFoundError:  # a folder is gone
                self.check()
                raise

    def check(self) -> None:
        """Checks that the run still has the lease, with one request.

        Raises:
          EngineError: if it does not, or the storage fails.
        """
        held = _held(self.output, self.file)
        if held is None or held.holder != self.holder:
            raise _lost(self.output, held, self.file)

    def keep(self) -> None:
        """Checks that the run still has the lease, whose time begins anew.

        Raises:
          EngineError: if it does not, or the storage fails.
        """
        if not still_mine(self.output, self.holder, self.file):
            raise _lost(self.output, _held(self.output, self.file), self.file)

    def release(self) -> None:
        """Gives the lease back, as `release` does."""
        release(self.output, self.holder, self.file)


def own_holder(hold: HeldLease | None) -> HeldLease | None:
    """Returns a lease for this launch of a job that may be launched several times."""
    return hold and replace(hold, lease=replace(hold.lease, holder=uuid.uuid4().hex))


def this_process() -> tuple[str, int, str]:
    """Returns the host, the pid and the beginning of this process, as a lease names its holder.

    For a job that dies with the process that launched it. One that goes on without (Dataflow, Flink) is
    held with pid 0, for the launcher's end says nothing of it.
    """
    pid = os.getpid()
    return socket.gethostname(), pid, _beginning_of(pid)


def _realm() -> str:
    """Returns what a pid means something in: the boot of this system, and the namespace of its pids.

    Two containers may have the same host name and each a process 1; a machine that was started again and
    another one may have the same name too. Empty where there is no /proc.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except (OSError, ValueError):
        return ""


def _state_of(pid: int) -> tuple[str, str] | None:
    """Returns a process's state and when it began, in ticks since the boot; None if /proc has none."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes().decode("utf-8", "replace")
        values = status.rpartition(")")[2].split()  # a process may have a `)` in its name
        return values[0], values[19]
    except (OSError, IndexError):
        return None


def _beginning_of(pid: int) -> str:
    """Returns what tells a process from any other that had or gets its pid; empty if nothing does."""
    realm, state = _realm(), _state_of(pid)
    return f"{realm} {state[1]}" if realm and state else ""


def may_live(pid: int, began: str) -> bool:
    """Whether a process of this host may still run: true unless it has certainly ended.

    One of another boot or another pid namespace counts as alive: from here, a machine that was started
    again looks like another one of the same name. Only the lease's time ends it.
    """
    realm, _, ticks = began.rpartition(" ")
    if not realm or realm != _realm():
        return True
    try:
        os.kill(pid, 0)  # /proc alone may hide what belongs to others
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass
    state = _state_of(pid)
    return state is None or (state[0] not in "ZXx" and state[1] == ticks)


def write_held(directory: str, name: str, data: bytes, hold: HeldLease | None) -> None:
    """Writes a file of a dataset that only the holder of a lease may write.

    The directory itself is never made: who took the lease over may have removed it.

    Args:
      directory: of the dataset.
      name: of the file, relative to the directory.
      data: its content.
      hold: the lease; None where anybody may write.

    Raises:
      EngineError: if the lease was lost, or the storage fails.
      OSError: if the file cannot be written.
    """
    path = storage.join(directory, name)
    if hold is None:
        storage.write_bytes(path, data)
        return
    with hold.held():
        storage.write_bytes(path, data, inside=directory)


def acquire(
    output: str,
    lease: Lease,
    wait_seconds: float,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
    waiting: Callable[[str], None] = lambda _: None,
    file: str = LEASE_JSON,
) -> None:
    """Takes the lease of an output; a holder that has it already takes it anew.

    Args:
      output: the directory that is written to.
      lease: to take; `since` and `renewed` are set here.
      wait_seconds: how long a live holder's end is waited for.
      now: the clock for what people read.
      sleep: what waits.
      monotonic: a clock that nobody sets.
      waiting: is told once who is waited for.
      file: the lease's file, relative to the output.

    Raises:
      EngineError: if another one still has it then, or the storage fails.
    """
    path = storage.join(output, file)
    deadline = monotonic() + wait_seconds
    seen, seen_at = b"", monotonic()
    pause, told = _POLL_SECONDS / 16, False
    while True:
        with storage.translated_errors("take the lease", path):
            found = storage.read_with_etag(path)
        if found is None or found[0] != seen:
            seen, seen_at = (found[0] if found else b""), monotonic()
        held = _read(found[0]) if found else None
        mine = held is not None and held.holder == lease.holder
        # Somebody silent for as long as its lease lasts is gone, whatever the clocks say.
        silent = held is not None and monotonic() - seen_at > held.seconds
        if held is None or mine or silent or _is_void(path, held):
            since = held.since if held is not None and mine else now()
            taken = replace(lease, since=since, renewed=now()).dumps().encode()
            with storage.translated_errors("take the lease", path):
                if storage.write_if_match(path, taken, found[1] if found else None):
                    return
            sleep(_BEATEN_SECONDS)  # somebody was faster; the next look shows who
            continue
        remaining = deadline - monotonic()
        if remaining <= 0:
            raise _held_by(output, held, file)
        if not told:
            told = True
            waiting(_who(held))
        sleep(min(pause, remaining))
        pause = min(2 * pause, _POLL_SECONDS)


def check_free(output: str, holder: str = "", file: str = LEASE_JSON) -> None:
    """Checks that nobody but a holder has the lease of an output, or only somebody who is gone.

    Raises:
      EngineError: if somebody has it, or the storage fails.
    """
    held = _held(output, file)
    if held is not None and held.holder != holder and not _is_void(storage.join(output, file), held):
        raise _held_by(output, held, file)


def _is_void(path: str, held: Lease) -> bool:
    if _has_ended_here(held):
        return True
    with storage.translated_errors("read the lease", path):
        age = _age(path)
    # A lease that is gone meanwhile keeps nobody away, which the next attempt to take it shows.
    return age is None or is_void(held, age, socket.gethostname(), may_live)


def _has_ended_here(held: Lease) -> bool:
    """Whether a lease is of an earlier run of this process, which could not give it back."""
    with _lock:
        ended = held.holder not in _at_work
    return ended and bool(held.began) and (held.host, held.pid, held.began) == this_process()


def _age(path: str) -> float | None:
    """Returns how many seconds ago a file was written, by the clock of its storage; None if it is gone.

    The clocks of two machines may differ by more than a lease lasts, so that a file written now is asked.
    """
    for _ in range(_PROBES):
        probe = storage.unfinished(path)
        storage.write_bytes(probe, b"")
        try:
            now = storage.modified_at(probe)
        finally:
            storage.remove(probe)
        written = storage.modified_at(path)
        if written is None:
            return None
        if now is not None:  # else somebody cleared it away
            return now - written
    return 0.0


def renew(output: str, holder: str, file: str = LEASE_JSON) -> None:
    """Says that the holder still works; asks the storage seldom, so call it as often as you like.

    A storage that fails is no reason to stop: the next call tries again.

    Raises:
      EngineError: if the holder has the lease no more.
    """
    with _lock:
        if time.monotonic() < _next_renewal.get((output, holder), 0.0):
            return
        _next_renewal[output, holder] = time.monotonic() + _AGAIN_SECONDS
    try:
        held = _renewed(output, holder, file, at_once=False)
    except (OSError, ShardwrightError) as error:
        _LOGGER.warning("The lease of %s could not be renewed: %s", printable(output), error)
        return
    mine = held is not None and held.holder == holder
    with _lock:
        pause = held.seconds * _RENEW_AFTER if held is not None and mine else 0.0
        _next_renewal[output, holder] = time.monotonic() + pause
    if not mine:
        raise _lost(output, held, file)


def still_mine(output: str, holder: str, file: str = LEASE_JSON) -> bool:
    """Whether the holder still has the lease; if so, its time begins anew.

    Raises:
      EngineError: if the storage fails.
    """
    with storage.translated_errors("renew the lease", storage.join(output, file)):
        held = _renewed(output, holder, file, at_once=True)
    return held is not None and held.holder == holder


def release(output: str, holder: str, file: str = LEASE_JSON) -> None:
    """Gives the lease back if the holder has it; if the storage fails it runs out by itself."""
    path = storage.join(output, file)
    try:
        while (found := storage.read_with_etag(path)) is not None:
            held = _read(found[0])
            if held is None or held.holder != holder or storage.remove_if_match(path, found[1]):
                return
    except (OSError, ShardwrightError) as error:
        _LOGGER.warning("The lease of %s could not be given back: %s", printable(output), error)


def read_holder(output: str) -> str:
    """Returns who has the lease, void or not; empty if nobody does.

    Raises:
      EngineError: if the storage fails.
    """
    held = _held(output, LEASE_JSON)
    return held.holder if held else ""


def _held(output: str, file: str) -> Lease | None:
    """Returns the lease that is stored, void or not; None if there is none, or a damaged one."""
    path = storage.join(output, file)
    with storage.translated_errors("read the lease", path):
        try:
            return _read(storage.read_bytes(path))
        except (FileNotFoundError, NotADirectoryError):
            return None


@contextlib.contextmanager
def heartbeat(output: str, holder: str, file: str = LEASE_JSON) -> Iterator[None]:
    """Renews the lease for as long as the block runs, once a step of the job has taken it.

    Nothing is raised here: steps of the job find out (`renew`) if the lease is lost.
    """
    ended = threading.Event()

    def beat() -> None:
        pause = _LOOK_SECONDS
        while not ended.wait(pause):
            pause = _LOOK_SECONDS
            try:
                held = _renewed(output, holder, file, at_once=False)
                if held is not None and held.holder == holder:
                    pause = held.seconds * _RENEW_AFTER
            except (OSError, ShardwrightError) as error:
                _LOGGER.warning("The lease of %s could not be renewed: %s", printable(output), error)

    thread = threading.Thread(target=beat, name="lease", daemon=True)
    with _lock:
        _at_work.add(holder)
    thread.start()
    try:
        yield
    finally:
        with _lock:
            _at_work.discard(holder)
        ended.set()
        thread.join(_END_SECONDS)


def _renewed(output: str, holder: str, file: str, at_once: bool) -> Lease | None:
    """Renews the lease if the holder has it, and it is time or `at_once`; returns whose it is."""
    path = storage.join(output, file)
    while (found := storage.read_with_etag(path)) is not None:
        held = _read(found[0])
        if held is None or held.holder != holder:
            return held
        if not at_once and _is_fresh(path, held):
            return held
        renewed = replace(held, renewed=time.time())
        if storage.write_if_match(path, renewed.dumps().encode(), found[1]):
            with _lock:
                _seen[path, holder] = renewed.renewed, time.monotonic()
            return held
    return None


def _is_fresh(path: str, held: Lease) -> bool:
    """Whether a lease was renewed lately, by this process or another one of the holder.

    Only its first look believes the clocks of others.
    """
    quarter = held.seconds * _RENEW_AFTER
    with _lock:
        seen = _seen.get((path, held.holder))
        if seen is not None and seen[0] == held.renewed:
            return time.monotonic() - seen[1] < quarter
        _seen[path, held.holder] = held.renewed, time.monotonic()
    return seen is not None or abs(time.time() - held.renewed) < quarter


def _read(data: bytes) -> Lease | None:
    """Returns the lease of a file; none for a damaged one, which keeps nobody away."""
    try:
        return Lease.loads(data)
    except ValueError:
        return None


def _utc(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):
        return "an unknown time"


def _who(held: Lease) -> str:
    process = f"process {held.pid} on {held.host}" if held.pid else "a job"
    doing = f"making version {held.version}" if held.version else "writing there"
    return (
        f"{process} has been {doing} since {_utc(held.since)} and was last heard of at {_utc(held.renewed)}"
    )


def _held_by(output: str, held: Lease, file: str) -> EngineError:
    path, who = printable(storage.join(output, file)), printable(_who(held))
    if file == LEASE_JSON:
        return EngineError(
            f"Another rebuild of {printable(output)} is at work: {who}; run again when it has "
            f"ended, wait for it with --wait MINUTES, or remove {path} if it is no more."
        )
    return EngineError(
        f"Another run writes to {printable(output)}: {who}; run again when it has ended, choose another "
        f"place, or remove {path} if it is no more."
    )


def _lost(output: str, held: Lease | None, file: str) -> EngineError:
    now = printable(_who(held) if held else "nobody has it now")
    if file == LEASE_JSON:
        return EngineError(
            f"This rebuild of {printable(output)} lost its lease ({now}), perhaps because it was "
            "silent for longer than lease_minutes; it stops here, and the next run takes over what is "
            "finished."
        )
    return EngineError(
        f"This run lost its lease of {printable(output)} ({now}), perhaps because it was silent for too "
        "long; it stops here and writes nothing more."
    )
