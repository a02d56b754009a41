"""Takes, renews and releases the lease of an output, so that only one writer works at a time.

A rebuild keeps the lease in `lease.json`, a conversion or salvage in `_work/lease.json`. Every change of
that file is a conditional write. Another run takes over if the lease has expired, or if its holder's process
has ended on this machine. A holder that still runs notices the loss at its next renewal, or at the latest
before it commits anything (`HeldLease.check`). The storage's own clock decides how old a lease is.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from shardwright.core import storage
from shardwright.schemas.dataset import WRITER_JSON
from shardwright.schemas.errors import DataRefused, EngineError, ShardwrightError
from shardwright.schemas.json_values import from_json
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import counted
from shardwright.schemas.version import LEASE_JSON

_LOGGER = logging.getLogger(__name__)
#: Maximum duration of a lease (14 days), so that a damaged one does not block an output for ever.
MAX_SECONDS = 14 * 86_400.0
#: Seconds between two looks of a run that waits for the lease.
POLL_SECONDS = 5.0
#: Fraction of the lease time after which the lease is renewed.
_RENEW_AFTER = 1 / 4
#: Seconds between two looks of the launcher at whether its job has taken the lease.
LOOK_SECONDS = 5.0
#: Seconds until a failed renewal is tried again. Other threads leave it to the one that tries.
_AGAIN_SECONDS = 15.0
#: Number of attempts to read the storage's clock.
_PROBES = 5
#: Seconds to pause when another run wrote first.
_BEATEN_SECONDS = 0.1
#: Seconds that the end of a block waits for a renewal in progress.
_END_SECONDS = 5.0
_MINUTE = 60

_next_renewal: dict[tuple[str, str], float] = {}
#: Holders that work in this process.
_at_work: set[str] = set()
_lock = threading.Lock()


@dataclass(frozen=True)
class Lease:
    """The contents of a `lease.json`.

    Attributes:
      holder: Random name of a run, which tells runs apart.
      version: Name of the version that a rebuild makes; empty for a conversion or salvage.
      host: Machine of the run's launcher.
      pid: Process id of the launcher; 0 if the job continues without it, so that its end means nothing.
      began: Start of that process as its system reports it, because a pid may be used again.
      since: When the holder got the lease, in seconds since the epoch.
      renewed: When the holder last renewed the lease, in seconds since the epoch.
      seconds: Duration of the lease after a renewal.
    """

    holder: str
    version: str
    host: str = ""
    pid: int = 0
    began: str = ""
    since: float = 0.0
    renewed: float = 0.0
    seconds: float = 3600.0

    def dumps(self) -> str:
        """Returns the document as it is stored."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @staticmethod
    def loads(data: bytes) -> Lease | None:
        """Reads a stored document; returns None if it is damaged, so that it stops nobody.

        Its `seconds` are at most `MAX_SECONDS`. Fields that a later version added are ignored.
        """
        try:
            lease = from_json(Lease, json.loads(data))
        except (TypeError, ValueError, RecursionError):
            return None
        return replace(lease, seconds=min(lease.seconds, MAX_SECONDS))


@dataclass(frozen=True)
class HeldLease:
    """The lease under which a run works. It travels with the job's description.

    Attributes:
      output: Directory that has one writer at a time.
      lease: Contents that the run writes to the lease file.
      file: Path of the lease file, relative to the output.
    """

    output: str
    lease: Lease
    file: str = LEASE_JSON

    @property
    def holder(self) -> str:
        """Identifier of the run."""
        return self.lease.holder

    @property
    def path(self) -> str:
        """Path of the lease file."""
        return storage.join(self.output, self.file)

    def acquire(self, wait_seconds: float = 0.0, waiting: Callable[[str], None] = lambda _: None) -> None:
        """Takes the lease. A holder that already has the lease renews it if that is due.

        Args:
          wait_seconds: Seconds to wait for another holder to finish.
          waiting: Function that is called once with a description of the holder.

        Raises:
          EngineError: If another run still has the lease after that time, or the storage fails.
        """
        path = self.path
        deadline = time.monotonic() + wait_seconds
        seen, seen_at = b"", time.monotonic()
        pause, announced = POLL_SECONDS / 16, False
        while True:
            with storage.translated_errors("take the lease", path):
                content, tag = storage.read_with_etag(path) or (b"", None)
            if content != seen:
                seen, seen_at = content, time.monotonic()
            lease = Lease.loads(content)
            mine = self._has(lease)
            if lease is not None and mine and _is_fresh(lease):
                return
            # A holder that was silent for its whole lease time is gone, even if clocks differ.
            silent = lease is not None and time.monotonic() - seen_at > lease.seconds
            if lease is None or mine or silent or _is_void(path, lease):
                since = lease.since if lease is not None and mine else time.time()
                renewed = replace(self.lease, since=since, renewed=time.time())
                with storage.translated_errors("take the lease", path):
                    if storage.write_if_match(path, renewed.dumps().encode(), tag):
                        return
                time.sleep(_BEATEN_SECONDS)  # another run was faster; the next look shows which
                continue
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise _held_error(self.output, lease, self.file)
            if not announced:
                announced = True
                waiting(_holder_and_age(lease, path))
            time.sleep(min(pause, remaining))
            pause = min(2 * pause, POLL_SECONDS)

    def renew(self) -> None:
        """Reports that the run still works. It rarely asks the storage, so call it as often as you like.

        If the storage fails, the run continues, and a later call tries again.

        Raises:
          EngineError: If the run has lost the lease.
        """
        key = self.output, self.holder
        with _lock:
            if time.monotonic() < _next_renewal.get(key, 0.0):
                return
            _next_renewal[key] = time.monotonic() + _AGAIN_SECONDS
        try:
            lease = self._renew_if_due(at_once=False)
        except (OSError, ShardwrightError) as error:
            _LOGGER.warning("The lease of %s could not be renewed: %s", printable(self.output), error)
            return
        with _lock:
            pause = lease.seconds * _RENEW_AFTER if lease is not None and self._has(lease) else 0.0
            _next_renewal[key] = time.monotonic() + pause
        self._check_has(lease)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Checks that the run has the lease. On a disk, nobody can take it over while the block runs.

        Write each file of a commit in such a block, and nothing else.

        Raises:
          EngineError: If the run does not have the lease, or the storage fails.
        """
        with contextlib.ExitStack() as stack:
            try:
                with storage.translated_errors("lock the lease", self.path):
                    stack.enter_context(storage.alone_with(self.path))
            except EngineError:
                self.check()  # raises the right error if the lease has gone with its folder
                raise
            self.check()
            try:
                yield
            except FileNotFoundError:  # a folder has gone
                self.check()
                raise

    def check(self) -> None:
        """Checks with one request that the run still has the lease.

        Raises:
          EngineError: If the run has lost the lease, or the storage fails.
        """
        self._check_has(_stored_lease(self.output, self.file))

    def keep(self) -> None:
        """Checks that the run still has the lease, and renews it.

        Raises:
          EngineError: If the run has lost the lease, or the storage fails.
        """
        with storage.translated_errors("renew the lease", self.path):
            lease = self._renew_if_due(at_once=True)
        self._check_has(lease)

    def release(self) -> None:
        """Gives the lease back if the run has it. If the storage fails, the lease expires later.

        An empty lease file is free. It stays in a bucket, because S3 and Azure have no way to remove an
        object only if nobody has written it meanwhile.
        """
        path = self.path
        try:
            while (entry := storage.read_with_etag(path)) is not None:
                content, tag = entry
                if not self._has(Lease.loads(content)) or storage.write_if_match(path, b"", tag):
                    break
            if not storage.is_remote(path) and os.path.lexists(path):
                with storage.alone_with(path):
                    if not storage.read_bytes(path):
                        storage.remove(path)
        except (OSError, ShardwrightError) as error:
            _LOGGER.warning("The lease of %s could not be given back: %s", printable(self.output), error)

    @contextlib.contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Renews the lease while the block runs, once a step of the job has taken it.

        It raises no errors: if the lease is lost, the steps of the job notice it (`renew`).
        """
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(LOOK_SECONDS):
                with contextlib.suppress(EngineError):
                    self.renew()

        thread = threading.Thread(target=beat, name="lease", daemon=True)
        with _lock:
            _at_work.add(self.holder)
        thread.start()
        try:
            yield
        finally:
            with _lock:
                _at_work.discard(self.holder)
            ended.set()
            thread.join(_END_SECONDS)

    def _has(self, lease: Lease | None) -> bool:
        return lease is not None and lease.holder == self.holder

    def _check_has(self, lease: Lease | None) -> None:
        if self._has(lease):
            return
        output, now = self.output, _holder_text(lease) if lease else "nobody has it now"
        if self.file == LEASE_JSON:
            raise EngineError(
                f"This rebuild of {output} lost its lease ({now}), perhaps because it was silent for longer "
                "than lease_minutes; it stops here, and the next run takes over what is finished."
            )
        raise EngineError(
            f"This run lost its lease of {output} ({now}), perhaps because it was silent for too long; it "
            "stops here and writes nothing more."
        )

    def _renew_if_due(self, at_once: bool) -> Lease | None:
        """Renews the lease if the run has it and it is due or `at_once`; returns the lease before that."""
        path = self.path
        while (entry := storage.read_with_etag(path)) is not None:
            content, tag = entry
            lease = Lease.loads(content)
            if lease is None or not self._has(lease) or (not at_once and _is_fresh(lease)):
                return lease
            renewed = replace(lease, renewed=time.time())
            if storage.write_if_match(path, renewed.dumps().encode(), tag):
                return lease
        return None


def while_held(hold: HeldLease | None) -> AbstractContextManager[None]:
    """Returns `HeldLease.held`, or a context manager that does nothing for a run that needs no lease."""
    return hold.held() if hold is not None else contextlib.nullcontext()


@contextlib.contextmanager
def given_back(hold: HeldLease | None) -> Iterator[None]:
    """Gives a lease back if the block ends or refuses the data; after other errors it may run again."""
    try:
        yield
    except DataRefused:
        if hold is not None:
            hold.release()
        raise
    if hold is not None:
        hold.release()


def own_holder(hold: HeldLease | None) -> HeldLease | None:
    """Returns a lease with its own holder, for a job that may be launched several times."""
    return hold and replace(hold, lease=replace(hold.lease, holder=uuid.uuid4().hex))


def this_process() -> tuple[str, int, str]:
    """Returns the host, the pid and the start of this process, which identify it as a holder.

    The start tells it from all that have its pid over time, and is empty if the system does not state it.

    Use it for a job that ends with the process that launched it. Jobs that outlive it (on Dataflow
    or Flink) use pid 0, because the end of the launcher does not mean the end of the job.
    """
    pid, realm = os.getpid(), _realm()
    state = _state_of(pid)
    return socket.gethostname(), pid, f"{realm} {state[1]}" if realm and state else ""


def _realm() -> str:
    """Returns the boot id of this system and its pid namespace; a pid is unique only inside them.

    Two containers may have the same host name, and each may have a process 1. The same is true of one machine
    before and after a restart. The result is empty on a system without /proc.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except (OSError, ValueError):
        return ""


def _state_of(pid: int) -> tuple[str, str] | None:
    """Returns the state of a process and its start in ticks since the boot; None if /proc lacks it."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes().decode("utf-8", "replace")
        values = status.rpartition(")")[2].split()  # a process may have a `)` in its name
        return values[0], values[19]
    except (OSError, IndexError):
        return None


def may_live(pid: int, began: str) -> bool:
    """Returns whether a process of this host may still run; false only if it has certainly ended.

    A process of another boot or pid namespace counts as alive, because a restarted machine looks like another
    machine of the same name. Such a lease ends only when it expires.
    """
    realm, _, ticks = began.rpartition(" ")
    if not realm or realm != _realm():
        return True
    try:
        os.kill(pid, 0)  # /proc may hide the processes of other users
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass
    state = _state_of(pid)
    return state is None or (state[0] not in "ZXx" and state[1] == ticks)


def write_held(directory: str, name: str, data: bytes, hold: HeldLease | None) -> None:
    """Writes a file of a dataset that only the holder of the lease may write.

    With a lease, it never creates the directory, because a run that took the lease over may have removed it.

    Args:
      directory: The dataset directory.
      name: Path of the file, relative to the directory.
      data: Contents of the file.
      hold: Lease that the run must hold. None if it needs no lease.

    Raises:
      EngineError: If the lease was lost, or the storage fails.
      OSError: If the file cannot be written.
    """
    with while_held(hold):
        inside = "" if hold is None else directory
        storage.write_bytes(storage.join(directory, name), data, inside=inside)


def check_free(output: str, holder: str = "") -> None:
    """Checks that no conversion or salvage except `holder` has a valid lease of an output.

    Raises:
      EngineError: If another run has the lease, or the storage fails.
    """
    lease = _stored_lease(output, WRITER_JSON)
    path = storage.join(output, WRITER_JSON)
    if lease is not None and lease.holder != holder and not _is_void(path, lease):
        raise _held_error(output, lease, WRITER_JSON)


def _is_void(path: str, lease: Lease) -> bool:
    """Returns whether a stored lease no longer keeps other runs away.

    A lease that is not renewed ends after its duration. A lease from the far future was written while the
    storage's clock was wrong. On the holder's own machine, the end of its process ends the lease at once.
    """
    with _lock:
        ended = lease.holder not in _at_work
    if ended and lease.began and (lease.host, lease.pid, lease.began) == this_process():
        return True  # an earlier run of this process could not give it back
    with storage.translated_errors("read the lease", path):
        age = _age(path)
    # A lease that has gone meanwhile stops nobody; the next attempt to take it shows that.
    if age is None or not abs(age) <= lease.seconds:
        return True
    return lease.pid > 0 and lease.host == socket.gethostname() and not may_live(lease.pid, lease.began)


def _age(path: str) -> float | None:
    """Returns the age of a file in seconds, by the clock of its storage; None if it has gone.

    The clocks of two machines may differ by more than a lease time, so a file written now tells the time.
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
        if now is not None:  # otherwise another process removed the probe
            return now - written
    return 0.0


def read_holder(output: str) -> str:
    """Returns the holder of the lease, even of an expired one; empty if there is none.

    Raises:
      EngineError: If the storage fails.
    """
    lease = _stored_lease(output, LEASE_JSON)
    return lease.holder if lease else ""


def _stored_lease(output: str, file: str) -> Lease | None:
    """Returns the stored lease, even an expired one; None if it is missing or damaged."""
    return Lease.loads(storage.read_if_exists(storage.join(output, file)) or b"")


def _is_fresh(lease: Lease) -> bool:
    """Returns whether the holder, in this or another process, has renewed the lease recently.

    The clock of the process that renewed it may be wrong by any time. But a lease looks fresh for at most
    half of its time, and a holder looks after each quarter, so it is renewed before it ends.
    """
    return abs(time.time() - lease.renewed) < lease.seconds * _RENEW_AFTER


def _utc(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):
        return "an unknown time"


def _holder_text(lease: Lease) -> str:
    process = f"process {lease.pid} on {lease.host}" if lease.pid else "a job"
    doing = f"making version {lease.version}" if lease.version else "writing there"
    return f"{process} has been {doing} since {_utc(lease.since)} by its own clock"


def _holder_and_age(lease: Lease, path: str) -> str:
    """Describes the holder of a lease and when it was last heard of, which only the storage's clock tells."""
    age = None
    with contextlib.suppress(OSError, EngineError):  # what the message is about matters more
        age = _age(path)
    if age is None:
        return _holder_text(lease)
    seconds = max(0, round(age))
    ago = counted(seconds, "second") if seconds < _MINUTE else counted(seconds // _MINUTE, "minute")
    return f"{_holder_text(lease)}, and was last heard of {ago} ago by the clock of the storage"


def _held_error(output: str, lease: Lease, file: str) -> EngineError:
    path = storage.join(output, file)
    holder = _holder_and_age(lease, path)
    if file == LEASE_JSON:
        return EngineError(
            f"Another rebuild of {output} is running: {holder}; run again when it has "
            f"ended, wait for it with --wait MINUTES, or remove {path} if that run has ended."
        )
    return EngineError(
        f"Another run writes to {output}: {holder}; run again when it has ended, choose another "
        f"place, or remove {path} if that run has ended."
    )
