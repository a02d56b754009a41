"""The lease of a rebuild, taken, renewed and given back: of several rebuilds, one is at work.

All of it goes by conditional writes of `lease.json`. A holder whose lease ran out, or whose process ended
on this machine, is succeeded; if it lives all the same it finds that out at its next renewal, and at the
latest before it switches the pointer (`still_mine`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
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
#: How long somebody pauses who was not the first.
_BEATEN_SECONDS = 0.1
#: How long the end of a block waits for a renewal under way.
_END_SECONDS = 5.0

_next_renewal: dict[tuple[str, str], float] = {}
_lock = threading.Lock()


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


def acquire(
    output: str,
    lease: Lease,
    wait_seconds: float,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
    waiting: Callable[[str], None] = lambda _: None,
) -> None:
    """Takes the lease of an output; a holder that has it already takes it anew.

    Args:
      output: the directory that holds the versions.
      lease: to take; `since` and `renewed` are set here.
      wait_seconds: how long a live holder's end is waited for.
      now: the clock.
      sleep: what waits.
      monotonic: a clock that nobody sets.
      waiting: is told once who is waited for.

    Raises:
      EngineError: if another one still has it then, or the storage fails.
    """
    path, host = storage.join(output, LEASE_JSON), socket.gethostname()
    deadline = monotonic() + wait_seconds
    seen, seen_at = b"", monotonic()
    pause, told = _POLL_SECONDS / 16, False
    while True:
        with storage.faults("take the lease", path):
            found = storage.read_tagged(path)
        if found is None or found[0] != seen:
            seen, seen_at = (found[0] if found else b""), monotonic()
        held = _read(found[0]) if found else None
        mine = held is not None and held.holder == lease.holder
        # Somebody silent for as long as its lease lasts is gone, whatever the clocks say.
        silent = held is not None and monotonic() - seen_at > held.seconds
        if held is None or mine or silent or is_void(held, now(), host, may_live):
            since = held.since if held is not None and mine else now()
            taken = replace(lease, since=since, renewed=now()).dumps().encode()
            with storage.faults("take the lease", path):
                if storage.write_tagged(path, taken, found[1] if found else None):
                    return
            sleep(_BEATEN_SECONDS)  # somebody was faster; the next look shows who
            continue
        remaining = deadline - monotonic()
        if remaining <= 0:
            raise _held_by(output, held)
        if not told:
            told = True
            waiting(_who(held))
        sleep(min(pause, remaining))
        pause = min(2 * pause, _POLL_SECONDS)


def renew(output: str, holder: str) -> None:
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
        held = _renewed(output, holder, at_once=False)
    except (OSError, ShardwrightError) as error:
        _LOGGER.warning("The lease of %s could not be renewed: %s", printable(output), error)
        return
    mine = held is not None and held.holder == holder
    with _lock:
        pause = held.seconds * _RENEW_AFTER if held is not None and mine else 0.0
        _next_renewal[output, holder] = time.monotonic() + pause
    if not mine:
        raise _lost(output, held)


def still_mine(output: str, holder: str) -> bool:
    """Whether the holder still has the lease; if so, its time begins anew.

    Raises:
      EngineError: if the storage fails.
    """
    with storage.faults("renew the lease", storage.join(output, LEASE_JSON)):
        held = _renewed(output, holder, at_once=True)
    return held is not None and held.holder == holder


def release(output: str, holder: str) -> None:
    """Gives the lease back if the holder has it; if the storage fails it runs out by itself."""
    path = storage.join(output, LEASE_JSON)
    try:
        while (found := storage.read_tagged(path)) is not None:
            held = _read(found[0])
            if held is None or held.holder != holder or storage.remove_tagged(path, found[1]):
                return
    except (OSError, ShardwrightError) as error:
        _LOGGER.warning("The lease of %s could not be given back: %s", printable(output), error)


def read_holder(output: str) -> str:
    """Returns who has the lease, void or not; empty if nobody does.

    Raises:
      EngineError: if the storage fails.
    """
    path = storage.join(output, LEASE_JSON)
    with storage.faults("read the lease", path):
        found = storage.read_tagged(path)
    held = _read(found[0]) if found else None
    return held.holder if held else ""


@contextlib.contextmanager
def heartbeat(output: str, holder: str) -> Iterator[None]:
    """Renews the lease for as long as the block runs, once a step of the job has taken it.

    Nothing is raised here: steps of the job find out (`renew`) if the lease is lost.
    """
    ended = threading.Event()

    def beat() -> None:
        pause = _LOOK_SECONDS
        while not ended.wait(pause):
            pause = _LOOK_SECONDS
            try:
                held = _renewed(output, holder, at_once=False)
                if held is not None and held.holder == holder:
                    pause = held.seconds * _RENEW_AFTER
            except (OSError, ShardwrightError) as error:
                _LOGGER.warning("The lease of %s could not be renewed: %s", printable(output), error)

    thread = threading.Thread(target=beat, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_END_SECONDS)


def _renewed(output: str, holder: str, at_once: bool) -> Lease | None:
    """Renews the lease if the holder has it, and it is time or `at_once`; returns whose it is."""
    path = storage.join(output, LEASE_JSON)
    while (found := storage.read_tagged(path)) is not None:
        held, now = _read(found[0]), time.time()
        if held is None or held.holder != holder:
            return held
        if not at_once and abs(now - held.renewed) < held.seconds * _RENEW_AFTER:
            return held  # another process of the holder was here
        if storage.write_tagged(path, replace(held, renewed=now).dumps().encode(), found[1]):
            return held
    return None


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
    return (
        f"{process} has been making version {held.version} since {_utc(held.since)} "
        f"and was last heard of at {_utc(held.renewed)}"
    )


def _held_by(output: str, held: Lease) -> EngineError:
    path = storage.join(output, LEASE_JSON)
    return EngineError(
        f"Another rebuild of {printable(output)} is at work: {printable(_who(held))}; run again when it has "
        f"ended, wait for it with --wait MINUTES, or remove {printable(path)} if it is no more."
    )


def _lost(output: str, held: Lease | None) -> EngineError:
    now = _who(held) if held else "nobody has it now"
    return EngineError(
        f"This rebuild of {printable(output)} lost its lease ({printable(now)}), perhaps because it was "
        "silent for longer than lease_minutes; it stops here, and the next run takes over what is finished."
    )
